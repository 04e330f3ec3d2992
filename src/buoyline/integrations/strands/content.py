"""Retrieved content as the blocks of a Strands tool result, in its native types."""

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from buoyline.errors import ConfigError, MessageError, NotFoundError
from buoyline.lookups import Retrieved
from buoyline.lookups.references import Content, JsonContent, MediaContent
from buoyline.lookups.retrieve import place_in, retrieve_lines
from buoyline.messages import Media, ToolResult
from buoyline.messages.formats import format_named, is_document_format, is_image_format, is_text_type
from buoyline.messages.jsonl import parse
from buoyline.messages.registry import dialect_named
from buoyline.tokens import TextCounter, default_counter
from buoyline.tokens.messages import count_part

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


# A tool result that has just come, and what is to become of it. Pure apart from asking the model for a count.


NativeResult: TypeAlias = Mapping[str, Any]
"""``toolUseId``, ``status`` and ``content``, as Strands has them."""

CountTokens: TypeAlias = Callable[[list[dict[str, Any]]], Awaitable[int]]
"""A model's ``count_tokens``."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A tool result that is to leave the context.

    Attributes:
        native: The result as the tool gave it.
        tool: The tool's name.
        arguments: Of the call, as JSON.
        tokens: What it takes, as the model counts.
        limit: Tokens of what may stand in its place.
        preview_tokens: Tokens of the stub; 0 for its notice alone.
        reread_limit: Tokens that it may take if the agent only read it back from the storage.
        large_images: Numbers of its pictures that are too large for the provider.
    """

    native: NativeResult
    tool: str
    arguments: str
    tokens: int
    limit: int
    preview_tokens: int
    reread_limit: int
    large_images: frozenset[int] = frozenset()

    @property
    def view(self) -> ToolResult:
        """The result as buoyline reads it."""
        return view_of(self.native)


class Keeping(Protocol):
    """Keeps results whole somewhere, and gives them back."""

    async def offload(self, arrival: Arrival) -> NativeResult | None:
        """Keep the result, and return what is to stand in its place; None where it stays as it is."""
        ...

    async def retrieve(
        self,
        reference: str,
        pattern: str | None,
        line_range: Mapping[str, Any] | None,
        context_lines: int | None,
        *,
        max_tokens: int,
        whole_tokens: int,
        messages: Sequence[Mapping[str, Any]],
    ) -> list[dict[str, Any]]:
        """Return the content behind *reference*, or lines of it, as blocks of a tool result.

        Args:
            reference: As what stands in a result's place names it.
            pattern: As the documented tool takes it.
            line_range: Likewise.
            context_lines: Likewise.
            max_tokens: For lines.
            whole_tokens: For the whole content; of what has more, the first lines are shown.
            messages: Of the agent: it may read results of other sessions whose stubs these hold.
        """
        ...


def view_of(native: NativeResult) -> ToolResult:
    """Read a tool result.

    Raises:
        MessageError: Something in it has no JSON form.
    """
    return dialect_named("bedrock").result(native).results[0]


def arguments_of(tool_use: Mapping[str, Any]) -> str:
    """Return the arguments of a call as text in which references can be found."""
    return json.dumps(tool_use.get("input"), ensure_ascii=False, default=str)


async def tokens_of(native: NativeResult, view: ToolResult, count: CountTokens) -> int:
    """Count a result as the model does; what it counts as nothing, as most do with media, is estimated.

    Args:
        native: The result.
        view: The same, read.
        count: The model's ``count_tokens``.
    """
    tokens = await count([_message(native, native["content"])])
    media = sum(count_part(part, default_counter()) for part in view.parts if isinstance(part, Media))
    if not media:
        return tokens
    pairs = zip(native["content"], view.parts, strict=True)
    others = await count([_message(native, [block for block, part in pairs if not isinstance(part, Media)])])
    return tokens + media if tokens == others else tokens


def large_images(view: ToolResult, max_media_bytes: int | None) -> frozenset[int]:
    """Return the numbers of the media in a result that have more bytes than that; None: none is too large."""
    if max_media_bytes is None:
        return frozenset()
    parts = enumerate(view.parts)
    return frozenset(at for at, part in parts if isinstance(part, Media) and part.size_bytes > max_media_bytes)


def _message(native: NativeResult, content: list[Any]) -> dict[str, Any]:
    return {"role": "user", "content": [{"toolResult": {**native, "content": content}}]}
