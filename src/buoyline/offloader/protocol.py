"""The contract: what takes content out of a context, and what more it may be able to do.

Two methods make an offloader; AgentScope's ``Agent(offloader=...)`` takes any object that has them. Everything
beyond them is a small protocol of its own. An offloader that has such abilities says so once, through
`SupportsAbilities`; one that does not still works, with less to point at.
"""

import json
import os
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Protocol, Self, TypeAlias, runtime_checkable

from buoyline.messages import Message, ToolResult
from buoyline.previews.source import Source


class ReadableFile(Protocol):
    """A file, pipe or stream with a ``read`` that may be asynchronous, such as a subprocess's ``stdout``."""

    def read(self, size: int, /) -> Any:
        """Return up to *size* bytes or characters, or an awaitable of them; none at the end."""
        ...


ToolOutput: TypeAlias = AsyncIterable[str | bytes] | Iterable[str | bytes] | ReadableFile | os.PathLike[str]
"""What a tool gives piece by piece. A bare text could be a path: pass ``[text]`` or ``Path(text)``."""


class Offloader(Protocol):
    """Persists what leaves a context. Source: AgentScope's ``Offloader``.

    Messages come as a list, as the documented form takes them; an offloader may well take any sequence.
    """

    async def offload_context(self, session_id: str, msgs: list[Any], **kwargs: Any) -> str:
        """Persist messages that leave the context; return a reference the agent can use, e.g. a path."""
        ...

    async def offload_tool_result(self, session_id: str, tool_result: Any, **kwargs: Any) -> str:
        """Persist one whole tool result; return a reference the agent can use, e.g. a path.

        A window hands over a `ToolResult`, or AgentScope's own block where the message is AgentScope's own object.
        """
        ...


@dataclass(frozen=True, slots=True)
class StoredPart:
    """One block of a tool result that is durable.

    Attributes:
        kind: ``"text"`` or ``"json"``, which stand in the result's own file; ``"image"``, ``"audio"``, ``"document"``
            or what else the block was, with its decoded bytes in a file of their own; ``"opaque"`` for a block that
            has no payload or that nobody could read, whose JSON is in that file.
        size_bytes: Of the part.
        offset: Where a text or JSON part begins in the result's file, in bytes; 0 for others.
        media_type: IANA media type; empty where it is not known, and for text and JSON.
        path: File with the bytes, relative to the workspace; empty for text and JSON, which have none of their own.
        reference: What the agent uses to get at that file; an absolute path for a workspace on disk.
        name: File name or title of a document, or the block's own type for ``"opaque"``; may be empty.
        width: Of an image in pixels; 0 where it is not known.
        height: See *width*.
        pages: Of a document; 0 where that is not known.
    """

    kind: str
    size_bytes: int
    offset: int = 0
    media_type: str = ""
    path: str = ""
    reference: str = ""
    name: str = ""
    width: int = 0
    height: int = 0
    pages: int = 0


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A tool result that is durable.

    Attributes:
        reference: What the agent uses to get at the whole result; an absolute path for a workspace.
        name: File name within the session, for pointers; empty without files.
        view: Absolute path of the readable view; empty where the result itself is readable.
        lines: Lines of the view where there is one, else of the result.
        parts: One for each block, in the tool's order; empty where the offloader does not say.
        partial: Why the tool did not come to its end, where its output so far was kept; empty for a whole result.
    """

    reference: str
    name: str
    view: str
    lines: int
    parts: tuple[StoredPart, ...] = ()
    partial: str = ""


@dataclass(frozen=True, slots=True)
class ArchivedBatch:
    """A batch of messages that is durable.

    Attributes:
        reference: What the agent uses to get at the messages; an absolute path for a workspace.
        transcript: Absolute path of the text form that the lines below count in.
        transcript_name: The same relative to the session, for pointers.
        first: Index of the first message in the session, 0-based.
        lines: First and last line of each message, 1-based and inclusive.
    """

    reference: str
    transcript: str
    transcript_name: str
    first: int
    lines: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class WindowState:
    """What a session's context was when it was last written down.

    Attributes:
        messages: Native messages that stand in the context, in order, with their dialects; copies of archived
            ones and the summary first.
        head: What those first ones are: ``"system"``, ``"pin"`` or ``"summary"`` each.
        first: Session index of the message that follows the head.
        pins: Session indexes of pinned messages.
        times: When each message was added, ISO 8601 in UTC, empty where that is not known; or nothing at all.
        settings: As given to `WindowLog.start_window`.
        archived: How many messages the archive holds; more than *first* after a crash in mid-compression.
    """

    messages: tuple[tuple[str, dict[str, Any]], ...]
    head: tuple[str, ...]
    first: int
    pins: tuple[int, ...]
    settings: Mapping[str, Any]
    archived: int
    times: tuple[str, ...] = ()


class ResultStore(Protocol):
    """Stores whole tool results and remembers which texts are stubs of them."""

    async def store_result(self, session_id: str, result: ToolResult) -> StoredResult:
        """Persist *result*; the same id with other content is kept beside the first."""
        ...

    async def load_result(self, session_id: str, stored: StoredResult) -> ToolResult:
        """Return the result behind *stored*, equal to what was given; its media come with their bytes."""
        ...

    async def load_stubs(self, session_id: str, texts: Sequence[str]) -> dict[str, StoredResult]:
        """Return those of *texts* that are recorded stubs, with the results that they stand for."""
        ...

    async def record_stub(self, session_id: str, stub: str, stored: StoredResult) -> None:
        """Remember that the text *stub* stands for *stored*: stubs are known by record, not by looks."""
        ...


class ResultWriter(Protocol):
    """Takes one tool result piece by piece. Nothing of it is to be seen before `store`; one task at a time uses it.

    It is an asynchronous context manager, at whose end what was not stored is discarded.
    """

    async def write(self, chunk: str | bytes) -> None:
        """Take what comes next. Where that fails, all that was written is discarded."""
        ...

    async def store(self, *, partial: str = "") -> StoredResult:
        """Make a durable result of what was written; *partial* says why it is not whole, if it is not."""
        ...

    async def discard(self) -> None:
        """Forget what was written; nothing happens when it is stored or discarded already."""
        ...

    async def __aenter__(self) -> Self:
        """Return the writer."""
        ...

    async def __aexit__(self, *_: object) -> None:
        """Discard what was not stored."""
        ...


class ResultStreams(Protocol):
    """Stores tool results of any size while they come, and shows them again, both at the cost of a block."""

    def result_writer(self, session_id: str, call_id: str, *, keep_partial: bool = False) -> ResultWriter:
        """Begin a tool result. Raises `ConfigError` where *keep_partial* asks for what may not be."""
        ...

    async def store_stream(
        self,
        session_id: str,
        call_id: str,
        output: ToolOutput,
        *,
        max_bytes: int | None = None,
        keep_partial: bool = False,
    ) -> StoredResult:
        """Persist *output* as it comes. Raises `ToolOutputError` where it has more than *max_bytes*.

        Whatever stops it is raised as it is, a cancellation included. With *keep_partial* what came before is a
        stored result then, and marked so; else there is nothing of it.
        """
        ...

    def result_source(self, session_id: str, stored: StoredResult) -> Source:
        """Return the text that the lines of *stored* count: its view where it has one; reading it blocks."""
        ...


class ContextArchive(Protocol):
    """Archives batches of messages and knows the lines of each."""

    async def archive(
        self,
        session_id: str,
        messages: Sequence[Any],
        *,
        batch_id: str = "",
        dialect: str | None = None,
        first: int | None = None,
        times: Sequence[str] = (),
    ) -> ArchivedBatch:
        """Persist *messages* whole or not at all; the same *batch_id* again is the same batch.

        With *first*, the first of them must get this index, else `StaleWindowError` is raised and nothing written.
        *times* says when each was added, in ISO 8601, or nothing where that is not known.
        """
        ...

    async def load_messages(self, session_id: str, first: int, end: int) -> list[tuple[str, dict[str, Any]]]:
        """Return dialect and JSON of the archived messages from *first* up to *end*, payloads put back."""
        ...

    async def locate(self, session_id: str, first: int, end: int) -> ArchivedBatch:
        """Return where the archived messages from *first* up to *end* stand."""
        ...

    async def missing(self, session_id: str, strings: Sequence[str]) -> list[str]:
        """Return those of *strings* that occur in no archived message and no stored result, in order."""
        ...


class TranscriptReader(Protocol):
    """Shows the lines that archived messages take, so that a summary can cite few of them instead of whole messages."""

    async def transcript_lines(self, session_id: str, first: int, end: int) -> Sequence[Sequence[str]]:
        """Return the transcript's lines of each archived message from *first* up to *end*, without line ends.

        Nothing at all where they cannot be told: then whole messages are cited. As many lines for each message as
        `ContextArchive.locate` says that it has.
        """
        ...


class SummaryLog(Protocol):
    """Keeps the summaries of a session, one line each."""

    async def append_summary(self, session_id: str, summary: Mapping[str, Any]) -> int:
        """Persist *summary* under the next number, which is put in as ``n`` and returned, counted from 1."""
        ...

    async def load_summaries(self, session_id: str) -> list[dict[str, Any]]:
        """Return all summaries in order; none when there are none."""
        ...


class WindowLog(Protocol):
    """Keeps what stands in a session's context, so that another process can go on."""

    async def start_window(self, session_id: str, settings: Mapping[str, Any], *, writer: str = "") -> None:
        """Begin a session's window; the same *writer* may repeat it. Raises `SessionExistsError` for a used session."""
        ...

    async def claim_window(self, session_id: str, *, writer: str) -> None:
        """Make *writer* the one that goes on with the window; the one before gets `StaleWindowError` from now on."""
        ...

    async def extend_window(
        self,
        session_id: str,
        messages: Sequence[Any],
        pins: Sequence[int],
        *,
        times: Sequence[str] = (),
        writer: str = "",
    ) -> None:
        """Persist messages that were added to the context, and the session indexes of all pins.

        *times* says when each message was added, in ISO 8601, or nothing at all. Raises `ValueError` for fewer or more.

        A *writer* that is not the one that began or claimed the window gets `StaleWindowError`; without one nothing
        is checked.
        """
        ...

    async def replace_window(
        self,
        session_id: str,
        messages: Sequence[Any],
        head: Sequence[str],
        first: int,
        pins: Sequence[int],
        *,
        times: Sequence[str] = (),
        writer: str = "",
    ) -> None:
        """Persist what the context is after a compression; see `WindowState`, and `extend_window` for *writer*."""
        ...

    async def load_window(self, session_id: str) -> WindowState:
        """Return what `start_window`, `extend_window` and `replace_window` left. Raises `NotFoundError`."""
        ...


class Redactor(Protocol):
    """Takes out of messages what must not be stored.

    Previews and summaries are cut from what it leaves: half a secret is nothing that a hook would know.
    """

    async def redacted(self, views: Sequence[Message]) -> list[Message]:
        """Return *views* as they may be stored, in order. Raises `RedactionError`."""
        ...


class RereadCheck(Protocol):
    """Knows what it has stored when the agent reads it again: storing that once more would be a loop without end."""

    def reference_in(self, session_id: str, arguments: str) -> str:
        """Return the first reference to something stored that a tool call names; empty when it names none.

        Args:
            session_id: Whose stored things a path may mean that is relative to the session.
            arguments: Of the call, as the model gave them: JSON, or any other text. The spelling alone counts.
        """
        ...

    async def holds(self, reference: str, text: str) -> bool:
        """Tell whether *text* stands, word for word, in what is behind *reference*; False when that is gone."""
        ...


class TurnCounter(Protocol):
    """Forgets what was not used for a number of turns. Source: Strands' ``InMemoryStorage``."""

    def next_turn(self) -> None:
        """Begin the next turn: a window calls it for each time that it is made ready for a model call."""
        ...


@dataclass(frozen=True, slots=True)
class Abilities:
    """What an offloader can do beyond the two methods; None for what it cannot."""

    results: ResultStore | None = None
    streams: ResultStreams | None = None
    archive: ContextArchive | None = None
    summaries: SummaryLog | None = None
    windows: WindowLog | None = None
    redactor: Redactor | None = None
    turns: TurnCounter | None = None
    rereads: RereadCheck | None = None
    transcript: TranscriptReader | None = None


@runtime_checkable
class SupportsAbilities(Protocol):
    """Has more abilities than the two methods.

    Checked at runtime for this one method only; the protocols it returns are checked statically.
    """

    def abilities(self) -> Abilities:
        """Return the abilities."""
        ...


def abilities_of(offloader: object) -> Abilities:
    """Ask *offloader* once what it can do; a plain offloader, or none, has no abilities."""
    return offloader.abilities() if isinstance(offloader, SupportsAbilities) else Abilities()


# What to write in place of something that is no workspace: most often the path of one.


def instead_of(given: object) -> str:
    """Return what to give instead of *given*.

    >>> instead_of("./workspace")
    'give LocalWorkspace("./workspace")'
    >>> instead_of(None)
    'give a LocalWorkspace'
    """
    if isinstance(given, (str, PurePath)) and str(given):
        return f"give LocalWorkspace({json.dumps(str(given), ensure_ascii=False)})"
    return "give a LocalWorkspace"
