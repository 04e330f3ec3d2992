"""Writing AgentScope's messages; see `buoyline.messages.agentscope` for the form.

The same messages are written alike, whoever writes them and when: ids are hashes, and there is no time.
"""

import hashlib
import mimetypes
from collections.abc import Iterator, Sequence
from typing import Any, Final

from buoyline.messages.agentscope import AgentScope
from buoyline.messages.conversion.blocks import Answered, CachePoint, Called, Medium, Said, Thought, Turn, Value
from buoyline.messages.conversion.losses import Losses
from buoyline.messages.conversion.media import base64_of
from buoyline.messages.jsonl import spell

_NO_TIME: Final = "1970-01-01T00:00:00"
_UNKNOWN: Final = {"document": "application/octet-stream"}


class AgentScopeTarget:
    """Writes rounds of calls and results into one message of the assistant's."""

    takes_turns = False
    has_system = True
    has_cache_points = False
    names_results = True
    shows_media = True
    names_media = True

    def refusal(self, medium: Medium) -> str | None:
        """See `Target`: what is a URL or has its bytes has a place."""
        return None if medium.payload is not None or "://" in medium.url else "its bytes are elsewhere"

    def refuses(self, thought: Thought) -> None:
        """See `Target`: all reasoning has a place."""

    def joins(self, group: Sequence[Turn], turn: Turn) -> bool:
        """See `Target`: what the tools give, and what the model says to that."""
        last, speaks = group[-1].role, turn.role
        is_answer = speaks == "tool" and last in ("assistant", "tool")
        goes_on = speaks == "assistant" and last == "tool" and group[0].role == "assistant"
        same = not turn.metadata and (speaks == "tool" or turn.name == group[0].name)
        return same and (is_answer or goes_on)

    def written(self, group: Sequence[Turn], losses: Losses) -> Iterator[Any]:
        """See `Target`."""
        answered = {result.call_id for turn in group for result in turn.results}
        first = group[0]
        role = "assistant" if first.role == "tool" else first.role
        blocks = [(block, turn) for turn in group for block in turn.blocks if not isinstance(block, CachePoint)]
        content = [_block(block, turn, answered, losses) for block, turn in blocks]
        message_id = _hash(f"{first.number} {role} {spell(content)}")
        _identify(content, message_id)
        fields: dict[str, Any] = {"name": first.name or role, "content": content, "role": role, "id": message_id}
        fields |= {"metadata": dict(first.metadata), "created_at": _NO_TIME, "usage": None, "finished_at": _NO_TIME}
        yield AgentScope().from_json(fields | {"finished_reason": None, "structured_output": None, "error": None})


def _block(
    block: Thought | Called | Answered | Medium | Value | Said, turn: Turn, answered: set[str], losses: Losses
) -> dict[str, Any]:
    match block:
        case Thought():
            extra = {"signature": block.signature, "redacted_thinking_data": block.hidden}
            return {"type": "thinking", "thinking": block.text} | {key: text for key, text in extra.items() if text}
        case Called():
            state = "finished" if block.call_id in answered else "pending"
            call = {"type": "tool_call", "id": block.call_id, "name": block.name, "input": block.arguments}
            return {**call, "state": state, "suggested_rules": []}
        case Answered():
            return _result(block, turn, losses)
        case Medium():
            return _data(block, turn, losses)
        case Said(text):
            return {"type": "text", "text": text}
        case Value(value):
            losses.note(turn.number, "JSON value", "it is text now")
            return {"type": "text", "text": spell(value)}


def _result(result: Answered, turn: Turn, losses: Losses) -> dict[str, Any]:
    output = [_block(block, turn, set(), losses) for block in result.blocks]
    state = "error" if result.is_error else "success"
    named = {"type": "tool_result", "id": result.call_id, "name": result.name}
    return {**named, "output": output, "state": state, "metadata": {}}


def _data(medium: Medium, turn: Turn, losses: Losses) -> dict[str, Any]:
    media_type = medium.media_type or mimetypes.guess_type(medium.url.partition("?")[0])[0] or ""
    main = media_type.partition("/")[0]
    kind = main if main in ("image", "audio", "video") else "document"
    if not media_type or kind != medium.kind:
        if media_type:
            losses.note(turn.number, f"media type {media_type!r} of {medium.kind}", "the type says what it is there")
        media_type = _UNKNOWN.get(medium.kind, f"{medium.kind}/*")
    if medium.payload is None:
        source = {"type": "url", "url": medium.url, "media_type": media_type}
    else:
        source = {"type": "base64", "data": base64_of(medium), "media_type": media_type}
    return {"type": "data", "source": source, "name": medium.name or None}


def _identify(content: Sequence[dict[str, Any]], message_id: str) -> None:
    """Give each block what AgentScope's blocks have besides: an id, where it is no call's, and times."""
    for place, block in enumerate(content):
        block.setdefault("id", _hash(f"{message_id} {place}"))
        block |= {"created_at": _NO_TIME, "finished_at": _NO_TIME if block["type"] != "text" else None}
        if block["type"] == "tool_result":
            _identify(block["output"], block["id"] + message_id + str(place))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
