"""Rows of the JSON records that tools returned: a name, and the values that say something."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, TypeGuard

from buoyline.compression.extractive.calls import json_in
from buoyline.compression.extractive.lines import ResultText
from buoyline.compression.identifiers import readable
from buoyline.messages.jsonl import is_object

MAX_TEXT_CHARS: Final = 60_000
MAX_ROWS: Final = 60
MAX_ROW_CHARS: Final = 260
MAX_VALUE_CHARS: Final = 70
"""A longer value is a text and no fact."""

MIN_CHARS: Final = 15
"""A shorter sentence of a long text says nothing."""

MAX_LIST: Final = 6
"""A list of at most so many short values is part of its record's row; the records of a longer one have their own."""

MAX_DEPTH: Final = 6


MAX_ALIKE: Final = 3
"""So many records of one form are shown if none of their values was spoken of."""

MAX_SPOKEN: Final = 12
"""The same for records with values that were."""

MAX_SENTENCE_CHARS: Final = 140
"""Of the longest text of a record, its first sentence: the body of a comment, the title of a page."""

_OPAQUE = re.compile(r"https?://\S+|[0-9a-f]{32,}|[A-Za-z0-9+/_-]{16,}={1,2}|\w{2,8}_k?[A-Za-z0-9-]{14,}", re.ASCII)
"""Addresses and keys that one program made for another: who needs one looks it up."""

_ID = re.compile(r"(?:^|_)(?:id|key|number)$|Id$")
_SHOWN_ADDRESS = re.compile(r"https?://\S{1,100}")
_TITLE = re.compile(r"\w \w|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
"""In a text for people, which makes the record's address a source."""

_ADDRESS_KEYS: Final = frozenset({"url", "link", "href", "source"})

_SENTENCE_END = re.compile(r"(?<=[.!?])\s|(?<=[\u3002\uff01\uff1f])|\n")


class RecordRow(NamedTuple):
    """A record on one line: its name, and its keys with their values.

    Attributes:
        values: In the record's order.
        form: Its name and its keys: records of one list have the same.
        key: Its ids; empty without any.
    """

    text: str
    values: tuple[str, ...]
    form: str = ""
    key: str = ""


class RowPlace(NamedTuple):
    """A row and where it is from."""

    row: RecordRow
    reading: ResultText
    position: int


def without_older(places: Iterable[RowPlace]) -> list[RowPlace]:
    """Return the places in order, of each record the newest: what an older result says of it may be stale."""
    newest = {(place.row.form, place.row.key or place.row.text): place for place in places}
    texts = {place.row.text: place for place in newest.values()}
    return [place for place in newest.values() if texts[place.row.text] is place]


def rows_worth_a_line(rows: Sequence[RowPlace], spoken: frozenset[str]) -> list[RowPlace]:
    """Return the records worth a line of several of one form, the newest ones first.

    These are at most `MAX_SPOKEN` with a value of their own that was *spoken* of by the user or the agent; else a few.
    """
    newest = {place.row.text: place for place in rows}
    found = list(reversed(newest.values()))
    if len(found) <= MAX_ALIKE:
        return found
    held = Counter(value for place in found for value in set(place.row.values))
    own = [
        place
        for place in found
        if any(held[value] <= len(found) // MAX_ALIKE and value in spoken for value in place.row.values)
    ]
    return own[:MAX_SPOKEN] or found[-MAX_ALIKE:]


def rows_of(text: str) -> Iterator[RecordRow]:
    """Yield a row for each record in a JSON text, outer ones first, at most `MAX_ROWS`; nothing if it is no JSON.

    >>> [row.text for row in rows_of('{"id": "AB12CD", "flights": [{"number": 228, "cabin": "economy"}]}')]
    ['id AB12CD, flights 228 economy']
    """
    stripped = text.strip()
    if not stripped.startswith(("{", "[")) or len(stripped) > MAX_TEXT_CHARS:
        return
    yield from islice(_rows(json_in(stripped), "", 0), MAX_ROWS)


def _rows(value: object, name: str, depth: int) -> Iterator[RecordRow]:
    if depth > MAX_DEPTH:
        return
    if _is_list(value):
        for inner in value:
            yield from _rows(inner, name, depth + 1)
    elif is_object(value) and (row := _map_row(value, name)) is not None:
        yield row
    elif is_object(value):
        if (row := _row(value, name)) is not None:
            yield row
        for key, inner in value.items():
            is_record = is_object(inner) and len(inner) > 1 and (row is None or not _shown(inner)[0])
            if is_record or (_is_list(inner) and not _is_short_list(inner)):
                yield from _rows(inner, key, depth + 1)


def _map_row(records: Mapping[str, Any], name: str) -> RecordRow | None:
    """Return one row for a few small records by their ids, such as means of payment; None for anything else."""
    if not 1 < len(records) <= MAX_LIST or not all(is_object(one) and len(one) > 1 for one in records.values()):
        return None
    said: list[str] = []
    values: list[str] = []
    for key, one in records.items():
        shown, found = _shown({inner: value for inner, value in one.items() if value != key})
        if not found:
            return None
        said.append(f"{key} {shown}")
        values += [key, *found]
    text = "; ".join(said)
    return RecordRow(f"{name}: {text}" if name else text, tuple(values), f"{name}: {' '.join(records)}")


def _row(record: Mapping[str, Any], name: str) -> RecordRow | None:
    """Return the row of a record with its short values, and the first sentence of its longest text.

    None if hardly anything is left.
    """
    said: list[str] = []
    values: list[str] = []
    size = len(name)
    has_title = any(
        isinstance(value, str) and len(value) <= MAX_VALUE_CHARS and _TITLE.search(value) for value in record.values()
    )
    longest = max((value for value in record.values() if isinstance(value, str)), key=len, default="")
    for key, value in record.items():
        shown, found = _shown(value)
        if isinstance(value, str) and has_title and _SHOWN_ADDRESS.fullmatch(value) and key.lower() in _ADDRESS_KEYS:
            shown, found = value, [value]
        if value is longest and not found:
            shown = _first_sentence(longest)
            found = [shown] if shown else []
        text = f"{key} {shown}"
        if found and len(text) <= MAX_ROW_CHARS - size:
            said.append(text)
            values += found
            size += len(text) + 2
    if not said or (len(said) == 1 and not name) or all(value == "0" for value in values):
        return None
    text = ", ".join(said)
    key = " ".join(_short(value) for key, value in record.items() if _ID.search(key))
    return RecordRow(f"{name}: {text}" if name else text, tuple(values), f"{name}: {' '.join(record)}", key)


def _shown(value: object) -> tuple[str, list[str]]:
    """Return a value, a short list or a small record as a text, and the values in it; nothing if it is too long."""
    if is_object(value) and len(value) == 1:
        return _shown(next(iter(value.values())))
    if is_object(value):
        if any(is_object(one) or _is_list(one) for one in value.values()):
            return "", []
        inner = {key: _short(one) for key, one in value.items()}
        text = " ".join(f"{key} {one}" for key, one in inner.items() if one)
        return (f"({text})", [one for one in inner.values() if one]) if 0 < len(text) <= MAX_VALUE_CHARS else ("", [])
    if _is_list(value):
        found = list(map(_short, value)) if _is_short_list(value) else []
        return "; ".join(found), found
    shown = _short(value)
    return shown, [shown] if shown else []


def _first_sentence(text: str) -> str:
    """Return the first sentence of a text in words, cut behind a word; empty for data and markup."""
    first = next((shown for part in _SENTENCE_END.split(text[:2_000]) if len(shown := readable(part)) > MIN_CHARS), "")
    if len(first) > MAX_SENTENCE_CHARS:
        first = first[: first.rfind(" ", 0, MAX_SENTENCE_CHARS)] if " " in first[:MAX_SENTENCE_CHARS] else ""
    return "" if first.startswith(("{", "[", "<", "@@")) or _OPAQUE.search(first) else first


def _is_short_list(values: Sequence[object]) -> bool:
    return 0 < len(values) <= MAX_LIST and all(_short(value) for value in values)


def _short(value: object) -> str:
    """Return a value, or the first values of a record, if they are short; else an empty text."""
    if is_object(value):
        inner = [str(one) for one in value.values() if isinstance(one, str) or _is_number(one)]
        shown = " ".join(inner[:MAX_LIST])
    else:
        shown = readable(str(value)) if isinstance(value, str) or _is_number(value) else ""
    return shown if len(shown) <= MAX_VALUE_CHARS and not _OPAQUE.fullmatch(shown) else ""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)
