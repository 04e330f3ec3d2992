r"""Texts as blocks of whole lines, and lines by number.

Lines end at ``\n`` alone, so their numbers are those of ``grep -n`` and ``sed``. Transcripts, results and views have no
line over 1,000 characters; of any other file the lines are those that a view of it would have.
"""

from collections.abc import Iterable, Iterator

from buoyline.previews.source import MAX_LINE_CHARS, BlockCutter, decoded, readable_lines, visible

Ranges = tuple[tuple[int, int], ...]
"""First and last line of each range, 1-based and inclusive, in order and without overlap."""


def whole_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield blocks of whole lines. A line over a megabyte, which no file of ours has, becomes several."""
    cutter = BlockCutter()
    for chunk in chunks:
        yield from map(_ended, cutter.take(chunk))
    if rest := cutter.rest():
        yield _ended(rest)


def readable_blocks(content: bytes) -> Iterator[bytes]:
    """Yield *content* as lines of at most 1,000 characters."""
    lines = "".join(f"{line}\n" for line in readable_lines(decoded(content)))
    if lines:
        yield lines.encode("utf-8", "replace")


def _ended(block: bytes) -> bytes:
    block = block.replace(b"\r\n", b"\n") if b"\r\n" in block else block
    return block if block.endswith(b"\n") else block + b"\n"


def count_lines(blocks: Iterable[bytes]) -> int:
    """Return how many lines *blocks* have."""
    return sum(block.count(b"\n") for block in blocks)


def numbered(blocks: Iterable[bytes], ranges: Ranges) -> Iterator[tuple[int, str]]:
    """Yield number and content of the lines in *ranges*, in one pass that ends with the last of them."""
    wanted, number = list(ranges), 1
    for block in blocks:
        following = number + block.count(b"\n")
        while wanted and wanted[0][1] < number:
            del wanted[0]
        if not wanted:
            return
        if wanted[0][0] < following:
            lines = block.split(b"\n")
            for first, last in wanted:
                for at in range(max(first, number), min(last + 1, following)):
                    yield at, decoded(lines[at - number])
        number = following


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return *ranges* in order and without overlap."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return tuple(found)


def shown(line: str) -> str:
    """Return a line as an answer shows it: at most 1,000 characters, with control characters as escapes."""
    return visible(line if len(line) <= MAX_LINE_CHARS else f"{line[:MAX_LINE_CHARS]}…")
