"""The journal of a session: what was committed, one self-checking record a line.

Pure: bytes in, records out. Source: docs/format.md, "journal.jsonl".
"""

import hashlib
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from buoyline.errors import MessageError
from buoyline.messages import is_array, is_object, parse, spell
from buoyline.messages.payloads import Reference

Record = Mapping[str, Any]

_CRC_BYTES = len(b',"crc":"00000000"}')


def encode(record: Record) -> bytes:
    """Spell a record as one line that ends in the CRC-32 of what stands before it."""
    body = spell(record)[:-1].encode("utf-8")
    return body + b',"crc":"%08x"}\n' % zlib.crc32(body)


def decode(line: bytes) -> Record | None:
    """Read one line without its end; None when it is torn, damaged or no record."""
    body, crc = line[:-_CRC_BYTES], line[-_CRC_BYTES:]
    if crc != b',"crc":"%08x"}' % zlib.crc32(body):
        return None
    try:
        record = parse(line)
    except MessageError:
        return None
    return record if is_object(record) and isinstance(record.get("op"), str) else None


@dataclass(frozen=True, slots=True)
class Extent:
    """Bytes that one record commits in an append-only file.

    Attributes:
        offset: First byte in the file.
        sizes: Bytes of each line, its end included.
        sha256: Over all of these bytes.
        synced: How much of the file was durable before this record.
        record_offset: Where the record stands in the journal.
    """

    offset: int
    sizes: tuple[int, ...]
    sha256: str
    synced: int
    record_offset: int

    @property
    def end(self) -> int:
        """The first byte behind the extent."""
        return self.offset + sum(self.sizes)

    def holds(self, content: bytes) -> bool:
        """Tell whether *content* is what was committed."""
        return hashlib.sha256(content).hexdigest() == self.sha256


@dataclass(frozen=True, slots=True)
class Batch:
    """The messages of one ``offload_context`` call.

    Attributes:
        batch_id: The caller's, or empty.
        dialect: Of each message, or one name for all.
        first: Index of the first message in the session, 0-based.
        extent: Where the messages stand in ``context.jsonl``.
        line: First line of the batch in the transcript, 1-based.
        lines: Lines of each message in the transcript.
        transcript_offset: First byte of the batch in the transcript.
        transcript_bytes: Bytes of the batch in the transcript.
        time: When it was committed, ISO 8601 in UTC.
        references: Message (0-based within the batch) and place of every payload that was taken out.
    """

    batch_id: str
    dialects: tuple[str, ...]
    first: int
    extent: Extent
    line: int
    lines: tuple[int, ...]
    transcript_offset: int
    transcript_bytes: int
    time: str
    references: tuple[tuple[int, Reference], ...] = ()

    @property
    def end(self) -> int:
        """Index behind the batch's last message."""
        return self.first + len(self.extent.sizes)

    @property
    def end_line(self) -> int:
        """The first transcript line behind the batch."""
        return self.line + sum(self.lines)

    @property
    def transcript_end(self) -> int:
        """The first transcript byte behind the batch."""
        return self.transcript_offset + self.transcript_bytes

    def line_ranges(self) -> tuple[tuple[int, int], ...]:
        """Return first and last transcript line of each message, 1-based and inclusive."""
        ranges: list[tuple[int, int]] = []
        start = self.line
        for count in self.lines:
            ranges.append((start, start + count - 1))
            start += count
        return tuple(ranges)


@dataclass(slots=True)
class Index:
    """What the journal says, folded: grows with every record, forgets nothing it needs.

    Attributes:
        batches: In order.
        results: By file name within the session: the record of each tool result.
        stubs: By the stub text's SHA-256: the record of each stub.
        summaries: Extents of the lines of ``summaries.jsonl``, in order.
        windows: The last two records of what ``window.jsonl`` begins with, newest last.
        settings: The newest settings of the session's window; empty when there is none.
        pins: Session indexes of the messages that are pinned.
        writer: Which window goes on with the session; empty when none ever began or claimed it.
        end: Bytes of the journal that are whole records.
        last_record: Where the last of them begins.
        damaged: Journal offsets of lines that are no records although records follow.
    """

    batches: list[Batch] = field(default_factory=list)
    by_batch_id: dict[str, Batch] = field(default_factory=dict)
    results: dict[str, Record] = field(default_factory=dict)
    stubs: dict[str, Record] = field(default_factory=dict)
    summaries: list[Extent] = field(default_factory=list)
    windows: list[Record] = field(default_factory=list)
    settings: Record = field(default_factory=dict[str, Any])
    pins: tuple[int, ...] = ()
    writer: str = ""
    end: int = 0
    last_record: int = 0
    damaged: list[int] = field(default_factory=list)

    @property
    def messages(self) -> int:
        """How many messages are archived."""
        return self.batches[-1].end if self.batches else 0

    @property
    def context_end(self) -> int:
        """Committed bytes of ``context.jsonl``."""
        return self.batches[-1].extent.end if self.batches else 0

    @property
    def summaries_end(self) -> int:
        """Committed bytes of ``summaries.jsonl``."""
        return self.summaries[-1].end if self.summaries else 0

    @property
    def next_line(self) -> int:
        """The transcript line that the next batch begins on, 1-based."""
        return self.batches[-1].end_line if self.batches else 1

    @property
    def transcript_end(self) -> int:
        """Bytes that the transcript should have."""
        return self.batches[-1].transcript_end if self.batches else 0

    def absorb(self, content: bytes) -> None:
        """Fold the records in *content*, which stands at `end` of the journal, up to the last whole one.

        A bad line that records follow is damage: it is remembered and passed over. What comes after the last
        whole record is not counted into `end`; the next writer sets it aside.
        """
        bad: list[int] = []
        start = self.end
        for offset, line in _lines(content, start):
            record = decode(line)
            if record is None:
                bad.append(offset)
                continue
            self.damaged += bad
            bad = []
            self._fold(record, offset)
            self.last_record = offset
            self.end = offset + len(line) + 1

    def drop_last_batch(self) -> None:
        """Forget the last batch, whose bytes are not in the archive, and the journal from its record on."""
        batch = self.batches.pop()
        self.by_batch_id.pop(batch.batch_id, None)
        self.end = batch.extent.record_offset

    def drop_last_summary(self) -> None:
        """Forget the last summary, whose bytes are not in its file, and the journal from its record on."""
        self.end = self.summaries.pop().record_offset

    def _fold(self, record: Record, offset: int) -> None:
        match record["op"]:
            case "batch":
                self._add_batch(batch_from(record, offset))
            case "result":
                self.results[record["path"]] = record
            case "stub":
                self.stubs[record["sha256"]] = record
            case "summary":
                self.summaries.append(_extent(record, offset))
            case "window":
                self.windows = [*self.windows[-1:], record]
                self.pins = tuple(record["pins"])
            case "writer":
                self.writer = record["writer"]
            case "pins":
                self.pins = tuple(record["pins"])
            case "settings":
                self.settings = record
            case _:
                pass

    def _add_batch(self, batch: Batch) -> None:
        self.batches.append(batch)
        if batch.batch_id:
            self.by_batch_id[batch.batch_id] = batch


def batch_record(batch: Batch) -> Record:
    """Return the record that commits *batch*."""
    dialects = set(batch.dialects)
    return {
        "op": "batch",
        "id": batch.batch_id,
        "dialect": dialects.pop() if len(dialects) == 1 else list(batch.dialects),
        "first": batch.first,
        **extent_fields(batch.extent),
        "line": batch.line,
        "lines": list(batch.lines),
        "transcript": [batch.transcript_offset, batch.transcript_bytes],
        "references": [[n, list(ref.at), ref.head, ref.reference] for n, ref in batch.references],
        "time": batch.time,
    }


def batch_from(record: Record, offset: int) -> Batch:
    """Read the record of a batch that stands at *offset* of the journal."""
    extent = _extent(record, offset)
    dialect = record["dialect"]
    transcript = record["transcript"]
    return Batch(
        batch_id=record["id"],
        dialects=tuple(dialect) if is_array(dialect) else (dialect,) * len(extent.sizes),
        first=record["first"],
        extent=extent,
        line=record["line"],
        lines=tuple(record["lines"]),
        transcript_offset=transcript[0],
        transcript_bytes=transcript[1],
        time=record["time"],
        references=tuple((n, Reference(tuple(at), head, ref)) for n, at, head, ref in record["references"]),
    )


def extent_fields(extent: Extent) -> Record:
    """Return the fields of a record that commits *extent*."""
    return {
        "offset": extent.offset,
        "bytes": list(extent.sizes),
        "sha256": extent.sha256,
        "synced": extent.synced,
    }


def _extent(record: Record, offset: int) -> Extent:
    return Extent(record["offset"], tuple(record["bytes"]), record["sha256"], record["synced"], offset)


def _lines(content: bytes, start: int) -> Iterator[tuple[int, bytes]]:
    position = 0
    while (end := content.find(b"\n", position)) >= 0:
        yield start + position, content[position:end]
        position = end + 1
