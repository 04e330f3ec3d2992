"""Where the hits of a pattern are in a file: by RE2 alone, or with ripgrep to say in which lines to look.

Both give the same hits, since RE2 decides on each. ripgrep is asked where that pays: with 100 MB and few hits.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from buoyline.lookups import ripgrep
from buoyline.lookups.hits import FIRST_LINE, Hit, LineStart, hits
from buoyline.lookups.patterns import Finder, finder
from buoyline.lookups.weakening import weakened
from buoyline.workspace._files import Handle, Tree

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
        executable = ripgrep.program() if handle.size() >= worth_bytes and search.weak_pattern else None
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
    with ripgrep.Ripgrep(executable, handle, first, search.weak_pattern or "", search.deadline.is_over) as guide:
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
