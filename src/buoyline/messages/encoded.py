"""Bytes within JSON, spelled as Strands' session managers spell them.

Source: ``encode_bytes_values`` and ``decode_bytes_values`` of `strands.types.session`: an object with the mark below
and the base64 text under ``data``. Not recursive, unlike these: a tool's arguments may be nested more deeply than
Python's stack.
"""

import base64
from collections.abc import Callable
from typing import Any, Final

from buoyline.messages.jsonl import is_array, is_object

BYTES_MARK: Final = "__bytes_encoded__"


def encode_bytes(value: Any) -> Any:
    """Return *value* with all bytes in it spelled; *value* itself where there are none."""
    return _replaced(value, _encoded)


def decode_bytes(value: Any) -> Any:
    """Undo `encode_bytes`; what stands there but is no base64 stays as it is."""
    return _replaced(value, _decoded)


def encoded_payload(value: object) -> str | None:
    """Return the base64 text, or the reference in its place, of bytes that are spelled; None for all else."""
    if not is_object(value) or value.get(BYTES_MARK) is not True:
        return None
    text = value.get("data")
    return text if isinstance(text, str) else None


def _encoded(value: object) -> object:
    if not isinstance(value, (bytes, bytearray)):
        return value
    return {BYTES_MARK: True, "data": base64.b64encode(value).decode("ascii")}


def _decoded(value: object) -> object:
    spelled = encoded_payload(value)
    if spelled is None:
        return value
    try:
        return base64.b64decode(spelled, validate=True)
    except ValueError:
        return value


def _replaced(value: Any, replace: Callable[[object], object]) -> Any:
    """Return *value* with everything in it that *replace* changes changed; copies only where something does."""
    if not _is_changed(value, replace):
        return value
    holder: list[Any] = [None]
    # What is in a value twice is copied once; so one that holds itself comes to an end, too.
    copies: dict[int, Any] = {}
    waiting: list[tuple[Any, Any, Any]] = [(value, holder, 0)]
    while waiting:
        node, into, at = waiting.pop()
        if id(node) in copies:
            into[at] = copies[id(node)]
        elif is_object(node) and replace(node) is node:
            into[at] = copies[id(node)] = dict.fromkeys(node)
            waiting += [(child, into[at], key) for key, child in node.items()]
        elif is_array(node):
            into[at] = copies[id(node)] = list(node)
            waiting += [(child, into[at], number) for number, child in enumerate(node)]
        else:
            into[at] = replace(node)
    return holder[0]


def _is_changed(value: object, replace: Callable[[object], object]) -> bool:
    waiting, seen = [value], set[int]()
    while waiting:
        node = waiting.pop()
        if replace(node) is not node:
            return True
        if (is_object(node) or is_array(node)) and id(node) not in seen:
            seen.add(id(node))
            waiting.extend(node.values() if is_object(node) else node)
    return False
