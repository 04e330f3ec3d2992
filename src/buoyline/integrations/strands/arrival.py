"""A tool result that has just come, and what is to become of it. Pure apart from asking the model for a count."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from buoyline.messages import Media, ToolResult, dialect_named
from buoyline.tokens import default_counter
from buoyline.tokens.messages import count_part

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
        read_back_limit: Tokens that it may take where it was only read back from the storage.
        large_images: Numbers of its pictures that are too large for the provider.
    """

    native: NativeResult
    tool: str
    arguments: str
    tokens: int
    limit: int
    preview_tokens: int
    read_back_limit: int
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
