"""Messages of a window, each read and counted once."""

import json
import re
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Final

from buoyline.messages import CachePoint, Json, Media, Message, Opaque, Reasoning, Text, ToolCall, ToolResult
from buoyline.messages.dialect import Blocks
from buoyline.messages.model import Note, Part, ResultPart
from buoyline.messages.registry import dialect_named
from buoyline.offloader.protocol import StoredFile
from buoyline.tokens import TextCounter
from buoyline.tokens.messages import count_message
from buoyline.window.events import ResultOffloaded
from buoyline.workspace.state import Stored

OWN: Final = -1
"""In place of a result's number: the message's own content."""

_KEY_RULE: Final = "1"
SURROGATES: Final = re.compile("[\ud800-\udfff]")
"""They have no UTF-8; the log has U+FFFD in their place."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A message in a context.

    Attributes:
        number: Of its line in the session's log.
        native: The object that was added, or its form with stubs.
        message: The view of *native*.
        id: What the caller knows it by; may be empty.
        keys: Hashes of its content as it came and as it is shown.
        ours: The window wrote it.
        stored: The files of its offloaded results, by their numbers, and of its own content and arguments (`OWN`).
        images: How many images are in the message and in its results.
        events: What was offloaded of it.
        stays: A compaction keeps it in sight: natively, or as a quotation.
    """

    number: int
    native: Any
    dialect: str
    message: Message
    tokens: int
    id: str = ""
    keys: tuple[str, ...] = ()
    pinned: bool = False
    ours: bool = False
    stored: Stored = field(default_factory=dict[int, tuple[StoredFile, ...]])
    events: tuple[ResultOffloaded, ...] = ()
    images: int = field(init=False)
    stays: bool = field(init=False)

    def __post_init__(self) -> None:
        """Count the images."""
        images = 0
        for part in self.message.parts:
            for inner in part.parts if isinstance(part, ToolResult) else (part,):
                images += isinstance(inner, Media) and inner.kind == "image"
        object.__setattr__(self, "images", images)
        stays = self.pinned or self.message.role == "system" or self.message.is_compaction
        object.__setattr__(self, "stays", stays)

    @property
    def is_spoken(self) -> bool:
        """Whether a user says something in it, beside results and a framework's notes."""
        speaks = any(not isinstance(part, (ToolResult, Note)) for part in self.message.parts)
        return self.message.role == "user" and speaks

    def with_native(self, native: Any, message: Message, counter: TextCounter) -> "Entry":
        """Return the entry in another form, whose view is *message*."""
        return replace(self, native=native, message=message, tokens=count_message(message, counter))

    def with_blocks(self, number: int, blocks: Blocks, files: tuple[StoredFile, ...], counter: TextCounter) -> "Entry":
        """Return the entry with other blocks in a result, or in its own content; *files* have the whole."""
        dialect, view = dialect_named(self.dialect), self.message
        if number == OWN:
            native = dialect.with_content(self.native, blocks)
            view = dialect.view(native)
        else:
            native, whole = dialect.with_results(self.native, {number: blocks}), view.results[number]
            shown = tuple([Text(one) if isinstance(one, str) else whole.parts[one] for one in blocks])
            parts = tuple([replace(part, parts=shown) if part is whole else part for part in view.parts])
            view = replace(view, parts=parts)
        return replace(self.with_native(native, view, counter), stored={**self.stored, number: files})


# What makes two messages the same: all that a model reads, spelled by a rule that outlasts versions of this package,
# and databases that order keys anew.


def content_key(message: Message) -> str:
    """Return a hash of role, parts, calls and results, behind the version of the rule."""
    parts = [_canonical(part) for part in message.parts if not isinstance(part, CachePoint)]
    spelled = json.dumps([message.role, message.name, parts], ensure_ascii=False, sort_keys=True)
    # As the log spells them.
    content = spelled if spelled.isascii() else SURROGATES.sub("\ufffd", spelled)
    return f"{_KEY_RULE}:{blake2b(content.encode(), digest_size=8).hexdigest()}"


def _canonical(part: Part | ResultPart) -> list[Any]:  # noqa: PLR0911 - one for each kind
    match part:
        case Note() | Text() | Reasoning():
            return [type(part).__name__, part.text]
        case Json():
            return ["Json", loaded(part.json)]
        case ToolCall():
            return ["ToolCall", part.call_id, part.name, loaded(part.arguments)]
        case ToolResult():
            return ["ToolResult", part.call_id, part.is_error, [_canonical(inner) for inner in part.parts]]
        case Media():
            content = part.content()
            found = part.source if content is None else blake2b(content, digest_size=8).hexdigest()
            return ["Media", part.kind, part.media_type, found]
        case Opaque():
            return ["Opaque", part.kind, loaded(part.json)]
        case CachePoint():
            return []


def loaded(text: str) -> Any:
    """Return a JSON value, whose keys may come in any order; the text itself if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
