"""How exact strings share the lines of a ledger."""

from hypothesis import given
from hypothesis import strategies as st

from buoyline.compression import Fact, Pointer
from buoyline.compression.extractive.fact_text import LABEL_KIND, MAX_RANGES, field_text, pointers_of, rows
from buoyline.compression.pointers import pointers_in

RESULT = "tool_result-call_1.txt"


def _item(text: str, *lines: tuple[int, int], path: str = "transcript.md", kind: str = "identifier") -> Fact:
    pointers = tuple(Pointer(path, start, end) for start, end in lines)
    return Fact(
        "context_to_preserve", kind, text, pointers[0] if pointers else None, 0, also=pointers[1:] if pointers else ()
    )


def test_strings_of_one_file_share_a_line_in_the_order_of_their_places() -> None:
    items = [_item("load_rows", (90, 99)), _item("run_id", (4, 9)), _item("a/b.py", (90, 99), kind="path")]
    assert field_text(items) == "- run_id a/b.py load_rows [transcript.md:4-9,90-99]"


def test_strings_of_two_files_and_of_no_lines_stand_apart() -> None:
    items = [_item("run_id", (4, 9)), _item("load_rows", (4, 9), path=RESULT), _item("job_7")]
    assert field_text(items).splitlines() == [
        "- job_7",
        f"- load_rows [{RESULT}:4-9]",
        "- run_id [transcript.md:4-9]",
    ]


def test_places_under_one_label_share_it() -> None:
    label = [_item("main.py", lines, kind=LABEL_KIND) for lines in ((4, 9), (30, 31))]
    items = [_item("run_id", (4, 9)), _item("load_rows", (30, 31)), _item("job_7", (20, 20)), *label]
    assert field_text(items).splitlines() == [
        "- main.py: run_id load_rows [transcript.md:4-9,30-31]",
        "- job_7 [transcript.md:20]",
    ]


def test_places_that_touch_are_one() -> None:
    items = [_item("run_id", (4, 9)), _item("load_rows", (10, 12)), _item("job_7", (11, 20)), _item("x_1", (22, 22))]
    assert field_text(items) == "- run_id load_rows job_7 x_1 [transcript.md:4-20,22]"


@st.composite
def held(draw: st.DrawFn) -> Fact:
    starts = draw(st.lists(st.integers(1, 200), max_size=3))
    lines = [(start, start + draw(st.integers(0, 9))) for start in starts]
    path = draw(st.sampled_from(["transcript.md", RESULT]))
    return _item(draw(st.text("ab_1", min_size=1, max_size=4)), *lines, path=path)


ledger = st.lists(held(), max_size=30)


@given(ledger)
def test_each_string_stands_on_a_line_that_names_all_its_places(items: list[Fact]) -> None:
    found = rows(items)
    assert sorted(string for row in found for string in row.strings) == sorted(item.text for item in items)
    for item in items:
        assert any(item.text in row.strings and _names(row.pointers, item.pointers) for row in found)
    assert all(len(row.pointers) <= MAX_RANGES for row in found)


@given(ledger)
def test_the_pointers_of_a_ledger_are_those_that_stand_in_its_text(items: list[Fact]) -> None:
    assert list(pointers_in(field_text(items))) == list(pointers_of(items))


def _names(row: list[Pointer], pointers: tuple[Pointer, ...]) -> bool:
    return all(
        any(held.path == wanted.path and held.start <= wanted.start and wanted.end <= held.end for held in row)
        for wanted in pointers
    )
