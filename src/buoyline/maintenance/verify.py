"""`verify`: reads every file of a workspace once and reports which bytes are not what was written.

It changes nothing and may run while agents work: the sizes of a session's files are noted under its lock, and what
comes after them is left out. Source: docs/format.md, "Verify".
"""

import errno
import hashlib
import re
import zlib
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from buoyline.errors import BuoylineError, CorruptError, FormatVersionError, NotFoundError, StorageError
from buoyline.messages.jsonl import is_object, parse
from buoyline.messages.registry import dialect_names
from buoyline.offloader.protocol import StoredFile
from buoyline.workspace import layout
from buoyline.workspace.disk import Disk
from buoyline.workspace.documents import check_workspace, document_names, read_document
from buoyline.workspace.session import Session, session_id_in
from buoyline.workspace.state import stored_from_json
from buoyline.workspace.workspace import Workspace

Severity: TypeAlias = Literal["damage", "note"]

DAMAGE: Final = ("bad-line", "missing", "changed", "dangling-citation", "unreadable", "format")
"""Kinds of damage: bytes that were acknowledged are gone, or are not what was written."""

NOTES: Final = ("torn", "leftover", "unnamed-result", "unreferenced-blob", "unknown-dialect")
"""Kinds that a crash leaves, or time: nothing is lost."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One place that is not as it should be.

    Attributes:
        kind: One of `DAMAGE` or `NOTES`.
        path: The file, relative to the workdir.
        message: What is wrong there.
        line: Of the file, 1-based; 0 if it is about the whole file.
        session_id: Of the session; empty for files that sessions share.
    """

    kind: str
    path: str
    message: str
    line: int = 0
    session_id: str = ""

    @property
    def severity(self) -> Severity:
        """Return whether something is lost."""
        return "damage" if self.kind in DAMAGE else "note"

    def __str__(self) -> str:
        """Return the finding on one line."""
        return f"{self.severity} {self.kind} {self.path}{f':{self.line}' if self.line else ''}: {self.message}"


@dataclass(frozen=True, slots=True)
class IntegrityReport:
    """What `verify` found in how much."""

    findings: tuple[Finding, ...]
    sessions: int
    blobs: int
    bytes_read: int

    @property
    def is_sound(self) -> bool:
        """Return whether nothing is damaged."""
        return not any(finding.severity == "damage" for finding in self.findings)


LOCK_TIMEOUT_S = 5.0

DIGEST = re.compile(rb"data[\\]?/([0-9a-f]{64})")
"""The name of a payload in any file, however its ``/`` is spelled."""

OnProgress = Callable[[int], None]


class Named(NamedTuple):
    """What a session names beside its logs.

    Attributes:
        files: Bytes and CRC of each file, by its name within the session.
        blobs: Names of its payloads, relative to the workdir.
        mentioned: The beginnings of all names of payloads that stand anywhere in it.
    """

    files: dict[str, tuple[int, str]]
    blobs: set[str]
    mentioned: set[str]


def verify(
    workspace: Workspace, sessions: Collection[str] | None = None, *, on_progress: OnProgress | None = None
) -> IntegrityReport:
    """Check a workspace: logs, results, views, arguments, transcripts, citations and payloads.

    Args:
        workspace: On disk, or in memory.
        sessions: Ids of the sessions to check; all by default. Unreferenced payloads are then not looked for.
        on_progress: Called with the bytes of each piece that was read.

    Raises:
        NotFoundError: There is no workspace, or one of the *sessions* is not in it.
        FormatVersionError: It has another format.
    """
    disk = workspace.disk
    check = _Check(disk, on_progress or (lambda _: None))
    try:
        check_workspace(disk)
    except CorruptError as error:
        check.note("format", layout.WORKSPACE, error.reason)
    except StorageError as error:
        check.note("unreadable", layout.WORKSPACE, str(error))
    wanted = directories_of(disk, sessions)
    for directory in wanted:
        try:
            check.session(directory)
        except StorageError as error:
            check.note("unreadable", directory, str(error))
    check.session_id = ""
    if sessions is None:
        check.documents()
    check.data(is_whole=sessions is None)
    return IntegrityReport(tuple(check.findings), len(wanted), check.blobs, check.bytes_read)


def directories_of(disk: Disk, sessions: Collection[str] | None = None) -> list[str]:
    """Return the directories of the *sessions*, or of all.

    Raises:
        NotFoundError: One of them is not there.
    """
    if sessions is None:
        names = (f"{layout.SESSIONS}/{name}" for name in disk.entries(layout.SESSIONS))
        return [name for name in names if (found := disk.status(name)) and found.is_directory]
    for session_id in sessions:
        if disk.status(layout.session_directory(session_id)) is None:
            raise NotFoundError("session", session_id, "`buoyline sessions` lists those there are")
    return [layout.session_directory(session_id) for session_id in sessions]


class _Check:
    def __init__(self, disk: Disk, on_progress: OnProgress) -> None:
        self._disk, self._on_progress = disk, on_progress
        self.findings: list[Finding] = []
        self.blobs = self.bytes_read = 0
        self._referenced: dict[str, str] = {}  # payload: the first file that refers to it
        self._mentioned: set[str] = set()
        self.session_id = ""

    def note(self, kind: str, path: str, message: str, line: int = 0) -> None:
        self.findings.append(Finding(kind, path, message, line, self.session_id))

    def session(self, directory: str) -> None:
        """Check a session."""
        self.session_id = session_id_in(self._disk, directory)
        session = session_in(self._disk, directory)
        sizes: dict[str, int] = {}
        try:
            with _still(self._disk, f"{directory}/{layout.CONTEXT}"):
                sizes = {f"{directory}/{name}": self._size(f"{directory}/{name}") for name in layout.SESSION_FILES}
                session.load()
        except CorruptError as error:
            self.note("missing", f"{directory}/{layout.CONTEXT}", error.reason)
        except FormatVersionError as error:
            self.note("format", f"{directory}/{layout.STATE}", str(error))
            return
        for damage in session.damage():
            if damage.is_torn and damage.offset >= sizes[damage.file]:
                continue  # somebody is writing it
            kind = "torn" if damage.is_torn else "bad-line"
            text = f"{damage.size:,} bytes from offset {damage.offset:,} are not what was written"
            torn = f"{damage.size:,} bytes of a write that did not end; the next one sets them aside"
            self.note(kind, damage.file, torn if damage.is_torn else text, damage.number + 1)
        named = named_by(session)
        for name, (size_bytes, crc) in named.files.items():
            self._file(f"{directory}/{name}", size_bytes, crc)
        recorded = session.state.transcript
        self._file(f"{directory}/{layout.TRANSCRIPT}", recorded.length, recorded.crc, may_be_longer=True)
        self._summaries(session)
        for dialect in sorted({line.facts.get("dialect", "") for line in session.lines()} - {"", *dialect_names()}):
            text = f"messages of the dialect {dialect!r}, which is not registered here; a program that reads them does"
            self.note("unknown-dialect", f"{directory}/{layout.CONTEXT}", text)
        for name in self._disk.entries(directory, unfinished=True):
            if name.startswith(layout.TEMPORARY):
                self.note("leftover", f"{directory}/{name}", "a file that was never finished; gc removes it")
            elif layout.is_stored_name(name) and name not in named.files:
                self.note("unnamed-result", f"{directory}/{name}", "no message names it; gc removes it after a day")
        self._referenced |= dict.fromkeys(named.blobs, directory)
        self._mentioned |= named.mentioned

    def documents(self) -> None:
        """Check that each document is JSON."""
        for name in document_names(self._disk):
            try:
                parse(read_document(self._disk, name))
            except BuoylineError as error:
                self.note("format", layout.document_name(name), f"is not JSON: {error}")

    def data(self, *, is_whole: bool) -> None:
        """Check the payloads that are there against their names, and those that should be there for being there."""
        there = {f"{layout.DATA}/{name}" for name in self._disk.entries(layout.DATA)}
        blobs = {name for name in there if layout.blob_behind(layout.reference_to(name))}
        for name in sorted(self._referenced.keys() - blobs):
            self.note("missing", name, f"{self._referenced[name]} refers to it; restore it from a copy")
        for name in sorted(blobs if is_whole else blobs & self._referenced.keys()):
            self.blobs += 1
            digest = hashlib.sha256()
            if self._is_read(name, digest.update) and not name.startswith(f"{layout.DATA}/{digest.hexdigest()}."):
                self.note("changed", name, "its bytes do not match its name; restore it from a copy")
            if is_whole and name not in self._referenced and name.partition(".")[0] not in self._mentioned:
                self.note("unreferenced-blob", name, "no session refers to it; `buoyline gc --unowned` removes it")

    def _file(self, path: str, size_bytes: int, crc: str, *, may_be_longer: bool = False) -> None:
        found, left = 0, size_bytes

        def take(chunk: bytes) -> None:
            nonlocal found, left
            found = zlib.crc32(chunk[: max(left, 0)], found)
            left -= len(chunk)

        if self._is_read(path, take) and (f"{found:08x}" != crc or left > 0 or (left < 0 and not may_be_longer)):
            self.note("changed", path, "is not what was written; restore it from a copy")

    def _is_read(self, path: str, take: Callable[[bytes], Any]) -> bool:
        try:
            for chunk in self._disk.chunks(path):
                take(chunk)
                self.bytes_read += len(chunk)
                self._on_progress(len(chunk))
        except StorageError as error:
            is_gone = error.errno == errno.ENOENT
            self.note("missing" if is_gone else "unreadable", path, "is gone" if is_gone else str(error))
            return False
        return True

    def _size(self, name: str) -> int:
        found = self._disk.status(name)
        return found.size if found else 0

    def _summaries(self, session: Session) -> None:
        """Check that each citation leads to lines that are there."""
        summaries = session.summaries()
        missing = {*range(session.state.named_summaries)} - {summary["n"] for summary in summaries}
        path = f"{session.name}/{layout.SUMMARIES}"
        for number in sorted(missing):
            self.note("missing", path, f"summary {number} is damaged or gone", number + 1)
        for summary in summaries:
            for pointer in summary.get("pointers", ()):
                if is_object(pointer) and pointer.get("path") == layout.TRANSCRIPT:
                    end = pointer.get("end")
                    if not isinstance(end, int) or end > session.state.transcript.lines:
                        text = f"cites {layout.TRANSCRIPT}:{pointer.get('start')}-{end}, which is not there"
                        self.note("dangling-citation", path, text, summary["n"] + 1)


@contextmanager
def _still(disk: Disk, name: str) -> Generator[None]:
    """Hold a session's lock during the block, if the file system lets one: a folder may be there only to be read."""
    with ExitStack() as held:
        with suppress(StorageError):
            held.enter_context(disk.locked(name, LOCK_TIMEOUT_S))
        yield


def session_in(disk: Disk, directory: str) -> Session:
    """Return the session in *directory*, whose first record may be damaged or missing; not loaded."""
    session = Session(disk, session_id_in(disk, directory) or directory.rpartition("/")[2])
    session.name = directory
    return session


def named_by(session: Session) -> Named:
    """Return the files and payloads that the lines and records of a loaded session name."""
    files = list[StoredFile]()
    named = Named({}, set(), set())
    for line in (*session.lines(), *session.records()):
        named.mentioned.update(f"{layout.DATA}/{digest.decode()}" for digest in DIGEST.findall(line.raw))
        for stored in stored_from_json(line.facts.get("stored", {})).values():
            files += stored
        named.blobs.update(
            filter(None, (layout.blob_behind(reference) for *_, reference in line.facts.get("refs", ())))
        )
    for result in session.state.results.values():
        files += (StoredFile(*file) for file in result.get("files", ()))
    for file in files:
        if file.name.startswith(f"{layout.DATA}/"):
            named.blobs.add(file.name)
        else:
            named.files[file.name] = file.size_bytes, file.crc
    return named


def walk(disk: Disk, directory: str) -> Iterator[str]:
    """Yield the names of all regular files below *directory*, unfinished ones too; links are not followed."""
    for name in disk.entries(directory, unfinished=True):
        path = f"{directory}/{name}" if directory else name
        found = disk.status(path)
        if found is not None and found.is_directory:
            yield from walk(disk, path)
        elif found is not None and found.is_file:
            yield path
