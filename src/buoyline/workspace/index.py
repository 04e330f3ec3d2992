"""The whole journal of a session, for readers. Pure: bytes in, state out."""

from dataclasses import dataclass, field
from typing import Any

from buoyline.workspace.journal import (
    NOTHING_SYNCED,
    Batch,
    ByteRange,
    Record,
    Synced,
    batch_from,
    byte_range_from,
    decode,
    last_synced,
    lines_of,
    proven_by,
    synced_before,
    tail_of,
)


@dataclass(slots=True)
class Index:
    """The state of a session by all records of its journal.

    Attributes:
        batch_ids: Batches by the caller's id.
        results: Records of tool results by file name within the session.
        calls: Record of the newest tool result by call id.
        stubs: Records of stubs by the SHA-256 of their texts.
        summaries: The lines of ``summaries.jsonl``, in order.
        windows: See `JournalState`.
        lines: For each of `windows`, the records of its growth, in order.
        result_bytes: Bytes of all tool results and their views.
        synced: Bytes that were durable before the last record was written.
        proven: The part of `synced` that no power cut can have taken.
        end: Bytes of the journal that are whole records.
        tail: The last of these bytes. If the journal has others there, it was cut and continued.
        damaged: Journal offsets of damaged lines before the last record.
    """

    batches: list[Batch] = field(default_factory=list)
    batch_ids: dict[str, Batch] = field(default_factory=dict)
    results: dict[str, Record] = field(default_factory=dict)
    calls: dict[str, Record] = field(default_factory=dict)
    stubs: dict[str, Record] = field(default_factory=dict)
    summaries: list[ByteRange] = field(default_factory=list)
    windows: list[Record] = field(default_factory=list)
    lines: list[list[Record]] = field(default_factory=list)
    settings: Record = field(default_factory=dict[str, Any])
    pins: tuple[int, ...] = ()
    writer: str = ""
    result_bytes: int = 0
    synced: Synced = NOTHING_SYNCED
    proven: Synced = NOTHING_SYNCED
    end: int = 0
    tail: bytes = b""
    damaged: list[int] = field(default_factory=list)

    @property
    def last_batch(self) -> Batch | None:
        """The newest batch."""
        return self.batches[-1] if self.batches else None

    @property
    def messages(self) -> int:
        """How many messages are archived."""
        return self.batches[-1].end if self.batches else 0

    @property
    def context_end(self) -> int:
        """Committed bytes of ``context.jsonl``."""
        return self.batches[-1].byte_range.end if self.batches else 0

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

    def find_batch(self, batch_id: str) -> Batch | None:
        """Return the batch that a caller gave this id."""
        return self.batch_ids.get(batch_id)

    def find_result(self, name: str) -> Record | None:
        """Return the record of the tool result in file *name*."""
        return self.results.get(name)

    def find_call(self, call_id: str) -> Record | None:
        """Return the record of the newest tool result of this call."""
        return self.calls.get(call_id)

    def find_stub(self, digest: str) -> Record | None:
        """Return the record of the stub whose text has this SHA-256."""
        return self.stubs.get(digest)

    def may_be_torn(self, batch: Batch) -> bool:
        """Return whether *batch* is so new that no record says that its bytes are durable."""
        return batch.byte_range.end > self.synced.context

    def may_be_torn_summary(self, byte_range: ByteRange) -> bool:
        """Return whether the summary at *byte_range* is so new that no record says that its bytes are durable."""
        return byte_range.end > self.synced.summaries

    def absorb(self, content: bytes) -> None:
        """Add the records in *content*, which begins at `end` of the journal, up to the last whole one.

        A bad line that was durable once is damage: it is noted and skipped. A bad line that never was durable comes
        from a power cut, and nothing after it was ever acknowledged. `end` is then before that line, or after the last
        whole record; the next writer sets the rest aside.
        """
        bad: list[int] = []
        durable = last_synced(content).journal
        for offset, line in lines_of(content, self.end):
            record = decode(line)
            if record is None:
                if offset >= durable:
                    return
                bad.append(offset)
                continue
            self.damaged += bad
            bad = []
            self._fold(record, offset)
            self.end, self.tail = offset + len(line) + 1, tail_of(line)

    def _fold(self, record: Record, offset: int) -> None:
        self.synced = synced_before(record)
        self.proven = Synced(*map(max, self.proven, proven_by(record, self.synced)))
        match record["op"]:
            case "batch":
                self._add_batch(batch_from(record, offset))
            case "result":
                self.results[record["path"]] = self.calls[record["call_id"]] = record
                self.result_bytes = record.get("total", 0)
            case "stub":
                self.stubs[record["sha256"]] = record
            case "summary":
                self.summaries.append(byte_range_from(record, offset))
            case "window":
                self.windows = [*self.windows[-1:], record]
                self.lines = [*self.lines[-1:], []]
                self.pins = tuple(record["pins"])
            case "lines" if self.lines:
                self.lines[-1].append(record)
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
            self.batch_ids[batch.batch_id] = batch
