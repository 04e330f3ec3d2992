"""Writing OpenAI's chat messages; see `buoyline.messages.openai_chat` for the form.

Reasoning comes before text, and text before calls: a message has one place for each. Media of a result have none in a
tool's message; they follow in one of the user's, as AgentScope's formatter does it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from buoyline.messages.conversion.blocks import (
    Answered,
    CachePoint,
    Called,
    Medium,
    Said,
    Thought,
    Turn,
    Value,
)
from buoyline.messages.conversion.losses import Losses
from buoyline.messages.conversion.media import base64_of
from buoyline.messages.jsonl import spell


class OpenAITarget:
    """Writes one message for each turn, and one for each result."""

    takes_turns = False
    has_system = True
    has_cache_points = False
    names_results = False
    shows_media = False
    names_media = False

    def refusal(self, medium: Medium) -> str | None:
        """See `Target`: films have no place, and of what has its bytes elsewhere only pictures by URL."""
        if medium.kind == "video":
            return ""
        if medium.payload is not None:
            return None if medium.media_type else "nobody says of what type it is"
        return None if medium.kind == "image" and _is_url(medium.url) else "its bytes are elsewhere"

    def refuses(self, thought: Thought) -> str | None:
        """See `Target`: what is hidden is for the provider that has hidden it."""
        return "" if thought.hidden else None

    def joins(self, group: Sequence[Turn], turn: Turn) -> bool:
        """See `Target`."""
        del group, turn
        return False

    def written(self, group: Sequence[Turn], losses: Losses) -> Iterator[Any]:
        """See `Target`."""
        (turn,) = group
        if turn.metadata:
            losses.note(turn.number, "metadata")
        if turn.role == "tool":
            yield from _results(turn, losses)
            return
        named = {"name": turn.name} if turn.name else {}
        message: dict[str, Any] = {"role": turn.role, **named, "content": _content(turn)}
        if turn.role == "assistant":
            _note_order(turn, losses)
            message |= _reasoning(turn, losses)
            message |= {"tool_calls": [_call(call) for call in turn.calls]} if turn.calls else {}
        yield message


def _content(turn: Turn) -> Any:
    said = [block for block in turn.blocks if isinstance(block, (Said, Value, Medium))]
    match said:
        case []:
            return None if turn.calls or turn.blocks else ""
        case [Said(text)]:
            return text
        case _:
            return [_part(block) for block in said]


def _part(block: Said | Value | Medium) -> dict[str, Any]:
    match block:
        case Said(text):
            return {"type": "text", "text": text}
        case Value(value):
            return {"type": "text", "text": spell(value)}
        case Medium(kind="image"):
            return {"type": "image_url", "image_url": {"url": _url(block)}}
        case Medium(kind="audio"):
            audio = {"data": base64_of(block), "format": block.media_type.rpartition("/")[2]}
            return {"type": "input_audio", "input_audio": audio}
        case _:
            named = {"filename": block.name} if block.name else {}
            return {"type": "file", "file": {**named, "file_data": _url(block)}}


def _url(medium: Medium) -> str:
    return medium.url if medium.payload is None else f"data:{medium.media_type};base64,{base64_of(medium)}"


def _is_url(url: str) -> bool:
    return url.startswith(("https://", "http://", "workspace:///"))


def _reasoning(turn: Turn, losses: Losses) -> dict[str, str]:
    thoughts = [block for block in turn.blocks if isinstance(block, Thought)]
    for _ in filter(lambda thought: thought.signature, thoughts):
        losses.note(turn.number, "signature of reasoning")
    if len(thoughts) > 1:
        losses.note(turn.number, "several blocks of reasoning", "they are one text now")
    text = "\n".join(thought.text for thought in thoughts)
    return {"reasoning_content": text} if text else {}


def _call(call: Called) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.call_id, "type": "function", "function": function}


def _note_order(turn: Turn, losses: Losses) -> None:
    order: dict[type, int] = {Thought: 0, Called: 2}
    ranks = [order.get(type(block), 1) for block in turn.blocks if not isinstance(block, CachePoint)]
    if ranks != sorted(ranks):
        losses.note(turn.number, "order of reasoning, text and calls", "each has its one place there")


def _results(turn: Turn, losses: Losses) -> Iterator[dict[str, Any]]:
    shown: list[dict[str, Any]] = []
    for result in turn.results:
        if result.is_error:
            losses.note(turn.number, "mark of a failed result", "its text alone says so")
        named = {"name": result.name} if result.name else {}
        yield {"role": "tool", "tool_call_id": result.call_id, **named, "content": _output(result, turn, losses)}
        media = [block for block in result.blocks if isinstance(block, Medium)]
        if media:
            losses.note(turn.number, "media of a result", "a message of the user's behind it holds them")
            about = f"What the call {result.call_id!r} has shown:"
            shown += [{"type": "text", "text": about}, *map(_part, media)]
    if shown:
        yield {"role": "user", "content": shown}


def _output(result: Answered, turn: Turn, losses: Losses) -> Any:
    texts = [block for block in result.blocks if not isinstance(block, Medium)]
    for _ in filter(lambda block: isinstance(block, Value), texts):
        losses.note(turn.number, "JSON value of a result", "it is text now")
    parts = [_part(block) for block in texts]
    return parts if len(parts) > 1 else parts[0]["text"] if parts else ""
