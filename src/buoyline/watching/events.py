"""Events of a watched workspace, one for each thing that happened to a session.

``session_id`` is the session's, as the agent's framework gave it. ``time`` is ISO 8601 in UTC: when it was committed or
made, or for a removal when it was seen; empty if that is not known.
"""

from dataclasses import dataclass
from typing import TypeAlias

__all__ = [
    "BatchArchived",
    "ResultStored",
    "SessionCreated",
    "SessionRemoved",
    "SummaryWritten",
    "WorkspaceEvent",
]


@dataclass(frozen=True, slots=True)
class SessionCreated:
    """A session is there that was not."""

    session_id: str
    time: str


@dataclass(frozen=True, slots=True)
class SessionRemoved:
    """A session's directory is gone."""

    session_id: str
    time: str


@dataclass(frozen=True, slots=True)
class BatchArchived:
    """A batch of messages is archived.

    Attributes:
        first: Index of the first message in the session, 0-based.
        end: Index behind the last one.
        lines: First and last line of them in ``transcript.md``, 1-based and inclusive.
    """

    session_id: str
    first: int
    end: int
    lines: tuple[int, int]
    time: str


@dataclass(frozen=True, slots=True)
class ResultStored:
    """A whole tool result is committed in a file of its own.

    Attributes:
        call_id: Of the call that it answers.
        name: Of its file within the session.
        size_bytes: Of its file.
        lines: Of the view if there is one, else of the file.
        view: Name of its readable view within the session; empty if it needs none.
        kinds: Of its blocks in order, such as ``("text", "image")``; empty if the journal does not say.
    """

    session_id: str
    call_id: str
    name: str
    size_bytes: int
    lines: int
    view: str
    time: str
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SummaryWritten:
    """A summary is committed: the oldest messages of a context were compacted.

    Attributes:
        n: Its number, counted from 1; the line of ``summaries.jsonl`` that holds it.
        first: Index of the first message that it is about, 0-based.
        end: Index behind the last one.
        source_tokens: Of these messages.
        tokens: Of the summary.
    """

    session_id: str
    n: int
    first: int
    end: int
    source_tokens: int
    tokens: int
    time: str


WorkspaceEvent: TypeAlias = SessionCreated | BatchArchived | ResultStored | SummaryWritten | SessionRemoved
