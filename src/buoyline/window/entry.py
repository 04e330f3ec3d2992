"""One message in a window."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from buoyline.messages import (
    Json,
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    detect,
    dialect_named,
    parse,
    spell,
)
from buoyline.messages.dialect import Dialect
from buoyline.messages.jsonl import require_distinct_keys
from buoyline.messages.native import Blocks
from buoyline.tokens import TextCounter
from buoyline.tokens.messages import count_message
from buoyline.window.beside import beside


@dataclass(frozen=True, slots=True)
class Entry:
    """A native message with what we know of it, so that it is read and counted once.

    Attributes:
        native: The very object that was added, or the one that stands for it.
        dialect: Name of its dialect.
        message: Its view.
        tokens: What it takes.
        index: Its position in the session, 0-based; -1 for summary and notice, which are no messages of it.
        pinned: It stays in the context, as a copy when it is archived.
        by_hand: What is large in it shall be offloaded, whoever said it.
        is_notice: It says where messages are that left without a summary.
        added: When it was added, ISO 8601 in UTC; empty where that is not known.
    """

    native: Any
    dialect: str
    message: Message
    tokens: int
    index: int
    pinned: bool = False
    by_hand: bool = False
    is_notice: bool = False
    added: str = ""

    @property
    def images(self) -> int:
        """How many pictures stand in the message and in its results."""
        return sum(map(_images, self.message.parts))

    @property
    def stays(self) -> bool:
        """Tell whether the message stands again at the head when it is archived."""
        return self.pinned or self.message.role == "system"

    def json(self) -> dict[str, Any]:
        """Return the native message's own JSON value, as it comes back from disk."""
        value: dict[str, Any] = parse(spell(dialect_named(self.dialect).to_json(self.native)))
        return value

    def with_results(self, results: Mapping[int, Blocks], counter: TextCounter) -> "Entry":
        """Return the entry with other blocks in the n-th results; see `Dialect.with_results`."""
        return self._changed(dialect_named(self.dialect).with_results(self.native, results), counter)

    def with_content(self, blocks: Blocks, counter: TextCounter) -> "Entry":
        """Return the entry with other content of its own; see `Dialect.with_content`."""
        return self._changed(dialect_named(self.dialect).with_content(self.native, blocks), counter)

    def _changed(self, native: Any, counter: TextCounter) -> "Entry":
        message = dialect_named(self.dialect).view(native)
        return replace(self, native=native, message=message, tokens=count_message(message, counter))


def entry_of(
    native: Any,
    index: int,
    counter: TextCounter,
    *,
    dialect: str | None = None,
    pinned: bool = False,
    by_hand: bool = False,
) -> Entry:
    """Read and count a native message.

    Args:
        native: The message.
        index: Its position in the session.
        counter: Counts it.
        dialect: Left out: detected.
        pinned: See `Entry`.
        by_hand: See `Entry`.

    Raises:
        MessageError: It is no message, or has no JSON form: then nothing could ever be done with it.
    """
    found = dialect_named(dialect) if dialect else detect(native)
    return _entry(native, found, found.view(native), index, counter, pinned=pinned, by_hand=by_hand)


async def entry_beside(
    native: Any,
    index: int,
    counter: TextCounter,
    *,
    dialect: str | None = None,
    pinned: bool = False,
    by_hand: bool = False,
) -> Entry:
    """Read and count a native message as `entry_of` does, a large one beside the event loop."""
    found = dialect_named(dialect) if dialect else detect(native)
    message = found.view(native)
    chars = sum(map(_chars, message.parts))
    return await beside(chars, _entry, native, found, message, index, counter, pinned=pinned, by_hand=by_hand)


def _entry(
    native: Any, dialect: Dialect, message: Message, index: int, counter: TextCounter, *, pinned: bool, by_hand: bool
) -> Entry:
    value = dialect.to_json(native)
    spell(value)
    require_distinct_keys(value)
    return Entry(native, dialect.name, message, count_message(message, counter), index, pinned, by_hand)


def is_image(part: Part) -> bool:
    """Tell a picture, wherever its bytes are, from all else."""
    return isinstance(part, Media) and part.kind == "image"


def _images(part: Part) -> int:
    if isinstance(part, ToolResult):
        return sum(map(is_image, part.parts))
    return is_image(part)


def _chars(part: Part) -> int:
    match part:
        case Text() | Reasoning():
            return len(part.text)
        case ToolCall():
            return len(part.arguments)
        case ToolResult():
            return sum(map(_chars, part.parts))
        case Json() | Opaque():
            return len(part.json)
        case Media():
            return part.size_bytes
