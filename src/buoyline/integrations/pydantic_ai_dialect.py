"""Pydantic AI's dialect: requests and responses, read from the JSON that its ``ModelMessagesTypeAdapter`` dumps.

Source: ``pydantic_ai.messages`` of 2.68. Each part of a request is a message of its own: Pydantic AI merges neighbors,
in the history between two runs and in each request that it sends, so their bounds mean nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

from buoyline.errors import MessageError, imported
from buoyline.messages import Blocks, CachePoint, Compaction, Losses, Message, ObjectDialect, Text, Turn, parts, spell
from buoyline.messages.dialect import speaker_of
from buoyline.messages.jsonl import is_array, is_object
from buoyline.messages.model import Part, ToolCall, ToolResult


class PydanticAI(ObjectDialect):
    """Messages as Pydantic AI's agents hold them."""

    name = "pydantic-ai"

    def detects(self, message: object) -> bool:
        """Return whether *message* is a ``ModelRequest`` or a ``ModelResponse``."""
        found = message if is_object(message) else getattr(message, "__dict__", {})
        return found.get("kind") in ("request", "response") and is_array(found.get("parts"))

    def read(self, value: Mapping[str, Any]) -> Message:
        """Read a message; what the agent is told or may do, such as new instructions, is the system's."""
        if not self.detects(value):
            raise MessageError(f"no message of Pydantic AI: expected an object with 'kind' and 'parts', not {[*value]}")
        read = tuple(one for part in value["parts"] for one in _read(part))
        role = "system" if all(map(_stays, value["parts"])) else speaker_of("user", read)
        return Message("assistant" if value["kind"] == "response" else role, read)

    def split(self, message: Any) -> Sequence[Any]:
        """Return the parts of a request, results first; or what a compaction splits a response into."""
        native = self.from_json(message) if is_object(message) else message
        held = sorted(native.parts, key=lambda part: part.part_kind != "tool-return")
        groups = groupby(held, lambda part: id(part) if native.kind == "request" else part.part_kind == "compaction")
        made = [replace(native, parts=[*group]) for _, group in groups]
        return made if len(made) > 1 else (message,)

    def to_json(self, message: Any) -> dict[str, Any]:
        """Return the message's JSON, with the ``repr`` of what has none, as metadata may."""
        return dict(*_adapter().dump_python([message], mode="json", warnings=False, fallback=repr))

    def from_json(self, value: Mapping[str, Any]) -> Any:
        """Return the request or response."""
        return _adapter().validate_python([value])[0]

    def with_results(self, message: Any, results: Mapping[int, Blocks]) -> Any:
        """Return a copy of a request that is one result, as `split` makes them, with other content."""
        return self.with_content(message, results[0])

    def with_content(self, message: Any, blocks: Blocks) -> Any:
        """Return a copy of a response that consists of *blocks*, or of a request of one part whose content does."""
        value = self.value_of(message)
        if value["kind"] == "response":
            made = [_written(Text(one), "assistant") if isinstance(one, str) else value["parts"][one] for one in blocks]
            return self.from_json({**value, "parts": made})
        (part,) = value["parts"]
        new = [block if isinstance(block, str) else _items(part["content"])[block] for block in blocks]
        content = new[0] if len(new) == 1 and isinstance(new[0], str) else new
        # It is no longer content as a kind of tools has it.
        return self.from_json({**value, "parts": [{**part, "content": content, "tool_kind": None}]})

    def write(self, turns: Sequence[Turn], losses: Losses) -> Iterator[Any]:
        """Write a message for each turn."""
        del losses
        for turn in turns:
            kind = "response" if turn.role == "assistant" else "request"
            yield self.from_json({"kind": kind, "parts": [_written(part, turn.role) for part in turn.parts]})


def _adapter() -> Any:
    return imported("pydantic_ai.messages", extra="pydantic-ai").ModelMessagesTypeAdapter


def _stays(part: Mapping[str, Any]) -> bool:
    return part["part_kind"].endswith(("-delta", "-baseline", "system-prompt")) and part.get("scope") != "request"


def _read(part: Mapping[str, Any]) -> Sequence[Part]:  # noqa: PLR0911 - one for each kind
    # Instructions are sent beside the messages, and their baseline only says which.
    lasting = {key: value for key, value in part.items() if key not in ("timestamp", "metadata", "instructions")}
    match part:
        case {"part_kind": "user-prompt" | "file", "content": content}:
            return [*map(_item, _items(content))]
        case {"part_kind": "tool-return" | "retry-prompt", "tool_name": str(name), "content": content}:
            failed = part.get("outcome", "retried") in ("failed", "retried")
            return [parts.result(part.get("tool_call_id"), _items(content), _item, name=name, is_error=failed)]
        case {"part_kind": "tool-call"}:
            return [parts.call(part.get("tool_call_id"), part.get("tool_name"), part.get("args") or {})]
        case {"part_kind": "builtin-tool-call" | "builtin-tool-return" as kind, "tool_call_id": call_id}:
            return [parts.opaque(kind.replace("-return", "_result"), lasting, call_id)]
        case {"part_kind": "thinking", "content": text}:
            return [parts.reasoning(text, "", sealed := part.get("signature"), PydanticAI.name if sealed else "")]
        case {"part_kind": "compaction", "provider_name": str()} if part["content"] or part["provider_details"]:
            return [Compaction("compaction", spell(lasting))]
        case {"content": str(text)} | {"transcript": str(text)}:
            return [Text(text)]
        case _:
            return [parts.opaque(part["part_kind"], lasting)]


def _items(content: Any) -> Sequence[Any]:
    """Return the items of content; a list of plain data, which only tools return, is one."""
    is_list = is_array(content) and any(isinstance(one, str) or (is_object(one) and "kind" in one) for one in content)
    return content if is_list else [content]


def _item(item: Any) -> Any:
    match item:
        case str(text) | {"kind": "text-content" | "structured-content", "content": str(text)}:
            return Text(text)
        case {"kind": "cache-point"}:
            return CachePoint()
        case {"kind": str(kind), "media_type": media_type, "identifier": _}:
            kind = next((one for one in ("image", "audio", "video") if one in f"{kind} {media_type}"), "document")
            where = item.get("url", item.get("file_id"))
            return parts.media(kind, media_type, payload=item.get("data") or None, source=where)
        case _:
            return parts.json(item)


def _written(part: Any, role: str) -> dict[str, Any]:
    if isinstance(part, ToolCall | ToolResult):
        named = {"tool_call_id": part.call_id, "tool_name": part.name or "tool"}
        if isinstance(part, ToolCall):
            return {"part_kind": "tool-call", **named, "args": part.arguments}
        return {"part_kind": "tool-return", **named, "content": part.text}
    kind = {"assistant": "text", "system": "system-prompt"}.get(role, "user-prompt")
    return {"part_kind": kind, "content": part.text}


DIALECT: Final = PydanticAI()
