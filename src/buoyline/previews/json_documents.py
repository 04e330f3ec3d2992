"""JSON documents and JSON lines: their shape, their records, and the values that are outliers.

Values at the same place of many records form a column, wherever the records are in the document;
`buoyline.previews.outliers` finds the outliers of a column. A document without records still has a shape.
"""

import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate, chain, islice
from operator import getitem
from typing import Any, Final, TypeAlias, TypeGuard, cast

from buoyline.previews.digest import Digest, Finding, fact, shortened_end
from buoyline.previews.outliers import CONTAINER, ColumnValue, column_outliers, doubt_in
from buoyline.previews.source import CONTINUED, visible

# The parser of the standard library holds the interpreter for a whole document, which stops an event loop in another
# thread: 8 ms for a megabyte. So of a larger one, this module walks the outermost one or two levels, and parses what
# they hold.

ValuePath: TypeAlias = tuple[str | int, ...]

_BLANKS = re.compile(r"[ \t\n\r]*")
# In a readable view, a string may contain a line break.
_DECODER: Final = json.JSONDecoder(strict=False)
_SCAN: Final[Any] = _DECODER.scan_once  # type: ignore[attr-defined]
_PARSED_AT_ONCE = 1 << 20


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Check for a parsed object; the parser makes no other mappings."""
    return type(value) is dict


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Check for a parsed array."""
    return type(value) is list


JsonMember: TypeAlias = tuple[str | int, int, int, int, Any]
"""A value in an array or an object: its key, the offsets of the key (of itself in an array), its beginning and its end,
and the value itself.
"""


def load_json(document: str, *, is_whole: bool = True) -> Any:
    """Parse a JSON document; if not *is_whole*, only as much as is complete of its outermost two levels.

    Raises:
        json.JSONDecodeError: *document* is not valid JSON; ``pos`` says where.
        ValueError: A number has thousands of digits.
        RecursionError: The nesting is too deep.
    """
    if is_whole and len(document) <= _PARSED_AT_ONCE:
        return _DECODER.decode(document)
    start = _skipped(document, 0)
    value, end = _loaded(document, start, 2 if document[start : start + 1] == "{" else 1, is_whole=is_whole)
    if is_whole and (rest := _skipped(document, end)) < len(document):
        raise json.JSONDecodeError("more than one value", document, rest)
    return value


def value_offsets(document: str, places: Sequence[ValuePath]) -> dict[ValuePath, int]:
    """Find the offsets of values; for a value in an object, the offset of its key.

    The search opens only containers on the way to a place. The parser skips the rest, once per level.

    Args:
        document: Valid JSON, at least up to the places.
        places: For repeated keys, the last one counts.

    Returns:
        The offset in characters of each place that exists.
    """
    start = _skipped(document, 0)
    found: dict[ValuePath, int] = {(): start} if any(not place for place in places) else {}
    waiting: list[tuple[int, ValuePath, list[ValuePath]]] = [(start, (), [place for place in places if place])]
    while waiting:
        at, prefix, inner = waiting.pop()
        wanted = {place[len(prefix)] for place in inner}
        indexes = (key for key in wanted if isinstance(key, int))
        last = max(indexes, default=None) if document[at : at + 1] == "[" else None
        for key, key_at, begin, _, _ in _members(document, at, is_opened=True) if document[at] in "{[" else ():
            if key in wanted:
                path: ValuePath = (*prefix, key)
                below = [place for place in inner if place[: len(path)] == path]
                if path in below:
                    found[path] = key_at
                deeper = [place for place in below if len(place) > len(path)]
                if deeper:
                    waiting.append((begin, path, deeper))
            if key == last:
                break
    return found


def _loaded(document: str, at: int, levels: int, *, is_whole: bool = True) -> tuple[Any, int]:
    """Return the value that begins at *at*, and its end; containers of the outermost *levels* are walked."""
    opening = document[at : at + 1]
    if not levels or opening not in {"{", "["}:
        return _scanned(document, at)
    members, end = list[JsonMember](), at + 1
    try:
        for member in _members(document, at, levels - 1, is_whole=is_whole):
            members.append(member)
            end = member[3]
    except json.JSONDecodeError:
        if is_whole:
            raise
        end = len(document)
    end = min(_skipped(document, end) + 1, len(document))
    if opening == "{":
        return {str(key): value for key, _, _, _, value in members}, end
    return [member[4] for member in members], end


def _members(
    document: str, at: int, levels: int = 0, *, is_whole: bool = True, is_opened: bool = False
) -> Iterator[JsonMember]:
    """Yield the members of the array or object that begins at *at*, in order.

    If *is_opened*, the last one may break off with the document: the caller opens it.
    """
    closing = "}" if document[at] == "{" else "]"
    position, index, sign = _skipped(document, at + 1), 0, ","
    if document[position : position + 1] == closing:
        return
    while sign == ",":
        key_at = position
        named: str | int = index
        try:
            if closing == "}":
                named, position = _key(document, position)
            value, end = _loaded(document, position, levels, is_whole=is_whole)
        except json.JSONDecodeError:
            if not is_opened:
                raise
            yield named, key_at, position, len(document), None
            return
        yield named, key_at, position, end, value
        position, index = _skipped(document, end), index + 1
        sign = document[position : position + 1]
        if is_opened and sign not in {",", closing}:
            return
        if sign not in {",", closing}:
            raise json.JSONDecodeError(f"neither ',' nor '{closing}'", document, position)
        position = _skipped(document, position + 1)


def _key(document: str, position: int) -> tuple[str, int]:
    if document[position : position + 1] != '"':
        raise json.JSONDecodeError("no key", document, position)
    key, end = _scanned(document, position)
    colon = _skipped(document, end)
    if document[colon : colon + 1] != ":":
        raise json.JSONDecodeError("no ':' behind a key", document, colon)
    return str(key), _skipped(document, colon + 1)


def _scanned(document: str, at: int) -> tuple[Any, int]:
    try:
        return cast("tuple[Any, int]", _SCAN(document, at))
    except StopIteration as error:
        raise json.JSONDecodeError("no value", document, error.value) from None


def _skipped(document: str, position: int) -> int:
    blanks = _BLANKS.match(document, position)
    return position if blanks is None else blanks.end()


_MAX_VALUES = 200_000
_LARGEST = 10**300
_MAX_KEYS = 200
_MAX_FINDINGS = 24
_LEAST_RECORDS = 8
_MAP_KEYS = 16
_SHOWN_KEYS = 12
_SHOWN_CHARS = 40
_MOST = 0.9
_MOST_OWN_KEYS = 8
_MOST_PER_RECORD = 2
_CONTINUED = f"\n{CONTINUED}"
_NAMES: Final[dict[type, str]] = {
    dict: "objects", list: "arrays", bool: "booleans", type(None): "nulls", str: "texts",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Column:
    """The values at the same place of many records.

    The value at each place is a member of the value at *owners* of the parent, under *key*, or under *keys* if these
    differ.
    """

    values: Sequence[Any]
    parent: "_Column | None" = None
    owners: Sequence[int] = ()
    key: str = ""
    keys: Sequence[str | int] = ()

    def path(self, place: int) -> ValuePath:
        if self.parent is None:
            return ()
        key = self.keys[place] if self.keys else self.key
        return (*self.parent.path(self.owners[place]), key)

    def children(self) -> Iterator["_Column"]:
        if not {dict, list} & set(map(type, self.values)):
            return
        fields = list[int]()
        # Three lists and no pairs, which the garbage collector would visit.
        values, owners, keys = list[Any](), list[int](), list[str | int]()
        for place, value in enumerate(self.values):
            if is_array(value):
                values += value
                keys += range(len(value))
            elif is_object(value) and _is_map(value):
                values += value.values()
                keys += value
            elif is_object(value):
                fields.append(place)
            owners += [place] * (len(values) - len(owners))
        if values:
            yield _Column(values, self, owners, keys=keys)
        counts = Counter(chain.from_iterable(self.values[place] for place in fields))
        for key, count in counts.most_common(_MAX_KEYS):
            owners = fields if count == len(fields) else [place for place in fields if key in self.values[place]]
            yield _Column([self.values[place][key] for place in owners], self, owners, key)


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
    if isinstance(value, str):
        is_short = len(value) <= _SHOWN_CHARS
        return json.dumps(visible(value), ensure_ascii=False) if is_short else f"text of {len(value):,}"
    return json.dumps(value)[:_SHOWN_CHARS]


def odd_values(document: object) -> list[OddValue]:
    """Find the outliers of a document: values, and objects that lack a common key or have a rare one.

    Only the first 200,000 values count.

    Returns:
        At most two dozen, the most striking first.
    """
    waiting, count, found = [_Column([document])], 0, list[OddValue]()
    while waiting and count < _MAX_VALUES:
        column = waiting.pop(0)
        count += len(column.values)
        if len(column.values) >= _LEAST_RECORDS:
            for outlier in column_outliers(_flat(column.values)):
                value = column.values[outlier.place]
                shown = f"{shape_of(value, depth=1)}: " if is_object(value) or is_array(value) else ""
                found.append(OddValue(column.path(outlier.place), outlier.weight, shown + outlier.reason))
            found += _odd_keys(column)
        waiting += column.children()
    found.sort(key=lambda odd: -odd.weight)
    of_record = Counter[ValuePath]()
    for rank, odd in enumerate(found):
        record = _record_place(odd.place)
        of_record[record] += 1
        if record and of_record[record] > _MOST_PER_RECORD:  # so that other records are shown, too
            found[rank] = replace(odd, weight=odd.weight / 2)
    return sorted(found, key=lambda odd: -odd.weight)[:_MAX_FINDINGS]


def _flat(values: Sequence[Any]) -> Sequence[ColumnValue]:
    """Return *values* as `column_outliers` takes them: containers have no content there, huge integers are texts."""
    if set(map(type, values)) <= {str, bool, float, type(None)}:
        return values
    flat = list[ColumnValue]()
    for value in values:
        if isinstance(value, (dict, list)):
            flat.append(CONTAINER)
        elif isinstance(value, int) and not -_LARGEST < value < _LARGEST:
            flat.append(str(value))
        else:
            flat.append(value)
    return flat


def _odd_keys(column: _Column) -> Iterator[OddValue]:
    """Yield the objects that have a key that few others have, or lack one that nearly all have."""
    places = [place for place, value in enumerate(column.values) if is_object(value)]
    if len(places) < _LEAST_RECORDS:
        return
    members = [column.values[place] for place in places]
    counts = Counter(chain.from_iterable(members))
    few = max(1, min(3, len(members) // 50))
    own = {key for key, count in counts.items() if count <= few}
    missed = {key for key, count in counts.items() if 0 < len(members) - count <= few}
    if len(own) > _MOST_OWN_KEYS:
        # Keys that differ in each object are names, not fields.
        own = set[str]()
    if not own and not missed:
        return
    odd = [
        (place, keys)
        for place, keys in zip(places, members, strict=True)
        if not missed <= keys.keys() or not own.isdisjoint(keys)
    ]
    weight = (93.0 if len(odd) <= _MOST_PER_RECORD + 1 else 84.0 - len(odd)) - doubt_in(len(members))
    for place, keys in odd:
        has, lacks = [key for key in keys if key in own], sorted(missed.difference(keys))
        reasons = [f"only {counts[has[0]]} of {len(members):,} with {_listed(has)}"] if has else []
        reasons += [f"without {_listed(lacks)}"] if lacks else []
        yield OddValue((*column.path(place), *has[:1]), weight, ", ".join(reasons), has[0] if has else "")


def _is_map(value: Mapping[str, Any]) -> bool:
    """Check whether an object maps names to records rather than being a record."""
    if len(value) < _MAP_KEYS:
        return False
    kind, count = Counter(map(type, value.values())).most_common(1)[0]
    return kind in {dict, list} and count > _MAP_KEYS // 2 and count >= 0.8 * len(value)


def _record_place(place: ValuePath) -> ValuePath:
    """Return the path up to the innermost index."""
    last = max((at for at, key in enumerate(place) if isinstance(key, int)), default=-1)
    return place[: last + 1]


def spelled_path(place: ValuePath) -> str:
    """Write a place in JSONPath syntax without the root, such as ``features[3].mag``."""
    spelled = "".join(f"[{key}]" if isinstance(key, int) else f".{_word(key)}" for key in place)
    return spelled.removeprefix(".")


def _listed(keys: Sequence[str], most: int = 3) -> str:
    return ", ".join(map(_word, keys[:most]))


def _word(key: str) -> str:
    return visible(key[:_SHOWN_CHARS]).replace("\n", "\\n")


def _elements(array: Sequence[object]) -> str:
    kinds = Counter(_NAMES.get(type(value), "numbers") for value in array[:_MAX_VALUES])
    kind, count = kinds.most_common(1)[0]
    if len(kinds) > 1:
        return "values: " + ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common(4))
    first = array[0]
    if kind == "objects":
        return f"objects like {shape_of(first, depth=2)}"
    return kind if count > 1 else kind.removesuffix("s")


_RECORD_CHARS = 160
_SHAPE_CHARS = 200
_LAST_CHARS = 2_000
_MAX_ROWS = 60
_MAX_LINES = 20_000
_LEAST_SCORE = 0.1
_HEAD_CHARS = 100_000
_SAMPLED_ROWS = 400
_TELLING = ("name", "title", "path", "file", "line", "message", "body", "text", "error", "status", "summary", "id")
_FIELD_CHARS = 80
_MOST_FIELDS = 4
_MAX_LEVELS = 4


def _compact(value: Any, first: Sequence[str | int]) -> str:
    """Write an object on one line, its members at *first*, the path from it, before the others."""
    parts, size = list[str](), 0
    for name, leaf in _leaves(value, first):
        shown = f"{name}: {_short(leaf)}" if name else _short(leaf)
        parts.append(shown)
        size += len(shown) + 2
        if size > _RECORD_CHARS:
            break
    return shortened_end(", ".join(parts), _RECORD_CHARS)


def _leaves(value: Any, first: Sequence[str | int] = (), name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the members of an object, and those of objects in it, as ``("user.name", "ann")``."""
    if not is_object(value) or name.count(".") > _MAX_LEVELS:
        yield name, value
        return
    ahead = first[0] if first else None
    for key in [key for key in value if key == ahead] + [key for key in value if key != ahead]:
        below = first[1:] if key == ahead else ()
        yield from _leaves(value[key], below, f"{name}.{_word(key)}" if name else _word(key))


def _short(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(visible(shortened_end(value, _FIELD_CHARS)), ensure_ascii=False)
    if is_array(value) and len(value) <= _MOST_FIELDS and not any(is_object(one) or is_array(one) for one in value):
        return f"[{', '.join(map(_short, value))}]"
    return shape_of(value, depth=1)


def _plain(value: Any) -> str:
    text = value if isinstance(value, str) else _short(value)
    return " ".join(shortened_end(visible(text[: 3 * _FIELD_CHARS]), 2 * _FIELD_CHARS).split())


def document_digest(text: str, *, is_whole: bool = True) -> Digest | None:
    """Read *text*, a JSON document or its readable view: shape, records and outliers; None if it is neither.

    If not *is_whole*, *text* is the beginning of the document.
    """
    if text.lstrip()[:1] not in {"{", "["}:
        return None
    joined = _JoinedView(text)
    try:
        document = load_json(joined.text, is_whole=is_whole)
    except json.JSONDecodeError as error:
        if len(joined.text) - error.pos <= min(_LAST_CHARS, error.pos):
            return document_digest(text, is_whole=False) if is_whole else None  # it breaks off at its end
        number, column = joined.line_and_column(error.pos)
        is_within = _LEAST_RECORDS <= number <= text.count("\n")  # not at the beginning, nor in the last line
        return Digest((), (Finding(number, 95.0, column, note="no valid JSON from here on"),)) if is_within else None
    except (ValueError, RecursionError):  # a number of thousands of digits, or a thousand brackets
        return None
    if not document or (not is_whole and _is_lines(joined.text)):
        return None
    return _described(document, joined, is_whole=is_whole)


def _described(document: Any, joined: "_JoinedView", *, is_whole: bool) -> Digest:
    odd = odd_values(document)
    keys = list(dict.fromkeys(value.key for value in odd if value.key))
    if len(keys) <= _MOST_PER_RECORD + 1:
        keys = []
    placed = [value for value in odd if value.key not in keys]
    records, rows = _telling_rows(document)
    if not records:
        records, rows = _telling_leaves(document)
    places = {value.place for value in placed} | {_record_place(value.place) for value in placed} | set(records)
    offsets = value_offsets(joined.text, list(places))
    findings = [_finding(document, value, offsets, joined) for value in placed if value.place in offsets]
    parts = tuple(
        fact(f"{spelled_path(place)} :{joined.line_and_column(offsets[place])[0]} {row}")
        for place, row in zip(records, rows, strict=True)
        if place in offsets
    )
    # The agent can search for each key, so one row names all of them.
    alerts = (f"Keys that few objects have: {_listed(keys, _MAX_FINDINGS)}",) if keys else ()
    beginning = "" if is_whole else " (of the beginning)"
    shape = f"JSON: {shape_of(document)}{beginning}"
    shape = shortened_end(shape, _SHAPE_CHARS) if parts else shape
    return Digest((shape,), tuple(findings), alerts, parts=parts)


def _finding(document: Any, odd: OddValue, offsets: Mapping[ValuePath, int], joined: "_JoinedView") -> Finding:
    number, column = joined.line_and_column(offsets[odd.place])
    place = _record_place(odd.place)
    if not place:
        return Finding(number, odd.weight, column, note=_note(odd.place, odd.reason))
    record, value = reduce(getitem, place, document), reduce(getitem, odd.place, document)
    start = joined.line_and_column(offsets[place])
    rest = odd.place[len(place) :]
    if start[0] == number:
        # The line holds the whole record: it is shown from its own start.
        own = f"{spelled_path(rest)} {_short(value)}: " if rest else ""
        return Finding(number, odd.weight, start[1], note=f"{own}{odd.reason}: {spelled_path(odd.place)}")
    others = f" of {{{_compact(record, rest)}}}" if rest and is_object(record) else f" {_short(record)}"
    return Finding(number, odd.weight, column, note=f"{_note(odd.place, odd.reason)}{others}")


def _telling_rows(document: Any) -> tuple[list[ValuePath], list[str]]:
    """Return the places of the records of the largest array of objects, and what tells each from the others."""
    best: tuple[ValuePath, Sequence[Any]] = ((), ())
    waiting: list[tuple[ValuePath, Any]] = [((), document)]
    while waiting:
        place, value = waiting.pop(0)
        if is_array(value) and len(value) > len(best[1]) and all(map(is_object, value[:_SAMPLED_ROWS])):
            best = place, value
        if is_object(value) and len(place) < _MAX_LEVELS:
            waiting += [((*place, key), child) for key, child in islice(value.items(), _SHOWN_KEYS)]
    place, records = best
    named = [dict(_leaves(record)) for record in records[:_SAMPLED_ROWS]]
    fields = _telling_fields(named)
    if len(records) < 2 or not fields:  # noqa: PLR2004 - one record is no row of a table
        return [], []
    rows = [" \u00b7 ".join(_plain(leaves[name]) for name in fields if name in leaves) for leaves in named[:_MAX_ROWS]]
    return [(*place, index) for index in range(len(rows))], rows


def _telling_leaves(document: Any) -> tuple[list[ValuePath], list[str]]:
    """Return the places of the texts of a document without records that say most, and their beginnings."""
    places, texts = list[ValuePath](), list[str]()
    waiting: list[tuple[ValuePath, Any]] = [((), document)]
    while waiting and len(places) < _MAX_ROWS:
        place, value = waiting.pop(0)
        if isinstance(value, str) and place:
            if " " in value.strip() or place[-1] in _TELLING:
                places.append(place)
                texts.append(_plain(value))
        elif len(place) < _MAX_LEVELS and (is_object(value) or is_array(value)):
            members: Iterator[tuple[str | int, Any]] = iter(value.items() if is_object(value) else enumerate(value))
            waiting += [((*place, key), child) for key, child in islice(members, _MAX_ROWS)]
    return places, texts


def _telling_fields(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Choose up to four fields whose values differ and can be read."""
    columns: dict[str, list[Any]] = {}
    for leaves in records:
        for name, value in islice(leaves.items(), _MAX_KEYS):
            columns.setdefault(name, []).append(value)
    scored: list[tuple[float, int, str]] = []
    for place, (name, values) in enumerate(columns.items()):
        if 2 * len(values) < len(records) or any(is_array(value) or is_object(value) for value in values):
            continue
        texts = [value for value in values if isinstance(value, str)]
        differing = len({str(value)[:200] for value in values}) / len(values)
        is_link = sum("://" in text or (len(text) > 24 and " " not in text and "/" not in text) for text in texts)  # noqa: PLR2004 - a digest or a key
        score = differing + 0.5 * bool(texts) - 2 * (is_link > len(texts) / 2)
        last = name.rpartition(".")[2].lower()
        score += 1.0 - 0.05 * _TELLING.index(last) if last in _TELLING else 0.0
        score += 0.3 * any(" " in text for text in texts[:20])
        if score > _LEAST_SCORE and differing * len(values) > 1:  # constants tell nothing
            scored.append((-score, place, name))
    best = sorted(scored)[:_MOST_FIELDS]
    return [name for _, _, name in sorted(best, key=lambda field: field[1])]


def is_document(text: str) -> bool:
    """Check whether a text begins like one JSON document, not like a document in each line."""
    return text.lstrip()[:1] in {"{", "["} and not _is_lines(text)


def _is_lines(text: str) -> bool:
    lines = text[:_HEAD_CHARS].split("\n", 3)[:2]
    return len(lines) > 1 and all(_record(line) is not None for line in lines)


class _JoinedView:
    """A document whose wrapped lines are joined again, with offsets into its view."""

    def __init__(self, view: str) -> None:
        parts = view.split(_CONTINUED)
        self.text = view if len(parts) == 1 else "".join(parts)
        self._ends = list(accumulate(map(len, parts)))
        self._starts = list(accumulate((len(line) + 1 for line in view.split("\n")), initial=0))

    def line_and_column(self, offset: int) -> tuple[int, int]:
        """Return the line number and the column in the view of a character of the document."""
        offset += len(_CONTINUED) * bisect_right(self._ends, offset)
        number = bisect_right(self._starts, offset)
        return number, offset - self._starts[number - 1]


def records_digest(lines: Sequence[str]) -> Digest | None:
    """Read each line as a JSON value; None if most lines are not objects or arrays."""
    sample = [line for line in lines[:_SHOWN_CHARS] if line.strip() and not line.startswith(CONTINUED)]
    if sum(line.lstrip()[:1] in {"{", "["} for line in sample) < _MOST * len(sample):
        return None
    whole = _joined_lines(lines[:_MAX_LINES])
    parsed = [(number, record) for number, line in whole if (record := _record(line)) is not None]
    filled = sum(1 for _, line in whole if line.strip())
    if len(parsed) < 2 or len(parsed) < _MOST * filled:  # noqa: PLR2004 - one would be a document
        return None
    odd = [
        Finding(parsed[int(value.place[0])][0], value.weight, note=_note(value.place[1:], value.reason))
        for value in odd_values([record for _, record in parsed])
        if value.place
    ]
    numbers = {number for number, _ in parsed}
    broken = [number for number, line in whole if line.strip() and number not in numbers]
    odd += [Finding(number, 94.0, note="no JSON") for number in broken[:_MOST_OWN_KEYS]]
    _, rows = _telling_rows([record for _, record in parsed])
    parts = tuple(fact(f"line {number}: {row}") for (number, _), row in zip(parsed, rows, strict=False))
    quoted = frozenset(number for number, line in enumerate(lines, 1) if line.startswith(CONTINUED))
    shape = f"JSON lines: {len(parsed):,} like {shape_of(parsed[0][1])}"
    return Digest((shape,), tuple(odd), parts=parts, quoted=quoted)


def _joined_lines(lines: Sequence[str]) -> list[tuple[int, str]]:
    """Join the lines that a view wrapped, each with the number of its first."""
    joined: list[tuple[int, list[str]]] = []
    for number, line in enumerate(lines, 1):
        if joined and line.startswith(CONTINUED):
            joined[-1][1].append(line[len(CONTINUED) :])
        else:
            joined.append((number, [line]))
    return [(number, "".join(parts)) for number, parts in joined]


def _record(line: str) -> object:
    if line.lstrip()[:1] not in {"{", "["}:
        return None
    try:
        return _DECODER.decode(line)
    except (ValueError, RecursionError):
        return None


def _note(place: ValuePath, reason: str) -> str:
    return f"{reason}: {spelled_path(place)}" if place else reason
