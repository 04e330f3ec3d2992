"""Reading AgentScope's messages for a conversion; see `buoyline.messages.agentscope` for the form.

One message of its assistant's holds a whole reply: rounds of calls and results, and hints between them. A hint goes to
the model as the user's.
"""

from collections.abc import Mapping
from typing import Any, Final

from buoyline.messages.conversion.blocks import Answered, Block, Called, Medium, Said, Thought, Turn, turns_of
from buoyline.messages.conversion.losses import Losses
from buoyline.messages.conversion.media import foreign
from buoyline.messages.jsonl import is_object, spell
from buoyline.messages.message import Role
from buoyline.messages.native import blocks_of, plain_fields, role_of, text_of, text_or_empty

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
        made = _block(block, number, losses)
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


def _block(block: Any, number: int, losses: Losses) -> Block | None:
    match block:
        case {"type": "tool_call"}:
            _note(block, ("id", "name", "input", "state", "suggested_rules"), "a call", number, losses)
            given = block.get("input", "")
            spelled = given if isinstance(given, str) else spell(given)
            return Called(text_or_empty(block.get("id")), text_or_empty(block.get("name")), spelled)
        case {"type": "tool_result"}:
            return _result(block, number, losses)
        case {"type": "thinking"}:
            known = ("thinking", "signature", "redacted_thinking_data")
            _note(block, known, "reasoning", number, losses)
            thinking, signature, hidden = (text_or_empty(block.get(key)) for key in known)
            return Thought(thinking, signature, hidden)
        case _:
            return _inner(block, number, losses)


def _result(block: Mapping[str, Any], number: int, losses: Losses) -> Answered:
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
