"""Messages of Microsoft Agent Framework: its ``Message`` objects, read as the JSON that their ``to_dict`` writes.

Each content of a message is one part of the view. ``raw_representation``, the provider's own object, is in no JSON.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from buoyline.errors import MessageError, imported
from buoyline.messages import CachePoint, Losses, Media, Message, Reasoning, ToolCall, ToolResult, parts
from buoyline.messages.dialect import Blocks, ObjectDialect, role_of, speaker_of
from buoyline.messages.jsonl import is_object, spell
from buoyline.messages.model import Part, ResultPart, Role, Turn
from buoyline.messages.openai import url_of


class AgentFramework(ObjectDialect):
    """Messages with a role and contents; one message has the results of all calls of a turn."""

    name = "agent-framework"

    def detects(self, message: object) -> bool:
        """Return whether *message* has a role and contents, which no other form has."""
        if is_object(message):
            return message.keys() >= {"role", "contents"}
        return type(message).__module__.startswith("agent_framework.") and hasattr(message, "contents")

    def to_json(self, message: Any) -> dict[str, Any]:
        """Return what the framework writes of *message*; of an exception it writes only that there was one.

        Raises:
            MessageError: It is no message of the framework.
        """
        if not self.detects(message):
            raise MessageError(f"{type(message).__name__} is no Message of agent_framework")
        return {**message} if is_object(message) else message.to_dict()

    def from_json(self, value: Mapping[str, Any]) -> Any:
        """Return the ``Message`` whose ``to_dict`` is *value*."""
        return imported("agent_framework", extra="agent-framework").Message.from_dict({**value})

    def read(self, value: Mapping[str, Any]) -> Message:
        """Read a message. The framework adds the agent's name when a run has ended, so only a user's is in the view."""
        role = role_of(value)
        read = tuple(_part(content, role) for content in value["contents"])
        return Message(speaker_of(role, read), read, parts.string(value.get("author_name")) if role == "user" else "")

    def with_results(self, message: Any, results: Mapping[int, Blocks]) -> Any:
        """Return a message whose n-th result has other content, in both of its fields: ``items`` and ``result``."""
        value = self.value_of(message)
        contents, found = [*value["contents"]], enumerate(self.read(value).parts)
        places = [at for at, part in found if isinstance(part, ToolResult)]
        for number, blocks in results.items():
            result = contents[places[number]]
            contents[places[number]] = {**result, **_output(parts.rebuilt(_items(result), blocks))}
        return self.from_json({**value, "contents": contents})

    def with_content(self, message: Any, blocks: Blocks) -> Any:
        """Return a message with other contents; see `Dialect.with_content`."""
        value = self.value_of(message)
        return self.from_json({**value, "contents": parts.rebuilt(value["contents"], blocks)})

    def holds(self, part: Part, role: Role) -> bool:
        """Return whether there is a place for *part*: all but reasoning, and media of the model's."""
        return not isinstance(part, Reasoning) and not (isinstance(part, Media) and role == "assistant")

    def write(self, turns: Sequence[Turn], losses: Losses) -> Iterator[Any]:
        """Write a message for each turn."""
        del losses
        for turn in turns:
            contents = [_written(part) for part in turn.parts]
            yield self.from_json({"role": turn.role, "contents": contents, "author_name": turn.name or None})


def _part(content: Any, role: Role) -> Part:
    match content:
        case {"type": "text_reasoning"}:
            return parts.reasoning(content.get("text"), "", content.get("protected_data"), AgentFramework.name)
        case {"type": "function_call"} if not content.get("informational_only"):  # else the provider runs it
            return parts.call(content.get("call_id"), content.get("name"), content.get("arguments", ""))
        case {"type": "function_result"} if role == "assistant":  # the provider's, which may refuse a changed one
            return parts.opaque("function_tool_result", content, content.get("call_id"))
        case {"type": "function_result"}:
            return parts.result(content.get("call_id"), _items(content), _inner_part, is_error="exception" in content)
        case {"type": "usage"} | {"type": "function_approval_request", "function_call": {"hosted": False}}:
            return CachePoint()  # no provider gets it, and the framework adds it later
        case _:
            return _inner_part(content)


def _inner_part(content: Any) -> ResultPart:
    match content:
        case {"type": "data" | "uri" | "hosted_file"}:
            kind = parts.string(content.get("media_type")).partition("/")[0]
            source, name = content.get("uri", content.get("file_id")), content.get("name")
            kind = kind if kind in ("image", "audio", "video") else "document"
            return parts.media(kind, content.get("media_type"), source=source, name=name)
        case _:
            return parts.simple(content, content.get("call_id") if is_object(content) else "")


def _items(result: Mapping[str, Any]) -> Any:
    held = result.get("items", result.get("result"))
    return spell(held) if is_object(held) else held


def _output(items: Any) -> dict[str, Any]:
    return {"items": items, "result": "\n".join(filter(None, map(parts.text_of, items)))}


def _written(part: Any) -> dict[str, Any]:
    match part:
        case ToolCall():
            return {"type": "function_call", "call_id": part.call_id, "name": part.name, "arguments": part.arguments}
        case ToolResult():
            failed = {"exception": "FunctionInvocationError"} if part.is_error else {}
            result = {"type": "function_result", "call_id": part.call_id, **failed}
            return {**result, **_output([*map(_written, part.parts)])}
        case Media():
            kind = "uri" if part.payload is None else "data"
            return {"type": kind, "uri": url_of(part), "media_type": part.media_type or None, "name": part.name or None}
        case _:
            return {"type": "text", "text": part.text}


DIALECT: Final = AgentFramework()
