"""Texts that are read in pieces, and what is made of them piece by piece."""

import json
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buoyline.offloader import protocol as views
from buoyline.offloader.protocol import view_blocks, view_of, wrapped_blocks
from buoyline.previews import source as sources
from buoyline.previews.source import (
    BlockCutter,
    BytesSource,
    Source,
    TextSource,
    character_boundary,
    decoded,
    is_readable,
    readable_lines,
)

TEXTS = st.text(st.characters(codec=None) | st.sampled_from("\n\r\ud800é"), max_size=60)
ODD_BYTES = st.lists(
    st.sampled_from(
        [b"a", b" ", b"\n", b"\r", b"\r\n", b"\xc3", b"\xa9", b"\xed\xa0\x80", b"\xed\xa0", b"\xf0\x9f", b"\xff"]
    )
    | st.binary(max_size=3)
    | st.sampled_from(["é", "漢", "\U0001f600", "\u2028"]).map(str.encode),
    max_size=30,
).map(b"".join)
SHOWN_TEXTS = st.lists(
    st.sampled_from(["\n", "\r", "\r\n", "\u2028", " ", "a" * 999, "b " * 600, "c" * 2500, "", "\x1b[31m", "漢"]),
    max_size=12,
).map("".join)


def pieces(content: bytes, sizes: Sequence[int]) -> Iterator[bytes]:
    start = 0
    for size in sizes:
        yield content[start : start + size]
        start += size
    yield content[start:]


def assert_is_source(source: Source, text: str, block_chars: int) -> None:
    blocks = list(source.blocks())
    assert "".join(blocks) == text
    assert all(0 < len(block) <= block_chars for block in blocks)
    for block in blocks[:-1]:
        assert block.endswith("\n") or (len(block) == block_chars and "\n" not in block)
    assert source.size_bytes == len(text.encode("utf-8", "surrogatepass"))


@given(TEXTS, st.integers(1, 20))
def test_blocks_joined_are_the_text_and_end_in_line_ends_where_lines_are_short(text: str, block_chars: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "BLOCK_CHARS", block_chars)
        assert_is_source(TextSource(text), text, block_chars)


def test_a_text_may_be_read_again() -> None:
    source = TextSource("a line\n" * 400_000)
    assert list(source.blocks()) == list(source.blocks())
    assert len(list(source.blocks())) > 1


@given(ODD_BYTES, st.lists(st.integers(0, 9), max_size=12), st.integers(4, 20))
def test_bytes_read_in_blocks_are_the_same_text_as_at_once(content: bytes, sizes: list[int], block_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "BLOCK_BYTES", block_bytes)
        source = BytesSource(lambda: pieces(content, sizes), len(content))
        blocks = list(source.blocks())
        cutter = BlockCutter()
        cut = [block for piece in pieces(content, sizes) for block in cutter.take(piece)]
        rest = cutter.rest()
    assert "".join(blocks) == decoded(content)
    assert all(blocks)
    assert b"".join([*cut, rest]) == content
    assert all(block.endswith(b"\n") or b"\n" not in block for block in cut)
    assert all(0 < len(block) <= block_bytes for block in cut)


@given(TEXTS)
def test_a_text_comes_back_from_its_bytes_half_characters_included(text: str) -> None:
    assert decoded(text.encode("utf-8", "surrogatepass")) == text


def test_what_is_not_utf8_is_shown_as_elsewhere() -> None:
    content = b"ok \xff\xc3 \xf0\x9f\x98 end\xe2"
    assert decoded(content) == content.decode("utf-8", "replace")


@given(st.text(max_size=8), st.integers(0, 30))
def test_no_character_is_parted(text: str, end: int) -> None:
    content = text.encode("utf-8")
    boundary = character_boundary(content, min(end, len(content)))
    assert min(end, len(content)) - 3 <= boundary <= min(end, len(content))
    assert content[:boundary].decode("utf-8") + content[boundary:].decode("utf-8") == text


@given(SHOWN_TEXTS, st.lists(st.integers(0, 2000), max_size=8))
def test_lines_wrapped_piece_by_piece_are_those_of_the_whole(text: str, sizes: list[int]) -> None:
    shown = "".join(wrapped_blocks(_parts(text, sizes)))
    whole = "".join(f"{line}\n" for line in readable_lines(text))
    assert shown == whole
    assert is_readable(text) or whole == view_of(text)


@given(SHOWN_TEXTS, st.integers(1000, 3000))
def test_a_text_is_readable_when_each_of_its_blocks_is(text: str, block_bytes: int) -> None:
    content = text.encode("utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "BLOCK_BYTES", max(block_bytes, 4004))
        blocks = list(BytesSource(lambda: [content], len(content)).blocks())
    assert all(map(is_readable, blocks)) is is_readable(text)


@pytest.mark.parametrize("limit", [10, 1_000_000])
def test_a_document_is_indented_up_to_the_limit_and_wrapped_beyond_it(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "MAX_JSON_CHARS", limit)
    text = json.dumps({"key": list(range(2000))})
    view = "".join(view_blocks(TextSource(text)))
    assert view == ("".join(wrapped_blocks([text])) if limit < len(text) else view_of(text))
    assert (view.count("\n") > 2000) is (limit > len(text))


def _parts(text: str, sizes: Sequence[int]) -> Iterator[str]:
    start = 0
    for size in sizes:
        yield text[start : start + size]
        start += size
    yield text[start:]
