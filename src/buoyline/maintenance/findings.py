"""What `verify` reports."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

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
