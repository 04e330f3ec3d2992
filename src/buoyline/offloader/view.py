"""Readable views of tool results with long lines or unusual line ends.

Pure. A view is derived from its result and adds nothing. A view of a text that is too large for memory is made in
blocks.
Source: docs/format.md, "tool_result-<id>.view.txt".
"""

import json
import re
from collections.abc import Iterable, Iterator

from buoyline.previews.pages import is_page, page_text
from buoyline.previews.source import MAX_LINE_CHARS, Source, escaped, full_pieces, is_readable, readable_lines, wrapped

# Indenting takes 12 MB/s in pure Python; a larger document is wrapped instead, at 200 MB/s.
MAX_JSON_CHARS = 16_000_000
_MAX_INDENT = 40
_INDENTS = ["  " * depth for depth in (*range(_MAX_INDENT + 1), 0)]
_OPENING, _CLOSING = frozenset("{["), frozenset("}]")

# A value with its key and the delimiter after it: one match per line. An empty object or array counts as a value.
_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_STEP = re.compile(
    rf"\s*(?:({_STRING})\s*:\s*)?({_STRING}|[^\s{{}}\[\],:\"]+|{{\s*}}|\[\s*\])?\s*([{{}}\[\],]|\Z)", re.DOTALL
)


def needs_view(text: str, *, is_beginning: bool = True) -> bool:
    """Check whether *text*, the beginning of a result or a later part of it, needs a view."""
    return not is_readable(text) or (is_beginning and is_page(text))


def view_of(text: str) -> str | None:
    r"""Return *text* with short lines, or None if its lines are short already.

    JSON is indented: only white space differs; numbers, keys and their order do not change. Of an HTML page the view is
    its text. Other texts are wrapped.

    Returns:
        Lines of at most 1,000 characters, each with ``\n``.
    """
    if not needs_view(text):
        return None
    if len(text) <= MAX_JSON_CHARS and is_page(text):
        lines = readable_lines(page_text(text))
    else:
        lines = indented(text) if _is_json(text) else readable_lines(text)
    return _joined(lines)


def indented(document: str) -> Iterator[str]:
    """Yield the lines of a JSON document, one value per line; a string that is too long is wrapped.

    The indentation stops at a depth of 40, so deep nesting takes linear space.
    """
    has_invisible = escaped(document) != document
    for line in _indented(document):
        shown = escaped(line) if has_invisible else line
        if len(shown) <= MAX_LINE_CHARS:
            yield shown
        else:
            yield from wrapped(shown)


def _is_json(text: str) -> bool:
    if len(text) > MAX_JSON_CHARS or text.lstrip()[:1] not in {"{", "["}:
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _indented(document: str) -> Iterator[str]:
    line, depth = "", 0
    for step in _STEP.finditer(document):
        key, scalar, sign = step.groups("")
        if scalar[:1] in _OPENING:
            scalar = scalar[0] + scalar[-1]
        value = f"{key}: {scalar}" if key else scalar
        if sign == ",":
            yield f"{line}{value},"
        elif sign in _OPENING:
            yield f"{line}{value}{sign}"
            depth += 1
        else:
            if value or line.strip():
                yield f"{line}{value}"
            depth -= 1
        line = _INDENTS[min(depth, _MAX_INDENT)] + (sign if sign in _CLOSING else "")


_MAX_CHARACTER_BYTES = 4

_SLICE_CHARS = 1 << 17
"""Wrapping holds five copies of a line, whole and in pieces: for a megabyte that took 9 MB at once."""


def view_blocks(source: Source) -> Iterator[str]:
    """Yield the view of a text that needs one, in pieces that together equal `view_of` of the text.

    Only JSON and pages that are small enough are held in memory.
    """
    small = _small_document(source)
    view = None if small is None else view_of(small)
    return wrapped_blocks(source.blocks()) if view is None else iter((view,))


def wrapped_blocks(blocks: Iterable[str]) -> Iterator[str]:
    """Yield the readable lines of a text in *blocks*, with line ends; a line is never held as a whole."""
    rest = ""
    for block in blocks:
        for start in range(0, len(block), _SLICE_CHARS):
            text = rest + block[start : start + _SLICE_CHARS]
            waiting = "\r" if text.endswith("\r") else ""  # it may be half of a line end
            text = text.removesuffix("\r")
            end = max(text.rfind("\n"), text.rfind("\r")) + 1
            pieces, last = full_pieces(escaped(text[end:]))
            yield _joined([*readable_lines(text[:end]), *pieces])
            rest = last + waiting
    yield _joined(readable_lines(rest))


def _joined(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _small_document(source: Source) -> str | None:
    """Return the text if it is small enough and may be JSON or a page; else None, usually without reading it."""
    if source.size_bytes > MAX_JSON_CHARS * _MAX_CHARACTER_BYTES:
        return None
    begin = next(source.blocks(), "")
    if begin.lstrip()[:1] not in {"{", "["} and not is_page(begin):
        return None
    text = "".join(source.blocks())
    return text if len(text) <= MAX_JSON_CHARS else None
