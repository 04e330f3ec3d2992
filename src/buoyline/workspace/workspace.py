"""`LocalWorkspace` and `MemoryWorkspace`: the workspace as agents and programs use it.

The core is synchronous. An asynchronous method does its work in a worker thread, and waits for it even if it is
cancelled, so a repeated call never meets its own first attempt.
"""

import itertools
import os
import posixpath
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from buoyline.errors import BuoylineError, ConfigError, CorruptError, MessageError, NotFoundError
from buoyline.messages import Message
from buoyline.messages.jsonl import now, time_of
from buoyline.messages.payloads import take_out, without_payload
from buoyline.messages.registry import detect, is_detected, read_result, stored_view
from buoyline.offloader.transcript import render
from buoyline.workspace import layout
from buoyline.workspace.disk import OWN_MODE, Disk
from buoyline.workspace.documents import check_workspace, ensure_workspace
from buoyline.workspace.log import body_of
from buoyline.workspace.memory import MemoryDisk
from buoyline.workspace.redaction import Redaction, RedactText
from buoyline.workspace.results import put_blob, with_data_tags
from buoyline.workspace.session import Session, session_id_in
from buoyline.workspace.state import NewLine
from buoyline.workspace.streams import in_thread

T = TypeVar("T")

_MAX_HANDLES = 256


class Workspace:
    """What a workspace on disk and one in memory have in common.

    Attributes:
        disk: Its files; links are never followed.
        redaction: The hook through which everything passes that is stored.
    """

    _hint: ClassVar[str] = ""
    """What to do about a session that is not there."""

    def __init__(self, disk: Disk, *, lock_timeout_s: float, redact: RedactText | None, shown_as: str) -> None:
        """Keep everything in *disk*; nothing is created before something is written."""
        self.disk = disk
        self.redaction = Redaction(redact)
        self._shown_as = shown_as
        self._lock_timeout_s = lock_timeout_s
        self._guard = threading.Lock()
        self._handles: dict[str, tuple[Session, threading.Lock]] = {}

    async def initialize(self) -> None:
        """Create the workspace. Optional: the first write does the same.

        Raises:
            FormatVersionError: Another version of buoyline wrote it; nothing was touched.
            StorageError: The file system refused.
        """
        await in_thread(lambda: ensure_workspace(self.disk))

    async def close(self) -> None:
        """Do nothing: no file stays open between calls. The workspace may be used again."""

    async def __aenter__(self) -> Self:
        """Initialize the workspace and return it."""
        await self.initialize()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the workspace."""
        await self.close()

    # What AgentScope's agents call.

    async def offload_context(self, session_id: str, msgs: Sequence[Any], **_: Any) -> str:
        """Store messages that have left a context, all of them or none.

        If each message has an ``id`` and they are those of the last call, they are in the session already.

        Args:
            session_id: The session; created if it is new.
            msgs: Native messages of any known dialect, in order. None of them is changed.
            **_: Accepted for the contract, and ignored.

        Returns:
            The path of ``context.jsonl``, which holds them from now on.

        Raises:
            ConfigError: A window writes to the session.
            InvalidNameError: *session_id* cannot be an id.
            MessageError: One of *msgs* is not a message; nothing was written.
            RedactionError: The redaction hook failed; nothing was stored.
            StorageError: The file system refused; nothing was changed.
        """

        def offload(session: Session) -> str:
            if lines := _lines(session, msgs):
                views, times = [view for _, view in lines], [line.time for line, _ in lines]
                session.append_archived(
                    [line for line, _ in lines], lambda first: render(views, first, times, lambda _: None)
                )
            return session.path_of(layout.CONTEXT)

        return await self.in_session(session_id, offload)

    async def offload_tool_result(self, session_id: str, tool_result: Any, **_: Any) -> str:
        """Store one whole tool result.

        Args:
            session_id: The session; created if it is new.
            tool_result: A tool message, a tool result block, or a `ToolResult`.
            **_: Accepted for the contract, and ignored.

        Returns:
            The path of the ``tool_result-<id>.txt`` that holds its text; see also `with_data_tags`.

        Raises:
            InvalidNameError: *session_id* cannot be an id.
            MessageError: *tool_result* is no tool result; nothing was written.
            RedactionError: The redaction hook failed; nothing was stored.
            StorageError: The file system refused; nothing was changed.
        """

        def offload(session: Session) -> str:
            result = with_data_tags(self.redaction.result(read_result(tool_result)), tool_result)
            stored = session.results.store(result)
            parts = [{**asdict(part), "reference": ""} for part in stored.parts]
            session.note_result(
                {
                    "key": result.call_id,
                    "tool": result.name,
                    "files": [list(file) for file in stored.files],
                    "lines": stored.lines,
                    "parts": [{key: value for key, value in part.items() if value} for part in parts],
                }
            )
            return stored.reference

        return await self.in_session(session_id, offload)

    async def offload_data_block(self, block: Any) -> Any:
        """Store the payload of one content block under ``data/``.

        Args:
            block: One with a base64 payload, e.g. AgentScope's `DataBlock`, or OpenAI's ``image_url``.

        Returns:
            A copy of *block*, of its class, with ``workspace:///data/<sha256>.<ext>`` in the payload's place;
            *block* itself if it has none.

        Raises:
            MessageError: The payload of a `DataBlock` is not base64; nothing was written.
            RedactionError: The redaction hook failed; nothing was stored.
            StorageError: The file system refused; nothing was changed.
        """

        def offload() -> Any:
            ensure_workspace(self.disk)
            return without_payload(block, self._put)

        return await in_thread(offload)

    # For windows, and for those who read.

    def session(self, session_id: str) -> Session:
        """Return a new handle of a session, which need not exist.

        Raises:
            InvalidNameError: *session_id* cannot be an id.
        """
        return Session(
            self.disk,
            session_id,
            lock_timeout_s=self._lock_timeout_s,
            shown_as=self._shown_as,
            redaction=self.redaction,
        )

    def stored(self, session_id: str) -> Session:
        """Return a session that exists, loaded for reading; see `Session.load`. Blocking.

        Raises:
            NotFoundError: There is no such session.
            CorruptError: Its logs cannot be read.
        """
        session = self.session(session_id)
        if not session.load().exists:
            raise NotFoundError("session", session_id, self._hint)
        return session

    def sessions(
        self, newest: int | None = None, *, refused: dict[str, BuoylineError] | None = None
    ) -> Iterator[Session]:
        """Yield the sessions, loaded for reading, by name, or those that were written to last first. Blocking.

        Args:
            newest: At most so many, the newest first.
            refused: Gets, by directory, why a session cannot be read; by default it is left out.
        """
        names = self.disk.entries(layout.SESSIONS)
        if newest is not None:
            names.sort(key=self._written_ns, reverse=True)
        for name in itertools.islice(names, newest):
            directory = f"{layout.SESSIONS}/{name}"
            try:
                session_id = session_id_in(self.disk, directory) or name
                if layout.session_directory(session_id) != directory:
                    raise CorruptError(self.disk.path(directory), f"is the directory of session {session_id!r}")
                session = self.stored(session_id)
            except BuoylineError as error:
                if refused is not None:
                    refused[directory] = error
            else:
                yield session

    def check(self) -> None:
        """Check that there is a workspace that this buoyline can read. Creates nothing.

        Raises:
            NotFoundError: There is no workspace.
            FormatVersionError: Another version of buoyline wrote it.
            CorruptError: ``workspace.json`` is damaged.
        """
        check_workspace(self.disk)

    def path_of(self, name: str) -> str:
        """Return the path of *name*, which is relative to the workdir, as the agent sees it."""
        return f"{self._shown_as}/{name}" if name else self._shown_as

    @property
    def roots(self) -> tuple[str, ...]:
        """What absolute references begin with, without a ``/`` at the end; the first is given out."""
        return self._shown_as, str(self.disk.root), os.path.realpath(self.disk.root)

    def _written_ns(self, name: str) -> int:
        found = [self.disk.status(f"{layout.SESSIONS}/{name}/{file}") for file in (layout.CONTEXT, layout.STATE)]
        return max((status.mtime_ns for status in found if status), default=0)

    def _put(self, payload: bytes, media_type: str) -> str:
        return put_blob(self.disk, self.redaction.payload(payload, media_type), media_type)

    async def in_session(self, session_id: str, work: Callable[[Session], T]) -> T:
        """Run *work* with a handle of the session that no other thread uses."""
        with self._guard:
            if session_id not in self._handles:
                if len(self._handles) >= _MAX_HANDLES:
                    del self._handles[next(iter(self._handles))]
                self._handles[session_id] = self.session(session_id), threading.Lock()
            session, lock = self._handles[session_id]

        def run() -> T:
            with lock:
                return work(session)

        return await in_thread(run)


def _lines(session: Session, natives: Sequence[Any]) -> list[tuple[NewLine, Message]]:
    """Return messages that are to be archived, with their payloads stored, and how they read."""
    checked: list[tuple[str, Any]] = []
    for position, native in enumerate(natives):
        try:
            dialect = detect(native)
            value = dialect.to_json(native)
            dialect.view(value)
            body_of(value)
        except MessageError as error:
            raise error.at(position) from error
        checked.append((dialect.name, value))
    return [_line(session, name, value) for name, value in checked]


def _line(session: Session, dialect: str, value: Any) -> tuple[NewLine, Message]:
    value, refs = take_out(value, session.put)
    value = session.redaction.value(value)
    spelled = "" if is_detected(value, dialect) else dialect
    return NewLine(value, time_of(value) or now(), spelled, refs=refs), stored_view(value, spelled)


class LocalWorkspace(Workspace):
    """A directory of plain files for everything that is too large for a context.

    It is an `Offloader` with the methods that AgentScope's ``Agent(offloader=...)`` calls. Several workspaces, threads
    and processes may share one directory.

    Source: docs/format.md for every file; AgentScope's ``LocalWorkspace`` for the name, the three ``offload_*``
    methods and the layout they share.
    """

    _hint: ClassVar[str] = "`buoyline sessions` lists those there are"

    def __init__(
        self,
        workdir: str | os.PathLike[str],
        *,
        durability: str = "sync",
        lock_timeout_s: float = 30.0,
        redact: RedactText | None = None,
        shown_as: str | None = None,
        mode: int | None = None,
    ) -> None:
        """Use *workdir*, which the first write or `initialize` creates.

        Args:
            workdir: The directory; a ``~`` in front is the home directory. Other files in it are not touched.
            durability: With ``"sync"``, acknowledged writes survive a power cut. With ``"off"``, they survive the end
                of the process; a power cut may lose the newest.
            lock_timeout_s: How long a writer waits for another one in the same session.
            redact: Gets every text before it is hashed or written, and returns the text to store. Equal texts must get
                equal answers. Ids, keys, numbers and payloads that are no text do not pass it. If it raises or returns
                no text, the call raises `RedactionError` and nothing is stored.
            shown_as: The path under which the agent sees *workdir*, such as the mount of a container. References and
                stubs show it; errors for the caller name *workdir*.
            mode: Of the directories that are made, such as 0o750; files get it without the execute bits, whatever the
                umask. By default it is that of an existing *workdir*, else 0o700.

        Raises:
            ConfigError: An argument has no valid value.
            UnsupportedPlatformError: Neither Linux nor macOS.
        """
        if durability not in {"sync", "off"}:
            raise ConfigError("durability", f"{durability!r} is neither 'sync' nor 'off'")
        if not lock_timeout_s >= 0:
            raise ConfigError("lock_timeout_s", f"{lock_timeout_s!r} is no number of seconds from 0 on")
        if shown_as is not None and (shown_as == "/" or posixpath.normpath(f"/{shown_as[1:]}") != shown_as):
            raise ConfigError("shown_as", f"{shown_as!r} is no absolute path such as '/workspace'")
        if mode is not None and mode & ~0o077 != OWN_MODE:
            raise ConfigError("mode", f"{mode:#o} is no mode such as 0o750; it begins with 7, for the owner")
        self.workdir = Path(os.path.expanduser(workdir)).absolute()  # noqa: PTH111 - `~x` stays if nobody is called x
        super().__init__(
            Disk(self.workdir, durable=durability == "sync", mode=mode),
            lock_timeout_s=lock_timeout_s,
            redact=redact,
            shown_as=shown_as or str(self.workdir),
        )

    def __repr__(self) -> str:
        """Return the directory."""
        return f"LocalWorkspace({str(self.workdir)!r})"


class MemoryWorkspace(Workspace):
    """A workspace that is gone with its process; its references begin with ``memory://``."""

    def __init__(self, *, redact: RedactText | None = None) -> None:
        """Begin empty. For *redact* see `LocalWorkspace`."""
        super().__init__(MemoryDisk("memory:"), lock_timeout_s=30.0, redact=redact, shown_as="memory://")
