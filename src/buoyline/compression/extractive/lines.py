"""Tool results as the extraction reads them, and the lines that hold what it takes from them.

Of an offloaded result it reads the lines that the stub shows, without the stub's own words. The transcript does not
hold these lines, so facts from them cite the result's own file.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NamedTuple

from buoyline.compression.citations import CUT
from buoyline.compression.identifiers import readable
from buoyline.compression.pointers import Pointer
from buoyline.compression.summary import ResultExcerpt, SourceMessage
from buoyline.previews.source import CONTINUED

# Find the lines of a message that hold certain words, to cite these and not the whole message.


# An escape in a transcript is a blank in a quotation, and line ends change blanks.
_BLANK = re.compile(
    "(?:\\\\x1b|\x1b)\\[[0-9;?]{0,20}[A-Za-z]|\\\\(?:x[0-9a-f]{2}|u[0-9a-f]{4})"
    "|[\\s\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


class LineFinder:
    """Finds words in the lines of messages; each message is prepared once."""

    def __init__(self) -> None:
        """Start empty."""
        self._folded: dict[int | str, _Folded] = {}

    def of(self, source: SourceMessage, text: str) -> tuple[Pointer, ...]:
        """Return the lines of *source* that hold *text*; blanks may differ, and an ellipsis may stand for any cut.

        It is one pointer, to the whole message if its lines do not hold the words; empty if no lines are known.
        """
        if source.pointer is None:
            return ()
        found = self._found(source.index, source.lines, text)
        if found is None:
            return (source.pointer,)
        first, last = (source.pointer.start + position for position in found)
        return (Pointer(source.pointer.path, first, last),)

    def of_result(self, result: "ResultText", text: str) -> tuple[Pointer, ...]:
        """Return the lines of a tool result that hold *text*, in the result's own file if it has one; see `of`."""
        excerpt = result.excerpt
        if excerpt is not None and excerpt.path:
            lines = excerpt.lines
            if (found := self._found(excerpt.path, [line for _, line in lines], text)) is not None:
                return (Pointer(excerpt.path, lines[found[0]][0], lines[found[1]][0]),)
        return self.of(result.source, text)

    def _found(self, key: int | str, lines: Sequence[str], text: str) -> tuple[int, int] | None:
        """Return the positions of the first and the last of *lines* that hold *text*.

        *key* names the lines: the index of a message, whose first line is its heading, or the path of a file.
        """
        pieces = [piece for part in text.split(CUT) if (piece := _BLANK.sub("", part))]
        if not lines or not pieces:
            return None
        if key not in self._folded:
            self._folded[key] = _Folded(lines, has_heading=isinstance(key, int))
        return self._folded[key].lines_of(pieces)


class _Folded:
    """The lines of a message or a file joined without their blanks."""

    def __init__(self, lines: Sequence[str], *, has_heading: bool) -> None:
        folded = [_BLANK.sub("", line.removeprefix(CONTINUED)) for line in lines]
        if has_heading:
            folded[0] = ""  # the time of a message may hold any short text, such as "1."
        self._text = "".join(folded)
        self._starts = list(accumulate(map(len, folded), initial=0))[:-1]

    def lines_of(self, pieces: Iterable[str]) -> tuple[int, int] | None:
        """Return the first and the last line of *pieces*, which come in order; None if one is missing."""
        start = end = -1
        for piece in pieces:
            at = self._text.find(piece, max(end, 0))
            if at < 0:
                return None
            start, end = at if start < 0 else start, at + len(piece)
        return self._line_at(start), self._line_at(end - 1)

    def _line_at(self, position: int) -> int:
        return bisect_right(self._starts, position) - 1


MAX_GAP_LINES: Final = 20
"""Lines no further apart are one place: to read between them costs no more than a second pointer."""


class Passage(NamedTuple):
    """Words of a message, and the lines that hold them; empty if no lines are known."""

    text: str
    pointers: tuple[Pointer, ...] = ()


NO_WORDS: Final = Passage("")


@dataclass(frozen=True, slots=True)
class ResultText:
    """The text of one tool result; of an offloaded one the lines that its stub shows, which *excerpt* numbers."""

    text: str
    source: SourceMessage
    excerpt: ResultExcerpt | None = None

    @property
    def has_own_lines(self) -> bool:
        """Whether its lines are in a file of its own and not in the transcript."""
        return self.excerpt is not None and bool(self.excerpt.path)

    def passage(self, words: str, citations: LineFinder) -> Passage:
        """Return *words*, part of one line as `readable` shows it, with their place."""
        if words and self.excerpt is not None and self.has_own_lines:
            for number, text in self.excerpt.lines:
                if words in readable(text):
                    return Passage(words, (Pointer(self.excerpt.path, number, number),))
        return Passage(words, citations.of(self.source, words))


def result_texts(source: SourceMessage) -> list[ResultText]:
    """Return the tool results of *source*, in order."""
    excerpts = source.excerpts or (None,) * len(source.message.results)
    return [
        ResultText(result.text if excerpt is None else "\n".join(line for _, line in excerpt.lines), source, excerpt)
        for result, excerpt in zip(source.message.results, excerpts, strict=True)
    ]


def merged_pointers(pointers: Iterable[Pointer]) -> tuple[Pointer, ...]:
    """Return as few pointers as cover all these lines; near ones of one file become one.

    Files keep the order in which they came; the lines of each ascend.
    """
    found = list(pointers)
    files = list(dict.fromkeys(pointer.path for pointer in found))
    spans: list[Pointer] = []
    for pointer in sorted(found, key=lambda pointer: (files.index(pointer.path), pointer)):
        last = spans[-1] if spans else None
        if last is not None and last.path == pointer.path and pointer.start - last.end <= MAX_GAP_LINES:
            spans[-1] = Pointer(last.path, last.start, max(last.end, pointer.end))
        else:
            spans.append(pointer)
    return tuple(spans)
