"""The archive of a session: batches of messages in ``context.jsonl``, found again by number or by text."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from buoyline.errors import ConflictError, CorruptError, MessageError, NotFoundError
from buoyline.messages import detect, dialect_named, spell
from buoyline.messages.payloads import put_back, take_out
from buoyline.workspace import layout
from buoyline.workspace.archived import ArchivedMessage, messages_of, rendered, transcript_bytes
from buoyline.workspace.blobs import Blobs
from buoyline.workspace.commit import Appender
from buoyline.workspace.journal import Batch, Index, batch_record
from buoyline.workspace.recovery import batch_after, references_of
from buoyline.workspace.session import Session, now


class Archive:
    """The messages that left a session's context."""

    def __init__(self, session: Session, blobs: Blobs) -> None:
        """Archive into *session*, payloads into *blobs*."""
        self._session = session
        self._blobs = blobs

    def add(self, messages: Sequence[Any], *, batch_id: str = "", dialect: str | None = None) -> tuple[Batch, ...]:
        """Append *messages* as one batch, whole or not at all; durable on return.

        Args:
            messages: Native messages in order.
            batch_id: Makes a repetition known, at any time; without one only an identical call right after
                the first counts as its repetition.
            dialect: Name of the messages' dialect; detected for each where it is None.

        Returns:
            The batch; nothing when there are no messages.

        Raises:
            MessageError: One of *messages* is no message; nothing was written.
            ConflictError: *batch_id* stands for other messages.
            StorageError: The file system refused; nothing was changed.
        """
        prepared = [self._prepared(message, position, dialect) for position, message in enumerate(messages)]
        if not prepared:
            return ()
        lines = [spell(message.value).encode("utf-8") + b"\n" for message in prepared]
        with self._session.writing() as (index, appender):
            known = self._known(index, batch_id, prepared, lines)
            if known is not None:
                appender.sync(layout.CONTEXT_FILE, layout.JOURNAL_FILE)
                return (known,)
            _commit(index, appender, batch_id, prepared, lines)
            return (index.batches[-1],)

    def messages(
        self,
        first: int = 0,
        end: int | None = None,
        *,
        on_damage: Callable[[CorruptError], None] | None = None,
    ) -> Iterator[ArchivedMessage]:
        """Yield the archived messages from *first* up to *end*, in order, up to the last committed one.

        Args:
            first: Index of the first message wanted, 0-based.
            end: Index behind the last one wanted; None for all.
            on_damage: Told of each batch whose bytes are not what was committed, which is then left out.

        Raises:
            NotFoundError: There is no such session.
            CorruptError: A batch is damaged and *on_damage* is not given.
        """
        batches = list(self._session.index().batches)
        for batch in batches:
            if batch.end <= first or (end is not None and batch.first >= end):
                continue
            content = self._session.content(batch)
            if content is not None:
                yield from (
                    m for m in messages_of(batch, content) if first <= m.number and (end is None or m.number < end)
                )
            elif batch is not batches[-1]:
                self._report(batch, on_damage)

    def with_payloads(self, message: ArchivedMessage) -> dict[str, Any]:
        """Return the message's JSON with its payloads put back, equal to what was archived.

        Raises:
            CorruptError: A payload is not what was stored.
            StorageError: A payload is gone.
        """
        value: dict[str, Any] = put_back(message.value, message.references, self._blobs.get)
        return value

    def line_ranges(self, first: int, end: int) -> tuple[tuple[int, int], ...]:
        """Return first and last transcript line of the messages from *first* up to *end*.

        Raises:
            NotFoundError: They are not all archived.
        """
        batches = self._session.index().batches
        start = bisect_right(batches, first, key=lambda batch: batch.first) - 1
        ranges: list[tuple[int, int]] = []
        for batch in batches[max(start, 0) :]:
            if batch.first >= end:
                break
            ranges += batch.line_ranges()[max(first - batch.first, 0) : end - batch.first]
        if len(ranges) != end - first:
            raise NotFoundError("archived messages", f"{first}-{end - 1}", f"session {self._session.session_id!r}")
        return tuple(ranges)

    def missing(self, strings: Sequence[str]) -> list[str]:
        """Return those of *strings* that stand in neither the transcript nor any stored tool result, in order."""
        wanted = {text: text.encode("utf-8", "surrogatepass") for text in strings}
        for name in (layout.TRANSCRIPT_FILE, *self._session.index().results):
            if not wanted:
                break
            content = self._session.tree.read(self._session.name(name))
            wanted = {text: needle for text, needle in wanted.items() if needle not in content}
        return [text for text in strings if text in wanted]

    def _prepared(self, message: object, position: int, dialect: str | None) -> ArchivedMessage:
        try:
            found = dialect_named(dialect) if dialect else detect(message)
            found.view(message)
            native = found.to_json(message)
            spell(native)
        except MessageError as error:
            raise error.at(position) from error
        value, references = take_out(native, self._blobs.put)
        return ArchivedMessage(position, found.name, value, references)

    def _known(
        self, index: Index, batch_id: str, messages: list[ArchivedMessage], lines: Sequence[bytes]
    ) -> Batch | None:
        """Return the batch that a repetition of the same call has committed already."""
        known = index.by_batch_id.get(batch_id) if batch_id else index.batches[-1] if index.batches else None
        if known is None or (known.batch_id and not batch_id):
            return None
        # A text may spell a reference by itself: then the line is the same and the message is not.
        is_same = known.extent.holds(b"".join(lines)) and known.references == references_of(messages)
        if is_same:
            return known
        if batch_id:
            raise ConflictError(self._session.session_id, batch_id)
        return None

    def _report(self, batch: Batch, on_damage: Callable[[CorruptError], None] | None) -> None:
        what = f"messages {batch.first} to {batch.end - 1} (from byte {batch.extent.offset}) are not what was written"
        damage = CorruptError(self._session.path(layout.CONTEXT_FILE), what)
        if on_damage is None:
            raise damage
        on_damage(damage)


def _commit(
    index: Index, appender: Appender, batch_id: str, messages: list[ArchivedMessage], lines: Sequence[bytes]
) -> None:
    time = now()
    shown = rendered(messages, index.messages, time, index)
    appender.commit(
        layout.CONTEXT_FILE,
        lines,
        index,
        lambda extent: batch_record(
            batch_after(index, messages, batch_id=batch_id, lines=shown, extent=extent, time=time)
        ),
        derived=transcript_bytes(shown),
    )
