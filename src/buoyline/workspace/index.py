"""The whole journal of a session, for readers. Pure: bytes in, state out."""

from dataclasses import dataclass, field

from buoyline.messages.jsonl import is_array
from buoyline.workspace import layout
from buoyline.workspace.journal import (
    NOTHING_SYNCED,
    Batch,
    ByteRange,
    JournalState,
    Record,
    Synced,
    decode,
    last_synced,
    lines_of,
    proven_by,
    synced_before,
    tail_of,
)


@dataclass
class Index(JournalState):
    """The state of a session by all records of its journal.

    Attributes:
        lines: For each of `windows`, the records of its growth, in order.
        synced: Bytes that were durable before the last record was written.
        proven: The part of `synced` that no power cut can have taken.
        end: Bytes of the journal that are whole records.
        tail: The last of these bytes. If the journal has others there, it was cut and continued.
    """

    batches: list[Batch] = field(default_factory=list)
    batch_ids: dict[str, Batch] = field(default_factory=dict)
    results: dict[str, Record] = field(default_factory=dict)
    calls: dict[str, Record] = field(default_factory=dict)
    model_calls: list[Record] = field(default_factory=list)
    stubs: dict[str, Record] = field(default_factory=dict)
    summaries: list[ByteRange] = field(default_factory=list)
    lines: list[list[Record]] = field(default_factory=list)
    synced: Synced = NOTHING_SYNCED
    proven: Synced = NOTHING_SYNCED
    end: int = 0
    tail: bytes = b""

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

        A bad line that was durable once is damage, and skipped. A bad line that never was durable comes
        from a power cut, and nothing after it was ever acknowledged. `end` is then before that line, or after the last
        whole record; the next writer sets the rest aside.
        """
        durable = last_synced(content).journal
        for offset, line in lines_of(content, self.end):
            record = decode(line)
            if record is None:
                if offset >= durable:
                    return
                continue
            self.synced = synced_before(record)
            self.proven = Synced(*map(max, self.proven, proven_by(record, self.synced)))
            self.apply(record, offset)
            self.end, self.tail = offset + len(line) + 1, tail_of(line)

    def apply(self, record: Record, offset: int) -> None:
        """Add *record*, which is newer than all others and at *offset* of the journal."""
        super().apply(record, offset)
        match record["op"]:
            case "batch" if self.last_batch is not None:
                self.batches.append(self.last_batch)
                if self.last_batch.batch_id:
                    self.batch_ids[self.last_batch.batch_id] = self.last_batch
            case "summary" if self.last_summary is not None:
                self.summaries.append(self.last_summary)
            case "result":
                self.results[record["path"]] = self.calls[record["call_id"]] = record
            case "stub":
                self.stubs[record["sha256"]] = record
            case "window":
                self.lines = [*self.lines[-1:], []]
            case "lines" if self.lines:
                self.lines[-1].append(record)
            case "call":
                self.model_calls.append(record)
            case _:
                pass


def is_of_a_kind(record: Record) -> bool:
    """Return whether *record* has what its kind needs; a checksum does not prove that buoyline wrote it."""
    try:
        synced_before(record)
        Index().apply(record, 0)
        # A name that leads elsewhere is none of ours.
        return record["op"] != "result" or (is_array(record["parts"]) and layout.is_result_name(record["path"]))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return False
