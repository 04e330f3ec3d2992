"""Retrieved content as the blocks of a Strands tool result, in its native types."""

import re
from collections.abc import Mapping
from typing import Any, Protocol

from buoyline.errors import ConfigError, MessageError, NotFoundError
from buoyline.lookups import Retrieved, retrieve_lines
from buoyline.lookups.retrieval import place_in
from buoyline.lookups.retrieved import Content, JsonContent, MediaContent
from buoyline.messages import parse
from buoyline.messages.formats import format_named, is_document_format, is_image_format, is_text_type
from buoyline.tokens import TextCounter

_NAME = re.compile(r"[^A-Za-z0-9 ()\[\]-]+")
"""What the name of a document must not hold. Source: Amazon's ``DocumentBlock``."""

Blocks = list[dict[str, Any]]


class KeepsBlocks(Protocol):
    """A storage in the form that Strands' context offloader documents."""

    async def store(self, key: str, content: bytes, content_type: str = "text/plain") -> str:
        """Store content and return a reference."""
        ...

    async def retrieve(self, reference: str) -> tuple[bytes, str]:
        """Return content and type. Raises `KeyError`."""
        ...


def blocks_from(found: Retrieved) -> Blocks:
    """Return the blocks that show *found*: text as text, JSON as JSON, pictures and documents as such."""
    return [_block(part) for part in found.parts]


async def retrieved_from(
    storage: KeepsBlocks,
    reference: str,
    pattern: str | None,
    line_range: Mapping[str, Any] | None,
    context_lines: int | None,
    *,
    max_tokens: int,
    counter: TextCounter,
) -> Blocks:
    """Return what *storage* has behind *reference* in its native type, or lines of it.

    Raises:
        NotFoundError: Nothing is there.
        ConfigError: Lines of binary content are asked for, or lines that there are not.
    """
    name, line, column = place_in(reference)
    try:
        content, content_type = await storage.retrieve(reference)
        name = reference
    except KeyError as error:
        if name == reference:
            raise NotFoundError("offloaded content", reference, "take the reference from the preview") from error
        content, content_type = await _at_place(storage, name, reference)
    is_whole = (pattern, line_range, context_lines) == (None, None, None) and (line, column) == (1, 1)
    is_text = is_text_type(content_type)
    if is_whole and not (is_text and counter.exceeds(content.decode("utf-8", "replace"), max_tokens)):
        return [block_of_payload(content, content_type, name)]
    if not is_text:
        problem = f"cannot search binary content ({content_type}); leave out pattern, line_range and context_lines"
        raise ConfigError("reference", problem)
    answer = retrieve_lines(
        content, reference, pattern, line_range, context_lines, max_tokens=max_tokens, counter=counter
    )
    return [{"text": answer.text}]


def block_of_payload(content: bytes, content_type: str, name: str) -> dict[str, Any]:
    """Return the block of *content* in its native type, as Strands' own tool gives it."""
    if content_type == "application/json":
        try:
            return {"json": parse(content)}
        except MessageError:
            return {"text": content.decode("utf-8", "replace")}
    if content_type.startswith("text/"):
        return {"text": content.decode("utf-8", "replace")}
    return _medium(content, content_type, name) or {"text": f"[{content_type}, {len(content):,} bytes | ref: {name}]"}


async def _at_place(storage: KeepsBlocks, name: str, reference: str) -> tuple[bytes, str]:
    try:
        return await storage.retrieve(name)
    except KeyError as error:
        raise NotFoundError("offloaded content", reference, "take the reference from the preview") from error


def _block(part: Content) -> dict[str, Any]:
    if isinstance(part, MediaContent):
        block = None if part.content is None else _medium(part.content, part.media_type, part.name)
        return block or {"text": part.text}
    if isinstance(part, JsonContent):
        try:
            return {"json": part.value}
        except MessageError:
            pass
    return {"text": part.text}


def _medium(content: bytes, media_type: str, name: str) -> dict[str, Any] | None:
    """Return the block of a picture, a video or a document; None for what no block can hold."""
    format_name, source = format_named(media_type), {"bytes": content}
    if media_type.startswith("image/") and is_image_format(format_name):
        return {"image": {"format": format_name, "source": source}}
    if is_document_format(format_name):
        titled = " ".join(_NAME.sub(" ", name.rpartition("/")[2]).split())[:200]
        return {"document": {"format": format_name, "name": titled or "document", "source": source}}
    return None
