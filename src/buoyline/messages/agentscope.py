"""AgentScope's dialect: its `Msg` objects, and the JSON that its own ``model_dump_json`` makes of them.

Source: ``agentscope.message`` of 2.0.10. One assistant message holds a whole reply: rounds of calls and results, and
hints between them, which go to the model as user messages. AgentScope cuts one message into two with one id, so an id
does not identify a message. This module never imports AgentScope: it knows an object by its fields, and builds a new
one with the classes of the object at hand.
"""

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from buoyline.messages import parts
from buoyline.messages.dialect import Blocks, Dialect, plain_fields, role_of, speaker_of
from buoyline.messages.jsonl import is_array, is_object, spell
from buoyline.messages.model import (
    Losses,
    Media,
    Message,
    Note,
    Part,
    Reasoning,
    ResultPart,
    Role,
    ToolCall,
    ToolResult,
    Turn,
)
from buoyline.messages.parts import base64_of

_MESSAGE_FIELDS = frozenset({"name", "role", "content", "id", "created_at"})
_RESULT_FIELDS = frozenset({"type", "id", "name", "output"})
_FAILED = frozenset({"error", "denied", "interrupted"})
_NO_TIME: Final = "1970-01-01T00:00:00"


class AgentScope(Dialect):
    """Messages as AgentScope's agents hold them in ``agent.state.context``."""

    name = "agentscope"

    def detects(self, message: object) -> bool:
        """Return whether *message* is a `Msg`, or an object with its fields."""
        return _field_names(message) >= _MESSAGE_FIELDS

    def view(self, message: Any) -> Message:
        """Read *message*: one with only results reads as role ``tool``, one with only hints as role ``user``.

        The texts of a hint are one note. A name that repeats the role is dropped.
        See `Dialect.view`.
        """
        found = plain_fields(message)
        role = role_of(found)
        content = parts.blocks_of(found.get("content"))
        held = _field(message, "content")
        natives = content if is_object(message) or not is_array(held) else held
        read = tuple(map(_part, content, natives))
        name = parts.string(found.get("name"))
        only_hints = bool(content) and all(_field(block, "type") == "hint" for block in content)
        speaker: Role = "user" if only_hints else speaker_of(role, read)
        return Message(speaker, read, "" if name == role else name)

    def result_in(self, block: object) -> ToolResult | None:
        """Read a `ToolResultBlock`, or its JSON; see `Dialect.result_in`."""
        return _result(plain_fields(block)) if _is_result(block) else None

    def from_json(self, value: Mapping[str, Any]) -> Any:
        """Return the `Msg` whose JSON is *value*, or a copy of *value* if AgentScope is not loaded or refuses it."""
        module = sys.modules.get("agentscope.message")
        try:
            return dict(value) if module is None else module.Msg.model_validate(value)
        except ValueError:
            # A message of another program or version: going on with its JSON is better than not going on.
            return dict(value)

    def with_results(self, message: Any, results: Mapping[int, Blocks]) -> Any:
        """Return a copy whose n-th tool result has other output. Text stays text if a single text replaces it."""
        content = list(_field(message, "content"))
        places = [place for place, block in enumerate(content) if _is_result(block)]
        for number, blocks in results.items():
            content[places[number]] = _with_output(content[places[number]], blocks)
        return _changed(message, "content", content)

    def with_content(self, message: Any, blocks: Blocks) -> Any:
        """Return a copy of *message* whose content consists of *blocks*; a text that replaces a hint is a hint."""
        return _changed(message, "content", _rebuilt(message, _field(message, "content"), blocks))

    def holds(self, part: Part, role: Role) -> bool:
        """Return whether there is a place for *part*: media need bytes or a URL, and no system message."""
        is_somewhere = isinstance(part, Media) and (part.payload is not None or "://" in part.source)
        return not isinstance(part, Media) or (is_somewhere and role != "system")

    def write(self, turns: Sequence[Turn], losses: Losses) -> Iterator[Any]:
        """Write a message for each turn; results are the assistant's, as in a reply that AgentScope has cut.

        The same turns always give the same message: ids are hashes, and there is no time.
        """
        del losses
        names = {call.call_id: call.name for turn in turns for call in turn.calls}
        for turn in turns:
            role = "assistant" if turn.role == "tool" else turn.role
            content = [_written(part, names) for part in turn.parts]
            message_id = _hash(f"{turn.number} {role} {spell(content)}")
            _identify(content, message_id)
            fields = {"name": turn.name or role, "content": content, "role": role, "id": message_id}
            yield self.from_json({**fields, "created_at": _NO_TIME})


def _field(value: Any, name: str) -> Any:
    return value.get(name) if is_object(value) else getattr(value, name, None)


def _field_names(value: object) -> AbstractSet[str]:
    """Return the keys of an object, or the names of a model's fields, read off its class; else nothing."""
    if is_object(value):
        return value.keys()
    found = getattr(type(value), "model_fields", None)
    return found.keys() if is_object(found) else frozenset()


def _is_result(block: object) -> bool:
    return _field_names(block) >= _RESULT_FIELDS and _field(block, "type") == "tool_result"


def _part(block: Any, native: object) -> Part:
    match block:
        case {"type": "tool_call"}:
            return parts.call(block.get("id"), block.get("name"), block.get("input", ""))
        case {"type": "tool_result"}:
            return _result(block, None if native is block else native)
        case {"type": "thinking"}:
            hidden = block.get("redacted_thinking_data")
            return parts.reasoning(block.get("thinking"), block.get("signature"), hidden)
        case {"type": "hint", "hint": hint}:
            said = parts.joined([], hint)
            return Note(said.text) if said is not None else parts.simple(block)
        case _:
            return _inner_part(block)


def _inner_part(block: Any) -> ResultPart:
    """Read a block that a result may hold."""
    match block:
        case {"type": "data", "source": {**source}}:
            media_type = parts.string(source.get("media_type"))
            payload, url = source.get("data"), source.get("url")
            return parts.media(_kind(media_type), media_type, payload=payload, source=url, name=block.get("name"))
        case _:
            return parts.simple(block)


def _kind(media_type: str) -> str:
    kind = media_type.partition("/")[0]
    return kind if kind in ("image", "audio", "video") else "document"


def _result(block: Mapping[str, Any], native: Any = None) -> ToolResult:
    call_id, name, is_error = block.get("id"), block.get("name"), block.get("state") in _FAILED
    return parts.result(call_id, block.get("output"), _inner_part, name=name, is_error=is_error, native=native)


def _changed(holder: Any, key: str, value: object) -> Any:
    """Return a copy of a message or block with *value* under *key*, in which new blocks may be dicts.

    A model's own class turns dicts into blocks, and takes blocks as they are.
    """
    if is_object(holder):
        return {**holder, key: value}
    model: Any = holder.__class__
    made = model.model_validate({**dict(holder), key: value})
    return holder.model_copy(update={key: getattr(made, key)})


def _with_output(result: Any, blocks: Blocks) -> Any:
    output = _field(result, "output")
    if is_array(output):
        return _changed(result, "output", _rebuilt(result, output, blocks))
    if len(blocks) == 1 and isinstance(blocks[0], str):
        return _changed(result, "output", blocks[0])
    whole = _said(result, parts.string(output))
    return _changed(result, "output", _rebuilt(result, [whole], blocks))


def _rebuilt(holder: Any, old: Sequence[Any], blocks: Blocks) -> list[Any]:
    """Return *blocks*; a new text takes the place of one that goes, or has the id of *holder*."""
    gone = iter([block for place, block in enumerate(old) if place not in blocks])
    return [_said(next(gone, holder), block) if isinstance(block, str) else old[block] for block in blocks]


def _said(origin: Any, text: str) -> Any:
    """Return a text block with the id of the block that it replaces, as AgentScope does when it cuts one, or a hint."""
    if _field(origin, "type") == "hint":
        return _changed(origin, "hint", text)
    block = {"type": "text", "text": text, "id": parts.string(_field(origin, "id"))}
    return {**block, "created_at": parts.string(_field(origin, "created_at")), "finished_at": None}


# Writing.


def _written(part: Any, names: Mapping[str, str]) -> dict[str, Any]:
    match part:
        case Reasoning():
            extra = {"signature": part.signature, "redacted_thinking_data": part.hidden}
            return {"type": "thinking", "thinking": part.text} | {key: text for key, text in extra.items() if text}
        case ToolCall():
            named = {"type": "tool_call", "id": part.call_id, "name": part.name}
            return {**named, "input": part.arguments, "state": "finished"}
        case ToolResult():
            output = [_written(inner, names) for inner in part.parts]
            named = {"type": "tool_result", "id": part.call_id, "name": part.name or names.get(part.call_id, "")}
            return {**named, "output": output, "state": "error" if part.is_error else "success"}
        case Media():
            return _written_data(part)
        case _:
            return {"type": "text", "text": part.text}


def _written_data(media: Media) -> dict[str, Any]:
    media_type = media.media_type
    if not media_type or _kind(media_type) != media.kind:
        media_type = "application/octet-stream" if media.kind == "document" else f"{media.kind}/*"
    if media.payload is None:
        source = {"type": "url", "url": media.source, "media_type": media_type}
    else:
        source = {"type": "base64", "data": base64_of(media), "media_type": media_type}
    return {"type": "data", "source": source, "name": media.name or None}


def _identify(content: Sequence[dict[str, Any]], message_id: str) -> None:
    """Give each block an id, if it is no call or result, and a time."""
    for place, block in enumerate(content):
        block |= {"id": block.get("id", _hash(f"{message_id} {place}")), "created_at": _NO_TIME}
        if block["type"] == "tool_result":
            _identify(block["output"], f"{message_id} {place}")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
