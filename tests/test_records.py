"""Records of `key: value` lines: a preview names their keys, and `query` has them as columns."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buoyline.lookups import evaluation
from buoyline.previews import preview
from buoyline.previews.pages import paragraphs_digest
from buoyline.tokens import default_counter

COUNTER = default_counter()
PETS = "".join(f"### pet-{n} (owner: p{n // 2})\nname: Ada {n}\nspecies: Cat\n\n" for n in range(300))

_parsed: Callable[[str], Any] = evaluation._parsed  # pyright: ignore[reportPrivateUsage]

WORDS = st.text("abz: .-_()\u00e9", max_size=6)
LINES = st.one_of(
    st.sampled_from(["", " ", "# Title", "a: 1", "b: x", "a:", "c (d): y", "  more", "\tmore: 2", "heading: z"]), WORDS
)


def _facts(text: str) -> tuple[str, ...]:
    digest = paragraphs_digest(text.split("\n"))
    return () if digest is None else digest.facts


def test_a_preview_says_how_many_records_there_are_and_their_keys() -> None:
    shown = preview(PETS, 200, COUNTER)
    assert shown.startswith("Records: 300 with heading, name, species\n1: ### pet-0 (owner: p0)\n")
    assert COUNTER.count(shown) <= 200


def test_a_title_above_the_first_record_is_none() -> None:
    assert _facts(f"# All pets\n\n{PETS}")[0].startswith("Records: 300 with heading, name")


def test_keys_that_only_some_records_have_are_named_too() -> None:
    text = "\n\n".join(["a: 1\nb: 2"] * 5 + ["a: 1\nc: 3\n  and more"])
    assert _facts(text) == ("Records: 6 with a, b, c",)


def test_of_many_keys_the_first_are_named() -> None:
    text = "\n\n".join(["\n".join(f"key{n}: {n}" for n in range(20))] * 4)
    assert _facts(text)[0].endswith("key14, key15, ...")


@pytest.mark.parametrize(
    "text",
    [
        f"{PETS}the end\n",
        PETS.replace("name: Ada 7\n", "name Ada 7\n"),
        "Note: one\n\nNote: two\n",
        "\n\n".join(f"key{n}: differs" for n in range(9)),
        "heading: x\n\n" * 9,
        "Prose has no keys\n\nat all.\n",
        "",
    ],
)
def test_a_text_with_other_lines_too_few_paragraphs_or_no_common_key_is_none(text: str) -> None:
    assert _facts(text) == ()


def test_of_a_text_that_was_not_read_to_its_end_nothing_is_said() -> None:
    long = PETS * 90
    assert len(long) > 1_100_000
    assert not preview(long, 200, COUNTER).startswith("Records")


@settings(max_examples=300)
@given(st.lists(LINES, max_size=30))
def test_what_a_preview_calls_records_query_reads_with_these_keys(lines: list[str]) -> None:
    text = "\n".join([*lines, *["", "a: 1"] * 3])
    facts = _facts(text)
    try:
        rows = evaluation._records(text).value  # pyright: ignore[reportPrivateUsage]
    except ValueError:
        assert not facts
        return
    columns = ", ".join(dict.fromkeys(key for row in rows for key in row))
    assert facts in {(), (f"Records: {len(rows):,} with {columns}",)}


def test_query_takes_a_file_whose_preview_says_so_for_them() -> None:
    rows = _parsed(PETS).value
    assert len(rows) == 300
    assert json.dumps(rows[0]) == '{"heading": "pet-0 (owner: p0)", "name": "Ada 0", "species": "Cat"}'
