"""Readable views of tool results that cannot be read or searched line by line.

Pure. A view is derived and says nothing that the result does not say.
Source: docs/format.md, "tool_result-<id>.view.txt".
"""

import json
import re
from collections.abc import Iterator

from buoyline.offloader.lines import MAX_LINE_CHARS, escaped, is_readable, readable_lines, wrapped

# 12 MB/s in pure Python; a larger document is wrapped instead, at 200 MB/s.
MAX_JSON_CHARS = 16_000_000
_MAX_INDENT = 40
_INDENTS = ["  " * depth for depth in (*range(_MAX_INDENT + 1), 0)]
_OPENING, _CLOSING = frozenset("{["), frozenset("}]")

# A value with its key, and the sign behind it: one step a line. An object or array that holds nothing is a value.
_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_STEP = re.compile(
    rf"\s*(?:({_STRING})\s*:\s*)?({_STRING}|[^\s{{}}\[\],:\"]+|{{\s*}}|\[\s*\])?\s*([{{}}\[\],]|\Z)", re.DOTALL
)


def view_of(text: str) -> str | None:
    r"""Return *text* with short lines, or None when it has them already.

    JSON is indented lexically: only white space differs, numbers, keys and their order stay as they are.
    Anything else is wrapped.

    Returns:
        Lines of at most 1,000 characters that end in ``\n``.
    """
    if is_readable(text):
        return None
    lines = indented(text) if _is_json(text) else readable_lines(text)
    return "".join(f"{line}\n" for line in lines)


def indented(document: str) -> Iterator[str]:
    """Yield the lines of a JSON document, one value a line, wrapped where a string alone is too long.

    The indentation stops growing at a depth of 40, so that deep nesting costs linear space.
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
