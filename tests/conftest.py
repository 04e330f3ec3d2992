"""What several tests share: how hypothesis searches, and where recorded sessions are."""

import gc
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Neither a deadline nor the check for slow generation: a busy machine must not fail a test. 30 examples where
# hypothesis has 100: they find what is often wrong in a third of the time, and `make test-slow` looks at 2,000.
# The fast tests look at the same examples each time, so that a change is blamed for no bug that was there before it;
# the slow ones search for new ones.
_quiet = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("default", _quiet, max_examples=30, derandomize=True)
settings.register_profile("ci", _quiet, max_examples=250, print_blob=True)
settings.load_profile("default")

# The frameworks and thousands of tests are a million objects that live to the end. The garbage collector does not run
# while they are made, and skips them later: it took a tenth of the processor time.
gc.disable()


def pytest_collection_finish() -> None:
    """Let the garbage collector look at what the tests make, a tenth as often as usual."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="session")
def recorded() -> Path | None:
    """Return the folder of recorded sessions, which is no part of the repository; None if there is none.

    ``BUOYLINE_SHARED_DATA`` names it; else it is looked for beside the checkout.
    """
    beside = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("BUOYLINE_SHARED_DATA") or beside)
    return folder if folder.is_dir() else None


@pytest.fixture(scope="session")
def shared_data(recorded: Path | None) -> Path:
    """Return the folder of recorded sessions; skip the test if there is none."""
    if recorded is None:
        pytest.skip("no recorded sessions; BUOYLINE_SHARED_DATA may name their folder")
    return recorded
