"""The events of a window: one hook, ``on_event``, gets all of them.

A window emits an event once, after the operation is on disk, in the task that ran it. Tokens are those of the window's
counter. If the hook raises, the call raises, with a note that names the hook; the operation is not undone, and the next
call emits the events that were to follow.
"""

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from buoyline.compression import Summary
from buoyline.compression.summary import SummaryFellBack
from buoyline.errors import ConfigError
from buoyline.management import ManagementReport
from buoyline.management.rules import Hook


@dataclass(frozen=True, slots=True)
class ResultOffloaded:
    """A tool result was offloaded, and a stub replaces it.

    Attributes:
        message: Index of its message in the session, 0-based.
        tool: The tool's name; empty if it is not known.
        path: The file with the whole result; empty without an offloader: then the rest is lost.
        tokens: Tokens of the result.
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
class MessagesArchived:
    """The oldest messages are durable in the archive; the context is as it was so far.

    It is emitted before they are summarized, so that whoever waits for a model knows why, and again with the same
    numbers if a failed compaction is repeated.

    Attributes:
        messages: Index of the first of them, and index behind the last, over the session.
        tokens: Tokens of these messages.
        reference: The offloader's reference to them; empty without an offloader: then they are lost.
    """

    messages: tuple[int, int]
    tokens: int
    reference: str


@dataclass(frozen=True, slots=True)
class ContextCompressed:
    """A summary replaces the oldest messages.

    Attributes:
        tokens_before: Tokens of the whole context, as *tokens_after*.
        duration_s: Seconds from the decision to the last sync. If a model summarizes, it takes most of them.
    """

    summary: Summary
    tokens_before: int
    tokens_after: int
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True)
class OverflowRecovered:
    """The provider had refused the context, and it is a tenth smaller now; the operations had events of their own.

    Tokens are those of the whole context.
    """

    tokens_before: int
    tokens_after: int
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ContextManaged:
    """The managers of a context-management document ran at a hook; their operations had events of their own.

    The report has the outcome of each manager, including those that did not run.
    """

    hook: Hook
    report: ManagementReport


@dataclass(frozen=True, slots=True)
class WindowResumed:
    """A window continues a session that it found on disk.

    Attributes:
        added: How many messages it has had.
        archived: How many of them are in the archive.
        tokens: Tokens of the whole context.
    """

    session_id: str
    added: int
    archived: int
    tokens: int


@dataclass(frozen=True, slots=True)
class HistoryForked:
    """The list that the window follows goes on differently from *message*; what came behind is stored.

    Attributes:
        message: Session index of the first message that was changed or removed.
        removed: How many messages came behind the change, with it.
        path: Where they are; empty if nothing stores them.
    """

    message: int
    removed: int
    path: str


Event: TypeAlias = (
    ResultOffloaded
    | MessagesArchived
    | SummaryFellBack
    | ContextCompressed
    | ContextManaged
    | OverflowRecovered
    | HistoryForked
    | WindowResumed
)
OnEvent: TypeAlias = Callable[[Event], None]


# The log is one more listener: it gets numbers and places, never the text of a message.


logger = logging.getLogger(__name__)


def reporting(session_id: str, on_event: OnEvent | None) -> OnEvent:
    """Return a hook that logs each event of *session_id* and passes it on to *on_event*, if there is one.

    Events that change the whole context are logged as INFO, their steps as DEBUG. Failures, such as that of a
    summarizer, were logged as WARNING when they were found.

    Raises:
        ConfigError: *on_event* cannot be called, or would have to be awaited.
    """
    if on_event is not None and not callable(on_event):
        raise ConfigError("on_event", f"{type(on_event).__name__} is no function of an event")
    if any(map(inspect.iscoroutinefunction, (on_event, getattr(on_event, "__call__", None)))):  # noqa: B004
        raise ConfigError("on_event", "is called without await; pass a plain function, which may start a task")

    def report(event: Event) -> None:
        _log(session_id, event)
        tell(on_event, event)

    return report


def tell(on_event: OnEvent | None, event: Event) -> None:
    """Pass *event* on to the user's hook, if there is one. A note on its exceptions names the hook."""
    if on_event is None:
        return
    try:
        on_event(event)
    except Exception as error:
        error.add_note(f"raised by on_event when told of {type(event).__name__}; what it tells of is done and stays so")
        raise


def _log(session_id: str, event: Event) -> None:
    match event:
        case MessagesArchived(messages=(first, end), tokens=tokens):
            logger.debug("session %s: messages %d-%d, %d tokens, are archived", session_id, first, end - 1, tokens)
        case ContextCompressed():
            _log_compression(session_id, event)
        case ContextManaged(report=report):
            for line in report.in_words():
                logger.debug("session %s: %s", session_id, line)
        case OverflowRecovered(tokens_before=before, tokens_after=after):
            logger.info("session %s: %d tokens overflowed, %d are left", session_id, before, after)
        case HistoryForked(message=message, removed=removed, path=path):
            logger.info(
                "session %s: the history forks at message %d, %d are stored in %r", session_id, message, removed, path
            )
        case WindowResumed(added=added, archived=archived, tokens=tokens):
            logger.info(
                "session %s: resumed with %d messages, %d archived, %d tokens", session_id, added, archived, tokens
            )
        case ResultOffloaded() | SummaryFellBack():
            pass  # logged where they happen, whether somebody listens or not


def _log_compression(session_id: str, event: ContextCompressed) -> None:
    first, end = event.summary.messages
    logger.info(
        "session %s: summary %d took the place of messages %d-%d, %d tokens became %d, in %.3f s",
        session_id,
        event.summary.number,
        first,
        end - 1,
        event.tokens_before,
        event.tokens_after,
        event.duration_s,
    )
