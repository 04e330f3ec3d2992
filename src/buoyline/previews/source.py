r"""Sources: texts that are read in pieces, pages as text, readable lines, and the rows that readers find.

This module opens no files: callers pass functions that read them.

Editors, ``grep`` and Python disagree on line ends (``\r``, U+0085, U+2028 and six more), and all of them are slow on a
line of a megabyte. So files for readers contain only ``\n``, and lines of at most 1,000 characters.
"""

import codecs
import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html import unescape
from typing import Any, Final, NamedTuple, Protocol

from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLTree

BLOCK_CHARS = 1 << 20
BLOCK_BYTES = 1 << 20

_SURROGATE_BYTES = 3
_LONGEST_TAIL_BYTES = 3
_DECODING = "buoyline-shown"


class Source(Protocol):
    """A text that can be read in pieces, any number of times."""

    def blocks(self) -> Iterator[str]:
        r"""Yield the text in pieces of about a megabyte, none of them empty.

        Each piece except the last ends with ``\n`` or within a line of over a megabyte. Joined, they are the text.
        """
        ...

    @property
    def size_bytes(self) -> int:
        """Return the size of the text in UTF-8."""
        ...


class TextSource:
    """A text in memory; its blocks are slices."""

    def __init__(self, text: str) -> None:
        """Wrap *text*."""
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
        """Return the size of the text in UTF-8, with three bytes for a lone surrogate, as it is stored."""
        if self._text.isascii():
            return len(self._text)
        return sum(len(block.encode("utf-8", "surrogatepass")) for block in self.blocks())


class BytesSource:
    """A text from bytes, such as a file of any size; only one block is in memory."""

    def __init__(self, chunks: Callable[[], Iterable[bytes]], size_bytes: int) -> None:
        """Call *chunks* for each pass; its chunks have *size_bytes* bytes in all."""
        self._chunks = chunks
        self._size_bytes = size_bytes

    def blocks(self) -> Iterator[str]:
        """Yield the text; see `Source.blocks`, and `decoded` for bytes that are not UTF-8."""
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
    """Cuts bytes that arrive in pieces of any size into blocks: whole lines, or parts of a line over a megabyte.

    No character is split, so each block can be decoded alone.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self._held: list[bytes] = []
        self._held_bytes = 0

    def take(self, chunk: bytes) -> Iterator[bytes]:
        """Add *chunk* and yield the complete blocks; the caller must fetch all of them before the next call."""
        self._held.append(chunk)
        self._held_bytes += len(chunk)
        # A full block waits for one more byte, which shows whether its last character is complete.
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
        """Return and forget the bytes that are not a complete block yet."""
        held = b"".join(self._held)
        self._held, self._held_bytes = [], 0
        return held


def character_boundary(content: bytes, end: int) -> int:
    """Return the last boundary between characters at or just before *end*."""
    for boundary in range(end, max(end - _LONGEST_TAIL_BYTES, 0) - 1, -1):
        # The two leading bits of a byte within a character are 10 (RFC 3629).
        if boundary >= len(content) or content[boundary] & 0xC0 != 0x80:  # noqa: PLR2004
            return boundary
    return end


def decoded(content: bytes) -> str:
    """Decode bytes from a tool as `read` and `grep` show them.

    Lone surrogates in their three-byte form are restored, as they are stored; other bytes that are not UTF-8 become
    U+FFFD.
    """
    return content.decode("utf-8", _DECODING)


def _shown(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    try:
        end = error.start + _SURROGATE_BYTES
        return error.object[error.start : end].decode("utf-8", "surrogatepass"), end
    except UnicodeDecodeError:
        return "\ufffd", error.end


# Error handlers are registered by name for the whole process, so the name contains the package.
codecs.register_error(_DECODING, _shown)


MAX_LINE_CHARS = 1000

_SEPARATORS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_ANY_END = re.compile("\r\n|[\r\n]")
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_DIRECTION_MARKS = re.compile("[\u061c\u200e\u200f]")
_INVISIBLE_ASCII = bytes(code for code in range(0x80) if _INVISIBLE.match(chr(code)))
_FIRST_IN_JSON = 0x7F
CONTINUED = "\u2026 "
"""Begins each continuation line of a line that was too long."""

_BREAK_WITHIN_CHARS = 80


def is_readable(text: str) -> bool:
    r"""Check whether all readers count the lines of *text* alike and no line is longer than 1,000 characters.

    ``\r\n`` is fine: every reader counts it once.
    """
    # Searching for one character after another is memchr: 1 ms for 10 MB, where a pattern takes 80.
    if any(separator in text for separator in _SEPARATORS):
        return False
    if "\r" in text and text.count("\r") != text.count("\r\n"):
        return False
    # Jumps from line end to line end: 2 ms for 10 MB, where a pattern takes 250.
    start = 0
    while len(text) - start > MAX_LINE_CHARS:
        end = text.rfind("\n", start, start + MAX_LINE_CHARS + 1)
        if end < 0:
            return False
        start = end + 1
    return True


def count_lines(text: str) -> int:
    r"""Count the lines of *text* as ``grep -c ''`` does: the last line may lack its ``\n``, and ``""`` has none."""
    return text.count("\n") + (1 if text and not text.endswith("\n") else 0)


def readable_lines(text: str) -> Iterator[str]:
    r"""Return *text* as lines that every reader counts alike.

    ``\r\n``, ``\r`` and ``\n`` end a line. Other separators, control characters and bidirectional characters become
    escapes. A line over 1,000 characters continues on lines that begin with an ellipsis and a space.

    Returns:
        Lines without line ends, each of at most 1,000 characters; none for an empty text.
    """
    # One check of the whole text instead of one per line: most texts contain nothing to escape. Bytes are removed with
    # a table: 0.6 us per ASCII message, where the pattern takes 4.
    if text.isascii():
        has_invisible = len(text.encode("ascii").translate(None, _INVISIBLE_ASCII)) != len(text)
    else:
        has_invisible = _INVISIBLE.search(text) is not None
    lines = _ANY_END.split(text) if has_invisible else text.split("\n")
    if not lines[-1]:
        lines.pop()
    if has_invisible or (len(text) > MAX_LINE_CHARS and max(map(len, lines)) > MAX_LINE_CHARS):
        return (piece for line in lines for piece in wrapped(escaped(line)))
    return iter(lines)


def visible(line: str) -> str:
    """Escape what `escaped` escapes, and the direction marks U+061C, U+200E and U+200F.

    Use this for display only. Files keep the form of `escaped`: verify renders transcripts again and compares them.
    """
    shown = escaped(line)
    return shown if shown.isascii() else _DIRECTION_MARKS.sub(lambda match: _escape(match[0]), shown)


def escaped(line: str) -> str:
    r"""Write control characters, bidirectional characters and separators as escapes such as ``\x1b``; keep tabs.

    From U+007F on, escapes are those of JSON strings, such as ``\u2028``, so an escaped JSON document keeps its value.
    """
    return _INVISIBLE.sub(lambda match: _escape(match[0]), line)


def wrapped(line: str) -> Iterator[str]:
    """Yield *line* in pieces of at most 1,000 characters, broken after a space if one is near."""
    pieces, rest = full_pieces(line)
    yield from pieces
    yield rest


def full_pieces(line: str) -> tuple[list[str], str]:
    """Return the pieces of *line* that are final, and the last piece, which may still grow.

    To continue, pass the last piece and the text after it as a line.
    """
    pieces: list[str] = []
    start, prefix = 0, ""
    while len(line) - start > (room := MAX_LINE_CHARS - len(prefix)):
        blank = line.rfind(" ", start + room - _BREAK_WITHIN_CHARS, start + room)
        end = start + room if blank < 0 else blank + 1
        pieces.append(prefix + line[start:end])
        start, prefix = end, CONTINUED
    return pieces, prefix + line[start:]


@cache
def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < _FIRST_IN_JSON else f"\\u{code:04x}"


_HEAD_CHARS = 20_000
_PREAMBLE_LINES = 4
_MAX_DEPTH = 2_000
"""The parser takes quadratic time for nested elements: 2,000 take 40 ms, 20,000 take 4 s."""

_DOCUMENT: Final = re.compile(r"<(?:!doctype html|html|head|body)[\s>]", re.IGNORECASE)
_NESTED: Final = re.compile(
    r"<(/?)(?!area|base|br|col|embed|hr|img|input|li|link|meta|p\b|source|td|tr|wbr)[a-z]", re.IGNORECASE
)
_HEADING: Final = re.compile(r"<h([1-6])>(.*?)</h\1>", re.DOTALL)
_TAG: Final = re.compile(r"</?[a-z][a-z0-9]*>")


def is_page(text: str) -> bool:
    """Check whether *text* begins as an HTML page, apart from a few lines before it; a program may quote a page.

    One that is nested too deeply for the parser is none: it is shown by its lines.
    """
    found = _DOCUMENT.search(text[:_HEAD_CHARS])
    before = text[: found.start()].split("\n") if found is not None else []
    begins = 0 < len(before) <= _PREAMBLE_LINES and not before[-1].strip("\ufeff \t")
    return begins and _depth(text) <= _MAX_DEPTH


def page_text(html: str) -> str:
    """Return the title of a page and its main text, a block a line; headings begin with ``#``."""
    tree = HTMLTree.parse(html.encode("utf-8", "replace").decode())
    found = extract_plain_text(tree, main_content=True, preserve_formatting="minimal_html")
    found = found or extract_plain_text(tree, preserve_formatting="minimal_html")
    blocks = _HEADING.sub(lambda heading: f"\n{'#' * int(heading[1])} {_in_one_line(heading[2])}\n", found)
    lines = (_in_one_line(block) for block in re.split(r"\n\n|<br>", blocks))
    return "\n".join(filter(None, (_in_one_line(tree.title or ""), *lines))) or "(This page has no text.)"


def _in_one_line(text: str) -> str:
    return " ".join(unescape(_TAG.sub(" ", text)).split())


def _depth(html: str) -> int:
    """Return how deep elements are nested at most, counting end tags as those of any element."""
    depth = deepest = 0
    for found in _NESTED.finditer(html):
        depth = max(depth + (-1 if found[1] else 1), 0)
        deepest = max(deepest, depth)
    return deepest


MOST_LINE_CHARS = 1_000
"""A preview shows at most this much of a line."""

FAR_CHARS = 125
"""A place from this character on cannot be seen from the beginning of the line."""

ERROR = 80.0
"""From this weight on, a row reports an error: other rows are cut shorter to make room for it."""

MOST_FACT_CHARS = 300
_ITEM_CHARS = 90


class Row(NamedTuple):
    """A line that is more important than its neighbors.

    Attributes:
        number: 1-based.
        weight: From 0 to 100; the layout takes the heaviest first.
        text: The line from character *column* on, 0-based; at most 1,000 characters.
        rest: The number of characters after *text*.
        note: Why the line is odd, if it does not say so itself.
        lines: The number of lines of this kind, this one included; *others* are the numbers of some of them.
        word: For an error, characters that find every line of its kind.
        form: For an error, its words without values: rows of one form can be named by number.
    """

    number: int
    weight: float
    text: str = ""
    column: int = 0
    rest: int = 0
    note: str = ""
    lines: int = 1
    others: tuple[int, ...] = ()
    word: str = ""
    form: bytes = b""


@dataclass(frozen=True, slots=True)
class Kind:
    """What the reader of a kind of text found.

    Attributes:
        facts: Rows about the whole text, the most important first. None begins with a digit, as numbered lines do.
        rows: Lines worth showing, without their text.
        parts: Rows about parts of the text, such as records or hits, in its order.
        quoted: The numbers of lines that quote another text: words of errors in them are no errors of this one.
        is_free: Whether nearly every line is unlike all others, as in a program or a page.
        is_record: Whether the lines are data, in which only the reader finds what is odd.
        is_whole: Whether the facts say all there is to see, as of binary data.
    """

    facts: Sequence[str] = ()
    rows: Sequence[Row] = ()
    parts: Sequence[str] = ()
    quoted: frozenset[int] = frozenset()
    is_free: bool = False
    is_record: bool = False
    is_whole: bool = False


def row_of(number: int, weight: float, line: str, column: int = 0, **about: Any) -> Row:
    """Return a row with the part of *line* that shows the character *column*."""
    first = max(column - 30, 0) if column >= FAR_CHARS else 0
    text = line[first : first + MOST_LINE_CHARS]
    return Row(number, weight, text, first, len(line) - first - len(text), **about)


def fact(text: str) -> str:
    """Return *text* as a row: one line of at most 300 characters without control characters."""
    return shortened(" ".join(visible(text[: 2 * MOST_FACT_CHARS]).split()), MOST_FACT_CHARS)


def listed(label: str, items: Iterable[str], most: int = 3, chars: int = 170) -> list[str]:
    """List *items*, the most important first, in at most *most* facts of *chars*; the last one counts the missing ones.

    Returns:
        ``["Files: a :1, b :20", "Files, more: c :33; 12 more"]``; nothing without items.
    """
    waiting = [middle_cut(item) for item in items]
    found = list[str]()
    while waiting and len(found) < most:
        row = f"{label}, more: " if found else f"{label}: "
        taken = 1
        while taken < len(waiting) and len(row) + sum(len(item) + 2 for item in waiting[: taken + 1]) <= chars:
            taken += 1
        found.append(row + ", ".join(waiting[:taken]))
        del waiting[:taken]
    if waiting:
        found[-1] += f"; {len(waiting):,} more"
    return found


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number and its noun, such as ``"1,200 files"``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def shortened(text: str, chars: int) -> str:
    """Return *text*, with an ellipsis as its end if it is longer than *chars*."""
    return text if len(text) <= chars else f"{text[: chars - 1]}\u2026"


def middle_cut(text: str, chars: int = _ITEM_CHARS) -> str:
    """Return *text*, cut in the middle if it is longer than *chars*: the end of a path says most."""
    return text if len(text) <= chars else f"{text[: chars // 3]}\u2026{text[len(text) - 2 * chars // 3 + 1 :]}"


def common_folder(paths: Sequence[str]) -> str:
    """Return the common folder of *paths* with a final slash; empty if it is very short or too long to print."""
    if len(paths) < 2:  # noqa: PLR2004 - a single path is shown whole
        return ""
    first, last = min(paths), max(paths)
    end = next((place for place, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    folder = first[: first.rfind("/", 0, end) + 1]
    return folder if 4 <= len(folder) <= _ITEM_CHARS else ""  # noqa: PLR2004 - "src/" costs no more than a word


@cache
def linear(pattern: str) -> Any:
    r"""Compile *pattern* for UTF-8 bytes with RE2, which takes linear time for each text.

    ``^`` and ``$`` match at line ends, and no match spans lines. The first use imports RE2: who only appends does not
    pay for it.
    """
    re2: Any = importlib.import_module("re2")
    options = re2.Options()
    options.never_nl = True
    options.log_errors = False
    return re2.compile(b"(?m)" + pattern.encode(), options)
