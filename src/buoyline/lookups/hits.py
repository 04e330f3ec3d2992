"""Hits of a pattern in a file of any size, out of a stream of bytes.

The file is searched in blocks of whole lines, not line by line: a call per line costs 4 s on 100 MB. A line
longer than a block is searched in windows that overlap.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from buoyline.lookups.patterns import CompiledPattern, FindFirst, compile_pattern
from buoyline.lookups.sources import ByteSource
from buoyline.previews.source import MAX_LINE_CHARS

OVERLAP_BYTES = 4096
"""In a line over `BLOCK_BYTES`, a match up to this long is found wherever it lies; a longer one may be missed."""

BLOCK_BYTES = (1 << 20) + OVERLAP_BYTES  # so that chunks of a megabyte need not be cut, see `_pieces`

# RE2 is not to be interrupted: the slowest patterns then take 0.7 s for a block, after which the time is looked at.
_BLOCK_STEPS = 10**8

_CHARS_BEFORE_MATCH = 100
_SHOWN_BYTES_FROM_MATCH = MAX_LINE_CHARS - _CHARS_BEFORE_MATCH
_LONGEST_CHAR_BYTES = 4


class LineHit(NamedTuple):
    """A place that matches.

    Attributes:
        number: Of the line, 1-based.
        column: Where to begin to show the line so that the match is seen: 1 in a line of up to 1,000 characters.
        offset: Of the line's first byte in the file.
    """

    number: int
    column: int
    offset: int = 0


class LineStart(NamedTuple):
    """Where a line begins.

    Attributes:
        number: Of the line, 1-based.
        offset: Of its first byte in the file.
    """

    number: int = 1
    offset: int = 0


FIRST_LINE = LineStart()


class SearchBlock(NamedTuple):
    r"""Bytes that are searched at once.

    Attributes:
        line: The line that it begins in.
        column: Of the first character in that line; over 1 where the block begins inside a line.
        offset: Of the first byte in the file.
        content: Whole lines, or a part of one line and whole lines behind it.
        last_start: Where the last match may begin; what begins behind it is found in the next block.
        last_end: Where a match may end. Where the line goes on, this is before the last byte, so that ``$`` and
            ``\b`` see that it does.
    """

    line: LineStart
    column: int
    offset: int
    content: bytes
    last_start: int
    last_end: int


def _never() -> bool:
    return False


def hits(
    chunks: Iterable[bytes],
    pattern: CompiledPattern,
    *,
    is_over: Callable[[], bool] = _never,
    block_bytes: int | None = None,
    overlap_bytes: int = OVERLAP_BYTES,
) -> Iterator[LineHit]:
    """Yield the hits of a pattern in a file, in order.

    A line of up to 1,000 characters is one hit, however often it matches. A longer one has a hit for about each
    1,000 characters that hold a match, so that none of its matches is out of reach. What is found in a line
    depends on that line alone, not on the chunks.

    Args:
        chunks: The file, none of them empty.
        pattern: What is found.
        is_over: Asked before each block and behind each hit, tells whether to stop there.
        block_bytes: How much of one line is searched at once; None: as much as the pattern is simple.
        overlap_bytes: How much of it is searched again with what follows; less than *block_bytes*.
    """
    newest = LineHit(0, 0)
    if block_bytes is None:
        block_bytes = max(2 * overlap_bytes, min(BLOCK_BYTES, _BLOCK_STEPS // pattern.program_size))
    for block in blocks(chunks, block_bytes, overlap_bytes):
        if is_over():
            return
        for hit in _hits_in(block, pattern.find_first):
            if hit > newest:  # two windows of a line may both show the first match of the second
                newest = hit
                yield hit
            if is_over():
                return


def blocks(chunks: Iterable[bytes], block_bytes: int, overlap_bytes: int) -> Iterator[SearchBlock]:
    """Yield a file in blocks of whole lines; a line over *block_bytes* in windows that overlap.

    The windows of a line are counted from its beginning, so they are the same wherever the chunks end.
    """
    line, column, offset, held = FIRST_LINE, 1, 0, b""
    for piece in _pieces(chunks, block_bytes - overlap_bytes):
        held += piece
        while len(held) > block_bytes + overlap_bytes and _is_too_long(held, block_bytes):
            cut = _boundary(held, block_bytes)
            window = held[: block_bytes + overlap_bytes]
            yield SearchBlock(line, column, offset, window, cut, len(window) - 1)
            column, offset, held = column + _chars(held[:cut]), offset + cut, held[cut:]
        cut = held.rfind(b"\n") + 1
        if cut and not _is_too_long(held, block_bytes):
            yield SearchBlock(line, column, offset, held, cut - 1, cut)
            offset += cut
            line = LineStart(line.number + held.count(b"\n", 0, cut), offset)
            column, held = 1, held[cut:]
    if _is_too_long(held, block_bytes):
        cut = _boundary(held, block_bytes)
        yield SearchBlock(line, column, offset, held, cut, len(held))
        column, offset, held = column + _chars(held[:cut]), offset + cut, held[cut:]
    if held:
        yield SearchBlock(line, column, offset, held, len(held), len(held))


def _pieces(chunks: Iterable[bytes], max_bytes: int) -> Iterator[bytes]:
    """Yield chunks in pieces so small that only the first line of what is held can be too long for a block."""
    for chunk in chunks:
        if len(chunk) <= max_bytes:
            yield chunk
        else:
            yield from (chunk[begin : begin + max_bytes] for begin in range(0, len(chunk), max_bytes))


def _is_too_long(held: bytes, block_bytes: int) -> bool:
    """Tell whether the line that *held* begins with is, as far as is known, too long for one block."""
    return len(held) > block_bytes and held.find(b"\n", 0, block_bytes + 1) < 0


def _hits_in(block: SearchBlock, find_first: FindFirst) -> Iterator[LineHit]:
    content = block.content
    # Inside a line, the first byte was the last one to be searched before, and is the context of `^` and `\b`.
    position = 0 if block.column == 1 else 1
    cursor = _Cursor(block)
    while (
        position < block.last_end and 0 <= (start := find_first(content, position, block.last_end)) <= block.last_start
    ):
        begin = content.rfind(b"\n", 0, start) + 1
        if begin == len(content):  # an empty match behind the last line
            return
        end = content.find(b"\n", start)
        end = len(content) if end < 0 else end
        column = cursor.column_at(start, begin)
        offset = block.offset + begin if begin else block.line.offset
        if _is_long(block, begin, end):
            yield LineHit(cursor.number, max(column - _CHARS_BEFORE_MATCH, 1), offset)
            position = start + _SHOWN_BYTES_FROM_MATCH
            position = end + 1 if position > end else position
        else:
            yield LineHit(cursor.number, 1, offset)
            position = end + 1


class _Cursor:
    """Counts lines and columns up to places that come in ascending order, looking at each byte once."""

    def __init__(self, block: SearchBlock) -> None:
        self._content = block.content
        self.number = block.line.number
        self._column = block.column
        self._at = 0

    def column_at(self, place: int, line_begin: int) -> int:
        """Return the column of *place*, which is in the line from *line_begin* on; `number` is then that line's."""
        if line_begin > self._at:
            self.number += self._content.count(b"\n", self._at, line_begin)
            self._at, self._column = line_begin, 1
        place = _boundary(self._content, place)
        self._column += _chars(self._content[self._at : place])
        self._at = max(place, self._at)
        return self._column


def _is_long(block: SearchBlock, begin: int, end: int) -> bool:
    if begin == 0 and block.column > 1:
        return True
    size = end - begin
    if size <= MAX_LINE_CHARS or size > MAX_LINE_CHARS * _LONGEST_CHAR_BYTES + 1:
        return size > MAX_LINE_CHARS
    return _chars(block.content[begin:end].removesuffix(b"\r")) > MAX_LINE_CHARS


def _chars(content: bytes) -> int:
    return len(content.decode("utf-8", "replace"))


def _boundary(content: bytes, place: int) -> int:
    """Return *place*, or up to three bytes before it, where a character begins."""
    for candidate in range(place, max(place - _LONGEST_CHAR_BYTES, -1), -1):
        if candidate >= len(content) or not 0x80 <= content[candidate] < 0xC0:  # noqa: PLR2004 - UTF-8's inner bytes
            return candidate
    return place


class Deadline:
    """When to stop looking, since somebody waits."""

    def __init__(self, timeout_s: float | None) -> None:
        """Stop after *timeout_s* seconds from now; never where it is None."""
        self.timeout_s = timeout_s
        self._end = None if timeout_s is None else time.monotonic() + timeout_s

    def is_over(self) -> bool:
        """Tell whether the time is up."""
        return self._end is not None and time.monotonic() > self._end


@dataclass(frozen=True, slots=True)
class Search:
    """What is searched for.

    Attributes:
        pattern: The pattern.
        deadline: When to stop.
    """

    pattern: CompiledPattern
    deadline: Deadline


def search_for(pattern: str, deadline: Deadline, *, literal: bool, ignore_case: bool) -> Search:
    """Prepare a search for *pattern*; see `compile_pattern`, which says what is raised."""
    return Search(compile_pattern(pattern, literal=literal, ignore_case=ignore_case), deadline)


LineRanges = Mapping[str, Sequence[tuple[int, int]]]
"""First and last line of each range to search, by file, in the order of searching."""

MAX_COUNTED_HITS = 10_000
"""They cost 4 s a million. Whoever finds more has asked for too much to read, and can still go on."""


@dataclass(slots=True)
class Found:
    """The hits of a search.

    Attributes:
        files: How many files were to be searched.
        total: How many hits were counted.
        before: How many of these an earlier answer has shown.
        hits: The others, by file, in order; only files with hits.
        is_all: Whether counting came to the end.
        stopped_in: The file in which the time was up; empty if it was not.
    """

    files: int = 0
    total: int = 0
    before: int = 0
    hits: dict[str, list[LineHit]] = field(default_factory=dict[str, list[LineHit]])
    is_all: bool = True
    stopped_in: str = ""


def find(source: ByteSource, ranges: LineRanges, search: Search, is_before: Callable[[str, LineHit], bool]) -> Found:
    """Find the hits in *ranges*, up to the deadline and to 10,000 that no earlier answer has shown.

    Args:
        source: What the files are read from.
        ranges: What is searched.
        search: What is searched for.
        is_before: Tells whether an earlier answer has shown a hit of a file.
    """
    found = Found(files=len(ranges))
    for name in ranges:
        for hit in hits_in_ranges(source, name, ranges[name], search):
            if is_before(name, hit):
                found.total += 1
                found.before += 1
                continue
            if found.total - found.before == MAX_COUNTED_HITS:
                found.is_all = False
                return found
            found.total += 1
            found.hits.setdefault(name, []).append(hit)
        if search.deadline.is_over():
            found.stopped_in, found.is_all = name, False
            return found
    return found


def hits_in_ranges(
    source: ByteSource, name: str, ranges: Sequence[tuple[int, int]], search: Search
) -> Iterator[LineHit]:
    """Yield the hits in some lines of file *name*, in order, up to the deadline."""
    last = max(last for _, last in ranges)
    for hit in hits(source.chunks(name), search.pattern, is_over=search.deadline.is_over):
        if hit.number > last:
            return
        if any(first <= hit.number <= last for first, last in ranges):
            yield hit
