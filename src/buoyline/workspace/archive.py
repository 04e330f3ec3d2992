"""The archive of a session: batches of messages in ``context.jsonl``, found by number or by text."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from buoyline.messages.times import now
from buoyline.workspace import layout
from buoyline.workspace.batches import (
    ArchivedMessage,
    batch_record,
    check_first,
    known_batch,
    prepared,
    rendered,
    times_of,
    transcript_bytes,
)
from buoyline.workspace.blobs import Blobs
from buoyline.workspace.journal import Batch, ByteRange, Record
from buoyline.workspace.journal_tail import JournalTail
from buoyline.workspace.session import Session


class Archive:
    """The archived messages of a session."""

    def __init__(self, session: Session, blobs: Blobs) -> None:
        """Archive into *session*, and payloads into *blobs*."""
        self._session = session
        self._blobs = blobs

    def add(
        self,
        messages: Sequence[Any],
        *,
        batch_id: str = "",
        dialect: str | None = None,
        first: int | None = None,
        times: Sequence[str] = (),
    ) -> tuple[Batch, ...]:
        """Append *messages* as one batch, whole or not at all; durable on return.

        There is no batch if there are no messages. A later call with the same *batch_id* is a repetition. Without an
        id, only an identical call right after the first one is. *first* is the index that the first message must get;
        None for no check. *times*, ISO 8601, are for the headings of messages without a time of their own.

        Raises:
            MessageError: One of *messages* is no message; nothing was written.
            ConflictError: *batch_id* stands for other messages.
            StaleWindowError: The first would get another index; nothing was written.
            StorageError: The file system refused; nothing was changed.
        """
        with ExitStack() as lease:
            has_lease = False

            def put(payload: bytes, media_type: str) -> str:
                # Most messages have no payload, and the lock would take a tenth of the time of their append.
                nonlocal has_lease
                if not has_lease:
                    lease.enter_context(self._blobs.lease())
                    has_lease = True
                return self._blobs.put(payload, media_type)

            checked = prepared(messages, dialect, put)
            if not checked:
                return ()
            addition = _Addition(batch_id, checked, [message.line for message in checked], times_of(checked, times))
            if not has_lease and any(layout.REFERENCE_PREFIX in line for line in addition.lines):
                lease.enter_context(self._blobs.lease())
            with self._session.writing() as (tail, appender):
                known = known_batch(tail, self._session.session_id, batch_id, checked, addition.lines)
                if known is not None:
                    appender.sync_earlier()
                    return (known,)
                check_first(tail, self._session.session_id, first)
                record, derived = addition.rendered_behind(tail)
                appender.commit(layout.CONTEXT_FILE, addition.lines, record, derived=derived)
                return () if tail.last_batch is None else (tail.last_batch,)

    def missing(self, strings: Sequence[str]) -> list[str]:
        """Return those of *strings* that neither the transcript nor a stored tool result contains, in order."""
        tree, wanted = self._session.tree, {text: text.encode("utf-8", "surrogatepass") for text in strings}
        for file in (layout.TRANSCRIPT_FILE, *self._session.index().results):
            name = self._session.name(file)
            if wanted and tree.size(name) is not None:
                content = tree.read(name)
                wanted = {text: needle for text, needle in wanted.items() if needle not in content}
        return [text for text in strings if text in wanted]


class _Addition(NamedTuple):
    """A batch before its commit."""

    batch_id: str
    messages: Sequence[ArchivedMessage]
    lines: Sequence[bytes]
    times: tuple[str, ...]

    def rendered_behind(self, tail: JournalTail) -> tuple[Callable[[ByteRange], Record], bytes]:
        """Return a function that makes the record after those in *tail*, and the bytes for the transcript."""
        time = now()
        shown = rendered(self.messages, tail.messages, self.times, tail)
        derived = transcript_bytes(shown)

        def record(byte_range: ByteRange) -> Record:
            return batch_record(
                tail,
                self.messages,
                batch_id=self.batch_id,
                lines=shown,
                derived=derived,
                byte_range=byte_range,
                time=time,
                times=self.times,
            )

        return record, derived
