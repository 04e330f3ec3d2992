"""What a run reports as wrong is in the preview of its output, whichever tool wrote it; what a program says is not."""

import re
from importlib import import_module

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_outputs import OUTPUTS

from buoyline.previews import preview
from buoyline.previews.layout import parse_preview
from buoyline.previews.severity import severity_of
from buoyline.tokens import default_counter

COUNTER = default_counter()
OTHERS = re.compile(r"\[([\d,]+) more lines? of trouble(?:, of ([\d,]+) kinds)?; (most by )?grep -nE '(.+)'\]")


@pytest.mark.parametrize("name", OUTPUTS)
def test_all_that_a_run_reports_as_wrong_is_shown(name: str) -> None:
    body = preview(OUTPUTS[name].text, 400, COUNTER)
    lines = OUTPUTS[name].text.split("\n")
    texts = [f"{lines[line.number - 1][: line.column - 1]}{line.text}" for line in parse_preview(body)]
    missing = [report for report in OUTPUTS[name].reports if not any(text.startswith(report[:40]) for text in texts)]
    assert not missing, body
    assert COUNTER.count(body) <= 400


@pytest.mark.parametrize("name", OUTPUTS)
def test_what_has_no_room_is_counted_with_a_search_that_finds_it(name: str) -> None:
    lines = OUTPUTS[name].text.split("\n")
    body = preview(OUTPUTS[name].text, 110, COUNTER)
    shown = {line.number for line in parse_preview(body)}
    others = OTHERS.search(body)
    assert COUNTER.count(body) <= 110
    if others is None:
        return
    assert others[3] is None
    found = {number for number, line in enumerate(lines, 1) if re.search(others[4], line)} - shown
    assert len(found) >= int(others[1])


def test_tests_that_passed_have_nothing_to_report() -> None:
    lines = [
        line
        for n in range(200)
        for line in (f"=== RUN   Test{n}", f"    a_test.go:{n}: expected the limit", f"--- PASS: Test{n} (0.00s)")
    ]
    assert "of trouble" not in preview("\n".join(lines), 120, COUNTER)


def test_of_a_failed_test_the_complaint_is_shown_before_its_other_lines() -> None:
    told = [f"    a_test.go:{n}: opened account {n * 31 % 97} of the {'abcde'[n % 5]}ank" for n in range(10, 90)]
    lines = [
        *(f"ok  \tshop/p{n}" for n in range(200)),
        "--- FAIL: TestA (0.1s)",
        *told,
        "    a_test.go:7: got 1, want 2",
    ]
    assert f"{len(lines)}:     a_test.go:7: got 1, want 2" in preview("\n".join([*lines, *lines[:50]]), 150, COUNTER)


def test_a_failed_test_that_complains_of_nothing_is_shown_with_its_last_line() -> None:
    told = [f"    a_test.go:{n}: step {'abcdefgh'[n % 8]} is done" for n in range(40)]
    lines = [*(f"ok  \tshop/p{n}" for n in range(200)), "--- FAIL: TestA (0.1s)", *told, "FAIL", "ok \tshop/z"]
    assert "241:     a_test.go:39: step h" in preview("\n".join([*lines, *lines[:50]]), 150, COUNTER)


@pytest.mark.parametrize("max_tokens", [120, 200, 400])
def test_of_many_errors_the_first_the_last_and_each_sort_are_shown(max_tokens: int) -> None:
    names = [f"{first}{second}{third}" for first in "abcdefgh" for second in "pqrst" for third in "uvwxyz"]
    lines = [f"src/{name}.c:{n}:7: error: unknown name {name}" for n, name in enumerate(names)]
    lines.insert(130, "cp: cannot stat 'ring.h': No such file or directory")
    body = preview("\n".join([*lines, "make: *** [all] Error 2", *["bye"] * 20]), max_tokens, COUNTER)
    numbers = {line.number for line in parse_preview(body)}
    assert {1, 131, 242} <= numbers
    others = OTHERS.search(body)
    assert others is not None
    assert int(others[1]) == sum(number not in numbers for number in range(1, 243))
    assert COUNTER.count(body) <= max_tokens


def test_a_repeated_error_says_where_it_was_first_and_last() -> None:
    lines = [f"2026-03-01 10:00:{n % 60:02} INFO served {n}" for n in range(2_000)]
    for number in range(100, 1_900, 100):
        lines[number] = f"2026-03-01 ERROR no answer from 10.0.0.{number % 7}"
    assert "101: 2026-03-01 ERROR no answer from 10.0.0.2 <<< 17 more like it: 201, 301, ..., 1801" in preview(
        "\n".join(lines), 200, COUNTER
    )


def test_behind_much_trouble_the_worst_is_still_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("buoyline.previews.preview"), "_MAX_JUDGED", 0)
    lines = [f"WARN timeout of peer {n}" for n in range(4_000)]
    lines[3_500] = "FATAL storage: the volume is gone"
    assert "3501: FATAL storage: the volume is gone" in preview("\n".join(lines), 120, COUNTER)


@pytest.mark.parametrize(
    "line",
    [
        '   137\u2192\tt.Fatalf("unexpected error: %v", err)',
        "    42\u2192ValueError: where the size is none",
        '"error": null, "id": 7',
        '<testsuite tests="3" failures="0" errors="0">',
        "} catch (error: any) {",
        "raise ValueError(name)",
        "app.py:12:    raise KeyError(name)",
    ],
)
def test_what_a_program_says_or_a_count_denies_is_no_report(line: str) -> None:
    assert severity_of(line) < 80


@pytest.mark.parametrize(
    "line",
    [
        "E       assert total({'a': 1}) == {",
        "ValueError: not a size: (3, 4),",
        "src/a.c:3:1: error: expected ';' before '}' {",
        "main.go:4:2: undefined: ledger",
        "ERROR: no handler for failures",
        "Tests: 3 failed, 0 errors",
        '{"level":50,"msg":"no answer"}',
        '10.0.0.7 - - "GET /a HTTP/1.1" 500 12',
        "Fehler: Datei fehlt",
        "\u00c9chec de la construction",
        "Error: no se encontr\u00f3; la prueba fall\u00f3",
        "\u6784\u5efa\u5931\u8d25",
        "\ube4c\ub4dc \uc2e4\ud328",
        "\u041d\u0435 \u0443\u0434\u0430\u043b\u043e\u0441\u044c \u043e\u0442\u043a\u0440\u044b\u0442\u044c",
        "\u30d3\u30eb\u30c9\u306b\u5931\u6557\u3057\u307e\u3057\u305f",
    ],
)
def test_a_report_is_one_in_any_tool_and_language_whatever_code_it_quotes(line: str) -> None:
    assert severity_of(line) >= 80


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(OUTPUTS)), st.integers(1, 500), st.integers(0, 900))
def test_the_tokens_of_a_preview_hold_however_much_trouble_there_is(name: str, max_tokens: int, start: int) -> None:
    text = "\n".join(OUTPUTS[name].text.split("\n")[start % 300 :])
    body = preview(text, max_tokens, COUNTER)
    assert COUNTER.count(body) <= max_tokens
