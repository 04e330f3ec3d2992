"""What a window tells of what it does: one hook for all of it, given as ``on_event``.

An event is told after the deed, once it is on disk, by the task that did it, once. The tokens are those of the window's
own counter. What the hook raises comes out of the call that told of the event, with a note that says so; what was done
stays done, and events that were to follow are told by the next call. In the background it is logged, and the next
compression, which is not in the background, tells the event again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from buoyline.compression import Summary
from buoyline.compression.events import SummaryFellBack, SummarySqueezed, SummaryVerified
from buoyline.management import Hook, Report


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
    report: Report


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


Event: TypeAlias = (
    ResultOffloaded
    | MessagesArchived
    | SummaryVerified
    | SummaryFellBack
    | SummarySqueezed
    | ContextCompressed
    | ContextManaged
    | OverflowRecovered
    | WindowResumed
)
OnEvent: TypeAlias = Callable[[Event], None]
