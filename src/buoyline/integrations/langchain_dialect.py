"""The dialect of LangChain's messages: on disk as `model_dump` writes them, without artifacts, which no model gets.

Source: ``langchain_core.messages``. Content is text, or blocks in LangChain's own form or in a provider's.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from buoyline.errors import MessageError, imported
from buoyline.messages import parts
from buoyline.messages.anthropic import Anthropic
from buoyline.messages.dialect import Blocks, ObjectDialect, speaker_of
from buoyline.messages.jsonl import is_object
from buoyline.messages.model import Losses, Message, Opaque, Part, Role, ToolCall, Turn
from buoyline.messages.openai import OpenAIChat, OpenAIResponses, chat_part
from buoyline.messages.payloads import decode_bytes, encode_bytes

_ROLES: Final[Mapping[str, Role]] = {"ai": "assistant", "human": "user", "system": "system", "tool": "tool"}
_TYPES: Final = {role: kind for kind, role in _ROLES.items()}
_CALLS: Final[Sequence[str]] = ("tool_calls", "invalid_tool_calls")
_ANTHROPIC, _OPENAI, _RESPONSES = Anthropic(), OpenAIChat(), OpenAIResponses()


class LangChain(ObjectDialect):
    """Messages of LangChain and LangGraph. A chunk reads as the whole message."""

    name = "langchain"

    def detects(self, message: object) -> bool:
        """Return whether *message* is one of LangChain's objects, or the JSON value of one."""
        found = message if is_object(message) else getattr(message, "__dict__", {})
        return "additional_kwargs" in found and isinstance(found.get("type"), str)

    def read(self, value: Mapping[str, Any]) -> Message:
        """Read a message. A call that is both a field and a block is one call, as the field has it."""
        if not self.detects(value):
            raise MessageError(f"an object with the keys {sorted(value)[:8]} is no message of LangChain")
        role, name, content = _ROLES.get(_kind(value), "user"), parts.string(value.get("name")), value.get("content")
        if role == "tool":
            is_error, call_id = value.get("status") == "error", value.get("tool_call_id")
            return Message(role, (parts.result(call_id, content, _part, name=name, is_error=is_error),))
        # Nothing can answer an invalid call without an id.
        calls = [call for key in _CALLS for call in value.get(key) or () if call.get("id") or key == "tool_calls"]
        fields = {**value["additional_kwargs"], "role": role, "content": None, "tool_calls": calls}
        beside, read = _OPENAI.view(fields), map(_part, parts.blocks_of(content))
        known = {call.call_id: call for call in beside.calls}
        blocks = [known.get(part.call_id, part) if isinstance(part, ToolCall) else part for part in read]
        others = [part for part in beside.parts if part not in blocks]
        return Message(speaker_of(role, blocks), (*blocks, *others), name)

    def split(self, message: Any) -> Sequence[Any]:
        """Return an answer with Anthropic's ``compaction`` block in a message of its own; calls stay with the rest."""
        content = message.get("content") if is_object(message) else getattr(message, "content", "")
        pieces = _ANTHROPIC.split({"role": "assistant", "content": content})
        if len(pieces) == 1:
            return (message,)
        value, bare = self.value_of(message), {key: list[Any]() for key in _CALLS}
        found = [{**value, **bare, "content": piece["content"]} for piece in pieces]
        found[-1] |= {key: value.get(key, []) for key in _CALLS}
        return [self.from_json(one) for one in found]

    def to_json(self, message: Any) -> dict[str, Any]:
        """Return what `model_dump` writes; a value without a JSON form is written as its text."""
        from pydantic_core import to_jsonable_python  # noqa: PLC0415 - takes time, and reading needs none

        dumped = encode_bytes(message.model_dump(exclude={"artifact"}, warnings=False))
        value: dict[str, Any] = to_jsonable_python(dumped, fallback=str)
        return value

    def from_json(self, value: Mapping[str, Any]) -> Any:
        """Return a message of LangChain's class."""
        data: dict[str, Any] = decode_bytes(dict(value))
        calls = {key: data.pop(key) for key in _CALLS if key in data}
        (message,) = imported("langchain_core.messages", extra="langchain").messages_from_dict(
            [{"type": data["type"], "data": data}]
        )
        return message.model_copy(update=calls)  # of an empty list the class makes one from additional_kwargs

    def with_results(self, message: Any, results: Mapping[int, Blocks]) -> Any:
        """Return a copy whose results have other content, and no artifact."""
        value = self.value_of(message)
        if _kind(value) == "tool":
            return self.from_json({**value, "content": parts.rebuilt(value.get("content"), results[0])})
        return self.from_json(_ANTHROPIC.with_results(value, results))  # its blocks in a user's message

    def with_content(self, message: Any, blocks: Blocks) -> Any:
        """Return a copy whose content consists of *blocks*; the fields beside it stay."""
        value = self.value_of(message)
        count = len(parts.blocks_of(content := value.get("content")))
        kept = [block for block in blocks if isinstance(block, str) or block < count]
        return self.from_json({**value, "content": parts.rebuilt(content, kept)})

    def write(self, turns: Sequence[Turn], losses: Losses) -> Iterator[Any]:
        """Write what OpenAI's chat has for *turns*, with the fields that LangChain itself reads the calls from."""
        names = {result.call_id: result.name or None for turn in turns for result in turn.results}
        for found in _OPENAI.write(turns, losses):
            more = {key: found.pop(key) for key in ("reasoning_content", "tool_calls") if key in found}
            content, kind = found.pop("content") or "", _TYPES[found.pop("role")]
            name = found.pop("name", names.get(found.get("tool_call_id", "")))
            yield self.from_json({**found, "type": kind, "content": content, "name": name, "additional_kwargs": more})


def _kind(value: Mapping[str, Any]) -> str:
    return parts.string(value.get("type")).removesuffix("MessageChunk").lower()


def _part(block: Any) -> Part:
    match block:
        case {"type": "tool_call" | "invalid_tool_call"}:
            return parts.call(block.get("id"), block.get("name"), block.get("args"))
        case {"type": "reasoning" | "function_call" | "custom_tool_call" | "image_generation_call"}:
            # LangChain's own form has the text under another name, and the provider's fields in `extras`.
            own = {"summary": [{"text": block.get("reasoning")}], **(block.get("extras") or dict[str, Any]())}
            return _RESPONSES.view({"output": [{**own, **block}]}).parts[0]
        case {"type": "image" | "audio" | "video" | "file" as kind} if not {"file", "source"} & block.keys():
            kind, held = "document" if kind == "file" else kind, block.get("base64") or block.get("data")
            where = block.get("url") or block.get("file_id") or block.get("id")
            return parts.media(kind, block.get("mime_type"), payload=held, source=where, name=block.get("filename"))
        case _:
            part = chat_part(block)
            return _ANTHROPIC.part(block) if isinstance(part, Opaque) else part


DIALECT: Final = LangChain()
