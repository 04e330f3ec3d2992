"""What the next writer does about a crash, under the session's lock.

Torn bytes are set aside, never lost; damage that newer records stand behind is never cut. Source: docs/format.md,
"Commit protocol".
"""

import hashlib
from collections.abc import Callable

from buoyline.messages import detect, parse
from buoyline.workspace import layout
from buoyline.workspace.archived import ArchivedMessage, messages_of, rendered, transcript_bytes
from buoyline.workspace.batches import batch_after
from buoyline.workspace.commit import Appender
from buoyline.workspace.journal import Batch, Extent, Index, batch_record

Content = Callable[[Batch], bytes | None]
"""Returns a batch's bytes, or None when they are not what was committed."""


def recover(index: Index, appender: Appender, content: Content, verified: int) -> None:
    """Bring the session's files back to the last commit.

    Args:
        index: What the journal says; a batch that was never committed is dropped from it.
        appender: The session's files.
        content: Reads a batch.
        verified: How many of the first batches are known to be good, so that they are not hashed again.
    """
    while len(index.batches) > verified and _is_torn(index, content):
        index.drop_last_batch()
    appender.set_aside_behind(layout.JOURNAL_FILE, index.end)
    appender.set_aside_behind(layout.CONTEXT_FILE, index.context_end)
    _complete_transcript(index, appender, content)


def rebuild(index: Index, appender: Appender, archive: bytes, time: str) -> None:
    """Give an archive whose journal is lost one batch per whole line, marked as rebuilt.

    Args:
        index: The empty index, which is filled.
        appender: The session's files.
        archive: All bytes of ``context.jsonl``.
        time: Stands in the records and headings, since the real times went with the journal.

    Raises:
        MessageError: A line is no message; then nothing can be appended safely.
    """
    appender.cut_transcript(0)
    for line in archive[: archive.rfind(b"\n") + 1].splitlines(keepends=True):
        value = parse(line)
        message = ArchivedMessage(index.messages, detect(value).name, value, ())
        extent = Extent(index.context_end, (len(line),), hashlib.sha256(line).hexdigest(), index.context_end, index.end)
        lines = rendered([message], index.messages, time, index)
        batch = batch_after(index, [message], batch_id="", lines=lines, extent=extent, time=time)
        appender.note({**batch_record(batch), "rebuilt": True}, index, durable=False)
    appender.sync(layout.JOURNAL_FILE)


def _is_torn(index: Index, content: Content) -> bool:
    """Tell whether the last batch was never committed: its bytes are missing and no record follows it."""
    last = index.batches[-1]
    return last.extent.record_offset == index.last_record and content(last) is None


def _complete_transcript(index: Index, appender: Appender, content: Content) -> None:
    size = appender.file(layout.TRANSCRIPT_FILE).size()
    if size == index.transcript_end:
        return
    whole = sum(batch.transcript_end <= size for batch in index.batches)
    appender.cut_transcript(index.batches[whole - 1].transcript_end if whole else 0)
    for batch in index.batches[whole:]:
        messages = messages_of(batch, content(batch) or b"")
        appender.extend_transcript(transcript_bytes(rendered(messages, batch.first, batch.time, index)))
