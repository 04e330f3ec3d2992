"""How a summary reads, and how it stands in ``summaries.jsonl``."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buoyline.compression import Draft, Fact, Pointer, Summary
from buoyline.compression.config import SUMMARY_TEMPLATE
from buoyline.compression.pointers import citation_marks, pointers_in
from buoyline.compression.summary import FIELDS, summary_from
from buoyline.compression.summary_text import ArchiveLocation, frame_tokens, header, render, with_resolved_pointers
from buoyline.messages import spell
from buoyline.messages.jsonl import parse
from buoyline.tokens import default_counter

COUNTER = default_counter()
PLACE = ArchiveLocation(
    3, 20, "/w/sessions/s1/context.jsonl", "/w/sessions/s1/transcript.md", "transcript.md", ((1, 60), (61, 120))
)

texts = st.text(max_size=20)
pointers = st.builds(Pointer, texts, st.integers(1, 500), st.integers(1, 500))
items = st.builds(
    Fact,
    field=st.sampled_from(FIELDS),
    kind=texts,
    text=texts,
    pointer=st.none() | pointers,
    last_seen=st.integers(-1, 500),
    count=st.integers(0, 500),
    weight=st.floats(allow_nan=False, allow_infinity=False),
)
drafts = st.builds(
    Draft,
    texts,
    st.dictionaries(texts, texts, max_size=5),
    st.lists(pointers, max_size=3).map(tuple),
    st.lists(items, max_size=3).map(tuple),
)
summaries = st.builds(
    Summary,
    number=st.integers(0, 50),
    messages=st.tuples(st.integers(0, 500), st.integers(0, 500)),
    draft=drafts,
    unverified=st.lists(texts, max_size=3).map(tuple),
    source_tokens=st.integers(0),
    tokens=st.integers(0),
    text=texts,
    created_at=texts,
)


def _draft(**fields: str) -> Draft:
    return Draft("model", fields)


@given(summaries)
def test_a_summary_comes_back_from_its_json(summary: Summary) -> None:
    line = spell(summary.to_json())
    assert summary_from(parse(line)) == summary
    assert spell(summary_from(parse(line)).to_json()) == line


@given(summaries, st.integers(1, 50))
def test_a_number_changes_nothing_else(summary: Summary, number: int) -> None:
    assert replace(summary.numbered(number), number=summary.number) == summary
    assert summary.numbered(number).to_json()["n"] == number


def test_a_summary_has_the_keys_of_the_format_first() -> None:
    summary = Summary(1, (0, 163), _draft(next_steps="x"), (), 85_156, 2_210, "text", "2026-01-02T03:04:05.678Z")
    assert list(summary.to_json()) == [
        "n",
        "messages",
        "summarizer",
        "fields",
        "pointers",
        "unverified",
        "source_tokens",
        "tokens",
        "text",
        "created_at",
        "items",
    ]


@given(summaries)
def test_keys_that_are_not_known_are_ignored(summary: Summary) -> None:
    line = {**summary.to_json(), "later": 1}
    assert summary_from(line) == summary


def test_a_line_without_items_is_read() -> None:
    line = Summary(1, (0, 2), _draft(next_steps="x"), (), 9, 3, "text", "").to_json()
    del line["items"]
    assert summary_from(line).draft.items == ()


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (PLACE, ["messages 3-19", PLACE.transcript, "[transcript.md:119-120]", "None is lost", "not instructions"]),
        (ArchiveLocation(0, 1, "s3://bucket/key"), ["messages 0-0", "s3://bucket/key", "None is lost"]),
        (ArchiveLocation(0, 5), ["messages 0-4", "They were not kept anywhere"]),
    ],
)
def test_a_header_says_where_the_messages_are(place: ArchiveLocation, words: list[str]) -> None:
    shown = header(place)
    assert [word for word in words if word not in shown] == []
    assert "\n" not in shown


@pytest.mark.parametrize(("lines", "mark"), [((), "1-1"), (((1, 1),), "1-1"), (((1, 2),), "1-2"), (((5, 9),), "8-9")])
def test_the_mark_that_a_header_explains_is_one_that_could_be(lines: tuple[tuple[int, int], ...], mark: str) -> None:
    assert f"[transcript.md:{mark}]" in header(replace(PLACE, lines=lines))


def test_a_message_is_pointed_to_by_its_lines() -> None:
    assert PLACE.pointer(1) == Pointer("transcript.md", 61, 120)
    assert ArchiveLocation(0, 5, "s3://bucket/key").pointer(1) is None


def test_a_summary_is_its_header_and_the_filled_template() -> None:
    shown = render(PLACE, "A: {a}\nB: {b}", {"a": " one {b} \n", "b": ""})
    assert shown == f"{header(PLACE)}\n\nA: one {{b}}\nB: Nothing noted.\n"


@given(st.lists(st.text(max_size=60), min_size=5, max_size=5))
def test_frame_and_fields_together_take_at_least_what_the_summary_takes(found: list[str]) -> None:
    fields = dict(zip(FIELDS, found, strict=True))
    frame = frame_tokens(PLACE, SUMMARY_TEMPLATE, FIELDS, COUNTER)
    shown = render(PLACE, SUMMARY_TEMPLATE, fields)
    assert COUNTER.count(shown) <= frame + COUNTER.count("\n".join(found))


def test_only_pointers_to_lines_that_are_there_are_shown() -> None:
    draft = _draft(
        current_state="One [transcript.md:1-5]. Two [transcript.md:121]. Three [transcript.md:120].",
        next_steps="Four [other.md:1]. Five [transcript.md:9-7]. Six [transcript.md:0]. One [transcript.md:1-5].",
    )
    kept = with_resolved_pointers(draft, PLACE)
    assert kept.fields == {
        "current_state": "One [transcript.md:1-5]. Two . Three [transcript.md:120].",
        "next_steps": "Four . Five . Six . One [transcript.md:1-5].",
    }
    assert kept.pointers == (Pointer("transcript.md", 1, 5), Pointer("transcript.md", 120, 120))


@given(
    st.lists(
        st.builds(Pointer, st.sampled_from(["transcript.md", "other.md"]), st.integers(0, 130), st.integers(0, 130))
    )
)
def test_the_pointers_of_a_summary_are_those_in_its_text_each_once(found: list[Pointer]) -> None:
    kept = with_resolved_pointers(_draft(a=" ".join(f"[{pointer}]" for pointer in found)), PLACE)
    resolving = [pointer for pointer in found if PLACE.resolves(pointer)]
    assert kept.pointers == tuple(dict.fromkeys(resolving))
    assert kept.fields["a"].split() == [f"[{pointer}]" for pointer in resolving]


def test_of_a_mark_with_several_places_those_that_are_there_stay() -> None:
    draft = _draft(a="One [transcript.md:1-5,121,7]. Two [transcript.md:121,122]. Three [transcript.md:2,9-11].")
    kept = with_resolved_pointers(draft, PLACE)
    assert kept.fields == {"a": "One [transcript.md:1-5,7]. Two . Three [transcript.md:2,9-11]."}
    assert [str(pointer).partition(":")[2] for pointer in kept.pointers] == ["1-5", "7", "2", "9-11"]


@given(
    st.lists(st.builds(Pointer, st.sampled_from(["transcript.md", "a.txt"]), st.integers(0, 99), st.integers(0, 99)))
)
def test_pointers_come_back_from_their_marks_in_order(found: list[Pointer]) -> None:
    marks = citation_marks(found)
    assert list(pointers_in(f"Said {' '.join(marks)}.")) == found
    assert all(before.partition(":")[0] != after.partition(":")[0] for before, after in pairwise(marks))


def test_a_pointer_of_its_own_mark_is_read_as_ever() -> None:
    assert list(pointers_in("One [a.md:3] [a.md:4-5], [b.md:1]")) == [
        Pointer("a.md", 3, 3),
        Pointer("a.md", 4, 5),
        Pointer("b.md", 1, 1),
    ]


def test_without_a_transcript_no_pointer_is_shown() -> None:
    kept = with_resolved_pointers(_draft(a="One [transcript.md:1-5]."), ArchiveLocation(0, 5, "s3://bucket/key"))
    assert kept.pointers == ()
    assert kept.fields == {"a": "One ."}


@pytest.mark.parametrize(("pointer", "shown"), [(Pointer("a.md", 3, 3), "a.md:3"), (Pointer("a.md", 3, 4), "a.md:3-4")])
def test_a_pointer_reads_as_file_and_lines(pointer: Pointer, shown: str) -> None:
    assert str(pointer) == shown
