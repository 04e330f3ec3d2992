"""Checks of ``context.jsonl`` and of the transcript that is derived from it."""

from contextlib import AbstractContextManager, nullcontext

from buoyline.errors import BuoylineError
from buoyline.workspace import layout
from buoyline.workspace._files import Handle
from buoyline.workspace.archived import messages_of, rendered, transcript_bytes
from buoyline.workspace.journal import Batch
from buoyline.workspace.verification.inspection import Inspection


class ArchiveCheck:
    """Compares the archive with the journal, and the transcript with the archive."""

    def __init__(self, session: Inspection, renderer: object) -> None:
        """Check *session*, whose transcript was rendered by version *renderer*."""
        self._session = session
        self._index = session.index
        self._can_render = renderer == layout.RENDERER and session.scan.is_whole
        self._transcript_size = session.size(layout.TRANSCRIPT_FILE)
        self._is_stale = False

    def run(self) -> None:
        """Check sizes, then contents where hashes are wanted."""
        size = self._session.size(layout.CONTEXT_FILE)
        if size is not None:
            self._check_size(size)
        if self._index.batches:
            self._check_transcript_size()
        if size is not None and self._session.hashes:
            self._check_contents(size)

    def _check_size(self, size: int) -> None:
        lost = next((batch for batch in self._index.batches if batch.extent.end > size), None)
        if lost is not None and self._may_be_unfinished(lost):
            self._report_unfinished(lost)
        elif lost is not None:
            reason = (
                f"ends at byte {size:,} of {self._index.context_end:,} that are committed: messages {lost.first} to "
                f"{self._index.messages - 1} are not whole; restore them from a copy"
            )
            self._session.add("short-file", layout.CONTEXT_FILE, reason, line=lost.first + 1, offset=size)
        beyond = size - self._index.context_end
        if beyond > 0:
            reason = f"{beyond:,} bytes stand behind the last commit; the next writer sets them aside in torn/"
            self._session.add("torn-tail", layout.CONTEXT_FILE, reason, offset=self._index.context_end)

    def _check_transcript_size(self) -> None:
        last, size = self._index.batches[-1], self._transcript_size
        if size is None:
            if layout.TRANSCRIPT_FILE not in self._session.entries:
                self._report_stale("is missing; the next writer renders it again")
        elif size < last.transcript_offset:
            reason = f"ends at byte {size:,} of {last.transcript_end:,}; the next writer renders the rest again"
            self._report_stale(reason, offset=size)
        elif size != last.transcript_end:
            reason = f"has {size:,} bytes instead of {last.transcript_end:,}; the next writer cuts or completes it"
            self._session.add("torn-transcript", layout.TRANSCRIPT_FILE, reason, offset=last.transcript_offset)

    def _check_contents(self, size: int) -> None:
        session = self._session
        with session.refusals(), session.open(layout.CONTEXT_FILE) as context, self._transcript() as transcript:
            for batch in self._index.batches:
                if batch.extent.end > size:
                    break
                part = session.probe.part(context, batch.extent.offset, sum(batch.extent.sizes))
                if part.sha256 != batch.extent.sha256:
                    self._report_changed(batch)
                elif transcript is not None and batch.transcript_end <= (self._transcript_size or 0):
                    self._compare(transcript, batch, part.content)

    def _transcript(self) -> AbstractContextManager[Handle | None]:
        return nullcontext() if self._transcript_size is None else self._session.open(layout.TRANSCRIPT_FILE)

    def _compare(self, transcript: Handle, batch: Batch, content: bytes | None) -> None:
        """Report where the transcript is not what the batch is rendered to; once, since one cut shifts all."""
        if not self._is_stale and not self._is_rendered(transcript, batch, content):
            last = batch.first + len(batch.lines) - 1
            reason = (
                f"the lines of messages {batch.first} to {last} are not those of the archive, which is whole; read "
                f"{layout.CONTEXT_FILE} there"
            )
            self._report_stale(reason, line=batch.line, offset=batch.transcript_offset)

    def _is_rendered(self, transcript: Handle, batch: Batch, content: bytes | None) -> bool:
        probe = self._session.probe
        expected = None if content is None else self._rendered(batch, content)
        if expected is None:
            return probe.line_ends(transcript, batch.transcript_offset, batch.transcript_bytes) == sum(batch.lines)
        found = b"".join(probe.chunks(transcript, batch.transcript_offset, batch.transcript_bytes))
        return found == transcript_bytes(expected) and batch.lines == tuple(map(len, expected))

    def _rendered(self, batch: Batch, content: bytes) -> list[list[str]] | None:
        """Render a batch as it was when it was archived; None where that is not possible any more."""
        if not self._can_render or batch.end in self._session.scan.rebuilt:
            return None
        try:
            return rendered(messages_of(batch, content), batch.first, batch.heading_times, self._index)
        except BuoylineError:
            return None

    def _may_be_unfinished(self, batch: Batch) -> bool:
        return self._index.may_be_torn(batch)

    def _report_changed(self, batch: Batch) -> None:
        if self._may_be_unfinished(batch):
            self._report_unfinished(batch)
            return
        reason = f"messages {batch.first} to {batch.end - 1} are not what was written; restore the file from a copy"
        self._session.add(
            "changed-bytes", layout.CONTEXT_FILE, reason, line=batch.first + 1, offset=batch.extent.offset
        )

    def _report_unfinished(self, batch: Batch) -> None:
        reason = (
            f"messages {batch.first} to {batch.end - 1}, the last batch, are not what its record says: a power cut "
            "before they were acknowledged, or damage; the next writer sets them aside, so compare with a copy first"
        )
        self._session.add(
            "unfinished-batch", layout.CONTEXT_FILE, reason, line=batch.first + 1, offset=batch.extent.offset
        )

    def _report_stale(self, reason: str, *, line: int | None = None, offset: int | None = None) -> None:
        self._is_stale = True
        self._session.add("stale-transcript", layout.TRANSCRIPT_FILE, reason, line=line, offset=offset)
