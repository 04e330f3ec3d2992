"""The log as one more listener of a window's events: numbers and places, never what a message says."""

import logging

from buoyline.compression.events import SummaryFellBack, SummarySqueezed, SummaryVerified
from buoyline.window.events import (
    ContextCompressed,
    ContextManaged,
    Event,
    MessagesArchived,
    OnEvent,
    OverflowRecovered,
    ResultOffloaded,
    WindowResumed,
)

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
