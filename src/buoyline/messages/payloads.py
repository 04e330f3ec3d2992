"""Base64 payloads inside a message's JSON: found, taken out, put back.

A payload is found only where a provider expects one: a data URL under ``url`` or ``file_data``, and ``data`` beside
``type: base64``, ``format`` or the mark of Bedrock's bytes. Text elsewhere stays text, even if it looks like base64. A
payload is taken out only if its base64 is canonical; otherwise putting it back would not give the same JSON.
"""

import base64
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from buoyline.errors import MessageError
from buoyline.messages.dialect import data_url, text_or_empty
from buoyline.messages.formats import guessed_media_type
from buoyline.messages.jsonl import is_array, is_object, model_fields
from buoyline.messages.model import Base64

# Bytes within JSON, spelled as Strands' session managers spell them: an object with the mark below and the base64
# text under ``data``. Source: ``encode_bytes_values`` and ``decode_bytes_values`` of `strands.types.session`. Unlike
# these, the functions here are not recursive: a tool's arguments may be nested more deeply than Python's stack.

BYTES_MARK: Final = "__bytes_encoded__"

NUMBER_MARK: Final = "__number_encoded__"
"""Key of a number that JSON lacks: Python's `json`, with which models' arguments are read, takes ``NaN`` for one."""

_NUMBERS: Final = ("NaN", "Infinity", "-Infinity")


def encode_bytes(value: Any) -> Any:
    """Return *value* with all bytes, and numbers that JSON lacks, spelled; *value* itself if it holds none."""
    return _with_changes(value, _encoded)


def decode_bytes(value: Any) -> Any:
    """Undo `encode_bytes`; an object with a mark but without base64, or such a number, stays as it is."""
    return _with_changes(value, _bytes_or_value)


def encoded_payload(value: object) -> str | None:
    """Return the base64 text of spelled bytes, or the reference in its place; None for any other value."""
    if not is_object(value) or value.get(BYTES_MARK) is not True:
        return None
    text = value.get("data")
    return text if isinstance(text, str) else None


def _encoded(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return {NUMBER_MARK: "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}
    if not isinstance(value, (bytes, bytearray)):
        return value
    return {BYTES_MARK: True, "data": base64.b64encode(value).decode("ascii")}


def _bytes_or_value(value: object) -> object:
    if is_object(value) and len(value) == 1 and value.get(NUMBER_MARK) in _NUMBERS:
        return float(value[NUMBER_MARK])
    spelled = encoded_payload(value)
    if spelled is None:
        return value
    try:
        return base64.b64decode(spelled, validate=True)
    except ValueError:
        return value


def _with_changes(value: Any, replace: Callable[[object], object]) -> Any:
    """Return *value* with each value in it replaced; *value* itself if *replace* changes none."""
    if not _is_changed(value, replace):
        return value
    holder: list[Any] = [None]
    # An object that occurs twice is copied once, so a value that holds itself comes to an end, too.
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


KeyPath: TypeAlias = tuple[str | int, ...]
"""Keys and indexes that lead from a message's root to a value in it; never empty."""

_URL_KEYS = frozenset({"url", "file_data", "image_url"})
_KEYS = _URL_KEYS | {"data"}
_SOURCE_KEYS = {"type", "data", "media_type"}
_LEAVES = frozenset({str, int, float, bool, type(None)})


class Reference(NamedTuple):
    """A reference that replaces a payload in a message.

    Attributes:
        at: Keys and indexes from the message's root, e.g. ``("content", 1, "image_url", "url")``.
        head: The text before the base64, e.g. ``"data:image/png;base64,"``; empty without a data URL. A
            ``url`` without a head is that of an AgentScope source, which had the base64 under ``data``.
        reference: The new text, e.g. ``"workspace:///data/<sha256>.png"``.
    """

    at: KeyPath
    head: str
    reference: str


class Payload(NamedTuple):
    """A payload found in a message."""

    at: KeyPath
    head: str
    media_type: str
    content: bytes


class PayloadText(NamedTuple):
    """The media type, if it is a payload, of a text where a provider expects one, and the start of its base64."""

    media_type: str
    start: int


def payloads_in(value: object) -> Iterator[Payload]:
    """Yield the payloads in a message's JSON value, in document order.

    Not recursive: a tool's arguments may be nested more deeply than Python's stack.
    """
    begun = [_children(value, (), "")]
    while begun:
        found = next(begun[-1], None)
        if found is None:
            begun.pop()
            continue
        if found.carrier is None:
            begun.append(_children(found.value, found.at, found.format_name))
        elif (payload := _payload(found.at, str(found.value), found.carrier)) is not None:
            yield payload


def format_for(key: str, siblings: Mapping[str, Any], format_name: str) -> str:
    """Return the format of the value under *key* of *siblings*: Bedrock names it beside the source of its bytes.

    *format_name* is that of the object itself; it may be empty.
    """
    if key == "source":
        return text_or_empty(siblings.get("format"))
    return format_name if key == "bytes" else ""


def payload_text_of(key: str, value: object, siblings: Mapping[str, Any], format_name: str = "") -> PayloadText | None:
    """Return facts about *value* if a payload is expected under *key* of the object *siblings*; decodes nothing.

    *format_name* is that of the object: see `format_for`.
    """
    if not isinstance(value, str):
        return None
    if key in _URL_KEYS:
        found = data_url(value)
        return None if found is None else PayloadText(*found)
    if key == "data" and siblings.get("type") == "base64":
        return PayloadText(str(siblings.get("media_type", "")), 0)
    if key == "data" and siblings.get(BYTES_MARK) is True:
        return PayloadText(guessed_media_type(format_name) if format_name else "", 0)
    if key == "data" and isinstance(audio := siblings.get("format"), str):
        return PayloadText(f"audio/{audio}", 0)
    return None


def take_out(value: Any, put: Callable[[bytes, str], str]) -> tuple[Any, tuple[Reference, ...]]:
    """Return a message's JSON value with references in place of its payloads, and the references in document order.

    Without payloads it is *value* itself, which is never changed. *put* stores the decoded bytes of a media type, and
    returns the reference. The source of AgentScope's data block becomes one of its own type for URLs, as AgentScope's
    workspace has it.
    """
    references: list[Reference] = []
    for found in payloads_in(value):
        reference = put(found.content, found.media_type)
        at = found.at[:-1]
        if found.at[-2:] == ("source", "data") and _base64_source(_value_at(value, at[:-1])) is not None:
            references.append(Reference((*at, "url"), found.head, reference))
            value = _with_value(value, at, _renamed(_value_at(value, at), "data", "url", reference))
        else:
            references.append(Reference(found.at, found.head, reference))
            value = _with_value(value, found.at, reference)
    return value, tuple(references)


def without_payload(block: Any, put: Callable[[bytes, str], str]) -> Any:
    """Return a copy of one content block with references in place of its payloads; *block* itself without payloads.

    The copy of a model is a model. The payload of AgentScope's data block is taken out even if its base64 is not
    canonical: nobody puts it back, and its agents drop a block that comes back unchanged. For *put* see `take_out`.

    Raises:
        MessageError: The payload of AgentScope's data block is not base64.
    """
    fields = model_fields(block)
    plain = block if fields is None else fields
    source = _base64_source(plain)
    if source is None:
        value, references = take_out(plain, put)
        if not references:
            return block
    else:
        payload = Base64(source["data"]).decoded() if source["data"] else b""
        if payload is None:
            raise MessageError("a data block with type 'base64' holds no base64: nothing can be stored of it")
        reference = put(payload, text_or_empty(source["media_type"]))
        value = {**plain, "source": _renamed(source, "data", "url", reference)}
    return value if fields is None else block.__class__.model_validate(value)


def put_back(value: Any, references: tuple[Reference, ...], get: Callable[[str], bytes]) -> Any:
    """Undo `take_out`; *get* returns the bytes behind a reference."""
    for reference in references:
        payload = base64.b64encode(get(reference.reference)).decode("ascii")
        if reference.at[-1] == "url" and not reference.head:
            at = reference.at[:-1]
            value = _with_value(value, at, _renamed(_value_at(value, at), "url", "data", payload))
        else:
            value = _with_value(value, reference.at, reference.head + payload)
    return value


class _Child(NamedTuple):
    """A value that is a payload's text, if *carrier* is set, or that may hold payloads."""

    at: KeyPath
    value: object
    carrier: PayloadText | None
    format_name: str


def _children(value: object, at: KeyPath, format_name: str) -> Iterator[_Child]:
    """Yield the values in *value* that are a payload's text or may hold payloads; most of a message is neither."""
    if is_object(value):
        for key, child in value.items():
            carrier = payload_text_of(key, child, value, format_name) if key in _KEYS else None
            if carrier is not None or type(child) not in _LEAVES:
                yield _Child((*at, key), child, carrier, format_for(key, value, format_name))
    elif is_array(value):
        for index, child in enumerate(value):
            if type(child) not in _LEAVES:
                yield _Child((*at, index), child, None, "")


def _payload(at: KeyPath, value: str, carrier: PayloadText) -> Payload | None:
    """Return the payload if its base64 is canonical, else None."""
    text = value[carrier.start :]
    try:
        payload = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    is_canonical = bool(payload) and base64.b64encode(payload) == text.encode("ascii")
    return Payload(at, value[: carrier.start], carrier.media_type, payload) if is_canonical else None


def _base64_source(block: object) -> Mapping[str, Any] | None:
    """Return the source of AgentScope's data block if it holds the payload; None for every other block."""
    if not is_object(block) or block.get("type") != "data":
        return None
    source = block.get("source")
    if not is_object(source) or set(source) != _SOURCE_KEYS or source["type"] != "base64":
        return None
    return source if isinstance(source["data"], str) else None


def _renamed(source: Mapping[str, Any], old: str, new: str, text: str) -> dict[str, Any]:
    """Return AgentScope's *source* with *text* under *new* in place of *old*, and the type to match."""
    kind = "url" if new == "url" else "base64"
    renamed = {new if key == old else key: value for key, value in source.items()}
    return {**renamed, new: text, "type": kind}


def _value_at(value: Any, at: KeyPath) -> Any:
    for key in at:
        value = value[key]
    return value


def _with_value(value: Any, at: KeyPath, leaf: object) -> Any:
    """Return *value* with *leaf* at *at*; copies only the objects on the way."""
    *way, last = at
    root = holder = _copy(value)
    for key in way:
        holder[key] = _copy(holder[key])
        holder = holder[key]
    holder[last] = leaf
    return root


def _copy(value: Any) -> Any:
    return dict(value) if is_object(value) else list(value)
