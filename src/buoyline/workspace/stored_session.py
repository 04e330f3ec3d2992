"""A session of a workspace, for reading: what `ReadableWorkspace.session` returns. Synchronous; takes no lock."""

import errno
import threading
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

from buoyline.errors import BuoylineError, CorruptError, InvalidNameError, MessageError, NotFoundError, StorageError
from buoyline.messages.jsonl import is_object, parse
from buoyline.messages.payloads import put_back
from buoyline.offloader.protocol import ModelCall, WindowState
from buoyline.workspace import layout, summary_facts
from buoyline.workspace.batches import ArchivedMessage, batches_between, line_ranges, messages_of, transcript_lines
from buoyline.workspace.blobs import payload_behind
from buoyline.workspace.files import File, Files
from buoyline.workspace.index import Index
from buoyline.workspace.journal import Batch, ByteRange
from buoyline.workspace.records import call_from, whole_lines, window_state
from buoyline.workspace.summary_facts import joined

# The file may be replaced between reading it and reading its record in the journal.
_LOAD_ATTEMPTS = 5

_RESTORE = "restore it with `buoyline repair --from` a copy"
_OWNER_UNKNOWN = f"does not say whose session this is; {_RESTORE}"

WINDOW_CHANGED = f"is not what was written; {_RESTORE}, or begin a new session: the archive beside it is whole"


class StoredSession:
    """A session's directory for reading, and the state that its journal records. Readers need no lock.

    Threads may share an instance.
    """

    def __init__(self, files: Files, session_id: str, *, document: Mapping[str, Any] | None = None) -> None:
        """Refer to a session; nothing is read yet.

        *document* is its ``session.json``, if the caller has read it in the session's first directory, which *files*
        holds open.

        Raises:
            InvalidNameError: *session_id* cannot be an id.
        """
        directories = layout.session_directories(session_id)
        self.session_id = session_id
        self.files = files
        self._document = document
        self._directory = None if document is None else directories[0]
        self._index = Index()
        self._indexed: tuple[int, int] | None = None
        self._guard = threading.RLock()

    @property
    def directory(self) -> str:
        """The session's directory, relative to the workspace; if it has none yet, the one that it would get."""
        if self._directory is None:
            self._directory = found_directory(self.files, self.session_id)
        return self._directory or free_directory(self.files, self.session_id)

    def name(self, file: str) -> str:
        """Return the workspace-relative name of the session's *file*."""
        return f"{self._directory or self.directory}/{file}"

    def path(self, file: str) -> str:
        """Return the session's *file* as errors spell it."""
        return self.files.path(self.name(file))

    def reference(self, file: str) -> str:
        """Return the session's *file* as agents see it."""
        return self.files.reference(self.name(file))

    def exists(self) -> bool:
        """Return whether the session has been created."""
        if self._directory is None or not self.files.exists(self._directory):
            self._directory = found_directory(self.files, self.session_id)
        return self._directory is not None and self.files.is_directory(self._directory)

    def created_at(self) -> str:
        """Return when the session was created, ISO 8601 in UTC; empty if its ``session.json`` does not say so."""
        try:
            found = parse(self.files.read(self.name(layout.SESSION_FILE))) if self._document is None else self._document
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
            if self.files.exists(self.name(layout.JOURNAL_FILE)):
                with self.files.open(self.name(layout.JOURNAL_FILE)) as journal:
                    self._refresh_index(journal)
                if self._index.end:
                    return self._index
            reason = "is gone, or has not even its first record; the next write or `repair` rebuilds it"
            raise CorruptError(self.path(layout.JOURNAL_FILE), reason)

    def summaries(self) -> list[dict[str, Any]]:
        """Return the lines of all summaries in order; each names the file with its facts.

        Raises:
            NotFoundError: There is no such session.
            CorruptError: A line is not what was written.
        """
        index = self.index()
        summaries: list[dict[str, Any]] = []
        for number, byte_range in enumerate(index.summaries, 1):
            content = self._summary_line(byte_range)
            if not byte_range.holds(content) and index.may_be_torn_summary(byte_range):
                break
            summaries.append(self._summary(number, byte_range, content))
        return summaries

    def model_calls(self) -> list[ModelCall]:
        """Return the requests that windows handed out, in order; those of a killed process may lack the last one.

        Raises:
            NotFoundError: There is no such session.
            CorruptError: The journal is damaged.
        """
        return list(map(call_from, self.index().model_calls))

    def summaries_with_facts(self) -> list[dict[str, Any]]:
        """Return all summaries in order, the last ones with their facts.

        The facts of older summaries are no longer kept, since each summary has those of the one before. If the file of
        a later one is damaged, its summary is returned without facts.

        Raises:
            NotFoundError: There is no such session.
            CorruptError: A line is not what was written.
        """
        lines = self.summaries()
        first = max(len(lines) - summary_facts.KEPT, 0)
        return [joined(line, self.facts(line) if at >= first else None) for at, line in enumerate(lines)]

    def facts(self, line: Mapping[str, Any]) -> bytes | None:
        """Return the content of the file with the facts of the summary in *line*; None if there is no such file."""
        reference = summary_facts.reference_in(line)
        if reference is None:
            return None
        try:
            return self.files.read(self.name(reference.path))
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            return None

    def summary(self, number: int) -> dict[str, Any]:
        """Return a summary by its number, counted from 1.

        Raises:
            NotFoundError: There is no such session or summary.
            CorruptError: Its line is not what was written.
        """
        known = self.index().summaries
        if not 1 <= number <= len(known):
            raise NotFoundError("summary", str(number), f"session {self.session_id!r} has {len(known)}")
        byte_range = known[number - 1]
        return self._summary(number, byte_range, self._summary_line(byte_range))

    def _summary_line(self, byte_range: ByteRange) -> bytes:
        name = self.name(layout.SUMMARIES_FILE)
        return self.files.read(name, byte_range.offset, sum(byte_range.sizes)) if self.files.exists(name) else b""

    def _summary(self, number: int, byte_range: ByteRange, content: bytes) -> dict[str, Any]:
        if not byte_range.holds(content):
            reason = f"summary {number} is not what was written; {_RESTORE}"
            raise CorruptError(self.path(layout.SUMMARIES_FILE), reason)
        found: dict[str, Any] = parse(content)
        return found

    def window(self) -> WindowState:
        """Return the content of the context.

        Raises:
            NotFoundError: There is no such session, or it never had a window.
            CorruptError: The file does not hold the written bytes.
        """
        state = None
        for _ in range(_LOAD_ATTEMPTS):
            content = self.window_content()
            index = self.index()
            if content is None or not index.windows:
                raise NotFoundError("window in session", self.session_id, "start it with ContextWindow(...)")
            state = window_state(index, whole_lines(content))
            if state is not None:
                break
        if state is None:
            raise CorruptError(self.path(layout.WINDOW_FILE), WINDOW_CHANGED)
        return state

    def window_content(self) -> bytes | None:
        """Return the content of ``window.jsonl``; None if it is not there."""
        name = self.name(layout.WINDOW_FILE)
        return self.files.read(name) if self.files.exists(name) else None

    def messages(
        self,
        first: int = 0,
        end: int | None = None,
        *,
        on_damage: Callable[[CorruptError], None] | None = None,
    ) -> Iterator[ArchivedMessage]:
        """Yield the archived messages from *first* up to *end*, in order; fewer if fewer are committed.

        A batch whose bytes changed since the commit is skipped if there is an *on_damage*, which gets the error.

        Raises:
            NotFoundError: There is no such session.
            CorruptError: A batch is damaged, and there is no *on_damage*.
        """
        index = self.index()
        for batch in batches_between(index, first, end):
            content = self.content(batch)
            if content is not None:
                yield from (
                    m for m in messages_of(batch, content) if first <= m.number and (end is None or m.number < end)
                )
            elif self._is_torn_from(batch, index):
                return
            else:
                self._report(batch, on_damage)

    def with_payloads(self, message: ArchivedMessage) -> dict[str, Any]:
        """Return the JSON of an archived message with its payloads.

        Raises:
            CorruptError: A payload does not hold the stored bytes.
            StorageError: A payload is missing.
        """
        read = partial(payload_behind, self.files)
        value: dict[str, Any] = put_back(message.value, message.references, read)
        return value

    def line_ranges(self, first: int, end: int) -> tuple[tuple[int, int], ...]:
        """Return first and last transcript line of the messages from *first* up to *end*.

        Raises:
            NotFoundError: They are not all archived.
        """
        return line_ranges(self.index(), self.session_id, first, end)

    def transcript_lines(self, first: int, end: int) -> list[list[str]]:
        """Return the transcript's lines of the messages from *first* up to *end*; none if it is not whole."""
        files, name = self.files, self.name(layout.TRANSCRIPT_FILE)
        if files.size(name) is None:
            return []
        batches = batches_between(self.index(), first, end)
        return transcript_lines(batches, first, end, lambda offset, size_bytes: files.read(name, offset, size_bytes))

    def content(self, batch: Batch) -> bytes | None:
        """Return the batch's bytes in the archive; None when they are not what was committed."""
        byte_range = batch.byte_range
        try:
            found = self.files.read(self.name(layout.CONTEXT_FILE), byte_range.offset, sum(byte_range.sizes))
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            reason = f"is gone with the archived messages; {_RESTORE}"
            raise StorageError(error.errno, reason, error.filename) from error
        return found if byte_range.holds(found) else None

    def _is_torn_from(self, batch: Batch, index: Index) -> bool:
        """Return whether the next writer will set *batch* aside.

        Without syncs a power cut may take several batches; then all later ones are lost, too.
        """
        if index.may_be_torn(batch):
            return True
        if batch.byte_range.end <= index.proven.context or not index.may_be_torn(index.batches[-1]):
            return False
        return all(self.content(later) is None for later in batches_between(index, batch.end, None))

    def _report(self, batch: Batch, on_damage: Callable[[CorruptError], None] | None) -> None:
        what = f"messages {batch.first} to {batch.end - 1} (from byte {batch.byte_range.offset})"
        reason = f"{what} are not what was written; {_RESTORE}"
        damage = CorruptError(self.path(layout.CONTEXT_FILE), reason)
        if on_damage is None:
            raise damage
        on_damage(damage)

    def _check_owner(self) -> None:
        try:
            found = parse(self.files.read(self.name(layout.SESSION_FILE)))
        except MessageError as error:
            raise CorruptError(self.path(layout.SESSION_FILE), _OWNER_UNKNOWN) from error
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            reason = "is missing: another program began the directory, or the file was lost; take another session or"
            reason += " workdir, or restore the file with `buoyline repair --from`"
            raise CorruptError(self.path(layout.SESSION_FILE), reason) from error
        if not is_object(found) or found.get("id") != self.session_id:
            self._directory = None
            raise CorruptError(self.path(layout.SESSION_FILE), f"does not belong to session {self.session_id!r}")

    def _refresh_index(self, journal: File) -> None:
        identity, size, tail = journal.identity, journal.size(), self._index.tail
        if identity != self._indexed or journal.read(self._index.end - len(tail), len(tail)) != tail:
            if self._document is None or self._indexed is not None:
                self._check_owner()
            self._index, self._indexed = Index(), identity
        if size > self._index.end:
            self._index.absorb(journal.read(self._index.end, size - self._index.end))


def found_directory(files: Files, session_id: str) -> str | None:
    """Return the workspace-relative directory of a session; None if there is none.

    A directory without an owner counts, too, and so does a link or a file with its name: opening it reports the error.

    Raises:
        InvalidNameError: *session_id* cannot be an id.
    """
    for directory in layout.session_directories(session_id):
        if not files.exists(directory):
            continue
        owner = _owner(files, directory)
        # On a file system that ignores case, this may be the directory of another session.
        if owner == session_id or owner is None or layout.folded(owner) != layout.folded(session_id):
            return directory
    return None


def folded_names(files: Files) -> set[str]:
    """Return the names under ``sessions/``, folded."""
    return {layout.folded(name) for name in files.names(layout.SESSIONS)}


def free_directory(files: Files, session_id: str) -> str:
    """Return the directory that a new session gets; final only while `layout.SESSIONS_LOCK` is held."""
    return chosen_directory(session_id, folded_names(files))


def chosen_directory(session_id: str, taken: Collection[str]) -> str:
    """Return the directory of a new session, under a name that is not among the folded names *taken*."""
    *directories, last = layout.session_directories(session_id)
    return next((path for path in directories if layout.folded(path.rpartition("/")[2]) not in taken), last)


def is_directory_of(files: Files, session_id: str, directory: str) -> bool:
    """Return whether *directory*, whose ``session.json`` names *session_id*, is where that session belongs."""
    try:
        directories = layout.session_directories(session_id)
    except InvalidNameError:
        return False
    return directory == directories[0] or (directory in directories and found_directory(files, session_id) == directory)


def _owner(files: Files, directory: str) -> str | None:
    try:
        found = parse(files.read(f"{directory}/{layout.SESSION_FILE}"))
    except (MessageError, StorageError):
        return None
    owner = found.get("id") if is_object(found) else None
    return owner if isinstance(owner, str) else None


def sessions_in(
    files: Files, *, newest_first: bool = False, refused: dict[str, BuoylineError] | None = None
) -> Generator[StoredSession]:
    """Yield the sessions in *files* for reading, in the order of their directories, or the last active ones first.

    Each directory stays open until the next session is requested, which needs a third of the opens. If a directory does
    not say whose session it is, *refused* gets the reason. Without it, such a directory is skipped.

    Raises:
        StorageError: A file cannot be read, and *refused* is not given.
    """
    names = files.names(layout.SESSIONS)
    if not names:
        return
    with files.held(layout.SESSIONS) as sessions:
        if newest_first:
            names.sort(key=lambda name: _last_write_ns(sessions, name), reverse=True)
        for directory in (f"{layout.SESSIONS}/{name}" for name in names):
            if not sessions.is_directory(directory):
                continue
            with ExitStack() as opened:
                try:
                    held = opened.enter_context(sessions.held(directory))
                    document = _document_in(held, directory)
                except StorageError as error:
                    if refused is None:
                        raise
                    refused[directory] = error
                    continue
                except CorruptError as error:
                    if refused is not None:
                        refused[directory] = error
                    continue
                if document is not None:
                    yield _read_in(held, directory, document)


def _document_in(files: Files, directory: str) -> Mapping[str, Any] | None:
    """Return ``session.json``; None if *directory* is no session."""
    path = f"{directory}/{layout.SESSION_FILE}"
    if files.size(path) is None:
        if files.size(f"{directory}/{layout.JOURNAL_FILE}") is None:
            return None
        raise CorruptError(files.path(path), "is gone; restore it from a copy")
    with suppress(MessageError, KeyError, InvalidNameError):
        document = parse(files.read(path))
        if is_object(document):
            layout.session_directories(document["id"])  # refuses what cannot be an id
            return document
    raise CorruptError(files.path(path), _OWNER_UNKNOWN)


def _read_in(files: Files, directory: str, document: Mapping[str, Any]) -> StoredSession:
    session_id = document["id"]
    is_first = directory == layout.session_directories(session_id)[0]
    return StoredSession(files, session_id, document=document if is_first else None)


def _last_write_ns(files: Files, directory: str) -> int:
    status = files.status(f"{layout.SESSIONS}/{directory}/{layout.JOURNAL_FILE}")
    return 0 if status is None else status.st_mtime_ns
