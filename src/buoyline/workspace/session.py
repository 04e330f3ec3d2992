"""One session's directory, ``sessions/<session>/``: its lock, its journal, its recovery.

Synchronous. The content of the files is in `archive`, `results` and `logs`.
"""

import errno
import threading
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any

from buoyline.errors import CorruptError, MessageError, NotFoundError, StorageError
from buoyline.messages import spell
from buoyline.messages.jsonl import is_object, parse
from buoyline.messages.times import now
from buoyline.workspace import layout
from buoyline.workspace.commit import Appender
from buoyline.workspace.index import Index
from buoyline.workspace.journal import Batch, begin_record, encode
from buoyline.workspace.journal_tail import JournalTail
from buoyline.workspace.recovery import rebuilt_journal, recover
from buoyline.workspace.tree import OpenFile, Tree


class Session:
    """A session's directory, and the state that its journal records.

    Threads may share an instance, and each process may have its own: writers exclude each other by the session's lock
    file, and readers need no lock.
    """

    def __init__(
        self,
        tree: Tree,
        session_id: str,
        *,
        lock_timeout_s: float,
        taken: "SessionNames | None" = None,
        document: Mapping[str, Any] | None = None,
    ) -> None:
        """Refer to a session; nothing is read or created yet.

        Args:
            tree: The files of the workspace.
            session_id: The session.
            lock_timeout_s: How long a writer waits for another one.
            taken: The names under ``sessions/``, shared by all sessions of a workspace; None for a set of its own.
            document: Its ``session.json``, if the caller has read it in the session's first directory, which *tree*
                holds open.

        Raises:
            InvalidNameError: *session_id* cannot be an id.
        """
        directories = layout.session_directories(session_id)
        self.session_id = session_id
        self.tree = tree
        self._taken = taken or SessionNames()
        self._document = document
        self._directory = None if document is None else directories[0]
        self._lock_timeout_s = lock_timeout_s
        self._index = Index()
        self._tail = JournalTail(self._read_journal, is_durable=tree.is_durable)
        self._identity: tuple[int, int] | None = None
        self._indexed: tuple[int, int] | None = None
        self._journal: OpenFile | None = None
        self._shared: SyncGroup | None = None
        self._guard = threading.RLock()

    @property
    def directory(self) -> str:
        """The session's directory, relative to the workspace; if it has none yet, the one that it would get."""
        return self._found() or free_directory(self.tree, self.session_id)

    def name(self, file: str) -> str:
        """Return the workspace-relative name of the session's *file*."""
        return f"{self.directory}/{file}"

    def path(self, file: str) -> str:
        """Return the absolute path of the session's *file*."""
        return self.tree.path(self.name(file))

    def exists(self) -> bool:
        """Return whether the session has been created."""
        directory = self._found(looks=True)
        return directory is not None and self.tree.is_directory(directory)

    def created_at(self) -> str:
        """Return when the session was created, ISO 8601 in UTC; empty if its ``session.json`` does not say so."""
        try:
            found = parse(self.tree.read(self.name(layout.SESSION_FILE))) if self._document is None else self._document
        except MessageError:
            return ""
        return str(found.get("created_at", "")) if is_object(found) else ""

    def index(self) -> Index:
        """Return the current content of the journal. The caller must not change it.

        Raises:
            NotFoundError: There is no such session.
            CorruptError: The directory belongs to another session, or the journal is missing or has no record.
        """
        if not self.exists():
            raise NotFoundError("session", self.session_id, "nothing was stored under it in this workspace")
        with self._guard:
            if self.tree.exists(self.name(layout.JOURNAL_FILE)):
                with self.tree.open(self.name(layout.JOURNAL_FILE)) as journal:
                    self._refresh_index(journal)
                if self._index.end:
                    return self._index
            reason = "is gone, or has not even its first record; the next write or `repair` rebuilds it"
            raise CorruptError(self.path(layout.JOURNAL_FILE), reason)

    @contextmanager
    def writing(self) -> Generator[tuple[JournalTail, Appender]]:
        """Create and recover the session, and hold its lock during the block.

        Within `sync_group`, the lock is kept and the writes become durable at the end of that outer block.

        Raises:
            LockTimeout: Another writer held the session for too long.
            CorruptError: The directory belongs to another session.
        """
        shared = self._shared
        if shared is None or shared.thread != threading.get_ident():
            with self._opened(shares_sync=False) as appender:
                yield self._tail, appender
            return
        if shared.appender is None:
            with ExitStack() as opened:
                # Taken first, as everywhere: a call in the block that stores a payload takes it within the session's
                # lock.
                opened.enter_context(self.tree.lock(layout.GC_LOCK, self._lock_timeout_s, shared=True))
                shared.appender = opened.enter_context(self._opened(shares_sync=True))
                shared.stack.enter_context(opened.pop_all())
        try:
            if self._refresh_tail(shared.appender.file(layout.JOURNAL_FILE)):
                # The call before failed. Writes that wait for the sync stay unsynced: that sync reports their error.
                recover(self._tail, shared.appender, self.content, self.index, is_first_look=False, now=now)
            yield self._tail, shared.appender
        except BaseException:
            self._tail.forget()
            raise

    @contextmanager
    def sync_group(self) -> Generator[Callable[[], bool]]:
        """Delay the syncs of this thread's writes to the end of the block.

        Yields:
            A function that returns whether a write waits for the sync. It raises the error of an earlier sync that
            could not wait and failed.

        Raises:
            StorageError: The sync failed; all writes that waited for it were cut back.
        """
        with ExitStack() as stack:
            shared = SyncGroup(threading.get_ident(), stack)
            self._shared = shared
            try:
                yield lambda: shared.appender is not None and shared.appender.is_waiting()
            finally:
                self._shared = None
            if shared.appender is not None:
                shared.appender.flush()

    @contextmanager
    def _opened(self, *, shares_sync: bool) -> Generator[Appender]:
        with (
            self.tree.lock(layout.lock_name(self.session_id), self._lock_timeout_s),
            self._guard,
            self._held() as tree,
            closing(Appender(tree, self.directory, self._tail, shares_sync=shares_sync)) as appender,
        ):
            try:
                self._journal = self._opened_journal(appender, is_durable=tree.is_durable)
                is_first_look = self._refresh_tail(self._journal)
                if is_first_look:
                    # The writer of these entries may have been killed before they were durable.
                    tree.sync_directory(layout.SESSIONS)
                    tree.sync_directory(self.directory)
                if not self._tail.end:
                    # Even the first record is missing, which was durable before anybody saw the session.
                    appender.set_aside_behind(layout.JOURNAL_FILE, 0)
                    self._journal = _rebuild_journal(appender, is_durable=tree.is_durable)
                    self._refresh_tail(self._journal)
                recover(self._tail, appender, self.content, self.index, is_first_look=is_first_look, now=now)
                yield appender
            except BaseException:
                # Only the files are right now; all that we knew of them is read again.
                self._tail.forget()
                raise
            finally:
                self._journal = None

    def _held(self) -> AbstractContextManager[Tree]:
        for _ in range(2):
            directory = self._found()
            if directory is None:
                break
            try:
                return self.tree.held(directory)
            except StorageError as error:
                if error.errno != errno.ENOENT:
                    raise
                self._directory = None  # gc removed it
        self._create()
        return self.tree.held(self.directory)

    def _found(self, *, looks: bool = False) -> str | None:
        """Return the session's directory; None if it has none. With *looks*, check that a known one still exists."""
        if self._directory is None or (looks and not self.tree.exists(self._directory)):
            self._directory = found_directory(self.tree, self.session_id)
        return self._directory

    def content(self, batch: Batch) -> bytes | None:
        """Return the batch's bytes in the archive; None when they are not what was committed."""
        byte_range = batch.byte_range
        found = self.tree.read(self.name(layout.CONTEXT_FILE), byte_range.offset, sum(byte_range.sizes))
        return found if byte_range.holds(found) else None

    def _create(self) -> None:
        created = {
            "format": layout.FORMAT,
            "id": self.session_id,
            "renderer": layout.RENDERER,
            "created_at": now(),
        }
        files = [(layout.SESSION_FILE, spell(created).encode("utf-8") + b"\n")]
        files += [(layout.JOURNAL_FILE, encode(begin_record(now())))]
        files += [(name, b"") for name in (layout.CONTEXT_FILE, layout.TRANSCRIPT_FILE)]
        # Sessions whose ids differ only in case have different locks, so naming needs a lock that all share.
        with self.tree.lock(layout.SESSIONS_LOCK, self._lock_timeout_s) as lock:
            self._taken.publish(self.tree, self.session_id, files, lock)

    def _opened_journal(self, appender: Appender, *, is_durable: bool) -> OpenFile:
        try:
            return appender.file(layout.JOURNAL_FILE, create=False)
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
        self._check_owner()  # before we write into a directory that another program may have begun
        return _rebuild_journal(appender, is_durable=is_durable)

    def _check_owner(self) -> None:
        try:
            found = parse(self.tree.read(self.name(layout.SESSION_FILE)))
        except MessageError as error:
            raise CorruptError(self.path(layout.SESSION_FILE), error.reason) from error
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            reason = "is missing: another program began the directory, or the file was lost; take another session or"
            reason += " workdir, or restore the file with `buoyline repair --from`"
            raise CorruptError(self.path(layout.SESSION_FILE), reason) from error
        if not is_object(found) or found.get("id") != self.session_id:
            self._directory = None
            raise CorruptError(self.path(layout.SESSION_FILE), f"does not belong to session {self.session_id!r}")

    def _read_journal(self, offset: int, size_bytes: int) -> bytes:
        if self._journal is not None:
            return self._journal.read(offset, size_bytes)
        return self.tree.read(self.name(layout.JOURNAL_FILE), offset, size_bytes)

    def _refresh_tail(self, journal: OpenFile) -> bool:
        """Read what other writers appended since; return whether these files were unknown before."""
        identity = journal.identity
        if identity != self._identity:
            self._check_owner()
            self._tail.forget()
            self._identity = identity
        return self._tail.refresh(journal.size())

    def _refresh_index(self, journal: OpenFile) -> None:
        identity, size, tail = journal.identity, journal.size(), self._index.tail
        if identity != self._indexed or journal.read(self._index.end - len(tail), len(tail)) != tail:
            if self._document is None or self._indexed is not None:
                self._check_owner()
            self._index, self._indexed = Index(), identity
        if size > self._index.end:
            self._index.absorb(journal.read(self._index.end, size - self._index.end))


@dataclass(slots=True)
class SyncGroup:
    """The state shared by the calls of one `Session.sync_group`.

    Attributes:
        thread: The thread whose calls they are.
        stack: Holds the lock until the sync.
        appender: The session's files; None before the first call that writes.
    """

    thread: int
    stack: ExitStack
    appender: Appender | None = None


def _rebuild_journal(appender: Appender, *, is_durable: bool) -> OpenFile:
    context = appender.file(layout.CONTEXT_FILE)
    context.sync()
    content = context.read(0, context.size())
    appender.replace(layout.JOURNAL_FILE, rebuilt_journal(content, now(), is_durable=is_durable))
    return appender.file(layout.JOURNAL_FILE)


def found_directory(tree: Tree, session_id: str) -> str | None:
    """Return the workspace-relative directory of a session; None if there is none.

    A directory without an owner counts, too, and so does a link or a file with its name: opening it reports the error.

    Raises:
        InvalidNameError: *session_id* cannot be an id.
    """
    for directory in layout.session_directories(session_id):
        if not tree.exists(directory):
            continue
        owner = _owner(tree, directory)
        # On a file system that ignores case, this may be the directory of another session.
        if owner == session_id or owner is None or layout.folded(owner) != layout.folded(session_id):
            return directory
    return None


class SessionNames:
    """The names under ``sessions/``, folded; listed again only after other writers changed the directory.

    To list 20,000 names for each new session took 15 ms. Used only while `layout.SESSIONS_LOCK` is held.
    """

    def __init__(self) -> None:
        """Know none yet."""
        self._folded: set[str] = set()
        self._seen: tuple[int, int, int] | None = None

    def publish(self, tree: Tree, session_id: str, files: Iterable[tuple[str, bytes]], created: OpenFile) -> None:
        """Create the directory of a new session with *files* in it, under a name that is free.

        Args:
            tree: The files of the workspace.
            session_id: The new session.
            files: What is in its directory.
            created: The lock file. It grows by a byte for each new session, since two may be created within one tick of
                the clock that dates the directory.
        """
        if self._seen is None or self._seen != _version_of_sessions(tree, created):
            self._folded = _folded_names(tree)
        directory = _free_directory(session_id, self._folded)
        if directory != layout.session_directories(session_id)[0]:
            # gc takes no lock of ours, so the directory with the better name may be gone.
            self._folded = _folded_names(tree)
            directory = _free_directory(session_id, self._folded)
        self._seen = None
        created.append(b"\n")
        tree.publish_directory(directory, files)
        self._folded.add(layout.folded(directory.rpartition("/")[2]))
        self._seen = _version_of_sessions(tree, created)


def _version_of_sessions(tree: Tree, created: OpenFile) -> tuple[int, int, int] | None:
    status = tree.status(layout.SESSIONS)
    return None if status is None else (created.size(), status.st_ino, status.st_mtime_ns)


def _folded_names(tree: Tree) -> set[str]:
    return {layout.folded(name) for name in tree.names(layout.SESSIONS)}


def free_directory(tree: Tree, session_id: str) -> str:
    """Return the directory that a new session gets; final only while `layout.SESSIONS_LOCK` is held."""
    return _free_directory(session_id, _folded_names(tree))


def _free_directory(session_id: str, taken: Collection[str]) -> str:
    *directories, last = layout.session_directories(session_id)
    return next((path for path in directories if layout.folded(path.rpartition("/")[2]) not in taken), last)


def is_directory_of(tree: Tree, session_id: str, directory: str) -> bool:
    """Return whether *directory*, whose ``session.json`` names *session_id*, is where that session belongs."""
    directories = layout.session_directories(session_id)
    return directory == directories[0] or (directory in directories and found_directory(tree, session_id) == directory)


def _owner(tree: Tree, directory: str) -> str | None:
    try:
        found = parse(tree.read(f"{directory}/{layout.SESSION_FILE}"))
    except (MessageError, StorageError):
        return None
    owner = found.get("id") if is_object(found) else None
    return owner if isinstance(owner, str) else None


def sessions_in(tree: Tree, *, lock_timeout_s: float, newest_first: bool = False) -> Generator[Session]:
    """Yield the sessions in *tree* for reading, in the order of their directories, or the last active ones first.

    Each directory stays open until the next session is requested, which needs a third of the opens.
    """
    names = tree.names(layout.SESSIONS)
    if not names:
        return
    with tree.held(layout.SESSIONS) as sessions:
        if newest_first:
            names.sort(key=lambda name: _last_write_ns(sessions, name), reverse=True)
        for directory in (f"{layout.SESSIONS}/{name}" for name in names):
            if not sessions.is_directory(directory):
                continue
            with sessions.held(directory) as held:
                path = f"{directory}/{layout.SESSION_FILE}"
                if held.size(path) is None:
                    continue
                try:
                    document = parse(held.read(path))
                except MessageError:
                    continue
                if is_object(document) and isinstance(document.get("id"), str):
                    yield _read_in(held, directory, document, lock_timeout_s)


def _read_in(tree: Tree, directory: str, document: Mapping[str, Any], lock_timeout_s: float) -> Session:
    session_id = document["id"]
    is_first = directory == layout.session_directories(session_id)[0]
    return Session(tree, session_id, lock_timeout_s=lock_timeout_s, document=document if is_first else None)


def _last_write_ns(tree: Tree, directory: str) -> int:
    status = tree.status(f"{layout.SESSIONS}/{directory}/{layout.JOURNAL_FILE}")
    return 0 if status is None else status.st_mtime_ns
