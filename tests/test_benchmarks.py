"""A benchmark says what it is and takes before it does anything, which may be an hour's work."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
NAMES = sorted(path.name for path in BENCHMARKS.glob("*.py") if "__main__" in path.read_text("utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_that_is_asked_for_help_prints_its_usage_and_ends(name: str) -> None:
    ran = subprocess.run(
        [sys.executable, str(BENCHMARKS / name), "--help"],
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=60,
    )
    assert ran.stdout.startswith(f"usage: {name} ")
    assert ran.stderr == ""
