"""The findings and the report of a verification. Source: docs/format.md, "Verify"."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

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
        "wrong-mode": "warning",
        "torn-tail": "note",
        "torn-transcript": "note",
        "torn-bytes": "note",
        "unchecked-lines": "note",
        "open-workdir": "note",
        "leftover": "note",
        "unrecorded-result": "note",
        "unreferenced-blob": "note",
        "foreign-entry": "note",
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
