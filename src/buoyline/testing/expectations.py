"""What the suites say to pytest. It is imported when a test runs, so that reading a suite does not need it."""

from contextlib import AbstractContextManager
from typing import Any, TypeVar

T = TypeVar("T")


def raises(kind: type[BaseException], match: str | None = None) -> AbstractContextManager[Any]:
    """Expect the block to raise *kind*, with a text in which the pattern *match* is found."""
    import pytest  # noqa: PLC0415 - see above

    return pytest.raises(kind, match=match)


def required(ability: T | None, name: str) -> T:
    """Return *ability*, or skip the test for an implementation that does not have it.

    Args:
        ability: From `abilities_of`.
        name: Its name, for the reason.
    """
    import pytest  # noqa: PLC0415 - see above

    if ability is None:
        pytest.skip(f"has no {name}")
    return ability
