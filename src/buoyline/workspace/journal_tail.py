"""The tail of a session's journal: all that the next writer needs, at a cost that does not grow with the session.

Every record holds the offsets of the newest earlier record of each kind, so the last record leads to all of them. If
one of these is damaged, the whole journal is read once. Source: docs/format.md, "journal.jsonl"; etcd's log, too, is
read from its newest snapshot on.
"""

import re
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeGuard

from buoyline.messages import spell
from buoyline.messages.jsonl import is_array, is_object
from buoyline.workspace import layout
from buoyline.workspace.journal import (
    Batch,
    ByteRange,
    JournalState,
    Read,
    Record,
    Synced,
    batch_from,
    byte_range_from,
    chunks_of_lines,
    decode,
    lines_of,
    proven_by,
    record_at,
    synced_before,
    tail_of,
)

if TYPE_CHECKING:
    from buoyline.workspace.result_names import ResultNames

# Finding a record of the journal by name. Pure: bytes in, offsets out.
#
# Only the first bytes of each line are matched, which takes a tenth of the time of reading the records; the record that
# is found is then read and checked. For the first few names, a long journal is not even split into lines: searching its
# bytes for one name takes another tenth.


_TEXT = rb'"(?:[^"\\]|\\.)*"'
_KEYS = re.compile(
    rb'\{"op":"(?:batch","id":(?P<batch>'
    + _TEXT
    + rb')|result","call_id":(?P<call>'
    + _TEXT
    + rb'),"path":(?P<result>'
    + _TEXT
    + rb')|stub","sha256":(?P<stub>'
    + _TEXT
    + rb"))"
)
"""The beginning of the records that have a name, as `buoyline.workspace` spells them."""

_FIELDS = {"batch": b"id", "result": b"path", "call": b"call_id", "stub": b"sha256"}
"""The field with the name of each kind of record; a result is found by its file and by its call."""


class RecordOffsets:
    """Offsets of batches by their ids, of tool results by their files and calls, of stubs by their digests.

    Nothing is read before the first search. Each search indexes as much of the journal as all searches before it, plus
    one piece, and searches the rest for the one name. So a process that searches once, as most do, waits 20 ms for
    100,000 batches, and indexing all of them takes 140; all searches together take at most twice as long.
    """

    def __init__(self, read: Read) -> None:
        """Search the journal that *read* reads."""
        self._read = read
        self.clear()

    def clear(self) -> None:
        """Forget all offsets, since the journal may have been replaced."""
        self._offsets: dict[bytes, int] = {}
        self._end = 0
        self._pieces = 0

    def find(self, op: str, name: str, end: int) -> tuple[int, Record] | None:
        """Return the newest record of kind *op* for *name* in the first *end* bytes, with its offset.

        The kind ``"call"`` is a result, searched by its call id.
        """
        spelled, found = spell(name).encode("utf-8"), None
        if self._end < end:
            for position, content in islice(chunks_of_lines(self._read, self._end, end), self._pieces + 1):
                self._note(content, position)
        if self._end < end:
            found = self._searched(op, spelled, self._end, end)
        offset = self._offsets.get(op.encode() + spelled)
        if found is not None or offset is None:
            return found
        record = record_at(self._read, offset)
        # A damaged record is skipped everywhere; there may be an older whole one.
        return self._searched(op, spelled, 0, self._end) if record is None else (offset, record)

    def _note(self, content: bytes, start: int) -> None:
        position = 0
        while (line_end := content.find(b"\n", position)) >= 0:
            named = _KEYS.match(content, position, line_end)
            if named is not None:
                for key in _keys(named):
                    self._offsets[key] = start + position
            position = line_end + 1
        self._end = start + position
        self._pieces += 1

    def _searched(self, op: str, spelled: bytes, start: int, end: int) -> tuple[int, Record] | None:
        found = None
        # Within a JSON text every quotation mark has a backslash before it, so this is a field of some object.
        needle = b'"%s":%s' % (_FIELDS[op], spelled)
        for position, content in chunks_of_lines(self._read, start, end):
            line = len(content)
            # From the end: a third faster, since the needle's last byte is rarer than its first.
            while (place := content.rfind(needle, 0, line)) >= 0:
                line = content.rfind(b"\n", 0, place) + 1
                named = _KEYS.match(content, line)
                is_named = named is not None and op.encode() + spelled in _keys(named)
                record = record_at(self._read, position + line) if is_named else None
                if record is not None:
                    found = position + line, record
                    break
        return found


def _keys(found: "re.Match[bytes]") -> list[bytes]:
    """Return kind and name of a record by its beginning: two of a result, one of any other."""
    if found["result"] is not None:
        return [b"call" + found["call"], b"result" + found["result"]]
    kind = "batch" if found["stub"] is None else "stub"
    return [kind.encode() + found[kind]]


_READ_BYTES = 1 << 14
_ONCE = ("batch", "result", "stub", "summary", "settings", "pins", "writer", "lines")
_KEPT: Mapping[str, int] = {**dict.fromkeys(_ONCE, 1), "window": 2}
"""How many of the newest records of each kind a writer needs."""

_UNSYNCED = ("lines", "call")
"""Records that no later write depends on, so that none waits for their sync."""


class JournalTail(JournalState):
    """The state of a session for a writer: the newest records, and others on request.

    Attributes:
        end: Bytes of the journal that are whole records.
        lines: The newest record of the growth of ``window.jsonl`` since its replacement; None if there is none.
        synced: Bytes known to be durable; a power cut may have taken later ones.
        names: Of the files in the session's folder; None before the folder was listed.
        has_lost_a_record: A damaged line follows the last batch's record; it may have been the record of a batch.
    """

    def __init__(self, read: Read, *, is_durable: bool = True) -> None:
        """Read the journal with *read*, on demand. New records say so if their writer does not sync."""
        self._read = read
        self._is_durable = is_durable
        self._record_offsets = RecordOffsets(read)
        self.forget()

    def forget(self) -> None:
        """Forget everything, since the journal may have been replaced."""
        super().__init__()
        self._record_offsets.clear()
        self._newest: dict[str, dict[int, Record]] = {}
        self._tail = b""
        self.is_loaded = False
        self._checked = Synced()
        self._proven = Synced()
        self.end = 0
        self._counted_end = 0
        self.summaries = 0
        self.lines: Record | None = None
        self.synced = Synced()
        self.names: ResultNames | None = None
        self.has_lost_a_record = False

    def refresh(self, size: int) -> bool:
        """Read the records that were appended to the journal, which has *size* bytes now.

        Returns:
            Whether the journal was unknown, or had changed before its known end.
        """
        if self._read(self.end - len(self._tail), len(self._tail)) != self._tail:
            # A writer that found our last record without its bytes has cut the journal and written on.
            self.forget()
        if not self.is_loaded:
            self._load(size)
            self._counted_end = self.end
            self.is_loaded = True
            return True
        if size > self.end and not self._fold_lines(self.end, size):
            # Records of other writers are damaged: begin again, knowing what was durable.
            self.forget()
            return self.refresh(size)
        return False

    def fold(self, record: Record, line: bytes, offset: int, *, is_ours: bool = False) -> None:
        """Add *record*, which is *line* at *offset* of the journal; the caller must not change it later.

        If it *is_ours*, its `before` is that of this tail, and is not read again.
        """
        op = record["op"]
        if op in _KEPT:
            newest = self._newest.setdefault(op, {})
            newest[offset] = record
            if len(newest) > _KEPT[op]:
                del newest[next(iter(newest))]
        if not is_ours:
            self.synced = self._claimed(record, offset)
        elif self._is_durable:
            self._proven = Synced(*map(max, self._proven, self.synced))
        self.end = offset + len(line) + 1
        if op not in _UNSYNCED:
            self._counted_end = self.end
        self._tail = tail_of(line)
        self.apply(record, offset)

    def apply(self, record: Record, offset: int) -> None:
        """Add *record*, which is newer than all others and at *offset* of the journal."""
        super().apply(record, offset)
        match record["op"]:
            case "batch":
                self.has_lost_a_record = False
            case "summary":
                self.summaries = record.get("n", self.summaries + 1)
            case "result" if self.names is not None:
                self.names.add(record["path"])
            case "window":
                self.lines = None
            case "lines":
                self.lines = record
            case _:
                pass

    def find_batch(self, batch_id: str) -> Batch | None:
        """Return the batch that a caller gave this id."""
        found = self._find("batch", batch_id)
        return None if found is None else batch_from(found[1], found[0])

    def find_result(self, name: str) -> Record | None:
        """Return the record of the tool result in file *name*."""
        found = self._find("result", name)
        return None if found is None else found[1]

    def find_call(self, call_id: str) -> Record | None:
        """Return the record of the newest tool result of this call."""
        found = self._record_offsets.find("call", call_id, self.end) if "result" in self._newest else None
        return None if found is None else found[1]

    def find_stub(self, digest: str) -> Record | None:
        """Return the record of the stub whose text has this SHA-256."""
        found = self._find("stub", digest)
        return None if found is None else found[1]

    def before(self) -> dict[str, Any]:
        """Return what the next record says of earlier records; the first record says nothing."""
        writer = {} if self._is_durable else {"unsynced": True}
        if not self.end:
            return writer
        before = {"synced": list(self.synced)}
        for op, records in self._newest.items():
            before[op] = list(records)
        return {**writer, "before": before}

    @property
    def has_unsynced_records(self) -> bool:
        """Whether the journal has records that must be durable and may not be.

        Records of the window's growth need not be: the window's lines are durable before them.
        """
        return self._counted_end > self.synced.journal

    def synced_of(self, name: str) -> int:
        """Return how many bytes of ``context.jsonl`` or ``summaries.jsonl`` are known to be durable."""
        return self.synced.summaries if name == layout.SUMMARIES_FILE else self.synced.context

    def unsynced_files(self) -> list[str]:
        """Return those of the two files whose committed bytes may not be durable."""
        names = [layout.CONTEXT_FILE] if self.context_end > self.synced.context else []
        return [*names, layout.SUMMARIES_FILE] if self.summaries_end > self.synced.summaries else names

    def mark_synced(self, *, transcript: bool) -> None:
        """Note that all committed bytes are durable, and with *transcript* those of the transcript, too."""
        derived = self.transcript_end if transcript else self.synced.transcript
        self.synced = Synced(self.context_end, self.summaries_end, derived, self.end)
        self._checked = Synced(self.context_end, self.summaries_end)

    def mark_checked(self) -> None:
        """Note that all committed bytes were checked."""
        self._checked = Synced(self.context_end, self.summaries_end)

    def unchecked(self) -> tuple[list[Batch], list[ByteRange]]:
        """Return batches, and byte ranges of summaries, that may be lost and were not checked since, oldest first."""
        batches, summaries = list[Batch](), list[ByteRange]()
        safe = max(self.synced.context, self._checked.context, self._proven.context)
        if self.context_end > safe:
            batches = [batch_from(record, offset) for offset, record in self._newer_than("batch", safe)]
        safe = max(self.synced.summaries, self._checked.summaries, self._proven.summaries)
        if self.summaries_end > safe:
            summaries = [byte_range_from(record, offset) for offset, record in self._newer_than("summary", safe)]
        return batches, summaries

    def rewind(self, offset: int) -> None:
        """Forget the record at *offset* of the journal and all later ones: they were never committed.

        Bytes that they report as durable still count as durable: if some of these are missing, that is damage.
        """
        checked, proven = self._checked, self._proven
        self.forget()
        self.is_loaded = True
        self._proven = proven
        self._load(offset)
        self._counted_end = self.end
        self._checked = Synced(min(checked.context, self.context_end), min(checked.summaries, self.summaries_end))

    def _find(self, op: str, name: str) -> tuple[int, Record] | None:
        return self._record_offsets.find(op, name, self.end) if op in self._newest else None

    def _newer_than(self, op: str, safe: int) -> list[tuple[int, Record]]:
        """Return the records of kind *op* whose bytes end after *safe*, oldest first, with their offsets.

        The search ends early at a record that does not lead to the one before.
        """
        found: list[tuple[int, Record]] = []
        offset, record = next(reversed(self._newest.get(op, {}).items()), (0, None))
        while record is not None and record["offset"] + sum(record["bytes"]) > safe:
            found.append((offset, record))
            before = record.get("before")
            offsets = before.get(op) if is_object(before) else None
            if not _are_offsets(offsets, offset):
                break
            offset = offsets[-1]
            record = self._record(offset, op)
        return found[::-1]

    def _load(self, size: int) -> None:
        found = self._last_whole(size)
        if found is None:
            return
        offset, record, line = found
        claimed = self._claimed(record, offset)
        torn = self._first_bad(min(max(claimed.journal, self._proven.journal), offset), offset)
        if torn is not None:
            # A power cut took a part of the bytes of one sync, so none of them was acknowledged.
            self._load(torn)
        elif self._restore(record, offset):
            self.fold(record, line, offset)
        else:
            self._fold_lines(0, offset + len(line) + 1)

    def _claimed(self, record: Record, offset: int) -> Synced:
        """Return the durable bytes by *record* at *offset*, and note which of them are beyond doubt."""
        synced = synced_before(record)
        claimed = synced._replace(journal=min(synced.journal, offset))
        self._proven = Synced(*map(max, self._proven, proven_by(record, claimed)))
        return claimed

    def _first_bad(self, start: int, end: int) -> int | None:
        """Return the offset of the first line that is no record."""
        for position, content in chunks_of_lines(self._read, start, end):
            for offset, line in lines_of(content, position):
                if decode(line) is None:
                    return offset
        return None

    def _last_whole(self, size: int) -> tuple[int, Record, bytes] | None:
        """Return the last line that is a record, with its offset."""
        length = _READ_BYTES
        while True:
            start = max(size - length, 0)
            content = self._read(start, size - start)
            skipped = content.find(b"\n") + 1 if start else 0
            for offset, line in reversed(list(lines_of(content[skipped:], start + skipped))):
                record = decode(line)
                if record is not None:
                    return offset, record, line
            if not start:
                return None
            length *= 4

    def _restore(self, record: Record, end: int) -> bool:
        """Load the records that *record*, at *end*, refers to; False if one of them is unreadable."""
        if not end:
            return True
        before, newest = record.get("before"), dict[str, dict[int, Record]]()
        if not is_object(before):
            return False
        for op, offsets in before.items():
            if op not in _KEPT:
                continue
            records = {offset: self._record(offset, op) for offset in offsets} if _are_offsets(offsets, end) else {}
            newest[op] = {offset: each for offset, each in records.items() if each is not None}
            if not records or len(newest[op]) != len(records):
                return False
        self._newest = newest
        found = {offset: each for records in newest.values() for offset, each in records.items()}
        for offset in sorted(found):
            self.apply(found[offset], offset)
        return True

    def _record(self, offset: int, op: str) -> Record | None:
        record = record_at(self._read, offset)
        return record if record is not None and record["op"] == op else None

    def _fold_lines(self, start: int, end: int) -> bool:
        """Add the records from *start* up to the last whole one before *end*; False if a line is no record."""
        is_damaged, is_sound = False, True
        for position, content in chunks_of_lines(self._read, start, end):
            for offset, line in lines_of(content, position):
                record = decode(line)
                if record is not None:
                    self.fold(record, line, offset)
                    self.has_lost_a_record |= is_damaged and record["op"] != "batch"
                is_damaged = record is None
                is_sound = is_sound and not is_damaged
        return is_sound


def _are_offsets(value: object, end: int) -> TypeGuard[list[int]]:
    return is_array(value) and bool(value) and all(isinstance(offset, int) and 0 <= offset < end for offset in value)
