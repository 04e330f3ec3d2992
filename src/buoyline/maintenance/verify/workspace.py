"""Checks a whole workspace, or some of its sessions."""

import errno
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from buoyline.errors import FORBIDDEN_ERRNOS, NotFoundError, StorageError
from buoyline.maintenance.verify.findings import IntegrityFinding, IntegrityReport, finding, in_order
from buoyline.maintenance.verify.inspection import (
    Inspection,
    Probe,
    document_in,
    faults_of,
    foreign,
    is_known_format,
    leftover,
    refusals,
    set_aside,
    unknown_format,
    unreadable,
)
from buoyline.maintenance.verify.session import inspected
from buoyline.messages.jsonl import is_object
from buoyline.workspace import Files, ReadableWorkspace, Status, layout
from buoyline.workspace.content import data_names
from buoyline.workspace.files import version_in
from buoyline.workspace.stored_session import found_directory

# Files of frameworks in ``storage/``: a key's content is compared with its facts. Source: docs/format.md, "storage/"
# and "Verify".
_ATTEMPTS = 3


def scopes_of(files: Files, names: Collection[str] | None) -> list[str]:
    """Return the directories of the scopes in ``storage/``; a directory without facts belongs to the agent.

    Args:
        files: The workspace.
        names: Of the scopes to check; None for all.

    Raises:
        StorageError: The file system refused.
    """
    if not files.is_directory(layout.ENTRIES):
        return []
    found = [f"{layout.ENTRIES}/{name}" for name in files.names(layout.ENTRIES) if names is None or name in names]
    return [directory for directory in found if files.is_directory(f"{directory}/{layout.ENTRY_FACTS}")]


def check_entries(files: Files, directory: str, probe: Probe, *, hashes: bool) -> list[IntegrityFinding]:
    """Check the scope in *directory*; with *hashes*, also the contents."""
    findings: list[IntegrityFinding] = []
    named = set[str]()
    with refusals(files, findings):
        before = files.entries(directory)  # first, so that a file that a writer adds meanwhile is no leftover
        for path in (directory, f"{directory}/{layout.ENTRY_FACTS}"):
            for name, status in files.entries(path).items():
                if name.startswith(layout.TEMPORARY_PREFIX):
                    findings.append(leftover(f"{path}/{name}"))
                elif name != layout.ENTRY_FACTS:
                    findings += faults_of(f"{path}/{name}", status)
        for name in files.names(f"{directory}/{layout.ENTRY_FACTS}"):
            facts = f"{directory}/{layout.ENTRY_FACTS}/{name}"
            findings += _checked(files, facts, probe, hashes=hashes)
            named.update(found["file"] for found in _facts(files, facts))
        for name in before:
            if name not in {*named, layout.ENTRY_FACTS} and files.size(f"{directory}/{name}") is not None:
                findings.append(finding("leftover", f"{directory}/{name}", "no key has this content; nobody reads it"))
    return findings


def _checked(
    files: Files, name: str, probe: Probe, *, hashes: bool, attempts: int = _ATTEMPTS
) -> list[IntegrityFinding]:
    """Check the content that the facts in file *name* describe; check again if a writer has replaced them since."""
    findings: list[IntegrityFinding] = []
    before = version_in(files, name)
    with refusals(files, findings):
        facts = next(_facts(files, name), None)
        if facts is None:
            reason = "describes no content; the key's content is lost, so restore it from a copy"
            findings += [] if files.size(name) is None else [finding("bad-record", name, reason)]
        else:
            content = f"{name.partition(f'/{layout.ENTRY_FACTS}/')[0]}/{facts['file']}"
            findings += _compared(files, content, facts, probe, hashes=hashes)
    if findings and attempts > 1 and version_in(files, name) != before:
        return _checked(files, name, probe, hashes=hashes, attempts=attempts - 1)
    return findings


def _compared(
    files: Files, name: str, facts: Mapping[str, Any], probe: Probe, *, hashes: bool
) -> Iterator[IntegrityFinding]:
    size_bytes = files.size(name)
    if size_bytes is None:
        yield finding("missing-file", name, f"is gone, and key {facts['key']!r} has it; restore it from a copy")
    elif size_bytes < facts["bytes"]:
        reason = f"has {size_bytes:,} bytes of the {facts['bytes']:,} that were written; restore it from a copy"
        yield finding("short-file", name, reason)
    elif size_bytes > facts["bytes"] or (hashes and probe.file(files, name).sha256 != facts["sha256"]):
        yield finding("changed-bytes", name, "is not what was written; restore it from a copy")


def _facts(files: Files, name: str) -> Iterator[Mapping[str, Any]]:
    """Yield the facts in file *name*, if they have a known form."""
    if files.size(name) is None:
        return
    with files.open(name) as handle:
        found = document_in(handle)
    if is_object(found) and isinstance(found.get("bytes"), int):
        texts = (found.get("key"), found.get("file"), found.get("sha256"))
        if all(isinstance(text, str) for text in texts) and "/" not in found["file"] and found["file"]:
            yield found


Entries = Mapping[str, Status]

Progress = Callable[[int, int], None]
"""Called with the bytes read so far, and the bytes to read."""

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
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
        sessions: Ids of the sessions to check, with the blobs and the keys of frameworks that belong to them; None for
            all.
        hashes: Read all files and compare them with their hashes, too. Otherwise only names, types, modes, sizes,
            journals and the existence of the files that they list are checked.
        on_progress: Called often while files are read.

    Returns:
        The findings; damage of any kind is never raised. Unknown files are reported only in buoyline's own directories.

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
        self._probe = Probe(self._tell if on_progress else None)
        self._findings: list[IntegrityFinding] = []
        self._references: dict[str, dict[str, str]] = {}  # what refers to a blob, by session

    def run(self) -> IntegrityReport:
        root = self._root()
        if not self._is_readable_format(root):
            return self._report(0, 0)
        self._check_root(root)
        sessions, scopes = self._sessions(), self._scopes()
        if self._on_progress is not None:
            self._total_bytes = self._bytes_to_read(sessions, scopes)
        count = 0
        for session in self._each_inspected(sessions):
            count += 1
            self._findings += session.findings
            for name, user in _references(session):
                self._references.setdefault(name, {}).setdefault(session.directory, user)
        for scope in scopes:
            self._findings += check_entries(self._files, scope, self._probe, hashes=self._hashes)
        return self._report(count, self._check_blobs())

    def _report(self, sessions: int, blobs: int) -> IntegrityReport:
        return IntegrityReport(in_order(self._findings), sessions, blobs, self._probe.bytes_read)

    def _tell(self, bytes_read: int) -> None:
        if self._on_progress is not None:
            # The total lacks bytes that a writer appends meanwhile, and bytes that are read twice.
            self._on_progress(min(bytes_read, self._total_bytes), self._total_bytes)

    def _root(self) -> Entries:
        root: Entries = {}
        try:
            root = self._files.entries("")
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
        if not root.keys() & {layout.WORKSPACE_FILE, layout.SESSIONS}:
            raise NotFoundError(
                "workspace", self._files.path(""), "name its directory with --workdir or BUOYLINE_WORKDIR"
            )
        return root

    def _is_readable_format(self, root: Entries) -> bool:
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
        if not is_known_format(version):
            self._findings.append(unknown_format(name, version))
        return not isinstance(version, int) or version <= layout.FORMAT

    def _check_root(self, root: Entries) -> None:
        status = self._files.status("")
        if status is not None and status.st_mode & _WRITABLE_BY_OTHERS:
            reason = f"has mode {status.st_mode & 0o777:04o}: others can put files in the place of these; chmod go-w it"
            self._findings.append(finding("open-workdir", ".", reason))
        for name, status in root.items():
            if name in _DIRECTORIES:
                self._findings += faults_of(name, status, is_directory=True)
            elif name.startswith(layout.TEMPORARY_PREFIX):
                self._findings.append(leftover(name))
        for name, status in self._entries(layout.LOCKS).items():
            self._findings += faults_of(f"{layout.LOCKS}/{name}", status)

    def _entries(self, directory: str) -> Entries:
        """List a directory of buoyline; empty if it is not a directory, which is reported already."""
        with refusals(self._files, self._findings):
            return self._files.entries(directory) if self._files.is_directory(directory) else {}
        return {}

    def _sessions(self) -> list[str]:
        """Return the directories of the sessions to check."""
        found = {f"{layout.SESSIONS}/{name}": status for name, status in self._entries(layout.SESSIONS).items()}
        if self._chosen is not None:
            for directory, session_id in self._chosen.items():
                if directory not in found:
                    raise NotFoundError("session", session_id, "`buoyline sessions` lists those there are")
            found = {directory: status for directory, status in found.items() if directory in self._chosen}
        return [directory for directory, status in found.items() if self._is_session(directory, status)]

    def _scopes(self) -> list[str]:
        """Return the directories of framework keys that belong to the sessions to check."""
        chosen = None if self._chosen is None else map(layout.entries_directory, self._chosen.values())
        names = None if chosen is None else {name.rpartition("/")[2] for name in chosen}
        with refusals(self._files, self._findings):
            return scopes_of(self._files, names)
        return []

    def _is_session(self, path: str, status: Status) -> bool:
        if path.removeprefix(f"{layout.SESSIONS}/").startswith(layout.TEMPORARY_PREFIX):
            self._findings.append(leftover(path))
            return False
        if stat.S_ISREG(status.st_mode):
            self._findings.append(foreign(path, "session"))
            return False
        self._findings += faults_of(path, status, is_directory=True)
        return stat.S_ISDIR(status.st_mode)

    def _each_inspected(self, directories: Sequence[str]) -> Iterator[Inspection]:
        if directories:
            with self._files.held(layout.SESSIONS) as sessions:
                for directory in directories:
                    session = self._inspected(sessions, directory)
                    if not _is_removed(sessions, directory):
                        yield session

    def _inspected(self, sessions: Files, directory: str, attempts: int = _ATTEMPTS) -> Inspection:
        before = self._journal_size(directory, sessions)
        with ExitStack() as stack:
            files = sessions
            # If it cannot be opened, each check in it reports why.
            with suppress(StorageError):
                files = stack.enter_context(sessions.held(directory))
            session = inspected(files, directory, self._probe, hashes=self._hashes)
        is_quiet = all(found.severity == "note" for found in session.findings)
        if is_quiet or attempts == 1 or self._journal_size(directory, sessions) == before:
            return session
        return self._inspected(sessions, directory, attempts - 1)

    def _journal_size(self, directory: str, files: Files) -> int | None:
        with refusals(files, []):
            return files.size(f"{directory}/{layout.JOURNAL_FILE}")
        return None

    def _check_blobs(self) -> int:
        """Check the files in ``data/``; return their number."""
        found = {f"{layout.DATA}/{name}": status for name, status in self._entries(layout.DATA).items()}
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
        if name.removeprefix(f"{layout.DATA}/").startswith(layout.TEMPORARY_PREFIX):
            self._findings.append(leftover(name))
            return False
        if name in {layout.RELEASED_FILE, layout.DATA_TORN}:
            self._findings += faults_of(name, status, is_directory=name == layout.DATA_TORN)
            return False
        if layout.blob_behind(layout.reference_to(name)) is None:
            self._findings.append(foreign(name, "blob"))
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

    def _bytes_to_read(self, sessions: Sequence[str], scopes: Sequence[str]) -> int:
        if not self._hashes:
            return sum(self._journal_size(directory, self._files) or 0 for directory in sessions)
        directories = [*sessions, *scopes, *([layout.DATA] if self._chosen is None else [])]
        return sum(
            status.st_size
            for directory in directories
            for status in self._entries(directory).values()
            if stat.S_ISREG(status.st_mode)
        )


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
