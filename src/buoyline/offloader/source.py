"""Texts that are read in pieces, so that what is shown of a large one costs no memory for all of it.

Pure: where a text stands in a file, whoever may open files reads it.
"""

import codecs
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

BLOCK_CHARS = 1 << 20
BLOCK_BYTES = 1 << 20

_SURROGATE_BYTES = 3
_LONGEST_TAIL_BYTES = 3
_DECODING = "buoyline-shown"


class Source(Protocol):
    """A text that may be read in pieces, as often as asked."""

    def blocks(self) -> Iterator[str]:
        r"""Yield the text in pieces of about a megabyte, none of them empty.

        Each but the last ends in ``\n``, or within a line of over a megabyte. Joined they are the text.
        """
        ...

    @property
    def size_bytes(self) -> int:
        """Return the size of the text in UTF-8."""
        ...


class TextSource:
    """A text that is in memory; what it yields are slices of it."""

    def __init__(self, text: str) -> None:
        """Read *text*."""
        self._text = text

    def blocks(self) -> Iterator[str]:
        """Yield the text; see `Source.blocks`."""
        start = 0
        while start < len(self._text):
            end = start + BLOCK_CHARS
            if end < len(self._text):
                line_end = self._text.rfind("\n", start, end)
                end = end if line_end < 0 else line_end + 1
            yield self._text[start:end]
            start = end

    @property
    def size_bytes(self) -> int:
        """Return the size of the text in UTF-8, a lone surrogate counted as the three bytes that we write for it."""
        if self._text.isascii():
            return len(self._text)
        return sum(len(block.encode("utf-8", "surrogatepass")) for block in self.blocks())


class BytesSource:
    """A text that somebody reads in bytes, such as a file of any size; no more than a block of it is in memory."""

    def __init__(self, chunks: Callable[[], Iterable[bytes]], size_bytes: int) -> None:
        """Read what *chunks* gives, which is called anew for each reading and gives *size_bytes* bytes in all."""
        self._chunks = chunks
        self._size_bytes = size_bytes

    def blocks(self) -> Iterator[str]:
        """Yield the text; see `Source.blocks`, and `decoded` for what is not UTF-8."""
        cutter = BlockCutter()
        for chunk in self._chunks():
            yield from map(decoded, cutter.take(chunk))
        if rest := cutter.rest():
            yield decoded(rest)

    @property
    def size_bytes(self) -> int:
        """Return the size in bytes."""
        return self._size_bytes


class BlockCutter:
    """Makes blocks of bytes that come in pieces of any size: whole lines, or parts of a line over a megabyte.

    No character is parted, so that blocks may be decoded one by one.
    """

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._held: list[bytes] = []
        self._held_bytes = 0

    def take(self, chunk: bytes) -> Iterator[bytes]:
        """Take *chunk*; yield the blocks that are complete, which must all be fetched before the next one."""
        self._held.append(chunk)
        self._held_bytes += len(chunk)
        # A full block waits for one byte more: only that tells whether its last character ends there.
        if self._held_bytes <= BLOCK_BYTES:
            return
        held = self.rest()
        start = 0
        while len(held) - start > BLOCK_BYTES:
            end = held.rfind(b"\n", start, start + BLOCK_BYTES) + 1 or character_boundary(held, start + BLOCK_BYTES)
            yield held[start:end]
            start = end
        self._held, self._held_bytes = [held[start:]], len(held) - start

    def rest(self) -> bytes:
        """Return what is not a block yet, and forget it."""
        held = b"".join(self._held)
        self._held, self._held_bytes = [], 0
        return held


def character_boundary(content: bytes, end: int) -> int:
    """Return where to cut *content* at *end* or just before it without parting a character."""
    for boundary in range(end, max(end - _LONGEST_TAIL_BYTES, 0) - 1, -1):
        if boundary >= len(content) or not _is_continuation(content[boundary]):
            return boundary
    return end


def decoded(content: bytes) -> str:
    """Return bytes that a tool gave as the text that is shown of them.

    Lone surrogates in their three-byte form, as they are stored, come back; what else is not UTF-8 becomes U+FFFD, as
    `read` and `grep` show it.
    """
    return content.decode("utf-8", _DECODING)


def _is_continuation(byte: int) -> bool:
    return byte & 0xC0 == 0x80  # noqa: PLR2004 - the two leading bits, as RFC 3629 has them


def _shown(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    try:
        end = error.start + _SURROGATE_BYTES
        return error.object[error.start : end].decode("utf-8", "surrogatepass"), end
    except UnicodeDecodeError:
        return "\ufffd", error.end


# Python knows handlers by names that hold for the whole process, so ours names the package.
codecs.register_error(_DECODING, _shown)
