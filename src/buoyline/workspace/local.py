"""`LocalWorkspace`: a workspace in a directory of plain files."""

import asyncio
import os
import posixpath
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

from buoyline.errors import ConfigError
from buoyline.workspace import layout
from buoyline.workspace.local_tree import LocalTree
from buoyline.workspace.pool import WorkerPool, outcome
from buoyline.workspace.redaction import Redaction, RedactPayload, RedactText
from buoyline.workspace.session import Session
from buoyline.workspace.stored_session import StoredSession
from buoyline.workspace.tree_workspace import TreeWorkspace

T = TypeVar("T")

_DURABILITY = ("fsync", "off")


class LocalWorkspace(TreeWorkspace[LocalTree]):
    """A directory of plain files for everything that is too large for a context.

    It is an `Offloader` with the methods that AgentScope's ``Agent(offloader=...)`` calls, and has every ability that
    `ContextWindow` uses. Several workspaces, threads and processes, forked ones too, may share one directory. Each call
    runs in a thread of a small pool; calls for one session run in the order in which they were made. A cancelled call
    returns when its thread has finished; if it is repeated, it finds its work done.

    Source: docs/format.md for every file; AgentScope's ``LocalWorkspace`` for the name, the three ``offload_*``
    methods and the layout they share.
    """

    def __init__(
        self,
        workdir: str | Path,
        *,
        durability: str = "fsync",
        lock_timeout_s: float = 30.0,
        redact: RedactText | None = None,
        redact_payload: RedactPayload | None = None,
        shown_as: str | None = None,
    ) -> None:
        """Use *workdir*, which the first write or `initialize` creates.

        Args:
            workdir: The directory; a ``~`` in front is the home directory. Other files in it are not touched.
            durability: With ``"fsync"``, acknowledged writes survive a power cut. With ``"off"``, they survive the end
                of the process; a power cut may lose the newest.
            lock_timeout_s: How long a writer waits for another one in the same session.
            redact: Gets every string before it is hashed or written, and returns the string to store: texts, keys, call
                ids, arguments, settings, summaries. A text with JSON escapes is passed a second time, decoded. Equal
                texts must get equal answers, and an answer must not be changed again, since retries and stubs are
                recognised by them. Session ids and numbers are not passed. If it raises, returns no text, or gives two
                keys of an object the same name, the call raises `RedactionError` and nothing is stored.
            redact_payload: The same for decoded payloads, with their media type. If it is None, payloads of a text type
                go through *redact*, and all others (an image, a PDF) are stored unchanged.
            shown_as: The path under which the agent sees *workdir*, such as the mount of a container. References, stubs
                and answers of lookups show it, and lookups take it; errors for the caller name *workdir*. Nothing of it
                is in the workspace's records, so another process may give another path.

        Raises:
            ConfigError: *durability* is not one of the two, *lock_timeout_s* is no number from 0 on, a hook cannot be
                called, or *shown_as* is no absolute path.
            UnsupportedPlatformError: Neither Linux nor macOS.
        """
        if durability not in _DURABILITY:
            raise ConfigError("durability", f"{durability!r} is not one of {', '.join(_DURABILITY)}")
        if not _is_time(lock_timeout_s):
            raise ConfigError("lock_timeout_s", f"{lock_timeout_s!r} is no number of seconds from 0 on")
        if shown_as is not None and not _is_absolute(shown_as):
            raise ConfigError("shown_as", f"{shown_as!r} is no absolute path such as '/workspace'")
        self.workdir = Path(os.path.expanduser(workdir)).absolute()  # noqa: PTH111 - `~x` stays if nobody is called x
        super().__init__(
            LocalTree(self.workdir, durable=durability != "off", shown_as=shown_as or ""),
            redaction=Redaction(redact, redact_payload),
            lock_timeout_s=lock_timeout_s,
        )
        self._pool = WorkerPool()

    _hint: ClassVar[str] = "`buoyline sessions` lists those there are"

    def __repr__(self) -> str:
        """Return the directory."""
        return f"LocalWorkspace({str(self.workdir)!r})"

    async def close(self) -> None:
        """Wait for the calls under way, end the threads, and close the files. The workspace may be used again.

        Files of the last sessions stay open until then, so the directory cannot be unmounted before.
        Those of a session that another process removed take their space as long.
        """
        await asyncio.to_thread(self._pool.close)
        self._tree.close()

    @property
    def upkeep(self) -> "Upkeep":
        """The changes that gc and repair make."""
        return Upkeep(self._tree)

    def renew_after_fork(self) -> None:
        """Start with new threads in a forked child, and forget what a thread of the parent may have held."""
        super().renew_after_fork()
        self._pool = WorkerPool()

    def watch(self, session_id: str | None = None, *, last: int | None = 0) -> "AsyncGenerator[WorkspaceEvent]":
        """Yield an event for each change of the workspace by any writer, once, in the order of its session.

        It only reads, and the workspace need not exist yet. It starts with the first step of the iteration and runs
        until it is closed or cancelled. Source: docs/watching.md.

        Args:
            session_id: Watch this session alone.
            last: Begin with so many of the newest events of each existing session; None for all.

        Raises:
            ConfigError: *last* is negative.
            InvalidNameError: *session_id* cannot be an id.
        """
        from buoyline.watching.watch import Watch, watched  # noqa: PLC0415 - watchfiles takes 35 ms

        return watched(Watch(self, session_id, last=last))

    def directory_of(self, session_id: str) -> Path:
        """Return the directory of a session; if the session does not exist, the one that it would get now. Blocking.

        Raises:
            InvalidNameError: *session_id* cannot be an id.
        """
        return self.workdir / self._session(session_id).directory

    def _run_in_session(self, session_id: str, work: Callable[[], T]) -> Awaitable[T]:
        """Run *work* in the session's thread and wait for its end, even if cancelled."""
        # Two sessions may share a lock. In one thread, they do not wait for each other.
        return self._run(layout.lock_name(session_id), work)

    def _run(self, key: str, work: Callable[[], T]) -> Awaitable[T]:
        """Run *work*, which concerns no session, in the thread of *key*."""
        return outcome(self._pool.submit(key, work))

    @property
    def roots(self) -> tuple[str, ...]:
        """What absolute references begin with; the first is given out."""
        return self._tree.shown_as, str(self.workdir), os.path.realpath(self.workdir)


def _is_time(seconds: object) -> bool:
    return isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds >= 0  # false for nan


def _is_absolute(path: object) -> bool:
    return isinstance(path, str) and bool(path.strip("/")) and posixpath.normpath(f"/{path[1:]}") == path


# The changes that gc and repair make to a workspace. They read it through `ReadableWorkspace`.


class Upkeep:
    """The part of a workspace that only gc and repair use.

    A store without locks and renames would have leases in the place of the locks, and a mark on a hidden session.
    """

    def __init__(self, tree: LocalTree) -> None:
        """Change files in *tree*."""
        self._tree = tree

    @contextmanager
    def blobs_locked(self, timeout_s: float) -> Generator[None]:
        """Let nobody store or remove blobs during the block.

        Raises:
            LockTimeout: Others stored blobs for *timeout_s* seconds.
        """
        self._tree.make_directory(layout.LOCKS)  # a copy may lack it: nothing in it is needed again
        with self._tree.lock(layout.GC_LOCK, timeout_s):
            yield

    @contextmanager
    def session_locked(self, session_id: str, timeout_s: float) -> Generator[None]:
        """Let nobody write to the session during the block.

        Raises:
            LockTimeout: A writer held it for *timeout_s* seconds.
        """
        self._tree.make_directory(layout.LOCKS)
        with self._tree.lock(layout.lock_name(session_id), timeout_s):
            yield

    @contextmanager
    def recovered(self, session_id: str, timeout_s: float) -> Generator[StoredSession]:
        """Let the recovery of the next writer run, and hold the session's lock during the block.

        Raises:
            LockTimeout: A writer held the session for *timeout_s* seconds.
            CorruptError: The directory belongs to another session.
        """
        session = Session(self._tree, session_id, lock_timeout_s=timeout_s)
        with session.writing():
            yield session

    def hide(self, directory: str) -> str:
        """Give a session's *directory* a name that no reader looks for, durably; return it.

        The index of words is removed, since it holds those of the session: before, so that no crash keeps it, and
        after, since a search in between makes it again.
        """
        hidden = layout.removed_name(secrets.token_hex(8))
        self._tree.remove(layout.SEARCH)
        self._tree.rename(directory, hidden)
        self._tree.remove(layout.SEARCH)
        return hidden

    def show(self, hidden: str, directory: str) -> None:
        """Give a *hidden* session its *directory* back."""
        self._tree.rename(hidden, directory)

    def remove(self, name: str) -> None:
        """Remove a file, or a directory with all that is in it; do nothing if it does not exist."""
        self._tree.remove(name)

    def sync_blobs(self) -> None:
        """Make the removal of blobs durable."""
        self._tree.sync_directory(layout.DATA)

    def replace(self, name: str, chunks: Iterable[bytes]) -> None:
        """Replace the content of a file, all of it or none, durably."""
        self._tree.replace(name, chunks)

    def set_aside(self, name: str, digest: str) -> None:
        """Copy the file *name*, whose SHA-256 is *digest*, to the ``torn/`` beside it."""
        aside = layout.set_aside_name(name, digest)
        self._tree.make_directory(aside.rpartition("/")[0])
        self._tree.publish(aside, self._tree.chunks(name))


if TYPE_CHECKING:
    from buoyline.watching.events import WorkspaceEvent
