"""JSON documents and JSON lines: their shape, and the values that are outliers.

Values at the same place of many records form a column, wherever the records are in the document;
`buoyline.previews.outliers` finds the outliers of a column. A document without records still has a shape.
"""

import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice
from typing import Any, NamedTuple, TypeAlias

from buoyline.messages.jsonl import is_array, is_object
from buoyline.previews.digest import Digest, Finding
from buoyline.previews.outliers import CONTAINER, ColumnValue, column_outliers
from buoyline.previews.source import CONTINUED, visible

# The parser of the standard library holds the interpreter for a whole document, which stops an event loop in another
# thread for half a second at 15 MB. So this module walks the outermost one or two levels, and parses what they hold.


ValuePath: TypeAlias = tuple[str | int, ...]

_BLANKS = re.compile(r"[ \t\n\r]*")
# In a readable view, a string may contain a line break.
_decode = json.JSONDecoder(strict=False).raw_decode


class JsonMember(NamedTuple):
    """A value in an array or an object; *key_at* is the offset of its key, or of itself in an array."""

    key: str | int
    key_at: int
    at: int
    end: int
    value: Any


def load_json(document: str) -> Any:
    """Parse a JSON document.

    Raises:
        json.JSONDecodeError: *document* is not valid JSON; ``pos`` says where.
        ValueError: A number has thousands of digits.
        RecursionError: The nesting is too deep.
    """
    start = _skipped(document, 0)
    value, end = _loaded(document, start, levels=2 if document[start : start + 1] == "{" else 1)
    if (rest := _skipped(document, end)) < len(document):
        raise json.JSONDecodeError("more than one value", document, rest)
    return value


def value_offsets(document: str, places: Sequence[ValuePath]) -> dict[ValuePath, int]:
    """Find the offsets of values; for a value in an object, the offset of its key.

    The search opens only containers on the way to a place. The parser skips the rest, once per level.

    Args:
        document: Valid JSON.
        places: The keys and indexes from the root to each value; for repeated keys, the last one counts.

    Returns:
        The offset in characters of each place that exists.
    """
    start = _skipped(document, 0)
    found: dict[ValuePath, int] = {(): start} if any(not place for place in places) else {}
    waiting: list[tuple[int, ValuePath, list[ValuePath]]] = [(start, (), [place for place in places if place])]
    while waiting:
        at, prefix, inner = waiting.pop()
        wanted = {place[len(prefix)] for place in inner}
        for member in _members(document, at) if document[at] in "{[" else ():
            if member.key not in wanted:
                continue
            path: ValuePath = (*prefix, member.key)
            below = [place for place in inner if place[: len(path)] == path]
            if path in below:
                found[path] = member.key_at
            deeper = [place for place in below if len(place) > len(path)]
            if deeper:
                waiting.append((member.at, path, deeper))
    return found


def _loaded(document: str, at: int, levels: int) -> tuple[Any, int]:
    opening = document[at : at + 1]
    if not levels or opening not in {"{", "["}:
        return _decode(document, at)
    members = list(_members(document, at, levels - 1))
    end = _skipped(document, members[-1].end if members else at + 1) + 1
    if opening == "{":
        return {member.key: member.value for member in members}, end
    return [member.value for member in members], end


def _members(document: str, at: int, levels: int = 0) -> Iterator[JsonMember]:
    """Yield the members of the array or object that begins at *at*, in order."""
    closing = "}" if document[at] == "{" else "]"
    position, index, sign = _skipped(document, at + 1), 0, ","
    if document[position : position + 1] == closing:
        return
    while sign == ",":
        key_at = position
        named: str | int = index
        if closing == "}":
            named, position = _key(document, position)
        value, end = _loaded(document, position, levels)
        yield JsonMember(named, key_at, position, end, value)
        position, index = _skipped(document, end), index + 1
        sign = document[position : position + 1]
        if sign not in {",", closing}:
            raise json.JSONDecodeError(f"neither ',' nor '{closing}'", document, position)
        position = _skipped(document, position + 1)


def _key(document: str, position: int) -> tuple[str, int]:
    """Return a key and the offset of its value."""
    if document[position : position + 1] != '"':
        raise json.JSONDecodeError("no key", document, position)
    key, end = _decode(document, position)
    colon = _skipped(document, end)
    if document[colon : colon + 1] != ":":
        raise json.JSONDecodeError("no ':' behind a key", document, colon)
    return str(key), _skipped(document, colon + 1)


def _skipped(document: str, position: int) -> int:
    blanks = _BLANKS.match(document, position)
    return position if blanks is None else blanks.end()


_LinkedPath: TypeAlias = tuple[Any, ...]
"""Linked from the inside out: ``(key, path of the container)``, ``()`` for the root. Records share the path of their
array.
"""

_MAX_VALUES = 300_000
_MAX_FINDINGS = 24
_LEAST_RECORDS = 8
_MAP_KEYS = 16
_SHOWN_KEYS = 12
_SHOWN_CHARS = 40
_MAX_CHARS = 16_000_000
_MOST = 0.9
_SURE = 50
_DOUBT = 16.0
_MOST_OWN_KEYS = 8
_MOST_PER_RECORD = 2
_CONTINUED = f"\n{CONTINUED}"
_ANY = "*"


@dataclass(slots=True)
class _Column:
    raw: list[object] = field(default_factory=list[object])
    values: list[ColumnValue] = field(default_factory=list[ColumnValue])
    paths: list[_LinkedPath] = field(default_factory=list[_LinkedPath])


@dataclass(frozen=True, slots=True)
class OddValue:
    """An outlier in a document; *key* is a key that few other objects have, if that is the reason."""

    place: ValuePath
    weight: float
    reason: str
    key: str = ""


def shape_of(value: object, *, depth: int = 2) -> str:
    """Describe a JSON value by its keys, their types and the lengths of arrays.

    >>> shape_of({"id": 1, "tags": ["a", "b"]})
    '{id: 1, tags: [2 texts]}'
    """
    if is_object(value):
        if depth <= 0:
            return f"{{{len(value)} keys}}"
        if _is_map(value):
            key, child = next(iter(value.items()))
            return f"{{{len(value):,} keys like {_word(key)}: {shape_of(child, depth=depth - 1)}}}"
        shown = [
            f"{_word(key)}: {shape_of(child, depth=depth - 1)}" for key, child in islice(value.items(), _SHOWN_KEYS)
        ]
        more = [f"{len(value) - len(shown)} more keys"] if len(value) > len(shown) else []
        return f"{{{', '.join([*shown, *more])}}}"
    if is_array(value):
        return f"[{len(value):,} {_elements(value)}]" if value else "[]"
    return _scalar(value)


def odd_values(document: object) -> list[OddValue]:
    """Find the outliers of a document: values, and objects that lack a common key or have a rare one.

    Args:
        document: A JSON value; only its first 300,000 values count.

    Returns:
        At most two dozen, the most striking first.
    """
    columns: dict[_LinkedPath, _Column] = {}
    objects: dict[_LinkedPath, list[tuple[tuple[str, ...], _LinkedPath]]] = {}
    for general, path, value in islice(_values(document), _MAX_VALUES):
        if is_object(value):
            objects.setdefault(general, []).append((tuple(value), path))
        column = columns.get(general)
        if column is None:
            column = columns[general] = _Column()
        column.raw.append(value)
        column.values.append(_flat(value))
        column.paths.append(path)
    found = [odd for column in columns.values() for odd in _odd_in_column(column)]
    found += [odd for members in objects.values() for odd in _odd_keys(members)]
    found.sort(key=lambda odd: -odd.weight)
    return _spread(found)[:_MAX_FINDINGS]


def spelled_path(place: ValuePath) -> str:
    """Write a place in JSONPath syntax without the root, such as ``features[3].mag``."""
    spelled = "".join(f"[{key}]" if isinstance(key, int) else f".{_word(key)}" for key in place)
    return spelled.removeprefix(".")


def _values(document: object) -> Iterator[tuple[_LinkedPath, _LinkedPath, object]]:
    """Yield each value with its general path, which all records share, and its own path; without recursion."""
    waiting: list[tuple[_LinkedPath, _LinkedPath, object]] = [((), (), document)]
    while waiting:
        general, path, value = waiting.pop()
        yield general, path, value
        if is_object(value):
            is_map = _is_map(value)
            waiting += [
                ((_ANY if is_map else key, general), (key, path), child) for key, child in reversed(list(value.items()))
            ]
        elif is_array(value):
            inner = (_ANY, general)
            waiting += [(inner, (index, path), value[index]) for index in range(len(value) - 1, -1, -1)]


def _is_map(value: Mapping[str, Any]) -> bool:
    """Check whether an object maps names to records rather than being a record."""
    if len(value) < _MAP_KEYS:
        return False
    kinds = Counter(map(type, value.values()))
    kind, count = kinds.most_common(1)[0]
    return kind in {dict, list} and count > _MAP_KEYS // 2 and count >= 0.8 * len(value)


def _flat(value: object) -> ColumnValue:
    """Return the value as a column stores it; containers have no content there."""
    if is_object(value) or is_array(value):
        return CONTAINER
    if value is None or isinstance(value, (str, bool)):
        return value
    try:
        return float(value) if isinstance(value, (int, float)) else None
    except OverflowError:
        return str(value)


def _spread(found: Sequence[OddValue]) -> list[OddValue]:
    """Halve the weights of a record's third and later outliers, so that other records are shown, too."""
    of_record = Counter[ValuePath]()
    spread: list[OddValue] = []
    for odd in found:
        last = max((at for at, key in enumerate(odd.place) if isinstance(key, int)), default=-1)
        record = odd.place[: last + 1]
        of_record[record] += 1
        is_more = last >= 0 and of_record[record] > _MOST_PER_RECORD
        spread.append(replace(odd, weight=odd.weight / 2) if is_more else odd)
    return sorted(spread, key=lambda odd: -odd.weight)


def _odd_in_column(column: _Column) -> Iterator[OddValue]:
    if len(column.values) < _LEAST_RECORDS:
        return
    for outlier in column_outliers(column.values):
        value = column.raw[outlier.place]
        shown = f"{shape_of(value, depth=1)}: " if is_object(value) or is_array(value) else ""
        yield OddValue(_place_of(column.paths[outlier.place]), outlier.weight, shown + outlier.reason)


def _odd_keys(members: Sequence[tuple[tuple[str, ...], _LinkedPath]]) -> Iterator[OddValue]:
    if len(members) < _LEAST_RECORDS:
        return
    counts = Counter(key for keys, _ in members for key in keys)
    few = max(1, min(3, len(members) // 50))
    own = {key for key, count in counts.items() if count <= few}
    missed = {key for key, count in counts.items() if 0 < len(members) - count <= few}
    if len(own) > _MOST_OWN_KEYS:
        # Keys that differ in each object are names, not fields.
        own = set[str]()
    odd = [(keys, path) for keys, path in members if not missed <= set(keys) or own.intersection(keys)]
    doubt = _DOUBT * max(0.0, 1 - len(members) / _SURE)
    weight = (93.0 if len(odd) <= _MOST_PER_RECORD + 1 else 84.0 - len(odd)) - doubt
    for keys, path in odd:
        has, lacks = [key for key in keys if key in own], sorted(missed.difference(keys))
        reasons = [f"only {counts[has[0]]} of {len(members):,} with {_listed(has)}"] if has else []
        reasons += [f"without {_listed(lacks)}"] if lacks else []
        yield OddValue((*_place_of(path), *has[:1]), weight, ", ".join(reasons), has[0] if has else "")


def _place_of(path: _LinkedPath) -> ValuePath:
    keys: list[str | int] = []
    while path:
        key, path = path
        keys.append(key)
    return tuple(reversed(keys))


def _listed(keys: Sequence[str], most: int = 3) -> str:
    return ", ".join(map(_word, keys[:most]))


def _word(key: str) -> str:
    return visible(key[:_SHOWN_CHARS]).replace("\n", "\\n")


def _elements(array: Sequence[Any]) -> str:
    kinds = Counter(_named(value) for value in array[:_MAX_VALUES])
    kind, count = kinds.most_common(1)[0]
    if len(kinds) > 1:
        return "values: " + ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common(4))
    first = array[0]
    if kind == "objects":
        return f"objects like {shape_of(first, depth=2)}"
    return kind if count > 1 else kind.removesuffix("s")


def _named(value: object) -> str:
    if is_object(value):
        return "objects"
    if is_array(value):
        return "arrays"
    if isinstance(value, bool):
        return "booleans"
    if value is None:
        return "nulls"
    return "texts" if isinstance(value, str) else "numbers"


def _scalar(value: object) -> str:
    if isinstance(value, str):
        return (
            json.dumps(visible(value), ensure_ascii=False) if len(value) <= _SHOWN_CHARS else f"text of {len(value):,}"
        )
    return json.dumps(value) if isinstance(value, (bool, float)) or value is None else str(value)[:_SHOWN_CHARS]


def document_digest(text: str) -> Digest | None:
    """Read *text*, a JSON document or its readable view: its shape and outliers; None if it is no object or array."""
    if len(text) > _MAX_CHARS or text.lstrip()[:1] not in {"{", "["}:
        return None
    joined = _JoinedView(text)
    try:
        document = load_json(joined.text)
    except json.JSONDecodeError as error:
        return _broken(text, joined.offset(error.pos))
    except (ValueError, RecursionError):  # a number of thousands of digits, or a thousand brackets
        return None
    if not document:
        return None
    odd = odd_values(document)
    keys = list(dict.fromkeys(value.key for value in odd if value.key))
    if len(keys) <= _MOST_PER_RECORD + 1:
        keys = []
    placed = [value for value in odd if value.key not in keys]
    offsets = value_offsets(joined.text, [value.place for value in placed])
    findings: list[Finding] = []
    for value in placed:
        if value.place in offsets:
            number, column = _line_and_column(text, joined.offset(offsets[value.place]))
            findings.append(Finding(number, value.weight, column, note=_note(value.place, value.reason)))
    # The agent can search for each key, so one row names all of them.
    alerts = (f"Keys that few objects have: {_listed(keys, _MAX_FINDINGS)}",) if keys else ()
    return Digest((f"JSON: {shape_of(document)}",), tuple(findings), alerts)


def _broken(text: str, offset: int) -> Digest | None:
    """Report where valid JSON ends; None if that is among the first lines or in the last one."""
    number, column = _line_and_column(text, offset)
    if number < _LEAST_RECORDS or number == text.count("\n") + 1:
        return None
    return Digest((), (Finding(number, 95.0, column, note="no valid JSON from here on"),))


class _JoinedView:
    """A document whose wrapped lines are joined again, with offsets into its view."""

    def __init__(self, view: str) -> None:
        """Join the wrapped lines of *view*; other texts hardly change."""
        parts = view.split(_CONTINUED)
        self.text = "".join(parts)
        self._ends = list(accumulate(map(len, parts)))

    def offset(self, offset: int) -> int:
        """Return the offset in the view of a character of the document."""
        return offset + len(_CONTINUED) * bisect_right(self._ends, offset)


def records_digest(lines: Sequence[str]) -> Digest | None:
    """Read each line as a JSON value; None if most lines are not objects or arrays."""
    parsed = [(number, record) for number, record in enumerate(map(_record, lines), 1) if record is not None]
    filled = sum(1 for line in lines if line.strip())
    if len(parsed) < 2 or len(parsed) < _MOST * filled:  # noqa: PLR2004 - one would be a document
        return None
    odd = [
        Finding(parsed[int(value.place[0])][0], value.weight, note=_note(value.place[1:], value.reason))
        for value in odd_values([record for _, record in parsed])
        if value.place
    ]
    numbers = {number for number, _ in parsed}
    broken = [number for number, line in enumerate(lines, 1) if line.strip() and number not in numbers]
    odd += [Finding(number, 94.0, note="no JSON") for number in broken[:_MOST_OWN_KEYS]]
    return Digest((f"JSON lines: {len(parsed):,} like {shape_of(parsed[0][1])}",), tuple(odd))


def _record(line: str) -> object:
    """Return the JSON object or array of a line, else None."""
    if line.lstrip()[:1] not in {"{", "["}:
        return None
    try:
        return json.loads(line, strict=False)
    except (ValueError, RecursionError):
        return None


def _line_and_column(text: str, offset: int) -> tuple[int, int]:
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset) - 1


def _note(place: ValuePath, reason: str) -> str:
    return f"{reason}: {spelled_path(place)}" if place else reason
