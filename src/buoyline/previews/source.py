"""Texts that are read in pieces, so that what is shown of a large one costs no memory for all of it.

Pure: where a text stands in a file, whoever may open files reads it.
"""

import codecs
import re
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


# Lines that every reader counts alike.
#
# Editors, ``grep`` and Python disagree on what ends a line (``\r``, U+0085, U+2028 and six more), and none of
# them reads a line of a megabyte well. Files that exist to be read therefore hold ``\n`` only, at most 1,000
# characters a line.


MAX_LINE_CHARS = 1000

_SEPARATORS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_ANY_END = re.compile("\r\n|[\r\n]")
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_DIRECTION_MARKS = re.compile("[\u061c\u200e\u200f]")
_INVISIBLE_ASCII = bytes(code for code in range(0x80) if _INVISIBLE.match(chr(code)))
_FIRST_IN_JSON = 0x7F
CONTINUED = "\u2026 "
"""Begins each further line of a line that was too long."""

_BREAK_WITHIN_CHARS = 80


def is_readable(text: str) -> bool:
    r"""Tell whether all readers count the lines of *text* alike and none is longer than 1,000 characters.

    ``\r\n`` is fine: every reader counts it once.
    """
    return not _has_stray_separator(text) and not _has_long_line(text)


def count_lines(text: str) -> int:
    r"""Count the lines of *text* as ``grep -c ''`` does: a last line need not end in ``\n``; none in ``""``."""
    return text.count("\n") + (1 if text and not text.endswith("\n") else 0)


def readable_lines(text: str) -> Iterator[str]:
    r"""Return *text* as lines that every reader counts alike.

    ``\r\n``, ``\r`` and ``\n`` end a line; other separators, control and bidirectional characters are shown
    as escapes; a line over 1,000 characters goes on in lines that begin with an ellipsis and a blank.

    Returns:
        Lines without their ends, each of at most 1,000 characters; none for empty text.
    """
    # One look at the whole text instead of one at each line: most texts have nothing to be shown otherwise.
    has_invisible = _has_invisible(text)
    lines = _ANY_END.split(text) if has_invisible else text.split("\n")
    if not lines[-1]:
        lines.pop()
    if has_invisible or (len(text) > MAX_LINE_CHARS and max(map(len, lines)) > MAX_LINE_CHARS):
        return (piece for line in lines for piece in wrapped(escaped(line)))
    return iter(lines)


def visible(line: str) -> str:
    """Show what `escaped` escapes, and the direction marks U+061C, U+200E and U+200F, as escapes.

    This is for what is shown. Files have the form of `escaped`: verify renders transcripts again and compares them.
    """
    shown = escaped(line)
    return shown if shown.isascii() else _DIRECTION_MARKS.sub(lambda match: _escape(match[0]), shown)


def escaped(line: str) -> str:
    r"""Write control and bidirectional characters and separators as escapes such as ``\x1b``; keep tabs.

    Those from U+007F on, which a JSON string may hold, are written as in JSON, e.g. ``\u2028``: an escaped
    document is still the same document.
    """
    return _INVISIBLE.sub(lambda match: _escape(match[0]), line)


def wrapped(line: str) -> Iterator[str]:
    """Yield *line* in pieces of at most 1,000 characters, broken after a blank where one is near."""
    pieces, rest = full_pieces(line)
    yield from pieces
    yield rest


def full_pieces(line: str) -> tuple[list[str], str]:
    """Return the pieces of *line* that stay as they are however it goes on, and the piece that may still grow.

    That one, with what follows it, may be given again as a line of its own.
    """
    pieces: list[str] = []
    start, prefix = 0, ""
    while len(line) - start > (room := MAX_LINE_CHARS - len(prefix)):
        blank = line.rfind(" ", start + room - _BREAK_WITHIN_CHARS, start + room)
        end = start + room if blank < 0 else blank + 1
        pieces.append(prefix + line[start:end])
        start, prefix = end, CONTINUED
    return pieces, prefix + line[start:]


def _has_invisible(text: str) -> bool:
    # Bytes are taken out by a table: 0.6 us a message of ASCII, where the pattern takes 4.
    if text.isascii():
        return len(text.encode("ascii").translate(None, _INVISIBLE_ASCII)) != len(text)
    return _INVISIBLE.search(text) is not None


def _has_stray_separator(text: str) -> bool:
    # Searching for one character after the other is memchr: 1 ms for 10 MB, where one pattern takes 80.
    if any(separator in text for separator in _SEPARATORS):
        return True
    return "\r" in text and text.count("\r") != text.count("\r\n")


def _has_long_line(text: str) -> bool:
    # From the last line end that is near enough to the next: 2 ms for 10 MB, where a pattern takes 250.
    start = 0
    while len(text) - start > MAX_LINE_CHARS:
        end = text.rfind("\n", start, start + MAX_LINE_CHARS + 1)
        if end < 0:
            return True
        start = end + 1
    return False


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < _FIRST_IN_JSON else f"\\u{code:04x}"
