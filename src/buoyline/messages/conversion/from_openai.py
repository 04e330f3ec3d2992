"""Reading OpenAI's chat messages for a conversion; see `buoyline.messages.openai_chat` for the form."""

from collections.abc import Iterator, Mapping
from typing import Any

from buoyline.messages.conversion.blocks import Answered, Block, Called, Medium, Said, Thought, Turn, turns_of
from buoyline.messages.conversion.losses import Losses
from buoyline.messages.conversion.media import foreign
from buoyline.messages.jsonl import is_array, is_object, spell
from buoyline.messages.native import blocks_of, data_url, plain_fields, role_of, text_of, text_or_empty

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
        content = tuple(_content(found, number, losses))
        result = Answered(text_or_empty(found.get("tool_call_id")), name, content)
        return [Turn("tool", (result,), number)]
    blocks: list[Block] = [*_thoughts(found), *_content(found, number, losses), *_calls(found, number, losses)]
    return turns_of(role, blocks, number, "" if name == role else name)


def _thoughts(found: Mapping[str, Any]) -> Iterator[Thought]:
    thinking = [text_or_empty(found.get(key)) for key in ("reasoning_content", "reasoning")]
    yield from (Thought(text) for text in list(filter(None, thinking))[:1])


def _content(found: Mapping[str, Any], number: int, losses: Losses) -> Iterator[Said | Medium]:
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
        yield _call(call, number, losses)
    if is_object(legacy := found.get("function_call")):
        losses.note(number, "function_call", "it is a call of today's form now")
        yield _call({"function": legacy}, number, losses)


def _call(call: Mapping[str, Any], number: int, losses: Losses) -> Called:
    losses.note_fields(number, call, ("id", "type", "index", "function", "custom"), "a call")
    held = call.get("function", call.get("custom"))
    function: Mapping[str, Any] = held if is_object(held) else {}
    losses.note_fields(number, function, ("name", "arguments", "input"), "a call")
    if "function" not in call and "custom" in call:
        losses.note(number, "type 'custom' of a call", "it is a call of a function now")
    arguments = function.get("arguments", function.get("input", ""))
    spelled = arguments if isinstance(arguments, str) else spell(arguments)
    return Called(text_or_empty(call.get("id")), text_or_empty(function.get("name")), spelled)
