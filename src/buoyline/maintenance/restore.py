"""Combines a damaged file with a copy of it.

Pure: bytes in, bytes out. Only bytes of the copy that match a hash or a checksum are used. Source: docs/format.md,
"Repair".
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence

from buoyline.errors import MessageError
from buoyline.maintenance.verify.journal import Scan, lines_of
from buoyline.messages.jsonl import parse
from buoyline.messages.registry import detect
from buoyline.workspace.batches import ArchivedMessage, batch_record, rendered, times_of, transcript_bytes
from buoyline.workspace.index import Index, is_of_a_kind
from buoyline.workspace.journal import ByteRange, decode, encode
from buoyline.workspace.records import window_state

Read = Callable[[int, int], bytes]
"""Takes an offset and a number of bytes, and returns these bytes of a file; fewer at its end."""


def with_extents(found: Sequence[ByteRange], here: Read, there: Read, size: int) -> Iterator[bytes]:
    """Yield a file of *size* bytes with the byte ranges *found* taken from a copy.

    A gap before a range that neither file fills becomes one blank line, so that each range begins where its record
    says.
    """
    position = 0
    for byte_range in sorted(found, key=lambda byte_range: byte_range.offset):
        gap = byte_range.offset - position
        if gap > 0:
            content = here(position, gap)
            yield content if len(content) == gap else content + b" " * (gap - len(content) - 1) + b"\n"
        yield there(byte_range.offset, sum(byte_range.sizes))
        position = byte_range.end
    yield here(position, max(0, size - position))


def better_journal(here: bytes | None, there: bytes) -> bytes | None:
    """Return the journal *here* with the records that only a copy *there*, of any age, has; None if it adds nothing.

    *here* is None if the journal is gone.
    """
    whole = there[: index_of(there).end]
    records = [] if here is None else [decode(line) for line in here.split(b"\n")[:-1]]
    # Made from the archive after the old one was lost, and nothing was written since.
    is_rebuilt = bool(records) and all(record is not None and record.get("rebuilt") is True for record in records)
    if here is None or is_rebuilt:
        return whole or None
    found = here
    for start, end in _bad_runs(here):
        # Up to here the two must be the same journal, one of them older.
        if whole[:start] == found[:start] and _are_records(whole[start:end], end - start):
            found = found[:start] + whole[start:end] + found[end:]
    end = index_of(found).end
    if whole[:end] == found[:end] and len(whole) > end:
        found = whole
    is_better = found != here and len(_scanned(found).findings) <= len(_scanned(here).findings)
    return found if is_better else None


def index_of(journal: bytes) -> Index:
    """Return the index of *journal*; records of an unknown form are skipped."""
    return _scanned(journal).index


def is_foldable(journal: bytes) -> bool:
    """Return whether all records have a known form, so that a writer can append to them."""
    records = map(decode, journal.split(b"\n"))
    return all(is_of_a_kind(record) for record in records if record is not None)


def with_adopted(journal: bytes, context: bytes, time: str) -> bytes:
    """Return *journal* with a record, marked as rebuilt, for each whole line of *context* behind its last batch.

    *journal* has whole records, and *context* is the bytes of ``context.jsonl`` behind its last batch. *time* is for
    the new records, since the real time is not known.

    Raises:
        MessageError: A line is not a message.
    """
    index, found = index_of(journal), [journal]
    for line in _lines(context[: context.rfind(b"\n") + 1]):
        value = parse(line)
        message = ArchivedMessage(index.messages, detect(value).name, value, ())
        byte_range = ByteRange(
            index.context_end, (len(line),), hashlib.sha256(line).hexdigest(), index.context_end, index.end
        )
        times = times_of([message])
        shown = rendered([message], index.messages, times, index)
        derived = transcript_bytes(shown)
        record = batch_record(
            index, [message], batch_id="", lines=shown, derived=derived, byte_range=byte_range, time=time, times=times
        )
        found.append(encode({**record, "rebuilt": True}))
        index.absorb(found[-1])
    return b"".join(found)


def better_window(index: Index, here: bytes | None, there: bytes) -> bytes | None:
    """Return a window that can be resumed, from that of a copy and the further lines of *here*.

    It is None if the copy is of another window, or *here* is whole.
    """
    if here is not None and is_window(index, here):
        return None
    there = there[: there.rfind(b"\n") + 1]
    for found in (there + (here or b"")[len(there) :], there):
        if is_window(index, found):
            return found
    return None


def is_window(index: Index, content: bytes) -> bool:
    """Return whether a window can be resumed from *content*."""
    try:
        return window_state(index, content[: content.rfind(b"\n") + 1]) is not None
    except MessageError:
        return False


def _are_records(content: bytes, size: int) -> bool:
    is_whole = len(content) == size and content.endswith(b"\n")
    return is_whole and all(decode(line) is not None for line in content.split(b"\n")[:-1])


def _bad_runs(journal: bytes) -> Iterator[tuple[int, int]]:
    """Yield start and end of each run of lines that are not records."""
    start: int | None = None
    position = 0
    for line in _lines(journal):
        is_bad = not line.endswith(b"\n") or decode(line[:-1]) is None
        if is_bad and start is None:
            start = position
        elif not is_bad and start is not None:
            yield start, position
            start = None
        position += len(line)
    if start is not None:
        yield start, position


def _scanned(journal: bytes) -> Scan:
    scan = Scan("")
    scan.read(lines_of([journal]))
    return scan


def _lines(content: bytes) -> list[bytes]:
    *ended, rest = content.split(b"\n")
    return [line + b"\n" for line in ended] + ([rest] if rest else [])
