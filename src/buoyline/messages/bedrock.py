"""The dialect of Bedrock's Converse API, which Strands' messages have.

Source: Amazon's ``Message`` and ``ContentBlock`` of the Converse API and `strands.types.content`: ``role`` and
``content``, a list of blocks, each with one key that names its kind. Payloads are bytes; JSON spells them as
Strands' session managers do (`strands.types.session.encode_bytes_values`).
"""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Final, cast

from buoyline.messages.dialect import (
    Blocks,
    Dialect,
    blocks_of,
    fields,
    kind_of,
    media,
    own_fields,
    plain_fields,
    role_of,
    simple_part,
    speaker_of,
    text_of,
    text_or_empty,
    turns_of,
)
from buoyline.messages.formats import (
    DOCUMENT_FORMATS,
    IMAGE_FORMATS,
    bytes_of,
    document_text,
    format_named,
    media_type_of,
    text_document,
)
from buoyline.messages.jsonl import is_array, is_object, parse, spell
from buoyline.messages.losses import Losses
from buoyline.messages.model import (
    CachePoint,
    Json,
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    ResultPart,
    Text,
    ToolCall,
    ToolResult,
    Turn,
    join_texts,
    text_in,
)
from buoyline.messages.payloads import decode_bytes, encode_bytes, encoded_payload

_MEDIA = frozenset({"image", "audio", "document", "video"})
_CACHE_POINT = "cachePoint"
_KEYS = _MEDIA | {
    _CACHE_POINT,
    "citationsContent",
    "guardContent",
    "reasoningContent",
    "searchResult",
    "text",
    "toolResult",
    "toolUse",
}
_NAME: Final = re.compile(r"[^a-zA-Z0-9\s()\[\]-]|\s(?=\s)")
"""Not allowed in a document's name: Bedrock takes letters, digits, single spaces, hyphens and brackets."""


class Bedrock(Dialect):
    """Messages as Bedrock's Converse API and Strands' agents have them."""

    name = "bedrock"
    alternates_roles = True
    has_system_messages = False
    has_cache_points = True

    def detects(self, message: object) -> bool:
        """Return whether *message* holds a block whose key is its kind; other dialects name it under ``type``."""
        found = fields(message)
        if found is None or found.get("role") not in ("user", "assistant"):
            return False
        content = found.get("content")
        return is_array(content) and any(_key_of(block) is not None for block in content)

    def view(self, message: Any) -> Message:
        """Read *message*; one that holds only tool results reads as role ``tool``. See `Dialect.view`."""
        found = own_fields(message)
        role = role_of(found)
        parts = tuple(_part(block) for block in blocks_of(found.get("content")))
        said = [part for part in parts if not (isinstance(part, Opaque) and part.kind == _CACHE_POINT)]
        return Message(speaker_of(role, said), parts)

    def detects_result(self, tool_result: object) -> bool:
        """Return whether *tool_result* is a result as a tool returns it, its block, or a message of this dialect."""
        return _bare_result(tool_result) is not None or self.detects(tool_result)

    def result(self, tool_result: Any) -> Message:
        """Read a result as a tool returns it, the block of one, or a user message that holds exactly one.

        Raises:
            MessageError: It is not one of these.
        """
        bare = _bare_result(tool_result)
        if bare is not None:
            return Message("tool", (_result(bare),))
        return super().result(tool_result)

    def to_json(self, message: Any) -> dict[str, Any]:
        """Return the message's own fields, bytes as Strands' session managers write them.

        Raises:
            MessageError: It is no object.
        """
        return dict(plain_fields(encode_bytes(own_fields(message))))

    def from_json(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return the message whose JSON form is *value*, with its bytes."""
        return cast("dict[str, Any]", decode_bytes(dict(value)))

    def with_results(self, message: Any, results: Mapping[int, Blocks]) -> Any:
        """Return a copy whose n-th ``toolResult`` has other content."""
        found = own_fields(message)
        content = list(blocks_of(found.get("content")))
        places = [place for place, block in enumerate(content) if _key_of(block) == "toolResult"]
        for number, blocks in results.items():
            block = own_fields(content[places[number]])
            content[places[number]] = {**block, "toolResult": self.with_content(block["toolResult"], blocks)}
        return {**found, "content": content}

    def with_content(self, message: Any, blocks: Blocks) -> Any:
        """Return a copy of *message* whose content consists of *blocks*."""
        found = own_fields(message)
        old = blocks_of(found.get("content"))
        made = [{"text": block} if isinstance(block, str) else old[block] for block in blocks]
        return {**found, "content": made}

    def user_message(self, text: str) -> dict[str, Any]:
        """Return a new user message."""
        return {"role": "user", "content": [{"text": text}]}

    def tool_result_message(self, call_id: str, text: str, name: str = "") -> dict[str, Any]:  # noqa: ARG002 - the call has it
        """Return a new user message with one ``toolResult``, which has no place for the tool's name."""
        result = {"toolUseId": call_id, "status": "success", "content": [{"text": text}]}
        return {"role": "user", "content": [{"toolResult": result}]}

    def read(self, message: Any, losses: Losses) -> list[Turn]:
        """Read *message* whole; see `Dialect.read`."""
        found = own_fields(message)
        custom: Mapping[str, Any] = {}
        parts = [part for block in blocks_of(found.get("content")) for part in _read_parts(block, losses)]
        role = role_of(found)
        # Only `custom` is the user's: Strands notes facts about the model's call beside it.
        if is_object(metadata := found.get("metadata")):
            custom = held if is_object(held := metadata.get("custom")) else {}
        return turns_of(role, parts, losses, metadata=custom)

    def in_turns(self, messages: Sequence[Any]) -> list[Any]:
        """Let neighbors of one role share a message: Bedrock refuses all others."""
        made: list[Any] = []
        for role, group in groupby(super().in_turns(messages), key=lambda message: own_fields(message)["role"]):
            first, *others = group
            content = [block for one in (first, *others) for block in blocks_of(own_fields(one).get("content"))]
            made.append({"role": role, "content": content} if others else first)
        return made

    def refuses_media(self, media: Media) -> str | None:
        """Refuse unknown formats, and media elsewhere than on S3."""
        if media.payload is None:
            return None if media.source.startswith("s3://") and _format(media) else "its bytes are elsewhere"
        if not _format(media):
            return ""
        return "its payload is no base64" if bytes_of(media) is None else None

    def refuses_reasoning(self, reasoning: Reasoning) -> None:
        """Accept all reasoning."""

    def write(self, turns: Sequence[Turn], losses: Losses) -> Iterator[dict[str, Any]]:
        """Write the user's text and the tools' results into one message, the model's turns into another."""
        content: list[dict[str, Any]] = []
        custom: dict[str, Any] = {}
        for turn in turns:
            noted = losses.at(turn.number)
            custom |= turn.metadata
            if turn.name:
                noted.note("name of the speaker")
            content += [block for part in turn.parts for block in _written(part, noted)]
        role = "assistant" if turns[0].role == "assistant" else "user"
        yield {"role": role, "content": content} | ({"metadata": {"custom": custom}} if custom else {})


def _key_of(block: object) -> str | None:
    """Return the key that names the kind of *block*; None for a block of another dialect."""
    if not is_object(block) or "type" in block:
        return None
    return next((key for key in block if key in _KEYS), None)


def _bare_result(tool_result: object) -> Mapping[str, Any] | None:
    """Return the result in a ``toolResult`` block, or a result as a tool returns it; None for any other value."""
    if not is_object(tool_result) or "role" in tool_result:
        return None
    inner = tool_result.get("toolResult") if _key_of(tool_result) == "toolResult" else tool_result
    return inner if is_object(inner) and "toolUseId" in inner and "content" in inner else None


def _part(block: object) -> Part:
    kind = _key_of(block)
    inner = block[kind] if kind is not None and is_object(block) else None
    match kind:
        case "toolUse" if is_object(inner):
            call_id, name = text_or_empty(inner.get("toolUseId")), text_or_empty(inner.get("name"))
            return ToolCall(call_id, name, _spelled(inner.get("input", {})))
        case "toolResult" if is_object(inner):
            return _result(inner)
        case "reasoningContent" if is_object(inner) and is_object(thought := inner.get("reasoningText")):
            return Reasoning(text_or_empty(thought.get("text")), text_or_empty(thought.get("signature")))
        case _:
            return _inner_part(block)


def _result(result: Mapping[str, Any]) -> ToolResult:
    parts = tuple(map(_inner_part, blocks_of(result.get("content"))))
    return ToolResult(text_or_empty(result.get("toolUseId")), "", parts, is_error=result.get("status") == "error")


def _inner_part(block: object) -> ResultPart:
    """Read a block that a result may hold into one part."""
    if is_object(block) and "json" in block and "type" not in block:
        return Json(_spelled(block["json"]))
    kind = _key_of(block)
    inner = block[kind] if kind is not None and is_object(block) else None
    if kind in _MEDIA and is_object(inner):
        found = _media(kind, inner)
        if found is not None:
            return found
    text = inner if kind == "text" else _wrapped_text(kind, inner)
    if isinstance(text, str):
        return Text(text)
    return simple_part(block) if kind is None else Opaque(kind, _spelled(block))


def _wrapped_text(kind: str | None, inner: object) -> str | None:
    """Return the text of a block that wraps it, such as citations; None if it has no text."""
    if not is_object(inner):
        return None
    match kind:
        case "guardContent":
            guarded = inner.get("text")
            return guarded.get("text") if is_object(guarded) else None
        case "citationsContent":
            return _joined(inner.get("content"))
        case "searchResult":
            said = _joined(inner.get("content"))
            heading = [text_or_empty(inner.get("title")), text_or_empty(inner.get("source"))]
            return None if said is None else join_texts([*heading, said])
        case _:
            return None


def _joined(content: object) -> str | None:
    if not is_array(content):
        return None
    texts = [block.get("text") if is_object(block) else None for block in content]
    return join_texts([text for text in texts if isinstance(text, str)]) if None not in texts else None


def _media(kind: str, inner: Mapping[str, Any]) -> Media | Text | None:
    """Return an image, a document or other media, or the text of a text document; None without a source."""
    source, name = inner.get("source"), inner.get("name")
    if not is_object(source):
        return None
    if isinstance(text := source.get("text"), str):
        return Text(text)
    if (said := _joined(source.get("content"))) is not None:
        return Text(said)
    media_type = media_type_of(kind, text_or_empty(inner.get("format")))
    payload = source.get("bytes")
    if isinstance(payload, (bytes, bytearray)):
        return Media(kind, media_type, len(payload), "", text_or_empty(name), bytes(payload))
    if (spelled := encoded_payload(payload)) is not None:
        return media(kind, media_type, payload=spelled, name=name)
    location = _location(source)
    return media(kind, media_type, source=location.get("uri") if location else None, name=name)


def _location(source: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found = (source.get(key) for key in ("location", "s3Location"))
    return next(filter(is_object, found), None)


def _spelled(value: object) -> str:
    return spell(encode_bytes(value))


# Reading for a conversion: the same parts, with hidden reasoning, text documents and cache points.


def _read_parts(block: Any, losses: Losses) -> Iterator[Part]:
    match block:
        case {"toolUse": use} if is_object(use):
            yield _part(block)
        case {"toolResult": result} if is_object(result):
            inner = tuple(_read_content(one, losses) for one in blocks_of(result.get("content")))
            yield replace(_result(result), parts=inner)
        case {"reasoningContent": thought} if is_object(thought):
            if is_object(thought.get("reasoningText")):
                yield _part(block)
            hidden = thought.get("redactedContent")
            if isinstance(hidden, (bytes, bytearray)):
                yield Reasoning("", hidden=base64.b64encode(hidden).decode("ascii"))
            elif hidden is not None:
                yield Reasoning("", hidden=encoded_payload(hidden) or text_or_empty(hidden))
        case {"cachePoint": point} if is_object(point):
            yield CachePoint(text_or_empty(point.get("ttl")))
        case _:
            yield _read_content(block, losses)


def _read_content(block: Any, losses: Losses) -> ResultPart:
    part, key = _inner_part(block), _key_of(block)
    if isinstance(part, Json):
        return part
    if text_of(block) is not None or (isinstance(part, Text) and key == "text"):
        return part
    if key in _MEDIA and is_object(held := block[key]) and is_object(source := held.get("source")):
        return _read_document(source, text_or_empty(held.get("name")), losses) or part
    kind = text_or_empty(block.get("type")) or next(iter(block), "") if is_object(block) else kind_of(block)
    if not isinstance(part, Text) or not part.text:
        return losses.foreign(kind)
    losses.note(f"block of type {kind!r}", "it is plain text now")
    return part


def _read_document(source: Mapping[str, Any], name: str, losses: Losses) -> Media | None:
    """Return a document whose *source* is text; None for other media, whose part is that of the view."""
    if isinstance(text := source.get("text"), str):
        return text_document(text, name)
    if "content" in source:
        losses.note("blocks of a document", "its texts are one plain text now")
        texts = [one.get("text") if is_object(one) else None for one in blocks_of(source["content"])]
        return text_document("\n".join(text for text in texts if isinstance(text, str)), name)
    return None


# Writing.


def _written(part: Part, losses: Losses) -> Iterator[dict[str, Any]]:
    match part:
        case Reasoning():
            if part.text or part.signature or not part.hidden:
                signed = {"signature": part.signature} if part.signature else {}
                yield {"reasoningContent": {"reasoningText": {"text": part.text, **signed}}}
            if part.hidden:
                yield {"reasoningContent": {"redactedContent": _hidden(part.hidden, losses)}}
        case ToolCall():
            arguments = losses.object_of(part.arguments)
            yield {"toolUse": {"toolUseId": part.call_id, "name": part.name, "input": arguments}}
        case ToolResult():
            if part.name:
                losses.note("name of a result's tool")
            content = [_written_content(inner, losses) for inner in part.parts]
            status = "error" if part.is_error else "success"
            yield {"toolResult": {"toolUseId": part.call_id, "status": status, "content": content}}
        case CachePoint(ttl):
            yield {"cachePoint": {"type": "default"} | ({"ttl": ttl} if ttl else {})}
        case _:
            yield _written_content(part, losses)


def _hidden(spelled: str, losses: Losses) -> bytes:
    """Return the bytes that base64 spells, or those of the text if encoding them again gives another text."""
    try:
        found = base64.b64decode(spelled, validate=True)
    except ValueError:
        found = b""
    if found and base64.b64encode(found).decode("ascii") == spelled:
        return found
    losses.note("spelling of hidden reasoning", "it is bytes there")
    return spelled.encode("utf-8", "surrogatepass")


def _written_content(part: Part, losses: Losses) -> dict[str, Any]:
    match part:
        case Json(json):
            return {"json": parse(json)}
        case Media():
            return {part.kind: _written_media(part, losses)}
        case _:
            return {"text": text_in(part)}


def _written_media(media: Media, losses: Losses) -> dict[str, Any]:
    named: dict[str, str] = {}
    if media.kind == "document":
        taken = _NAME.sub("-", media.name).strip()[:200] or "document"
        if taken != media.name:
            losses.note(f"name {media.name!r} of a document", f"it is {taken!r} there")
        named = {"name": taken}
    form = _format(media)
    if media.media_type != media_type_of(media.kind, form):
        losses.note(f"media type {media.media_type!r}", f"it is {form!r} there")
    if media.payload is None:
        return {"format": form, **named, "source": {"location": {"type": "s3", "uri": media.source}}}
    return {"format": form, **named, "source": {"bytes": bytes_of(media)}}


def _format(media: Media) -> str:
    """Return the short name of the format; empty if no block can have it."""
    form = format_named(media.media_type)
    match media.kind:
        case "image":
            form = "jpeg" if form == "jpg" else form
            return form if form in IMAGE_FORMATS else ""
        case "document":
            return form if form in DOCUMENT_FORMATS else "txt" if document_text(media) is not None else ""
        case _:
            return form
