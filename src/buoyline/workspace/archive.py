"""The archive of a session: batches of messages in ``context.jsonl``, found by number or by text."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from buoyline.errors import CorruptError
from buoyline.messages.payloads import put_back
from buoyline.messages.times import now
from buoyline.workspace import layout
from buoyline.workspace.batches import (
    ArchivedMessage,
    batch_after,
    batches_between,
    check_first,
    known_batch,
    line_ranges,
    lines_of,
    messages_of,
    prepared,
    rendered,
    times_of,
    transcript_bytes,
    transcript_lines,
)
from buoyline.workspace.blobs import Blobs
from buoyline.workspace.index import Index
from buoyline.workspace.journal import Batch, ByteRange, Record, batch_from, batch_record
from buoyline.workspace.journal_tail import JournalTail
from buoyline.workspace.quotas import UNLIMITED, QuotaChecker
from buoyline.workspace.records import absent
from buoyline.workspace.results import StagedBlobs
from buoyline.workspace.session import Session
from buoyline.workspace.tree import Tree


class Archive:
    """The archived messages of a session."""

    def __init__(self, session: Session, blobs: Blobs, quota: QuotaChecker = UNLIMITED) -> None:
        """Archive into *session*, and payloads into *blobs*, within *quota*."""
        self._session = session
        self._blobs = blobs
        self._quota = quota

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

        Args:
            messages: Native messages in order.
            batch_id: A later call with the same id is a repetition. Without an id, only an identical call right after
                the first one is.
            dialect: Name of the messages' dialect; None to detect it for each.
            first: Index that the first message must get; None for no check.
            times: When each message was added, ISO 8601, for the headings of messages without a time of their own;
                empty if not known.

        Returns:
            The batch; none if there are no messages.

        Raises:
            MessageError: One of *messages* is no message; nothing was written.
            ConflictError: *batch_id* stands for other messages.
            StaleWindowError: The first would get another index; nothing was written.
            QuotaExceededError: A payload, the session or the workspace would exceed its quota; nothing was written.
            StorageError: The file system refused; nothing was changed.
        """
        staged = StagedBlobs(self._blobs, self._quota)
        with ExitStack() as lease:
            has_lease = False

            def put(payload: bytes, media_type: str) -> str:
                # Most messages have no payload, and the lock would take a tenth of the time of their append.
                nonlocal has_lease
                if not has_lease:
                    lease.enter_context(self._blobs.lease())
                    has_lease = True
                return staged.put(payload, media_type)

            checked = prepared(messages, dialect, put)
            if not checked:
                return ()
            addition = _Addition(batch_id, checked, lines_of(checked), times_of(checked, times), staged)
            if not has_lease and any(layout.REFERENCE_PREFIX in line for line in addition.lines):
                lease.enter_context(self._blobs.lease())
            self._check_new(addition)
            with self._session.writing() as (tail, appender):
                known = known_batch(tail, self._session.session_id, batch_id, checked, addition.lines)
                if known is not None:
                    appender.sync_found()
                    return (known,)
                check_first(tail, self._session.session_id, first)
                record, derived = addition.rendered_behind(tail)
                if self._quota.is_limited:
                    self._quota.admit(self._session, tail, *addition.growth(tail, self._session.tree, record, derived))
                    staged.write()
                made = appender.commit(layout.CONTEXT_FILE, addition.lines, record, derived=derived)
                return (batch_from(*made),)

    def messages(
        self,
        first: int = 0,
        end: int | None = None,
        *,
        on_damage: Callable[[CorruptError], None] | None = None,
    ) -> Iterator[ArchivedMessage]:
        """Yield the archived messages from *first* up to *end*, in order; fewer if fewer are committed.

        Args:
            first: Index of the first message wanted, 0-based.
            end: Index behind the last one wanted; None for all.
            on_damage: Called for each batch whose bytes changed since the commit; the batch is skipped.

        Raises:
            NotFoundError: There is no such session.
            CorruptError: A batch is damaged, and there is no *on_damage*.
        """
        index = self._session.index()
        for batch in batches_between(index, first, end):
            content = self._session.content(batch)
            if content is not None:
                yield from (
                    m for m in messages_of(batch, content) if first <= m.number and (end is None or m.number < end)
                )
            elif self._is_torn_from(batch, index):
                return
            else:
                self._report(batch, on_damage)

    def with_payloads(self, message: ArchivedMessage) -> dict[str, Any]:
        """Return the JSON of an archived message with its payloads.

        Raises:
            CorruptError: A payload does not hold the stored bytes.
            StorageError: A payload is missing.
        """
        value: dict[str, Any] = put_back(message.value, message.references, self._blobs.get)
        return value

    def line_ranges(self, first: int, end: int) -> tuple[tuple[int, int], ...]:
        """Return first and last transcript line of the messages from *first* up to *end*.

        Raises:
            NotFoundError: They are not all archived.
        """
        return line_ranges(self._session.index(), self._session.session_id, first, end)

    def transcript_lines(self, first: int, end: int) -> list[list[str]]:
        """Return the transcript's lines of the messages from *first* up to *end*; none if it is not whole."""
        tree, name = self._session.tree, self._session.name(layout.TRANSCRIPT_FILE)
        if tree.size(name) is None:
            return []
        batches = batches_between(self._session.index(), first, end)
        return transcript_lines(batches, first, end, lambda offset, size_bytes: tree.read(name, offset, size_bytes))

    def missing(self, strings: Sequence[str]) -> list[str]:
        """Return those of *strings* that neither the transcript nor a stored tool result contains, in order."""
        names = map(self._session.name, (layout.TRANSCRIPT_FILE, *self._session.index().results))
        tree = self._session.tree
        return absent(strings, (tree.read(name) for name in names if tree.size(name) is not None))

    def _check_new(self, addition: "_Addition") -> None:
        if self._quota.is_limited and not self._session.exists():
            tail = JournalTail(lambda _offset, _size_bytes: b"")
            needed = addition.growth(tail, self._session.tree, *addition.rendered_behind(tail))
            self._quota.check_new(self._session, *needed)

    def _is_torn_from(self, batch: Batch, index: Index) -> bool:
        """Return whether the next writer will set *batch* aside.

        Without syncs a power cut may take several batches; then all later ones are lost, too.
        """
        if index.may_be_torn(batch):
            return True
        if batch.byte_range.end <= index.proven.context or not index.may_be_torn(index.batches[-1]):
            return False
        return all(self._session.content(later) is None for later in batches_between(index, batch.end, None))

    def _report(self, batch: Batch, on_damage: Callable[[CorruptError], None] | None) -> None:
        what = (
            f"messages {batch.first} to {batch.end - 1} (from byte {batch.byte_range.offset}) are not what was written"
        )
        damage = CorruptError(self._session.path(layout.CONTEXT_FILE), what)
        if on_damage is None:
            raise damage
        on_damage(damage)


class _Addition(NamedTuple):
    """A batch before its commit, with its waiting payloads."""

    batch_id: str
    messages: Sequence[ArchivedMessage]
    lines: Sequence[bytes]
    times: tuple[str, ...]
    staged: StagedBlobs

    def rendered_behind(self, tail: JournalTail) -> tuple[Callable[[ByteRange], Record], bytes]:
        """Return a function that makes the record after those in *tail*, and the bytes for the transcript."""
        time = now()
        shown = rendered(self.messages, tail.messages, self.times, tail)
        derived = transcript_bytes(shown)

        def record(byte_range: ByteRange) -> Record:
            made = batch_after(
                tail,
                self.messages,
                batch_id=self.batch_id,
                lines=shown,
                derived=derived,
                byte_range=byte_range,
                time=time,
                times=self.times,
            )
            return batch_record(made)

        return record, derived

    def growth(
        self, tail: JournalTail, tree: Tree, record: Callable[[ByteRange], Record], derived: bytes
    ) -> tuple[int, list[Record], int]:
        """Return how many bytes it adds to the session's files, its record, and how many it adds to ``data/``."""
        # The record is as long as the real one, whose hash is not known before the bytes are written.
        byte_range = ByteRange(tail.context_end, tuple(map(len, self.lines)), "0" * 64, tail.context_end, tail.end)
        return sum(byte_range.sizes) + len(derived), [record(byte_range)], self.staged.new_bytes(tree)
