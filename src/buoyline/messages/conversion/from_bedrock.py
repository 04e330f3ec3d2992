"""Reading messages of Bedrock and Strands for a conversion; see `buoyline.messages.bedrock` for the form."""

import base64
from collections.abc import Iterator, Mapping
from typing import Any, Final

from buoyline.messages.bedrock import Bedrock
from buoyline.messages.conversion.blocks import (
    Answered,
    Block,
    CachePoint,
    Called,
    Medium,
    Said,
    Thought,
    Turn,
    Value,
    turns_of,
)
from buoyline.messages.conversion.losses import Losses
from buoyline.messages.conversion.media import foreign, text_document
from buoyline.messages.encoded import encode_bytes, encoded_payload
from buoyline.messages.formats import media_type_of
from buoyline.messages.jsonl import is_object, spell
from buoyline.messages.message import Text
from buoyline.messages.native import blocks_of, own_fields, role_of, text_of, text_or_empty

_MEDIA: Final = ("image", "audio", "document", "video")


def read(message: Any, number: int, losses: Losses) -> list[Turn]:
    """Return the turns of *message*.

    Raises:
        MessageError: It is no message of this dialect.
    """
    found = own_fields(message)
    losses.note_fields(number, found, ("role", "content", "metadata"))
    blocks = [made for block in blocks_of(found.get("content")) for made in _blocks(block, number, losses)]
    return turns_of(role_of(found), blocks, number, metadata=_custom(found.get("metadata"), number, losses))


def _custom(metadata: Any, number: int, losses: Losses) -> Mapping[str, Any]:
    """Return what somebody has attached; what Strands notes of a model's call is its own."""
    if not is_object(metadata):
        return {}
    losses.note_fields(number, metadata, ("custom",), "metadata")
    custom = metadata.get("custom")
    return custom if is_object(custom) else {}


def _blocks(block: Any, number: int, losses: Losses) -> Iterator[Block]:
    match block:
        case {"toolUse": use} if is_object(use):
            losses.note_fields(number, use, ("toolUseId", "name", "input"), "a call")
            spelled = spell(encode_bytes(use.get("input", {})))
            yield Called(text_or_empty(use.get("toolUseId")), text_or_empty(use.get("name")), spelled)
        case {"toolResult": result} if is_object(result):
            yield _result(result, number, losses)
        case {"reasoningContent": thought} if is_object(thought):
            yield from _thoughts(thought, number, losses)
        case {"cachePoint": point} if is_object(point):
            losses.note_fields(number, point, ("type", "ttl"), "cachePoint")
            yield CachePoint(text_or_empty(point.get("ttl")))
        case _:
            made = _inner(block, number, losses)
            if made is not None:
                yield made


def _result(result: Mapping[str, Any], number: int, losses: Losses) -> Answered:
    losses.note_fields(number, result, ("toolUseId", "status", "content"), "a result")
    given = [_inner(inner, number, losses) for inner in blocks_of(result.get("content"))]
    blocks = tuple(inner for inner in given if inner is not None)
    return Answered(text_or_empty(result.get("toolUseId")), "", blocks, is_error=result.get("status") == "error")


def _thoughts(thought: Mapping[str, Any], number: int, losses: Losses) -> Iterator[Thought]:
    losses.note_fields(number, thought, ("reasoningText", "redactedContent"), "reasoning")
    if is_object(shown := thought.get("reasoningText")):
        losses.note_fields(number, shown, ("text", "signature"), "reasoning")
        yield Thought(text_or_empty(shown.get("text")), text_or_empty(shown.get("signature")))
    hidden = thought.get("redactedContent")
    if hidden is not None:
        yield Thought("", hidden=_spelled(hidden))


def _spelled(hidden: Any) -> str:
    if isinstance(hidden, (bytes, bytearray)):
        return base64.b64encode(hidden).decode("ascii")
    return encoded_payload(hidden) or text_or_empty(hidden)


def _inner(block: Any, number: int, losses: Losses) -> Said | Value | Medium | None:
    """Read a block that may stand in a result."""
    bare = block.get("text") if is_object(block) and "type" not in block else None
    text = bare if isinstance(bare, str) else text_of(block)
    if text is not None:
        if is_object(block):
            losses.note_fields(number, block, ("type", "text"), "a text")
        return Said(text) if text else None
    if not is_object(block) or "type" in block:
        return _foreign(block, number, losses)
    if "json" in block:
        return Value(encode_bytes(block["json"]))
    for kind in _MEDIA:
        if is_object(held := block.get(kind)) and is_object(held.get("source")):
            return _medium(kind, held, number, losses)
    return _foreign(block, number, losses)


def _medium(kind: Any, held: Mapping[str, Any], number: int, losses: Losses) -> Medium:
    losses.note_fields(number, held, ("format", "name", "source"), kind)
    source: Mapping[str, Any] = held["source"]
    name = text_or_empty(held.get("name"))
    if isinstance(text := source.get("text"), str):
        return text_document(text, name)
    if "content" in source:
        losses.note(number, "blocks of a document", "its texts are one plain text now")
        inner = [block.get("text") if is_object(block) else None for block in blocks_of(source["content"])]
        return text_document("\n".join(text for text in inner if isinstance(text, str)), name)
    media_type = media_type_of(kind, text_or_empty(held.get("format")))
    payload = source.get("bytes")
    if isinstance(payload, (bytes, bytearray)):
        return Medium(kind, media_type, bytes(payload), name=name)
    if (spelled := encoded_payload(payload)) is not None:
        return Medium(kind, media_type, spelled, name=name)
    return Medium(kind, media_type, None, _location(source, number, losses), name)


def _location(source: Mapping[str, Any], number: int, losses: Losses) -> str:
    for key in ("location", "s3Location"):
        if is_object(location := source.get(key)):
            losses.note_fields(number, location, ("type", "uri"), "a location")
            return text_or_empty(location.get("uri"))
    return ""


def _foreign(block: Any, number: int, losses: Losses) -> Said:
    """Read a block of a kind that no other dialect has: what a view can read of it is text."""
    kind = text_or_empty(block.get("type")) or next(iter(block), "") if is_object(block) else type(block).__name__
    view = Bedrock().view({"role": "user", "content": [block]}).parts[0]
    if not isinstance(view, Text) or not view.text:
        return foreign(kind, number, losses)
    losses.note(number, f"block of type {kind!r}", "it is plain text now")
    return Said(view.text)
