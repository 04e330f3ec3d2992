"""The versions in constraints/ fit pyproject.toml, and a file that does not fit is noticed."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = runpy.run_path(str(ROOT / "scripts/check_constraints.py"))
FILES, problems_of = SCRIPT["FILES"], SCRIPT["problems_of"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what the script reads."""
    (tmp_path / "constraints").mkdir()
    for path in [ROOT / "pyproject.toml", *(ROOT / "constraints").iterdir()]:
        (tmp_path / path.relative_to(ROOT)).write_bytes(path.read_bytes())
    return tmp_path


def _edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_the_constraints_fit_the_project() -> None:
    assert list(problems_of(ROOT)) == []


def test_a_bound_above_the_locked_version_is_a_problem(checkout: Path) -> None:
    _edit(checkout / "pyproject.toml", '"click>=', '"click>=99,>=')

    problems = list(problems_of(checkout))

    assert {line.split(":")[0] for line in problems} == {f"constraints/{name}" for name in FILES}
    assert all("click" in line for line in problems)


@pytest.mark.parametrize(
    "line", ["--index-url https://index.example/simple", "click @ https://files.example/click.whl"]
)
def test_an_option_or_an_address_is_a_problem(checkout: Path, line: str) -> None:
    path = checkout / "constraints/core.txt"
    path.write_text(f"{path.read_text(encoding='utf-8')}{line}\n", encoding="utf-8")

    assert list(problems_of(checkout)) == [f"constraints/core.txt: {line!r} is no version of a package"]
