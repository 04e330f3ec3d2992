"""Watches a workspace.

Events come from the journals. Notices of the operating system only say when to look, so a notice that is lost, doubled
or late only changes the time of an event.
"""

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import PurePath

from watchfiles import Change, watch

from buoyline.errors import ConfigError, NotFoundError
from buoyline.messages.jsonl import is_object, parse
from buoyline.messages.times import now
from buoyline.watching.events import SessionCreated, SessionRemoved, WorkspaceEvent
from buoyline.watching.follow import SessionFollower, ignoring_foreign_files
from buoyline.workspace import Files, ReadableWorkspace, layout
from buoyline.workspace.files import Version, version_in
from buoyline.workspace.stored_session import is_directory_of

# watchfiles collects changes while these milliseconds bring new ones, for as many as the second number says.
_STEP_MS = 50
_DEBOUNCE_MS = 100

Identities = Mapping[str, tuple[int, int]]
"""Watched directories by absolute path, with device and inode, which differ if another one takes its place."""


class Notices:
    """Waits until something changes in one of several directories.

    A notice only says that a look may be worthwhile. It may be lost: on network file systems, if the kernel's watches
    are used up, or between two looks. So the caller also has to look without one now and then. Each directory is
    watched without those below it, since a recursive watch follows links.
    """

    def __init__(self, stop: threading.Event) -> None:
        """Wait until *stop* is set."""
        self._stop = stop
        self._directories: Identities = {}
        self._changes: Generator[set[tuple[Change, str]]] | None = None

    def expect(self, directories: Identities) -> bool:
        """Watch *directories* from now on; return whether an earlier change in them may have gone unnoticed."""
        if directories == self._directories:
            return False
        self.close()
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
        """Return the changed paths; none if *timeout_s* is over, or waiting was stopped."""
        until = time.monotonic() + timeout_s
        while not self._stop.is_set() and (rest_s := until - time.monotonic()) > 0:
            if self._changes is None:
                self._stop.wait(rest_s)
            elif changes := self._next():
                return frozenset(path for _, path in changes)
        return frozenset()

    def close(self) -> None:
        """Stop watching."""
        if self._changes is not None:
            self._changes.close()
        self._directories, self._changes = {}, None

    def _next(self) -> set[tuple[Change, str]] | None:
        """Return the changes of the next moment; None if that cannot be known, and then nothing is watched any more."""
        try:
            changes = None if self._changes is None else next(self._changes, None)
        except (OSError, RuntimeError):
            # A directory was removed meanwhile, or the watches are used up: there are no notices.
            changes = None
        if changes is None or any(change is Change.deleted and path in self._directories for change, path in changes):
            self.close()
        return changes


def _is_relevant(change: Change, path: str) -> bool:
    """Ignore unfinished files, and files that are written together with the journal."""
    name = PurePath(path).name
    is_derived = change is Change.modified and name in {layout.TRANSCRIPT_FILE, layout.WINDOW_FILE}
    return not name.startswith(layout.TEMPORARY_PREFIX) and not is_derived


# A lost notice delays an event by this. A look at an idle session takes 0.1 ms or more; so that thousands of them do
# not keep a core busy, the next look waits for a multiple of the time that the last one took.
_WAIT_S = 1.0
_LONGEST_WAIT_S = 10.0
_RESTS = 20
_MAX_DOCUMENT_BYTES = 1 << 16


@dataclass(slots=True)
class _Followed:
    """A followed session; *document* and *version* distinguish it from another session in its place."""

    follower: SessionFollower
    document: tuple[str, str]
    version: Version


class Watch:
    """Looks at a workspace again and again, and reports each event once. Synchronous, for one thread at a time.

    It creates nothing and holds no lock. It waits for a session or a workspace that does not exist yet.
    """

    def __init__(self, workspace: ReadableWorkspace, session_id: str | None = None, *, last: int | None = 0) -> None:
        """Watch one session or all. Nothing is read yet.

        *session_id* None means all. The *last* past events of each existing session come first; None for all.

        Raises:
            ConfigError: *last* is negative.
            InvalidNameError: *session_id* cannot be an id.
        """
        if last is not None and last < 0:
            raise ConfigError("last", f"{last} is below 0; 0 begins with what happens next, None with everything")
        self._workspace = workspace
        self._files = workspace.files
        self._only = None if session_id is None else layout.session_directories(session_id)
        self._session_id = session_id
        self._last = last
        self._has_begun = False
        self._sessions: dict[str, _Followed] = {}
        self._stop = threading.Event()

    @property
    def session_ids(self) -> list[str]:
        """Return the sessions that existed at the last look."""
        return [session.document[0] for session in self._sessions.values()]

    def stop(self) -> None:
        """End the rounds, from any thread, within a tenth of a second."""
        self._stop.set()

    def rounds(self, *, follow: bool = True) -> Generator[list[WorkspaceEvent]]:
        """Yield events, in the order of each session, and an empty list between two looks at everything.

        Nothing is read in advance: the next look happens when the next list is asked for. Empty lists come about every
        second, so that the caller can stop. Without *follow* they end with the events that exist; later rounds continue
        from there.

        Raises:
            FormatVersionError: A newer buoyline wrote the workspace.
            CorruptError: It does not say which format it has.
            StorageError: The file system refused, and not because a file is not buoyline's.
        """
        with closing(Notices(self._stop)) as notices:
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
                    if notices.expect(self._files.watched_directories((layout.SESSIONS, *self._sessions))):
                        continue
                paths = notices.wait(due - time.monotonic())
                touched = self._touched(paths)
                if not paths:
                    yield []

    def history(self, is_enough: Callable[[float], bool]) -> Iterator[list[WorkspaceEvent]]:
        """Yield the past events, session by session, the last active one first. Raises as `rounds`.

        Before a session is read, *is_enough* is called with the time of the last write to its journal in seconds since
        1970. If it returns True, neither this session nor those after it are read, and no `rounds` may follow.
        """
        names = self._names()
        with self._files.held(layout.SESSIONS) if names else nullcontext(self._files) as sessions:
            times_s = {name: _last_write_s(sessions, name) for name in names}
        names.sort(key=times_s.__getitem__, reverse=True)
        wanted = itertools.takewhile(lambda name: not is_enough(times_s[name]), names)
        yield from self._look_at(wanted, is_all=False)

    def _touched(self, paths: Collection[str]) -> list[str] | None:
        """Return the sessions that contain *paths*; None if all have to be looked at."""
        known = {self._files.path(directory): directory for directory in self._sessions}
        directories = {known.get(str(PurePath(path).parent)) for path in paths}
        found = [directory for directory in directories if directory is not None]
        return found if found and len(found) == len(directories) else None

    def _look_at(self, directories: Iterable[str], *, is_all: bool) -> Iterator[list[WorkspaceEvent]]:
        """Yield the news in *directories*; *is_all*: these are all sessions, and others are gone."""
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
        if not self._sessions:
            try:
                self._workspace.check()
            except NotFoundError:
                return []
        if self._only is None:
            return [f"{layout.SESSIONS}/{name}" for name in self._files.names(layout.SESSIONS)]
        return [directory for directory in self._only if self._files.is_directory(directory)]

    def _follow_new(self, directory: str) -> Iterator[list[WorkspaceEvent]]:
        """Begin to follow a session that is not followed yet, even if it took the place of a known one."""
        known = self._sessions.get(directory)
        version = version_in(self._files, f"{directory}/{layout.SESSION_FILE}")
        if known is not None and (
            version == known.version or (version is None and self._files.is_directory(directory))
        ):
            return
        document = None if version is None else self._document(directory)
        if known is not None and document == known.document and version is not None:
            known.version = version
            return
        if known is not None:
            yield [self._unfollow(directory)]
        if document is not None and version is not None:
            last = None if self._has_begun else self._last
            follower = SessionFollower(self._files, directory, document[0], last=last)
            self._sessions[directory] = _Followed(follower, document, version)
            if last is None:
                yield [SessionCreated(*document)]

    def _unfollow(self, directory: str) -> SessionRemoved:
        return SessionRemoved(self._sessions.pop(directory).document[0], now())

    def _document(self, directory: str) -> tuple[str, str] | None:
        """Return id and creation time of a session; None if the directory is not that session's."""
        found = parse(self._files.read(f"{directory}/{layout.SESSION_FILE}", 0, _MAX_DOCUMENT_BYTES))
        session_id = found.get("id") if is_object(found) else None
        if not is_object(found) or not isinstance(session_id, str) or self._session_id not in {None, session_id}:
            return None
        if not is_directory_of(self._files, session_id, directory):
            return None
        return session_id, str(found.get("created_at", ""))


async def watched(watch: Watch) -> AsyncGenerator[WorkspaceEvent]:
    """Yield the events of *watch*. All of its work is done in a thread, which ends with the iteration."""
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
    """Wait for *future*; a cancellation meanwhile is raised only when it is done."""
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


def _last_write_s(files: Files, directory: str) -> float:
    with ignoring_foreign_files():
        status = files.status(f"{directory}/{layout.JOURNAL_FILE}")
        return 0.0 if status is None else status.st_mtime_ns / 1e9
    return 0.0
