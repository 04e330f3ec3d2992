"""The state of a session's inspection, and the checks that every file has to pass."""

import hashlib
import re
import reprlib
import stat
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from buoyline.errors import FORBIDDEN_ERRNOS, MessageError, StorageError
from buoyline.maintenance.verify.findings import IntegrityFinding, finding
from buoyline.maintenance.verify.journal import Scan
from buoyline.messages.jsonl import parse
from buoyline.workspace import File, Files, Status, layout
from buoyline.workspace.index import Index

MAX_WHOLE_BYTES = 1 << 24
"""A part of a file up to 16 MiB is also held in memory, so that more than its hash can be checked."""

_CHUNK_BYTES = 1 << 20
_REFERENCE = re.compile(rb"data/[0-9a-f]{64}\.[a-z0-9]{1,8}")
_LONGEST_REFERENCE = len("data/") + 64 + len(".12345678")


class Part(NamedTuple):
    """The SHA-256 of a part of a file, and its bytes; None if they are more than `MAX_WHOLE_BYTES`."""

    sha256: str
    content: bytes | None


class Probe:
    """Reads files in chunks of 1 MiB, and keeps track of what it read.

    Attributes:
        bytes_read: So far.
        references: Names of blobs that occur anywhere in the bytes read. A framework may put a reference into a message
            itself, without a record in the journal.
    """

    def __init__(self, on_read: Callable[[int], None] | None = None) -> None:
        """Call *on_read* after each chunk with the bytes read so far."""
        self._on_read = on_read
        self.bytes_read = 0
        self.references: set[str] = set()

    def chunks(self, handle: File, offset: int = 0, size_bytes: int | None = None) -> Iterator[bytes]:
        """Yield *size_bytes* bytes from *offset*, or all bytes from there; fewer only at the end of the file."""
        rest = handle.size() - offset if size_bytes is None else size_bytes
        before = b""
        while rest > 0 and (chunk := handle.read(offset, min(rest, _CHUNK_BYTES))):
            offset += len(chunk)
            rest -= len(chunk)
            self._note(before + chunk, len(chunk))
            before = chunk[-_LONGEST_REFERENCE:]
            yield chunk

    def part(self, handle: File, offset: int, size_bytes: int) -> Part:
        """Hash a part of a file, and hold its bytes if it is small."""
        digest, kept = hashlib.sha256(), bytearray()
        is_small = size_bytes <= MAX_WHOLE_BYTES
        for chunk in self.chunks(handle, offset, size_bytes):
            digest.update(chunk)
            if is_small:
                kept += chunk
        return Part(digest.hexdigest(), bytes(kept) if is_small else None)

    def file(self, files: Files, name: str) -> Part:
        """Hash a whole file, and hold its bytes if it is small."""
        with files.open(name) as handle:
            return self.part(handle, 0, handle.size())

    def line_ends(self, handle: File, offset: int = 0, size_bytes: int | None = None) -> int:
        """Count the line ends in a part of a file."""
        return sum(chunk.count(b"\n") for chunk in self.chunks(handle, offset, size_bytes))

    def _note(self, content: bytes, new_bytes: int) -> None:
        if b"data/" in content:
            self.references.update(name.decode("ascii") for name in _REFERENCE.findall(content))
        self.bytes_read += new_bytes
        if self._on_read is not None:
            self._on_read(self.bytes_read)


_PERMISSIONS = 0o777
_DIRECTORY_MODE = 0o700
_FILE_MODE = 0o600
_MAX_DOCUMENT_BYTES = 1 << 20
_TYPES = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
}


class Inspection:
    """One session under inspection.

    Attributes:
        directory: Of the session, relative to the workspace.
        hashes: Read the files' contents, too, and not only their sizes.
        probe: Reads files.
        scan: The journal.
        entries: Of the directory, listed after the journal was read. So all files that the journal names are among
            them, even if a writer is at work.
        findings: In the order in which they were made.
    """

    def __init__(self, files: Files, directory: str, probe: Probe, *, hashes: bool) -> None:
        """Inspect *directory* of *files*."""
        self.directory = directory
        self.hashes = hashes
        self.probe = probe
        self.files = files
        self.scan = Scan(self.path(layout.JOURNAL_FILE))
        self.entries: Mapping[str, Status] = {}
        self.findings: list[IntegrityFinding] = []

    @property
    def index(self) -> Index:
        """The index of the journal."""
        return self.scan.index

    def path(self, name: str) -> str:
        """Return the path of the session's file *name*, relative to the workspace."""
        return f"{self.directory}/{name}"

    def size(self, name: str) -> int | None:
        """Return the size of the session's file *name*; None if it is not a regular file."""
        status = self.entries.get(name)
        return status.st_size if status is not None and stat.S_ISREG(status.st_mode) else None

    def add(self, kind: str, name: str, message: str, *, line: int | None = None, offset: int | None = None) -> None:
        """Add a finding about the session's file *name*."""
        self.findings.append(finding(kind, self.path(name), message, line=line, offset=offset))

    def open(self, name: str) -> AbstractContextManager[File]:
        """Open the session's file *name* for reading."""
        return self.files.open(self.path(name))

    def refusals(self) -> AbstractContextManager[None]:
        """Turn a refusal of the file system within the block into a finding, and go on behind the block."""
        return refusals(self.files, self.findings)


@contextmanager
def refusals(files: Files, findings: list[IntegrityFinding]) -> Generator[None]:
    """Add a finding to *findings* if the file system refuses within the block, and go on behind the block."""
    try:
        yield
    except StorageError as error:
        findings.append(unreadable(files, error))


def unreadable(files: Files, error: StorageError) -> IntegrityFinding:
    """Return a finding for a file that the file system refuses to show."""
    path = str(error.filename).removeprefix(files.path("")).removeprefix("/")
    way_out = "; run this command as its owner" if error.errno in FORBIDDEN_ERRNOS else ""
    return finding("unreadable", path, f"cannot be read: {error.strerror}{way_out}")


def faults_of(path: str, status: Status, *, is_directory: bool = False) -> list[IntegrityFinding]:
    """Check type and mode of a file or directory of buoyline.

    Args:
        path: Relative to the workspace.
        status: Of the entry itself; links are not followed.
        is_directory: It should be a directory.
    """
    expected, mode = (stat.S_IFDIR, _DIRECTORY_MODE) if is_directory else (stat.S_IFREG, _FILE_MODE)
    found = stat.S_IFMT(status.st_mode)
    if found != expected:
        reason = f"is a {_TYPES.get(found, 'device')} where a {_TYPES[expected]} belongs; move it away"
        return [finding("file-type", path, reason)]
    permissions = status.st_mode & _PERMISSIONS
    if permissions != mode:
        reason = f"has mode {permissions:04o} instead of {mode:04o}; set it with chmod"
        return [finding("wrong-mode", path, reason)]
    return []


def leftover(path: str) -> IntegrityFinding:
    """Return a finding for an unfinished file, whose name begins with ``.tmp-``."""
    return finding("leftover", path, "is unfinished: a writer is at work, or a crash left it; nobody reads it")


def set_aside(files: Files, directory: str) -> Iterator[IntegrityFinding]:
    """Yield a finding for each entry of the ``torn/`` called *directory*; none if there is no such directory.

    Raises:
        StorageError: It cannot be listed.
    """
    if not files.is_directory(directory):
        return
    for name, status in files.entries(directory).items():
        path = f"{directory}/{name}"
        if name.startswith(layout.TEMPORARY_PREFIX):
            yield leftover(path)
        else:
            yield from faults_of(path, status)
            reason = f"{status.st_size:,} bytes were set aside; nobody reads them, but look before you delete them"
            yield finding("torn-bytes", path, reason)


def foreign(path: str, kind: str) -> IntegrityFinding:
    """Return a finding for a *path* that is not a *kind*, though it is among them."""
    return finding("foreign-entry", path, f"is not a {kind} of buoyline, and was ignored; nothing here needs it")


def document_in(handle: File) -> object:
    """Return the JSON value of a small file; None if it holds none."""
    try:
        return parse(handle.read(0, _MAX_DOCUMENT_BYTES))
    except MessageError:
        return None


def is_known_format(version: object) -> bool:
    """Return whether this version of buoyline reads format *version*."""
    return isinstance(version, int) and not isinstance(version, bool) and 1 <= version <= layout.FORMAT


def unknown_format(path: str, version: object) -> IntegrityFinding:
    """Return a finding for a file that names an unknown format."""
    if version is None:
        return finding("format", path, 'is damaged (no "format" key); restore it with `buoyline repair --from BACKUP`')
    reason = f"has format {reprlib.repr(version)}, and this buoyline reads {layout.FORMAT} and older"
    return finding("format", path, f"{reason}; upgrade buoyline, or restore the file from a copy")
