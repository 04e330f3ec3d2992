r"""Numbered lines of a text of any size. A line ends at ``\n`` only."""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple, TypeAlias

from buoyline.previews.source import Source

MAX_HELD_CHARS = 1 << 21
"""Only this much of a line is kept; the rest is counted."""

MAX_SHOWN_CHARS = 1_000
"""A preview shows at most this much of a line."""

FAR_CHARS = 125
"""A place from this character on is not visible from the beginning of the line."""

LinePlace: TypeAlias = tuple[int, int]
"""A line number, 1-based, and a character of the line, 0-based."""


class LineBlock(NamedTuple):
    r"""Whole lines of a text; *hidden_chars* are missing in the first line if it began in an earlier block."""

    first: int
    text: str
    size: int
    hidden_chars: int


class LineExcerpt(NamedTuple):
    """A part of a line that has *chars* characters, from the character *first* on, 0-based."""

    first: int
    text: str
    chars: int


def line_blocks(source: Source) -> Iterator[LineBlock]:
    """Yield the lines of *source* in blocks of about a megabyte; no line is in two blocks."""
    number, held, held_chars = 1, "", 0
    for text in source.blocks():
        end = text.rfind("\n")
        if end < 0:
            held_chars += len(text)
            held = (held + text[:MAX_HELD_CHARS])[:MAX_HELD_CHARS]
            continue
        whole = text[:end]
        if held_chars:
            first, line_end, rest = whole.partition("\n")
            whole = (held + first)[:MAX_HELD_CHARS] + line_end + rest
        count = whole.count("\n") + 1
        yield LineBlock(number, whole, count, held_chars + end - len(whole))
        number, held, held_chars = number + count, text[end + 1 :][:MAX_HELD_CHARS], len(text) - end - 1
    if held_chars:
        yield LineBlock(number, held, 1, held_chars - len(held))


def excerpts_at(source: Source, places: AbstractSet[LinePlace]) -> Mapping[LinePlace, LineExcerpt]:
    r"""Return parts of lines, each from the beginning of its line, or from a place far inside it.

    Returns:
        The places that exist, in order, without a ``\r`` at the end.
    """
    found: dict[LinePlace, LineExcerpt] = {}
    wanted = sorted(places, reverse=True)
    for block in line_blocks(source):
        if not wanted:
            break
        if wanted[-1][0] >= block.first + block.size:
            continue
        lines = block.text.split("\n")
        while wanted and wanted[-1][0] < block.first + block.size:
            number, column = wanted.pop()
            hidden_chars = block.hidden_chars if number == block.first else 0
            line = lines[number - block.first]
            if not hidden_chars:
                line = line.removesuffix("\r")
            first = column if column >= FAR_CHARS else 0
            text = line[first : first + MAX_SHOWN_CHARS]
            found[number, column] = LineExcerpt(first, text, len(line) + hidden_chars)
    return found
