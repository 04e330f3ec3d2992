"""The findings and the report of a verification, and the findings that several checks make.

Source: docs/format.md, "Verify".
"""

import reprlib
import stat
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from buoyline.errors import FORBIDDEN_ERRNOS, MessageError, StorageError
from buoyline.messages.jsonl import parse
from buoyline.workspace import File, Files, Status, layout

Severity: TypeAlias = Literal["damage", "warning", "note"]

SEVERITIES: Final[tuple[Severity, ...]] = ("damage", "warning", "note")
"""The worst first. Damage: committed data is missing or altered. Warning: no known loss, but somebody should look.
Note: harmless leftovers of crashes and daily use."""

KINDS: Final[Mapping[str, Severity]] = MappingProxyType(
    {
        "format": "damage",
        "owner": "damage",
        "file-type": "damage",
        "unreadable": "damage",
        "missing-file": "damage",
        "short-file": "damage",
        "changed-bytes": "damage",
        "bad-record": "damage",
        "bad-line": "damage",
        "gap": "damage",
        "missing-messages": "damage",
        "missing-result": "damage",
        "lost-facts": "damage",
        "missing-blob": "damage",
        "dangling-stub": "damage",
        "dangling-pointer": "damage",
        "bad-last-record": "warning",
        "unfinished-batch": "warning",
        "stale-transcript": "warning",
        "stale-view": "warning",
        "orphan-view": "warning",
        "unrecorded-window": "warning",
        "torn-tail": "note",
        "torn-transcript": "note",
        "torn-bytes": "note",
        "unchecked-lines": "note",
        "leftover": "note",
        "unrecorded-result": "note",
        "unreferenced-blob": "note",
    }
)
"""Every kind of finding, with its severity; docs/format.md explains them."""


@dataclass(frozen=True, slots=True)
class IntegrityFinding:
    """Something that is wrong or worth knowing, and what to do about it.

    *path* is relative to the workspace; *line* (1-based) and *offset* (0-based) are set if the finding has a place in
    it.
    """

    severity: Severity
    kind: str
    path: str
    message: str
    line: int | None = None
    offset: int | None = None


def finding(
    kind: str, path: str, message: str, *, line: int | None = None, offset: int | None = None
) -> IntegrityFinding:
    """Return a finding of *kind*, which decides its severity."""
    return IntegrityFinding(KINDS[kind], kind, path, message, line, offset)


@dataclass(frozen=True, slots=True)
class IntegrityReport:
    """The findings, each once, the worst first, then by path and place; and how much was checked."""

    findings: tuple[IntegrityFinding, ...]
    sessions: int
    blobs: int
    bytes_read: int

    @property
    def is_sound(self) -> bool:
        """Whether there is neither damage nor a warning."""
        return all(found.severity == "note" for found in self.findings)

    def count(self, severity: Severity) -> int:
        """Return the number of findings of *severity*."""
        return sum(found.severity == severity for found in self.findings)


def in_order(findings: list[IntegrityFinding]) -> tuple[IntegrityFinding, ...]:
    """Return *findings* in the order of a report, each once."""

    def rank(found: IntegrityFinding) -> tuple[int, str, int, int, str, str]:
        place = found.offset or 0, found.line or 0
        return SEVERITIES.index(found.severity), found.path, *place, found.kind, found.message

    return tuple(sorted(dict.fromkeys(findings), key=rank))


_MAX_DOCUMENT_BYTES = 1 << 20
_TYPES = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
}


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


def leftover(path: str) -> IntegrityFinding:
    """Return a finding for an unfinished file, whose name begins with ``.tmp-``."""
    return finding("leftover", path, "is unfinished: a writer is at work, or a crash left it; nobody reads it")


def faults_of(path: str, status: Status, *, is_directory: bool = False) -> list[IntegrityFinding]:
    """Check the type of a file or directory of buoyline, itself: links are not followed."""
    expected = stat.S_IFDIR if is_directory else stat.S_IFREG
    found = stat.S_IFMT(status.st_mode)
    if found == expected:
        return []
    reason = f"is a {_TYPES.get(found, 'device')} where a {_TYPES[expected]} belongs; move it away"
    return [finding("file-type", path, reason)]


def faults_of_format(path: str, version: object) -> list[IntegrityFinding]:
    """Check that this version of buoyline reads the format *version* that a file names; None if it names none."""
    if isinstance(version, int) and not isinstance(version, bool) and 1 <= version <= layout.FORMAT:
        return []
    if version is None:
        reason = 'is damaged (no "format" key); restore it with `buoyline repair --from BACKUP`'
    else:
        newest = f"has format {reprlib.repr(version)}, and this buoyline reads {layout.FORMAT} and older"
        reason = f"{newest}; upgrade buoyline, or restore the file from a copy"
    return [finding("format", path, reason)]


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


def document_in(handle: File) -> object:
    """Return the JSON value of a small file; None if it holds none."""
    try:
        return parse(handle.read(0, _MAX_DOCUMENT_BYTES))
    except MessageError:
        return None
