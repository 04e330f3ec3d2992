"""The dialect of Bedrock's Converse API, which Strands' messages have.

Source: Amazon's ``Message`` and ``ContentBlock`` of the Converse API and `strands.types.content`: ``role`` and
``content``, a list of blocks, each with one key that names its kind. Payloads are bytes; JSON spells them as
Strands' session managers do (`strands.types.session.encode_bytes_values`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from buoyline.messages import parts
from buoyline.messages.dialect import OPENING, BlockDialect, Blocks, fields, own_fields, plain_fields
from buoyline.messages.jsonl import is_array, is_object, parse
from buoyline.messages.model import (
    Base64,
    CachePoint,
    Losses,
    Media,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Turn,
)
from buoyline.messages.parts import KNOWN_FORMATS, format_named, media_type_of
from buoyline.messages.payloads import decode_bytes, encode_bytes, encoded_payload

_MEDIA: Final = ("image", "audio", "document", "video")
_KEYS: Final = frozenset(
    {
        *_MEDIA,
        *("cachePoint", "citationsContent", "guardContent", "reasoningContent", "searchResult"),
        *("text", "toolResult", "toolUse"),
    }
)
_NAME: Final = re.compile(r"[^a-zA-Z0-9\s()\[\]-]|\s(?=\s)")
"""Not allowed in a document's name: Bedrock takes letters, digits, single spaces, hyphens and brackets."""


class Bedrock(BlockDialect):
    """Messages as Bedrock's Converse API and Strands' agents have them."""

    name = "bedrock"
    text_type = ""

    def detects(self, message: object) -> bool:
        """Return whether *message* holds a block whose key is its kind; other dialects name it under ``type``."""
        found = fields(message)
        if found is None or found.get("role") not in ("user", "assistant"):
            return False
        content = found.get("content")
        return is_array(content) and any(_key_of(block) is not None for block in content)

    def part(self, block: Any) -> Part:
        """Read one block; see `BlockDialect.part`."""
        match block if _key_of(block) else None:
            case {"toolUse": {**call}}:
                return parts.call(call.get("toolUseId"), call.get("name"), encode_bytes(call.get("input", {})))
            case {"toolResult": {**result}}:
                is_error = result.get("status") == "error"
                return parts.result(result.get("toolUseId"), result.get("content"), _inner_part, is_error=is_error)
            case {"reasoningContent": {"reasoningText": {**thought}}}:
                return parts.reasoning(thought.get("text"), thought.get("signature"))
            case {"reasoningContent": {"redactedContent": hidden}}:
                spelled = encode_bytes(hidden)
                return parts.reasoning("", "", encoded_payload(spelled) or spelled)
            case {"cachePoint": _}:
                return CachePoint()
            case _:
                return _inner_part(block)

    def is_result(self, block: Any) -> bool:
        """Return whether *block* is a ``toolResult`` block."""
        return _key_of(block) == "toolResult"

    def result_in(self, block: object) -> ToolResult | None:
        """Read a result as a tool returns it, or the block of one; see `Dialect.result_in`."""
        is_bare = is_object(block) and block.keys() >= {"toolUseId", "content"} and "role" not in block
        return super().result_in({"toolResult": block} if is_bare else block)

    def to_json(self, message: Any) -> dict[str, Any]:
        """Return the message's own fields, bytes as Strands' session managers write them.

        Raises:
            MessageError: It is no object.
        """
        return dict(plain_fields(encode_bytes(own_fields(message))))

    def from_json(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return the message whose JSON form is *value*, with its bytes."""
        return cast("dict[str, Any]", decode_bytes(dict(value)))

    def in_turns(self, messages: Sequence[Any], opening: str = OPENING) -> Sequence[Any]:
        """Let neighbors of one role share a message: Bedrock refuses all others."""
        return self.joined(super().in_turns(messages, opening))

    def with_output(self, block: Any, blocks: Blocks) -> Any:
        """Return a copy of a ``toolResult`` block with other content."""
        return {**block, "toolResult": self.with_content(block["toolResult"], blocks)}

    def holds(self, part: Part, role: Role) -> bool:  # noqa: ARG002 - the same in each
        """Return whether there is a place for *part*: text that is not blank, media of known formats."""
        match part:
            case Text():
                return bool(part.text.strip())
            case Media() if part.payload is None:
                return bool(_format(part)) and part.source.startswith("s3://")
            case Media():
                return bool(_format(part)) and part.content() is not None
            case _:
                return True

    def write(self, turns: Sequence[Turn], losses: Losses) -> Iterator[dict[str, Any]]:
        """Write one message for each turn that says something."""
        for turn in turns:
            content = [block for part in turn.parts for block in _written(part, losses.at(turn.number))]
            if content:
                yield {"role": "assistant" if turn.role == "assistant" else "user", "content": content}


def _key_of(block: object) -> str | None:
    """Return the key that names the kind of *block*; None for a block of another dialect."""
    if not is_object(block) or "type" in block:
        return None
    return next((key for key in block if key in _KEYS), None)


def _inner_part(block: Any) -> Part:
    """Read a block that a result may hold into one part."""
    if is_object(block) and "json" in block and "type" not in block:
        return parts.json(encode_bytes(block["json"]))
    kind = _key_of(block)
    if kind is None:
        return parts.simple(block)
    found: Part | None = None
    match block:
        case {"text": str(text)} | {"guardContent": {"text": {"text": str(text)}}}:
            return Text(text)
        case {"citationsContent": {"content": content}}:
            found = parts.joined([], content)
        case {"searchResult": {"content": content, **about}}:
            found = parts.joined([about.get("title"), about.get("source")], content)
        case {"image": {**inner}} | {"audio": {**inner}} | {"document": {**inner}} | {"video": {**inner}}:
            found = _media(kind, inner)
        case _:
            pass
    return found or parts.opaque(kind, encode_bytes(block))


def _media(kind: str, inner: Mapping[Any, Any]) -> Media | Text | None:
    """Return an image, a document or other media, or the text of a text document; None without a source."""
    name, media_type = inner.get("name"), media_type_of(kind, parts.string(inner.get("format")))
    match inner.get("source"):
        case {"text": content} | {"content": content}:
            return parts.joined([name], content)
        case {"location": {**place}} | {"s3Location": {**place}}:
            return parts.media(kind, media_type, source=place.get("uri"), name=name)
        case {**source}:
            payload = source.get("bytes")
            return parts.media(kind, media_type, payload=encoded_payload(payload) or payload, name=name)
        case _:
            return None


# Writing.


def _written(part: Any, losses: Losses) -> Iterator[dict[str, Any]]:
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
            content = [block for inner in part.parts for block in _written(inner, losses)]
            status = "error" if part.is_error else "success"
            yield {"toolResult": {"toolUseId": part.call_id, "status": status, "content": content}}
        case Media():
            yield {part.kind: _written_media(part)}
        case Text():
            yield {"text": part.text}
        case _:
            yield {"json": parse(part.text)}


def _written_media(media: Media) -> dict[str, Any]:
    named = {"name": _NAME.sub("-", media.name).strip()[:200] or "document"} if media.kind == "document" else {}
    at_s3 = {"location": {"type": "s3", "uri": media.source}}
    source = at_s3 if media.payload is None else {"bytes": media.content()}
    return {"format": _format(media), **named, "source": source}


def _format(media: Media) -> str:
    """Return the short name of the format; empty if no block can have it."""
    found = format_named(media.media_type).replace("jpg", "jpeg")
    return found if found in KNOWN_FORMATS.get(media.kind, ()) else ""
