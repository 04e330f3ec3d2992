"""What a summary says of checks is compared with their last runs, and only then marked."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buoyline.compression.citations import claims
from buoyline.compression.extractive.work import work_of
from buoyline.compression.status_claims import STATUS_MARK, contradicted, status_claims, with_status_marks
from buoyline.compression.summarizers.answers import cleaned
from buoyline.compression.summary import SourceMessage
from buoyline.compression.work_state import CheckState, Outcome, WorkState
from buoyline.messages.registry import detect


def check(command: str, outcome: Outcome, line: str = "", last: int = 9, runs: int = 2) -> CheckState:
    return CheckState(command, outcome, line, last, runs)


def work(*checks: CheckState) -> WorkState:
    return WorkState(checks={one.command: one for one in checks}, end=20)


FAILING = work(
    check("uv run pytest -q", "fails", "FAILED tests/test_store.py::test_load - KeyError: 'k_17'"),
    check("golangci-lint run", "fails", "store.go:7: unused"),
    check("npm run build", "fails", "error TS2304"),
    check("npm run typecheck", "fails", "error TS2322"),
)
PASSING = work(*(check(one.command, "passes", "", one.last) for one in FAILING.checks.values()))

PASSES = [
    "All tests pass.",
    "- **All tests pass** and the PR is ready.",
    "Fixed `load_row`; all 39 tests pass now.",
    "The test suite is green again.",
    "Lint is clean.",
    "Tests: passing",
    "All tests ✅",
    "Tests and lint pass.",
    "Build, tests, and lint all pass.",
    "The build succeeds.",
    "There are no failing tests.",
    "0 lint errors",
    "The code passes all tests.",
    "The package compiles cleanly.",
    "It builds successfully.",
    "`pytest -q` passes.",
    "pytest is green.",
    "Type checking is clean.",
    "All checks pass.",
    "Alle Tests bestehen.",
    "Die Tests laufen jetzt alle durch.",
    "Alle Tests sind grün, der Linter ist sauber.",
    "Damit laufen alle Tests durch.",
    "Jetzt bestehen alle Tests.",
    "Die Testsuite ist fehlerfrei.",
    "Es gibt keine Lint-Fehler.",
    "Der Build ist erfolgreich.",
    "所有测试均已通过。",
    "テストはすべて成功。",
]


@pytest.mark.parametrize("text", PASSES)
def test_a_claim_that_checks_pass_is_marked_if_their_last_run_failed(text: str) -> None:
    marked, found = with_status_marks(text, FAILING)
    assert "(unverified: the last run of `" in marked
    assert "` failed: “" in marked
    assert found
    assert STATUS_MARK.sub("", marked) == text
    assert with_status_marks(text, PASSING) == (text, ())
    assert with_status_marks(text, work()) == (text, ())


@pytest.mark.parametrize(
    "text",
    [
        "The tests are still failing.",
        "Lint still fails.",
        "Die Tests schlagen weiterhin fehl.",
        "Der Build ist kaputt.",
    ],
)
def test_a_claim_that_checks_fail_is_marked_if_their_last_run_passed(text: str) -> None:
    assert "` passed)" in with_status_marks(text, PASSING)[0]
    assert with_status_marks(text, FAILING) == (text, ())


@pytest.mark.parametrize(
    "text",
    [
        "Not all tests pass.",
        "The tests do not pass yet.",
        "Continue until all tests pass.",
        "Make sure all tests pass before the commit.",
        "Once the parser is fixed, all tests pass.",
        "All tests should pass.",
        "Verify that lint is clean.",
        "All tests pass except test_load.",
        "Most tests pass, two fail.",
        "Do all tests pass?",
        'The user wrote: "all tests pass".',
        "The user said that all tests pass on main.",
        "The new tests pass.",
        "Unit tests pass.",
        "Tests in tests/test_other.py pass.",
        "The tests pass a path to load_row.",
        "- [ ] All tests pass",
        "CI is green.",
        "Lint: clean up later.",
        "```\nall tests pass\n```",
        "Die Tests bestehen noch nicht.",
        "Sicherstellen, dass alle Tests bestehen.",
        "Sobald der Build läuft, sind alle Tests grün.",
        "Alle Tests bestehen außer test_load.",
        "Alle neuen Tests bestehen.",
        "确保所有测试通过",
    ],
)
def test_a_wish_a_denial_a_quotation_and_a_part_of_the_checks_are_not_marked(text: str) -> None:
    assert with_status_marks(text, FAILING) == (text, ())


def test_the_newest_run_of_that_kind_of_check_decides() -> None:
    state = work(check("pytest tests/a", "fails", "FAILED a", last=3), check("pytest tests/b", "passes", last=8))
    assert list(contradicted("All tests pass.", state)) == []
    state = work(check("pytest tests/b", "passes", last=3), check("pytest tests/a", "fails", "FAILED a", last=8))
    (found,) = contradicted("All tests pass.", state)
    assert found[1].command == "pytest tests/a"
    assert list(contradicted("`pytest tests/b` passes.", state)) == []


def test_a_run_that_decides_nothing_marks_nothing() -> None:
    assert list(contradicted("All tests pass.", work(check("make test", "ran")))) == []
    chain = work(check("make lint && make test", "fails", "1 failed"))
    assert list(contradicted("Lint is clean.", chain)) == []
    assert list(contradicted("All tests pass.", chain)) == []


def test_what_passed_once_is_marked_only_if_no_run_ever_passed() -> None:
    assert list(contradicted("Rebased; all tests passed.", work(check("pytest", "fails", "1 failed", runs=2)))) == []
    (found,) = contradicted("Rebased; all tests passed.", work(check("pytest", "fails", "1 failed", runs=1)))
    assert found[0].is_past


def test_the_mark_is_no_claim_is_replaced_and_is_removed_from_an_answer() -> None:
    marked, _ = with_status_marks("All tests pass.", FAILING)
    assert claims(marked) == ()
    assert with_status_marks(marked, FAILING)[0] == marked
    assert with_status_marks(marked, PASSING)[0] == "All tests pass."
    assert cleaned(marked) == "All tests pass."


@given(st.text(st.sampled_from("tests pas`.,()\n\"'*-:?“”üß测试通过 "), max_size=120))
def test_any_text_keeps_its_words(text: str) -> None:
    marked, found = with_status_marks(text, FAILING)
    assert STATUS_MARK.sub("", marked) == text
    assert bool(found) == (marked != text)


@given(st.text(max_size=300), st.text(max_size=300))
def test_a_mark_of_any_command_and_line_is_found_again(command: str, line: str) -> None:
    state = work(check(f"pytest {command}", "fails", line))
    marked, _ = with_status_marks("All tests pass.", state)
    assert STATUS_MARK.sub("", marked) == "All tests pass."


DATA = Path(os.environ.get("BUOYLINE_SHARED_DATA", "")) / "sessions"


@pytest.mark.skipif(not DATA.is_dir(), reason="needs the recorded sessions: set BUOYLINE_SHARED_DATA")
def test_no_claim_of_a_recorded_model_summary_is_marked() -> None:
    """A person compared the eleven claims of the eight summaries with the runs: none is wrong."""
    found = 0
    for path in sorted(DATA.glob("cc_entire_*.jsonl")):
        messages = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        sources = [SourceMessage(index, detect(one).view(one)) for index, one in enumerate(messages)]
        for at, source in enumerate(sources):
            if source.message.text.startswith("This session is being continued from a previous conversation"):
                state = work_of(sources[:at])
                found += len(list(status_claims(source.message.text, state)))
                assert list(contradicted(source.message.text, state)) == []
    assert found == 11
