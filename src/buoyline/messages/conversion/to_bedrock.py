"""Writing messages of Bedrock and Strands; see `buoyline.messages.bedrock` for the form."""

import base64
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from buoyline.messages.conversion.arguments import object_of
from buoyline.messages.conversion.blocks import Answered, Block, CachePoint, Called, Medium, Said, Thought, Turn, Value
from buoyline.messages.conversion.losses import Losses
from buoyline.messages.conversion.media import bytes_of, text_of
from buoyline.messages.formats import format_named, is_document_format, is_image_format, media_type_of

_NAME: Final = re.compile(r"[^a-zA-Z0-9\s()\[\]-]|\s(?=\s)")
"""What a document's name may not hold: Bedrock takes letters, digits, single spaces, hyphens and brackets."""

_UNNAMED: Final = "document"


class BedrockTarget:
    """Writes what the user says and what tools give into one message, the model's into another."""

    takes_turns = True
    has_system = False
    has_cache_points = True
    names_results = False
    shows_media = False
    names_media = False

    def refusal(self, medium: Medium) -> str | None:
        """See `Target`: what has its bytes elsewhere has a place only where that is S3."""
        if medium.payload is None:
            return None if medium.url.startswith("s3://") and _format(medium) else "its bytes are elsewhere"
        if not _format(medium):
            return ""
        return "its payload is no base64" if bytes_of(medium) is None else None

    def refuses(self, thought: Thought) -> None:
        """See `Target`: all reasoning has a place."""

    def joins(self, group: Sequence[Turn], turn: Turn) -> bool:
        """See `Target`."""
        return (group[-1].role == "assistant") == (turn.role == "assistant")

    def written(self, group: Sequence[Turn], losses: Losses) -> Iterator[Any]:
        """See `Target`."""
        content: list[dict[str, Any]] = []
        custom: dict[str, Any] = {}
        for turn in group:
            custom |= turn.metadata
            if turn.name:
                losses.note(turn.number, "name of the speaker")
            content += [made for block in turn.blocks for made in _blocks(block, turn, losses)]
        role = "assistant" if group[0].role == "assistant" else "user"
        yield {"role": role, "content": content} | ({"metadata": {"custom": custom}} if custom else {})


def _blocks(block: Block, turn: Turn, losses: Losses) -> Iterator[dict[str, Any]]:
    match block:
        case Thought():
            yield from _thoughts(block, turn, losses)
        case Called():
            arguments = object_of(block.arguments, turn.number, losses)
            yield {"toolUse": {"toolUseId": block.call_id, "name": block.name, "input": arguments}}
        case Answered():
            yield {"toolResult": _result(block, turn, losses)}
        case CachePoint(ttl):
            yield {"cachePoint": {"type": "default"} | ({"ttl": ttl} if ttl else {})}
        case _:
            yield _inner(block, turn, losses)


def _thoughts(thought: Thought, turn: Turn, losses: Losses) -> Iterator[dict[str, Any]]:
    if thought.text or thought.signature or not thought.hidden:
        signed = {"signature": thought.signature} if thought.signature else {}
        yield {"reasoningContent": {"reasoningText": {"text": thought.text, **signed}}}
    if thought.hidden:
        yield {"reasoningContent": {"redactedContent": _hidden(thought.hidden, turn, losses)}}


def _hidden(spelled: str, turn: Turn, losses: Losses) -> bytes:
    """Return the bytes that base64 spells; those of the text itself where it would not be spelled like that again."""
    try:
        found = base64.b64decode(spelled, validate=True)
    except ValueError:
        found = b""
    if found and base64.b64encode(found).decode("ascii") == spelled:
        return found
    losses.note(turn.number, "spelling of hidden reasoning", "it is bytes there")
    return spelled.encode("utf-8", "surrogatepass")


def _result(result: Answered, turn: Turn, losses: Losses) -> dict[str, Any]:
    if result.name:
        losses.note(turn.number, "name of a result's tool")
    content = [_inner(block, turn, losses) for block in result.blocks]
    return {"toolUseId": result.call_id, "status": "error" if result.is_error else "success", "content": content}


def _inner(block: Said | Value | Medium, turn: Turn, losses: Losses) -> dict[str, Any]:
    match block:
        case Said(text):
            return {"text": text}
        case Value(value):
            return {"json": value}
        case Medium():
            return {block.kind: _medium(block, turn, losses)}


def _medium(medium: Medium, turn: Turn, losses: Losses) -> dict[str, Any]:
    named = {"name": _name(medium.name, turn, losses)} if medium.kind == "document" else {}
    form = _format(medium)
    if medium.media_type != media_type_of(medium.kind, form):
        losses.note(turn.number, f"media type {medium.media_type!r}", f"it is {form!r} there")
    return {"format": form, **named, "source": _source(medium)}


def _source(medium: Medium) -> dict[str, Any]:
    if medium.payload is None:
        return {"location": {"type": "s3", "uri": medium.url}}
    return {"bytes": bytes_of(medium)}


def _format(medium: Medium) -> str:
    """Return the short name of the format; empty where no block may be of it."""
    form = format_named(medium.media_type)
    match medium.kind:
        case "image":
            form = "jpeg" if form == "jpg" else form
            return form if is_image_format(form) else ""
        case "document":
            return form if is_document_format(form) else "txt" if text_of(medium) is not None else ""
        case _:
            return form


def _name(name: str, turn: Turn, losses: Losses) -> str:
    taken = _NAME.sub("-", name).strip()[:200] or _UNNAMED
    if taken != name:
        losses.note(turn.number, f"name {name!r} of a document", f"it is {taken!r} there")
    return taken
