"""What the next writer does about a crash, under the session's lock.

Torn bytes are set aside, never lost; damage that newer records stand behind is never cut. Source: docs/format.md,
"Commit protocol".
"""

import hashlib
from collections.abc import Callable

from buoyline.messages import detect, parse
from buoyline.workspace import layout
from buoyline.workspace._files import Handle
from buoyline.workspace.archived import ArchivedMessage, messages_of, rendered, transcript_bytes
from buoyline.workspace.batches import batch_after
from buoyline.workspace.commit import Appender
from buoyline.workspace.journal import Batch, Extent, Index, batch_record

Content = Callable[[Batch], bytes | None]
"""Returns a batch's bytes, or None when they are not what was committed."""


def recover(index: Index, appender: Appender, content: Content, verified: int, time: str) -> None:
    """Bring the session's files back to the last commit.

    Args:
        index: What the journal says; a batch or summary that was never committed is dropped from it.
        appender: The session's files.
        content: Reads a batch.
        verified: How many of the first batches are known to be good, so that they are not hashed again.
        time: Stands in records of messages whose own record is damaged.
    """
    while len(index.batches) > verified and _is_torn(index, content):
        index.drop_last_batch()
    if index.summaries and _is_torn_summary(index, appender):
        index.drop_last_summary()
    appender.set_aside_behind(layout.JOURNAL_FILE, index.end)
    if _has_lost_a_record(index):
        # The bytes behind the last batch may be those of the damaged record: acknowledged, so they are kept.
        _adopt(index, appender, time)
    appender.set_aside_behind(layout.CONTEXT_FILE, index.context_end)
    _complete_transcript(index, appender, content, is_first_look=verified == 0)


def rebuild(index: Index, appender: Appender, time: str) -> None:
    """Give an archive whose journal is lost one batch per whole line, marked as rebuilt.

    Args:
        index: The empty index, which is filled.
        appender: The session's files.
        time: Stands in the records and headings, since the real times went with the journal.

    Raises:
        MessageError: A line is no message; then nothing can be appended safely.
    """
    appender.cut_transcript(0)
    _adopt(index, appender, time)


def _adopt(index: Index, appender: Appender, time: str) -> None:
    """Commit the whole lines behind the last batch again, one batch a line, marked as rebuilt."""
    file = appender.file(layout.CONTEXT_FILE)
    content = file.read(index.context_end, file.size() - index.context_end)
    for line in content[: content.rfind(b"\n") + 1].splitlines(keepends=True):
        value = parse(line)
        message = ArchivedMessage(index.messages, detect(value).name, value, ())
        extent = Extent(index.context_end, (len(line),), hashlib.sha256(line).hexdigest(), index.context_end, index.end)
        lines = rendered([message], index.messages, time, index)
        batch = batch_after(index, [message], batch_id="", lines=lines, extent=extent, time=time)
        appender.note({**batch_record(batch), "rebuilt": True}, index, durable=False)
    appender.sync(layout.JOURNAL_FILE)


def _has_lost_a_record(index: Index) -> bool:
    """Tell whether a damaged line of the journal stands behind the last batch's record."""
    last = index.batches[-1].extent.record_offset if index.batches else -1
    return any(offset > last for offset in index.damaged)


def _is_torn(index: Index, content: Content) -> bool:
    """Tell whether the last batch was never committed: its bytes are missing and no record follows it."""
    last = index.batches[-1]
    return last.extent.record_offset == index.last_record and content(last) is None


def _is_torn_summary(index: Index, appender: Appender) -> bool:
    last = index.summaries[-1]
    if last.record_offset != index.last_record:
        return False
    return not last.holds(appender.file(layout.SUMMARIES_FILE).read(last.offset, sum(last.sizes)))


def _complete_transcript(index: Index, appender: Appender, content: Content, *, is_first_look: bool) -> None:
    """Render again what is missing, or what a power cut left without its bytes: the transcript is not synced."""
    file = appender.file(layout.TRANSCRIPT_FILE)
    size = file.size()
    whole = sum(batch.transcript_end <= size for batch in index.batches)
    while is_first_look and whole and not _is_rendered(index, index.batches[whole - 1], file, content):
        whole -= 1
    end = index.batches[whole - 1].transcript_end if whole else 0
    if size == end == index.transcript_end:
        return
    appender.cut_transcript(end)
    for batch in index.batches[whole:]:
        appender.extend_transcript(_rendered(index, batch, content(batch) or b""))


def _is_rendered(index: Index, batch: Batch, file: Handle, content: Content) -> bool:
    found = content(batch)
    if found is None:
        return True
    return file.read(batch.transcript_offset, batch.transcript_bytes) == _rendered(index, batch, found)


def _rendered(index: Index, batch: Batch, content: bytes) -> bytes:
    return transcript_bytes(rendered(messages_of(batch, content), batch.first, batch.time, index))
