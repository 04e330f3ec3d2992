"""Reading messages of Bedrock and Strands for a conversion; see `buoyline.messages.bedrock` for the form."""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from buoyline.messages.bedrock import Bedrock
from buoyline.messages.conversion.blocks import (
    Answered,
    Block,
    CachePoint,
    Called,
    Losses,
    Medium,
    Said,
    Thought,
    Turn,
    Value,
    object_of,
    turns_of,
)
from buoyline.messages.formats import (
    bytes_of,
    document_text,
    foreign,
    format_named,
    is_document_format,
    is_image_format,
    media_type_of,
    text_document,
)
from buoyline.messages.jsonl import is_object, spell
from buoyline.messages.model import Text, blocks_of, own_fields, role_of, text_of, text_or_empty
from buoyline.messages.payloads import encode_bytes, encoded_payload

_MEDIA: Final = ("image", "audio", "document", "video")


def read(message: Any, number: int, losses: Losses) -> list[Turn]:
    """Return the turns of *message*.

    Raises:
        MessageError: It is no message of this dialect.
    """
    found = own_fields(message)
    losses.note_fields(number, found, ("role", "content", "metadata"))
    blocks = [made for block in blocks_of(found.get("content")) for made in _read_blocks(block, number, losses)]
    return turns_of(role_of(found), blocks, number, metadata=_custom(found.get("metadata"), number, losses))


def _custom(metadata: Any, number: int, losses: Losses) -> Mapping[str, Any]:
    """Return what somebody has attached; what Strands notes of a model's call is its own."""
    if not is_object(metadata):
        return {}
    losses.note_fields(number, metadata, ("custom",), "metadata")
    custom = metadata.get("custom")
    return custom if is_object(custom) else {}


def _read_blocks(block: Any, number: int, losses: Losses) -> Iterator[Block]:
    match block:
        case {"toolUse": use} if is_object(use):
            losses.note_fields(number, use, ("toolUseId", "name", "input"), "a call")
            spelled = spell(encode_bytes(use.get("input", {})))
            yield Called(text_or_empty(use.get("toolUseId")), text_or_empty(use.get("name")), spelled)
        case {"toolResult": result} if is_object(result):
            yield _read_result(result, number, losses)
        case {"reasoningContent": thought} if is_object(thought):
            yield from _read_reasoning(thought, number, losses)
        case {"cachePoint": point} if is_object(point):
            losses.note_fields(number, point, ("type", "ttl"), "cachePoint")
            yield CachePoint(text_or_empty(point.get("ttl")))
        case _:
            made = _read_inner(block, number, losses)
            if made is not None:
                yield made


def _read_result(result: Mapping[str, Any], number: int, losses: Losses) -> Answered:
    losses.note_fields(number, result, ("toolUseId", "status", "content"), "a result")
    given = [_read_inner(inner, number, losses) for inner in blocks_of(result.get("content"))]
    blocks = tuple(inner for inner in given if inner is not None)
    return Answered(text_or_empty(result.get("toolUseId")), "", blocks, is_error=result.get("status") == "error")


def _read_reasoning(thought: Mapping[str, Any], number: int, losses: Losses) -> Iterator[Thought]:
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


def _read_inner(block: Any, number: int, losses: Losses) -> Said | Value | Medium | None:
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
            return _read_medium(kind, held, number, losses)
    return _foreign(block, number, losses)


def _read_medium(kind: Any, held: Mapping[str, Any], number: int, losses: Losses) -> Medium:
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


# Writing messages of Bedrock and Strands; see `buoyline.messages.bedrock` for the form.


_NAME: Final = re.compile(r"[^a-zA-Z0-9\s()\[\]-]|\s(?=\s)")
"""What a document's name may not hold: Bedrock takes letters, digits, single spaces, hyphens and brackets."""

_UNNAMED: Final = "document"


class BedrockTarget:
    """Writes what the user says and what tools give into one message, the model's into another."""

    takes_turns = True
    has_system = False
    has_cache_points = True
    names_results = False
    shows_media = False
    names_media = False

    def refusal(self, medium: Medium) -> str | None:
        """See `Target`: what has its bytes elsewhere has a place only where that is S3."""
        if medium.payload is None:
            return None if medium.url.startswith("s3://") and _format(medium) else "its bytes are elsewhere"
        if not _format(medium):
            return ""
        return "its payload is no base64" if bytes_of(medium) is None else None

    def refuses(self, thought: Thought) -> None:
        """See `Target`: all reasoning has a place."""

    def joins(self, group: Sequence[Turn], turn: Turn) -> bool:
        """See `Target`."""
        return (group[-1].role == "assistant") == (turn.role == "assistant")

    def written(self, group: Sequence[Turn], losses: Losses) -> Iterator[Any]:
        """See `Target`."""
        content: list[dict[str, Any]] = []
        custom: dict[str, Any] = {}
        for turn in group:
            custom |= turn.metadata
            if turn.name:
                losses.note(turn.number, "name of the speaker")
            content += [made for block in turn.blocks for made in _write_blocks(block, turn, losses)]
        role = "assistant" if group[0].role == "assistant" else "user"
        yield {"role": role, "content": content} | ({"metadata": {"custom": custom}} if custom else {})


def _write_blocks(block: Block, turn: Turn, losses: Losses) -> Iterator[dict[str, Any]]:
    match block:
        case Thought():
            yield from _write_reasoning(block, turn, losses)
        case Called():
            arguments = object_of(block.arguments, turn.number, losses)
            yield {"toolUse": {"toolUseId": block.call_id, "name": block.name, "input": arguments}}
        case Answered():
            yield {"toolResult": _write_result(block, turn, losses)}
        case CachePoint(ttl):
            yield {"cachePoint": {"type": "default"} | ({"ttl": ttl} if ttl else {})}
        case _:
            yield _write_inner(block, turn, losses)


def _write_reasoning(thought: Thought, turn: Turn, losses: Losses) -> Iterator[dict[str, Any]]:
    if thought.text or thought.signature or not thought.hidden:
        signed = {"signature": thought.signature} if thought.signature else {}
        yield {"reasoningContent": {"reasoningText": {"text": thought.text, **signed}}}
    if thought.hidden:
        yield {"reasoningContent": {"redactedContent": _hidden(thought.hidden, turn, losses)}}


def _hidden(spelled: str, turn: Turn, losses: Losses) -> bytes:
    """Return the bytes that base64 spells; those of the text itself where it would not be spelled like that again."""
    try:
        found = base64.b64decode(spelled, validate=True)
    except ValueError:
        found = b""
    if found and base64.b64encode(found).decode("ascii") == spelled:
        return found
    losses.note(turn.number, "spelling of hidden reasoning", "it is bytes there")
    return spelled.encode("utf-8", "surrogatepass")


def _write_result(result: Answered, turn: Turn, losses: Losses) -> dict[str, Any]:
    if result.name:
        losses.note(turn.number, "name of a result's tool")
    content = [_write_inner(block, turn, losses) for block in result.blocks]
    return {"toolUseId": result.call_id, "status": "error" if result.is_error else "success", "content": content}


def _write_inner(block: Said | Value | Medium, turn: Turn, losses: Losses) -> dict[str, Any]:
    match block:
        case Said(text):
            return {"text": text}
        case Value(value):
            return {"json": value}
        case Medium():
            return {block.kind: _write_medium(block, turn, losses)}


def _write_medium(medium: Medium, turn: Turn, losses: Losses) -> dict[str, Any]:
    named = {"name": _name(medium.name, turn, losses)} if medium.kind == "document" else {}
    form = _format(medium)
    if medium.media_type != media_type_of(medium.kind, form):
        losses.note(turn.number, f"media type {medium.media_type!r}", f"it is {form!r} there")
    return {"format": form, **named, "source": _source(medium)}


def _source(medium: Medium) -> dict[str, Any]:
    if medium.payload is None:
        return {"location": {"type": "s3", "uri": medium.url}}
    return {"bytes": bytes_of(medium)}


def _format(medium: Medium) -> str:
    """Return the short name of the format; empty where no block may be of it."""
    form = format_named(medium.media_type)
    match medium.kind:
        case "image":
            form = "jpeg" if form == "jpg" else form
            return form if is_image_format(form) else ""
        case "document":
            return form if is_document_format(form) else "txt" if document_text(medium) is not None else ""
        case _:
            return form


def _name(name: str, turn: Turn, losses: Losses) -> str:
    taken = _NAME.sub("-", name).strip()[:200] or _UNNAMED
    if taken != name:
        losses.note(turn.number, f"name {name!r} of a document", f"it is {taken!r} there")
    return taken
