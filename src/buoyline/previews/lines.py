r"""Lines of a text of any size, by their numbers.

A line ends at ``\n``, as everywhere where lines are counted.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple, TypeAlias

from buoyline.previews.source import Source

MAX_HELD_CHARS = 1 << 21
"""So much of one line is looked at; what follows is counted."""

MAX_SHOWN_CHARS = 1_000
"""So much of a line is shown at most."""

FAR_CHARS = 125
"""From there on, a place in a line is not seen from the line's beginning."""

_BEFORE_CHARS = 30

LinePlace: TypeAlias = tuple[int, int]
"""Number of a line, 1-based, and a character of it, 0-based."""


class LineBlock(NamedTuple):
    r"""Some whole lines of a text.

    Attributes:
        first: Number of the first line.
        text: The lines with ``\n`` between them; the first is cut to `MAX_HELD_CHARS` if it began in an earlier one.
        size: How many lines these are.
        hidden_chars: How many characters of the first line are cut off.
    """

    first: int
    text: str
    size: int
    hidden_chars: int


class LineExcerpt(NamedTuple):
    """A part of a line.

    Attributes:
        first: The character of the line with which it begins, 0-based.
        text: At most `MAX_SHOWN_CHARS` characters.
        chars: How many the whole line has.
    """

    first: int
    text: str
    chars: int


def line_blocks(source: Source) -> Iterator[LineBlock]:
    """Yield the lines of *source* in blocks of about a megabyte; no line stands in two blocks."""
    number, held, held_chars = 1, "", 0
    for text in source.blocks():
        end = text.rfind("\n")
        if end < 0:
            held_chars += len(text)
            held = (held + text[:MAX_HELD_CHARS])[:MAX_HELD_CHARS]
            continue
        whole = _continued(held, text[:end]) if held_chars else text[:end]
        count = whole.count("\n") + 1
        yield LineBlock(number, whole, count, held_chars + end - len(whole))
        number, held, held_chars = number + count, text[end + 1 :][:MAX_HELD_CHARS], len(text) - end - 1
    if held_chars:
        yield LineBlock(number, held, 1, held_chars - len(held))


def excerpts_at(source: Source, places: AbstractSet[LinePlace]) -> Mapping[LinePlace, LineExcerpt]:
    r"""Return lines of *source*, each from its beginning, or from a little before the place where that is far.

    Args:
        source: The text.
        places: Number of the line, 1-based, and the character that it is shown for, 0-based.

    Returns:
        What there is of them, without a ``\r`` at the end.
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
            found[number, column] = _excerpt(lines[number - block.first], hidden_chars, column)
    return found


def _continued(held: str, text: str) -> str:
    """Return *text* with the beginning of its first line, of which no more than `MAX_HELD_CHARS` are kept."""
    first, end, rest = text.partition("\n")
    return (held + first)[:MAX_HELD_CHARS] + end + rest


def _excerpt(line: str, hidden_chars: int, column: int) -> LineExcerpt:
    if not hidden_chars:
        line = line.removesuffix("\r")
    first = column - _BEFORE_CHARS if column >= FAR_CHARS else 0
    return LineExcerpt(first, line[first : first + MAX_SHOWN_CHARS], len(line) + hidden_chars)
