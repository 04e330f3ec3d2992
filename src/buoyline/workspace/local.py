"""`LocalWorkspace`: a directory that holds what left the context. The asynchronous border of the workspace."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

from buoyline.errors import ConfigError, NotFoundError
from buoyline.workspace import layout
from buoyline.workspace.local_tree import LocalTree
from buoyline.workspace.pool import WorkerPool, outcome
from buoyline.workspace.quotas import Quotas
from buoyline.workspace.redaction import Redaction, RedactPayload, RedactText
from buoyline.workspace.root_files import check_format
from buoyline.workspace.tree_workspace import TreeWorkspace

T = TypeVar("T")

_DURABILITY = ("fsync", "batch", "off")
_NO_QUOTAS = Quotas()


class LocalWorkspace(TreeWorkspace[LocalTree]):
    """A directory of plain files that takes what is too heavy for a context, and loses none of it.

    It is an `Offloader`, with the methods that AgentScope's ``Agent(offloader=...)`` calls, and it has all the
    abilities that `ContextWindow` knows how to use. Several workspaces, threads and processes, forked ones too,
    may share one directory. Each call is one hop to a thread of a small pool of its own; calls for one session
    run in the order in which they were made. A cancelled call returns when its thread has ended, so that what
    it did is known: a repetition finds it done.

    Source: docs/format.md for every file; AgentScope's ``LocalWorkspace`` for the name, the three ``offload_*``
    methods and the layout they share.
    """

    def __init__(
        self,
        workdir: str | Path,
        *,
        durability: str = "fsync",
        lock_timeout_s: float = 30.0,
        quotas: Quotas = _NO_QUOTAS,
        redact: RedactText | None = None,
        redact_payload: RedactPayload | None = None,
    ) -> None:
        """Address *workdir*; it is created when something is first written, or by `initialize`.

        Args:
            workdir: The directory. What else lies in it is left alone.
            durability: ``"fsync"``: what is acknowledged survives a power cut. ``"batch"``: likewise, but calls for
                one session that are made while another one syncs share the next sync, which is worth it where
                many tasks write at once; if it fails, it fails for all of them. ``"off"``: what is acknowledged
                survives the end of the process; after a power cut the newest may be missing.
            lock_timeout_s: How long a writer waits for another one in the same session.
            quotas: How much may be stored. What would exceed them is a `QuotaExceededError`, before anything is
                decoded or written.
            redact: Gets every string that is about to be stored and returns what may be: texts, keys, ids of calls,
                arguments, settings, summaries; a text with JSON's escapes also as they decode. It runs before
                anything is hashed or written. Must give the same for the same text, and leave its own answers
                alone, since a retry and a stub are known by them. Not passed: session ids, which name directories,
                and numbers. Where it raises, or returns no text, or makes two keys of an object one, the call is a
                `RedactionError` and nothing is stored.
            redact_payload: The same for decoded payloads, with their media type. Where it is None, payloads of a text
                type go through *redact*, and others (a picture, a PDF) are stored as they are.

        Raises:
            ConfigError: *durability* is not one of the three, *quotas* is no `Quotas`, or a hook cannot be called.
            UnsupportedPlatformError: Neither Linux nor macOS.
        """
        if durability not in _DURABILITY:
            raise ConfigError("durability", f"{durability!r} is not one of {', '.join(_DURABILITY)}")
        self.workdir = Path(workdir).absolute()
        super().__init__(
            LocalTree(self.workdir, durable=durability != "off"),
            quotas=quotas,
            redaction=Redaction(redact, redact_payload),
            lock_timeout_s=lock_timeout_s,
        )
        self._shares_sync = durability == "batch"
        self._pool = WorkerPool()

    _hint: ClassVar[str] = "`buoyline sessions` lists those there are"

    def __repr__(self) -> str:
        """Return the directory."""
        return f"LocalWorkspace({str(self.workdir)!r})"

    async def close(self) -> None:
        """Wait for the calls under way and end the threads. The workspace may be used again afterwards."""
        await asyncio.to_thread(self._pool.close)

    def renew_after_fork(self) -> None:
        """Start with new threads in a forked child, and forget what a thread of the parent may have held."""
        super().renew_after_fork()
        self._pool = WorkerPool()

    def watch(self, session_id: str | None = None, *, last: int | None = 0) -> "AsyncGenerator[WorkspaceEvent]":
        """Tell what happens in the workspace, whoever writes: each thing once, in the order of each session.

        It only reads, and waits for what is not there yet. It begins with the first step of the iteration and goes
        on until it is closed or cancelled. Source: docs/watching.md.

        Args:
            session_id: Watch this session alone.
            last: How many of the newest events of each session that is there already come first; None: all.

        Raises:
            ConfigError: *last* is negative.
            InvalidNameError: *session_id* cannot be an id.
        """
        from buoyline.watching.watch import Watch, watched  # noqa: PLC0415 - watchfiles takes 35 ms

        return watched(Watch(self._tree, self.check, session_id, last=last))

    def check(self) -> None:
        """Make sure that there is a workspace that this buoyline can read; nothing is created.

        Raises:
            NotFoundError: Nobody has written to the directory.
            FormatVersionError: A newer buoyline has.
            CorruptError: ``workspace.json`` is not what was written.
        """
        if self._tree.size(layout.WORKSPACE_FILE) is None:
            hint = "name its directory with --workdir or BUOYLINE_WORKDIR"
            if self._tree.is_directory(layout.SESSIONS):
                hint = f"{layout.WORKSPACE_FILE} is gone: `buoyline repair` puts one there"
            raise NotFoundError("workspace", str(self.workdir), hint)
        check_format(self._tree)

    def directory_of(self, session_id: str) -> Path:
        """Return where the files of a session are, or, where there is no such session, would be now. Blocking.

        Raises:
            InvalidNameError: *session_id* cannot be an id.
        """
        return self.workdir / self._session(session_id).directory

    async def _run_in_session(self, session_id: str, work: Callable[[], T]) -> T:
        """Run *work* in the session's lane and wait for its end, even when cancelled."""
        if self._shares_sync and session_id:
            future = self._pool.submit_to_group(session_id, self._session(session_id), work)
        else:
            future = self._pool.submit(session_id, work)
        return await outcome(future)

    async def _run(self, key: str, work: Callable[[], T]) -> T:
        """Run *work*, which concerns no session, in the lane of *key*."""
        return await outcome(self._pool.submit(key, work))

    def _roots(self) -> tuple[str, ...]:
        return str(self.workdir), os.path.realpath(self.workdir)


if TYPE_CHECKING:
    from buoyline.workspace.events import WorkspaceEvent
