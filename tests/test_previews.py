"""What previews bring to light: errors, verdicts, and what is unlike all else, in texts of every kind."""

import functools
import json
import random
from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buoyline.offloader.view import view_of
from buoyline.previews import preview
from buoyline.previews.json_documents import ValuePath, load_json, odd_values, value_offsets
from buoyline.previews.outliers import Shapes, column_outliers, outlier_lines
from buoyline.previews.preview import preview_of
from buoyline.previews.severity import candidates, severity_of
from buoyline.previews.source import TextSource
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
        "致命的なエラー 7731",
    ],
)
@settings(max_examples=5, deadline=None)
@given(st.floats(0.05, 0.95))
def test_a_line_of_trouble_is_shown_wherever_it_stands(kind: str, line: str, share: float) -> None:
    place = int(share * len(TEXTS[kind]))
    shown = preview(_with(TEXTS[kind], line, place), 200, COUNTER)
    assert f"\n{place + 1}: {line}" in shown


@pytest.mark.parametrize("kind", TEXTS)
@settings(max_examples=5, deadline=None)
@given(st.floats(0.05, 0.95))
def test_the_one_line_unlike_all_others_is_shown_wherever_it_stands(kind: str, share: float) -> None:
    place = int(share * len(TEXTS[kind]))
    shown = preview(_with(TEXTS[kind], "~~ zephyr quokka balloon ~~", place), 200, COUNTER)
    assert f"\n{place + 1}: ~~ zephyr quokka balloon ~~" in shown


def test_an_error_that_is_repeated_is_shown_once_with_how_often_and_where() -> None:
    lines = list(LOG)
    for place in (100, 300, 500, 700, 800):
        lines[place] = f"2026-01-05 ERROR cannot reach 10.0.0.{place % 7}"
    shown = preview("\n".join(lines), 200, COUNTER)
    assert shown.count("ERROR cannot reach") == 1
    assert "101: 2026-01-05 ERROR cannot reach 10.0.0.2 <<< 4 more like it: 301, 501" in shown


def test_the_verdict_of_a_run_is_shown() -> None:
    text = _with(TESTS, "=========== 899 passed, 1 skipped in 12.30s ===========", len(TESTS)) + "\n".join(
        ["", "bye"] * 9
    )
    assert "=========== 899 passed, 1 skipped in 12.30s" in preview(text, 150, COUNTER)


@pytest.mark.parametrize("line", ["0 errors, 0 warnings", "Found no failures", "12 passed, 0 failed"])
def test_a_line_that_denies_trouble_has_no_weight(line: str) -> None:
    assert severity_of(line) == 0


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("size", "n/a", "text, 399 others are numbers"),
        ("size", None, "null, 399 others are numbers"),
        ("size", 99_999, "others 0 to 39"),
        ("state", "burnt", 'others are "open", "shut"'),
        ("tags", "none", "text, 399 others are objects or arrays"),
        ("extra", 1, "only 1 of 400 with extra"),
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
    row = next(row for row in shown.split("\n") if said in row)
    number = int(row.split(":")[0])
    assert f'"{key}": ' in lines[number - 1]
    assert "items[313]" in row or "..." in row


def test_a_record_without_a_key_is_shown() -> None:
    records = [dict(record) for record in RECORDS]
    del records[200]["state"]
    assert "without state: [200]" in preview(json.dumps(records, indent=1), 250, COUNTER)


def test_the_shape_of_a_document_comes_first() -> None:
    shown = preview(json.dumps({"page": 1, "items": RECORDS}, indent=1), 300, COUNTER)
    assert shown.startswith("JSON: {page: 1, items: [400 objects like {id: 0, ")


def test_json_that_breaks_off_is_shown_where_it_does() -> None:
    lines = json.dumps(RECORDS, indent=1).split("\n")
    lines[500] = "..."
    assert "501: ... <<< no valid JSON from here on" in preview("\n".join(lines), 200, COUNTER)


def test_json_lines_are_records_by_their_lines() -> None:
    lines = [json.dumps(record) for record in RECORDS]
    lines[77] = json.dumps({**RECORDS[77], "size": "huge"})
    lines[99] = "not json"
    shown = preview("\n".join(lines), 250, COUNTER)
    assert shown.startswith("JSON lines: 399 like {id: 0, ")
    assert any(row.startswith("78: ") and "399" not in row for row in shown.split("\n"))
    assert "100: not json <<< no JSON" in shown


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("350,part 3,n/a,3", "price: text, 699 others are numbers"),
        ("350,part 3,88000,3", "price: others 0.5 to 49.5"),
        ("350,part 3,,3", "price: empty, 699 others are numbers"),
        ("350,part 3,7.5", "3 fields, others 4"),
    ],
)
def test_a_row_that_deviates_is_shown_with_the_reason(row: str, said: str) -> None:
    lines = list(TABLE)
    lines[350] = row
    shown = preview("\n".join(lines), 200, COUNTER)
    assert shown.startswith("Table: 700 rows, 4 columns: id, name, price, stock")
    assert any(line.startswith(f"351: {row} <<< ") and said in line for line in shown.split("\n"))


def test_in_a_long_line_the_place_of_the_trouble_is_shown_with_its_column() -> None:
    line = "x" * 5_000 + " FATAL: gone " + "y" * 5_000
    assert "401:4972: " in preview(_with(LOG, line, 400), 200, COUNTER)
    assert "FATAL: gone" in preview(_with(LOG, line, 400), 200, COUNTER)


def test_a_long_text_is_looked_through_to_its_end() -> None:
    lines = [f"{n} INFO request {n * 31 % 977} done" for n in range(120_000)]
    lines[110_000] = "zephyr quokka, balloon"
    lines[115_000] = "7 FATAL disk gone"
    shown = preview("\n".join(lines), 200, COUNTER)
    assert "110001: zephyr quokka, balloon" in shown
    assert "115001: 7 FATAL disk gone" in shown


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


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner),
        max_leaves=30,
    )
)
def test_every_value_of_a_document_is_found_where_it_begins(document: object) -> None:
    places: list[ValuePath] = []
    waiting: list[tuple[ValuePath, object]] = [((), document)]
    while waiting:
        place, value = waiting.pop()
        places.append(place)
        if isinstance(value, dict):
            waiting += [((*place, key), child) for key, child in value.items()]
        elif isinstance(value, list):
            waiting += [((*place, index), child) for index, child in enumerate(value)]
    text = json.dumps(document, indent=1)
    offsets = value_offsets(text, places)
    assert set(offsets) == set(places)
    for place, offset in offsets.items():
        key = f"{json.dumps(place[-1])}: " if place and isinstance(place[-1], str) else ""
        value = functools.reduce(lambda holder, step: holder[step], place, document)  # type: ignore[index]
        found, _ = json.JSONDecoder().raw_decode(text, offset + len(key))
        assert text.startswith(key, offset)
        assert found == value


@settings(max_examples=500)
@given(
    st.lists(st.sampled_from(["{", "}", "[", "]", ",", ":", '"a"', "1", " ", "true", '"b', "null", "-"]), max_size=9)
)
def test_a_document_is_read_value_by_value_as_it_is_at_once(signs: list[str]) -> None:
    document = "".join(signs)
    try:
        expected = json.loads(document, strict=False)
    except ValueError:
        with pytest.raises(ValueError, match=r"."):
            load_json(document)
    else:
        assert load_json(document) == expected


@given(
    st.lists(
        st.none() | st.booleans() | st.text(max_size=4) | st.floats(allow_nan=False) | st.integers().map(float),
        max_size=60,
    )
)
def test_whatever_a_column_holds_few_values_deviate(values: list[str | float | bool | None]) -> None:
    found = column_outliers(values)
    assert all(0 <= deviant.place < len(values) and 0 < deviant.weight <= 100 for deviant in found)
    assert len(found) <= max(24, len(values) // 2)


def test_in_records_that_are_all_different_nothing_is_odd() -> None:
    assert odd_values([{"id": n, "name": f"name {n}"} for n in range(100)]) == []


@pytest.mark.parametrize("odd", [{"state": "lost"}, {"state": "ok", "error": "lost"}], ids=["value", "key"])
def test_what_is_odd_among_many_records_comes_before_what_is_odd_among_few(odd: dict[str, object]) -> None:
    few, many = ([{"state": "ok"}] * count + [odd] for count in (8, 60))
    found = odd_values({"few": few, "many": many})
    assert [value.place[0] for value in found] == ["many", "few"]
    assert found[0].weight > found[1].weight + 8


def test_an_odd_value_weighs_more_for_each_value_that_is_like_the_others() -> None:
    weights = [column_outliers([*["ok"] * (count - 1), "lost"])[0].weight for count in range(8, 60)]
    assert weights[: 50 - 8 + 1] == sorted(set(weights))
    assert set(weights[50 - 8 :]) == {max(weights)}


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 50_000,
        '"' * 100_000,
        'a,"' * 50_000 + "\n" * 50,
        ("a,b\n" * 30 + '"') * 100,
        "\ud800\n" * 2_000,
        "error " * 100_000,
        "\n" * 200_000,
        "\r" * 50_000,
        "1e999,2\n" * 100,
        "nan,inf\n" * 100,
        "[" + "1e400," * 100 + "1]",
        "[" + "NaN," * 100 + "1]",
        "[1" + "0" * 5_000 + "]",
        "\x00" * 50_000,
        "(" * 30_000 + "\n" * 20,
    ],
    ids=range(16),
)
def test_hostile_texts_have_previews_within_their_tokens(text: str) -> None:
    shown = preview(text, 200, COUNTER)
    assert COUNTER.count(shown) <= 200
    assert shown == preview(text, 200, COUNTER)


def test_lines_that_are_equally_rare_come_in_their_order_whatever_the_hash_seed() -> None:
    """Rarity is a sum of shares over a set, whose order is another in each process."""
    names = ["".join(letters) for letters in product("ghklmn", "iou", "prst", "iou")]
    words = [[f"{name}{end}" for end in "ghijklmnopqrst"] for name in names[:100]]
    counts = (0, 1, 1, 2, 2, 2, 4, 4, 6, 6, 9, 9, 12, 12)
    lines = [word for own in words for word, count in zip(own, counts, strict=True) for _ in range(count)]
    signs = ["".join(some) for some in product("!?%&=", repeat=3)][:100]
    first = len(lines) + 1
    lines += [" ".join([sign, *own]) for sign, own in zip(signs, words, strict=True)]
    content = "\n".join(lines).encode()
    shapes = Shapes()
    shapes.read(content, content.split(b"\n"), 1)
    rare = [found.number for found in outlier_lines(shapes) if found.weight in {74, 71, 68, 65, 62}]
    assert rare == [*range(first, first + 5)]


def test_an_odd_value_comes_with_the_rest_of_its_record_and_unusual_keys_first() -> None:
    records = [dict(record) for record in RECORDS]
    records[313] = {"id": 313, "state": "open", "size": 7, "tags": [], "lost_at": "noon"}
    shown = preview(json.dumps(records, indent=1), 250, COUNTER)
    assert 'only 1 of 400 with lost_at: [313].lost_at of {lost_at: "noon", id: 313, state: "open"' in shown


def test_in_one_line_an_odd_record_is_shown_from_its_own_start() -> None:
    records = [dict(record) for record in RECORDS]
    records[313]["size"] = "n/a"
    text = json.dumps(records)
    start = text.index('{"id": 313')
    shown = preview(text, 250, COUNTER)
    assert f'\n1:{start + 1}: {{"id": 313, "state": "open", "size": "n/a"' in shown
    assert '<<< size "n/a": text, 399 others are numbers: [313].size' in shown


def test_records_are_rows_of_the_fields_that_tell_them_apart() -> None:
    comments = [
        {"url": f"https://example.org/{n}", "path": f"src/{n}.py", "line": n * 7, "body": f"Please rename {n}. " * 9}
        for n in range(30)
    ]
    shown = preview(json.dumps(comments, indent=1), 250, COUNTER)
    assert "\n[0] :2 src/0.py \u00b7 0 \u00b7 Please rename 0." in shown


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("rest", [*range(30), 500, 5_000])
def test_a_document_that_breaks_off_at_its_end_is_still_a_document(*, wrapped: bool, rest: int) -> None:
    records = [{**record, "size": "n/a"} if record["id"] == 90 else record for record in RECORDS]
    text = json.dumps({"page": 1, "items": records} if wrapped else records, indent=1)
    shown = preview(text[: -100 - rest], 250, COUNTER)
    assert shown.startswith("JSON: ")
    assert "[90]" in shown


def test_errors_in_pairs_are_told_apart_by_their_messages() -> None:
    said = ["disk full", "no route", "bad sum", "lost node", "stale lock"]
    lines = [f'time="10:00:{n:02}" level=error msg="{message}" part=a' for n, message in enumerate(said)]
    shown = preview("\n".join([*lines, *["done"] * 60]), 70, COUNTER)
    assert "more like it" not in shown
    assert "errors or warnings" in shown


@pytest.mark.parametrize("begin", ["+", "-", " "])
def test_words_of_errors_in_a_diff_are_quoted(begin: str) -> None:
    hunk = f"@@ -1,2 +1,2 @@ def run():\n{begin}RuntimeError: no till\n+two\n-one\n"
    lines = [
        line
        for n in range(90)
        for line in f"diff --git a/{n}.py b/{n}.py\n--- a/{n}.py\n+++ b/{n}.py\n{hunk}".split("\n")
    ]
    assert "grep" not in preview("\n".join(lines), 200, COUNTER)


def test_errors_are_counted_to_the_end_of_a_long_text() -> None:
    lines = [f"{n} WARN cache {n % 7} is cold, {'abcdefgh'[n % 8]}" for n in range(150_000)]
    lines[149_000] = "149000 FATAL disk gone"
    shown = preview("\n".join(lines), 250, COUNTER)
    assert "149001: 149000 FATAL disk gone" in shown
    assert any("18,749 more like it" in row or "18,748 more like it" in row for row in shown.split("\n"))


def test_a_long_line_of_errors_is_judged_at_a_bounded_number_of_places() -> None:
    content = b"error " * 200_000
    assert len(list(candidates(content))) <= 41
