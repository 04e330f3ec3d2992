"""Anthropic's messages dialect.

Source: the ``messages`` of the Messages API: ``role`` and ``content``, text or a list of blocks. Tool results
are blocks of user messages, several in one message if calls ran in parallel.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from buoyline.messages import parts
from buoyline.messages.dialect import BlockDialect, fields
from buoyline.messages.jsonl import is_array, spell
from buoyline.messages.model import (
    Compaction,
    Losses,
    Media,
    Part,
    Reasoning,
    ResultPart,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Turn,
)
from buoyline.messages.parts import base64_of

_TYPES: Final = {
    "image": ("image/jpeg", "image/png", "image/gif", "image/webp"),
    "document": ("application/pdf",),
}
"""The media types of each kind of block that holds a payload."""

_OWN_BLOCKS = frozenset(
    {
        *("tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document", "search_result"),
        *("server_tool_use", "mcp_tool_use", "mcp_tool_result", "container_upload", "compaction"),
    }
)
"""Unmistakable, as are the results of server tools and texts with a place for citations.

(A server tool's use is no `ToolCall`: its result is the model's, too, in the same message or in a later one.)
"""


class Anthropic(BlockDialect):
    """Messages as Anthropic's Messages API takes them."""

    name = "anthropic"

    def detects(self, message: object) -> bool:
        """Return whether *message* holds a block that only this dialect has."""
        found = fields(message)
        if found is None or found.get("role") not in ("user", "assistant") or "tool_calls" in found:
            return False
        content = found.get("content")
        return is_array(content) and any(map(_is_own, content))

    def part(self, block: Any) -> Part:
        """Read one block; see `BlockDialect.part`."""
        match block:
            case {"type": "tool_use"}:
                return parts.call(block.get("id"), block.get("name"), block.get("input", {}))
            case {"type": "tool_result"}:
                is_error = block.get("is_error") is True
                return parts.result(block.get("tool_use_id"), block.get("content"), _inner_part, is_error=is_error)
            case {"type": "compaction"} if _is_compaction(block):
                return Compaction("compaction", spell(block))
            case {"type": "thinking" | "redacted_thinking"}:
                return parts.reasoning(block.get("thinking"), block.get("signature"), block.get("data"))
            case _:
                return _inner_part(block)

    def split(self, message: Any) -> Sequence[Any]:
        """Return *message* with each ``compaction`` block in a message of its own; one answer may have several."""
        found = fields(message) or {}
        content: Any = held if is_array(held := found.get("content")) else []
        pieces = [[*group] for _, group in groupby(content, _is_compaction)]
        return (message,) if len(pieces) <= 1 else [{"role": found["role"], "content": piece} for piece in pieces]

    def is_result(self, block: Any) -> bool:
        """Return whether *block* is a ``tool_result`` block."""
        return _block_type(block) == "tool_result"

    def holds(self, part: Part, role: Role) -> bool:
        """Return whether there is a place for *part*: text that is not blank, signed reasoning, images and PDF."""
        match part:
            case Text():
                return bool(part.text.strip())
            case Reasoning():
                return bool(part.signature or part.hidden)
            case Media():
                known = _TYPES.get(part.kind, ()) if role != "assistant" else ()
                is_url = part.source.startswith(("https://", "http://"))
                return part.media_type in known if part.payload is not None else bool(known) and is_url
            case _:
                return True

    def write(self, turns: Sequence[Turn], losses: Losses) -> Iterator[dict[str, Any]]:
        """Write one message for each turn that says something."""
        for turn in turns:
            content = [_written(part, losses.at(turn.number)) for part in turn.parts]
            is_text = len(content) == 1 and content[0].keys() == {"type", "text"}
            if content:
                role = "assistant" if turn.role == "assistant" else "user"
                yield {"role": role, "content": content[0]["text"] if is_text else content}


def _block_type(block: object) -> str:
    return parts.string((fields(block) or {}).get("type"))


def _is_compaction(block: object) -> bool:
    """Return whether *block* is a compaction; one without content has failed, and the provider passes over it."""
    found = fields(block) or {}
    return found.get("type") == "compaction" and isinstance(found.get("content"), str)


def _is_own(block: object) -> bool:
    kind, found = _block_type(block), fields(block) or {}
    if kind == "thinking":  # Mistral's has a list there
        return isinstance(found.get("thinking"), str)
    return kind in _OWN_BLOCKS or kind.endswith("_tool_result") or (kind == "text" and "citations" in found)


def _inner_part(block: Any) -> ResultPart:
    """Read a block that a tool's result may hold: one part each, so that parts and blocks have the same numbers."""
    match block:
        case {"type": "image" | "document" as kind, "source": {**source}}:
            return _media(kind, block, source)
        case {"type": "search_result", "content": content}:
            return parts.joined([block.get("title"), block.get("source")], content) or parts.simple(block)
        case {"type": str(kind)} if kind.endswith(("_tool_use", "_tool_result")):  # the provider answers it itself
            return parts.simple(block, block.get("id" if kind.endswith("_tool_use") else "tool_use_id"))
        case _:
            return parts.simple(block)


def _media(kind: str, block: Mapping[str, Any], source: Mapping[Any, Any]) -> ResultPart:
    title, media_type = block.get("title"), source.get("media_type")
    match source:
        case {"type": "text", "data": held} | {"type": "content", "content": held}:
            return parts.joined([title], held) or parts.simple(block)
        case {"type": "base64"}:
            return parts.media(kind, media_type, payload=source.get("data"), name=title)
        case _:
            return parts.media(kind, media_type, source=source.get("url", source.get("file_id")), name=title)


# Writing.


def _written(part: Any, losses: Losses) -> dict[str, Any]:
    match part:
        case Reasoning():
            if part.hidden:
                if part.text:
                    losses.note("reasoning", "its hidden part is kept")
                return {"type": "redacted_thinking", "data": part.hidden}
            return {"type": "thinking", "thinking": part.text, "signature": part.signature}
        case ToolCall():
            arguments = losses.object_of(part.arguments)
            return {"type": "tool_use", "id": part.call_id, "name": part.name, "input": arguments}
        case ToolResult():
            content = [_written(inner, losses) for inner in part.parts]
            failed = {"is_error": True} if part.is_error else {}
            return {"type": "tool_result", "tool_use_id": part.call_id, "content": content, **failed}
        case Media():
            titled = {"title": part.name} if part.name and part.kind == "document" else {}
            return {"type": part.kind, "source": _written_source(part), **titled}
        case _:
            return {"type": "text", "text": part.text}


def _written_source(media: Media) -> dict[str, str]:
    if media.payload is None:
        return {"type": "url", "url": media.source}
    return {"type": "base64", "media_type": media.media_type, "data": base64_of(media)}
