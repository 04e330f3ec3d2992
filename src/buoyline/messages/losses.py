"""`Loss`: a part of a message that a conversion between dialects could not keep."""

from dataclasses import dataclass, field
from typing import Any, Final

from buoyline.errors import MessageError
from buoyline.messages.jsonl import is_object, parse
from buoyline.messages.model import Media, Text

RAW: Final = "raw_arguments"
"""The key for arguments that are no JSON object: its value is their text, as the model wrote it."""


@dataclass(frozen=True, order=True, slots=True)
class Loss:
    """A part that a message had and its conversion lacks, or has in another form.

    *message* is its number among those given, 0-based; *why* has the reason, and the replacement if there is one.
    """

    message: int
    what: str
    why: str

    def __str__(self) -> str:
        """Return the loss in one line."""
        return f"message {self.message}: {self.what}: {self.why}"


@dataclass(slots=True)
class Losses:
    """Records the losses of message number *message* in a conversion to the dialect *target*."""

    target: str
    message: int = 0
    found: list[Loss] = field(default_factory=list[Loss])

    def at(self, message: int) -> "Losses":
        """Return a recorder for another message, which appends to the same list."""
        return Losses(self.target, message, self.found)

    def note(self, what: str, why: str = "") -> None:
        """Record a loss; the default reason is that the target has no place for it."""
        self.found.append(Loss(self.message, what, why or f"{self.target} has no place for it"))

    def left_out(self, media: Media) -> Text:
        """Record that *media* has no place, and return the text that replaces it."""
        size = f"{media.size_bytes:,} bytes" if media.payload else media.source
        shown = ", ".join(filter(None, [f"{media.kind} {media.name}".strip(), media.media_type, size]))
        self.note(shown)
        return Text(f"[{shown}: not shown here]")

    def foreign(self, kind: str) -> Text:
        """Record a block of a *kind* that no other dialect has, and return the text that replaces it."""
        self.note(f"block of type {kind!r}")
        return Text(f"[a block of type {kind!r}: not shown here]")

    def object_of(self, text: str) -> dict[str, Any]:
        """Return the JSON object that *text* spells, ``{}`` for blank text, or else an object that holds *text*."""
        try:
            value: object = parse(text) if text.strip() else {}
        except MessageError:
            value = None
        if not is_object(value):
            self.note("arguments of a call", f"they are no JSON object; the text is under {RAW!r}")
            return {RAW: text}
        return dict(value)
