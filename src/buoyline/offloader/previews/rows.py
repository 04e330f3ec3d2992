"""The numbered lines of a preview: how they are written, and read back."""

import re
from dataclasses import dataclass, replace

from buoyline.offloader.previews.lines import Excerpt

_NUMBERED = re.compile(r"([1-9][0-9]{0,15})(?::([1-9][0-9]{0,15}))?: (.*)", re.DOTALL)
_MARK = " <<< "
_CUT = re.compile(r"(.*) \[\.\.\. ([1-9][0-9]{0,2}(?:,[0-9]{3}){0,5}) more characters\]", re.DOTALL)
_LEAST_CUT_CHARS = 30


@dataclass(frozen=True, slots=True)
class Shown:
    """A line of a preview, whole or in part.

    Attributes:
        number: Of the line in its file, 1-based.
        text: What is shown of it.
        cut_chars: How many characters of the line are left out behind *text*.
        column: The character of the line with which *text* begins, 1-based.
        mark: What is said of the line: what is odd about it, how many are like it; empty without.
    """

    number: int
    text: str
    cut_chars: int = 0
    column: int = 1
    mark: str = ""

    def __str__(self) -> str:
        """Return the row as the preview has it."""
        place = f"{self.number}" if self.column == 1 else f"{self.number}:{self.column}"
        rest = f" [... {self.cut_chars:,} more characters]" if self.cut_chars else ""
        return f"{place}: {self.text}{rest}{_MARK + self.mark if self.mark else ''}"

    def narrowed(self, chars: int) -> "Shown":
        """Return the row with at most *chars* of its text; a mark may be as long again."""
        cut = max(len(self.text) - chars, 0)
        mark = self.mark if len(self.mark) <= max(chars, _LEAST_CUT_CHARS) else self.mark[:chars] + "..."
        # What is left out must be longer than the words that say so.
        if cut <= _LEAST_CUT_CHARS:
            return replace(self, mark=mark)
        return replace(self, text=self.text[:chars], cut_chars=self.cut_chars + cut, mark=mark)


def shown(number: int, excerpt: Excerpt, mark: str = "") -> Shown:
    """Show a part of the line that has this *number*; see `Shown` for the *mark*."""
    rest = max(excerpt.chars - excerpt.first - len(excerpt.text), 0)
    return Shown(number, excerpt.text, rest, excerpt.first + 1, mark)


def shown_lines(body: str) -> list[Shown]:
    """Read a preview back.

    Args:
        body: What `buoyline.offloader.previews.preview` returned.

    Returns:
        Its numbered lines in order. A line that itself ends like one that was cut or marked cannot be told from it.
    """
    rows = (_NUMBERED.fullmatch(row) for row in body.split("\n"))
    return [_read_back(int(row[1]), int(row[2] or 1), row[3]) for row in rows if row is not None]


def _read_back(number: int, column: int, text: str) -> Shown:
    text, _, mark = text.partition(_MARK)
    cut = _CUT.fullmatch(text)
    if cut is None:
        return Shown(number, text, 0, column, mark)
    return Shown(number, cut[1], int(cut[2].replace(",", "")), column, mark)
