"""AgentScope's dialect: its `Msg` objects, and the JSON that its own ``model_dump_json`` makes of them.

Source: ``agentscope.message`` of 2.0.10. One assistant message holds a whole reply: rounds of calls and results, and
hints between them, which go to the model as user messages. AgentScope cuts one message into two with one id, so an id
does not identify a message. This module never imports AgentScope: it knows an object by its fields, and builds a new
one with the classes of the object at hand.
"""

import hashlib
import mimetypes
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import Any, Final

from buoyline.messages.dialect import (
    Blocks,
    Dialect,
    blocks_of,
    has_known_role,
    media,
    plain_fields,
    role_of,
    simple_part,
    speaker_of,
    text_of,
    text_or_empty,
)
from buoyline.messages.formats import base64_of
from buoyline.messages.jsonl import is_array, is_object, spell
from buoyline.messages.losses import Losses
from buoyline.messages.model import (
    Media,
    Message,
    Note,
    Opaque,
    Part,
    Reasoning,
    ResultPart,
    Role,
    ToolCall,
    ToolResult,
    Turn,
    join_texts,
    text_in,
)

_MESSAGE_FIELDS = frozenset({"name", "role", "content", "id", "created_at"})
_RESULT_FIELDS = frozenset({"type", "id", "name", "output"})
_OWN_BLOCKS: Mapping[str, str] = {"tool_call": "input", "tool_result": "output", "data": "source", "hint": "hint"}
"""Types of block that are unmistakable, each with a field that it must have."""

_FAILED = frozenset({"error", "denied", "interrupted"})
_NO_TIME: Final = "1970-01-01T00:00:00"


class AgentScope(Dialect):
    """Messages as AgentScope's agents hold them in ``agent.state.context``."""

    name = "agentscope"

    def detects(self, message: object) -> bool:
        """Return whether *message* is a `Msg`, or an object with its fields or with a block that only it has."""
        if not is_object(message):
            return _field_names(message) >= _MESSAGE_FIELDS
        content = message.get("content")
        if not has_known_role(message) or not is_array(content) or "tool_calls" in message:
            return False
        return message.keys() >= _MESSAGE_FIELDS or any(map(_is_unmistakable, content))

    def view(self, message: Any) -> Message:
        """Read *message*: one with only results reads as role ``tool``, one with only hints as role ``user``.

        The texts of a hint are one note. A name that repeats the role is dropped.
        See `Dialect.view`.
        """
        found = plain_fields(message)
        role = role_of(found)
        content = blocks_of(found.get("content"))
        held = _field(message, "content")
        natives = content if is_object(message) or not is_array(held) else held
        parts = tuple(map(_part, content, natives))
        name = text_or_empty(found.get("name"))
        only_hints = bool(content) and all(_field(block, "type") == "hint" for block in content)
        speaker: Role = "user" if only_hints else speaker_of(role, parts)
        return Message(speaker, parts, "" if name == role else name)

    def detects_result(self, tool_result: object) -> bool:
        """Return whether *tool_result* is a `ToolResultBlock`, its JSON, or a message of this dialect."""
        return _is_result(tool_result) or self.detects(tool_result)

    def result(self, tool_result: Any) -> Message:
        """Read a `ToolResultBlock`, or a message that holds exactly one.

        Raises:
            MessageError: It is neither.
        """
        if _is_result(tool_result):
            return Message("tool", (_result(plain_fields(tool_result)),))
        return super().result(tool_result)

    def from_json(self, value: Mapping[str, Any]) -> Any:
        """Return the `Msg` whose JSON is *value*, or a copy of *value* if AgentScope is not loaded or refuses it."""
        try:
            return _built(value)
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
        old = list(_field(message, "content"))
        kept = {block for block in blocks if isinstance(block, int)}
        free = (block for at, block in enumerate(old) if at not in kept)
        made = [_said(next(free, message), block) if isinstance(block, str) else old[block] for block in blocks]
        return _changed(message, "content", made)

    def user_message(self, text: str) -> Any:
        """Return a new user message: a `Msg` if AgentScope is loaded, else its JSON.

        The same text always gives the same message: its id is the text's hash, and it has no time.
        """
        name = _hash(text)
        return _built(_fields("user", "user", name, [_text_block(text, name, _NO_TIME)], _NO_TIME))

    def tool_result_message(self, call_id: str, text: str, name: str = "") -> Any:
        """Return a new assistant message with one finished result, in the form that `user_message` has."""
        now = datetime.now(UTC).replace(tzinfo=None).isoformat()
        block: dict[str, Any] = {"type": "tool_result", "id": call_id, "name": name}
        block["output"] = [_text_block(text, uuid.uuid4().hex, now)]
        block |= {"state": "success", "metadata": {}, "created_at": now, "finished_at": now}
        return _built(_fields("assistant", "assistant", uuid.uuid4().hex, [block], now))

    def write(self, turns: Sequence[Turn], losses: Losses) -> Iterator[Any]:
        """Write rounds of calls and results, and the model's words behind them, into one assistant message.

        The same turns always give the same message: ids are hashes, and there is no time.
        """
        answered = {result.call_id for turn in turns for result in turn.results}
        names = {call.call_id: call.name for turn in turns for call in turn.calls}
        replies: list[list[Turn]] = []
        for turn in turns:
            last = replies[-1][-1].role if replies else ""
            is_answer = turn.role == "tool" and last in ("assistant", "tool")
            if is_answer or (turn.role == "assistant" and last == "tool" and replies[-1][0].role == "assistant"):
                replies[-1].append(turn)
            else:
                replies.append([turn])
        for reply in replies:
            first = reply[0]
            role = "assistant" if first.role == "tool" else first.role
            content = [_written(part, answered, losses.at(turn.number)) for turn in reply for part in turn.parts]
            for block in content:
                if block["type"] == "tool_result":
                    block["name"] = block["name"] or names.get(block["id"], "")
            message_id = _hash(f"{first.number} {role} {spell(content)}")
            _identify(content, message_id)
            yield self.from_json(_fields(first.name or role, role, message_id, content, _NO_TIME))


def _field(value: Any, name: str) -> Any:
    return value.get(name) if is_object(value) else getattr(value, name, None)


def _field_names(value: object) -> AbstractSet[str]:
    """Return the keys of an object, or the names of a model's fields, read off its class; else nothing."""
    if is_object(value):
        return value.keys()
    found = getattr(type(value), "model_fields", None)
    return found.keys() if is_object(found) else frozenset()


def _is_unmistakable(block: object) -> bool:
    kind = _field(block, "type")
    return isinstance(kind, str) and kind in _OWN_BLOCKS and _OWN_BLOCKS[kind] in _field_names(block)


def _is_result(block: object) -> bool:
    return _field_names(block) >= _RESULT_FIELDS and _field(block, "type") == "tool_result"


def _part(block: object, native: object) -> Part:
    if is_object(block):
        match block.get("type"):
            case "tool_call":
                return _call(block)
            case "tool_result":
                return _result(block, None if native is block else native)
            case "thinking":
                keys = ("thinking", "signature", "redacted_thinking_data")
                return Reasoning(*(text_or_empty(block.get(key)) for key in keys))
            case "hint" if isinstance(hint := block.get("hint"), str) or is_array(hint):
                texts = [*map(text_of, blocks_of(hint))]
                said = [text for text in texts if text is not None]
                return Note(join_texts(said)) if len(said) == len(texts) else Opaque("hint", spell(block))
            case _:
                pass
    return _inner_part(block)


def _inner_part(block: object) -> ResultPart:
    """Read a block that a result may hold."""
    if not is_object(block) or block.get("type") != "data" or not is_object(source := block.get("source")):
        return simple_part(block)
    media_type, name = text_or_empty(source.get("media_type")), block.get("name")
    if source.get("type") == "base64":
        return media(_kind(media_type), media_type, payload=source.get("data"), name=name)
    return media(_kind(media_type), media_type, source=source.get("url"), name=name)


def _kind(media_type: str) -> str:
    kind = media_type.partition("/")[0]
    return kind if kind in ("image", "audio", "video") else "document"


def _call(block: Mapping[str, Any]) -> ToolCall:
    arguments = block.get("input", "")
    spelled = arguments if isinstance(arguments, str) else spell(arguments)
    return ToolCall(text_or_empty(block.get("id")), text_or_empty(block.get("name")), spelled)


def _result(block: Mapping[str, Any], native: Any = None) -> ToolResult:
    parts = tuple(map(_inner_part, blocks_of(block.get("output"))))
    call_id, name = text_or_empty(block.get("id")), text_or_empty(block.get("name"))
    return ToolResult(call_id, name, parts, is_error=block.get("state") in _FAILED, native=native)


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
    if len(blocks) == 1 and isinstance(blocks[0], str) and not is_array(output):
        return _changed(result, "output", blocks[0])
    old = output if is_array(output) else [_said(result, text_or_empty(output))]
    replaced = iter([block for number, block in enumerate(old) if number not in blocks])
    made = [_said(next(replaced, result), block) if isinstance(block, str) else old[block] for block in blocks]
    return _changed(result, "output", made)


def _said(origin: Any, text: str) -> Any:
    """Return a text block with the id of the block that it replaces, as AgentScope does when it cuts one, or a hint."""
    if _field(origin, "type") == "hint":
        return _changed(origin, "hint", text)
    return _text_block(text, text_or_empty(_field(origin, "id")), text_or_empty(_field(origin, "created_at")))


def _text_block(text: str, block_id: str, created_at: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "id": block_id, "created_at": created_at, "finished_at": None}


def _fields(name: str, role: str, message_id: str, content: list[dict[str, Any]], time: str) -> dict[str, Any]:
    """Return the fields of a new message, which begins and ends at *time*."""
    fields: dict[str, Any] = {"name": name, "content": content, "role": role, "id": message_id, "metadata": {}}
    fields |= {"created_at": time, "usage": None, "finished_at": time, "finished_reason": None}
    return fields | {"structured_output": None, "error": None}


def _built(fields: Mapping[str, Any]) -> Any:
    """Return a `Msg` if the program has loaded AgentScope, else the fields."""
    module = sys.modules.get("agentscope.message")
    return dict(fields) if module is None else module.Msg.model_validate(fields)


# Writing.


def _written(part: Part, answered: set[str], losses: Losses) -> dict[str, Any]:
    match part:
        case Reasoning():
            extra = {"signature": part.signature, "redacted_thinking_data": part.hidden}
            return {"type": "thinking", "thinking": part.text} | {key: text for key, text in extra.items() if text}
        case ToolCall():
            state = "finished" if part.call_id in answered else "pending"
            call = {"type": "tool_call", "id": part.call_id, "name": part.name, "input": part.arguments}
            return {**call, "state": state, "suggested_rules": []}
        case ToolResult():
            output = [_written(inner, set(), losses) for inner in part.parts]
            state = "error" if part.is_error else "success"
            named = {"type": "tool_result", "id": part.call_id, "name": part.name}
            return {**named, "output": output, "state": state, "metadata": {}}
        case Media():
            if part.payload is None and "://" not in part.source:
                return {"type": "text", "text": losses.left_out(part, "its bytes are elsewhere").text}
            return _written_data(part)
        case _:
            return {"type": "text", "text": text_in(part)}


def _written_data(media: Media) -> dict[str, Any]:
    media_type = media.media_type or mimetypes.guess_type(media.source.partition("?")[0])[0] or ""
    if not media_type or _kind(media_type) != media.kind:
        media_type = "application/octet-stream" if media.kind == "document" else f"{media.kind}/*"
    if media.payload is None:
        source = {"type": "url", "url": media.source, "media_type": media_type}
    else:
        source = {"type": "base64", "data": base64_of(media), "media_type": media_type}
    return {"type": "data", "source": source, "name": media.name or None}


def _identify(content: Sequence[dict[str, Any]], message_id: str) -> None:
    """Give each block the fields that AgentScope's blocks have: an id, if it is no call or result, and times."""
    for place, block in enumerate(content):
        block.setdefault("id", _hash(f"{message_id} {place}"))
        block |= {"created_at": _NO_TIME, "finished_at": _NO_TIME if block["type"] != "text" else None}
        if block["type"] == "tool_result":
            _identify(block["output"], block["id"] + message_id + str(place))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
