"""One session's directory, ``sessions/<session>/``: its lock, its journal, its recovery.

Synchronous. The content of the files is in `archive`, `results` and `logs`.
"""

import errno
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, closing, contextmanager

from buoyline.errors import StorageError
from buoyline.messages import spell
from buoyline.messages.times import now
from buoyline.workspace import layout
from buoyline.workspace.commit import Appender
from buoyline.workspace.journal import begin_record, encode
from buoyline.workspace.journal_tail import JournalTail
from buoyline.workspace.recovery import rebuilt_journal, recover
from buoyline.workspace.stored_session import StoredSession, chosen_directory, folded_names, found_directory
from buoyline.workspace.tree import OpenFile, Tree


class Session(StoredSession):
    """A session's directory, for writing.

    Threads may share an instance, and each process may have its own: writers exclude each other by the session's lock
    file.
    """

    def __init__(
        self, tree: Tree, session_id: str, *, lock_timeout_s: float, taken: "SessionNames | None" = None
    ) -> None:
        """Refer to a session; nothing is read or created yet.

        All sessions of a workspace share *taken*, the names under ``sessions/``; None for a set of its own.

        Raises:
            InvalidNameError: *session_id* cannot be an id.
        """
        super().__init__(tree, session_id)
        self.tree = tree
        self._taken = taken or SessionNames()
        self._lock_name = layout.lock_name(session_id)
        self._lock_timeout_s = lock_timeout_s
        self._tail = JournalTail(self._read_journal, is_durable=tree.is_durable)
        self._identity: tuple[int, int] | None = None
        self._journal: OpenFile | None = None

    @contextmanager
    def writing(self) -> Generator[tuple[JournalTail, Appender]]:
        """Create and recover the session, and hold its lock during the block.

        Raises:
            LockTimeout: Another writer held the session for too long.
            CorruptError: The directory belongs to another session.
        """
        with self.tree.lock(self._lock_name, self._lock_timeout_s), self._guard:
            directory, held = self._held()
            with held as tree, closing(Appender(tree, directory, self._tail)) as appender:
                try:
                    try:
                        self._journal = appender.files[layout.JOURNAL_FILE]
                    except StorageError as error:
                        if error.errno != errno.ENOENT:
                            raise
                        self._check_owner()  # before we write into a directory that another program may have begun
                        self._journal = _rebuild_journal(appender, is_durable=tree.is_durable)
                    is_first_look = self._refresh_tail(self._journal)
                    if is_first_look:
                        # The writer of these entries may have been killed before they were durable.
                        tree.sync_directory(layout.SESSIONS)
                        tree.sync_directory(directory)
                    if not self._tail.end:
                        # Even the first record is missing, which was durable before anybody saw the session.
                        appender.set_aside_behind(layout.JOURNAL_FILE, 0)
                        self._journal = _rebuild_journal(appender, is_durable=tree.is_durable)
                        self._refresh_tail(self._journal)
                    recover(self._tail, appender, self.content, self.index, is_first_look=is_first_look)
                    yield self._tail, appender
                except BaseException:
                    # Only the files are right now; all that we knew of them is read again.
                    self._tail.forget()
                    raise
                finally:
                    self._journal = None

    def _held(self) -> tuple[str, AbstractContextManager[Tree]]:
        """Return the session's directory, created if it is missing, and a tree that holds it open."""
        for _ in range(2):
            self._directory = directory = self._directory or found_directory(self.tree, self.session_id)
            if directory is None:
                break
            try:
                return directory, self.tree.held(directory, keep=True)
            except StorageError as error:
                if error.errno != errno.ENOENT:
                    raise
                self._directory = None  # gc removed it
        self._create()
        return self.directory, self.tree.held(self.directory, keep=True)

    def _create(self) -> None:
        created = {
            "format": layout.FORMAT,
            "id": self.session_id,
            "created_at": now(),
        }
        files = [(layout.SESSION_FILE, spell(created).encode("utf-8") + b"\n")]
        files += [(layout.JOURNAL_FILE, encode(begin_record(now())))]
        files += [(name, b"") for name in (layout.CONTEXT_FILE, layout.TRANSCRIPT_FILE)]
        # Sessions whose ids differ only in case have different locks, so naming needs a lock that all share.
        with self.tree.lock(layout.SESSIONS_LOCK, self._lock_timeout_s) as lock:
            self._taken.publish(self.tree, self.session_id, files, lock)

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


def _rebuild_journal(appender: Appender, *, is_durable: bool) -> OpenFile:
    context = appender.files[layout.CONTEXT_FILE]
    context.sync()
    content = context.read(0, context.size())
    appender.replace(layout.JOURNAL_FILE, rebuilt_journal(content, now(), is_durable=is_durable))
    return appender.files[layout.JOURNAL_FILE]


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

        The lock file *created* grows by a byte for each new session, since two may be created within one tick of the
        clock that dates the directory.
        """
        if self._seen is None or self._seen != _version_of_sessions(tree, created):
            self._folded = folded_names(tree)
        directory = chosen_directory(session_id, self._folded)
        if directory != layout.session_directories(session_id)[0]:
            # gc takes no lock of ours, so the directory with the better name may be gone.
            self._folded = folded_names(tree)
            directory = chosen_directory(session_id, self._folded)
        self._seen = None
        created.append(b"\n")
        tree.publish_directory(directory, files)
        self._folded.add(layout.folded(directory.rpartition("/")[2]))
        self._seen = _version_of_sessions(tree, created)


def _version_of_sessions(tree: Tree, created: OpenFile) -> tuple[int, int, int] | None:
    status = tree.status(layout.SESSIONS)
    return None if status is None else (created.size(), status.st_ino, status.st_mtime_ns)
