"""The journal of a session: its commits, one record with a checksum a line.

Pure: bytes in, records out. Source: docs/format.md, "journal.jsonl".
"""

import hashlib
import zlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from buoyline.errors import MessageError
from buoyline.messages import spell
from buoyline.messages.jsonl import is_array, is_object, parse
from buoyline.messages.payloads import Reference

Record = Mapping[str, Any]

Read = Callable[[int, int], bytes]
"""Returns up to so many bytes of the journal from an offset; fewer only at its end."""

_LINE_BYTES = 1 << 12
_CHUNK_BYTES = 1 << 20
_CRC_BYTES = len(b',"crc":"00000000"}')


def encode(record: Record) -> bytes:
    """Return a record as one line, which ends in the CRC-32 of the bytes before it."""
    body = spell(record)[:-1].encode("utf-8")
    return body + b',"crc":"%08x"}\n' % zlib.crc32(body)


def decode(line: bytes) -> Record | None:
    """Read one line without its end, and without its checksum; None if it is torn, damaged or no record."""
    body, crc = line[:-_CRC_BYTES], line[-_CRC_BYTES:]
    if crc != b',"crc":"%08x"}' % zlib.crc32(body):
        return None
    try:
        found = parse(line)
    except MessageError:
        return None
    if not is_object(found) or not isinstance(found.get("op"), str):
        return None
    record = dict(found)
    del record["crc"]
    return record


class Synced(NamedTuple):
    """How many bytes of a session's files are known to be durable."""

    context: int = 0
    summaries: int = 0
    transcript: int = 0
    journal: int = 0


NOTHING_SYNCED = Synced()
_ALL_SYNCED = 1 << 61


def synced_before(record: Record) -> Synced:
    """Return how many bytes were durable before *record* was written.

    A record that does not say so is the first one, or was written after a loss, when all earlier bytes were durable.
    """
    before = record.get("before")
    synced = before.get("synced") if is_object(before) else None
    if is_array(synced):
        return Synced(*synced)
    return Synced(record["synced"] if record["op"] == "batch" else 0, journal=_ALL_SYNCED)


def proven_by(record: Record, synced: Synced) -> Synced:
    """Return the part of *synced*, the durable bytes by *record*, that no power cut can have taken.

    That is nothing if its writer does not sync (durability ``off``): its record only says which bytes it checked.
    """
    return NOTHING_SYNCED if record.get("unsynced") else synced


def text_digest(text: str) -> str:
    """Return the SHA-256 by which a stub's text is recorded."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def tail_of(line: bytes) -> bytes:
    """Return the checksum at the end of a record's *line*, line end included; it identifies the record."""
    return line[-_CRC_BYTES:] + b"\n"


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes that one record commits in an append-only file.

    Attributes:
        sizes: Bytes of each line, its end included.
        synced: How much of the file was durable before this record.
    """

    offset: int
    sizes: tuple[int, ...]
    sha256: str
    synced: int
    record_offset: int

    @property
    def end(self) -> int:
        """The first byte after the range."""
        return self.offset + sum(self.sizes)

    def holds(self, content: bytes) -> bool:
        """Return whether *content* is the committed bytes."""
        return hashlib.sha256(content).hexdigest() == self.sha256


@dataclass(frozen=True, slots=True)
class Batch:
    """The messages of one ``offload_context`` call.

    Attributes:
        line: First line of the batch in the transcript, 1-based.
        references: Message (0-based within the batch) and place of every payload that was moved to ``data/``.
        times: When each message was said or added, empty if not known.
    """

    batch_id: str
    dialects: tuple[str, ...]
    first: int
    byte_range: ByteRange
    line: int
    lines: tuple[int, ...]
    transcript_offset: int
    transcript_bytes: int
    time: str
    references: tuple[tuple[int, Reference], ...] = ()
    times: tuple[str, ...] = ()

    @property
    def end(self) -> int:
        """Index after the batch's last message."""
        return self.first + len(self.byte_range.sizes)

    @property
    def end_line(self) -> int:
        """The first transcript line after the batch."""
        return self.line + sum(self.lines)

    @property
    def transcript_end(self) -> int:
        """The first transcript byte after the batch."""
        return self.transcript_offset + self.transcript_bytes

    def line_ranges(self) -> tuple[tuple[int, int], ...]:
        """Return first and last transcript line of each message, 1-based and inclusive."""
        ranges: list[tuple[int, int]] = []
        start = self.line
        for count in self.lines:
            ranges.append((start, start + count - 1))
            start += count
        return tuple(ranges)


@dataclass
class JournalState:
    """The state of a session by its journal, read as a whole (`Index`) or from its end (`JournalTail`).

    Attributes:
        windows: The last two records of the content that ``window.jsonl`` was replaced with, newest last.
        next_line: The transcript line that the next batch begins on, 1-based.
    """

    last_batch: Batch | None = None
    last_summary: ByteRange | None = None
    windows: list[Record] = field(default_factory=list[Record])
    settings: Record = field(default_factory=dict[str, Any])
    pins: tuple[int, ...] = ()
    writer: str = ""
    messages: int = 0
    next_line: int = 1
    transcript_end: int = 0
    context_end: int = 0
    summaries_end: int = 0

    def apply(self, record: Record, offset: int) -> None:
        """Add *record*, which is newer than all others and at *offset* of the journal."""
        match record["op"]:
            case "batch":
                batch = self.last_batch = batch_from(record, offset)
                self.messages, self.context_end = batch.end, batch.byte_range.end
                self.next_line, self.transcript_end = batch.end_line, batch.transcript_end
            case "summary":
                self.last_summary = byte_range_from(record, offset)
                self.summaries_end = self.last_summary.end
            case "window":
                self.windows = [*self.windows[-1:], record]
                self.pins = tuple(record["pins"])
            case "pins":
                self.pins = tuple(record["pins"])
            case "writer":
                self.writer = record["writer"]
            case "settings":
                self.settings = record
            case _:
                pass

    @abstractmethod
    def find_batch(self, batch_id: str) -> Batch | None:
        """Return the batch that a caller gave this id."""

    @abstractmethod
    def find_result(self, name: str) -> Record | None:
        """Return the record of the tool result in file *name*."""

    @abstractmethod
    def find_call(self, call_id: str) -> Record | None:
        """Return the record of the newest tool result of this call."""

    @abstractmethod
    def find_stub(self, digest: str) -> Record | None:
        """Return the record of the stub whose text has this SHA-256."""


def begin_record(time: str) -> Record:
    """Return the first record of a journal. A journal without one was emptied, and counts as lost."""
    return {"op": "begin", "time": time}


def batch_from(record: Record, offset: int) -> Batch:
    """Read the record of a batch at *offset* of the journal."""
    byte_range = byte_range_from(record, offset)
    dialect = record["dialect"]
    transcript = record["transcript"]
    return Batch(
        batch_id=record["id"],
        dialects=tuple(dialect) if is_array(dialect) else (dialect,) * len(byte_range.sizes),
        first=record["first"],
        byte_range=byte_range,
        line=record["line"],
        lines=tuple(record["lines"]),
        transcript_offset=transcript[0],
        transcript_bytes=transcript[1],
        time=record["time"],
        references=tuple((n, Reference(tuple(at), head, ref)) for n, at, head, ref in record["references"]),
        times=tuple(record["times"]),
    )


def byte_range_fields(byte_range: ByteRange) -> Record:
    """Return the fields of a record that commits *byte_range*."""
    return {
        "offset": byte_range.offset,
        "bytes": list(byte_range.sizes),
        "sha256": byte_range.sha256,
        "synced": byte_range.synced,
    }


def last_synced(content: bytes) -> Synced:
    """Return the durable bytes by the last whole record in *content*, which was written after all others."""
    end = content.rfind(b"\n")
    while end >= 0:
        start = content.rfind(b"\n", 0, end) + 1
        record = decode(content[start:end])
        if record is not None:
            return synced_before(record)
        end = start - 1
    return Synced()


def byte_range_from(record: Record, offset: int) -> ByteRange:
    """Read the byte range that the record at *offset* of the journal commits."""
    return ByteRange(record["offset"], tuple(record["bytes"]), record["sha256"], record["synced"], offset)


def lines_of(content: bytes, start: int) -> Iterator[tuple[int, bytes]]:
    """Yield offset and bytes, without line end, of every whole line in *content*, which begins at *start*."""
    position = 0
    while (end := content.find(b"\n", position)) >= 0:
        yield start + position, content[position:end]
        position = end + 1


def record_at(read: Read, offset: int) -> Record | None:
    """Return the record whose line begins at *offset*; None if there is none."""
    line, length = b"", _LINE_BYTES
    while b"\n" not in line:
        more = read(offset + len(line), length)
        if not more:
            return None
        line += more
        length *= 4
    return decode(line[: line.index(b"\n")])


def chunks_of_lines(read: Read, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the journal from *start* to *end* in pieces, each with its offset, at which a line begins.

    The bytes after the last line end of a piece are no whole line; the next piece begins with them. (Cutting them off
    would copy the piece, which takes three times as long as reading it.)
    """
    while start < end:
        content = read(start, min(_CHUNK_BYTES, end - start))
        while content and b"\n" not in content and start + len(content) < end:
            content += read(start + len(content), min(_CHUNK_BYTES, end - start - len(content)))
        length = content.rfind(b"\n") + 1
        if not length:
            return
        yield start, content
        start += length
