"""AgentScope's dialect: its `Msg` objects, and the JSON that its own ``model_dump_json`` makes of them.

Source: ``agentscope.message`` of 2.0.10. Calls and their results stand in one assistant message, several turns of
them; a hint stands among them and goes to the model as a user message. AgentScope cuts one message into two with one
id, so an id names no message. It is never imported here: an object is known by its fields, and a new one is built
by the classes of the object at hand.
"""

import hashlib
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

from buoyline.errors import MessageError
from buoyline.messages.jsonl import is_array, is_object, spell
from buoyline.messages.model import (
    Blocks,
    Media,
    Message,
    Note,
    Opaque,
    Part,
    Reasoning,
    ResultPart,
    Role,
    Text,
    ToolCall,
    ToolResult,
    blocks_of,
    has_known_role,
    media,
    plain_fields,
    role_of,
    simple_part,
    text_or_empty,
)

_MESSAGE_FIELDS = frozenset({"name", "role", "content", "id", "created_at"})
_RESULT_FIELDS = frozenset({"type", "id", "name", "output"})
_OWN_BLOCKS: Mapping[str, str] = {"tool_call": "input", "tool_result": "output", "data": "source", "hint": "hint"}
"""Types of block that are unmistakable, each with a field that it must have."""

_FAILED = frozenset({"error", "denied", "interrupted"})
_NO_TIME: Final = "1970-01-01T00:00:00"


class AgentScope:
    """Messages as AgentScope's agents hold them in ``agent.state.context``."""

    name = "agentscope"

    def recognises(self, message: object) -> bool:
        """Tell whether *message* is a `Msg`, or an object with its fields or with a block that only it has."""
        if not is_object(message):
            return _field_names(message) >= _MESSAGE_FIELDS
        content = message.get("content")
        if not has_known_role(message) or not is_array(content) or "tool_calls" in message:
            return False
        return message.keys() >= _MESSAGE_FIELDS or any(map(_is_own, content))

    def view(self, message: Any) -> Message:
        """Read *message*: nothing but results reads as role ``tool``, nothing but hints as role ``user``.

        Each block of a hint is a part of its own, and its texts are notes. A name that repeats the role is none.

        Raises:
            MessageError: It has no role that we know, or content of another form.
        """
        found = plain_fields(message)
        role = role_of(found)
        content = blocks_of(found.get("content"))
        held = _field(message, "content")
        natives = content if is_object(message) or not is_array(held) else held
        parts = tuple(part for pair in zip(content, natives, strict=True) for part in _parts(*pair))
        name = text_or_empty(found.get("name"))
        return Message(_speaker(role, content, parts), parts, "" if name == role else name)

    def recognises_result(self, tool_result: object) -> bool:
        """Tell whether *tool_result* is a `ToolResultBlock`, its JSON, or a message of this dialect."""
        return _is_result(tool_result) or self.recognises(tool_result)

    def result(self, tool_result: Any) -> Message:
        """Read a `ToolResultBlock`, or a message that holds exactly one.

        Raises:
            MessageError: It is neither.
        """
        if _is_result(tool_result):
            return Message("tool", (_result(plain_fields(tool_result)),))
        view = self.view(tool_result)
        if len(view.results) != 1:
            raise MessageError(f"expected one tool result, found {len(view.results)}")
        return view

    def to_json(self, message: Any) -> dict[str, Any]:
        """Return every field, as ``model_dump_json`` does."""
        return dict(plain_fields(message))

    def from_json(self, value: Mapping[str, Any]) -> Any:
        """Return the `Msg` whose JSON *value* is; *value* copied where AgentScope is not loaded or does not take it."""
        try:
            return _built(value)
        except ValueError:
            # A message of somebody's own, or of another version: to go on with its JSON is better than not to go on.
            return dict(value)

    def with_results(self, message: Any, results: Mapping[int, Blocks]) -> Any:
        """Return a copy whose n-th tool result has other output; a text stays a text where one is all there is."""
        content = list(_field(message, "content"))
        places = [place for place, block in enumerate(content) if _is_result(block)]
        for number, blocks in results.items():
            content[places[number]] = _with_output(content[places[number]], blocks)
        return _changed(message, "content", content)

    def with_content(self, message: Any, blocks: Blocks) -> Any:
        """Return a copy of *message* whose content consists of *blocks*; what stands for a hint is a hint."""
        content = list(_field(message, "content"))
        places = _places(content)
        chosen: dict[int, list[tuple[int, str | int]]] = {place: [] for place, _ in places}
        for (place, inner), block in _placed(places, blocks):
            chosen[place].append((inner, block))
        made = [new for place, old in enumerate(content) for new in _made(old, chosen.get(place))]
        added = [] if places else [_said(message, block) for block in blocks if isinstance(block, str)]
        return _changed(message, "content", made + added)

    def user_message(self, text: str) -> Any:
        """Return a new user message: a `Msg` where AgentScope is loaded, else its JSON.

        The same text is the same message, whoever spells it again and when: its id is the text's hash, and it has
        no time.
        """
        name = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return _message("user", "user", name, _text_block(text, name, _NO_TIME), _NO_TIME)

    def tool_result_message(self, call_id: str, text: str, name: str = "") -> Any:
        """Return a new assistant message with one finished result, in the form that `user_message` has."""
        now = datetime.now(UTC).replace(tzinfo=None).isoformat()
        block: dict[str, Any] = {"type": "tool_result", "id": call_id, "name": name}
        block["output"] = [_text_block(text, uuid.uuid4().hex, now)]
        block |= {"state": "success", "metadata": {}, "created_at": now, "finished_at": now}
        return _message("assistant", "assistant", uuid.uuid4().hex, block, now)


def _field(value: Any, name: str) -> Any:
    return value.get(name) if is_object(value) else getattr(value, name, None)


def _field_names(value: object) -> frozenset[str]:
    """Return the names of a model's fields, read off its class; none of anything else."""
    found = getattr(type(value), "model_fields", None)
    return frozenset(found) if is_object(found) else frozenset()


def _is_own(block: object) -> bool:
    kind = _field(block, "type")
    if not isinstance(kind, str) or kind not in _OWN_BLOCKS:
        return False
    return _OWN_BLOCKS[kind] in (block if is_object(block) else _field_names(block))


def _is_result(block: object) -> bool:
    names = block.keys() if is_object(block) else _field_names(block)
    return names >= _RESULT_FIELDS and _field(block, "type") == "tool_result"


def _speaker(role: Role, content: Sequence[Any], parts: tuple[Part, ...]) -> Role:
    if parts and all(isinstance(part, ToolResult) for part in parts):
        return "tool"
    return "user" if content and all(_field(block, "type") == "hint" for block in content) else role


def _parts(block: object, native: object) -> Iterator[Part]:
    if is_object(block):
        match block.get("type"):
            case "tool_call":
                yield _call(block)
                return
            case "tool_result":
                yield replace(_result(block), native=None if native is block else native)
                return
            case "thinking":
                yield Reasoning(text_or_empty(block.get("thinking")))
                return
            case "hint" if isinstance(hint := block.get("hint"), str) or is_array(hint):
                yield from map(_noted, blocks_of(hint))
                return
            case _:
                pass
    yield _part(block)


def _part(block: object) -> ResultPart:
    """Read a block that may stand in a result or a hint."""
    if is_object(block) and block.get("type") == "data" and is_object(source := block.get("source")):
        return _media(source, block.get("name"))
    return simple_part(block)


def _noted(block: object) -> ResultPart:
    part = _part(block)
    return Note(part.text) if isinstance(part, Text) else part


def _media(source: Mapping[str, Any], name: object) -> Media | Opaque:
    media_type = source.get("media_type")
    kind = _kind(text_or_empty(media_type))
    if source.get("type") == "base64":
        return media(kind, media_type, payload=source.get("data"), name=name)
    return media(kind, media_type, source=source.get("url"), name=name)


def _kind(media_type: str) -> Literal["image", "audio", "document", "video"]:
    match media_type.partition("/")[0]:
        case "image" | "audio" | "video" as kind:
            return kind
        case _:
            return "document"


def _call(block: Mapping[str, Any]) -> ToolCall:
    arguments = block.get("input", "")
    spelled = arguments if isinstance(arguments, str) else spell(arguments)
    return ToolCall(text_or_empty(block.get("id")), text_or_empty(block.get("name")), spelled)


def _result(block: Mapping[str, Any]) -> ToolResult:
    parts = tuple(map(_part, blocks_of(block.get("output"))))
    call_id, name = text_or_empty(block.get("id")), text_or_empty(block.get("name"))
    return ToolResult(call_id, name, parts, is_error=block.get("state") in _FAILED)


def _changed(holder: Any, key: str, value: object) -> Any:
    """Return a copy of a message or block with *value* under *key*, in which new blocks may be dicts.

    A model's own class makes blocks of them, and takes those that are blocks already as they are.
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
    leaving = iter([block for number, block in enumerate(old) if number not in blocks])
    made = [_said(next(leaving, result), block) if isinstance(block, str) else old[block] for block in blocks]
    return _changed(result, "output", made)


def _places(content: Sequence[Any]) -> list[tuple[int, int]]:
    """Return for each part of the view the number of its block, and its number within that."""
    found: list[tuple[int, int]] = []
    for place, block in enumerate(content):
        hint = _field(block, "hint") if _field(block, "type") == "hint" else None
        found += [(place, inner) for inner in range(len(hint) if is_array(hint) else 1)]
    return found


def _placed(places: Sequence[tuple[int, int]], blocks: Blocks) -> Iterator[tuple[tuple[int, int], str | int]]:
    """Yield *blocks* with their places: a new text takes that of the first part behind the last that has left."""
    kept, last = {block for block in blocks if isinstance(block, int)}, -1
    for block in blocks if places else ():
        free = (number for number in range(last + 1, len(places)) if number not in kept)
        last = block if isinstance(block, int) else next(free, max(last, 0))
        yield places[last], block


def _made(block: Any, chosen: Sequence[tuple[int, str | int]] | None) -> list[Any]:
    """Return what stands in place of *block* once its parts are *chosen*; None: it has no parts, and stays."""
    if chosen is None:
        return [block]
    hint = _field(block, "hint")
    if _field(block, "type") != "hint":
        return [_said(block, new) if isinstance(new, str) else block for _, new in chosen]
    if not is_array(hint):
        return [_changed(block, "hint", new) if isinstance(new, str) else block for _, new in chosen]
    made = [_said(hint[inner], new) if isinstance(new, str) else hint[inner] for inner, new in chosen]
    is_whole = len(made) == len(hint) and all(new is old for new, old in zip(made, hint, strict=True))
    return [block] if is_whole else [_changed(block, "hint", made)] if made else []


def _said(origin: Any, text: str) -> dict[str, Any]:
    """Return a text block under the id of the block whose place it takes, as AgentScope does when it cuts one."""
    return _text_block(text, text_or_empty(_field(origin, "id")), text_or_empty(_field(origin, "created_at")))


def _text_block(text: str, block_id: str, created_at: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "id": block_id, "created_at": created_at, "finished_at": None}


def _message(name: str, role: str, message_id: str, block: dict[str, Any], created_at: str) -> Any:
    fields: dict[str, Any] = {"name": name, "content": [block], "role": role, "id": message_id, "metadata": {}}
    fields |= {"created_at": created_at, "usage": None, "finished_at": created_at, "finished_reason": None}
    return _built(fields | {"structured_output": None, "error": None})


def _built(fields: Mapping[str, Any]) -> Any:
    """Return a `Msg`, whose class whoever wants objects has loaded; else the fields."""
    module = sys.modules.get("agentscope.message")
    return dict(fields) if module is None else module.Msg.model_validate(fields)
