"""What previews bring to light: errors, verdicts, and what is odd, in texts of every kind."""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_outputs import OUTPUTS

from buoyline.offloader.protocol import view_of
from buoyline.previews import flagged_lines, preview
from buoyline.previews.layout import parse_preview
from buoyline.previews.preview import preview_of
from buoyline.previews.source import CONTINUED, TextSource
from buoyline.tokens import default_counter

COUNTER = default_counter()

LOG = [
    f"2026-01-05 10:{n // 60:02}:{n % 60:02} INFO worker-{n % 4} served /items/{n * 7 % 311} in {n % 9} ms"
    for n in range(900)
]
TESTS = [f"tests/test_{n % 30}.py::test_case_{n} PASSED  [{n // 9:3}%]" for n in range(900)]
CODE = [
    line
    for n in range(120)
    for line in (f"def compute_{n}(value: int) -> int:", f'    """Return {n} more."""', f"    return value + {n}", "")
]
TABLE = ["id,name,price,stock", *(f"{n},part {n % 13},{n % 50 + 0.5},{n % 7}" for n in range(700))]
RECORDS: list[dict[str, object]] = [
    {"id": n, "state": "open" if n % 3 else "shut", "size": n % 40, "tags": ["a", "b"]} for n in range(400)
]
TEXTS = {"log": LOG, "tests": TESTS, "code": CODE, "table": TABLE}
PAGE = """<!DOCTYPE html>
<html><head><title>A &amp; B</title><style>p { color: red }</style><script>var error = "none";</script></head>
<body><nav><a href="/">Home of all things that a menu may name, one after another</a></nav>
<article><h1>Welcome</h1>
<p>This is the first sentence of the page, and it is long enough to be one.</p>
<h2>Part one</h2><p>Here <b>more</b> is said about the first part, in words that nobody needs to read.</p>
</article><footer>All rights reserved by those who wrote this page long ago.</footer></body></html>
"""
DOCUMENT = "# Title\n\n" + "".join(
    f"## Part {n}\n\nSome **words** on part {n}, which say more than its name and go on and on for a long while.\n\n"
    for n in range(40)
)
DIFF = """diff --git a/src/app/main.py b/src/app/main.py
--- a/src/app/main.py
+++ b/src/app/main.py
@@ -1,4 +1,5 @@ def run():
 import os
-x = 1
+x = 2
+y = 3
diff --git a/src/app/old.py b/src/app/old.py
deleted file mode 100644
--- a/src/app/old.py
+++ /dev/null
@@ -1,2 +0,0 @@
-a
-b
"""


def _with(lines: list[str], line: str, place: int) -> str:
    return "\n".join([*lines[:place], line, *lines[place:]]) + "\n"


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize(
    "line",
    [
        "FATAL: the disk of node 7731 is gone",
        "--- FAIL: TestNode7731 (0.03s)",
        "ValueError: 7731 is not a node",
        "panic: runtime error at 7731",
        "npm ERR! code E7731",
        "\u69cb\u7bc9\u306b\u5931\u6557\u3057\u307e\u3057\u305f 7731",
    ],
)
@settings(max_examples=3, deadline=None)
@given(st.floats(0.05, 0.95))
def test_an_error_line_is_shown_wherever_it_stands(kind: str, line: str, share: float) -> None:
    place = int(share * len(TEXTS[kind]))
    text = _with(TEXTS[kind], line, place)
    assert f"\n{place + 1}: {line}" in preview(text, 200, COUNTER)
    assert (place + 1, line) in flagged_lines(text)


@pytest.mark.parametrize("kind", TEXTS)
@settings(max_examples=5, deadline=None)
@given(st.floats(0.05, 0.95))
def test_the_one_line_unlike_all_others_is_shown_wherever_it_stands(kind: str, share: float) -> None:
    place = int(share * len(TEXTS[kind]))
    shown = preview(_with(TEXTS[kind], "~~ zephyr quokka balloon ~~", place), 200, COUNTER)
    assert f"\n{place + 1}: ~~ zephyr quokka balloon ~~" in shown


def test_of_what_runs_report_nine_in_ten_are_shown() -> None:
    missing = list[str]()
    for made in OUTPUTS.values():
        lines = made.text.split("\n")
        shown = parse_preview(preview(made.text, 400, COUNTER))
        texts = [f"{lines[line.number - 1][: line.column - 1]}{line.text}" for line in shown]
        missing += [one for one in made.reports if not any(text.startswith(one[:40]) for text in texts)]
    assert len(missing) <= sum(len(made.reports) for made in OUTPUTS.values()) / 10, missing


WORD_COUNTS = [f"{n * 31 % 900:8} src/errors/{'abcdefgh'[n % 8]}_{n}/fail_{n * 7}.py" for n in range(180)]
PACKAGES = [
    f"{first}{second}-{third}  {len(first + second)}.{len(third)}.0"
    for first in ("exception", "micro", "pro", "tea", "fast")
    for second in ("group", "box", "scope")
    for third in ("py", "core", "x")
]


@pytest.mark.parametrize("lines", [WORD_COUNTS, PACKAGES, TESTS], ids=["wc", "pip", "tests"])
def test_where_nothing_is_wrong_hardly_a_line_is_flagged(lines: list[str]) -> None:
    text = "\n".join(lines)
    flagged = [line for line in parse_preview(preview(text, 400, COUNTER)) if line.mark]
    assert len(flagged) <= len(lines) / 20
    assert flagged_lines(text) == []
    assert "grep" not in preview(text, 400, COUNTER)


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
        "0 errors, 0 warnings",
        "12 passed, 0 failed",
        "tests/test_a.py::test_exit_code_1 PASSED",
    ],
)
def test_what_a_program_says_or_a_count_denies_is_not_flagged(line: str) -> None:
    assert flagged_lines(line) == []


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
        "E0331 23:34:30 9294 app.go:40] the lease is gone",
        '{"level":50,"msg":"no answer"}',
        '10.0.0.7 - - "GET /a HTTP/1.1" 500 12',
        "Fehler: Datei fehlt",
        "\u00c9chec de la construction",
        "\u6784\u5efa\u5931\u8d25",
        "\u30d3\u30eb\u30c9\u306b\u5931\u6557\u3057\u307e\u3057\u305f",
    ],
)
def test_a_report_is_flagged_whatever_tool_and_language_it_is_in(line: str) -> None:
    assert flagged_lines(f"one\n{line}\ntwo") == [(2, line)]


def test_failed_tests_are_named_before_what_they_say() -> None:
    lines = list[str]()
    for n, name in enumerate("ABCDEFGHI"):
        lines += [f"    log line {k} of {n}" for k in range(20)]
        lines += [f"--- FAIL: Test{name} (0.1s)", f"    x_test.go:{n}: got {name}, want the letter before it"]
    shown = preview("\n".join(lines), 200, COUNTER)
    assert all(f"--- FAIL: Test{name}" in shown for name in "ABCDEFGHI")


def test_an_error_that_is_repeated_is_shown_once_with_how_often_and_where() -> None:
    lines = list(LOG)
    for place in (100, 300, 500, 700, 800):
        lines[place] = f"2026-01-05 ERROR cannot reach 10.0.0.{place % 7}"
    shown = preview("\n".join(lines), 200, COUNTER)
    assert shown.count("ERROR cannot reach") == 1
    assert "101: 2026-01-05 ERROR cannot reach 10.0.0.2 <<< 4 more like it: 301, 501, 701, 801" in shown


def test_errors_that_differ_in_their_values_are_named_by_number_if_not_all_fit() -> None:
    names = ["apple", "pear", "plum", "fig", "lime", "kiwi", "date", "sloe", "quince", "medlar", "cherry", "damson"]
    lines = [f"a.py:{n}: error: Module 'm' has no attribute '{name}'" for n, name in enumerate(names)]
    shown = preview("\n".join(["checking", *lines, "x.py:7: error: Missing return", *["done"] * 60]), 120, COUNTER)
    assert "no attribute 'apple'" in shown
    assert re.search(r"more like it: (?:\d+, )+", shown)
    assert "14: x.py:7: error: Missing return" in shown


def test_errors_without_room_are_counted_with_a_search_that_finds_them() -> None:
    said = ["disk full", "no route", "bad sum", "lost node", "stale lock"] * 4
    lines = [f"ERROR part {'abcdefghij'[n % 10]}{n // 10}x: {message}" for n, message in enumerate(said)]
    shown = preview("\n".join([*lines, *["done"] * 60]), 90, COUNTER)
    rest = re.search(r"not shown; (\d+) errors or warnings of \d+ kinds: grep -nE '(.+)'\]", shown)
    assert rest is not None
    assert sum(re.search(rest[2], line) is not None for line in lines) >= int(rest[1])


def test_the_verdict_of_a_run_is_shown() -> None:
    text = _with(TESTS, "=========== 899 passed, 1 skipped in 12.30s ===========", len(TESTS)) + "\n".join(
        ["", "bye"] * 9
    )
    assert "=========== 899 passed, 1 skipped in 12.30s" in preview(text, 150, COUNTER)


@pytest.mark.parametrize(
    "bar",
    [[f"Downloading {n:3}% [{'#' * (n // 5):20}] {n}/100 MB" for n in range(101)], [f"{n}%" for n in range(101)]],
)
@pytest.mark.parametrize("end", ["\n", "\r"])
def test_a_progress_bar_is_shown_by_its_last_state(bar: list[str], end: str) -> None:
    text = "\n".join(["starting", end.join(bar), *(f"step {n} is done" for n in range(90))])
    shown = preview(text, 150, COUNTER)
    assert [line.text for line in parse_preview(shown) if "%" in line.text] == [bar[-1]]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("size", "n/a", "text, 399 others are numbers"),
        ("size", None, "null, 399 others are numbers"),
        ("size", 99_999, "others 0 to 39"),
        ("state", "burnt", 'others are "shut", "open"'),
        ("tags", "none", "text, 399 others are objects or arrays"),
        ("extra", 1, "only 1 of 400 have it"),
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_a_record_that_deviates_is_shown_at_its_line_with_the_reason(
    key: str, value: object, said: str, indent: int | None
) -> None:
    records = [dict(record) for record in RECORDS]
    records[313][key] = value
    text = json.dumps({"page": 1, "items": records}, indent=indent)
    lines = (view_of(text) or text).split("\n")
    shown = preview("\n".join(lines), 250, COUNTER)
    assert shown.startswith("JSON: {page: 1, items: [400 objects like {id: 0, ")
    row = next(row for row in shown.split("\n") if said in row)
    assert f'"{key}": ' in lines[int(row.split(":")[0]) - 1]
    assert "id: 313" in row


def test_a_record_without_a_key_is_shown() -> None:
    records = [dict(record) for record in RECORDS]
    del records[200]["state"]
    shown = preview(json.dumps(records, indent=1), 250, COUNTER)
    assert "without it: state" in shown
    assert "id: 200" in shown


def test_in_one_line_an_odd_value_is_shown_at_its_column() -> None:
    records = [dict(record) for record in RECORDS]
    records[313]["size"] = "n/a"
    text = json.dumps(records)
    row = next(row for row in parse_preview(preview(text, 250, COUNTER)) if row.mark)
    assert text[row.column - 1 :].startswith(row.text)
    assert '"n/a"' in row.text


def test_records_are_rows_of_the_fields_that_tell_them_apart() -> None:
    comments = [
        {"url": f"https://example.org/{n}", "path": f"src/{n}.py", "line": n * 7, "body": f"Please rename {n}. " * 9}
        for n in range(30)
    ]
    shown = preview(json.dumps(comments, indent=1), 250, COUNTER)
    assert "\n[0] :2 src/0.py \u00b7 0 \u00b7 Please rename 0." in shown


def test_json_lines_are_records_by_their_lines() -> None:
    lines = [json.dumps(record) for record in RECORDS]
    lines[77] = json.dumps({**RECORDS[77], "size": "huge"})
    lines[99] = "not json"
    shown = preview("\n".join(lines), 250, COUNTER)
    assert shown.startswith("JSON lines: 399 like {id: 0, ")
    assert any(row.startswith("78: ") and "text, 398 others are numbers" in row for row in shown.split("\n"))
    assert "100: not json <<< no JSON" in shown


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("350,part 3,n/a,3", 'price "n/a": text, 699 others are numbers'),
        ("350,part 3,88000,3", 'price "88000": others 0.5 to 49.5'),
        ("350,part 3,,3", 'price "": empty, 699 others are numbers'),
        ("350,part 3,7.5", "3 fields, others 4"),
    ],
)
def test_a_row_that_deviates_is_shown_with_the_reason(row: str, said: str) -> None:
    lines = list(TABLE)
    lines[350] = row
    shown = preview("\n".join(lines), 200, COUNTER)
    assert shown.startswith("Table: ")
    assert f"351: {row} <<< {said}" in shown


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (DIFF * 9, ["Diff: 18 files in src/app/, +18 -27", "main.py +2 -1 :1", "old.py +0 -2 :9"]),
        ("\n".join(CODE), ["Source code (479 lines)", "compute_0 :1, compute_1 :5"]),
        ("\n".join(f"{n:5}\u2192{line}" for n, line in enumerate(CODE, 1)), ["Source code", "compute_0 :1"]),
        (DOCUMENT,
            ["Document (162 lines)", "# Title :1, ## Part 0 :3", "5: Some **words** on part 0"]),
        ("".join(f"src/{'ab'[n % 2]}.py:{n}:    total = {n}\n" for n in range(1, 99)),
            ["Search output: 98 hits in 2 files in src/", "b.py 49 :1", "b.py:1 :1 total = 1"]),
        ("".join(f"./{'ab'[n % 2]}/file_{n}.py\n" for n in range(99)), ["Listing: 99 entries", "a/ 50 :1", ".py 99"]),
        ("".join(f"-rw-r--r-- 1 me us {n * n} Jan  1 10:00 file_{n}.txt\n" for n in range(99)),
            ["Listing: 99 entries", "file_98.txt 9,604 :99"]),
        (PAGE * 3, ["Web page (HTML, 21 lines): A & B", "# Welcome", "This is the first sentence", "## Part one"]),
    ],
    ids=["diff", "code", "numbered code", "document", "search", "paths", "ls", "page"],
)  # fmt: skip
def test_a_text_is_shown_by_its_kind(text: str, facts: list[str]) -> None:
    shown = preview(text, 250, COUNTER)
    assert shown.startswith(facts[0])
    for fact in facts:
        assert fact in shown


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(LOG),
        "\n".join(f"[{n}] copying part {n}" for n in range(1, 99)),
        "\n".join(["It was a dark and stormy night; the rain fell in torrents."] * 99),
        "\n".join(f"ok  \texample.org/pkg/x{n}\t0.{n}s" for n in range(99)),
        "\n".join(f"a.c:{n}:5: error: no a{n}\n {n} | int f{n}(int a) {{\n   |     ^~~" for n in range(40)),
        "\n".join(["import x", *(f'print("{line}")' for line in PAGE.splitlines()), *["."] * 99]),
    ],
)
def test_any_other_text_is_shown_by_its_lines(text: str) -> None:
    assert preview(text, 120, COUNTER).startswith("1: ")


@pytest.mark.parametrize("begin", ["+", "-", " "])
def test_words_of_errors_in_a_diff_are_quoted(begin: str) -> None:
    hunk = f"@@ -1,2 +1,2 @@ def run():\n{begin}RuntimeError: no till\n+two\n-one\n"
    text = "".join(f"diff --git a/{n}.py b/{n}.py\n--- a/{n}.py\n+++ b/{n}.py\n{hunk}" for n in range(90))
    assert "grep" not in preview(text, 200, COUNTER)
    assert flagged_lines(text) == []


def test_of_a_stored_page_the_view_is_its_text() -> None:
    view = view_of(PAGE)
    assert view is not None
    assert view.split("\n")[:3] == [
        "A & B", "# Welcome", "This is the first sentence of the page, and it is long enough to be one."
    ]  # fmt: skip
    assert "menu" not in view
    assert "color" not in view


@pytest.mark.parametrize("head", [b"\x89PNG\r\n\x1a\n", b"\x7fELF"])
@pytest.mark.parametrize("form", ["replace", "surrogateescape"])
def test_binary_data_are_two_rows(head: bytes, form: str) -> None:
    content = head + random.Random(7).randbytes(9_000) + b"/lib64/ld-linux.so" + bytes(900)  # noqa: S311 - no secret
    shown = preview(content.decode("utf-8", form), 200, COUNTER).split("\n")
    assert len(shown) <= 2
    assert shown[0].startswith(("Binary data: PNG image", "Binary data: ELF program"))


def test_in_a_long_line_an_error_is_shown_with_its_column() -> None:
    line = "x" * 5_000 + " FATAL: gone " + "y" * 5_000
    shown = preview(_with(LOG, line, 400), 200, COUNTER)
    assert "401:4972: " in shown
    assert "FATAL: gone" in shown


def test_a_long_text_is_searched_to_its_end() -> None:
    lines = [f"{n} WARN cache {n % 7} is cold, {'abcdefgh'[n % 8]}" for n in range(120_000)]
    lines[119_000] = "7 FATAL disk gone"
    assert "119001: 7 FATAL disk gone" in preview("\n".join(lines), 200, COUNTER)


def test_a_text_in_pieces_is_shown_as_the_same_text_at_once() -> None:
    class Pieces:
        def __init__(self, text: str) -> None:
            self.text, self.size_bytes = text, len(text.encode())

        def blocks(self) -> Iterator[str]:
            rng = random.Random(7)  # noqa: S311 - no secret is drawn
            start = 0
            while start < len(self.text):
                end = start + rng.randrange(1, 900)
                line_end = self.text.rfind("\n", start, end)
                end = end if line_end < 0 else line_end + 1
                yield self.text[start:end]
                start = end

    text = _with(LOG, "FATAL: " + "word " * 700, 500)
    assert preview_of(Pieces(text), 300, COUNTER) == preview_of(TextSource(text), 300, COUNTER)


KINDS = [*("\n".join(lines) for lines in TEXTS.values()), json.dumps(RECORDS, indent=1), PAGE * 3, DIFF * 9]


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, len(KINDS) - 1),
    st.integers(0, 900),
    st.text(st.characters(exclude_categories=()), max_size=20) | st.sampled_from(["\r", '"', "@@", "{", "<a", "\x00"]),
    st.integers(1, 400),
)
def test_no_part_of_a_text_breaks_a_preview_whatever_is_in_it(kind: int, start: int, odd: str, tokens: int) -> None:
    part = KINDS[kind][start % len(KINDS[kind]) :][:20_000]
    for place in (0, len(part) // 2):
        shown = preview(f"{part[:place]}{odd}{part[place:]}", tokens, COUNTER)
        assert COUNTER.count(shown) <= tokens
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", shown)


HOSTILE = (
    "[" * 100_000, '{"a":' * 50_000, '"' * 100_000, 'a,"' * 50_000 + "\n" * 50, ("a,b\n" * 30 + '"') * 100,
    "\ud800\n" * 2_000, "error " * 100_000, "\n" * 200_000, "\r" * 50_000, "1e999,2\n" * 100, "nan,inf\n" * 100,
    "[" + "1e400," * 100 + "1]", "[" + "NaN," * 100 + "1]", "[1" + "0" * 5_000 + "]", "\x00" * 50_000,
    "(" * 30_000 + "\n" * 20, "<html>" + "<a" * 50_000, "<html>" + "<!--" * 50_000, "<html>" + "<script>" * 9_000,
    "a-1-" * 50_000, ("a-1-" * 100 + "\n") * 3_000, ("func (" * 80 + "\n") * 3_000,
    ("func a" + "(" * 390 + "\n") * 3_000,
    "diff --git a b\n" * 9_000, "@@ -1 +1 @@\n" * 9_000, ("# " * 200 + "\n") * 3_000, (" " * 400 + "\n") * 3_000,
    ("-rw-r--r-- 1 " + "1 " * 190 + "\n") * 3_000, ("a/" * 200 + "\n") * 3_000, ("0" * 400 + "\n") * 3_000,
    ("abc " * 100 + "\n") * 3_000, "panic: DATA RACE panicked at\n" * 9_000, ("[" + "#" * 300 + " 7%\n") * 3_000,
)  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_have_previews_within_their_tokens(text: str) -> None:
    shown = preview(text, 200, COUNTER)
    assert COUNTER.count(shown) <= 200
    assert shown == preview(text, 200, COUNTER)


DATA = Path(__file__).parents[2] / "shared" / "data" / "tool_outputs"


@pytest.mark.skipif(not DATA.is_dir(), reason="the recorded outputs are not here")
def test_previews_of_recorded_outputs_flag_few_lines() -> None:
    for file in DATA.rglob("*.*"):
        text = file.read_bytes().decode("utf-8", "replace")
        lines = text.count("\n") + 1
        odd = [
            line for line in parse_preview(preview(text, 300, COUNTER)) if "more like it" not in line.mark and line.mark
        ]
        assert len({line.number for line in odd}) <= max(lines / 20, 8), file.name


def test_in_a_verbose_run_of_tests_the_failed_one_is_shown() -> None:
    lines = [line.partition("  [")[0] for line in TESTS[:200]]
    lines[80] = lines[80].replace("PASSED", "FAILED")
    assert "FAILED" in preview("\n".join(lines), 200, COUNTER)
    assert [number for number, _ in flagged_lines("\n".join(lines))] == [81]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([{"a": 0, "b": "x"}] * 60)[:-1] + ', {"a": 1, "a": {"b": 2}}]',
        " " * 140_000 + "\n" + "\n".join(f"{n},{n % 7},x" for n in range(99)),
        "a,b,c\n" + " " * 140_000 + "\n" + "\n".join(f"{n},{n % 7},x" for n in range(99)),
        json.dumps([{"id": n, "modulus": 10**400 + n} for n in range(60)]),
    ],
    ids=["a key twice", "a blank line first", "a blank line second", "numbers beyond floats"],
)
def test_odd_forms_of_data_are_shown(text: str) -> None:
    assert preview(text, 200, COUNTER)


def test_an_odd_value_behind_a_wrap_has_the_number_of_its_own_line() -> None:
    rows = [json.dumps({"name": f"buoy {number}", "status": "calm"}) for number in range(300)]
    for number in range(5, 300, 10):
        rows[number] = rows[number].replace('"calm"', f'\n{CONTINUED}"{"adrift" if number == 145 else "calm"}"')
    shown = preview(f"[{', '.join(rows)}]", 300, COUNTER)
    assert re.findall(r"^(\d+)\S* .*adrift", shown, re.MULTILINE) == ["16"]
