"""What a window tells of what it does: one hook for all of it, given as ``on_event``.

An event is told after the deed, once it is on disk, by the task that did it, once. The tokens are those of the window's
own counter. What the hook raises comes out of the call that told of the event, with a note that says so; what was done
stays done, and events that were to follow are told by the next call. In the background it is logged, and the next
compression, which is not in the background, tells the event again.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from buoyline.compression import Summary
from buoyline.compression.summary import SummaryFellBack, SummarySqueezed, SummaryVerified
from buoyline.management import ManagementReport
from buoyline.management.rules import Hook


@dataclass(frozen=True, slots=True)
class ResultOffloaded:
    """A tool result left the context and a stub stands in its place.

    Attributes:
        message: Index of its message in the session, 0-based.
        call_id: Of the call it answers.
        tool: The tool's name; empty where it is not known.
        path: Where the whole result is; empty without an offloader, when the rest is lost.
        tokens: What the result took.
        stub_tokens: What stands in its place takes.
        stub: What stands in its place.
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
    """The oldest messages are durable in the archive and about to leave the context, which is as it was so far.

    Told before they are summarised, so that somebody who waits for a model knows for what. Told again with the same
    numbers where a failed compression is repeated.

    Attributes:
        messages: Index of the first of them, and index behind the last, over the session.
        tokens: What they take.
        reference: Where they are, as the offloader says; empty without one, when they are lost.
    """

    messages: tuple[int, int]
    tokens: int
    reference: str


@dataclass(frozen=True, slots=True)
class ContextCompressed:
    """The oldest messages left the context and a summary stands in their place.

    Attributes:
        summary: What stands there.
        tokens_before: What the whole context took.
        tokens_after: What it takes now.
        duration_s: Seconds from the decision to the last sync; most of them a model's, where one summarises. Those
            that a summary waited in the background until it was needed are not among them.
        in_background: It was made ready while the window went on.
    """

    summary: Summary
    tokens_before: int
    tokens_after: int
    duration_s: float = 0.0
    in_background: bool = False


@dataclass(frozen=True, slots=True)
class OverflowRecovered:
    """The provider had refused the context, and it is smaller now. What it took is told by events of its own before.

    Attributes:
        tokens_before: What the whole context took.
        tokens_after: What it takes now: at least a tenth less.
        duration_s: Seconds that this took.
    """

    tokens_before: int
    tokens_after: int
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ContextManaged:
    """The managers of a document were asked at a hook. What they did is told by events of its own before.

    Attributes:
        hook: The hook.
        report: What became of each of them, those that did not run included.
    """

    hook: Hook
    report: ManagementReport


@dataclass(frozen=True, slots=True)
class WindowResumed:
    """A window goes on with a session that it found on disk.

    Attributes:
        session_id: The session.
        added: How many messages it has had.
        archived: How many of them are in the archive.
        tokens: What the whole context takes.
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
    | SummaryVerified
    | SummaryFellBack
    | SummarySqueezed
    | ContextCompressed
    | ContextManaged
    | OverflowRecovered
    | HistoryForked
    | WindowResumed
)
OnEvent: TypeAlias = Callable[[Event], None]


# The log as one more listener of a window's events: numbers and places, never what a message says.


logger = logging.getLogger(__name__)


def reporting(session_id: str, on_event: OnEvent | None) -> OnEvent:
    """Return a hook that logs each event of *session_id* and passes it on to *on_event*, where there is one.

    What changes the context as a whole is logged as INFO, its steps as DEBUG. What needs attention, such as a
    summariser that failed, was logged as WARNING where it was found.
    """

    def report(event: Event) -> None:
        _log(session_id, event)
        tell(on_event, event)

    return report


def tell(on_event: OnEvent | None, event: Event) -> None:
    """Pass *event* on to the user's hook, where there is one; a note says of what the hook raises whose it is."""
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
        case SummaryVerified():
            logger.debug(
                "session %s: summary by %s has %d claims, %d unverified, and %d pointers",
                session_id,
                event.summarizer,
                event.claims,
                len(event.unverified),
                event.pointers,
            )
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
        case ResultOffloaded() | SummaryFellBack() | SummarySqueezed():
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
