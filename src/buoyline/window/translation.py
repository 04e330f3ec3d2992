"""What a window hands out where its messages are of another dialect than whoever goes on with it.

The messages in the window, on disk and in the archive stay as they were written: only what is handed out is converted.
"""

from collections.abc import Sequence
from typing import Any

from buoyline.messages import Converted, convert, dialect_named
from buoyline.offloader import WindowState
from buoyline.window.context import Context
from buoyline.window.entry import Entry


class Translation:
    """Hands the messages of a context out in one dialect; those that are of it are the very objects.

    Attributes:
        last: What was converted last, with what was lost, and what system messages say that are sent beside the
            messages; None where nothing was.
    """

    def __init__(self, dialect: str | None = None) -> None:
        """Hand out in *dialect*; None: each message as it is. Raises `ConfigError` where there is none of that name."""
        self._dialect = dialect_named(dialect).name if dialect else None
        self._given: list[Any] = []
        self.last: Converted | None = None

    def of(self, context: Context, end: int) -> list[Any]:
        """Return what stands in *context* up to the position *end* behind its head, as it is handed out."""
        if self._dialect is not None:
            return self._converted([*context.standing(), *context.contents.until(end)], self._dialect)
        return [*(entry.native for entry in context.standing()), *context.contents.natives[:end]]

    def _converted(self, entries: Sequence[Entry], dialect: str) -> list[Any]:
        """Return the messages of *entries*; what was converted before is not converted again.

        The message behind the last one of another dialect may become one with that, where roles take turns.
        """
        end = max((place for place, entry in enumerate(entries, 2) if entry.dialect != dialect), default=0)
        natives = [entry.native for entry in entries]
        if not _is_same(natives[:end], self._given):
            self._given = natives[:end]
            self.last = convert(self._given, to=dialect, from_=[entry.dialect for entry in entries[:end]])
        return [*(self.last.messages if self.last else ()), *natives[end:]]


def common_dialect(state: WindowState, dialect: str | None) -> str | None:
    """Return *dialect*, in which a session was begun; None where it has gone on in another since."""
    return dialect if dialect and all(_is_in(dialect, *message) for message in state.messages) else None


def _is_in(dialect: str, found: str, message: dict[str, Any]) -> bool:
    """Tell whether a message is of *dialect*: plain text, *found* to be OpenAI's, has the same form in several."""
    is_plain = found == "openai" and message.keys() <= {"role", "content"} and message["role"] in ("user", "assistant")
    return found == dialect or is_plain


def _is_same(natives: Sequence[Any], given: Sequence[Any]) -> bool:
    return len(natives) == len(given) and all(one is other for one, other in zip(natives, given, strict=True))
