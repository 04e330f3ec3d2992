"""One message in a window."""

from dataclasses import dataclass, replace
from typing import Any

from buoyline.messages import Message, detect, dialect_named, parse, spell
from buoyline.tokens import TextCounter
from buoyline.tokens.messages import count_message


@dataclass(frozen=True, slots=True)
class Entry:
    """A native message with what we know of it, so that it is read and counted once.

    Attributes:
        native: The very object that was added, or the one that stands for it.
        dialect: Name of its dialect.
        message: Its view.
        tokens: What it takes.
        index: Its position in the session, 0-based; -1 for a summary, which is no message of the session.
        pinned: It stays in the context, as a copy when it is archived.
    """

    native: Any
    dialect: str
    message: Message
    tokens: int
    index: int
    pinned: bool = False

    @property
    def stays(self) -> bool:
        """Tell whether the message stands again at the head when it is archived."""
        return self.pinned or self.message.role == "system"

    def json(self) -> dict[str, Any]:
        """Return the native message's own JSON value, as it comes back from disk."""
        value: dict[str, Any] = parse(spell(dialect_named(self.dialect).to_json(self.native)))
        return value

    def with_results(self, texts: dict[int, str], counter: TextCounter) -> "Entry":
        """Return the entry with other texts in place of the n-th results."""
        dialect = dialect_named(self.dialect)
        native = dialect.with_results(self.native, texts)
        message = dialect.view(native)
        return replace(self, native=native, message=message, tokens=count_message(message, counter))


def entry_of(
    native: Any,
    index: int,
    counter: TextCounter,
    *,
    dialect: str | None = None,
    pinned: bool = False,
) -> Entry:
    """Read and count a native message.

    Args:
        native: The message.
        index: Its position in the session.
        counter: Counts it.
        dialect: Left out: detected.
        pinned: See `Entry`.

    Raises:
        MessageError: It is no message, or has no JSON form: then nothing could ever be done with it.
    """
    found = dialect_named(dialect) if dialect else detect(native)
    message = found.view(native)
    spell(found.to_json(native))
    return Entry(native, found.name, message, count_message(message, counter), index, pinned)
