"""Anthropic's messages dialect.

Source: the ``messages`` of the Messages API: ``role`` and ``content``, text or a list of blocks. Tool results
are blocks of user messages, several in one message if calls ran in parallel.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from buoyline.errors import MessageError
from buoyline.messages.dialect import (
    Blocks,
    Dialect,
    blocks_of,
    fields,
    is_blank,
    kind_of,
    media,
    own_fields,
    plain_fields,
    rebuilt_content,
    role_of,
    simple_part,
    speaker_of,
    text_or_empty,
)
from buoyline.messages.formats import base64_of, document_text
from buoyline.messages.jsonl import is_array, is_object, spell
from buoyline.messages.losses import Losses
from buoyline.messages.model import (
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    ResultPart,
    Text,
    ToolCall,
    ToolResult,
    Turn,
    join_texts,
    text_in,
)

_IMAGES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_PDF: Final = "application/pdf"
_OWN_BLOCKS = frozenset(
    {
        *("tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document", "search_result"),
        *("server_tool_use", "mcp_tool_use", "mcp_tool_result", "container_upload"),
    }
)
"""Unmistakable, as are the results of server tools and texts with a place for citations.

(A server tool's use is no `ToolCall`: its result is the model's, too, in the same message or in a later one.)
"""


class Anthropic(Dialect):
    """Messages as Anthropic's Messages API takes them."""

    name = "anthropic"
    alternates_roles = True
    has_system_messages = False

    def detects(self, message: object) -> bool:
        """Return whether *message* holds a block that only this dialect has."""
        found = fields(message)
        if found is None or found.get("role") not in ("user", "assistant") or "tool_calls" in found:
            return False
        content = found.get("content")
        return is_array(content) and any(map(_is_own, content))

    def view(self, message: Any) -> Message:
        """Read *message*; one that holds only tool results reads as role ``tool``. See `Dialect.view`."""
        found = plain_fields(message)
        role = role_of(found)
        parts = tuple(_part(block) for block in blocks_of(found.get("content")))
        return Message(speaker_of(role, parts), parts)

    def detects_result(self, tool_result: object) -> bool:
        """Return whether *tool_result* is a ``tool_result`` block, or a message with blocks of this dialect."""
        return _block_type(tool_result) == "tool_result" or self.detects(tool_result)

    def result(self, tool_result: Any) -> Message:
        """Read a ``tool_result`` block, or a user message that holds exactly one.

        Raises:
            MessageError: It is neither.
        """
        if _block_type(tool_result) == "tool_result":
            if "tool_use_id" not in plain_fields(tool_result):
                raise MessageError("a tool_result block without 'tool_use_id' is not in Anthropic's form")
            return Message("tool", (_part(plain_fields(tool_result)),))
        return super().result(tool_result)

    def with_results(self, message: Any, results: Mapping[int, Blocks]) -> Any:
        """Return a copy whose n-th ``tool_result`` block has other content."""
        found = own_fields(message)
        content = list(blocks_of(found.get("content")))
        places = [place for place, block in enumerate(content) if _block_type(block) == "tool_result"]
        for number, blocks in results.items():
            content[places[number]] = self.with_content(content[places[number]], blocks)
        return {**found, "content": content}

    def with_content(self, message: Any, blocks: Blocks) -> Any:
        """Return a copy of *message* whose content consists of *blocks*."""
        found = own_fields(message)
        return {**found, "content": rebuilt_content(found.get("content"), blocks)}

    def user_message(self, text: str) -> dict[str, Any]:
        """Return a new user message."""
        return {"role": "user", "content": text}

    def tool_result_message(self, call_id: str, text: str, name: str = "") -> dict[str, Any]:  # noqa: ARG002 - the call has it
        """Return a new user message with one ``tool_result`` block, which has no place for the tool's name."""
        return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": text}]}

    def write(self, turns: Sequence[Turn], losses: Losses) -> Iterator[dict[str, Any]]:
        """Write one message for each turn; texts that are blank, which Anthropic refuses, are left out."""
        for turn in turns:
            parts = [part for part in turn.parts if not is_blank(part)]
            content = [block for part in parts for block in _written(part, turn.role, losses.at(turn.number))]
            is_text = len(content) == 1 and content[0].keys() == {"type", "text"}
            if content:
                role = "assistant" if turn.role == "assistant" else "user"
                yield {"role": role, "content": content[0]["text"] if is_text else content}


def _block_type(block: object) -> str | None:
    found = fields(block)
    kind = None if found is None else found.get("type")
    return kind if isinstance(kind, str) else None


def _is_own(block: object) -> bool:
    kind = _block_type(block)
    if kind == "text":
        return "citations" in own_fields(block)
    if kind == "thinking":  # Mistral's has a list there
        return isinstance(own_fields(block).get("thinking"), str)
    return kind in _OWN_BLOCKS or (kind is not None and kind.endswith("_tool_result"))


def _part(block: object) -> Part:
    if is_object(block):
        match block.get("type"):
            case "tool_use":
                call_id, name = text_or_empty(block.get("id")), text_or_empty(block.get("name"))
                return ToolCall(call_id, name, spell(block.get("input", {})))
            case "tool_result":
                return _result(block)
            case "thinking" | "redacted_thinking":
                return Reasoning(*(text_or_empty(block.get(key)) for key in ("thinking", "signature", "data")))
            case "image" | "document" as kind:
                return _media(kind, block)
            case "search_result" if is_array(block.get("content")) and (texts := _texts(block["content"])) is not None:
                return Text(join_texts([text_or_empty(block.get("title")), text_or_empty(block.get("source")), *texts]))
            case _:
                pass
    part = simple_part(block)
    return part if isinstance(part, Text) else replace(part, call_id=_served_id(block))


def _served_id(block: object) -> str:
    """Return the id of a call that the provider answers itself, or of its result; empty for any other block."""
    kind = kind_of(block)
    key = "id" if kind.endswith("_tool_use") else "tool_use_id" if kind.endswith("_tool_result") else ""
    return text_or_empty(block.get(key)) if key and is_object(block) else ""


def _result(block: Mapping[str, Any]) -> ToolResult:
    parts = tuple(map(_inner_part, blocks_of(block.get("content"))))
    return ToolResult(text_or_empty(block.get("tool_use_id")), "", parts, is_error=block.get("is_error") is True)


def _inner_part(block: object) -> ResultPart:
    """Read a block of a tool result: one part each, so that parts and blocks have the same numbers."""
    part = _part(block)
    return part if isinstance(part, (Text, Media, Opaque)) else simple_part(block)


def _texts(content: object) -> list[str] | None:
    """Return the texts of the blocks of *content*; None if one of them is something else."""
    parts = [_part(inner) for inner in blocks_of(content)]
    texts = [part.text for part in parts if isinstance(part, Text)]
    return texts if len(texts) == len(parts) else None


def _media(kind: str, block: Mapping[str, Any]) -> Media | Text | Opaque:
    source, title = block.get("source"), block.get("title")
    if not is_object(source):
        return simple_part(block)
    titled = [text_or_empty(title)] if title else []
    if source.get("type") == "text" and isinstance(text := source.get("data"), str):
        return Text(join_texts([*titled, text]))
    if source.get("type") == "content":
        texts = _texts(source.get("content"))
        return simple_part(block) if texts is None else Text(join_texts([*titled, *texts]))
    if source.get("type") == "base64":
        return media(kind, source.get("media_type"), payload=source.get("data"), name=title)
    return media(kind, source.get("media_type"), source=source.get("url", source.get("file_id")), name=title)


# Writing.


def _written(part: Part, role: str, losses: Losses) -> Iterator[dict[str, Any]]:
    match part:
        case Reasoning():
            if part.hidden:
                yield {"type": "redacted_thinking", "data": part.hidden}
            elif part.signature:
                yield {"type": "thinking", "thinking": part.text, "signature": part.signature}
            else:
                losses.note("reasoning", "it has no signature, and would be refused")
        case ToolCall():
            arguments = losses.object_of(part.arguments)
            yield {"type": "tool_use", "id": part.call_id, "name": part.name, "input": arguments}
        case ToolResult():
            inner = [one for one in part.parts if not is_blank(one)]
            content = [block for one in inner for block in _written(one, role, losses)]
            failed = {"is_error": True} if part.is_error else {}
            yield {"type": "tool_result", "tool_use_id": part.call_id, "content": content, **failed}
        case Media():
            why = "the model shows no media there" if role == "assistant" else _refused(part)
            if why is not None:
                yield {"type": "text", "text": losses.left_out(part, why).text}
                return
            titled = {"title": part.name} if part.name and part.kind == "document" else {}
            yield {"type": part.kind, "source": _written_source(part), **titled}
        case _:
            yield {"type": "text", "text": text_in(part)}


def _refused(media: Media) -> str | None:
    """Return why a message cannot hold *media*, ``""`` for no special reason; None if it can."""
    if media.kind not in ("image", "document"):
        return ""
    if media.payload is None:
        return None if media.source.startswith(("https://", "http://")) else "its bytes are elsewhere"
    if media.kind == "image":
        return None if media.media_type in _IMAGES else ""
    return None if media.media_type == _PDF or document_text(media) is not None else ""


def _written_source(media: Media) -> dict[str, str]:
    if media.payload is None:
        return {"type": "url", "url": media.source}
    text = document_text(media)
    if text is None:
        return {"type": "base64", "media_type": media.media_type, "data": base64_of(media)}
    return {"type": "text", "media_type": "text/plain", "data": text}
