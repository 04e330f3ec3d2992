"""Rows of the JSON records that tools returned: a name, and the values that say something."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, TypeGuard

from buoyline.compression.identifiers import readable
from buoyline.messages.jsonl import is_object

MAX_TEXT_CHARS: Final = 60_000
MAX_ROWS: Final = 60
MAX_ROW_CHARS: Final = 260
MAX_VALUE_CHARS: Final = 60
"""A longer value is a text and no fact."""

MAX_LIST: Final = 6
"""A list of at most so many short values is part of its record's row; the records of a longer one have their own."""

MAX_DEPTH: Final = 6


class RecordRow(NamedTuple):
    """A record on one line.

    Attributes:
        text: Its name, and its keys with their values.
        values: Those values in the record's order.
    """

    text: str
    values: tuple[str, ...]


def rows_of(text: str) -> Iterator[RecordRow]:
    """Yield a row for each record in a JSON text, outer ones first, at most `MAX_ROWS`; nothing if it is no JSON.

    >>> [row.text for row in rows_of('{"id": "AB12CD", "flights": [{"number": 228, "cabin": "economy"}]}')]
    ['id AB12CD, flights 228 economy']
    """
    stripped = text.strip()
    if not stripped.startswith(("{", "[")) or len(stripped) > MAX_TEXT_CHARS:
        return
    try:
        value: object = json.loads(stripped)
    except (ValueError, RecursionError):
        return
    yield from islice(_rows(value, "", 0), MAX_ROWS)


def _rows(value: object, name: str, depth: int) -> Iterator[RecordRow]:
    if depth > MAX_DEPTH:
        return
    if _is_list(value):
        for inner in value:
            yield from _rows(inner, name, depth + 1)
    elif is_object(value):
        if (row := _row(value, name)) is not None:
            yield row
        for key, inner in value.items():
            is_record = is_object(inner) and len(inner) > 1
            if is_record or (_is_list(inner) and not _is_short_list(inner)):
                yield from _rows(inner, key, depth + 1)


def _row(record: Mapping[str, Any], name: str) -> RecordRow | None:
    """Return the row of a record without the values that are too long; None if hardly anything is left."""
    said: list[str] = []
    values: list[str] = []
    size = len(name)
    for key, value in record.items():
        found = list(_values(value))
        text = f"{key} {' / '.join(found)}"
        if found and len(text) <= MAX_ROW_CHARS - size:
            said.append(text)
            values += found
            size += len(text) + 2
    if not said or (len(said) == 1 and not name):
        return None
    return RecordRow(f"{name}: {', '.join(said)}" if name else ", ".join(said), tuple(values))


def _values(value: object) -> Iterator[str]:
    """Yield a value, or those of a short list, in a few words each; nothing if it is too long."""
    if is_object(value) and len(value) == 1:
        yield from _values(next(iter(value.values())))
    elif _is_list(value) and _is_short_list(value):
        yield from map(_short, value)
    elif shown := _short(value):
        yield shown


def _is_short_list(values: Sequence[object]) -> bool:
    return 0 < len(values) <= MAX_LIST and all(_short(value) for value in values)


def _short(value: object) -> str:
    """Return a value, or the first values of a record, if they are short; else an empty text."""
    if is_object(value):
        inner = [str(one) for one in value.values() if isinstance(one, str) or _is_number(one)]
        shown = " ".join(inner[:4])
    else:
        shown = readable(str(value)) if isinstance(value, str) or _is_number(value) else ""
    return shown if len(shown) <= MAX_VALUE_CHARS else ""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)
