"""Hits of a pattern in files of any size.

A file is searched in blocks of whole lines, since a call per line costs 4 s on 100 MB. A line longer than a block is
searched in windows that overlap.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from buoyline.lookups.patterns import FindFirst, compile_pattern
from buoyline.lookups.sources import ByteSource, Unread, noting_unread, pieces, require_some_read
from buoyline.previews.source import MAX_LINE_CHARS

OVERLAP_BYTES = 4096
"""In a line over `BLOCK_BYTES`, a match of up to this size is always found; a longer one may be missed."""

BLOCK_BYTES = (1 << 18) + OVERLAP_BYTES
"""Before each block the deadline is checked: RE2 cannot be interrupted."""

_CHARS_BEFORE_MATCH = 100
_SHOWN_BYTES_FROM_MATCH = MAX_LINE_CHARS - _CHARS_BEFORE_MATCH
_LONGEST_CHAR_BYTES = 4


class LineHit(NamedTuple):
    """A line that matches, or a place in a long line.

    If the line is shown from *column* on, the match is visible: 1 in a line of up to 1,000 characters. The line begins
    at byte *offset* of the file.
    """

    number: int
    column: int
    offset: int = 0


class LineStart(NamedTuple):
    """A line's number, 1-based, and the offset of its first byte in the file."""

    number: int = 1
    offset: int = 0


FIRST_LINE = LineStart()


class SearchBlock(NamedTuple):
    r"""Bytes that are searched at once: whole lines, or a part of one line and whole lines after it.

    They begin at byte *offset* of the file, and *column* of *line*. A match may begin at *last_start*; the next block
    finds those that begin later. It may end at *last_end*. If the line goes on, this is before the last byte, so that
    ``$`` and ``\b`` see that it does.
    """

    line: LineStart
    column: int
    offset: int
    content: bytes
    last_start: int
    last_end: int


def hits(
    chunks: Iterable[bytes],
    find_first: FindFirst,
    *,
    is_over: Callable[[], bool] = lambda: False,
) -> Iterator[LineHit]:
    """Yield the hits of a pattern in a file, in order.

    A line of up to 1,000 characters is one hit, however often it matches. A longer line has a hit for about each 1,000
    characters with a match, so that every match can be reached. The hits of a line depend on that line alone, not on
    the *chunks*, none of which may be empty. *is_over*, called before each block and after each hit, returns whether to
    stop.
    """
    newest, searched = LineHit(0, 0), 0
    for block in blocks(chunks):
        if is_over():
            return
        for hit, shown in _hits_in(block, find_first, searched):
            searched = shown
            if hit > newest:  # a line that is not long has one hit, and may still have several windows
                newest = hit
                yield hit
            if is_over():
                return


def blocks(chunks: Iterable[bytes]) -> Iterator[SearchBlock]:
    """Yield a file in blocks of whole lines; a line over `BLOCK_BYTES` in windows that overlap.

    The windows of a line are counted from its beginning, so they do not depend on the chunks.
    """
    line, column, offset, held = FIRST_LINE, 1, 0, b""
    # In pieces so small that only the first line held can be too long for a block.
    piece_bytes = BLOCK_BYTES - OVERLAP_BYTES
    for piece in (chunk[at : at + piece_bytes] for chunk in chunks for at in range(0, len(chunk), piece_bytes)):
        held += piece
        while len(held) > BLOCK_BYTES + OVERLAP_BYTES and _is_too_long(held):
            cut = _boundary(held, BLOCK_BYTES)
            window = held[: BLOCK_BYTES + OVERLAP_BYTES]
            yield SearchBlock(line, column, offset, window, cut, len(window) - 1)
            column, offset, held = column + _chars(held[:cut]), offset + cut, held[cut:]
        cut = held.rfind(b"\n") + 1
        if cut and not _is_too_long(held):
            yield SearchBlock(line, column, offset, held, cut - 1, cut)
            offset += cut
            line = LineStart(line.number + held.count(b"\n", 0, cut), offset)
            column, held = 1, held[cut:]
    if _is_too_long(held):
        cut = _boundary(held, BLOCK_BYTES)
        yield SearchBlock(line, column, offset, held, cut, len(held))
        column, offset, held = column + _chars(held[:cut]), offset + cut, held[cut:]
    if held:
        yield SearchBlock(line, column, offset, held, len(held), len(held))


def _is_too_long(held: bytes) -> bool:
    """Return whether the line at the beginning of *held* is, as far as is known, too long for one block."""
    return len(held) > BLOCK_BYTES and held.find(b"\n", 0, BLOCK_BYTES + 1) < 0


def _hits_in(block: SearchBlock, find_first: FindFirst, searched: int) -> Iterator[tuple[LineHit, int]]:
    """Yield each hit with the offset in the file up to which it is shown; up to *searched*, earlier hits are."""
    content = block.content
    position = 0
    if block.column > 1:
        # Inside a line, the first byte has been searched already. It is the context of `^` and `\b`.
        position = max(searched - block.offset, 1)
        end = content.find(b"\n")
        position = end + 1 if 0 <= end < position else position
    # Lines and characters are counted from one hit to the next, so that each byte is looked at once.
    number, column, counted = block.line.number, block.column, 0
    while (
        position < block.last_end and 0 <= (start := find_first(content, position, block.last_end)) <= block.last_start
    ):
        begin = content.rfind(b"\n", 0, start) + 1
        if begin == len(content):  # an empty match after the last line
            return
        end = content.find(b"\n", start)
        end = len(content) if end < 0 else end
        if begin > counted:
            number += content.count(b"\n", counted, begin)
            column, counted = 1, begin
        place = _boundary(content, start)
        column += _chars(content[counted:place])
        counted = max(place, counted)
        offset = block.offset + begin if begin else block.line.offset
        if _is_long(block, begin, end):
            position = start + _SHOWN_BYTES_FROM_MATCH
            if end < len(content):  # the next line is not shown
                position = min(position, end + 1)
            yield LineHit(number, max(column - _CHARS_BEFORE_MATCH, 1), offset), block.offset + position
            position = end + 1 if position > end else position
        else:
            position = end + 1
            yield LineHit(number, 1, offset), block.offset + position


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
    """When a search stops."""

    def __init__(self, timeout_s: float | None) -> None:
        """Stop *timeout_s* seconds from now; never if it is None."""
        self._end = None if timeout_s is None else time.monotonic() + timeout_s

    def is_over(self) -> bool:
        """Return whether the time is up."""
        return self._end is not None and time.monotonic() > self._end


@dataclass(frozen=True, slots=True)
class Search:
    """A pattern and a deadline."""

    find_first: FindFirst
    deadline: Deadline


def search_for(pattern: str, deadline: Deadline, *, literal: bool, ignore_case: bool) -> Search:
    """Prepare a search for *pattern*. Raises as `compile_pattern`."""
    return Search(compile_pattern(pattern, literal=literal, ignore_case=ignore_case), deadline)


LineRanges = Mapping[str, Sequence[tuple[int, int]]]
"""First and last line of each range to search, by file, in search order."""

MAX_COUNTED_HITS = 10_000
"""A million hits cost 4 s. Nobody reads more than this, and the answer says how to go on."""


@dataclass(slots=True)
class Found:
    """The hits of a search in *files* files.

    Of the *total* that were counted, an earlier answer has shown those *before*; *hits* has the others, in order, by
    file. Unless *is_all*, the search ended before the end: in the file *stopped_in* if the time was up.
    """

    files: int = 0
    total: int = 0
    before: int = 0
    hits: dict[str, list[LineHit]] = field(default_factory=dict[str, list[LineHit]])
    is_all: bool = True
    stopped_in: str = ""


def find(
    source: ByteSource,
    ranges: LineRanges,
    search: Search,
    is_before: Callable[[str, LineHit], bool],
    unread: Unread,
    *,
    last: bool = False,
) -> Found:
    """Find the hits in *ranges*, up to the deadline and up to 10,000 new ones; with *last* from the end of each file.

    *is_before* returns whether an earlier answer has shown a hit. *unread* gets the files that cannot be read.

    Raises:
        StorageError: No file can be read.
    """
    found = Found(files=len(ranges))
    hits_in_file = last_hits_in_ranges if last else hits_in_ranges
    for name in ranges:
        with noting_unread(name, unread):
            for hit in hits_in_file(source, name, ranges[name], search):
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
    require_some_read(ranges, unread)
    return found


def hits_in_ranges(
    source: ByteSource, name: str, ranges: Sequence[tuple[int, int]], search: Search
) -> Iterator[LineHit]:
    """Yield the hits in some lines of file *name*, in order, up to the deadline."""
    last = max(last for _, last in ranges)
    for hit in hits(source.chunks(name), search.find_first, is_over=search.deadline.is_over):
        if hit.number > last:
            return
        if any(first <= hit.number <= last for first, last in ranges):
            yield hit


def last_hits_in_ranges(
    source: ByteSource, name: str, ranges: Sequence[tuple[int, int]], search: Search
) -> Iterator[LineHit]:
    """Yield the hits of `hits_in_ranges` from the last one on; the file is searched from its end."""
    first, last = min(first for first, _ in ranges), max(last for _, last in ranges)
    starts = [FIRST_LINE]  # and the first line that begins in each further chunk
    number, offset = 1, 0
    for chunk in source.chunks(name):
        begin = chunk.find(b"\n") + 1
        if offset and begin:
            starts.append(LineStart(number + 1, offset + begin))
        number += chunk.count(b"\n")
        offset += len(chunk)
    ends = [*starts[1:], LineStart(sys.maxsize, sys.maxsize)]
    for start, end in reversed(list(zip(starts, ends, strict=True))):
        if search.deadline.is_over() or end.number <= first:
            return
        if start.number > last:
            continue
        content = pieces(source, name, start.offset, end.offset)
        numbered = [
            LineHit(hit.number + start.number - 1, hit.column, hit.offset + start.offset)
            for hit in hits(content, search.find_first, is_over=search.deadline.is_over)
        ]
        yield from (hit for hit in reversed(numbered) if any(first <= hit.number <= last for first, last in ranges))
