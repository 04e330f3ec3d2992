"""One session's directory, ``sessions/<session>/``: its lock, its journal, its recovery.

Synchronous; `LocalWorkspace` is the asynchronous border. What the files hold is the business of `archive`,
`results` and `logs`.
"""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime

from buoyline.errors import CorruptError, MessageError, NotFoundError
from buoyline.messages import is_object, parse, spell
from buoyline.workspace import layout
from buoyline.workspace._files import Handle, Tree
from buoyline.workspace.commit import Appender
from buoyline.workspace.journal import Batch, Index
from buoyline.workspace.recovery import rebuild, recover


class Session:
    """A session's directory and what its journal says.

    Many threads may share an instance and many processes may have one each: writers exclude each other by the
    session's lock file, and readers need no lock.
    """

    def __init__(self, tree: Tree, session_id: str, *, lock_timeout_s: float) -> None:
        """Address the session; nothing is read or created yet.

        Raises:
            InvalidNameError: *session_id* cannot be an id.
        """
        self.session_id = session_id
        self.directory = layout.session_directory(session_id)
        self.tree = tree
        self._lock_timeout_s = lock_timeout_s
        self._index = Index()
        self._identity: tuple[int, int] | None = None
        self._verified = 0
        self._guard = threading.RLock()

    def name(self, file: str) -> str:
        """Return the workspace-relative name of the session's *file*."""
        return f"{self.directory}/{file}"

    def path(self, file: str) -> str:
        """Return the absolute path of the session's *file*."""
        return self.tree.path(self.name(file))

    def exists(self) -> bool:
        """Tell whether the session has been created."""
        return self.tree.is_directory(self.directory)

    def index(self) -> Index:
        """Return what the journal says now; it belongs to this instance and is not to be changed.

        Raises:
            NotFoundError: There is no such session.
            CorruptError: The directory belongs to another session.
        """
        if not self.exists():
            raise NotFoundError("session", self.session_id, "`buoyline sessions` lists those there are")
        with self._guard:
            if self.tree.exists(self.name(layout.JOURNAL_FILE)):
                with self.tree.open(self.name(layout.JOURNAL_FILE)) as journal:
                    self._refresh(journal)
            return self._index

    @contextmanager
    def writing(self) -> Generator[tuple[Index, Appender]]:
        """Hold the session's lock, with the session created and recovered, for as long as the block runs.

        Raises:
            LockTimeout: Another writer held the session for too long.
            CorruptError: The directory belongs to another session.
        """
        with self.tree.lock(layout.lock_name(self.session_id), self._lock_timeout_s), self._guard:
            self._create()
            is_journal_lost = not self.tree.exists(self.name(layout.JOURNAL_FILE))
            appender = Appender(self.tree, self.directory)
            try:
                self._refresh(appender.file(layout.JOURNAL_FILE))
                if is_journal_lost:
                    rebuild(self._index, appender, now())
                recover(self._index, appender, self.content, self._verified, now())
                self._verified = len(self._index.batches)
                yield self._index, appender
                self._verified = len(self._index.batches)
            except BaseException:
                # What is on disk decides; whatever we believed about it is read again.
                self._forget()
                raise
            finally:
                appender.close()

    def content(self, batch: Batch) -> bytes | None:
        """Return the batch's bytes in the archive; None when they are not what was committed."""
        extent = batch.extent
        found = self.tree.read(self.name(layout.CONTEXT_FILE), extent.offset, sum(extent.sizes))
        return found if extent.holds(found) else None

    def _create(self) -> None:
        if self.exists():
            return
        created = {
            "format": layout.FORMAT,
            "id": self.session_id,
            "renderer": layout.RENDERER,
            "created_at": now(),
        }
        files = [(layout.SESSION_FILE, spell(created).encode("utf-8") + b"\n")]
        files += [(name, b"") for name in (layout.CONTEXT_FILE, layout.JOURNAL_FILE, layout.TRANSCRIPT_FILE)]
        self.tree.publish_directory(self.directory, files)

    def _check_owner(self) -> None:
        try:
            found = parse(self.tree.read(self.name(layout.SESSION_FILE)))
        except MessageError as error:
            raise CorruptError(self.path(layout.SESSION_FILE), error.reason) from error
        if not is_object(found) or found.get("id") != self.session_id:
            raise CorruptError(self.path(layout.SESSION_FILE), f"does not belong to session {self.session_id!r}")

    def _forget(self) -> None:
        self._index, self._identity, self._verified = Index(), None, 0

    def _refresh(self, journal: Handle) -> None:
        identity, size = journal.identity(), journal.size()
        if identity != self._identity or size < self._index.end:
            self._check_owner()
            self._forget()
            self._identity = identity
        if size > self._index.end:
            self._index.absorb(journal.read(self._index.end, size - self._index.end))


def now() -> str:
    """Return the time as it stands in records and headings: ISO 8601, UTC, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
