"""Find the lines of a message or a result that hold certain words, to cite these and not the whole message."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

from buoyline.compression.pointers import Pointer
from buoyline.compression.summary import ResultExcerpt, SourceMessage
from buoyline.compression.text import CUT

_ESCAPE: Final = "(?:\\\\x1b|\x1b)\\[[0-9;?]{0,20}[A-Za-z]|\\\\(?:x[0-9a-f]{2}|u[0-9a-f]{4})"
"""A transcript spells control characters as escapes; a quotation has blanks in their place."""

# Blanks differ; if that is not enough, all signs may, since lists, tables and JSON lose theirs.
_LEFT_OUT: Final = (re.compile(rf"{_ESCAPE}|[\s\x00-\x1f\x7f-\x9f]+"), re.compile(rf"{_ESCAPE}|\W"))

_NEAR_LINES: Final = 20
"""Lines no further apart are one place: to read between them costs no more than a second citation."""


class LineFinder:
    """Finds words in the lines of messages; each message is prepared once."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._folded: dict[tuple[int | str, re.Pattern[str]], tuple[str, list[int]]] = {}

    def of(self, source: SourceMessage, words: str) -> tuple[Pointer, ...]:
        """Return the lines of *source* that hold *words*, in which an ellipsis stands for any cut.

        It is the whole message if its lines do not hold them; empty if no lines are known.
        """
        if source.pointer is None:
            return ()
        spans = self._found(source.index, ("", *source.lines[1:]), words)  # without the heading: its time is no words
        start, path = source.pointer.start, source.pointer.path
        return merged(Pointer(path, start + first, start + last) for first, last in spans) or (source.pointer,)

    def of_result(self, source: SourceMessage, excerpt: ResultExcerpt | None, words: str) -> tuple[Pointer, ...]:
        """Return the lines of a tool result that hold *words*, in the result's own file if it has one; see `of`."""
        if excerpt is not None and excerpt.path:
            numbers = [number for number, _ in excerpt.lines]
            spans = self._found(excerpt.path, [text for _, text in excerpt.lines], words)
            if spans:
                return merged(Pointer(excerpt.path, numbers[first], numbers[last]) for first, last in spans)
        return self.of(source, words)

    def _found(self, key: int | str, lines: Sequence[str], words: str) -> list[tuple[int, int]]:
        """Return the positions of the first and the last of *lines* for each piece; nothing if one is missing."""
        with_signs, without_signs = _LEFT_OUT
        found = self._folded_place(key, lines, words, with_signs)
        return found or self._folded_place(key, lines, words, without_signs)

    def _folded_place(
        self, key: int | str, lines: Sequence[str], words: str, left_out: re.Pattern[str]
    ) -> list[tuple[int, int]]:
        if (key, left_out) not in self._folded:
            folded = [left_out.sub("", line) for line in lines]
            self._folded[key, left_out] = "".join(folded), [*accumulate(map(len, folded), initial=0)][:-1]
        text, starts = self._folded[key, left_out]
        spans, end = list[tuple[int, int]](), 0
        for piece in filter(None, (left_out.sub("", part) for part in words.split(CUT))):
            at = text.find(piece, end)
            if at < 0:
                return []
            end = at + len(piece)
            spans.append((bisect_right(starts, at) - 1, bisect_right(starts, end - 1) - 1))
        return spans


def merged(pointers: Iterable[Pointer]) -> tuple[Pointer, ...]:
    """Return as few pointers as cover all these lines; near ones of one file become one.

    Files keep the order in which they came; the lines of each ascend.
    """
    found = list(dict.fromkeys(pointers))
    files = {path: at for at, path in enumerate(dict.fromkeys(pointer.path for pointer in found))}
    spans = list[Pointer]()
    for pointer in sorted(found, key=lambda pointer: (files[pointer.path], pointer)):
        last = spans[-1] if spans else None
        if last is not None and last.path == pointer.path and pointer.start - last.end <= _NEAR_LINES:
            spans[-1] = Pointer(last.path, last.start, max(last.end, pointer.end))
        else:
            spans.append(pointer)
    return tuple(spans)
