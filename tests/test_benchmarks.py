"""A benchmark says what it is and takes before it does anything, which may be an hour's work."""

import runpy
import sys
from pathlib import Path

import pytest
from frameworks import skip_without_frameworks_of

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
NAMES = sorted(path.name for path in BENCHMARKS.glob("*.py") if "__main__" in path.read_text("utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_that_is_asked_for_help_prints_its_usage_and_ends(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, since most of a second goes into the frameworks that some of them import."""
    skip_without_frameworks_of(BENCHMARKS / name)
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setattr(sys, "argv", [str(BENCHMARKS / name), "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(BENCHMARKS / name), run_name="__main__")
    printed = capsys.readouterr()
    assert ended.value.code == 0
    assert printed.out.startswith(f"usage: {name} ")
    assert printed.err == ""
