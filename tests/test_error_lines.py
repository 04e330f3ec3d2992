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
from buoyline.previews.source import readable_lines
from buoyline.tokens import default_counter

COUNTER = default_counter()
OTHERS = re.compile(
    r"not shown; ([\d,]+) errors? or warnings?(?: of ([\d,]+) kinds)?(?:(, most by)|:) grep -nE '(.+)'\]"
)


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
    assert "grep" not in preview("\n".join(lines), 120, COUNTER)


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
    monkeypatch.setattr(import_module("buoyline.previews.severity"), "_MAX_JUDGED", 0)
    lines = [f"WARN timeout of peer {n}" for n in range(4_000)]
    lines[3_500] = "FATAL storage: the volume is gone"
    assert "3501: FATAL storage: the volume is gone" in preview("\n".join(lines), 120, COUNTER)


@pytest.mark.parametrize(
    "line",
    [
        '   137\u2192\tt.Fatalf("unexpected error: %v", err)',
        "    42\u2192ValueError: where the size is none",
        '"error": null, "id": 7',
        "error: '', warnings: []",
        "I0331 23:34:30 9294 app.go:40] the lease is new",
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
        "  error: 'socket hang up'",
        'Error: "no route to host"',
        "error: [nodemon] app crashed",
        "E0331 23:34:30 9294 app.go:40] the lease is gone",
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


def test_errors_that_differ_in_their_values_share_a_row_if_not_all_fit() -> None:
    names = ["apple", "pear", "plum", "fig", "lime", "kiwi", "date", "sloe", "quince", "medlar", "cherry", "damson"]
    lines = [f"a.py:{n}: error: Module 'm' has no attribute '{name}'" for n, name in enumerate(names)]
    shown = preview("\n".join(["checking", *lines, "x.py:7: error: Missing return", *["done"] * 60]), 120, COUNTER)
    assert "no attribute 'apple'" in shown
    assert "11 more like it: 3, 4, 5, 6, 7, 8, 9, ..., 13" in shown
    assert "14: x.py:7: error: Missing return" in shown


def test_errors_that_differ_in_their_values_have_rows_of_their_own_if_they_fit() -> None:
    lines = [f"a.py:{n}: error: Module 'm' has no attribute '{name}'" for n, name in enumerate(["apple", "pear"])]
    shown = preview("\n".join([*lines, *["done"] * 60]), 120, COUNTER)
    assert "'apple'" in shown
    assert "'pear'" in shown


def test_a_record_that_its_view_wraps_is_one_record() -> None:
    fine = '{"ts": "2026-01-05T10:00:00Z", "level": "info", "msg": "took 3 ms"}'
    stack = "in load " * 200
    error = f'{{"ts": "2026-01-05T10:00:01Z", "level": "error", "msg": "disk sda is full", "stack": "{stack}"}}'
    view = list(readable_lines("\n".join([*[fine] * 60, error, *[fine] * 60])))
    shown = preview("\n".join(view), 200, COUNTER)
    assert "no JSON" not in shown
    assert "JSON lines: 121 like" in shown
    assert "disk sda is full" in shown


def test_colors_do_not_hide_the_word_of_an_error() -> None:
    lines = [f"[\x1b[34mINFO\x1b[m] step {n}" for n in range(90)]
    lines[40] = "[\x1b[1;31mERROR\x1b[m] no route to host"
    assert "no route to host" in preview("\n".join(lines), 100, COUNTER)


def test_lines_in_brackets_are_no_document() -> None:
    assert "JSON" not in preview("\n".join(f"[{n}/40] copying part {n}" for n in range(1, 41)), 120, COUNTER)


def test_the_output_of_a_compiler_is_no_program() -> None:
    code = [
        line
        for n in range(20)
        for line in (
            f"a.c:{n}:5: error: unknown type name 'a{n}'",
            f" {n} | int f(int a) {{ return a; }}",
            "   |     ^~~",
        )
    ]
    assert "Source code" not in preview("\n".join(code), 200, COUNTER)


def test_the_first_line_of_what_pytest_says_about_a_failure_comes_first() -> None:
    blocks = [
        f"def test_{n}():\nE   ValueError: {name} is missing\nE     a: {name}\nE     b: {name}\n\na.py:{n}: ValueError"
        for n, name in enumerate(["rope", "sail", "mast", "keel"])
    ]
    shown = preview("\n".join([*blocks, *["."] * 40, "=== 4 failed in 2.11s ==="]), 130, COUNTER)
    assert all(f"E   ValueError: {name} is missing" in shown for name in ["rope", "sail", "mast", "keel"])
