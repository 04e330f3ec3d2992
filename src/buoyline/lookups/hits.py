"""Hits of a pattern in a file of any size, out of a stream of bytes.

The file is searched in blocks of whole lines, not line by line: a call per line costs 4 s on 100 MB. A line
longer than a block is searched in windows that overlap.
"""

import os
import re
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Self

from buoyline.lookups.patterns import Finder, Place, finder, weakened
from buoyline.previews.source import MAX_LINE_CHARS
from buoyline.workspace._files import Handle, Tree

OVERLAP_BYTES = 4096
"""In a line over `BLOCK_BYTES`, a match up to this long is found wherever it lies; a longer one may be missed."""

BLOCK_BYTES = (1 << 20) + OVERLAP_BYTES  # so that chunks of a megabyte need not be cut, see `_pieces`

# RE2 is not to be interrupted: the slowest patterns then take 0.7 s for a block, after which the time is looked at.
_BLOCK_STEPS = 10**8

_CHARS_BEFORE_MATCH = 100
_SHOWN_BYTES_FROM_MATCH = MAX_LINE_CHARS - _CHARS_BEFORE_MATCH
_LONGEST_CHAR_BYTES = 4


class Hit(NamedTuple):
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


class Block(NamedTuple):
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
    find: Finder,
    *,
    first: LineStart = FIRST_LINE,
    is_over: Callable[[], bool] = _never,
    block_bytes: int | None = None,
    overlap_bytes: int = OVERLAP_BYTES,
) -> Iterator[Hit]:
    """Yield the hits of a pattern in a file, in order.

    A line of up to 1,000 characters is one hit, however often it matches. A longer one has a hit for about each
    1,000 characters that hold a match, so that none of its matches is out of reach. What is found in a line
    depends on that line alone, neither on the chunks nor on where the search began.

    Args:
        chunks: The file from the beginning of a line on, none of them empty.
        find: Finds the pattern.
        first: That line.
        is_over: Asked before each block and behind each hit, tells whether to stop there.
        block_bytes: How much of one line is searched at once; None: as much as the pattern is simple.
        overlap_bytes: How much of it is searched again with what follows; less than *block_bytes*.
    """
    newest = Hit(0, 0)
    if block_bytes is None:
        block_bytes = max(2 * overlap_bytes, min(BLOCK_BYTES, _BLOCK_STEPS // find.program_size))
    for block in blocks(chunks, first, block_bytes, overlap_bytes):
        if is_over():
            return
        for hit in _hits_in(block, find.place):
            if hit > newest:  # two windows of a line may both show the first match of the second
                newest = hit
                yield hit
            if is_over():
                return


def blocks(chunks: Iterable[bytes], line: LineStart, block_bytes: int, overlap_bytes: int) -> Iterator[Block]:
    """Yield a file in blocks of whole lines; a line over *block_bytes* in windows that overlap.

    The windows of a line are counted from its beginning, so they are the same wherever the chunks end.
    """
    column, offset, held = 1, line.offset, b""
    for piece in _pieces(chunks, block_bytes - overlap_bytes):
        held += piece
        while len(held) > block_bytes + overlap_bytes and _is_too_long(held, block_bytes):
            cut = _boundary(held, block_bytes)
            window = held[: block_bytes + overlap_bytes]
            yield Block(line, column, offset, window, cut, len(window) - 1)
            column, offset, held = column + _chars(held[:cut]), offset + cut, held[cut:]
        cut = held.rfind(b"\n") + 1
        if cut and not _is_too_long(held, block_bytes):
            yield Block(line, column, offset, held, cut - 1, cut)
            offset += cut
            line = LineStart(line.number + held.count(b"\n", 0, cut), offset)
            column, held = 1, held[cut:]
    if _is_too_long(held, block_bytes):
        cut = _boundary(held, block_bytes)
        yield Block(line, column, offset, held, cut, len(held))
        column, offset, held = column + _chars(held[:cut]), offset + cut, held[cut:]
    if held:
        yield Block(line, column, offset, held, len(held), len(held))


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


def _hits_in(block: Block, find: Place) -> Iterator[Hit]:
    content = block.content
    # Inside a line, the first byte was the last one to be searched before, and is the context of `^` and `\b`.
    position = 0 if block.column == 1 else 1
    cursor = _Cursor(block)
    while position < block.last_end and 0 <= (start := find(content, position, block.last_end)) <= block.last_start:
        begin = content.rfind(b"\n", 0, start) + 1
        if begin == len(content):  # an empty match behind the last line
            return
        end = content.find(b"\n", start)
        end = len(content) if end < 0 else end
        column = cursor.column_at(start, begin)
        offset = block.offset + begin if begin else block.line.offset
        if _is_long(block, begin, end):
            yield Hit(cursor.number, max(column - _CHARS_BEFORE_MATCH, 1), offset)
            position = start + _SHOWN_BYTES_FROM_MATCH
            position = end + 1 if position > end else position
        else:
            yield Hit(cursor.number, 1, offset)
            position = end + 1


class _Cursor:
    """Counts lines and columns up to places that come in ascending order, looking at each byte once."""

    def __init__(self, block: Block) -> None:
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


def _is_long(block: Block, begin: int, end: int) -> bool:
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


# ripgrep as a child process that says in which lines to look.
#
# It is given an open file as its standard input, so it opens nothing: no link, no file that was swapped meanwhile,
# and
# neither its configuration nor ignore files have a say.


_OPTIONS = (
    "--no-config",
    "--text",
    "--encoding=none",
    "--line-number",
    "--byte-offset",
    "--no-heading",
    "--no-filename",
    "--color=never",
    "--max-columns=1",  # the place is enough: a line may have 100 MB
)
_PLACE = re.compile(rb"([0-9]{1,18}):([0-9]{1,18}):[^\n]*\n")
_MAX_SILENT_LOOKS = 300
_LOOK_MS = 100
_READ_BYTES = 1 << 16
_DONE = (0, 1)  # with matches, and without


def program() -> str | None:
    """Return the path of ripgrep; None where it is not installed."""
    return shutil.which("rg")


class Ripgrep:
    """One search by ripgrep, from the beginning of a line on.

    At the end of the ``with`` block the child is gone, whatever it was doing.

    Attributes:
        is_complete: Whether it came to the end of the file: False before, if it failed, if the time was up, and if it
            kept silent for thirty seconds.
    """

    def __init__(
        self, executable: str, handle: Handle, first: LineStart, pattern: str, is_over: Callable[[], bool]
    ) -> None:
        """Prepare to search what is behind *first* in the file of *handle* for *pattern*, in ripgrep's syntax.

        While the child is silent, *is_over* is asked ten times a second whether to stop.
        """
        self._command = [executable, *_OPTIONS, f"--regexp={pattern}", "--", "-"]
        self._handle = handle
        self._first = first
        self._is_over = is_over
        self.is_complete = False

    def __enter__(self) -> Self:
        """Start the child; without one there are no lines."""
        self._child = _started(self._command, self._handle, self._first.offset)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the child."""
        if self._child is not None:
            self._child.kill()
            self._child.__exit__(kind, error, trace)

    def lines(self) -> Iterator[LineStart]:
        """Yield the lines that match, in order."""
        held = b""
        while piece := self._output():
            held += piece
            end = 0
            for place in _PLACE.finditer(held):
                end = place.end()
                yield LineStart(self._first.number + int(place[1]) - 1, self._first.offset + int(place[2]))
            held = held[end:]

    def _output(self) -> bytes:
        """Return what the child has written since, nothing at its end."""
        if self._child is None or self._child.stdout is None:
            return b""
        poll = select.poll()
        poll.register(self._child.stdout, select.POLLIN)
        for _ in range(_MAX_SILENT_LOOKS):
            if self._is_over():
                return b""
            if poll.poll(_LOOK_MS):
                break
        else:
            return b""
        piece = os.read(self._child.stdout.fileno(), _READ_BYTES)
        if not piece:
            self.is_complete = self._child.wait() in _DONE
        return piece


def _started(command: list[str], handle: Handle, offset: int) -> "subprocess.Popen[bytes] | None":
    try:
        return subprocess.Popen(  # noqa: S603 - no shell, and a pattern cannot be taken for an option
            command, stdin=handle.descriptor_at(offset), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError:  # no process or descriptor left, or what is called rg cannot be run
        return None


# Where the hits of a pattern are in a file: by RE2 alone, or with ripgrep to say in which lines to look.
#
# Both give the same hits, since RE2 decides on each. ripgrep is asked where that pays: with 100 MB and few hits.


# Starting ripgrep takes 3 ms, in which RE2 is through 5 MB. Where hits are many, enough are found before it starts.
WORTH_BYTES = 8 << 20
ALONE_BYTES = 1 << 19
_CHUNK_BYTES = 1 << 20
_LINES_BYTES = 1 << 14
_MAX_IDLE_LINES = 1_000


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
        find: Finds it, and decides.
        weak_pattern: What ripgrep is to look for; None where it is not to be asked.
        deadline: When to stop.
    """

    find: Finder
    weak_pattern: str | None
    deadline: Deadline


def search_for(pattern: str, deadline: Deadline, *, literal: bool, ignore_case: bool) -> Search:
    """Prepare a search for *pattern*; see `finder`, which says what is raised."""
    find = finder(pattern, literal=literal, ignore_case=ignore_case)
    return Search(find, weakened(pattern, literal=literal, ignore_case=ignore_case), deadline)


def hits_in_file(
    tree: Tree, name: str, search: Search, *, worth_bytes: int = WORTH_BYTES, alone_bytes: int = ALONE_BYTES
) -> Iterator[Hit]:
    """Yield the hits in file *name*, in order, up to the deadline.

    Args:
        tree: Where the file is.
        name: The file.
        search: What is searched for.
        worth_bytes: Ripgrep is asked about files of this size and more.
        alone_bytes: About how much of them is searched before that.
    """
    with tree.open(name) as handle:
        executable = program() if handle.size() >= worth_bytes and search.weak_pattern else None
        head = b"" if executable is None else handle.read(0, alone_bytes)
        end = head.rfind(b"\n") + 1
        if executable is None or not end:
            yield from _alone(handle, FIRST_LINE, search)
            return
        yield from hits([head[:end]], search.find, is_over=search.deadline.is_over)
        yield from _guided(handle, LineStart(head.count(b"\n") + 1, end), search, executable)


def _alone(handle: Handle, first: LineStart, search: Search) -> Iterator[Hit]:
    return hits(chunks_from(handle, first.offset), search.find, first=first, is_over=search.deadline.is_over)


def _guided(handle: Handle, first: LineStart, search: Search, executable: str) -> Iterator[Hit]:
    """Yield the hits from *first* on, looking where ripgrep finds something."""
    newest, at = Hit(0, 0), first
    with Ripgrep(executable, handle, first, search.weak_pattern or "", search.deadline.is_over) as guide:
        idle_lines = 0
        searched = first.offset
        for line in guide.lines():
            at = line
            if line.offset < searched:
                continue
            searched, chunks = _lines_at(handle, line.offset)
            before = newest
            for newest in hits(chunks, search.find, first=line, is_over=search.deadline.is_over):
                yield newest
            idle_lines += newest == before
            if idle_lines > _MAX_IDLE_LINES or search.deadline.is_over():
                break
        if guide.is_complete:
            return
    yield from (hit for hit in _alone(handle, at, search) if hit > newest)


def chunks_from(handle: Handle, offset: int, first_bytes: int = _CHUNK_BYTES) -> Iterator[bytes]:
    """Yield the content of a file from *offset* on, in pieces that grow from *first_bytes* to a megabyte."""
    size = first_bytes
    while chunk := handle.read(offset, size):
        offset += len(chunk)
        size = min(2 * size, _CHUNK_BYTES)
        yield chunk


def _lines_at(handle: Handle, offset: int) -> tuple[int, Iterable[bytes]]:
    """Return some lines from *offset* on, and where they end; a long one counts as ended."""
    content = handle.read(offset, _LINES_BYTES)
    end = content.rfind(b"\n") + 1
    return (offset + end, [content[:end]]) if end else (offset + 1, _line_chunks(handle, offset))


def _line_chunks(handle: Handle, offset: int) -> Iterator[bytes]:
    """Yield the one line that begins at *offset*."""
    for chunk in chunks_from(handle, offset):
        end = chunk.find(b"\n") + 1
        yield chunk[:end] if end else chunk
        if end:
            return


def lines_before(handle: Handle, line: LineStart, count: int) -> LineStart:
    """Return where the line begins that is *count* lines before *line*, or the first one of the file."""
    if count == 0:
        return line
    if count >= line.number - 1:
        return FIRST_LINE
    ends_left, position = count + 1, line.offset
    while position > 0:
        begin = max(position - _LINES_BYTES, 0)
        piece = handle.read(begin, position - begin)
        at = len(piece)
        while (at := piece.rfind(b"\n", 0, at)) >= 0:
            ends_left -= 1
            if not ends_left:
                return LineStart(line.number - count, begin + at + 1)
        position = begin
    return FIRST_LINE
