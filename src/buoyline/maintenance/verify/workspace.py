"""Checks a whole workspace, or some of its sessions."""

import errno
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress

from buoyline.errors import FORBIDDEN_ERRNOS, NotFoundError, StorageError
from buoyline.maintenance.verify.findings import (
    IntegrityFinding,
    IntegrityReport,
    document_in,
    faults_of,
    faults_of_format,
    finding,
    in_order,
    leftover,
    refusals,
    set_aside,
    unreadable,
)
from buoyline.maintenance.verify.session import Inspection, Probe, inspected
from buoyline.messages.jsonl import is_object
from buoyline.workspace import Files, ReadableWorkspace, Status, layout
from buoyline.workspace.content import data_names
from buoyline.workspace.stored_session import found_directory

Progress = Callable[[int, int], None]
"""Called with the bytes read so far, and the bytes to read."""

_ATTEMPTS = 3
_DIRECTORIES = (layout.SESSIONS, layout.DATA, layout.LOCKS)


def verify(
    workspace: ReadableWorkspace,
    *,
    sessions: Sequence[str] | None = None,
    hashes: bool = True,
    on_progress: Progress | None = None,
) -> IntegrityReport:
    """Check the integrity of a workspace. Blocks, reads only, and follows no link.

    Other processes may write meanwhile: if a session shows a problem and has changed since, it is checked again. A
    session that is removed meanwhile is not reported.

    Args:
        workspace: The workspace to check.
        sessions: Ids of the sessions to check, with the blobs that they refer to; None for all.
        hashes: Read all files and compare them with their hashes, too. Otherwise only names, types, sizes,
            journals and the existence of the files that they list are checked.
        on_progress: Called often while files are read.

    Returns:
        The findings; damage of any kind is never raised. Files that are not buoyline's are not checked.

    Raises:
        NotFoundError: There is no workspace, or it lacks one of *sessions*.
        InvalidNameError: One of *sessions* cannot be an id.
        StorageError: The directory of the workspace cannot be listed, or this user may not read the workspace.
    """
    return _Verification(workspace.files, sessions, hashes=hashes, on_progress=on_progress).run()


class _Verification:
    def __init__(
        self, files: Files, sessions: Sequence[str] | None, *, hashes: bool, on_progress: Progress | None
    ) -> None:
        self._files = files
        self._chosen = None if sessions is None else {found_directory(files, name): name for name in sessions}
        self._hashes = hashes
        self._on_progress = on_progress
        self._total_bytes = 0
        self._probe = Probe(self._on_read if on_progress else None)
        self._findings: list[IntegrityFinding] = []
        self._references: dict[str, dict[str, str]] = {}  # what refers to a blob, by session

    def run(self) -> IntegrityReport:
        root: Mapping[str, Status] = {}
        try:
            root = self._files.entries("")
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
        if not root.keys() & {layout.WORKSPACE_FILE, layout.SESSIONS}:
            raise NotFoundError(
                "workspace", self._files.path(""), "name its directory with --workdir or BUOYLINE_WORKDIR"
            )
        sessions = blobs = 0
        if self._is_readable_format(root):
            self._check_root(root)
            sessions = self._check_sessions()
            blobs = self._check_blobs()
        return IntegrityReport(in_order(self._findings), sessions, blobs, self._probe.bytes_read)

    def _on_read(self, bytes_read: int) -> None:
        if self._on_progress is not None:
            # The total lacks bytes that a writer appends meanwhile, and bytes that are read twice.
            self._on_progress(min(bytes_read, self._total_bytes), self._total_bytes)

    def _is_readable_format(self, root: Mapping[str, Status]) -> bool:
        """Check ``workspace.json``; return whether to check the rest, which a newer format may have changed."""
        name = layout.WORKSPACE_FILE
        if name not in root:
            self._findings.append(finding("missing-file", name, "is gone; the next writer makes a new one"))
            return True
        self._findings += faults_of(name, root[name])
        if not stat.S_ISREG(root[name].st_mode):
            return True
        try:
            with self._files.open(name) as handle:
                found = document_in(handle)
        except StorageError as error:
            if error.errno in FORBIDDEN_ERRNOS:  # every file is its owner's alone: all of them would be refused
                raise
            self._findings.append(unreadable(self._files, error))
            return True
        version = found.get("format") if is_object(found) else None
        self._findings += faults_of_format(name, version)
        return not isinstance(version, int) or version <= layout.FORMAT

    def _check_root(self, root: Mapping[str, Status]) -> None:
        for name, status in root.items():
            if name in _DIRECTORIES:
                self._findings += faults_of(name, status, is_directory=True)
            elif name.startswith(layout.TEMPORARY_PREFIX):
                self._findings.append(leftover(name))
        for name, status in self._entries(layout.LOCKS).items():
            self._findings += faults_of(name, status)

    def _entries(self, directory: str) -> dict[str, Status]:
        """Return the entries of a directory of buoyline by path; none if it is no directory, which is reported."""
        with refusals(self._files, self._findings):
            if self._files.is_directory(directory):
                return {f"{directory}/{name}": status for name, status in self._files.entries(directory).items()}
        return {}

    def _check_sessions(self) -> int:
        """Check sessions; return their number."""
        sessions = self._session_directories()
        if self._on_progress is not None:
            self._total_bytes = self._bytes_to_read(sessions)
        count = 0
        for session in self._each_inspected(sessions):
            count += 1
            self._findings += session.findings
            for name, user in _references(session):
                self._references.setdefault(name, {}).setdefault(session.directory, user)
        return count

    def _session_directories(self) -> list[str]:
        found = self._entries(layout.SESSIONS)
        if self._chosen is not None:
            for directory, session_id in self._chosen.items():
                if directory not in found:
                    raise NotFoundError("session", session_id, "`buoyline sessions` lists those there are")
            found = {directory: status for directory, status in found.items() if directory in self._chosen}
        sessions: list[str] = []
        for path, status in found.items():
            if path.startswith(f"{layout.SESSIONS}/{layout.TEMPORARY_PREFIX}"):
                self._findings.append(leftover(path))
            elif not stat.S_ISREG(status.st_mode):  # a file there belongs to somebody else
                self._findings += faults_of(path, status, is_directory=True)
                if stat.S_ISDIR(status.st_mode):
                    sessions.append(path)
        return sessions

    def _bytes_to_read(self, sessions: Sequence[str]) -> int:
        if not self._hashes:
            return sum(self._journal_size(directory, self._files) or 0 for directory in sessions)
        directories = [*sessions, *([layout.DATA] if self._chosen is None else [])]
        statuses = (status for directory in directories for status in self._entries(directory).values())
        return sum(status.st_size for status in statuses if stat.S_ISREG(status.st_mode))

    def _each_inspected(self, directories: Sequence[str]) -> Iterator[Inspection]:
        if directories:
            with self._files.held(layout.SESSIONS) as sessions:
                for directory in directories:
                    session = self._inspected(sessions, directory)
                    if not _is_removed(sessions, directory):
                        yield session

    def _inspected(self, sessions: Files, directory: str) -> Inspection:
        """Inspect a session, again if it has a problem and a writer has changed it since."""
        attempts = 0
        while True:
            attempts += 1
            before = self._journal_size(directory, sessions)
            with ExitStack() as held:
                files = sessions
                # If it cannot be opened, each check in it reports why.
                with suppress(StorageError):
                    files = held.enter_context(sessions.held(directory))
                session = inspected(files, directory, self._probe, hashes=self._hashes)
            is_quiet = all(found.severity == "note" for found in session.findings)
            if is_quiet or attempts == _ATTEMPTS or self._journal_size(directory, sessions) == before:
                return session

    def _journal_size(self, directory: str, files: Files) -> int | None:
        with suppress(StorageError):
            return files.size(f"{directory}/{layout.JOURNAL_FILE}")
        return None

    def _check_blobs(self) -> int:
        """Check the files in ``data/``; return their number."""
        found = self._entries(layout.DATA)
        for name in self._references.keys() - found.keys():
            users = self._references[name].items()
            # gc removes a session before the blobs that only it refers to.
            missed = next((each for each in users if not _is_removed(self._files, each[0])), None)
            if missed is not None:
                reason = f"is gone, and {missed[1]} of {missed[0]} refers to it; restore it from a copy"
                self._findings.append(finding("missing-blob", name, reason))
        if self._chosen is not None:
            found = {name: status for name, status in found.items() if name in self._references}
        elif layout.DATA_TORN in found:
            with refusals(self._files, self._findings):
                self._findings += set_aside(self._files, layout.DATA_TORN)
        return sum(self._is_blob(name, status) for name, status in found.items())

    def _is_blob(self, name: str, status: Status) -> bool:
        """Check an entry of ``data/``; return whether it is a blob by its name."""
        if name.startswith(f"{layout.DATA}/{layout.TEMPORARY_PREFIX}"):
            self._findings.append(leftover(name))
            return False
        if name == layout.DATA_TORN:
            self._findings += faults_of(name, status, is_directory=True)
            return False
        if layout.blob_behind(layout.reference_to(name)) is None:
            return False
        self._findings += faults_of(name, status)
        if stat.S_ISREG(status.st_mode) and self._hashes:
            try:
                self._check_blob(name)
            except StorageError as error:
                if error.errno != errno.ENOENT:  # else gc removed it meanwhile
                    self._findings.append(unreadable(self._files, error))
        return True

    def _check_blob(self, name: str) -> None:
        is_known = name in self._references or name in self._probe.references
        if not name.startswith(f"{layout.DATA}/{self._probe.file(self._files, name).sha256}."):
            reason = "is not what its name, the SHA-256 of its bytes, says; restore it from a copy"
            self._findings.append(finding("changed-bytes", name, reason))
        if not is_known and self._chosen is None:
            reason = "no session refers to it; a block that was stored alone may be in use elsewhere"
            self._findings.append(finding("unreferenced-blob", name, reason))


def _is_removed(files: Files, directory: str) -> bool:
    with suppress(StorageError):  # it may be there
        return not files.is_directory(directory)
    return False


def _references(session: Inspection) -> Iterator[tuple[str, str]]:
    """Yield each blob in the journal, with the message or result that refers to it."""
    for batch in session.index.batches:
        for position, reference in batch.references:
            name = layout.blob_behind(reference.reference)
            if name is not None:
                yield name, f"message {batch.first + position}"
    for result, record in session.index.results.items():
        for name in data_names(record):
            yield name, result
