"""OpenAI's chat completions dialect.

Source: the ``messages`` of the Chat Completions API: ``role``, ``content`` (text, blocks or null),
``tool_calls``, ``tool_call_id``; besides ``reasoning_content`` as several compatible providers send it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from buoyline.errors import MessageError
from buoyline.messages.jsonl import is_array, is_object, spell
from buoyline.messages.model import (
    Blocks,
    Media,
    Message,
    Part,
    Reasoning,
    ResultPart,
    Text,
    ToolCall,
    ToolResult,
    blocks_of,
    data_url,
    fields,
    has_known_role,
    media,
    own_fields,
    plain_fields,
    rebuilt_content,
    role_of,
    simple_part,
    text_or_empty,
)


class OpenAIChat:
    """Messages as OpenAI's chat completions take them, and as most compatible providers do."""

    name = "openai"

    def recognises(self, message: object) -> bool:
        """Tell whether *message* has a known role and content that may be text, blocks or null."""
        found = fields(message)
        if found is None or not has_known_role(found):
            return False
        content = found.get("content")
        return content is None or isinstance(content, (str, list, tuple))

    def view(self, message: Any) -> Message:
        """Read *message*.

        Raises:
            MessageError: It has no role that we know, or content of another form.
        """
        found = plain_fields(message)
        role = role_of(found)
        speaker = text_or_empty(found.get("name"))
        if role == "tool":
            return Message(role, (_result(found, speaker),), speaker)
        return Message(role, tuple(_parts(found)), speaker)

    def recognises_result(self, tool_result: object) -> bool:
        """Tell whether *tool_result* is a message of this form; `result` says whether it is a tool's."""
        return self.recognises(tool_result)

    def result(self, tool_result: Any) -> Message:
        """Read a tool message that stands alone.

        Raises:
            MessageError: It is no tool message.
        """
        view = self.view(tool_result)
        if view.role != "tool":
            raise MessageError(f"role {view.role!r} is no tool result: expected a message with role 'tool'")
        return view

    def to_json(self, message: Any) -> dict[str, Any]:
        """Return the message's own fields."""
        return dict(plain_fields(message))

    def from_json(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return *value*: a message is its own JSON form."""
        return dict(value)

    def with_results(self, message: Any, results: Mapping[int, Blocks]) -> Any:
        """Return a copy of a tool message with other content; a tool message holds one result."""
        found = dict(own_fields(message))
        if 0 in results:
            found["content"] = rebuilt_content(found.get("content"), results[0])
        return found

    def with_content(self, message: Any, blocks: Blocks) -> Any:
        """Return a copy of *message* whose content consists of *blocks*; reasoning and calls are none."""
        found = dict(own_fields(message))
        content = found.get("content")
        first = sum(isinstance(part, Reasoning) for part in self.view(message).parts)
        inside = range(first, first + len(blocks_of(content)))
        kept = [
            block if isinstance(block, str) else block - first
            for block in blocks
            if block in inside or isinstance(block, str)
        ]
        found["content"] = rebuilt_content(content, kept)
        return found

    def user_message(self, text: str) -> dict[str, Any]:
        """Return a new user message."""
        return {"role": "user", "content": text}

    def tool_result_message(self, call_id: str, text: str, name: str = "") -> dict[str, Any]:
        """Return a new tool message; the tool is named where *name* says it."""
        named = {"name": name} if name else {}
        return {"role": "tool", "tool_call_id": call_id, **named, "content": text}


def _result(found: Mapping[str, Any], name: str) -> ToolResult:
    parts = tuple(_part(block) for block in blocks_of(found.get("content")))
    return ToolResult(text_or_empty(found.get("tool_call_id")), name, parts)


def _parts(found: Mapping[str, Any]) -> Iterator[Part]:
    for key in ("reasoning_content", "reasoning"):
        if isinstance(thinking := found.get(key), str) and thinking:
            yield Reasoning(thinking)
            break
    for block in blocks_of(found.get("content")):
        yield _part(block)
    if isinstance(refusal := found.get("refusal"), str):
        yield Text(refusal)
    yield from _calls(found)


def _part(block: object) -> ResultPart:
    if is_object(block):
        match block.get("type"):
            case "image_url":
                return _by_url("image", block.get("image_url"), "url")
            case "input_audio" if is_object(audio := block.get("input_audio")):
                return media("audio", f"audio/{audio.get('format', '')}", payload=audio.get("data"))
            case "file" if is_object(file := block.get("file")):
                return _by_url("document", file, "file_data")
            case "refusal" if isinstance(refusal := block.get("refusal"), str):
                return Text(refusal)
            case _:
                pass
    return simple_part(block)


def _by_url(kind: Any, holder: object, key: str) -> Media:
    url = holder.get(key) if is_object(holder) else holder
    name = holder.get("filename") if is_object(holder) else None
    # Only the head is looked at: the payload behind the comma may have gigabytes.
    comma = url.find(",") if isinstance(url, str) and url.startswith("data:") else -1
    if isinstance(url, str) and (found := data_url(url[: comma + 1])) is not None:
        return media(kind, found[0], payload=url, start=comma + 1, name=name)
    source = holder.get("file_id") if url is None and is_object(holder) else url
    return media(kind, "", source=source, name=name)


def _calls(found: Mapping[str, Any]) -> Iterator[ToolCall]:
    calls = found.get("tool_calls")
    for call in calls if is_array(calls) else ():
        if is_object(call):
            yield _call(call)
    if is_object(legacy := found.get("function_call")):
        yield _call({"function": legacy})


def _call(call: Mapping[str, Any]) -> ToolCall:
    holder = call.get("function", call.get("custom"))
    function: Mapping[str, Any] = holder if is_object(holder) else {}
    arguments = function.get("arguments", function.get("input", ""))
    return ToolCall(
        text_or_empty(call.get("id")),
        text_or_empty(function.get("name")),
        arguments if isinstance(arguments, str) else spell(arguments),
    )
