"""JSON documents value by value: what they hold, and where in the text each value begins.

The parser of the standard library holds the interpreter for a whole document, which stops an event loop in another
thread for half a second at 15 MB. So the outermost one or two levels are walked here, and it parses what they hold.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

Place: TypeAlias = tuple[str | int, ...]

_BLANKS = re.compile(r"[ \t\n\r]*")
# A readable view goes on in a new line within a string.
_decode = json.JSONDecoder(strict=False).raw_decode


class Member(NamedTuple):
    """A value that an array or an object holds.

    Attributes:
        key: Its key or index.
        key_at: Where its key begins; in an array where the value does.
        at: Where the value begins.
        end: Where it ends.
        value: What it is.
    """

    key: str | int
    key_at: int
    at: int
    end: int
    value: Any


def loaded(document: str) -> Any:
    """Return the value of a JSON document.

    Raises:
        json.JSONDecodeError: It is none; ``pos`` says where it ends to be one.
        ValueError: A number has thousands of digits.
        RecursionError: It is nested too deeply.
    """
    start = _skipped(document, 0)
    value, end = _loaded(document, start, levels=2 if document[start : start + 1] == "{" else 1)
    if (rest := _skipped(document, end)) < len(document):
        raise json.JSONDecodeError("more than one value", document, rest)
    return value


def offsets_of(document: str, places: Sequence[Place]) -> dict[Place, int]:
    """Find where values begin; of a value in an object, where its key does.

    Only what holds one of them is looked into, and the rest skipped at the speed of the parser, once a level.

    Args:
        document: Valid JSON.
        places: Keys and indexes that lead from the root to each value; of keys that repeat in an object, the last.

    Returns:
        The offset in characters of each place that exists.
    """
    start = _skipped(document, 0)
    found: dict[Place, int] = {(): start} if any(not place for place in places) else {}
    waiting: list[tuple[int, Place, list[Place]]] = [(start, (), [place for place in places if place])]
    while waiting:
        at, prefix, inner = waiting.pop()
        wanted = {place[len(prefix)] for place in inner}
        for member in _members(document, at) if document[at] in "{[" else ():
            if member.key not in wanted:
                continue
            path: Place = (*prefix, member.key)
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


def _members(document: str, at: int, levels: int = 0) -> Iterator[Member]:
    """Yield what the array or object that begins at *at* holds, in order."""
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
        yield Member(named, key_at, position, end, value)
        position, index = _skipped(document, end), index + 1
        sign = document[position : position + 1]
        if sign not in {",", closing}:
            raise json.JSONDecodeError(f"neither ',' nor '{closing}'", document, position)
        position = _skipped(document, position + 1)


def _key(document: str, position: int) -> tuple[str, int]:
    """Return a key, and where its value begins."""
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
