"""`MemoryWorkspace`: what left the context, kept in this process and in no file."""

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from buoyline.errors import InvalidNameError, NotFoundError
from buoyline.messages import Message, ToolResult
from buoyline.messages.payloads import put_back, without_payload
from buoyline.offloader.protocol import Abilities, ArchivedBatch, Offloader, StoredResult, WindowState
from buoyline.previews.source import TextSource, decoded
from buoyline.workspace import layout
from buoyline.workspace.batches import located, prepared
from buoyline.workspace.blobs import with_data_tags
from buoyline.workspace.entries import EntriesInMemory, StoredEntry, watch_forks
from buoyline.workspace.journal import Batch
from buoyline.workspace.memory_session import ROOT, Evictable, MemoryFiles, MemorySession, directory_for
from buoyline.workspace.redaction import Redaction, RedactPayload, RedactText
from buoyline.workspace.references import holds, reference_in
from buoyline.workspace.streams import (
    MAX_REDACTED_BYTES,
    BufferSink,
    StoresStreams,
    StreamWriter,
    as_result,
    done,
    refuse_partial,
)

_NOTHING_STORED = "nothing was stored under it in this workspace"


class MemoryWorkspace(StoresStreams):
    """A workspace in this process's memory, for tests and for places that have no disk.

    It has the abilities of `LocalWorkspace`, renders the same transcript, and refuses the same calls with the
    same errors. References look like ``memory:///sessions/s1/tool_result-c1.txt``; `read` returns what is behind
    one. Nothing is written to disk, and nothing survives the process: acknowledged means held until `clear`.

    **What is evicted.** Entries that were neither stored nor retrieved for more than *evict_after_turns* turns are
    removed when `next_turn` is called (by `ContextWindow.prepare`, or by you), and only then: whole tool results
    together with their views, and payloads
    of `offload_data_block` as long as no archived message has them, too. Storing one again or reading it begins
    its turns anew. Reading an evicted one is a `NotFoundError` that says so; `missing` no longer finds what only
    it held; storing the same result again brings it back under the same reference. Archived messages with their
    payloads, the transcript, summaries and windows are never evicted, so `load_messages` is always complete.

    Threads and event loops may share an instance: one lock guards it. Calls run where they are made and never
    wait for anything but that lock, so a cancelled call has either not begun or is done. With eviction on, each
    agent should have a workspace of its own, since one agent's turns would age what another one stored.

    Source: Strands' ``InMemoryStorage`` for turns, their default and `clear`; `LocalWorkspace` for all else.
    """

    def __init__(
        self,
        *,
        evict_after_turns: int | None = 20,
        redact: RedactText | None = None,
        redact_payload: RedactPayload | None = None,
    ) -> None:
        """Begin with nothing.

        Args:
            evict_after_turns: For how many turns an entry is kept that nobody uses; None keeps everything.
            redact: Gets every string before it is kept; see `LocalWorkspace`.
            redact_payload: The same for decoded payloads.

        Raises:
            ConfigError: *evict_after_turns* is neither None nor a whole number above 0, or a hook cannot be called.
        """
        self._evictable = Evictable(evict_after_turns)
        self._evict_after_turns = evict_after_turns
        self._redaction = Redaction(redact, redact_payload)
        self._payloads: dict[str, bytes] = {}
        self._sessions: dict[str, MemorySession] = {}
        self._entries: dict[str, dict[str, StoredEntry]] = {}
        self._lock = threading.Lock()
        watch_forks(self)

    def __repr__(self) -> str:
        """Return how much is held."""
        return f"<MemoryWorkspace: sessions={len(self._sessions):,}, blobs={len(self._payloads):,}>"

    async def initialize(self) -> None:
        """Do nothing; here because a workspace has it."""

    async def close(self) -> None:
        """Do nothing: what is held is nowhere else, so only `clear` removes it."""

    async def __aenter__(self) -> Self:
        """Return the workspace."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Keep what is held, as `close` does."""

    def abilities(self) -> Abilities:
        """Return what a workspace can do beyond the two methods of an offloader: everything there is."""
        redactor = self if self._redaction.is_active else None
        return Abilities(
            results=self,
            streams=self,
            archive=self,
            summaries=self,
            windows=self,
            redactor=redactor,
            turns=self,
            read_backs=self,
            transcript=self,
        )

    def next_turn(self) -> None:
        """Begin the next turn of the agent's loop and evict what nobody used for too many.

        `ContextWindow.prepare` calls it, once for each model call; only loops without a window call it themselves.
        """
        with self._lock:
            self._evictable.next_turn()

    def clear(self) -> None:
        """Remove everything that is held, of all sessions."""
        with self._lock:
            self._sessions.clear()
            self._payloads.clear()
            self._entries.clear()
            self._evictable.clear()

    def read(self, reference: str) -> str:
        """Return the text behind *reference*; see `retrieve`.

        Raises:
            NotFoundError: There is nothing behind it, or no longer.
            InvalidNameError: It stands for bytes that are no text; `retrieve` returns them.
        """
        content = self.retrieve(reference)
        try:
            return content.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise InvalidNameError(reference, "stands for bytes that are no text; use retrieve") from error

    def retrieve(self, reference: str) -> bytes:
        """Return the bytes behind *reference*, which counts as a use of them.

        Args:
            reference: Any that this workspace has given: of a tool result, a view, an archive, a transcript, or
                ``workspace:///data/…``, which stands in place of a payload.

        Raises:
            NotFoundError: There is nothing behind it; where it was evicted, the error says so.
        """
        with self._lock:
            return self._used(reference)

    def files(self) -> MemoryFiles:
        """Return all that is held as files to read, as `buoyline.lookups.retrieve` reads a workspace on disk."""
        return MemoryFiles(self._sessions, self._evictable, self._payloads, lock=self._lock, use=self.retrieve)

    def renew_after_fork(self) -> None:
        """Replace the lock in a forked child, where a thread of the parent may have held it."""
        self._lock = threading.Lock()

    async def offload_context(self, session_id: str, msgs: Sequence[Any], **_: Any) -> str:
        """Archive messages that leave the context.

        Args:
            session_id: The session; created when it is new.
            msgs: Native messages of any known dialect, in order. None of them is changed.
            **_: Accepted for the contract; nothing is expected.

        Returns:
            The reference of the session's ``context.jsonl``.

        Raises:
            InvalidNameError: *session_id* cannot be an id.
            MessageError: One of *msgs* is no message; nothing was stored.
        """
        return (await self.archive(session_id, msgs)).reference

    async def offload_tool_result(self, session_id: str, tool_result: Any, **_: Any) -> str:
        """Store one whole tool result.

        Args:
            session_id: The session; created when it is new.
            tool_result: A tool message, a tool result block, or a `ToolResult`.
            **_: Accepted for the contract; nothing is expected.

        Returns:
            The reference of its text.

        Raises:
            InvalidNameError: *session_id* cannot be an id.
            MessageError: *tool_result* is no tool result; nothing was stored.
        """
        result = with_data_tags(self._redaction.result(tool_result), tool_result)
        with self._lock:
            return self._begun(session_id).store(result, self._payloads).reference

    async def offload_data_block(self, block: Any) -> Any:
        """Store the payload of one content block.

        Args:
            block: A content block with a base64 payload, e.g. AgentScope's `DataBlock`, Anthropic's ``image`` or
                OpenAI's ``image_url``.

        Returns:
            A copy of *block* with ``workspace:///data/<sha256>.<ext>`` in the payload's place, of the same class;
            *block* itself when it has none.

        Raises:
            MessageError: The payload of a `DataBlock` is no base64; nothing was stored.
        """
        payloads: list[tuple[bytes, str]] = []

        def put(payload: bytes, media_type: str) -> str:
            redacted = self._redaction.payload(payload, media_type)
            payloads.append((redacted, media_type))
            return layout.reference_to(layout.blob_name(redacted, media_type))

        referring = without_payload(block, put)
        with self._lock:
            for payload, media_type in payloads:
                self._put(payload, media_type)
        return referring

    async def store_result(self, session_id: str, result: ToolResult) -> StoredResult:
        """Store *result*; see `offload_tool_result`."""
        redacted = self._redaction.result(result)
        with self._lock:
            return self._begun(session_id).store(redacted, self._payloads)

    async def load_result(self, session_id: str, stored: StoredResult) -> ToolResult:
        """Return the result behind *stored*, which counts as a use of it.

        Raises:
            NotFoundError: There is no such session, or the result is not held, or no longer.
        """
        with self._lock:
            return self._found(session_id).load(stored.name, self._used)

    def result_writer(self, session_id: str, call_id: str, *, keep_partial: bool = False) -> StreamWriter:
        """Begin a tool result that is written piece by piece; see `LocalWorkspace.result_writer`."""
        layout.session_directories(session_id)
        layout.require_id(call_id)
        if keep_partial and self._redaction.is_active:
            refuse_partial()

        def keep(content: bytes, partial: str) -> StoredResult:
            with self._lock:
                return self._begun(session_id).store_bytes(call_id, content, partial)

        def keep_redacted(content: bytes, _: str) -> StoredResult:
            redacted = self._redaction.result(as_result(call_id, content))
            with self._lock:
                return self._begun(session_id).store(redacted, self._payloads)

        is_redacted = self._redaction.is_active
        sink = BufferSink(call_id, keep_redacted, MAX_REDACTED_BYTES) if is_redacted else BufferSink(call_id, keep)
        return StreamWriter(call_id, sink, run=done, run_in_order=done)

    def result_source(self, session_id: str, stored: StoredResult) -> TextSource:
        """Return the text that the lines of *stored* count, which counts as its use.

        Raises:
            NotFoundError: It was evicted, or never was there.
        """
        name = layout.view_name(stored.name) if stored.view else stored.name
        return TextSource(decoded(self.retrieve(self._addressed(session_id).path(name))))

    async def load_stubs(self, session_id: str, texts: Sequence[str]) -> dict[str, StoredResult]:
        """Return those of *texts* that are recorded stubs, with the results that they stand for.

        Raises:
            NotFoundError: There is no such session.
        """
        kept = self._redaction.texts(texts)
        with self._lock:
            found = self._found(session_id).stubs(kept)
        return {text: found[redacted] for text, redacted in zip(texts, kept, strict=True) if redacted in found}

    async def record_stub(self, session_id: str, stub: str, stored: StoredResult) -> None:
        """Remember that the text *stub* stands for *stored*."""
        redacted = self._redaction.text(stub)
        with self._lock:
            self._begun(session_id).record_stub(redacted, stored.name)

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
        """Archive *messages* as one batch, whole or not at all.

        Args:
            session_id: The session; created when it is new.
            messages: Native messages in order.
            batch_id: Makes a repetition known, at any time; without one only an identical call right after the
                first counts as its repetition.
            dialect: Name of the messages' dialect; detected for each where it is None.
            first: Index that the first of them must get; not checked where it is None.
            times: When each message was added, ISO 8601, for the headings of those that have no time of their own.
                Left out, or empty for a message: not known.

        Returns:
            Where they stand. Of no messages: where the next would.

        Raises:
            InvalidNameError: *session_id* cannot be an id.
            MessageError: One of *messages* is no message; nothing was stored.
            ConflictError: *batch_id* stands for other messages.
            StaleWindowError: The first would get another index; nothing was stored.
        """
        redacted, known_as = self._redaction.messages(messages, dialect), self._redaction.identifier(batch_id)
        with self._lock:
            session = self._addressed(session_id)
            checked = prepared(redacted, dialect, self._put)
            if not checked:
                return located(session.path, session.messages, ())
            batch = self._begun(session_id).add(checked, known_as, first, times)
            self._keep_payloads(batch)
            return located(session.path, batch.first, batch.line_ranges())

    async def load_messages(self, session_id: str, first: int, end: int) -> list[tuple[str, dict[str, Any]]]:
        """Return dialect and JSON of the archived messages from *first* up to *end*, payloads put back.

        Raises:
            NotFoundError: There is no such session.
        """
        with self._lock:
            return [
                (message.dialect, put_back(message.value, message.references, self._payload))
                for message in self._found(session_id).archived(first, end)
            ]

    async def locate(self, session_id: str, first: int, end: int) -> ArchivedBatch:
        """Return where the archived messages from *first* up to *end* stand.

        Raises:
            NotFoundError: There is no such session, or they are not all archived.
        """
        with self._lock:
            return self._found(session_id).located(first, end)

    async def transcript_lines(self, session_id: str, first: int, end: int) -> list[list[str]]:
        """Return the transcript's lines of archived messages; see `TranscriptReader`.

        Raises:
            NotFoundError: There is no such session.
        """
        with self._lock:
            return self._found(session_id).transcript_lines(first, end)

    async def missing(self, session_id: str, strings: Sequence[str]) -> list[str]:
        """Return those of *strings* that neither an archived message nor a tool result still held has, in order.

        Raises:
            NotFoundError: There is no such session.
        """
        kept = self._redaction.texts(strings)
        with self._lock:
            absent = set(self._found(session_id).missing(kept))
        return [text for text, redacted in zip(strings, kept, strict=True) if redacted in absent]

    async def redacted(self, views: Sequence[Message]) -> list[Message]:
        """Return the views of messages as they may be kept; see `LocalWorkspace.redacted`."""
        return [self._redaction.view(view) for view in views]

    async def append_summary(self, session_id: str, summary: Mapping[str, Any]) -> int:
        """Keep *summary* under the next number, which is put in as ``n`` and returned, counted from 1."""
        redacted = self._redaction.value(summary)
        with self._lock:
            return self._begun(session_id).add_summary(redacted)

    async def load_summaries(self, session_id: str) -> list[dict[str, Any]]:
        """Return all summaries of the session in order.

        Raises:
            NotFoundError: There is no such session.
        """
        with self._lock:
            return self._found(session_id).summaries()

    async def start_window(self, session_id: str, settings: Mapping[str, Any], *, writer: str = "") -> None:
        """Begin the session's window; the same *writer* may repeat it.

        Raises:
            SessionExistsError: The session has messages or a window already.
        """
        redacted, known_as = self._redaction.value(settings), self._redaction.identifier(writer)
        with self._lock:
            self._begun(session_id).start_window(redacted, known_as)

    async def claim_window(self, session_id: str, *, writer: str) -> None:
        """Make *writer* the one that goes on with the window; the one before it is refused from now on.

        Raises:
            NotFoundError: There is no such session, or it never had a window.
        """
        known_as = self._redaction.identifier(writer)
        with self._lock:
            self._found(session_id).claim_window(known_as)

    async def extend_window(
        self,
        session_id: str,
        messages: Sequence[Any],
        pins: Sequence[int],
        *,
        times: Sequence[str] = (),
        writer: str = "",
    ) -> None:
        """Keep messages that were added to the context, and the session indexes of all pins.

        Raises:
            StaleWindowError: Another writer has gone on with the window; nothing was changed.
        """
        redacted, known_as = self._redaction.messages(messages), self._redaction.identifier(writer)
        with self._lock:
            self._begun(session_id).extend_window(redacted, pins, times=times, writer=known_as)

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
        """Keep what the context is after a compression; see `WindowState`.

        Raises:
            StaleWindowError: Another writer has gone on with the window; nothing was changed.
        """
        redacted, known_as = self._redaction.messages(messages), self._redaction.identifier(writer)
        kept_head = self._redaction.texts(head)
        with self._lock:
            self._begun(session_id).replace_window(redacted, kept_head, first, pins, times=times, writer=known_as)

    async def load_window(self, session_id: str) -> WindowState:
        """Return what stands in the session's context.

        Raises:
            NotFoundError: There is no such session, or it never had a window.
        """
        with self._lock:
            return self._found(session_id).window()

    def reference_in(self, session_id: str, arguments: str) -> str:
        """Return the first reference of this workspace that the *arguments* of a call name; see `LocalWorkspace`."""
        with self._lock:
            directory = self._addressed(session_id).directory
        return reference_in(arguments, (ROOT.removesuffix("/"),), directory)

    async def holds(self, reference: str, text: str) -> bool:
        """Tell whether *text* stands in what is behind *reference*, which counts as a use; False when that is gone."""
        try:
            content = self.retrieve(reference)
        except NotFoundError:
            return False
        return holds((content,), text)

    def entries(self, scope: str) -> EntriesInMemory:
        """Return what is kept in *scope* under keys; it is never evicted. Raises `InvalidNameError`."""
        layout.entries_directory(scope)
        with self._lock:
            return EntriesInMemory(self._entries.setdefault(scope, {}), self._redaction)

    def session_ids(self) -> list[str]:
        """Return the ids of all sessions, in the order in which they began; none when there are none."""
        with self._lock:
            return [session.session_id for session in self._sessions.values()]

    def _addressed(self, session_id: str) -> MemorySession:
        """Return the session; a new one is not held yet, since the call may still be refused."""
        directory = directory_for(self._sessions, session_id)
        return self._sessions.get(directory) or MemorySession(session_id, directory, ROOT, self._evictable)

    def _begun(self, session_id: str) -> MemorySession:
        session = self._addressed(session_id)
        return self._sessions.setdefault(session.directory, session)

    def _found(self, session_id: str) -> MemorySession:
        session = self._addressed(session_id)
        if session.directory not in self._sessions:
            raise NotFoundError("session", session_id, _NOTHING_STORED)
        return session

    def _put(self, payload: bytes, media_type: str) -> str:
        name = layout.blob_name(payload, media_type)
        if name not in self._payloads:
            self._evictable.store({name: payload})
        return layout.reference_to(name)

    def _keep_payloads(self, batch: Batch) -> None:
        """Take the payloads of archived messages out of what may be evicted."""
        for _, reference in batch.references:
            name = layout.blob_behind(reference.reference)
            payload = None if name is None else self._evictable.release(name)
            if name is not None and payload is not None:
                self._payloads[name] = payload

    def _payload(self, reference: str) -> bytes:
        return self._payloads[layout.blob_behind(reference) or reference]

    def _used(self, reference: str) -> bytes:
        name = layout.blob_behind(reference) or reference.removeprefix(ROOT)
        found = self._content(name)
        if found is None:
            raise NotFoundError("content behind", reference, self._why_absent(name))
        return found

    def _content(self, name: str) -> bytes | None:
        found = self._evictable.use(name)
        if found is None:
            found = self._payloads.get(name)
        if found is None:
            directory, _, file = name.rpartition("/")
            session = self._sessions.get(directory)
            found = None if session is None else session.text(file)
        return found

    def _why_absent(self, name: str) -> str:
        if not self._evictable.is_evicted(name):
            return _NOTHING_STORED
        return (
            f"it was evicted, since nobody used it for more than {self._evict_after_turns} turns; run the tool again, "
            "or give MemoryWorkspace a higher evict_after_turns (None keeps everything)"
        )


if TYPE_CHECKING:
    from buoyline.offloader.protocol import (
        ContextArchive,
        ReadBacks,
        Redactor,
        ResultStore,
        ResultStreams,
        SummaryLog,
        SupportsAbilities,
        TranscriptReader,
        TurnCounter,
        WindowLog,
    )

    _offloader: type[Offloader] = MemoryWorkspace
    _archive: type[ContextArchive] = MemoryWorkspace
    _results: type[ResultStore] = MemoryWorkspace
    _streams: type[ResultStreams] = MemoryWorkspace
    _summaries: type[SummaryLog] = MemoryWorkspace
    _windows: type[WindowLog] = MemoryWorkspace
    _redactor: type[Redactor] = MemoryWorkspace
    _transcript: type[TranscriptReader] = MemoryWorkspace
    _turns: type[TurnCounter] = MemoryWorkspace
    _read_backs: type[ReadBacks] = MemoryWorkspace
    _abilities: type[SupportsAbilities] = MemoryWorkspace
