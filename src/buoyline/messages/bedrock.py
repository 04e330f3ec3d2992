"""The dialect of Bedrock's Converse API, which Strands' messages have.

Source: Amazon's ``Message`` and ``ContentBlock`` of the Converse API and `strands.types.content`: ``role`` and
``content``, a list of blocks that are told apart by their one key. Payloads are bytes; as JSON they are spelled as
Strands' session managers do it (`strands.types.session.encode_bytes_values`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

from buoyline.errors import MessageError
from buoyline.messages.formats import media_type_of
from buoyline.messages.jsonl import is_array, is_object, spell
from buoyline.messages.model import (
    Blocks,
    Json,
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    ResultPart,
    Role,
    Text,
    ToolCall,
    ToolResult,
    blocks_of,
    fields,
    join_texts,
    media,
    own_fields,
    plain_fields,
    role_of,
    simple_part,
    text_or_empty,
)
from buoyline.messages.payloads import decode_bytes, encode_bytes, encoded_payload

_MediaKind: TypeAlias = Literal["image", "audio", "document", "video"]

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


class Bedrock:
    """Messages as Bedrock's Converse API and Strands' agents have them."""

    name = "bedrock"

    def recognises(self, message: object) -> bool:
        """Tell whether *message* holds a block that has its kind for a key; other dialects name it under ``type``."""
        found = fields(message)
        if found is None or found.get("role") not in ("user", "assistant"):
            return False
        content = found.get("content")
        return is_array(content) and any(_kind_of(block) is not None for block in content)

    def view(self, message: Any) -> Message:
        """Read *message*; one that holds nothing but tool results reads as role ``tool``.

        Raises:
            MessageError: It has no role that we know, content of another form, or a value without a JSON form.
        """
        found = own_fields(message)
        role = role_of(found)
        parts = tuple(_part(block) for block in blocks_of(found.get("content")))
        return Message(_speaker(role, parts), parts)

    def recognises_result(self, tool_result: object) -> bool:
        """Tell whether *tool_result* is a result as a tool gives it, its block, or a message of this dialect."""
        return _bare_result(tool_result) is not None or self.recognises(tool_result)

    def result(self, tool_result: Any) -> Message:
        """Read a result as a tool gives it, the block of one, or a user message that holds exactly one.

        Raises:
            MessageError: It is none of these.
        """
        bare = _bare_result(tool_result)
        if bare is not None:
            return Message("tool", (_result(bare),))
        view = self.view(tool_result)
        if len(view.results) != 1:
            raise MessageError(f"expected one tool result, found {len(view.results)}")
        return view

    def to_json(self, message: Any) -> dict[str, Any]:
        """Return the message's own fields, bytes as Strands' session managers write them.

        Raises:
            MessageError: It is no object.
        """
        return dict(plain_fields(encode_bytes(own_fields(message))))

    def from_json(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return the message that *value* is the JSON form of, with bytes where they belong."""
        return cast("dict[str, Any]", decode_bytes(dict(value)))

    def with_results(self, message: Any, results: Mapping[int, Blocks]) -> Any:
        """Return a copy whose n-th ``toolResult`` has other content."""
        found = dict(own_fields(message))
        content = list(blocks_of(found.get("content")))
        places = [place for place, block in enumerate(content) if _kind_of(block) == "toolResult"]
        for number, blocks in results.items():
            block = dict(own_fields(content[places[number]]))
            result = dict(own_fields(block["toolResult"]))
            block["toolResult"] = {**result, "content": _rebuilt(result.get("content"), blocks)}
            content[places[number]] = block
        found["content"] = content
        return found

    def with_content(self, message: Any, blocks: Blocks) -> Any:
        """Return a copy of *message* whose content consists of *blocks*."""
        found = dict(own_fields(message))
        found["content"] = _rebuilt(found.get("content"), blocks)
        return found

    def user_message(self, text: str) -> dict[str, Any]:
        """Return a new user message."""
        return {"role": "user", "content": [{"text": text}]}

    def tool_result_message(self, call_id: str, text: str, name: str = "") -> dict[str, Any]:  # noqa: ARG002 - the call has it
        """Return a new user message with one ``toolResult``, which has no place for the tool's name."""
        result = {"toolUseId": call_id, "status": "success", "content": [{"text": text}]}
        return {"role": "user", "content": [{"toolResult": result}]}


def _kind_of(block: object) -> str | None:
    """Return the key that says what *block* is; None for a block of another dialect."""
    if not is_object(block) or "type" in block:
        return None
    return next((key for key in block if key in _KEYS), None)


def _bare_result(tool_result: object) -> Mapping[str, Any] | None:
    """Return the result itself of a ``toolResult`` block, or of what a tool has returned; None for all else."""
    if not is_object(tool_result) or "role" in tool_result:
        return None
    inner = tool_result.get("toolResult") if _kind_of(tool_result) == "toolResult" else tool_result
    return inner if is_object(inner) and "toolUseId" in inner and "content" in inner else None


def _rebuilt(content: object, blocks: Blocks) -> list[Any]:
    old = blocks_of(content)
    return [{"text": block} if isinstance(block, str) else old[block] for block in blocks]


def _speaker(role: Role, parts: Sequence[Part]) -> Role:
    """Return ``tool`` where tools alone speak; where a cache ends says nobody."""
    said = [part for part in parts if not (isinstance(part, Opaque) and part.kind == _CACHE_POINT)]
    return "tool" if said and all(isinstance(part, ToolResult) for part in said) else role


def _part(block: object) -> Part:
    kind = _kind_of(block)
    inner = block[kind] if kind is not None and is_object(block) else None
    match kind:
        case "toolUse" if is_object(inner):
            call_id, name = text_or_empty(inner.get("toolUseId")), text_or_empty(inner.get("name"))
            return ToolCall(call_id, name, _spelled(inner.get("input", {})))
        case "toolResult" if is_object(inner):
            return _result(inner)
        case "reasoningContent" if is_object(inner) and is_object(thought := inner.get("reasoningText")):
            return Reasoning(text_or_empty(thought.get("text")))
        case _:
            return _inner_part(block)


def _result(result: Mapping[str, Any]) -> ToolResult:
    parts = tuple(map(_inner_part, blocks_of(result.get("content"))))
    return ToolResult(text_or_empty(result.get("toolUseId")), "", parts, is_error=result.get("status") == "error")


def _inner_part(block: object) -> ResultPart:
    """Read a block of a tool result, or of a message that is neither call nor result: one part each."""
    if is_object(block) and "json" in block and "type" not in block:
        return Json(_spelled(block["json"]))
    kind = _kind_of(block)
    inner = block[kind] if kind is not None and is_object(block) else None
    if kind in _MEDIA and is_object(inner):
        found = _media(cast("_MediaKind", kind), inner)
        if found is not None:
            return found
    text = inner if kind == "text" else _wrapped_text(kind, inner)
    if isinstance(text, str):
        return Text(text)
    return simple_part(block) if kind is None else Opaque(kind, _spelled(block))


def _wrapped_text(kind: str | None, inner: object) -> str | None:
    """Return the text of a block that puts other things around it, such as citations; None where it has none."""
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


def _media(kind: _MediaKind, inner: Mapping[str, Any]) -> Media | Text | None:
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
    return media(kind, media_type, source=_location(source), name=name)


def _location(source: Mapping[str, Any]) -> object:
    for key in ("location", "s3Location"):
        if is_object(location := source.get(key)):
            return location.get("uri")
    return None


def _spelled(value: object) -> str:
    return spell(encode_bytes(value))
