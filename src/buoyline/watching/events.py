"""What a watched workspace tells: typed events, one for each thing that happened to a session."""

from dataclasses import dataclass
from typing import TypeAlias

__all__ = [
    "BatchArchived",
    "FileRemoved",
    "ResultStored",
    "SessionCreated",
    "SessionRemoved",
    "SummaryWritten",
    "WorkspaceEvent",
]


@dataclass(frozen=True, slots=True)
class SessionCreated:
    """A session is there that was not.

    Attributes:
        session_id: As the agent's framework gave it.
        time: When it was created, ISO 8601 in UTC; empty when that is not known.
    """

    session_id: str
    time: str


@dataclass(frozen=True, slots=True)
class SessionRemoved:
    """A session's directory is gone.

    Attributes:
        session_id: Whose it was.
        time: When that was seen, ISO 8601 in UTC.
    """

    session_id: str
    time: str


@dataclass(frozen=True, slots=True)
class BatchArchived:
    """A batch of messages left a context and is committed.

    Attributes:
        session_id: Whose messages.
        first: Index of the first message in the session, 0-based.
        end: Index behind the last one.
        lines: First and last line of them in ``transcript.md``, 1-based and inclusive.
        time: When they were committed, ISO 8601 in UTC.
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
        session_id: Whose result.
        call_id: Of the call that it answers.
        name: Of its file within the session.
        size_bytes: Of its file.
        lines: Of the view where there is one, else of the file.
        view: Name of its readable view within the session; empty where it needs none.
        time: When it was committed, ISO 8601 in UTC.
        kinds: Of its blocks in order, such as ``("text", "image")``; empty where the journal does not say.
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
    """A summary is committed: the oldest messages of a context were compressed.

    Attributes:
        session_id: Whose summary.
        n: Its number, counted from 1; the line of ``summaries.jsonl`` that holds it.
        first: Index of the first message that it is about, 0-based.
        end: Index behind the last one.
        source_tokens: What these messages took.
        tokens: What the summary takes.
        time: When it was made, ISO 8601 in UTC; empty where its writer did not say.
    """

    session_id: str
    n: int
    first: int
    end: int
    source_tokens: int
    tokens: int
    time: str


@dataclass(frozen=True, slots=True)
class FileRemoved:
    """A file that buoyline keeps for a session is gone, while the session is still there.

    Attributes:
        session_id: Whose file.
        name: Its name within the session.
        time: When that was seen, ISO 8601 in UTC.
    """

    session_id: str
    name: str
    time: str


WorkspaceEvent: TypeAlias = (
    SessionCreated | BatchArchived | ResultStored | SummaryWritten | FileRemoved | SessionRemoved
)
