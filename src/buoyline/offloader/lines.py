r"""Lines that every reader counts alike.

Editors, ``grep`` and Python disagree on what ends a line (``\r``, U+0085, U+2028 and six more), and none of
them reads a line of a megabyte well. Files that exist to be read therefore hold ``\n`` only, at most 1,000
characters a line.
"""

import re
from collections.abc import Iterator

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
