"""JSON documents and JSON lines: the shape, a row for each record, and the records that differ."""

import json
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import Final, TypeAlias

from buoyline.previews.odd import odd_values
from buoyline.previews.source import CONTINUED, Kind, Row, shortened

MOST_CHARS = 4_000_000
"""A longer document is read as text: parsing holds the interpreter for 8 ms a megabyte."""

_DEPTH = 4
_SAMPLE = 400
_MOST_COLUMNS, _MOST_FIELDS, _MOST_ROWS, _MOST_PARTS = 200, 4, 24, 60
_LEAST_RECORDS, _LEAST_MAPPED = 8, 16
_MOST_LINES = 20_000
_MOSTLY = 0.9
_VALUE_CHARS, _PART_CHARS, _NOTE_CHARS = 160, 200, 220
_TELLING: Final = (
    "name", "title", "path", "file", "line", "message", "body", "text", "error", "status", "summary", "id",
)  # fmt: skip
_ERROR: Final = re.compile("(?i)error|fatal|fail|panic|exception")
_BLANKS: Final = re.compile(r"[ \t\n\r]*")
_Path: TypeAlias = tuple[str | int, ...]
_Json: TypeAlias = "dict[str, _Json] | list[_Json] | str | float | bool | None"


def read_document(text: str) -> Kind | None:
    """Return the shape of a JSON document and its records, or its telling texts; None for another text.

    Lines that a view wrapped are joined.
    """
    if text.lstrip()[:1] not in {"{", "["} or len(text) > MOST_CHARS:
        return None
    pieces = text.split(f"\n{CONTINUED}")
    document = "".join(pieces)
    try:
        value: _Json = json.loads(document, strict=False)
    except (ValueError, RecursionError):
        return None
    if not value:
        return None
    path, records = _largest(value)
    shape = f"JSON: {_shape(value)}"
    quoted = frozenset(number for number, line in enumerate(text.split("\n"), 1) if line.startswith(CONTINUED))
    if not records:
        texts = [(name, leaf) for name, leaf in _leaves(value) if isinstance(leaf, str)]
        parts = [
            f"{'.'.join(name)}: {_flat(leaf)}"
            for name, leaf in texts
            if " " in leaf.strip() or (name and name[-1] in _TELLING)
        ]
        return Kind([shape], parts=parts[:_MOST_PARTS], quoted=quoted, is_record=True)
    place_of, prefix = _places(text, pieces), ".".join(map(str, path))
    offsets = [offset for _, offset in _members(document, _offset(document, 0, path))]
    rows, parts = _compared(
        records,
        lambda place, name: place_of(_offset(document, offsets[place], name)),
        lambda place: f"{prefix}[{place}] :{place_of(offsets[place])[0]}",
    )
    return Kind([shape], rows, parts, quoted, is_record=True)


def read_json_lines(lines: Sequence[str]) -> Kind | None:
    """Return the shape of objects of which each has a line, and those that differ; None for another text."""
    sample = [line for line in lines[:40] if line.strip() and not line.startswith(CONTINUED)]
    if sum(line.lstrip()[:1] == "{" for line in sample) < max(_MOSTLY * len(sample), 2):
        return None
    joined = list[tuple[int, str]]()
    for number, line in enumerate(lines[:_MOST_LINES], 1):
        if joined and line.startswith(CONTINUED):
            joined[-1] = joined[-1][0], joined[-1][1] + line.removeprefix(CONTINUED)
        elif line.strip():
            joined.append((number, line))
    found, broken = list[tuple[int, dict[str, _Json]]](), list[int]()
    for number, line in joined:
        try:
            value: _Json = json.loads(line, strict=False)
        except (ValueError, RecursionError):
            broken.append(number)
            continue
        if isinstance(value, dict):
            found.append((number, value))
    if len(found) < max(_MOSTLY * len(joined), 2):
        return None
    records = [value for _, value in found]
    rows, parts = _compared(records, lambda place, _: (found[place][0], 0), lambda place: f"line {found[place][0]}:")
    rows += [Row(number, 94.0, note="no JSON") for number in broken[:8]]
    shape = f"JSON lines: {len(found):,} like {_shape(found[0][1])}"
    return Kind([shape], rows, parts, is_record=True)


def _largest(value: _Json) -> tuple[_Path, list[dict[str, _Json]]]:
    """Return the path of the longest list of objects, or of the largest map of objects, and the objects."""
    best: tuple[_Path, list[dict[str, _Json]]] = ((), [])
    waiting: list[tuple[_Path, _Json]] = [((), value)]
    for path, one in waiting:
        children = one if isinstance(one, list) else list(one.values()) if isinstance(one, dict) else []
        least = max(len(best[1]) + 1, 2 if isinstance(one, list) else _LEAST_MAPPED)
        records = [child for child in children if isinstance(child, dict)]
        if len(records) >= least and len(records) == len(children):
            best = path, records
        if isinstance(one, dict) and len(path) < _DEPTH:
            waiting += [((*path, key), child) for key, child in islice(one.items(), 3 * _MOST_FIELDS)]
    return best


def _offset(document: str, start: int, path: _Path) -> int:
    """Return the offset of the value at *path* of the value at *start*."""
    start = _after(document, start)
    for key in path:
        *_, start = (
            offset for name, offset in _members(document, start) if name == key
        )  # of equal keys the last counts
    return start


def _members(document: str, start: int) -> Iterator[tuple[str | int, int]]:
    """Yield the keys or indexes of the list or map at *start*, and the offsets of their values."""
    decode, is_map = json.JSONDecoder(strict=False).raw_decode, document[start] == "{"
    place, index = _after(document, start + 1), 0
    while document[place] not in "]}":
        key: str | int = index
        if is_map:
            key, place = decode(document, place)
            place = _after(document, _after(document, place) + 1)
        yield key, place
        _, place = decode(document, place)
        place, index = _after(document, place), index + 1
        if document[place] == ",":
            place = _after(document, place + 1)


def _after(document: str, place: int) -> int:
    blanks = _BLANKS.match(document, place)
    return place if blanks is None else blanks.end()


def _places(text: str, pieces: Sequence[str]) -> Callable[[int], tuple[int, int]]:
    """Return a function from an offset in the joined *pieces* of *text* to the line and character there."""
    ends = list(accumulate(map(len, pieces)))
    starts = list(accumulate((len(line) + 1 for line in text.split("\n")), initial=0))

    def place_of(offset: int) -> tuple[int, int]:
        offset += (1 + len(CONTINUED)) * bisect_right(ends, offset)
        number = bisect_right(starts, offset)
        return number, offset - starts[number - 1]

    return place_of


def _shape(value: _Json, depth: int = 2) -> str:
    if isinstance(value, dict):
        if not depth:
            return f"{{{len(value)} keys}}"
        shown = [f"{shortened(key, 40)}: {_shape(child, depth - 1)}" for key, child in islice(value.items(), 12)]
        return f"{{{', '.join(shown)}{f', {len(value) - 12} more keys' if len(value) > 12 else ''}}}"  # noqa: PLR2004
    if isinstance(value, list):
        objects = "objects like " if value and isinstance(value[0], dict) else "like "
        return f"[{len(value):,} {objects}{_shape(value[0], max(depth - 1, 1))}]" if value else "[]"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 42 else f"text of {len(text) - 2:,}"  # noqa: PLR2004


def _leaves(value: _Json, name: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], _Json]]:
    if isinstance(value, dict) and len(name) < _DEPTH:
        for key, child in value.items():
            yield from _leaves(child, (*name, key))
    else:
        yield name, value


def _flat(value: _Json) -> str:
    return shortened(" ".join(str(value).split()), _VALUE_CHARS)


def _compared(
    records: Sequence[dict[str, _Json]],
    place_of: Callable[[int, tuple[str, ...]], tuple[int, int]],
    named: Callable[[int], str],
) -> tuple[list[Row], list[str]]:
    """Return rows for the values and keys in which *records* differ, and a part for each with its telling fields."""
    flat = [dict(_leaves(record)) for record in records]
    columns = defaultdict[tuple[str, ...], dict[int, _Json]](dict)
    for place, leaves in enumerate(flat):
        for name, value in leaves.items():
            columns[name][place] = value
    few, found = max(1, min(3, len(records) // 50)), list[tuple[float, int, tuple[str, ...], str]]()
    for name, values in list(columns.items())[:_MOST_COLUMNS]:
        at = list(values)
        for odd in odd_values([[] if isinstance(value, list | dict) else value for value in values.values()]):
            found.append((odd.weight, at[odd.place], name, odd.reason))
        if len(records) >= _LEAST_RECORDS and len(values) <= few:
            found += [(93.0, place, name, f"only {len(values)} of {len(records):,} have it") for place in at]
        elif len(records) >= _LEAST_RECORDS and 0 < len(records) - len(values) <= few:
            found += [(93.0, place, name, "without it") for place in range(len(records)) if place not in values]
    rows = list[Row]()
    found = [
        (weight + 3 * bool(_ERROR.search(f"{name} {flat[place].get(name)}")), place, name, reason)
        for weight, place, name, reason in found
    ]
    for weight, place, name, reason in sorted(found, key=lambda odd: -odd[0])[:_MOST_ROWS]:
        number, column = place_of(place, name if name in flat[place] else ())
        beside = ", ".join(f"{'.'.join(key)}: {_flat(value)}" for key, value in flat[place].items() if key != name)
        own = f"{'.'.join(name)}: {_flat(flat[place].get(name, ''))} of {{{beside}}}"
        rows.append(Row(number, weight, column=column, note=shortened(f"{reason}: {own}", _NOTE_CHARS)))
    fields = _telling(columns, len(records))
    parts = [
        f"{named(place)} " + " \u00b7 ".join(_flat(leaves[name]) for name in fields if name in leaves)
        for place, leaves in enumerate(flat[:_MOST_PARTS])
    ]
    return rows, parts if fields and len(records) > 1 else []


def _telling(columns: Mapping[tuple[str, ...], dict[int, _Json]], records: int) -> list[tuple[str, ...]]:
    """Return the names of the four columns that tell records apart best, in their order: no links and no hashes."""
    scored = list[tuple[float, int, tuple[str, ...]]]()
    for place, (name, values) in enumerate(columns.items()):
        sample = list(values.values())[:_SAMPLE]
        if 2 * len(values) < records or any(isinstance(value, list | dict) for value in sample) or not name:
            continue
        texts = [value for value in sample if isinstance(value, str)]
        links = sum("://" in text or (len(text) > 24 and " " not in text) for text in texts)  # noqa: PLR2004
        known = 1 - 0.05 * _TELLING.index(name[-1].lower()) if name[-1].lower() in _TELLING else 0
        variety = len({str(value)[:_VALUE_CHARS] for value in sample}) / len(sample)
        score = variety + 0.5 * bool(texts) - 2 * bool(texts and 2 * links > len(texts)) + known
        if score > 0.1 and variety * len(sample) > 1:  # noqa: PLR2004
            scored.append((-score, place, name))
    best = sorted(scored)[:_MOST_FIELDS]
    return [name for _, _, name in sorted(best, key=lambda one: one[1])]
