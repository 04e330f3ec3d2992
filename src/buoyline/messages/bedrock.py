"""The dialect of Bedrock's Converse API, which Strands' messages have.

Source: Amazon's ``Message`` and ``ContentBlock`` of the Converse API and `strands.types.content`: ``role`` and
``content``, a list of blocks, each with one key that names its kind. Payloads are bytes; JSON spells them as
Strands' session managers do (`strands.types.session.encode_bytes_values`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from buoyline.messages.dialect import (
    Blocks,
    Dialect,
    blocks_of,
    fields,
    is_blank,
    media,
    neighbors_joined,
    own_fields,
    plain_fields,
    role_of,
    simple_part,
    speaker_of,
    text_or_empty,
)
from buoyline.messages.formats import (
    DOCUMENT_FORMATS,
    IMAGE_FORMATS,
    bytes_of,
    document_text,
    format_named,
    media_type_of,
)
from buoyline.messages.jsonl import is_array, is_object, parse, spell
from buoyline.messages.losses import Losses
from buoyline.messages.model import (
    Base64,
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
_KEYS = _MEDIA | {
    "cachePoint",
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
        return Message(speaker_of(role, parts), parts)

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

    def in_turns(self, messages: Sequence[Any]) -> list[Any]:
        """Let neighbors of one role share a message: Bedrock refuses all others."""
        return neighbors_joined(super().in_turns(messages))

    def write(self, turns: Sequence[Turn], losses: Losses) -> Iterator[dict[str, Any]]:
        """Write one message for each turn; texts that are blank, which Bedrock refuses, are left out."""
        for turn in turns:
            parts = [part for part in turn.parts if not is_blank(part)]
            content = [block for part in parts for block in _written(part, losses.at(turn.number))]
            if content:
                yield {"role": "assistant" if turn.role == "assistant" else "user", "content": content}


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
        case "reasoningContent" if is_object(inner) and (hidden := inner.get("redactedContent")) is not None:
            spelled = encode_bytes(hidden)
            return Reasoning("", hidden=encoded_payload(spelled) or text_or_empty(spelled))
        case "cachePoint":
            return CachePoint()
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
    text = source.get("text")
    said = text if isinstance(text, str) else _joined(source.get("content"))
    if said is not None:
        return Text(join_texts([name, said]) if name and isinstance(name, str) else said)
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


# Writing.


def _written(part: Part, losses: Losses) -> Iterator[dict[str, Any]]:
    match part:
        case Reasoning():
            if part.text or part.signature:
                signed = {"signature": part.signature} if part.signature else {}
                yield {"reasoningContent": {"reasoningText": {"text": part.text, **signed}}}
            if part.hidden:
                hidden = Base64(part.hidden).decoded() or part.hidden.encode("utf-8", "surrogatepass")
                yield {"reasoningContent": {"redactedContent": hidden}}
        case ToolCall():
            arguments = losses.object_of(part.arguments)
            yield {"toolUse": {"toolUseId": part.call_id, "name": part.name, "input": arguments}}
        case ToolResult():
            content = [_written_content(inner, losses) for inner in part.parts if not is_blank(inner)]
            status = "error" if part.is_error else "success"
            yield {"toolResult": {"toolUseId": part.call_id, "status": status, "content": content}}
        case _:
            yield _written_content(part, losses)


def _written_content(part: Part, losses: Losses) -> dict[str, Any]:
    match part:
        case Json(json):
            return {"json": parse(json)}
        case Media():
            why = _refused(part)
            return {part.kind: _written_media(part)} if why is None else {"text": losses.left_out(part, why).text}
        case _:
            return {"text": text_in(part)}


def _refused(media: Media) -> str | None:
    """Return why a message cannot hold *media*, ``""`` for no special reason; None if it can."""
    if media.payload is None:
        return None if media.source.startswith("s3://") and _format(media) else "its bytes are elsewhere"
    if not _format(media):
        return ""
    return "its payload is no base64" if bytes_of(media) is None else None


def _written_media(media: Media) -> dict[str, Any]:
    named = {"name": _NAME.sub("-", media.name).strip()[:200] or "document"} if media.kind == "document" else {}
    if media.payload is None:
        source: dict[str, Any] = {"location": {"type": "s3", "uri": media.source}}
    else:
        source = {"bytes": bytes_of(media)}
    return {"format": _format(media), **named, "source": source}


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
