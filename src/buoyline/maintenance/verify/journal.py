"""Checks the records of a journal one by one. Pure: lines in, findings out.

`Index.absorb` expects a journal that buoyline wrote. `Scan` takes any bytes, reports the bad lines, and adds the good
ones to the same index.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from buoyline.maintenance.verify.findings import IntegrityFinding, finding
from buoyline.workspace.index import Index
from buoyline.workspace.journal import Record, decode, synced_before
from buoyline.workspace.shapes import fault_of

MAX_LINE_BYTES = 1 << 25
"""No record comes near 32 MiB; a file without line ends must not fill the memory."""

_BAD_LAST_RECORD = (
    "the journal ends in bytes that are not a record, after a power cut or by damage; the next writer sets them aside "
    "in torn/, so compare with a copy first"
)


class FileLine(NamedTuple):
    """A line of a file; its size is without its end. *content* has only the first `MAX_LINE_BYTES` of a longer line."""

    number: int
    offset: int
    size: int
    content: bytes
    is_ended: bool


def lines_of(chunks: Iterable[bytes]) -> Iterator[FileLine]:
    """Yield the lines of a file that comes in *chunks*; a line end at its end begins no further line."""
    number, offset, size, kept = 1, 0, 0, bytearray()
    for chunk in chunks:
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            size += len(piece)
            kept += piece[: MAX_LINE_BYTES - len(kept)]
            yield FileLine(number, offset, size, bytes(kept), is_ended=True)
            number, offset, size, kept = number + 1, offset + size + 1, 0, bytearray()
        size += len(rest)
        kept += rest[: MAX_LINE_BYTES - len(kept)]
    if size:
        yield FileLine(number, offset, size, bytes(kept), is_ended=False)


class BadLines(NamedTuple):
    """A run of lines that are not records: the first one, their number, and their bytes."""

    first: FileLine
    lines: int
    size: int

    def and_line(self, line: FileLine) -> "BadLines":
        """Return the run with *line* added."""
        return BadLines(self.first, self.lines + 1, self.size + line.size + line.is_ended)


@dataclass(slots=True)
class Scan:
    """Reads a journal.

    Attributes:
        path: Of the journal, relative to the workspace.
        index: The good records.
        findings: The bad ones.
        stubs: For each result file that stubs refer to: the journal's first line that says so.
        rebuilt: For each batch whose record was once lost: the index behind its last message.
    """

    path: str
    index: Index = field(default_factory=Index)
    findings: list[IntegrityFinding] = field(default_factory=list[IntegrityFinding])
    stubs: dict[str, int] = field(default_factory=dict[str, int])
    rebuilt: set[int] = field(default_factory=set[int])
    _bad: BadLines | None = None
    _behind: list[tuple[Record, FileLine]] = field(default_factory=list[tuple[Record, FileLine]])
    _losses: set[str] = field(default_factory=set[str])

    @property
    def is_whole(self) -> bool:
        """Whether every record of the journal is good."""
        return not self.findings

    def read(self, lines: Iterable[FileLine]) -> None:
        """Check all *lines* of the journal and add the good ones to the index."""
        for line in lines:
            record = decode(line.content) if line.is_ended else None
            if record is None:
                self._bad = (self._bad or BadLines(line._replace(content=b""), 0, 0)).and_line(line)
            elif self._bad is not None and synced_before(record).journal <= self._bad.first.offset:
                self._behind.append((record, line))
            else:
                self._report_loss()
                self._take(record, line)
        self._report_tail()

    def _take(self, record: Record, line: FileLine) -> None:
        fault = fault_of(record)
        if fault:
            self._lose(line, f"the record {fault}; buoyline did not write it, and verify skips it")
            return
        self._check_place(record, line)
        self.index.end = line.offset
        self.index.absorb(line.content + b"\n")
        if record["op"] == "stub":
            self.stubs.setdefault(record["path"], line.number)
        elif record["op"] == "batch" and record.get("rebuilt"):
            self.rebuilt.add(self.index.messages)

    def _check_place(self, record: Record, line: FileLine) -> None:
        """Check that a batch or summary begins at the end of the one before it."""
        found, expected = _places(record, self.index)
        may_skip = record["op"] in self._losses
        self._losses.discard(record["op"])
        # If a record between them was lost, its bytes lie between them, and the loss is reported already.
        if found != expected and not (may_skip and all(f >= e for f, e in zip(found, expected, strict=True))):
            reason = f"the {record['op']} does not follow the one before it; restore the journal from a copy"
            self.findings.append(finding("gap", self.path, reason, line=line.number, offset=line.offset))

    def _lose(self, line: FileLine, reason: str) -> None:
        self.findings.append(finding("bad-record", self.path, reason, line=line.number, offset=line.offset))
        self._losses = {"batch", "summary"}

    def _report_loss(self) -> None:
        if self._bad is not None:
            lines = "line is not a record" if self._bad.lines == 1 else f"{self._bad.lines:,} lines are not records"
            reason = f"{lines}, although records follow: what was committed there is not known; restore it from a copy"
            self._lose(self._bad.first, reason)
            self._bad = None
            for record, line in self._behind:
                self._take(record, line)
            self._behind.clear()

    def _report_tail(self) -> None:
        if self._bad is None:
            return
        first, size = self._bad.first, self._bad.size + sum(line.size + 1 for _, line in self._behind)
        if first.is_ended:
            kind, reason = "bad-last-record", _BAD_LAST_RECORD
        else:
            kind, reason = "torn-tail", "a crash left part of a record; the next writer sets it aside in torn/"
        self.findings.append(
            finding(kind, self.path, f"{size:,} bytes: {reason}", line=first.number, offset=first.offset)
        )


def _places(record: Record, index: Index) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return where *record* says that it begins, and where it should; empty if it has no place."""
    if record["op"] == "batch":
        found = record["offset"], record["first"], record["line"], record["transcript"][0]
        return found, (index.context_end, index.messages, index.next_line, index.transcript_end)
    if record["op"] == "summary":
        return (record["offset"],), (index.summaries_end,)
    return (), ()
