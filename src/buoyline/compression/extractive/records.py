"""The records in a JSON answer, a line each."""

import json
import re
from collections.abc import Iterator

from buoyline.compression.text import CUT, readable
from buoyline.messages.jsonl import is_array, is_object

_MOST_CHARS = 260
_MOST_VALUE_CHARS = 70
_MOST_INNER = 6
_MOST_INNER_CHARS = 160
_MOST_DEPTH = 5
_MOST_ROWS = 20
_OPAQUE = re.compile(r"https?://\S+|[0-9a-f]{32,}|[\w-]{16,}={1,2}")


def rows_of(text: str) -> Iterator[str]:
    """Yield the objects of a JSON text as keys with their short values; small inner records are part of the row."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return
    yield from _rows(value, "", 0)


def _rows(value: object, name: str, depth: int) -> Iterator[str]:
    if depth > _MOST_DEPTH:
        return
    if is_array(value):
        for entry in value[:_MOST_ROWS]:
            yield from _rows(entry, name, depth + 1)
    elif is_object(value):
        said, inner = list[str](), list[tuple[str, object]]()
        for key, found in value.items():
            shown = _shown(found)
            if shown:
                said.append(f"{key} {shown}")
            elif is_array(found) or is_object(found):
                inner.append((key, found))
        if len(said) > 1:
            row = ", ".join([f"{name}: {said[0]}" if name else said[0], *said[1:]])
            yield row if len(row) <= _MOST_CHARS else f"{row[:_MOST_CHARS].rpartition(', ')[0]} {CUT}"
        for key, found in inner:
            yield from _rows(found, key, depth + 1)


def _shown(value: object) -> str:
    """Return a value, or a small inner record, as text; empty if it is too long or only programs read it."""
    if is_array(value):
        values = (_shown(one) if is_object(one) else _short(one) for one in value)
        shown = "; ".join(filter(None, values)) if len(value) <= _MOST_INNER else ""
    elif is_object(value):
        is_flat = not any(is_array(one) or is_object(one) for one in value.values())
        shown = " ".join(filter(None, map(_short, value.values()))) if is_flat else ""
    else:
        return _short(value)
    return shown if len(shown) < _MOST_INNER_CHARS else ""


def _short(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return ""
    shown = readable(str(value)[: 4 * _MOST_VALUE_CHARS])
    return shown if len(shown) <= _MOST_VALUE_CHARS and not _OPAQUE.fullmatch(shown) else ""
