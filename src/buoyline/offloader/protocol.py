"""The contract of an offloader, and the abilities that it may have.

Two methods make an offloader: AgentScope's ``Agent(offloader=...)`` takes any object that has them. Everything else is
a small protocol of its own. `SupportsAbilities` lets an offloader name its abilities once; without it, an offloader
works, but results have no lines to cite and sessions cannot resume.
"""

import json
import os
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

from buoyline.messages import Message, ToolResult
from buoyline.previews.source import Source


class ReadableFile(Protocol):
    """A file, pipe or stream whose ``read`` may be asynchronous, such as a subprocess's ``stdout``."""

    def read(self, size: int, /) -> Any:
        """Return up to *size* bytes or characters, or an awaitable of them; empty at the end."""
        ...


ToolOutput: TypeAlias = AsyncIterable[str | bytes] | Iterable[str | bytes] | ReadableFile | os.PathLike[str]
"""Tool output in pieces. A bare string could be a path, so pass ``[text]`` or ``Path(text)``."""


class Offloader(Protocol):
    """Stores content that is taken out of a context. Source: AgentScope's ``Offloader``.

    Messages come as a list, as documented; an offloader may accept any sequence.
    """

    async def offload_context(self, session_id: str, msgs: list[Any], **kwargs: Any) -> str:
        """Store archived messages; return a reference that the agent can use, such as a path."""
        ...

    async def offload_tool_result(self, session_id: str, tool_result: Any, **kwargs: Any) -> str:
        """Store one whole tool result; return a reference that the agent can use, such as a path.

        A window passes a `ToolResult`, or AgentScope's own block if the message is AgentScope's own object.
        """
        ...


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A stored block of a tool result.

    Attributes:
        kind: ``"text"`` or ``"json"``, in the result's own file; ``"image"``, ``"audio"``, ``"document"`` or another
            type, with its decoded bytes in a file of their own; ``"opaque"`` for a block without a readable payload,
            whose JSON is in that file.
        offset: Where a text or JSON part begins in the result's file, in bytes; 0 for others.
        media_type: IANA media type; empty for text and JSON, or if unknown.
        path: The file with the bytes, relative to the workspace; empty for text and JSON.
        reference: The agent's reference to that file; an absolute path for a workspace on disk.
        name: File name or title of a document, or the type of an ``"opaque"`` block; may be empty.
    """

    kind: str
    size_bytes: int
    offset: int = 0
    media_type: str = ""
    path: str = ""
    reference: str = ""
    name: str = ""


class StoredFile(NamedTuple):
    """A file that a line of the log names, so that `verify` sees each changed byte.

    *name* is within the session; that of a payload begins with ``data/``, and needs no *crc*.
    """

    name: str
    size_bytes: int
    crc: str


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A stored tool result.

    Attributes:
        reference: The agent's reference to the whole result; an absolute path for a workspace.
        name: File name within the session, for citations; empty without files.
        view: Absolute path of the readable view; empty if the result itself is readable.
        lines: Lines of the view, or of the result if there is no view.
        parts: One for each block, in the tool's order; empty if the offloader does not list them.
        partial: Why the output is incomplete; empty for a whole result.
        files: Its own file, that of its view, and its payloads.
    """

    reference: str
    name: str = ""
    view: str = ""
    lines: int = 0
    parts: tuple[StoredPart, ...] = ()
    partial: str = ""
    files: tuple[StoredFile, ...] = ()


@dataclass(frozen=True, slots=True)
class ArchivedBatch:
    """A stored batch of messages.

    Attributes:
        reference: The agent's; an absolute path for a workspace.
        transcript: Absolute path of the text form, to which *lines* refers.
        transcript_name: The same relative to the session, for citations.
        first: Session index of the first message, 0-based.
        lines: First and last line of each message, 1-based and inclusive.
    """

    reference: str
    transcript: str
    transcript_name: str
    first: int
    lines: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class WindowState:
    """The saved context of a session.

    Attributes:
        messages: Native messages of the context with their dialects, in order: the prefix (copies of archived messages
            and the summary), then the others.
        head: The kind of each prefix message: ``"system"``, ``"pin"`` or ``"summary"``.
        first: Session index of the first message after the prefix.
        pins: Session indexes of pinned messages.
        times: When each message was added, ISO 8601 in UTC, empty if unknown; or an empty tuple.
        settings: As passed to `WindowLog.start_window`.
        archived: The number of messages in the archive; more than *first* after a crash during a compaction.
    """

    messages: tuple[tuple[str, dict[str, Any]], ...]
    head: tuple[str, ...]
    first: int
    pins: tuple[int, ...]
    settings: Mapping[str, Any]
    archived: int
    times: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A request that a window handed out, so that its cost can be seen later.

    Attributes:
        time: When it was handed out, ISO 8601 in UTC.
        end: Session index behind its newest message.
        tokens: By our own count, by kind: ``fixed`` (system prompt and tools), ``prefix`` (system messages and pins),
            ``summary``, ``reinserted`` and ``messages``.
        usage: By the provider's count, ``input_tokens``, ``output_tokens``, ``cached_tokens`` and
            ``cache_write_tokens``; see `buoyline.tokens.Usage`. Empty if nobody passed it on.
        model: Its name in the response; empty if unknown.
    """

    time: str
    end: int
    tokens: Mapping[str, int]
    usage: Mapping[str, int] = field(default_factory=dict[str, int])
    model: str = ""


class ResultStore(Protocol):
    """Stores whole tool results, and records which texts are stubs of them."""

    async def store_result(self, session_id: str, result: ToolResult) -> StoredResult:
        """Store *result*. If the id exists with other content, both are kept."""
        ...

    async def load_result(self, session_id: str, stored: StoredResult) -> ToolResult:
        """Return the result of *stored*, equal to the original, including the bytes of its media."""
        ...

    async def load_stubs(self, session_id: str, texts: Sequence[str]) -> dict[str, StoredResult]:
        """Return those of *texts* that are recorded as stubs, with their results."""
        ...

    async def record_stub(self, session_id: str, stub: str, stored: StoredResult) -> None:
        """Record *stub* as a stub of *stored*: stubs are recognized by this record, not by their wording."""
        ...


class ResultWriter(Protocol):
    """Writes one tool result in pieces; it is invisible before `store`. Only one task at a time may use the writer.

    As an asynchronous context manager, it discards at the end what was not stored.
    """

    async def write(self, chunk: str | bytes) -> None:
        """Write the next piece. If this fails, everything written is discarded."""
        ...

    async def store(self, *, partial: str = "") -> StoredResult:
        """Store the pieces as a result; *partial* is the reason why it is incomplete, if it is."""
        ...

    async def discard(self) -> None:
        """Discard the pieces; does nothing after `store` or `discard`."""
        ...

    async def __aenter__(self) -> Self:
        """Return the writer."""
        ...

    async def __aexit__(self, *_: object) -> None:
        """Discard the pieces unless they were stored."""
        ...


class ResultStreams(Protocol):
    """Stores and reads tool results of any size in pieces, with the memory of one block."""

    def result_writer(self, session_id: str, call_id: str, *, keep_partial: bool = False) -> ResultWriter:
        """Begin a tool result. Raises `ConfigError` if *keep_partial* is not possible."""
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
        """Store *output* while it arrives. Raises `ToolOutputError` if it exceeds *max_bytes*.

        An error in *output*, or a cancellation, is raised unchanged. With *keep_partial*, the pieces before it become a
        stored result that is marked as partial; otherwise nothing is stored.
        """
        ...

    def result_source(self, session_id: str, stored: StoredResult) -> Source:
        """Return the text to which line numbers of *stored* refer: the view if there is one. Reading it blocks."""
        ...


class ContextArchive(Protocol):
    """Archives batches of messages, and knows the lines of each message."""

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
        """Store *messages* as a whole or not at all; a repeated *batch_id* is the same batch.

        If the first message would not get the index *first*, `StaleWindowError` is raised and nothing is written.
        *times* says when each message was added, in ISO 8601, or is empty.
        """
        ...

    async def load_messages(self, session_id: str, first: int, end: int) -> list[tuple[str, dict[str, Any]]]:
        """Return dialect and JSON of the archived messages from *first* up to *end*, with their payloads."""
        ...

    async def locate(self, session_id: str, first: int, end: int) -> ArchivedBatch:
        """Return the reference and lines of the archived messages from *first* up to *end*."""
        ...

    async def missing(self, session_id: str, strings: Sequence[str]) -> list[str]:
        """Return those of *strings* that occur in no archived message and no stored result, in order."""
        ...


class TranscriptReader(Protocol):
    """Reads the lines of archived messages, so that a summary can cite single lines instead of whole messages."""

    async def transcript_lines(self, session_id: str, first: int, end: int) -> Sequence[Sequence[str]]:
        """Return the transcript lines of each archived message from *first* up to *end*, without line ends.

        Each message has as many lines as `ContextArchive.locate` says. An empty sequence means that the lines are
        unknown; then summaries cite whole messages.
        """
        ...


class SummaryLog(Protocol):
    """Stores the summaries of a session, one line each."""

    async def append_summary(self, session_id: str, summary: Mapping[str, Any]) -> int:
        """Store *summary* with the next number as ``n``; return that number, which starts at 1."""
        ...

    async def load_summaries(self, session_id: str) -> list[dict[str, Any]]:
        """Return all summaries in order; may be empty."""
        ...


class WindowLog(Protocol):
    """Stores the context of a session, so that another process can resume it."""

    async def start_window(self, session_id: str, settings: Mapping[str, Any], *, writer: str = "") -> None:
        """Begin a window; the same *writer* may repeat it. Raises `SessionExistsError` if the session was used."""
        ...

    async def claim_window(self, session_id: str, *, writer: str) -> None:
        """Make *writer* the only one that may continue the window; an earlier writer gets `StaleWindowError`."""
        ...

    async def extend_window(
        self,
        session_id: str,
        messages: Sequence[Any],
        pins: Sequence[int],
        *,
        times: Sequence[str] = (),
        dialects: Sequence[str] = (),
        stubs: Sequence[tuple[str, StoredResult]] = (),
        calls: Sequence[ModelCall] = (),
        writer: str = "",
    ) -> None:
        """Store messages that were added to the context, and the session indexes of all pins.

        *times* says when each message was added, in ISO 8601, and *dialects* names its dialect. Each may be empty;
        any other number raises `ValueError`. Without *dialects*, these are detected. The *stubs*, texts with their
        results, are recorded first, as `ResultStore.record_stub` does. The *calls* are recorded without a sync of their
        own. A *writer* that neither began nor claimed the window gets `StaleWindowError`; without a writer nothing is
        checked.
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
        dialects: Sequence[str] = (),
        stubs: Sequence[tuple[str, StoredResult]] = (),
        calls: Sequence[ModelCall] = (),
        writer: str = "",
    ) -> None:
        """Store the context after a compaction; see `WindowState`, and `extend_window` for *writer*."""
        ...

    async def load_window(self, session_id: str) -> WindowState:
        """Return the context as last stored. Raises `NotFoundError`."""
        ...


class Redactor(Protocol):
    """Removes from messages what must not be stored.

    Previews and summaries are cut from redacted messages: a hook would not recognize half of a secret.
    """

    async def redacted(self, views: Sequence[Message]) -> list[Message]:
        """Return *views* as they may be stored, in order. Raises `RedactionError`."""
        ...


class RereadCheck(Protocol):
    """Recognizes stored content that the agent reads again: storing it once more would never end."""

    def reference_in(self, session_id: str, arguments: str) -> str:
        """Return the first reference to stored content in a tool call; empty if there is none.

        Args:
            session_id: The session that relative paths refer to.
            arguments: The arguments as the model gave them, JSON or any other text. Only the spelling counts.
        """
        ...

    async def holds(self, reference: str, text: str) -> bool:
        """Check whether the content of *reference* contains *text* verbatim; False if the content no longer exists."""
        ...


class TurnCounter(Protocol):
    """Forgets content that was not used for a number of turns. Source: Strands' ``InMemoryStorage``."""

    def next_turn(self) -> None:
        """Begin the next turn; a window calls this once for each model call that it prepares."""
        ...


@dataclass(frozen=True, slots=True)
class Abilities:
    """The abilities of an offloader beyond its two methods; None for those it lacks."""

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
    """An offloader with abilities beyond the two methods.

    The runtime check is for this method only; the protocols of the abilities are checked statically.
    """

    def abilities(self) -> Abilities:
        """Return the abilities."""
        ...


def abilities_of(offloader: object) -> Abilities:
    """Return the abilities of *offloader*; a plain offloader, or None, has none."""
    return offloader.abilities() if isinstance(offloader, SupportsAbilities) else Abilities()


def instead_of(given: object) -> str:
    """Return the advice for an argument that is not a workspace, most often the path of one.

    >>> instead_of("./workspace")
    'give LocalWorkspace("./workspace")'
    >>> instead_of(None)
    'give a LocalWorkspace'
    """
    if isinstance(given, (str, PurePath)) and str(given):
        return f"give LocalWorkspace({json.dumps(str(given), ensure_ascii=False)})"
    return "give a LocalWorkspace"
