"""Base64 payloads inside a message's JSON: found, taken out, put back.

A payload is found only where a provider or a framework expects one: a data URL under ``url``, ``uri``, ``image_url`` or
``file_data``, and ``data`` or ``base64`` beside ``type: base64``, ``format``, a media type, or the mark of Bedrock's
bytes. Text elsewhere stays text, even if it looks like base64. A payload is taken out only if its base64 is canonical;
otherwise putting it back would not give the same JSON.
"""

import base64
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from buoyline.errors import MessageError
from buoyline.messages.jsonl import is_array, is_object, model_fields, with_changed
from buoyline.messages.model import USUAL_ALPHABET, Base64
from buoyline.messages.parts import data_url, guessed_media_type, string

# Bytes within JSON, spelled as Strands' session managers spell them: an object with the mark below and the base64
# text under ``data``. Source: ``encode_bytes_values`` and ``decode_bytes_values`` of `strands.types.session`.

BYTES_MARK: Final = "__bytes_encoded__"


def encode_bytes(value: Any) -> Any:
    """Return *value* with all bytes, and numbers that JSON lacks, spelled; see `with_changed`."""
    return with_changed(value, _encoded)


def decode_bytes(value: Any) -> Any:
    """Undo `encode_bytes`; an object with the mark but without base64 stays as it is."""
    return with_changed(value, _decoded)


def encoded_payload(value: object) -> str | None:
    """Return the base64 text of spelled bytes, or the reference in its place; None for any other value."""
    match value:
        case {"__bytes_encoded__": True, "data": str(text)}:
            return text
        case _:
            return None


def _encoded(leaf: object) -> object:
    if isinstance(leaf, (bytes, bytearray)):
        return {BYTES_MARK: True, "data": base64.b64encode(leaf).decode("ascii")}
    # Python's `json`, with which models' arguments are read, takes NaN for a number.
    return str(leaf) if isinstance(leaf, float) and not math.isfinite(leaf) else leaf


def _decoded(value: object) -> object:
    spelled = encoded_payload(value)
    try:
        return value if spelled is None else base64.b64decode(spelled, validate=True)
    except ValueError:
        return value


KeyPath: TypeAlias = tuple[str | int, ...]
"""Keys and indexes that lead from a message's root to a value in it; never empty."""

_URL_KEYS = frozenset({"url", "uri", "file_data", "image_url"})
_INLINE = "inline_data"
"""Where Gemini has payloads."""

_BASE64_KEYS = frozenset({"data", "base64"})
_KEYS = _URL_KEYS | _BASE64_KEYS
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


class PayloadText(NamedTuple):
    """A text where a provider expects a payload.

    Attributes:
        media_type: Empty if it is not known.
        start: Of the base64.
        may_be_urlsafe: It may have the alphabet for URLs, and comes back in the usual one; pydantic reads both.
    """

    media_type: str
    start: int
    may_be_urlsafe: bool = False


def _payloads_in(value: object, at: KeyPath, format_name: str) -> Iterator[tuple[KeyPath, str, str, bytes]]:
    """Yield place, head, media type and content of each payload, in document order."""
    if is_object(value):
        for key, child in value.items():
            carrier = payload_text_of(key, child, value, format_name) if key in _KEYS else None
            if carrier is not None:
                text = child[carrier.start :]
                if content := _canonical(text.translate(USUAL_ALPHABET) if carrier.may_be_urlsafe else text):
                    yield (*at, key), child[: carrier.start], carrier.media_type, content
            elif type(child) not in _LEAVES:
                yield from _payloads_in(child, (*at, key), format_for(key, value, format_name))
    elif is_array(value):
        for index, child in enumerate(value):
            yield from _payloads_in(child, (*at, index), "")


def format_for(key: str, siblings: Mapping[str, Any], format_name: str) -> str:
    """Return the format of the value under *key* of *siblings*: Bedrock names it beside the source of its bytes.

    *format_name* is that of the object itself; it may be empty.
    """
    if key == "source":
        return string(siblings.get("format"))
    return _INLINE if key == _INLINE else format_name if key == "bytes" else ""


def payload_text_of(  # noqa: PLR0911 - one for each form
    key: str, value: object, siblings: Mapping[str, Any], format_name: str = ""
) -> PayloadText | None:
    """Return facts about *value* if a payload is expected under *key* of the object *siblings*; decodes nothing.

    *format_name* is that of the object: see `format_for`.
    """
    if key in _URL_KEYS:
        found = data_url(value)
        return None if found is None else PayloadText(*found)
    match siblings if key in _BASE64_KEYS and isinstance(value, str) else None:
        case {"type": "base64"}:
            return PayloadText(str(siblings.get("media_type", "")), 0)
        case {"mime_type": str(media_type), "type": "image" | "audio" | "video" | "file"} | {
            "media_type": str(media_type),
            "kind": "binary",
        }:
            return PayloadText(media_type, 0, may_be_urlsafe=True)
        case {"mime_type": str(media_type)} if format_name == _INLINE:
            return PayloadText(media_type, 0, may_be_urlsafe=True)
        case {"__bytes_encoded__": True}:
            return PayloadText(guessed_media_type(format_name) if format_name else "", 0)
        case {"format": str(audio)}:
            return PayloadText(f"audio/{audio}", 0)
        case _:
            return None


def take_out(value: Any, put: Callable[[bytes, str], str]) -> tuple[Any, tuple[Reference, ...]]:
    """Return a message's JSON value with references in place of its payloads, and the references in document order.

    Without payloads it is *value* itself, which is never changed. *put* stores the decoded bytes of a media type, and
    returns the reference. The source of AgentScope's data block becomes one of its own type for URLs, as AgentScope's
    workspace has it.

    Raises:
        MessageError: *value* is nested more deeply than Python's stack.
    """
    try:
        payloads = [*_payloads_in(value, (), "")]
    except RecursionError as error:
        raise MessageError("nested more deeply than Python's stack") from error
    references: list[Reference] = []
    for at, head, media_type, content in payloads:
        reference = put(content, media_type)
        if at[-2:] == ("source", "data") and (source := _base64_source(_value_at(value, at[:-2]))) is not None:
            references.append(Reference((*at[:-1], "url"), head, reference))
            value = _with_value(value, at[:-1], _renamed(source, "data", "url", reference))
        else:
            references.append(Reference(at, head, reference))
            value = _with_value(value, at, reference)
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
        reference = put(payload, string(source["media_type"]))
        value = {**plain, "source": _renamed(source, "data", "url", reference)}
    return value if fields is None else block.__class__.model_validate(value)


def put_back(value: Any, references: tuple[Reference, ...], get: Callable[[str], bytes]) -> Any:
    """Undo `take_out`; *get* returns the bytes of a reference."""
    for reference in references:
        payload = base64.b64encode(get(reference.reference)).decode("ascii")
        if reference.at[-1] == "url" and not reference.head:
            at = reference.at[:-1]
            value = _with_value(value, at, _renamed(_value_at(value, at), "url", "data", payload))
        else:
            value = _with_value(value, reference.at, reference.head + payload)
    return value


def _canonical(text: str) -> bytes:
    """Return what *text* spells if its base64 is canonical, else nothing."""
    try:
        content = base64.b64decode(text, validate=True)
    except ValueError:
        return b""
    return content if base64.b64encode(content) == text.encode("ascii") else b""


def _base64_source(block: Any) -> Mapping[str, Any] | None:
    """Return the source of AgentScope's data block if it holds the payload; None for every other block."""
    match block:
        case {"type": "data", "source": {"type": "base64", "data": str(), "media_type": _, **others} as source}:
            return None if others else source
        case _:
            return None


def _renamed(source: Mapping[str, Any], old: str, new: str, text: str) -> dict[str, Any]:
    """Return AgentScope's *source* with *text* under *new* in place of *old*, and the type to match."""
    renamed = {new if key == old else key: value for key, value in source.items()}
    return {**renamed, new: text, "type": "url" if new == "url" else "base64"}


def _value_at(value: Any, at: KeyPath) -> Any:
    for key in at:
        value = value[key]
    return value


def _with_value(value: Any, at: KeyPath, leaf: object) -> Any:
    """Return *value* with *leaf* at *at*; copies only the objects on the way."""
    if not at:
        return leaf
    copy: Any = dict(value) if is_object(value) else list(value)
    copy[at[0]] = _with_value(copy[at[0]], at[1:], leaf)
    return copy
