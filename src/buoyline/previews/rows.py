"""Rows: what the readers of a text found, before the layout chooses what fits."""

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from buoyline.previews.source import visible

MOST_LINE_CHARS = 1_000
"""A preview shows at most this much of a line."""

FAR_CHARS = 125
"""A place from this character on cannot be seen from the beginning of the line."""

ERROR = 80.0
"""From this weight on, a row reports an error: other rows are cut shorter to make room for it."""

MOST_FACT_CHARS = 300
_ITEM_CHARS = 90


class Row(NamedTuple):
    """A line that is more important than its neighbors.

    Attributes:
        number: 1-based.
        weight: From 0 to 100; the layout takes the heaviest first.
        text: The line from character *column* on, 0-based; at most 1,000 characters.
        rest: The number of characters behind *text*.
        note: Why the line is odd, if it does not say so itself.
        lines: The number of lines of this kind, this one included; *others* are the numbers of some of them.
        word: For an error, characters that find every line of its kind.
        form: For an error, its words without values: rows of one form can be named by number.
    """

    number: int
    weight: float
    text: str = ""
    column: int = 0
    rest: int = 0
    note: str = ""
    lines: int = 1
    others: tuple[int, ...] = ()
    word: str = ""
    form: bytes = b""


@dataclass(frozen=True, slots=True)
class Kind:
    """What the reader of a kind of text found.

    Attributes:
        facts: Rows about the whole text, the most important first. None begins with a digit, as numbered lines do.
        rows: Lines worth showing, without their text.
        parts: Rows about parts of the text, such as records or hits, in its order.
        quoted: The numbers of lines that quote another text: words of errors in them are no errors of this one.
        is_free: Whether nearly every line is unlike all others, as in a program or a page.
        is_record: Whether the lines are data, in which only the reader finds what is odd.
        is_whole: Whether the facts say all there is to see, as of binary data.
    """

    facts: Sequence[str] = ()
    rows: Sequence[Row] = ()
    parts: Sequence[str] = ()
    quoted: frozenset[int] = frozenset()
    is_free: bool = False
    is_record: bool = False
    is_whole: bool = False


def row_of(number: int, weight: float, line: str, column: int = 0, **about: Any) -> Row:
    """Return a row with the part of *line* that shows the character *column*."""
    first = max(column - 30, 0) if column >= FAR_CHARS else 0
    text = line[first : first + MOST_LINE_CHARS]
    return Row(number, weight, text, first, len(line) - first - len(text), **about)


def fact(text: str) -> str:
    """Return *text* as a row: one line of at most 300 characters without control characters."""
    return shortened(" ".join(visible(text[: 2 * MOST_FACT_CHARS]).split()), MOST_FACT_CHARS)


def listed(label: str, items: Iterable[str], most: int = 3, chars: int = 170) -> list[str]:
    """List *items*, the most important first, in at most *most* facts of *chars*; the last one counts the missing ones.

    Returns:
        ``["Files: a :1, b :20", "Files, more: c :33; 12 more"]``; nothing without items.
    """
    waiting = [middle_cut(item) for item in items]
    found = list[str]()
    while waiting and len(found) < most:
        row = f"{label}, more: " if found else f"{label}: "
        taken = 1
        while taken < len(waiting) and len(row) + sum(len(item) + 2 for item in waiting[: taken + 1]) <= chars:
            taken += 1
        found.append(row + ", ".join(waiting[:taken]))
        del waiting[:taken]
    if waiting:
        found[-1] += f"; {len(waiting):,} more"
    return found


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number and its noun, such as ``"1,200 files"``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def shortened(text: str, chars: int) -> str:
    """Return *text*, with an ellipsis as its end if it is longer than *chars*."""
    return text if len(text) <= chars else f"{text[: chars - 1]}\u2026"


def middle_cut(text: str, chars: int = _ITEM_CHARS) -> str:
    """Return *text*, cut in the middle if it is longer than *chars*: the end of a path says most."""
    return text if len(text) <= chars else f"{text[: chars // 3]}\u2026{text[len(text) - 2 * chars // 3 + 1 :]}"


def common_folder(paths: Sequence[str]) -> str:
    """Return the common folder of *paths* with a final slash; empty if it is very short or too long to print."""
    if len(paths) < 2:  # noqa: PLR2004 - a single path is shown whole
        return ""
    first, last = min(paths), max(paths)
    end = next((place for place, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    folder = first[: first.rfind("/", 0, end) + 1]
    return folder if 4 <= len(folder) <= _ITEM_CHARS else ""  # noqa: PLR2004 - "src/" costs no more than a word


@cache
def linear(pattern: str) -> Any:
    r"""Compile *pattern* for UTF-8 bytes with RE2, which takes linear time for each text.

    ``^`` and ``$`` match at line ends, and no match spans lines. The first use imports RE2: who only appends does not
    pay for it.
    """
    re2: Any = importlib.import_module("re2")
    options = re2.Options()
    options.never_nl = True
    options.log_errors = False
    return re2.compile(b"(?m)" + pattern.encode(), options)
