"""`TreeWorkspace`: the common code of the workspaces on a disk and in memory, and their asynchronous methods."""

import os
import threading
import uuid
import weakref
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, ClassVar, Generic, Self, TypeVar

from buoyline.errors import BuoylineError, ConfigError, NotFoundError
from buoyline.messages import Message, ToolResult
from buoyline.offloader.protocol import (
    Abilities,
    ArchivedBatch,
    ModelCall,
    ResultWriter,
    StoredResult,
    ToolOutput,
    WindowState,
)
from buoyline.previews.source import Source
from buoyline.workspace import layout
from buoyline.workspace.archive import Archive
from buoyline.workspace.batches import located
from buoyline.workspace.blobs import Blobs, with_data_tags
from buoyline.workspace.logs import NewMessages, Summaries, Window
from buoyline.workspace.redaction import Redaction
from buoyline.workspace.references import LEAST_CHUNK_BYTES, holds, may_name_a_file, reference_in
from buoyline.workspace.results import Results, store_payload
from buoyline.workspace.root_files import check_format, check_workspace, create_workspace
from buoyline.workspace.session import Session, SessionNames
from buoyline.workspace.stored_session import StoredSession, sessions_in
from buoyline.workspace.streams import (
    BufferSink,
    FileSink,
    ResultSink,
    StreamWriter,
    chunks_of,
    closed,
    file_source,
    is_of_tool,
    reason_of,
)
from buoyline.workspace.tree import Tree

R = TypeVar("R")
T = TypeVar("T")
AnyTree = TypeVar("AnyTree", bound=Tree)


class TreeWorkspace(ABC, Generic[AnyTree]):
    """A workspace over a `Tree`. A subclass decides in which thread calls run."""

    _hint: ClassVar[str] = ""
    """What to do about a session that is not there."""

    def __init__(self, tree: AnyTree, *, redaction: Redaction, lock_timeout_s: float) -> None:
        """Keep everything in *tree*; nothing is created before something is written."""
        self._tree = tree
        self._lock_timeout_s = lock_timeout_s
        self._blobs = Blobs(tree, lock_timeout_s=lock_timeout_s)
        self._redaction = redaction
        self._sessions: dict[str, Session] = {}
        self._taken = SessionNames()
        self._guard = threading.Lock()
        self._is_open = False
        _alive.add(self)

    @abstractmethod
    def _run_in_session(self, session_id: str, work: Callable[[], T]) -> Awaitable[T]:
        """Run *work* after all that was given for the session before, and wait for its end, even if cancelled."""

    @abstractmethod
    def _run(self, key: str, work: Callable[[], T]) -> Awaitable[T]:
        """Run *work*, which concerns no session, after all that was given for *key* before."""

    @abstractmethod
    async def close(self) -> None:
        """Wait for the calls under way. The workspace may be used again afterwards."""

    async def initialize(self) -> None:
        """Create the workspace and its fixed parts. Optional: the first write does the same.

        Raises:
            FormatVersionError: A newer buoyline wrote it; nothing was touched.
            StorageError: The file system refused.
        """
        await self._run_in_session("", self._open)

    async def __aenter__(self) -> Self:
        """Initialize the workspace and return it."""
        await self.initialize()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the workspace."""
        await self.close()

    def renew_after_fork(self) -> None:
        """Forget in a forked child what a thread of the parent may have held or been changing."""
        self._guard, self._sessions, self._taken = threading.Lock(), {}, SessionNames()

    def abilities(self) -> Abilities:
        """Return what a workspace can do beyond the two methods of an offloader."""
        return Abilities(
            results=self,
            streams=self,
            archive=self,
            summaries=self,
            windows=self,
            redactor=self if self._redaction.is_active else None,
            rereads=self,
            transcript=self,
        )

    async def offload_context(self, session_id: str, msgs: Sequence[Any], **_: Any) -> str:
        """Archive messages.

        Args:
            session_id: The session; created if it is new.
            msgs: Native messages of any known dialect, in order. None of them is changed.
            **_: Accepted for the contract, and ignored.

        Returns:
            The path of ``context.jsonl``, which holds them from now on: absolute, or ``memory:///…``.

        Raises:
            InvalidNameError: *session_id* cannot be an id.
            MessageError: One of *msgs* is not a message; nothing was written.
            RedactionError: A redaction hook failed; nothing was stored.
            StorageError: The file system refused; nothing was changed.
        """
        await self.archive(session_id, msgs)
        return self._session(session_id).reference(layout.CONTEXT_FILE)

    async def offload_tool_result(self, session_id: str, tool_result: Any, **_: Any) -> str:
        """Store one whole tool result.

        Args:
            session_id: The session; created if it is new.
            tool_result: A tool message, a tool result block, or a `ToolResult`.
            **_: Accepted for the contract, and ignored.

        Returns:
            The path of the ``tool_result-<id>.txt`` that holds its text: absolute, or ``memory:///…``; see also
            `with_data_tags`.

        Raises:
            InvalidNameError: *session_id* cannot be an id.
            MessageError: *tool_result* is no tool result; nothing was written.
            RedactionError: A redaction hook failed; nothing was stored.
            StorageError: The file system refused; nothing was changed.
        """
        return (await self._store(session_id, tool_result, native=tool_result)).reference

    async def offload_data_block(self, block: Any) -> Any:
        """Store the payload of one content block under ``data/``.

        Args:
            block: One with a base64 payload, e.g. AgentScope's `DataBlock`, or OpenAI's ``image_url``.

        Returns:
            A copy of *block*, of its class, with ``workspace:///data/<sha256>.<ext>`` in the payload's place;
            *block* itself if it has none.

        Raises:
            MessageError: The payload of a `DataBlock` is not base64; nothing was written.
            RedactionError: A redaction hook failed; nothing was stored.
            StorageError: The file system refused; nothing was changed.
        """
        return await self._run_in_session(
            "", partial(store_payload, block, self._blobs, redaction=self._redaction, begin=self._open)
        )

    async def store_result(self, session_id: str, result: ToolResult) -> StoredResult:
        """Store *result*; see `offload_tool_result`."""
        return await self._store(session_id, result)

    def _store(self, session_id: str, result: Any, *, native: object = None) -> Awaitable[StoredResult]:
        def redacted() -> ToolResult:
            found = self._redaction.result(result)
            return found if native is None else with_data_tags(found, native)

        return self._write(session_id, redacted, lambda s, given: self._results(s).store(given))

    async def load_result(self, session_id: str, stored: StoredResult) -> ToolResult:
        """Return the result behind *stored*; see `Results.load`."""
        return await self._run_in_session(
            session_id, self._in_session(session_id, lambda s: self._results(s).load(stored.name))
        )

    def result_writer(self, session_id: str, call_id: str, *, keep_partial: bool = False) -> ResultWriter:
        """Begin a streamed tool result; docs/results.md.

        Raises:
            ConfigError: *keep_partial* is set and a hook redacts.
            InvalidNameError: One of the ids is invalid.
        """
        session = self._session(session_id)
        results = self._results(session)
        layout.require_id(call_id)
        sink: ResultSink = FileSink(self._tree, self._open, partial(results.publish, call_id))
        if self._redaction.is_active:
            if keep_partial:
                reason = (
                    "a tool's output until it was stopped may end within a secret, which no redaction hook would know"
                )
                raise ConfigError("keep_partial", f"{reason}; leave it out")

            def keep(result: ToolResult) -> StoredResult:
                redacted = self._redaction.result(result)
                self._open()
                return results.store(redacted)

            sink = BufferSink(call_id, keep)
        return StreamWriter(
            call_id,
            sink,
            run=partial(self._run, uuid.uuid4().hex),
            run_in_order=partial(self._run_in_session, session_id),
        )

    async def store_stream(
        self,
        session_id: str,
        call_id: str,
        output: ToolOutput,
        *,
        max_bytes: int | None = None,
        keep_partial: bool = False,
    ) -> StoredResult:
        """Store a tool's output as it arrives, with a few megabytes of memory; docs/results.md.

        Args:
            session_id: The session; created when the output is complete.
            call_id: The id of the call.
            output: An iterator of str or bytes, asynchronous or not; a file, pipe or stream; or a path.
            max_bytes: Most bytes to accept.
            keep_partial: Store the part before an error or a cancellation, marked as partial. Not allowed if a hook
                redacts.

        Raises:
            ToolOutputError: It has more than *max_bytes*, is too large for a redaction hook, or cannot be read.
            ConfigError: *max_bytes* is no limit, or *keep_partial* is set and a hook redacts.
            BuoylineError: As for `offload_tool_result`; nothing is kept.
            Exception: Whatever *output* raises.
        """
        chunks = chunks_of(call_id, output, max_bytes)
        async with self.result_writer(session_id, call_id, keep_partial=keep_partial) as writer:
            try:
                async for chunk in chunks:
                    await writer.write(chunk)
            except BaseException as error:
                if keep_partial and is_of_tool(error):
                    stored = await writer.store(partial=reason_of(error))
                    error.add_note(f"What came before it is kept in {stored.reference}")
                raise
            finally:
                await closed(chunks)
            return await writer.store()

    def result_source(self, session_id: str, stored: StoredResult) -> Source:
        """Return the text with the line numbers of *stored*: the view if there is one. Reading it blocks the thread.

        Raises:
            NotFoundError: The file is missing.
        """
        name = layout.view_name(stored.name) if stored.view else stored.name
        return file_source(self._tree, self._session(session_id).name(name))

    async def load_stubs(self, session_id: str, texts: Sequence[str]) -> dict[str, StoredResult]:
        """Return those of *texts* that are recorded stubs; see `Results.behind_all`."""

        def load() -> dict[str, StoredResult]:
            stored = self._redaction.texts(texts)
            found = self._in_session(session_id, lambda s: self._results(s).behind_all(stored))()
            return {text: found[redacted] for text, redacted in zip(texts, stored, strict=True) if redacted in found}

        return await self._run_in_session(session_id, load)

    async def record_stub(self, session_id: str, stub: str, stored: StoredResult) -> None:
        """Record that the text *stub* replaces *stored*."""
        await self._write(
            session_id,
            partial(self._redaction.text, stub),
            lambda s, redacted: self._results(s).record_stub(redacted, stored.name),
        )

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
        """Archive *messages* as one batch; see `Archive.add`.

        Returns:
            Their place. Of no messages: the place of the next one.
        """

        def redacted() -> tuple[Sequence[Any], str]:
            return self._redaction.messages(messages, dialect), self._redaction.identifier(batch_id)

        def add(session: Session, given: tuple[Sequence[Any], str]) -> ArchivedBatch:
            batches = self._archive(session).add(given[0], batch_id=given[1], dialect=dialect, first=first, times=times)
            if not batches:
                return located(session.reference, session.index().messages if session.exists() else 0, ())
            return located(session.reference, batches[0].first, batches[0].line_ranges())

        return await self._write(session_id, redacted, add)

    async def load_messages(self, session_id: str, first: int, end: int) -> list[tuple[str, dict[str, Any]]]:
        """Return dialect and JSON of archived messages, with their payloads; see `StoredSession.messages`."""

        def load(session: Session) -> list[tuple[str, dict[str, Any]]]:
            return [(m.dialect, session.with_payloads(m)) for m in session.messages(first, end)]

        return await self._run_in_session(session_id, self._in_session(session_id, load))

    async def locate(self, session_id: str, first: int, end: int) -> ArchivedBatch:
        """Return the place of archived messages; see `StoredSession.line_ranges`."""
        return await self._run_in_session(
            session_id,
            self._in_session(session_id, lambda s: located(s.reference, first, s.line_ranges(first, end))),
        )

    async def transcript_lines(self, session_id: str, first: int, end: int) -> list[list[str]]:
        """Return the transcript's lines of archived messages; see `StoredSession.transcript_lines`."""
        read = self._in_session(session_id, lambda s: s.transcript_lines(first, end))
        return await self._run_in_session(session_id, read)

    async def missing(self, session_id: str, strings: Sequence[str]) -> list[str]:
        """Return those of *strings* that the session's files do not hold; see `Archive.missing`."""

        def find() -> list[str]:
            stored = self._redaction.texts(strings)
            absent = set(self._in_session(session_id, lambda s: self._archive(s).missing(stored))())
            return [text for text, redacted in zip(strings, stored, strict=True) if redacted in absent]

        return await self._run_in_session(session_id, find)

    async def redacted(self, views: Sequence[Message]) -> list[Message]:
        """Return the views of messages after redaction; nothing is stored.

        Raises:
            RedactionError: The redaction hook failed.
        """
        return await self._run_in_session("", lambda: [self._redaction.view(view) for view in views])

    async def append_summary(self, session_id: str, summary: Mapping[str, Any]) -> int:
        """Append a line to ``summaries.jsonl``, and keep the facts beside it; see `Summaries.add`."""
        return await self._write(
            session_id,
            lambda: self._redaction.value(summary),
            lambda s, redacted: Summaries(s).add(redacted),
        )

    async def load_summaries(self, session_id: str) -> list[dict[str, Any]]:
        """Return all summaries of the session in order; see `StoredSession.summaries_with_facts`."""
        read = self._in_session(session_id, lambda s: s.summaries_with_facts())
        return await self._run_in_session(session_id, read)

    async def start_window(self, session_id: str, settings: Mapping[str, Any], *, writer: str = "") -> None:
        """Begin the session's window; see `Window.start`."""
        await self._write(
            session_id,
            lambda: (self._redaction.value(settings), self._redaction.identifier(writer)),
            lambda s, given: Window(s).start(*given),
        )

    async def claim_window(self, session_id: str, *, writer: str) -> None:
        """Take the session's window over; see `Window.claim`."""
        await self._write(
            session_id, lambda: self._redaction.identifier(writer), lambda s, given: Window(s).claim(given)
        )

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
        """Append to the session's window; see `Window.extend`."""
        new = NewMessages(messages, times, dialects, _files_of(stubs), calls, writer)
        await self._write(
            session_id,
            lambda: self._redacted(new),
            lambda s, new: Window(s, self._blobs).extend(new, pins),
        )

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
        """Replace the session's window; see `Window.replace`."""
        new = NewMessages(messages, times, dialects, _files_of(stubs), calls, writer)
        await self._write(
            session_id,
            lambda: (self._redacted(new), self._redaction.texts(head)),
            lambda s, given: Window(s, self._blobs).replace(*given, first, pins),
        )

    async def load_window(self, session_id: str) -> WindowState:
        """Return the session's window; see `StoredSession.window`."""
        return await self._run_in_session(session_id, self._in_session(session_id, lambda s: s.window()))

    def reference_in(self, session_id: str, arguments: str) -> str:
        """Return the first file of the workspace that the *arguments* of a call name; see `references.reference_in`."""
        if not may_name_a_file(arguments):
            return ""
        return reference_in(arguments, self.roots, self._session(session_id).directory)

    async def holds(self, reference: str, text: str) -> bool:
        """Return whether the file behind *reference* holds *text*, byte for byte; False if there is no such file."""
        above, _, below = reference.partition(f"{self.roots[0]}/")
        name = layout.blob_behind(reference) or ("" if above or ".." in below.split("/") else below)

        def run() -> bool:
            if not name or self._tree.size(name) is None:
                return False
            return holds(self._tree.chunks(name, max(LEAST_CHUNK_BYTES, len(text))), text)

        return await self._run_in_session("", run)

    def session_ids(self, newest: int | None = None) -> list[str]:
        """Return the ids of all sessions, in the order of their directories; none if there is no workspace.

        Other directories are skipped. Blocking; meant for command lines and tests.

        Args:
            newest: Return at most so many, the last active ones first.
        """
        return [session.session_id for session in self.sessions(newest)]

    def sessions(
        self, newest: int | None = None, *, refused: dict[str, BuoylineError] | None = None
    ) -> Iterator[StoredSession]:
        """Yield the sessions for reading, in the order of `session_ids`; each is valid until the next.

        *refused* gets, by directory, why it is not known whose session it holds.
        """
        found = sessions_in(self._tree, newest_first=newest is not None, refused=refused)
        with closing(found):
            yield from islice(found, newest)

    def session(self, session_id: str) -> Session:
        """Return the session for reading its files. Blocking; meant for command lines and tests.

        Raises:
            NotFoundError: There is no such session.
        """
        session = self._session(session_id)
        if not session.exists():
            raise NotFoundError("session", session_id, self._hint)
        return session

    def check(self) -> None:
        """Check that there is a workspace that this buoyline can read. Creates nothing.

        Raises:
            NotFoundError: There is no workspace.
            FormatVersionError: A newer buoyline wrote it.
            CorruptError: ``workspace.json`` is not what was written.
        """
        check_workspace(self._tree)

    @property
    def files(self) -> AnyTree:
        """The files of the workspace, for reading; links are never followed."""
        return self._tree

    @property
    def tree(self) -> AnyTree:
        """The files of the workspace, for reading; links are never followed."""
        return self._tree

    @property
    def blobs(self) -> Blobs:
        """The payloads under ``data/``."""
        return self._blobs

    @property
    @abstractmethod
    def roots(self) -> tuple[str, ...]:
        """What absolute references begin with, without a ``/`` at the end; the first is given out."""

    def _results(self, session: Session) -> Results:
        return Results(session, self._blobs)

    def _archive(self, session: Session) -> Archive:
        return Archive(session, self._blobs)

    def _session(self, session_id: str) -> Session:
        with self._guard:
            if session_id not in self._sessions:
                made = Session(self._tree, session_id, lock_timeout_s=self._lock_timeout_s, taken=self._taken)
                self._sessions[session_id] = made
            return self._sessions[session_id]

    def _in_session(self, session_id: str, work: Callable[[Session], T]) -> Callable[[], T]:
        session = self._session(session_id)

        def run() -> T:
            self._check_format()
            return work(session)

        return run

    def _write(self, session_id: str, redacted: Callable[[], R], work: Callable[[Session, R], T]) -> Awaitable[T]:
        """Call *redacted*, create the workspace if necessary, and pass the redacted value to *work*."""
        session = self._sessions.get(session_id) or self._session(session_id)

        def run() -> T:
            given = redacted()
            if not self._is_open:
                self._open()
            return work(session, given)

        return self._run_in_session(session_id, run)

    def _redacted(self, new: NewMessages) -> NewMessages:
        return new._replace(
            stubs=[(self._redaction.text(stub), file) for stub, file in new.stubs],
            messages=self._redaction.messages(new.messages, None),
            calls=[replace(call, model=self._redaction.identifier(call.model)) for call in new.calls],
            writer=self._redaction.identifier(new.writer),
        )

    def _open(self) -> None:
        if self._is_open:
            return
        create_workspace(self._tree)
        self._is_open = True

    def _check_format(self) -> None:
        """Refuse a newer format. Creates nothing, since a call that only reads must not."""
        if not self._is_open and self._tree.exists(layout.WORKSPACE_FILE):
            check_format(self._tree)


def _files_of(stubs: Sequence[tuple[str, StoredResult]]) -> list[tuple[str, str]]:
    """Return each text with the name of its result's file."""
    return [(text, stored.name) for text, stored in stubs]


# After a fork: the threads of the parent do not exist in the child, and locks that they held never open.
#
# Source: the notes on ``fork`` in Python's ``os`` and ``threading``; agents' servers (gunicorn, multiprocessing)
# fork.

_alive: "weakref.WeakSet[TreeWorkspace[Any]]" = weakref.WeakSet()


def _renew_all() -> None:
    for workspace in list(_alive):
        workspace.renew_after_fork()


os.register_at_fork(after_in_child=_renew_all)
