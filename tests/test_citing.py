"""Few lines are cited, and they hold the words."""

from hypothesis import given
from hypothesis import strategies as st

from buoyline.compression.extractive.lines import LineFinder
from buoyline.compression.summary import SourceMessage
from buoyline.compression.text import Pointer
from buoyline.messages.registry import detect
from buoyline.previews.source import readable_lines


def _source(text: str) -> SourceMessage:
    """Return a message as a transcript from line 11 on shows it: a heading, its text, an empty line."""
    message = {"role": "user", "content": text}
    lines = ("## 0 \u00b7 user", *readable_lines(text), "")
    return SourceMessage(0, detect(message).view(message), Pointer("transcript.md", 11, 10 + len(lines)), (), lines)


def _cited(source: SourceMessage, pointer: Pointer) -> str:
    return "\n".join(source.lines[pointer.start - 11 : pointer.end - 10])


def test_a_quotation_cites_its_lines_alone() -> None:
    source = _source("one\ntwo words\nand three\nfour")
    assert LineFinder().of(source, "words and three") == (Pointer("transcript.md", 13, 14),)
    assert LineFinder().of(source, "one \u2026 four") == (Pointer("transcript.md", 12, 15),)


def test_words_that_are_not_found_cite_the_whole_message() -> None:
    source = _source("one\ntwo")
    assert LineFinder().of(source, "three") == (source.pointer,)
    assert LineFinder().of(source, "") == (source.pointer,)
    assert LineFinder().of(SourceMessage(0, source.message), "one") == ()


@given(st.lists(st.text(max_size=40), min_size=1, max_size=12), st.data())
def test_cited_lines_hold_what_was_quoted(lines: list[str], data: st.DataObject) -> None:
    source = _source("\n".join(lines))
    quoted = data.draw(st.sampled_from(lines))
    (pointer,) = LineFinder().of(source, quoted)
    assert 11 <= pointer.start <= pointer.end <= 10 + len(source.lines)
    if quoted.isascii() and quoted.isprintable() and quoted.strip():
        assert "".join(quoted.split()) in "".join(_cited(source, pointer).split())
