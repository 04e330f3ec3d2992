"""Anthropic's messages dialect.

Source: the ``messages`` of the Messages API: ``role`` and ``content``, text or a list of blocks; tool results
stand as blocks in user messages, several in one message where calls ran in parallel.
"""

from collections.abc import Mapping
from typing import Any

from buoyline.errors import MessageError
from buoyline.messages.jsonl import is_array, is_object, spell
from buoyline.messages.model import (
    Blocks,
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
    rebuilt_content,
    role_of,
    simple_part,
    text_or_empty,
)

_OWN_BLOCKS = frozenset(
    {"tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document", "server_tool_use"}
)
"""Unmistakable. (What a server tool does is no `ToolCall`: its result follows in the same message.)"""


class Anthropic:
    """Messages as Anthropic's Messages API takes them."""

    name = "anthropic"

    def recognises(self, message: object) -> bool:
        """Tell whether *message* holds a block that only this dialect has."""
        found = fields(message)
        if found is None or found.get("role") not in ("user", "assistant") or "tool_calls" in found:
            return False
        content = found.get("content")
        return is_array(content) and any(_block_type(block) in _OWN_BLOCKS for block in content)

    def view(self, message: Any) -> Message:
        """Read *message*; one that holds nothing but tool results reads as role ``tool``.

        Raises:
            MessageError: It has no role that we know, or content of another form.
        """
        found = plain_fields(message)
        role = role_of(found)
        parts = tuple(_part(block) for block in blocks_of(found.get("content")))
        return Message(_speaker(role, parts), parts)

    def recognises_result(self, tool_result: object) -> bool:
        """Tell whether *tool_result* is a ``tool_result`` block, or a message with blocks of this dialect."""
        return _block_type(tool_result) == "tool_result" or self.recognises(tool_result)

    def result(self, tool_result: Any) -> Message:
        """Read a ``tool_result`` block, or a user message that holds exactly one.

        Raises:
            MessageError: It is neither.
        """
        if _block_type(tool_result) == "tool_result":
            if "tool_use_id" not in plain_fields(tool_result):
                raise MessageError("a tool_result block without 'tool_use_id' is not in Anthropic's form")
            return Message("tool", (_part(plain_fields(tool_result)),))
        view = self.view(tool_result)
        if len(view.results) != 1:
            raise MessageError(f"expected one tool result, found {len(view.results)}")
        return view

    def to_json(self, message: Any) -> dict[str, Any]:
        """Return the message's own fields."""
        return dict(plain_fields(message))

    def from_json(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return *value*: a message is its own JSON form."""
        return dict(value)

    def with_results(self, message: Any, results: Mapping[int, Blocks]) -> Any:
        """Return a copy whose n-th ``tool_result`` block has other content."""
        found = dict(own_fields(message))
        content = list(blocks_of(found.get("content")))
        places = [place for place, block in enumerate(content) if _block_type(block) == "tool_result"]
        for number, blocks in results.items():
            result = dict(own_fields(content[places[number]]))
            result["content"] = rebuilt_content(result.get("content"), blocks)
            content[places[number]] = result
        found["content"] = content
        return found

    def with_content(self, message: Any, blocks: Blocks) -> Any:
        """Return a copy of *message* whose content consists of *blocks*."""
        found = dict(own_fields(message))
        found["content"] = rebuilt_content(found.get("content"), blocks)
        return found

    def user_message(self, text: str) -> dict[str, Any]:
        """Return a new user message."""
        return {"role": "user", "content": text}

    def tool_result_message(self, call_id: str, text: str, name: str = "") -> dict[str, Any]:  # noqa: ARG002 - the call has it
        """Return a new user message with one ``tool_result`` block, which has no place for the tool's name."""
        return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": text}]}


def _block_type(block: object) -> str | None:
    found = fields(block)
    kind = None if found is None else found.get("type")
    return kind if isinstance(kind, str) else None


def _speaker(role: Role, parts: tuple[Part, ...]) -> Role:
    only_results = bool(parts) and all(isinstance(part, ToolResult) for part in parts)
    return "tool" if only_results else role


def _part(block: object) -> Part:
    if is_object(block):
        match block.get("type"):
            case "tool_use":
                call_id, name = text_or_empty(block.get("id")), text_or_empty(block.get("name"))
                return ToolCall(call_id, name, spell(block.get("input", {})))
            case "tool_result":
                return _result(block)
            case "thinking":
                return Reasoning(text_or_empty(block.get("thinking")))
            case "image" | "document" as kind:
                return _media(kind, block)
            case "search_result" if is_array(block.get("content")):
                return _search_result(block)
            case _:
                pass
    return simple_part(block)


def _result(block: Mapping[str, Any]) -> ToolResult:
    parts = tuple(map(_inner_part, blocks_of(block.get("content"))))
    return ToolResult(text_or_empty(block.get("tool_use_id")), "", parts, is_error=block.get("is_error") is True)


def _inner_part(block: object) -> ResultPart:
    """Read a block of a tool result: one part each, so that parts and blocks have the same numbers."""
    part = _part(block)
    return part if isinstance(part, (Text, Media, Opaque)) else simple_part(block)


def _search_result(block: Mapping[str, Any]) -> Text | Opaque:
    parts = [_part(inner) for inner in blocks_of(block.get("content"))]
    texts = [part.text for part in parts if isinstance(part, Text)]
    if len(texts) != len(parts):
        return simple_part(block)
    return Text(join_texts([text_or_empty(block.get("title")), text_or_empty(block.get("source")), *texts]))


def _media(kind: Any, block: Mapping[str, Any]) -> Media | Text | Opaque:
    source, title = block.get("source"), block.get("title")
    if not is_object(source):
        return simple_part(block)
    if source.get("type") == "text" and isinstance(text := source.get("data"), str):
        return Text(text)
    if source.get("type") == "content":
        parts = [_part(inner) for inner in blocks_of(source.get("content"))]
        texts = [part.text for part in parts if isinstance(part, Text)]
        return Text(join_texts(texts)) if len(texts) == len(parts) else simple_part(block)
    if source.get("type") == "base64":
        return media(kind, source.get("media_type"), payload=source.get("data"), name=title)
    return media(kind, source.get("media_type"), source=source.get("url", source.get("file_id")), name=title)
