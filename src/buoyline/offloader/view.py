"""Readable views of tool results that cannot be read or searched line by line.

Pure. A view is derived and says nothing that the result does not say.
Source: docs/format.md, "tool_result-<id>.view.txt".
"""

import json
import re
from collections.abc import Iterator

from buoyline.offloader.lines import is_readable, readable_lines, visible, wrapped

# 4 MB/s in pure Python; a larger document is wrapped instead, at 200 MB/s.
_MAX_JSON_CHARS = 16_000_000
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_MAX_INDENT = 40


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
    for line in _indented(document):
        yield from wrapped(visible(line))


def _is_json(text: str) -> bool:
    if len(text) > _MAX_JSON_CHARS or text.lstrip()[:1] not in {"{", "["}:
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _indented(document: str) -> Iterator[str]:
    line: list[str] = []
    depth = 0
    tokens = _TOKEN.findall(document)
    for position, token in enumerate(tokens):
        following = tokens[position + 1] if position + 1 < len(tokens) else ""
        if token in {"{", "["}:
            depth += 1
            line.append(token)
            is_break = following not in {"}", "]"}
        elif token in {"}", "]"}:
            depth -= 1
            line.append(token)
            is_break = following != ","
        else:
            line.append(": " if token == ":" else token)
            is_break = token == "," or following in {"}", "]"}
        if is_break:
            yield "".join(line)
            line = ["  " * min(depth - (following in {"}", "]"}), _MAX_INDENT)]
    if "".join(line).strip():
        yield "".join(line)
