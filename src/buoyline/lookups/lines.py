r"""Lines of a file of any size: by number, from a column on, and around hits.

Lines end at ``\n`` alone, so their numbers equal those of ``grep -n`` and ``sed``. A line may be as long as the file;
it is never held whole.
"""

import codecs
import itertools
import sys
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from buoyline.lookups.answer import Line
from buoyline.lookups.hits import FIRST_LINE, LineHit, LineStart
from buoyline.lookups.sources import ByteSource, pieces
from buoyline.previews.source import MAX_LINE_CHARS

_BACKWARD_BYTES = 1 << 14
# Hits are often near each other, so little is read around one unless its lines are long.
_AROUND_BYTES = 1 << 13
_NEAR_BYTES = 1 << 16
# So many hits are read at once from the end of a file.
_HITS_AT_ONCE = 64


class Fragment(NamedTuple):
    """The part of a line that is in one chunk of a file, without the line's end."""

    number: int
    content: bytes


def count_lines(chunks: Iterable[bytes]) -> int:
    r"""Count lines as ``grep -c ''`` does; the last line need not end in ``\n``."""
    lines, last = 0, b"\n"
    for chunk in chunks:
        lines += chunk.count(b"\n")
        last = chunk[-1:]
    return lines + (last != b"\n")


def fragments(chunks: Iterable[bytes], ranges: Iterable[tuple[int, int]], *, first: int = 1) -> Iterator[Fragment]:
    """Yield the fragments of some lines of a file, in order. A line that goes on in the next chunk has several.

    The *chunks*, none of which may be empty, begin with line *first*. *ranges* have the first and last line of each,
    1-based and inclusive, in ascending order and without overlap. Only the line ends are counted in a chunk without a
    wanted line.
    """
    wanted = deque(ranges)
    number = first
    for chunk in chunks:
        last = number + chunk.count(b"\n")
        while wanted and wanted[0][1] < number:
            wanted.popleft()
        if not wanted:
            return
        if wanted[0][0] <= last:
            yield from _wanted(chunk.split(b"\n"), number, wanted)
        number = last


def _wanted(parts: Sequence[bytes], number: int, ranges: Iterable[tuple[int, int]]) -> Iterator[Fragment]:
    """Yield the lines in *ranges* out of the lines *parts*, the first of which has *number*."""
    last = number + len(parts) - 1
    for first, end in ranges:
        if first > last:
            return
        for wanted in range(max(first, number), min(end, last) + 1):
            content = parts[wanted - number]
            # Nothing follows the last line end: the line begins in the next chunk, or there is none.
            if content or wanted < last:
                yield Fragment(wanted, content)


def windows(line: Iterable[Fragment], columns: Sequence[int], size: int) -> tuple[list[str], int]:
    r"""Return up to *size* characters from each of some *columns* of a line on, and the characters of the whole line.

    Columns are 1-based; a text from behind the end of the line is empty. *line* has all fragments of the line. Invalid
    UTF-8 becomes U+FFFD. The ``\r`` of a line that ends in ``\r\n`` is left out.
    """
    texts = [""] * len(columns)
    seen = 0
    for text in _decoded(line):
        for place, column in enumerate(columns):
            begin, end = column - 1 - seen, column - 1 - seen + size
            if begin < len(text) and end > 0:
                texts[place] += text[max(begin, 0) : end]
        seen += len(text)
    return texts, seen


def _decoded(line: Iterable[Fragment]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    held = b""
    for fragment in line:
        content = held + fragment.content
        held = b"\r" if content.endswith(b"\r") else b""
        yield decoder.decode(content.removesuffix(b"\r"))
    yield decoder.decode(b"", final=True)


def lines_of(source: ByteSource, name: str, ranges: Iterable[tuple[int, int]]) -> Iterator[Line]:
    """Yield the lines of file *name* in *ranges*, as `fragments` takes them, each cut after 1,000 characters."""
    chosen = fragments(source.chunks(name), ranges)
    for number, line in itertools.groupby(chosen, key=lambda fragment: fragment.number):
        yield from _parts(name, number, line, [1], is_hit=False)


def _parts(name: str, number: int, line: Iterable[Fragment], columns: Sequence[int], *, is_hit: bool) -> Iterator[Line]:
    """Yield 1,000 characters of a line from each of *columns* on."""
    texts, chars = windows(line, columns, MAX_LINE_CHARS)
    for column, text in zip(columns, texts, strict=True):
        rest = max(chars - (column - 1) - len(text), 0)
        yield Line(name, number, column, text, rest, is_abridged=rest > 0, is_hit=is_hit)


def lines_from(
    source: ByteSource, name: str, ranges: Sequence[tuple[int, int]], column: int, max_chars: int
) -> Iterator[Line]:
    """Yield the lines in *ranges*, as `fragments` takes them, each cut after 1,000 characters.

    A single line, or the first one if *column* is not 1, comes in parts of 1,000 characters up to *max_chars*.
    """
    if not ranges:
        return
    (first, end), *others = ranges
    if column == 1 and (first < end or others):
        yield from lines_of(source, name, ranges)
        return
    (content,), chars = windows(fragments(source.chunks(name), [(first, first)]), (column,), max_chars)
    for begin in range(0, max(len(content), 1), MAX_LINE_CHARS):
        part = content[begin : begin + MAX_LINE_CHARS]
        yield Line(name, first, column + begin, part, max(chars - (column - 1) - begin - len(part), 0))
    if column - 1 + len(content) >= chars:
        yield from lines_of(source, name, [(first + 1, end), *others])


def lines_around(
    source: ByteSource, name: str, hits: Sequence[LineHit], context: int, *, first: int = 1, last: int = sys.maxsize
) -> Iterator[Line]:
    """Yield the lines with *hits*, and up to *context* lines before and after each, within *first* to *last*.

    A line over 1,000 characters is shown around each of its hits.
    """
    columns = {
        number: [hit.column for hit in in_line]
        for number, in_line in itertools.groupby(hits, key=lambda hit: hit.number)
    }
    offsets = {hit.number: hit.offset for hit in hits}
    for run in _runs(columns, offsets, context, first, last):
        begin, first_hit, _ = run[0]
        start = lines_before(source, name, LineStart(first_hit, offsets[first_hit]), first_hit - begin)
        ranges = [(begin, end) for begin, _, end in run]
        chosen = fragments(pieces(source, name, start.offset, first_bytes=_AROUND_BYTES), ranges, first=start.number)
        for number, line in itertools.groupby(chosen, key=lambda fragment: fragment.number):
            yield from _parts(name, number, line, columns.get(number, [1]), is_hit=number in columns)


def _runs(
    numbers: Iterable[int], offsets: Mapping[int, int], context: int, first: int, last: int
) -> Iterator[list[tuple[int, int, int]]]:
    """Merge the context of hits in lines *numbers* to groups: first line, first hit and last line.

    Groups that are near each other come together: reading on costs less than opening the file again.
    """
    run: list[tuple[int, int, int]] = []
    for number in numbers:
        begin, end = max(number - context, first), min(number + context, last)
        if run and begin <= run[-1][2] + 1:
            run[-1] = run[-1][0], run[-1][1], end
            continue
        if run and offsets[number] - offsets[run[-1][1]] > _NEAR_BYTES:
            yield run
            run = []
        run.append((begin, number, end))
    if run:
        yield run


def blocks_from_end(source: ByteSource, name: str, hits: Sequence[LineHit], context: int) -> Iterator[Sequence[Line]]:
    """Yield the lines of `lines_around` in blocks, the last block first; *hits* come the last one first, too.

    A block has one line that matches, and its context; its lines are in order. Lines between two such lines belong to
    the later one. If a long line has several parts, the last one comes first.
    """
    end, begin = 0, sys.maxsize
    while end < len(hits):
        start, end = end, min(end + _HITS_AT_ONCE, len(hits))
        while end < len(hits) and hits[end].number == hits[end - 1].number:
            end += 1
        above = hits[end].number + 1 if end < len(hits) else 1
        around = lines_around(source, name, hits[start:end][::-1], context, first=above, last=begin - 1)
        for block in _blocks_from_end(list(around), context):
            yield block
            begin = block[0].number


def _blocks_from_end(lines: Sequence[Line], context: int) -> Iterator[Sequence[Line]]:
    numbers = [line.number for line in lines]
    matching = list(dict.fromkeys(line.number for line in lines if line.is_hit))
    stop = len(lines)
    for before, number in reversed(list(itertools.pairwise([0, *matching]))):
        start = bisect_left(numbers, max(number - context, before + 1))
        block = lines[start : bisect_right(numbers, number + context, hi=stop)]
        yield sorted(block, key=lambda line: (line.number, -line.column))
        stop = start


def lines_before(source: ByteSource, name: str, line: LineStart, count: int) -> LineStart:
    """Return the start of the line that is *count* lines before *line*, or of the first line."""
    if count == 0:
        return line
    if count >= line.number - 1:
        return FIRST_LINE
    ends_left, position = count + 1, line.offset
    while position > 0:
        begin = max(position - _BACKWARD_BYTES, 0)
        piece = source.read(name, begin, position - begin)
        at = len(piece)
        while (at := piece.rfind(b"\n", 0, at)) >= 0:
            ends_left -= 1
            if not ends_left:
                return LineStart(line.number - count, begin + at + 1)
        position = begin
    return FIRST_LINE
