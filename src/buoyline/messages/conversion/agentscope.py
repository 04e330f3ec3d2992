"""Reading AgentScope's messages for a conversion; see `buoyline.messages.agentscope` for the form.

One message of its assistant's holds a whole reply: rounds of calls and results, and hints between them. A hint goes to
the model as the user's.
"""

import hashlib
import mimetypes
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from buoyline.messages.agentscope import AgentScope
from buoyline.messages.conversion.blocks import (
    Answered,
    Block,
    CachePoint,
    Called,
    Losses,
    Medium,
    Said,
    Thought,
    Turn,
    Value,
    turns_of,
)
from buoyline.messages.formats import base64_of, foreign
from buoyline.messages.jsonl import is_object, spell
from buoyline.messages.model import Role, blocks_of, plain_fields, role_of, text_of, text_or_empty

_ACCOUNTS: Final = frozenset({"id", "created_at", "finished_at", "usage", "finished_reason"})
"""What AgentScope notes of a message or block for its own accounts; noted as one loss of a message."""

_MESSAGE: Final = ("role", "name", "content", "metadata")
_DATA_KINDS: Final = ("image", "audio", "video")


def read(message: Any, number: int, losses: Losses) -> list[Turn]:
    """Return the turns of *message*.

    Raises:
        MessageError: It is no message of this dialect.
    """
    found = plain_fields(message)
    role, content = role_of(found), blocks_of(found.get("content"))
    losses.note_fields(number, found, (*_MESSAGE, *_ACCOUNTS))
    if accounts := sorted(name for name in _ACCOUNTS if found.get(name)):
        losses.note(number, ", ".join(accounts), f"accounts of AgentScope's; {losses.target} keeps none such")
    name = text_or_empty(found.get("name"))
    speaker = "" if name == role else name
    metadata: Mapping[str, Any] = held if is_object(held := found.get("metadata")) else {}
    turns: list[Turn] = []
    for speaks, blocks in _runs(role, content, number, losses) or [(role, [])]:
        named = speaker if speaks == role else ""
        turns += turns_of(speaks, blocks, number, named, {} if turns else metadata)
    return turns


def _runs(role: Role, content: Any, number: int, losses: Losses) -> list[tuple[Role, list[Block]]]:
    """Return the blocks by who says them: a hint between results waits until they are told."""
    runs: list[tuple[Role, list[Block]]] = []
    hinted: list[Block] = []
    for block in content:
        if is_object(block) and block.get("type") == "hint":
            hinted += _hint(block, number, losses)
            continue
        made = _read_block(block, number, losses)
        if made is None:
            continue
        if hinted and not isinstance(made, Answered):
            runs.append(("user", hinted))
            hinted = []
        if runs and runs[-1][0] == role:
            runs[-1][1].append(made)
        else:
            runs.append((role, [made]))
    return [*runs, ("user", hinted)] if hinted else runs


def _hint(block: Mapping[str, Any], number: int, losses: Losses) -> list[Block]:
    _note(block, ("hint",), "a hint", number, losses)
    losses.note(number, "hint", "it is the user's now")
    hint = block.get("hint")
    blocks = [{"type": "text", "text": hint}] if isinstance(hint, str) else blocks_of(hint)
    return [made for inner in blocks if (made := _inner(inner, number, losses)) is not None]


def _read_block(block: Any, number: int, losses: Losses) -> Block | None:
    match block:
        case {"type": "tool_call"}:
            _note(block, ("id", "name", "input", "state", "suggested_rules"), "a call", number, losses)
            given = block.get("input", "")
            spelled = given if isinstance(given, str) else spell(given)
            return Called(text_or_empty(block.get("id")), text_or_empty(block.get("name")), spelled)
        case {"type": "tool_result"}:
            return _read_result(block, number, losses)
        case {"type": "thinking"}:
            known = ("thinking", "signature", "redacted_thinking_data")
            _note(block, known, "reasoning", number, losses)
            thinking, signature, hidden = (text_or_empty(block.get(key)) for key in known)
            return Thought(thinking, signature, hidden)
        case _:
            return _inner(block, number, losses)


def _read_result(block: Mapping[str, Any], number: int, losses: Losses) -> Answered:
    _note(block, ("id", "name", "output", "state", "metadata"), "a result", number, losses)
    if block.get("metadata"):
        losses.note(number, "metadata of a result")
    state = block.get("state", "success")
    if state not in ("success", "error"):
        losses.note(number, f"state {state!r} of a result", "results succeed or fail there")
    given = [_inner(inner, number, losses) for inner in blocks_of(block.get("output"))]
    blocks = tuple(inner for inner in given if inner is not None)
    is_error = state in ("error", "denied", "interrupted")
    return Answered(text_or_empty(block.get("id")), text_or_empty(block.get("name")), blocks, is_error)


def _inner(block: Any, number: int, losses: Losses) -> Said | Medium | None:
    """Read a block that may stand in a result or a hint."""
    if (text := text_of(block)) is not None:
        if is_object(block):
            _note(block, ("text",), "a text", number, losses)
        return Said(text) if text else None
    match block:
        case {"type": "data", "source": source} if is_object(source):
            _note(block, ("source", "name"), "data", number, losses)
            return _medium(source, text_or_empty(block.get("name")))
        case _:
            kind = text_or_empty(block.get("type")) if is_object(block) else type(block).__name__
            return foreign(kind, number, losses)


def _medium(source: Mapping[str, Any], name: str) -> Medium:
    media_type = text_or_empty(source.get("media_type"))
    main = media_type.partition("/")[0]
    kind: Any = main if main in _DATA_KINDS else "document"
    if source.get("type") == "base64" and isinstance(data := source.get("data"), str):
        return Medium(kind, media_type, data, name=name)
    return Medium(kind, media_type, None, text_or_empty(source.get("url")), name)


def _note(block: Mapping[str, Any], known: tuple[str, ...], where: str, number: int, losses: Losses) -> None:
    losses.note_fields(number, block, ("type", *known, *_ACCOUNTS), where)


# Writing AgentScope's messages; see `buoyline.messages.agentscope` for the form.
#
# The same messages are written alike, whoever writes them and when: ids are hashes, and there is no time.


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
        content = [_write_block(block, turn, answered, losses) for block, turn in blocks]
        message_id = _hash(f"{first.number} {role} {spell(content)}")
        _identify(content, message_id)
        fields: dict[str, Any] = {"name": first.name or role, "content": content, "role": role, "id": message_id}
        fields |= {"metadata": dict(first.metadata), "created_at": _NO_TIME, "usage": None, "finished_at": _NO_TIME}
        yield AgentScope().from_json(fields | {"finished_reason": None, "structured_output": None, "error": None})


def _write_block(
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
            return _write_result(block, turn, losses)
        case Medium():
            return _data(block, turn, losses)
        case Said(text):
            return {"type": "text", "text": text}
        case Value(value):
            losses.note(turn.number, "JSON value", "it is text now")
            return {"type": "text", "text": spell(value)}


def _write_result(result: Answered, turn: Turn, losses: Losses) -> dict[str, Any]:
    output = [_write_block(block, turn, set(), losses) for block in result.blocks]
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
