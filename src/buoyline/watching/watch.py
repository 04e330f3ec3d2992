"""Watching a workspace: what any process writes to it, as events.

What happened is taken from the journals; notices only say when to look. So a notice that is lost, doubled or late
changes nothing but the time at which something is told.
"""

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from types import TracebackType
from typing import Self

from watchfiles import Change, watch

from buoyline.errors import ConfigError, NotFoundError
from buoyline.messages import is_object, parse
from buoyline.messages.times import now
from buoyline.watching.follow import FileVersion, SessionFollower, ignoring_foreign_files, version_of
from buoyline.workspace import layout
from buoyline.workspace.events import SessionCreated, SessionRemoved, WorkspaceEvent
from buoyline.workspace.local_tree import LocalTree
from buoyline.workspace.session import is_directory_of

# Notices of the operating system that something in a directory has changed, through watchfiles.


# watchfiles collects changes while these milliseconds bring new ones, for as many as the second number says.
_STEP_MS = 50
_DEBOUNCE_MS = 100

Identities = Mapping[str, tuple[int, int]]
"""Directories to hear of, by absolute path, each with its device and inode, which tell it from its successor."""


class Notices:
    """Waits until something changes in one of several directories.

    A notice says no more than that it is worth looking, and may be lost: on network file systems, where the
    kernel's watches are used up, or between two looks. Whoever needs to know looks now and then without one.
    Each directory is watched for itself and not with all below it, since watching a tree follows its links.
    """

    def __init__(self, stop: threading.Event) -> None:
        """Wait only until *stop* is set."""
        self._stop = stop
        self._directories: Identities = {}
        self._changes: Generator[set[tuple[Change, str]]] | None = None

    def __enter__(self) -> Self:
        """Return the notices."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop watching."""
        self._close()

    def expect(self, directories: Identities) -> bool:
        """Watch *directories* from now on.

        Returns:
            Whether that is new, so that a change before it may have passed unnoticed.
        """
        if directories == self._directories:
            return False
        self._close()
        self._changes = watch(
            *directories,
            watch_filter=_is_relevant,
            recursive=False,
            step=_STEP_MS,
            debounce=_DEBOUNCE_MS,
            rust_timeout=_STEP_MS,
            yield_on_timeout=True,
            ignore_permission_denied=True,
            stop_event=self._stop,
        )
        # The first step sets the watches up, and ends after the timeout at the latest.
        if self._next() is None:
            return False
        self._directories = dict(directories)
        return True

    def wait(self, timeout_s: float) -> frozenset[str]:
        """Return the paths that have changed; none when *timeout_s* is over, or waiting was stopped."""
        until = time.monotonic() + timeout_s
        while not self._stop.is_set() and (rest_s := until - time.monotonic()) > 0:
            if self._changes is None:
                self._stop.wait(rest_s)
            elif changes := self._next():
                return frozenset(path for _, path in changes)
        return frozenset()

    def _next(self) -> set[tuple[Change, str]] | None:
        """Return what changed within the next moment; None, and no watches any more, when that cannot be known."""
        try:
            changes = None if self._changes is None else next(self._changes, None)
        except (OSError, RuntimeError):
            # A directory went meanwhile, or there are no more watches to be had; then there are no notices.
            changes = None
        if changes is None or any(change is Change.deleted and path in self._directories for change, path in changes):
            self._close()
        return changes

    def _close(self) -> None:
        if self._changes is not None:
            self._changes.close()
        self._directories, self._changes = {}, None


def _is_relevant(change: Change, path: str) -> bool:
    """Leave out what says nothing of its own: unfinished files, and what is written along with the journal."""
    name = PurePath(path).name
    is_derived = change is Change.modified and name in {layout.TRANSCRIPT_FILE, layout.WINDOW_FILE}
    return not name.startswith(layout.TEMPORARY_PREFIX) and not is_derived


# How long a lost notice delays an event. A look at a session that rests takes 0.1 ms or more; so that thousands of
# them do not keep a core busy, the next look waits for a multiple of what the last one took.
_WAIT_S = 1.0
_LONGEST_WAIT_S = 10.0
_RESTS = 20
_MAX_DOCUMENT_BYTES = 1 << 16


@dataclass(slots=True)
class _Followed:
    """A session that is followed, and what tells it from one that takes its place."""

    follower: SessionFollower
    document: tuple[str, str]
    version: FileVersion


class Watch:
    """Looks at a workspace again and again; what it finds is told once. Synchronous, for one thread at a time.

    It creates nothing and holds no lock. A session or a workspace that is not there yet is waited for.
    """

    def __init__(
        self, tree: LocalTree, check: Callable[[], None], session_id: str | None = None, *, last: int | None = 0
    ) -> None:
        """Watch one session or all; nothing is looked at yet.

        Args:
            tree: The files of the workspace.
            check: Raises NotFoundError as long as there is no workspace, and other errors where it cannot be read.
            session_id: The session; all of them where it is None.
            last: How many of the newest events of each session that is there already are told first; None: all.

        Raises:
            ConfigError: *last* is negative.
            InvalidNameError: *session_id* cannot be an id.
        """
        if last is not None and last < 0:
            raise ConfigError("last", f"{last} is below 0; 0 begins with what happens next, None with everything")
        self._tree = tree
        self._check = check
        self._only = None if session_id is None else layout.session_directories(session_id)
        self._session_id = session_id
        self._last = last
        self._has_begun = False
        self._sessions: dict[str, _Followed] = {}
        self._stop = threading.Event()

    @property
    def session_ids(self) -> list[str]:
        """Return the sessions that are there, as of the last look."""
        return [session.document[0] for session in self._sessions.values()]

    def stop(self) -> None:
        """End the rounds, from any thread, within a tenth of a second."""
        self._stop.set()

    def rounds(self, *, follow: bool = True) -> Generator[list[WorkspaceEvent]]:
        """Yield what happened, in the order of each session, and an empty list between two looks at everything.

        Nothing is read ahead: the next look happens when the next list is asked for. The empty ones come about every
        second, so that whoever asks can stop asking.

        Args:
            follow: Go on waiting; else end when all that there is has been told. Later rounds go on from there.

        Raises:
            FormatVersionError: A newer buoyline wrote the workspace.
            CorruptError: It does not say which format it has.
            StorageError: The file system refused, for another reason than that something is not ours.
        """
        with Notices(self._stop) as notices:
            touched: Sequence[str] | None = None
            due = 0.0
            while not self._stop.is_set():
                begun_s = time.thread_time()
                yield from self._look_at(self._names() if touched is None else touched, is_all=touched is None)
                if not follow:
                    return
                if touched is None:
                    taken_s = time.thread_time() - begun_s
                    due = time.monotonic() + min(max(_WAIT_S, taken_s * _RESTS), _LONGEST_WAIT_S)
                    if notices.expect(self._directories()):
                        continue
                paths = notices.wait(due - time.monotonic())
                touched = self._touched(paths)
                if not paths:
                    yield []

    def history(self, is_enough: Callable[[float], bool]) -> Iterator[list[WorkspaceEvent]]:
        """Yield what has happened so far, session by session, the last active one first.

        Args:
            is_enough: Called before a session is read, with the time of the last write to its journal in seconds since
                1970. If it returns True, neither this session nor those after it are read, and no `rounds` may follow.

        Raises:
            FormatVersionError: As `rounds`, as for the others.
            CorruptError: As above.
            StorageError: As above.
        """
        names = self._names()
        with self._tree.held(layout.SESSIONS) if names else nullcontext(self._tree) as sessions:
            times_s = {name: _last_write_s(sessions, name) for name in names}
        names.sort(key=times_s.__getitem__, reverse=True)
        wanted = itertools.takewhile(lambda name: not is_enough(times_s[name]), names)
        yield from self._look_at(wanted, is_all=False)

    def _touched(self, paths: Collection[str]) -> list[str] | None:
        """Return the sessions in which *paths* are; None where it takes a look at everything."""
        known = {self._tree.path(directory): directory for directory in self._sessions}
        directories = {known.get(str(PurePath(path).parent)) for path in paths}
        found = [directory for directory in directories if directory is not None]
        return found if found and len(found) == len(directories) else None

    def _look_at(self, directories: Iterable[str], *, is_all: bool) -> Iterator[list[WorkspaceEvent]]:
        """Yield what is new in *directories*, which are those of all sessions where *is_all* says so."""
        if is_all:
            directories = list(directories)
            for directory in sorted(self._sessions.keys() - directories):
                yield [self._unfollow(directory)]
        for directory in directories:
            with ignoring_foreign_files():
                yield from self._follow_new(directory)
            if directory in self._sessions:
                yield from _news(self._sessions[directory].follower)
        self._has_begun = True

    def _names(self) -> list[str]:
        if not self._sessions and not self._is_there():
            return []
        if self._only is None:
            return [f"{layout.SESSIONS}/{name}" for name in self._tree.names(layout.SESSIONS)]
        return [directory for directory in self._only if self._tree.is_directory(directory)]

    def _is_there(self) -> bool:
        try:
            self._check()
        except NotFoundError:
            return False
        return True

    def _follow_new(self, directory: str) -> Iterator[list[WorkspaceEvent]]:
        """Begin to follow what is not followed yet; that may be another session in a known one's place."""
        known = self._sessions.get(directory)
        version = version_of(self._tree, f"{directory}/{layout.SESSION_FILE}")
        if known is not None and (version == known.version or (version is None and self._tree.is_directory(directory))):
            return
        document = None if version is None else self._document(directory)
        if known is not None and document == known.document and version is not None:
            known.version = version
            return
        if known is not None:
            yield [self._unfollow(directory)]
        if document is not None and version is not None:
            last = None if self._has_begun else self._last
            follower = SessionFollower(self._tree, directory, document[0], last=last)
            self._sessions[directory] = _Followed(follower, document, version)
            if last is None:
                yield [SessionCreated(*document)]

    def _unfollow(self, directory: str) -> SessionRemoved:
        return SessionRemoved(self._sessions.pop(directory).document[0], now())

    def _document(self, directory: str) -> tuple[str, str] | None:
        """Return a session's id and when it was created; None where the directory is not that session's."""
        found = parse(self._tree.read(f"{directory}/{layout.SESSION_FILE}", 0, _MAX_DOCUMENT_BYTES))
        session_id = found.get("id") if is_object(found) else None
        if not is_object(found) or not isinstance(session_id, str) or self._session_id not in {None, session_id}:
            return None
        if not is_directory_of(self._tree, session_id, directory):
            return None
        return session_id, str(found.get("created_at", ""))

    def _directories(self) -> dict[str, tuple[int, int]]:
        """Return the directories in which something may happen next."""
        names = [name for name in (layout.SESSIONS, *self._sessions) if self._tree.is_directory(name)]
        statuses = {self._tree.path(name): self._tree.status(name) for name in names}
        found = {path: (status.st_dev, status.st_ino) for path, status in statuses.items() if status is not None}
        return found or _nearest(self._tree.root)


async def watched(watch: Watch) -> AsyncGenerator[WorkspaceEvent]:
    """Yield what *watch* finds, with all of its work in a thread, which ends with the iteration."""
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="buoyline-watch")
    rounds = watch.rounds()
    try:
        while (events := await asyncio.wrap_future(thread.submit(next, rounds, None))) is not None:
            for event in events:
                yield event
    finally:
        watch.stop()
        await _ended(thread.submit(rounds.close))
        thread.shutdown()


async def _ended(future: "Future[None]") -> None:
    """Wait for *future*, however often we are cancelled meanwhile, and only then let the cancellation through."""
    waiting, cancelled = asyncio.wrap_future(future), False
    while not waiting.done():
        try:
            await asyncio.wait([waiting])
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
    waiting.result()


def _news(follower: SessionFollower) -> Iterator[list[WorkspaceEvent]]:
    has_more = True
    while has_more:
        events, has_more = list[WorkspaceEvent](), False
        with ignoring_foreign_files():
            events, has_more = follower.look()
        if events:
            yield events
    with ignoring_foreign_files():
        if removals := follower.removals():
            yield removals


def _last_write_s(tree: LocalTree, directory: str) -> float:
    with ignoring_foreign_files():
        status = tree.status(f"{directory}/{layout.JOURNAL_FILE}")
        return 0.0 if status is None else status.st_mtime
    return 0.0


def _nearest(root: Path) -> dict[str, tuple[int, int]]:
    """Return the nearest directory to *root* that exists: there, what is missing will begin to appear."""
    for path in (root, *root.parents):
        with suppress(OSError):
            status = path.stat()
            return {str(path): (status.st_dev, status.st_ino)}
    return {}
