"""Writing Anthropic's messages; see `buoyline.messages.anthropic` for the form."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from buoyline.messages.conversion.arguments import object_of
from buoyline.messages.conversion.blocks import Answered, Block, CachePoint, Called, Medium, Said, Thought, Turn, Value
from buoyline.messages.conversion.losses import Losses
from buoyline.messages.conversion.media import base64_of, text_of
from buoyline.messages.jsonl import spell

_PICTURES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_PDF: Final = "application/pdf"


class AnthropicTarget:
    """Writes what the user says and what tools give into one message, the model's into another."""

    takes_turns = True
    has_system = False
    has_cache_points = True
    names_results = False
    shows_media = False
    names_media = False

    def refusal(self, medium: Medium) -> str | None:
        """See `Target`: pictures and documents of some types have a place."""
        if medium.kind not in ("image", "document"):
            return ""
        if medium.payload is None:
            return None if medium.url.startswith(("https://", "http://")) else "its bytes are elsewhere"
        if medium.kind == "image":
            return None if medium.media_type in _PICTURES else ""
        return None if medium.media_type == _PDF or text_of(medium) is not None else ""

    def refuses(self, thought: Thought) -> str | None:
        """See `Target`: Anthropic refuses reasoning that it has not signed."""
        return None if thought.hidden or thought.signature else "it has no signature, and would be refused"

    def joins(self, group: Sequence[Turn], turn: Turn) -> bool:
        """See `Target`."""
        return (group[-1].role == "assistant") == (turn.role == "assistant")

    def written(self, group: Sequence[Turn], losses: Losses) -> Iterator[Any]:
        """See `Target`."""
        content: list[dict[str, Any]] = []
        for turn in group:
            if turn.metadata:
                losses.note(turn.number, "metadata")
            if turn.name:
                losses.note(turn.number, "name of the speaker")
            for block in turn.blocks:
                _put(block, content, turn, losses)
        role = "assistant" if group[0].role == "assistant" else "user"
        is_text = len(content) == 1 and content[0].keys() == {"type", "text"}
        yield {"role": role, "content": content[0]["text"] if is_text else content}


def _put(block: Block, content: list[dict[str, Any]], turn: Turn, losses: Losses) -> None:
    if not isinstance(block, CachePoint):
        content.append(_block(block, turn, losses))
    elif not content or "cache_control" in content[-1] or content[-1]["type"].endswith("thinking"):
        losses.note(turn.number, "cache point", "no block before it can hold it")
    else:
        content[-1]["cache_control"] = {"type": "ephemeral"} | ({"ttl": block.ttl} if block.ttl else {})


def _block(block: Thought | Called | Answered | Medium | Value | Said, turn: Turn, losses: Losses) -> dict[str, Any]:
    match block:
        case Thought():
            return _thought(block, turn, losses)
        case Called():
            arguments = object_of(block.arguments, turn.number, losses)
            return {"type": "tool_use", "id": block.call_id, "name": block.name, "input": arguments}
        case Answered():
            return _result(block, turn, losses)
        case Medium():
            return _medium(block, turn, losses)
        case _:
            return {"type": "text", "text": spell(block.value) if isinstance(block, Value) else block.text}


def _thought(thought: Thought, turn: Turn, losses: Losses) -> dict[str, Any]:
    if not thought.hidden:
        return {"type": "thinking", "thinking": thought.text, "signature": thought.signature}
    if thought.text:
        losses.note(turn.number, "text of hidden reasoning")
    return {"type": "redacted_thinking", "data": thought.hidden}


def _result(result: Answered, turn: Turn, losses: Losses) -> dict[str, Any]:
    if result.name:
        losses.note(turn.number, "name of a result's tool")
    for _ in filter(lambda block: isinstance(block, Value), result.blocks):
        losses.note(turn.number, "JSON value of a result", "it is text now")
    blocks = [_block(block, turn, losses) for block in result.blocks]
    is_text = len(blocks) == 1 and blocks[0]["type"] == "text"
    failed = {"is_error": True} if result.is_error else {}
    content: Any = blocks[0]["text"] if is_text else blocks
    return {"type": "tool_result", "tool_use_id": result.call_id, "content": content, **failed}


def _medium(medium: Medium, turn: Turn, losses: Losses) -> dict[str, Any]:
    titled = {"title": medium.name} if medium.name and medium.kind == "document" else {}
    return {"type": medium.kind, "source": _source(medium, turn, losses), **titled}


def _source(medium: Medium, turn: Turn, losses: Losses) -> dict[str, str]:
    if medium.payload is None:
        if medium.media_type:
            losses.note(turn.number, "media type of a URL")
        return {"type": "url", "url": medium.url}
    text = text_of(medium)
    if text is None:
        return {"type": "base64", "media_type": medium.media_type, "data": base64_of(medium)}
    if medium.media_type != "text/plain":
        losses.note(turn.number, f"media type {medium.media_type!r} of a document", "it is plain text now")
    return {"type": "text", "media_type": "text/plain", "data": text}
