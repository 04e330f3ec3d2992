"""The events of a window: `on_event` gets each of them once its operation is on disk, in the task that ran it.

Tokens are those of the window's counter. An exception of the listener propagates with a note; the operation stays done,
and the event is not repeated.
"""

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from buoyline.compression import Summary
from buoyline.errors import ConfigError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ResultOffloaded:
    """A tool result was offloaded, and a stub replaces it.

    Attributes:
        message: Index of its message.
        tool: The tool's name; empty if it is not known.
        path: The file with the whole result.
        tokens: Of the message before, and *stub_tokens* after.
        stub: The text that replaces the result.
    """

    message: int
    call_id: str
    tool: str
    path: str
    tokens: int
    stub_tokens: int
    stub: str


@dataclass(frozen=True, slots=True)
class ContextCompressed:
    """A summary replaces the oldest messages.

    Attributes:
        messages: Index of the first of them, and after the last.
        tokens_before: Of the whole context, as *tokens_after*.
        duration_s: If a model summarizes, it takes most of them.
        unverified: Claims of the summary that were found nowhere.
        fell_back: Why the extractive summarizer wrote it in place of the given one; else empty.
    """

    summary: Summary
    messages: tuple[int, int]
    tokens_before: int
    tokens_after: int
    duration_s: float = 0.0
    unverified: tuple[str, ...] = ()
    fell_back: str = ""


@dataclass(frozen=True, slots=True)
class ContextManaged:
    """The managers of a context-management document ran at a hook; a line says what each did, or why it did not run."""

    hook: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HistoryForked:
    """The list that the window follows goes on differently from *message*; *removed* messages left the context.

    They stay in the log, each on the line of its index.
    """

    message: int
    removed: int


Event: TypeAlias = ResultOffloaded | ContextCompressed | ContextManaged | HistoryForked
OnEvent: TypeAlias = Callable[[Event], None]


def reporting(session_id: str, on_event: OnEvent | None) -> OnEvent:
    """Return a hook that logs each event and passes it on.

    Raises:
        ConfigError: *on_event* cannot be called, or would have to be awaited.
    """
    hook: object = on_event
    awaits = map(inspect.iscoroutinefunction, (hook, getattr(hook, "__call__", None)))  # noqa: B004
    if hook is not None and (not callable(hook) or any(awaits)):
        raise ConfigError("on_event", f"{on_event!r} is called without await; pass a plain function of an event")

    def report(event: Event) -> None:
        level = logging.WARNING if isinstance(event, HistoryForked) else logging.INFO
        logger.log(level, "session %s: %s", session_id, type(event).__name__)  # never the text of a message
        try:
            if on_event is not None:
                on_event(event)
        except Exception as error:
            error.add_note(f"raised by on_event at {type(event).__name__}, whose operation is done and stays done")
            raise

    return report
