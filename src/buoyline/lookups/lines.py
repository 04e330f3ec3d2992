r"""Lines of a file of any size, out of a stream of bytes.

Lines end at ``\n`` alone, so numbers equal those of ``grep -n`` and ``sed``. A line may be as long as the file:
it is never held whole, only looked through.
"""

import codecs
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple


class Fragment(NamedTuple):
    """What one chunk of a file holds of one line.

    Attributes:
        number: Of the line, 1-based.
        content: Without the line's end.
    """

    number: int
    content: bytes


class Windows(NamedTuple):
    """Parts of a line.

    Attributes:
        texts: One for each column asked for.
        chars: How many characters the whole line has.
    """

    texts: list[str]
    chars: int


def count_lines(chunks: Iterable[bytes]) -> int:
    r"""Count lines as ``grep -c ''`` does: a last line need not end in ``\n``."""
    lines, last = 0, b"\n"
    for chunk in chunks:
        lines += chunk.count(b"\n")
        last = chunk[-1:]
    return lines + (last != b"\n")


def fragments(chunks: Iterable[bytes], ranges: Iterable[tuple[int, int]], *, first: int = 1) -> Iterator[Fragment]:
    """Yield some lines of a file.

    Chunks without a wanted line are only counted, at the speed of memory.

    Args:
        chunks: The file from the beginning of a line on, none of them empty.
        ranges: First and last line of each range, 1-based and inclusive, in ascending order, apart from each
            other.
        first: The number of that line.

    Yields:
        The fragments of these lines in order: one for a line within a chunk, more for one that is cut by the
        end of a chunk.
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


def windows(line: Iterable[Fragment], columns: Sequence[int], size: int) -> Windows:
    r"""Cut windows of *size* characters out of one line.

    Invalid UTF-8 is replaced by U+FFFD; the ``\r`` of a line that ends in ``\r\n`` is left out.

    Args:
        line: All its fragments.
        columns: Where the windows begin, 1-based; a window behind the end of the line is empty.
        size: Characters of a window at most.
    """
    texts = [""] * len(columns)
    seen = 0
    for text in _decoded(line):
        for place, column in enumerate(columns):
            begin, end = column - 1 - seen, column - 1 - seen + size
            if begin < len(text) and end > 0:
                texts[place] += text[max(begin, 0) : end]
        seen += len(text)
    return Windows(texts, seen)


def _wanted(parts: Sequence[bytes], number: int, ranges: Iterable[tuple[int, int]]) -> Iterator[Fragment]:
    """Yield those of the lines *parts*, of which *number* is the first, that are in *ranges*."""
    last = number + len(parts) - 1
    for first, end in ranges:
        if first > last:
            return
        for wanted in range(max(first, number), min(end, last) + 1):
            content = parts[wanted - number]
            # Nothing behind the last line end: the line begins in the next chunk, or there is none.
            if content or wanted < last:
                yield Fragment(wanted, content)


def _decoded(line: Iterable[Fragment]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    held = b""
    for fragment in line:
        content = held + fragment.content
        held = b"\r" if content.endswith(b"\r") else b""
        yield decoder.decode(content.removesuffix(b"\r"))
    yield decoder.decode(b"", final=True)
