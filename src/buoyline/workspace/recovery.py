"""Recovery after a crash by the next writer, under the session's lock.

Torn bytes are set aside, never lost. Damage before newer records is never cut off. Source: docs/format.md, "Commit
protocol".
"""

import hashlib
from collections.abc import Callable, Iterator

from buoyline.messages.jsonl import parse
from buoyline.messages.registry import detect
from buoyline.messages.times import now
from buoyline.offloader.transcript import blank_lines
from buoyline.workspace import layout
from buoyline.workspace.batches import ArchivedMessage, batch_record, messages_of, rendered, times_of, transcript_bytes
from buoyline.workspace.commit import Appender
from buoyline.workspace.index import Index
from buoyline.workspace.journal import Batch, ByteRange, JournalState, Record, begin_record, encode
from buoyline.workspace.journal_tail import JournalTail
from buoyline.workspace.tree import OpenFile

Content = Callable[[Batch], bytes | None]
"""Returns a batch's bytes; None if they differ from the committed ones."""

WholeIndex = Callable[[], Index]
"""Reads the whole journal; called only after a crash."""


def recover(tail: JournalTail, appender: Appender, content: Content, index: WholeIndex, *, is_first_look: bool) -> None:
    """Bring the session's files back to the last commit; uncommitted records are dropped from *tail*.

    *is_first_look* means that this process has not seen these files before.
    """
    while (torn := _first_torn(tail, appender, content)) is not None:
        tail.rewind(torn)
    appender.set_aside_behind(layout.JOURNAL_FILE, tail.end)
    if tail.has_lost_a_record:
        # The bytes after the last batch may belong to the damaged record, and be acknowledged: they are kept.
        _adopt(tail, appender, now())
    appender.set_aside_behind(layout.CONTEXT_FILE, tail.context_end)
    _complete_transcript(tail, appender, content, index, is_first_look=is_first_look)
    if is_first_look:
        appender.sync_earlier()
        if tail.windows and appender.has(layout.WINDOW_FILE):
            appender.set_holes_aside(layout.WINDOW_FILE)
    tail.mark_checked()


def rebuilt_journal(context: bytes, time: str, *, is_durable: bool) -> bytes:
    """Return a new journal for an archive that lost its own: one batch per whole line, all marked as rebuilt.

    It is published whole. If it grew record by record, a crash would leave a shorter one, and the rest of the archive
    would look like a torn tail. All records have the same *time*, since the real times are lost with the journal.

    Raises:
        MessageError: A line is no message, so that nothing can be appended safely.
    """
    journal = bytearray(encode({**begin_record(time), "rebuilt": True}))

    def read(offset: int, size_bytes: int) -> bytes:
        return bytes(journal[offset : offset + size_bytes])

    tail = JournalTail(read, is_durable=is_durable)
    tail.refresh(len(journal))
    for record in _adopted(tail, context, time):
        made = {**record, **tail.before()}
        line = encode(made)
        journal += line
        tail.fold(made, line[:-1], tail.end)
        tail.mark_synced(transcript=False)
    return bytes(journal)


def _adopt(tail: JournalTail, appender: Appender, time: str) -> None:
    """Commit the whole lines after the last batch again, one batch a line, marked as rebuilt."""
    file = appender.files[layout.CONTEXT_FILE]
    file.sync()
    for record in _adopted(tail, file.read(tail.context_end, file.size() - tail.context_end), time):
        appender.note(record, durable=False)
    appender.sync_earlier()


def _adopted(tail: JournalTail, content: bytes, time: str) -> Iterator[Record]:
    """Yield the record of each whole line of *content*, which follows the last batch; the caller adds it to *tail*."""
    for line in content[: content.rfind(b"\n") + 1].splitlines(keepends=True):
        value = parse(line)
        message = ArchivedMessage(tail.messages, detect(value).name, value, ())
        synced = min(tail.synced.context, tail.context_end)
        byte_range = ByteRange(tail.context_end, (len(line),), hashlib.sha256(line).hexdigest(), synced, tail.end)
        times = times_of([message])
        lines = rendered([message], tail.messages, times, tail)
        derived = transcript_bytes(lines)
        record = batch_record(
            tail, [message], batch_id="", lines=lines, derived=derived, byte_range=byte_range, time=time, times=times
        )
        yield {**record, "rebuilt": True}


def _first_torn(tail: JournalTail, appender: Appender, content: Content) -> int | None:
    """Return the journal offset of the oldest record whose bytes never became durable; None if there is none.

    Nothing after it was acknowledged, since a sync comes before every acknowledgement.
    """
    torn: list[int] = []
    batches, summaries = tail.unchecked()
    for batch in batches:
        if content(batch) is None:
            torn.append(batch.byte_range.record_offset)
            break  # the later ones are newer
    for byte_range in summaries:
        found = appender.files[layout.SUMMARIES_FILE].read(byte_range.offset, sum(byte_range.sizes))
        if not byte_range.holds(found):
            torn.append(byte_range.record_offset)
    return min(torn, default=None)


def _complete_transcript(
    tail: JournalTail, appender: Appender, content: Content, index: WholeIndex, *, is_first_look: bool
) -> None:
    """Render the missing end of the transcript, which is not synced: a power cut may have taken it."""
    file = appender.files[layout.TRANSCRIPT_FILE]
    size, last = file.size(), tail.last_batch
    end = _end_of_whole(file, min(tail.synced.transcript, size)) if is_first_look else size
    if size == end == tail.transcript_end and not (
        is_first_look and last and not _is_rendered(tail, last, file, content)
    ):
        return
    batches = index().batches
    whole = sum(batch.transcript_end <= end for batch in batches)
    while whole and not _is_rendered(tail, batches[whole - 1], file, content):
        whole -= 1
    # Nothing is set aside, since all of it can be rendered again.
    file.cut(batches[whole - 1].transcript_end if whole else 0)
    for batch in batches[whole:]:
        lines = _rendered(tail, batch, content)
        file.append(blank_lines(batch.transcript_bytes, sum(batch.lines)) if lines is None else lines)


def _end_of_whole(file: OpenFile, start: int) -> int:
    """Return the offset of the first hole after *start*: zeros, which a transcript never contains."""
    hole = file.read(start, file.size() - start).find(b"\0")
    return file.size() if hole < 0 else start + hole


def _is_rendered(known: JournalState, batch: Batch, file: OpenFile, content: Content) -> bool:
    lines = _rendered(known, batch, content)
    return lines is None or file.read(batch.transcript_offset, batch.transcript_bytes) == lines


def _rendered(known: JournalState, batch: Batch, content: Content) -> bytes | None:
    """Return the lines of *batch*; None if it is damaged, or now has another size than its record says."""
    found = content(batch)
    if found is None:
        return None
    lines = transcript_bytes(rendered(messages_of(batch, found), batch.first, batch.times, known))
    return lines if len(lines) == batch.transcript_bytes else None
