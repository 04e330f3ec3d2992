"""Checks the records of a journal one by one. Pure: lines in, findings out.

`Index.absorb` expects a journal that buoyline wrote. `Scan` takes any bytes, reports the bad lines, and adds the good
ones to the same index.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from buoyline.maintenance.verify.findings import IntegrityFinding, finding
from buoyline.workspace.index import Index, is_of_a_kind
from buoyline.workspace.journal import Record, decode, synced_before

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


class Scan:
    """Reads a journal.

    Attributes:
        index: The good records.
        findings: The bad ones.
        stubs: For each result file that stubs refer to: the journal's first line that says so.
        rebuilt: For each batch whose record was once lost: the index behind its last message.
    """

    def __init__(self, path: str) -> None:
        """Prepare to read the journal that findings call *path*."""
        self.path = path
        self.index = Index()
        self.findings: list[IntegrityFinding] = []
        self.stubs: dict[str, int] = {}
        self.rebuilt: set[int] = set()
        self._may_skip: set[str] = set()  # kinds of records that may begin behind a gap: one before them was lost

    def read(self, lines: Iterable[FileLine]) -> None:
        """Check all *lines* of the journal and add the good ones to the index."""
        first_bad: FileLine | None = None  # of a run of lines that are not records
        bad_lines = bad_bytes = 0
        behind: list[tuple[Record, FileLine]] = []  # records behind them that a crash may have left there
        for line in lines:
            record = decode(line.content) if line.is_ended else None
            if record is None:
                first_bad = first_bad or line._replace(content=b"")
                bad_lines, bad_bytes = bad_lines + 1, bad_bytes + line.size + line.is_ended
            elif first_bad is not None and synced_before(record).journal <= first_bad.offset:
                behind.append((record, line))
            else:
                if first_bad is not None:
                    are = "line is not a record" if bad_lines == 1 else f"{bad_lines:,} lines are not records"
                    lost = "what was committed there is not known; restore it from a copy"
                    self._lose(first_bad, f"{are}, although records follow: {lost}")
                    first_bad, bad_lines, bad_bytes = None, 0, 0
                for held in behind:
                    self._take(*held)
                behind.clear()
                self._take(record, line)
        if first_bad is not None:
            kind, reason = "torn-tail", "a crash left part of a record; the next writer sets it aside in torn/"
            if first_bad.is_ended:
                kind, reason = "bad-last-record", _BAD_LAST_RECORD
            bad_bytes += sum(line.size + 1 for _, line in behind)
            place = {"line": first_bad.number, "offset": first_bad.offset}
            self.findings.append(finding(kind, self.path, f"{bad_bytes:,} bytes: {reason}", **place))

    def _lose(self, line: FileLine, reason: str) -> None:
        self.findings.append(finding("bad-record", self.path, reason, line=line.number, offset=line.offset))
        self._may_skip = {"batch", "summary"}

    def _take(self, record: Record, line: FileLine) -> None:
        """Add *record* to the index; a batch or summary has to begin at the end of the one before it."""
        if not is_of_a_kind(record):
            self._lose(line, "the record lacks what its kind needs; buoyline did not write it, and verify skips it")
            return
        index, operation = self.index, record["op"]
        found: tuple[int, ...] = ()
        expected: tuple[int, ...] = ()
        if operation == "batch":
            found = record["offset"], record["first"], record["line"], record["transcript"][0]
            expected = index.context_end, index.messages, index.next_line, index.transcript_end
        elif operation == "summary":
            found, expected = (record["offset"],), (index.summaries_end,)
        # If a record between them was lost, its bytes lie between them, and the loss is reported already.
        is_behind_loss = operation in self._may_skip and all(f >= e for f, e in zip(found, expected, strict=True))
        self._may_skip.discard(operation)
        if found != expected and not is_behind_loss:
            reason = f"the {operation} does not follow the one before it; restore the journal from a copy"
            self.findings.append(finding("gap", self.path, reason, line=line.number, offset=line.offset))
        index.end = line.offset
        index.absorb(line.content + b"\n")
        if operation == "stub":
            self.stubs.setdefault(record["path"], line.number)
        elif operation == "batch" and record.get("rebuilt"):
            self.rebuilt.add(index.messages)
