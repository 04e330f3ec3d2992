"""Reading Anthropic's messages for a conversion; see `buoyline.messages.anthropic` for the form."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

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
    object_of,
    turns_of,
)
from buoyline.messages.formats import base64_of, document_text, foreign, text_document
from buoyline.messages.jsonl import is_object, spell
from buoyline.messages.model import Text, blocks_of, plain_fields, role_of, text_of, text_or_empty

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
    made = _read_block(block, number, losses)
    if made is not None:
        yield made
    if is_object(block) and is_object(control := block.get(_CACHE)):
        losses.note_fields(number, control, ("type", "ttl"), _CACHE)
        yield CachePoint(text_or_empty(control.get("ttl")))


def _read_block(block: Any, number: int, losses: Losses) -> Block | None:
    match block:
        case {"type": "tool_use"}:
            losses.note_fields(number, block, ("type", "id", "name", "input", _CACHE), "a call")
            spelled = spell(block.get("input", {}))
            return Called(text_or_empty(block.get("id")), text_or_empty(block.get("name")), spelled)
        case {"type": "tool_result"}:
            return _read_result(block, number, losses)
        case {"type": "thinking"}:
            losses.note_fields(number, block, ("type", "thinking", "signature", _CACHE), "reasoning")
            return Thought(text_or_empty(block.get("thinking")), text_or_empty(block.get("signature")))
        case {"type": "redacted_thinking"}:
            return Thought("", hidden=text_or_empty(block.get("data")))
        case _:
            return _inner(block, number, losses)


def _read_result(block: Mapping[str, Any], number: int, losses: Losses) -> Answered:
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
            return _read_medium(kind, source, text_or_empty(block.get("title")), number, losses)
        case _:
            return _foreign(block, number, losses)


def _read_medium(kind: Any, source: Mapping[str, Any], title: str, number: int, losses: Losses) -> Said | Medium:
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


# Writing Anthropic's messages; see `buoyline.messages.anthropic` for the form.


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
        return None if medium.media_type == _PDF or document_text(medium) is not None else ""

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
        content.append(_write_block(block, turn, losses))
    elif not content or "cache_control" in content[-1] or content[-1]["type"].endswith("thinking"):
        losses.note(turn.number, "cache point", "no block before it can hold it")
    else:
        content[-1]["cache_control"] = {"type": "ephemeral"} | ({"ttl": block.ttl} if block.ttl else {})


def _write_block(
    block: Thought | Called | Answered | Medium | Value | Said, turn: Turn, losses: Losses
) -> dict[str, Any]:
    match block:
        case Thought():
            return _thought(block, turn, losses)
        case Called():
            arguments = object_of(block.arguments, turn.number, losses)
            return {"type": "tool_use", "id": block.call_id, "name": block.name, "input": arguments}
        case Answered():
            return _write_result(block, turn, losses)
        case Medium():
            return _write_medium(block, turn, losses)
        case _:
            return {"type": "text", "text": spell(block.value) if isinstance(block, Value) else block.text}


def _thought(thought: Thought, turn: Turn, losses: Losses) -> dict[str, Any]:
    if not thought.hidden:
        return {"type": "thinking", "thinking": thought.text, "signature": thought.signature}
    if thought.text:
        losses.note(turn.number, "text of hidden reasoning")
    return {"type": "redacted_thinking", "data": thought.hidden}


def _write_result(result: Answered, turn: Turn, losses: Losses) -> dict[str, Any]:
    if result.name:
        losses.note(turn.number, "name of a result's tool")
    for _ in filter(lambda block: isinstance(block, Value), result.blocks):
        losses.note(turn.number, "JSON value of a result", "it is text now")
    blocks = [_write_block(block, turn, losses) for block in result.blocks]
    is_text = len(blocks) == 1 and blocks[0]["type"] == "text"
    failed = {"is_error": True} if result.is_error else {}
    content: Any = blocks[0]["text"] if is_text else blocks
    return {"type": "tool_result", "tool_use_id": result.call_id, "content": content, **failed}


def _write_medium(medium: Medium, turn: Turn, losses: Losses) -> dict[str, Any]:
    titled = {"title": medium.name} if medium.name and medium.kind == "document" else {}
    return {"type": medium.kind, "source": _source(medium, turn, losses), **titled}


def _source(medium: Medium, turn: Turn, losses: Losses) -> dict[str, str]:
    if medium.payload is None:
        if medium.media_type:
            losses.note(turn.number, "media type of a URL")
        return {"type": "url", "url": medium.url}
    text = document_text(medium)
    if text is None:
        return {"type": "base64", "media_type": medium.media_type, "data": base64_of(medium)}
    if medium.media_type != "text/plain":
        losses.note(turn.number, f"media type {medium.media_type!r} of a document", "it is plain text now")
    return {"type": "text", "media_type": "text/plain", "data": text}
