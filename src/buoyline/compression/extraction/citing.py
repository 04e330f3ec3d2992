"""The lines of a message that hold certain words, so that a summary cites these and not the whole message."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

from buoyline.compression.claims import CUT
from buoyline.compression.summary import Pointer, Source
from buoyline.offloader.lines import CONTINUED

# What a transcript shows as an escape is a blank in a quotation, and where blanks stand depends on line ends.
_BLANK = re.compile(
    "(?:\\\\x1b|\x1b)\\[[0-9;?]{0,20}[A-Za-z]|\\\\(?:x[0-9a-f]{2}|u[0-9a-f]{4})"
    "|[\\s\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


class Citations:
    """Finds words in the lines of messages; each message is looked at closely once."""

    def __init__(self) -> None:
        """Start without any."""
        self._folded: dict[int, _Folded] = {}

    def of(self, source: Source, text: str) -> tuple[Pointer, ...]:
        """Return the lines of *source* that hold *text*.

        Args:
            source: A message.
            text: Words of it, blanks between them spelled in any way, cut anywhere at an ellipsis.

        Returns:
            One pointer, to all its lines where the words are not found in them; nothing where no lines are known.
        """
        if source.pointer is None:
            return ()
        pieces = [piece for part in text.split(CUT) if (piece := _BLANK.sub("", part))]
        if not source.lines or not pieces:
            return (source.pointer,)
        if source.index not in self._folded:
            self._folded[source.index] = _Folded(source.lines)
        found = self._folded[source.index].lines_of(pieces)
        if found is None:
            return (source.pointer,)
        first, last = (source.pointer.start + position for position in found)
        return (Pointer(source.pointer.path, first, last),)


class _Folded:
    """Lines without their blanks, put together."""

    def __init__(self, lines: Sequence[str]) -> None:
        folded = [_BLANK.sub("", line.removeprefix(CONTINUED)) for line in lines]
        self._text = "".join(folded)
        self._starts = list(accumulate(map(len, folded), initial=0))[:-1]

    def lines_of(self, pieces: Iterable[str]) -> tuple[int, int] | None:
        """Return the first and the last line of *pieces*, which come in order; None where one is missing."""
        start = end = -1
        for piece in pieces:
            at = self._text.find(piece, max(end, 0))
            if at < 0:
                return None
            start, end = at if start < 0 else start, at + len(piece)
        return self._line_at(start), self._line_at(end - 1)

    def _line_at(self, position: int) -> int:
        return bisect_right(self._starts, position) - 1
