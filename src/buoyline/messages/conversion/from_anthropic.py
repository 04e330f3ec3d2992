"""Reading Anthropic's messages for a conversion; see `buoyline.messages.anthropic` for the form."""

from collections.abc import Iterator, Mapping
from typing import Any

from buoyline.messages.conversion.blocks import (
    Answered,
    Block,
    CachePoint,
    Called,
    Medium,
    Said,
    Thought,
    Turn,
    turns_of,
)
from buoyline.messages.conversion.losses import Losses
from buoyline.messages.conversion.media import foreign, text_document
from buoyline.messages.jsonl import is_object, spell
from buoyline.messages.message import Text
from buoyline.messages.native import blocks_of, plain_fields, role_of, text_of, text_or_empty

_CACHE = "cache_control"


def read(message: Any, number: int, losses: Losses) -> list[Turn]:
    """Return the turns of *message*.

    Raises:
        MessageError: It is no message of this dialect.
    """
    found = plain_fields(message)
    losses.note_fields(number, found, ("role", "content", "type"))
    blocks = [made for block in blocks_of(found.get("content")) for made in _blocks(block, number, losses)]
    return turns_of(role_of(found), blocks, number)


def _blocks(block: Any, number: int, losses: Losses) -> Iterator[Block]:
    made = _block(block, number, losses)
    if made is not None:
        yield made
    if is_object(block) and is_object(control := block.get(_CACHE)):
        losses.note_fields(number, control, ("type", "ttl"), _CACHE)
        yield CachePoint(text_or_empty(control.get("ttl")))


def _block(block: Any, number: int, losses: Losses) -> Block | None:
    match block:
        case {"type": "tool_use"}:
            losses.note_fields(number, block, ("type", "id", "name", "input", _CACHE), "a call")
            spelled = spell(block.get("input", {}))
            return Called(text_or_empty(block.get("id")), text_or_empty(block.get("name")), spelled)
        case {"type": "tool_result"}:
            return _result(block, number, losses)
        case {"type": "thinking"}:
            losses.note_fields(number, block, ("type", "thinking", "signature", _CACHE), "reasoning")
            return Thought(text_or_empty(block.get("thinking")), text_or_empty(block.get("signature")))
        case {"type": "redacted_thinking"}:
            return Thought("", hidden=text_or_empty(block.get("data")))
        case _:
            return _inner(block, number, losses)


def _result(block: Mapping[str, Any], number: int, losses: Losses) -> Answered:
    losses.note_fields(number, block, ("type", "tool_use_id", "content", "is_error", _CACHE), "a result")
    given = [_inner(inner, number, losses, within=True) for inner in blocks_of(block.get("content"))]
    blocks = tuple(inner for inner in given if inner is not None)
    return Answered(text_or_empty(block.get("tool_use_id")), "", blocks, is_error=block.get("is_error") is True)


def _inner(block: Any, number: int, losses: Losses, *, within: bool = False) -> Said | Medium | None:
    """Read a block that may stand in a result; *within* one, a cache point has no place elsewhere."""
    cache = () if within else (_CACHE,)
    if (text := text_of(block)) is not None:
        if is_object(block):
            losses.note_fields(number, block, ("type", "text", *cache), "a text")
        return Said(text) if text else None
    match block:
        case {"type": "image" | "document" as kind, "source": source} if is_object(source):
            losses.note_fields(number, block, ("type", "source", "title", *cache), str(kind))
            return _medium(kind, source, text_or_empty(block.get("title")), number, losses)
        case _:
            return _foreign(block, number, losses)


def _medium(kind: Any, source: Mapping[str, Any], title: str, number: int, losses: Losses) -> Said | Medium:
    media_type = text_or_empty(source.get("media_type"))
    data = source.get("data")
    match source.get("type"):
        case "base64" if isinstance(data, str):
            return Medium(kind, media_type, data, name=title)
        case "text" if isinstance(data, str):
            return text_document(data, title)
        case "content":
            return _content_document(source, title, number, losses)
        case _:
            url = text_or_empty(source.get("url")) or text_or_empty(source.get("file_id"))
            return Medium(kind, media_type, None, url, title)


def _content_document(source: Mapping[str, Any], title: str, number: int, losses: Losses) -> Said | Medium:
    texts = [text_of(inner) for inner in blocks_of(source.get("content"))]
    losses.note(number, "blocks of a document", "its texts are one plain text now")
    return text_document("\n".join(text for text in texts if text), title)


def _foreign(block: Any, number: int, losses: Losses) -> Said:
    """Read a block of a kind that no other dialect has: what a view can read of it is text."""
    kind = text_or_empty(block.get("type")) if is_object(block) else type(block).__name__
    if kind != "search_result":
        return foreign(kind, number, losses)
    from buoyline.messages.anthropic import Anthropic  # noqa: PLC0415 - only such a block needs its view

    view = Anthropic().view({"role": "user", "content": [block]}).parts[0]
    if not isinstance(view, Text) or not view.text:
        return foreign(kind, number, losses)
    losses.note(number, f"block of type {kind!r}", "it is plain text now")
    return Said(view.text)
