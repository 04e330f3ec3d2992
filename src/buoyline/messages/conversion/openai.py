"""Reading OpenAI's chat messages for a conversion; see `buoyline.messages.openai_chat` for the form."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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
from buoyline.messages.jsonl import is_array, is_object, spell
from buoyline.messages.model import blocks_of, data_url, plain_fields, role_of, text_of, text_or_empty

_KNOWN = (
    *("role", "name", "content", "reasoning_content", "reasoning", "refusal", "tool_calls", "function_call"),
    "tool_call_id",
)


def read(message: Any, number: int, losses: Losses) -> list[Turn]:
    """Return the turns of *message*.

    Raises:
        MessageError: It is no message of this dialect.
    """
    found = plain_fields(message)
    role = role_of(found)
    losses.note_fields(number, found, _KNOWN)
    if found["role"] == "developer":
        losses.note(number, "role 'developer'", "it is a system message now")
    name = text_or_empty(found.get("name"))
    if role == "tool":
        content = tuple(_read_content(found, number, losses))
        result = Answered(text_or_empty(found.get("tool_call_id")), name, content)
        return [Turn("tool", (result,), number)]
    blocks: list[Block] = [*_thoughts(found), *_read_content(found, number, losses), *_calls(found, number, losses)]
    return turns_of(role, blocks, number, "" if name == role else name)


def _thoughts(found: Mapping[str, Any]) -> Iterator[Thought]:
    thinking = [text_or_empty(found.get(key)) for key in ("reasoning_content", "reasoning")]
    yield from (Thought(text) for text in list(filter(None, thinking))[:1])


def _read_content(found: Mapping[str, Any], number: int, losses: Losses) -> Iterator[Said | Medium]:
    for block in blocks_of(found.get("content")):
        read_block = _block(block, number, losses)
        if read_block is not None:
            yield read_block
    if refusal := text_or_empty(found.get("refusal")):
        yield _refusal(refusal, number, losses)


def _block(block: Any, number: int, losses: Losses) -> Said | Medium | None:
    if (text := text_of(block)) is not None:
        if is_object(block):
            losses.note_fields(number, block, ("type", "text"), "a text")
        return Said(text) if text else None
    match block:
        case {"type": "image_url", "image_url": held}:
            return _image(held, number, losses)
        case {"type": "input_audio", "input_audio": {"data": str(data), **more}}:
            form = text_or_empty(more.get("format"))
            return Medium("audio", f"audio/{form}" if form else "", data)
        case {"type": "file", "file": held} if is_object(held):
            return _file(held)
        case {"type": "refusal", "refusal": str(refusal)}:
            return _refusal(refusal, number, losses)
        case _:
            kind = text_or_empty(block.get("type")) if is_object(block) else type(block).__name__
            return foreign(kind, number, losses)


def _refusal(text: str, number: int, losses: Losses) -> Said:
    losses.note(number, "refusal", "it is plain text now")
    return Said(text)


def _image(held: Any, number: int, losses: Losses) -> Medium:
    if is_object(held):
        losses.note_fields(number, held, ("url",), "an image")
    return _by_url("image", text_or_empty(held.get("url") if is_object(held) else held), "")


def _file(held: Mapping[str, Any]) -> Medium:
    url = text_or_empty(held.get("file_data")) or text_or_empty(held.get("file_id"))
    return _by_url("document", url, text_or_empty(held.get("filename")))


def _by_url(kind: Any, url: str, name: str) -> Medium:
    found = data_url(url)
    return Medium(kind, "", None, url, name) if found is None else Medium(kind, found[0], found[1], name=name)


def _calls(found: Mapping[str, Any], number: int, losses: Losses) -> Iterator[Called]:
    calls = found.get("tool_calls")
    for call in filter(is_object, calls if is_array(calls) else ()):
        yield _read_call(call, number, losses)
    if is_object(legacy := found.get("function_call")):
        losses.note(number, "function_call", "it is a call of today's form now")
        yield _read_call({"function": legacy}, number, losses)


def _read_call(call: Mapping[str, Any], number: int, losses: Losses) -> Called:
    losses.note_fields(number, call, ("id", "type", "index", "function", "custom"), "a call")
    held = call.get("function", call.get("custom"))
    function: Mapping[str, Any] = held if is_object(held) else {}
    losses.note_fields(number, function, ("name", "arguments", "input"), "a call")
    if "function" not in call and "custom" in call:
        losses.note(number, "type 'custom' of a call", "it is a call of a function now")
    arguments = function.get("arguments", function.get("input", ""))
    spelled = arguments if isinstance(arguments, str) else spell(arguments)
    return Called(text_or_empty(call.get("id")), text_or_empty(function.get("name")), spelled)


# Writing OpenAI's chat messages; see `buoyline.messages.openai_chat` for the form.
#
# Reasoning comes before text, and text before calls: a message has one place for each. Media of a result have none in
# a
# tool's message; they follow in one of the user's, as AgentScope's formatter does it.


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
        message: dict[str, Any] = {"role": turn.role, **named, "content": _write_content(turn)}
        if turn.role == "assistant":
            _note_order(turn, losses)
            message |= _reasoning(turn, losses)
            message |= {"tool_calls": [_write_call(call) for call in turn.calls]} if turn.calls else {}
        yield message


def _write_content(turn: Turn) -> Any:
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


def _write_call(call: Called) -> dict[str, Any]:
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
