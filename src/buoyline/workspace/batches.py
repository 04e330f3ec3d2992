"""Batches of archived messages: making, recognising and finding one. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, chain, pairwise
from typing import Any

from buoyline.errors import ConflictError, MessageError, NotFoundError, StaleWindowError
from buoyline.messages import Message, spell
from buoyline.messages.jsonl import parse
from buoyline.messages.payloads import Reference, take_out
from buoyline.messages.registry import detect, dialect_named
from buoyline.messages.times import time_from, time_of
from buoyline.offloader.protocol import ArchivedBatch
from buoyline.offloader.transcript import is_reference_line, render, render_parts
from buoyline.workspace import layout
from buoyline.workspace.index import Index
from buoyline.workspace.journal import Batch, ByteRange, JournalState, Record, byte_range_fields, text_digest

# Archived messages as lines of ``context.jsonl``, and how a batch of them is rendered.


@dataclass(frozen=True)
class ArchivedMessage:
    """One line of ``context.jsonl``.

    Attributes:
        number: Position in the session, 0-based.
        value: The message's JSON with references in place of payloads.
    """

    number: int
    dialect: str
    value: dict[str, Any]
    references: tuple[Reference, ...]

    @cached_property
    def line(self) -> bytes:
        """Its line in ``context.jsonl``, line end included. Raises `MessageError` if it has no JSON form."""
        return spell(self.value).encode("utf-8") + b"\n"

    @cached_property
    def view(self) -> Message:
        """The neutral message. Raises `MessageError` if it is no message of its dialect."""
        return dialect_named(self.dialect).view(self.value)


def messages_of(batch: Batch, content: bytes) -> Iterator[ArchivedMessage]:
    """Yield the messages of *batch*, whose bytes are *content*, in order."""
    references: dict[int, list[Reference]] = {}
    for position, reference in batch.references:
        references.setdefault(position, []).append(reference)
    start = 0
    for position, (size, dialect) in enumerate(zip(batch.byte_range.sizes, batch.dialects, strict=True)):
        value = parse(content[start : start + size])
        yield ArchivedMessage(batch.first + position, dialect, value, tuple(references.get(position, ())))
        start += size


def rendered(
    messages: Iterable[ArchivedMessage], first: int, times: Sequence[str], known: JournalState
) -> list[list[str]]:
    """Render a batch for the transcript; *known* tells stubs from results."""
    return render([message.view for message in messages], first, times, lambda text: _notice(known, text))


def rendered_parts(
    messages: Iterable[Message], first: int, times: Sequence[str], known: JournalState
) -> Iterator[list[list[str]]]:
    """Yield the lines of `rendered` in groups: for each message its heading, each part, and the empty line."""
    return render_parts([*messages], first, times, lambda text: _notice(known, text))


def transcript_bytes(lines: Sequence[Sequence[str]]) -> bytes:
    """Return rendered lines as bytes of the transcript."""
    return "\n".join([*chain.from_iterable(lines), ""]).encode("utf-8")


def _notice(known: JournalState, text: str) -> str | None:
    if is_reference_line(text):
        return None  # the reference line of an image names the image and its file already
    stub = known.find_stub(text_digest(text))
    result = None if stub is None else known.find_result(stub["path"])
    if result is None:
        return None
    return f"[offloaded: {result['lines']:,} lines in {result.get('view') or result['path']}]"


def prepared(
    messages: Sequence[object], dialect: str | None, put: Callable[[bytes, str], str]
) -> list[ArchivedMessage]:
    """Check native messages, and take their payloads out: *put* stores decoded bytes of a media type.

    None of *messages* is changed. The results are numbered from 0 within the batch.

    Raises:
        MessageError: One of *messages* is no message, or has no JSON form; it is named by its position.
    """
    return [_prepared(message, position, dialect, put) for position, message in enumerate(messages)]


def times_of(messages: Sequence[ArchivedMessage], added: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the time of each message: its own, else the one in *added*; empty if there is neither.

    Raises:
        ValueError: *added* is not empty, and not as long as *messages*.
    """
    own = (time_of(message.value) for message in messages)
    return tuple(time or time_from(given) for time, given in zip(own, added or [""] * len(messages), strict=True))


def known_batch(
    known: JournalState, session_id: str, batch_id: str, messages: Sequence[ArchivedMessage], lines: Sequence[bytes]
) -> Batch | None:
    """Return the batch that an earlier call committed for the same messages; None if this call is new.

    Without a batch id, only an identical call right after the first one is a repetition.

    Raises:
        ConflictError: *batch_id* belongs to other messages.
    """
    batch = known.find_batch(batch_id) if batch_id else known.last_batch
    if batch is None or (batch.batch_id and not batch_id):
        return None
    # A text may contain a reference by itself: then the lines are equal and the messages are not.
    is_same = batch.byte_range.sizes == tuple(map(len, lines)) and batch.byte_range.holds(b"".join(lines))
    if is_same and batch.references == references_of(messages):
        return batch
    if batch_id:
        raise ConflictError(session_id, batch_id)
    return None


def check_first(known: JournalState, session_id: str, first: int | None) -> None:
    """Check that *first* is the index of the next archived message; None is not checked.

    Raises:
        StaleWindowError: Another writer archived messages, or fewer are archived than the caller believes.
    """
    if first is not None and first != known.messages:
        reason = f"its archive holds {known.messages} messages where {first} were expected"
        raise StaleWindowError(session_id, reason)


def batch_record(
    known: JournalState,
    messages: Sequence[ArchivedMessage],
    *,
    batch_id: str,
    lines: list[list[str]],
    derived: bytes,
    byte_range: ByteRange,
    time: str,
    times: tuple[str, ...],
) -> Record:
    """Return the record of the next batch after those in *known*, rendered as *lines*, which are *derived* as bytes."""
    dialects = [message.dialect for message in messages]
    return {
        "op": "batch",
        "id": batch_id,
        "dialect": dialects[0] if len(set(dialects)) == 1 else dialects,
        "first": known.messages,
        **byte_range_fields(byte_range),
        "line": known.next_line,
        "lines": [len(message) for message in lines],
        "transcript": [known.transcript_end, len(derived)],
        "references": [[n, list(ref.at), ref.head, ref.reference] for n, ref in references_of(messages)],
        "time": time,
        "times": list(times),
    }


def references_of(messages: Sequence[ArchivedMessage]) -> tuple[tuple[int, Reference], ...]:
    """Return the place of every payload that was taken out of *messages*, with the message's position."""
    return tuple((position, ref) for position, message in enumerate(messages) for ref in message.references)


def batches_between(index: Index, first: int, end: int | None) -> list[Batch]:
    """Return the batches that hold messages from *first* up to *end*, in order; None stands for the last message."""
    start = bisect_right(index.batches, first, key=lambda batch: batch.first) - 1
    found = index.batches[max(start, 0) :]
    return found if end is None else found[: bisect_left(found, end, key=lambda batch: batch.first)]


def line_ranges(index: Index, session_id: str, first: int, end: int) -> tuple[tuple[int, int], ...]:
    """Return first and last transcript line of the messages from *first* up to *end*.

    Raises:
        NotFoundError: They are not all archived.
    """
    ranges: list[tuple[int, int]] = []
    for batch in batches_between(index, first, end):
        ranges += batch.line_ranges()[max(first - batch.first, 0) : end - batch.first]
    if len(ranges) != end - first:
        raise NotFoundError("archived messages", f"{first}-{end - 1}", f"session {session_id!r}")
    return tuple(ranges)


def transcript_lines(
    batches: Sequence[Batch], first: int, end: int, read: Callable[[int, int], bytes]
) -> list[list[str]]:
    """Return the transcript's lines of each message from *first* up to *end*, which *batches* hold.

    There are none if the transcript does not match the journal: it is derived, and may be missing or altered.
    """
    shown: list[list[str]] = []
    for batch in batches:
        lines = read(batch.transcript_offset, batch.transcript_bytes).decode("utf-8", "replace").split("\n")[:-1]
        if len(lines) != sum(batch.lines):
            return []
        ends = list(accumulate(batch.lines, initial=0))
        ranges = list(pairwise(ends))[max(first - batch.first, 0) : end - batch.first]
        shown += [lines[start:stop] for start, stop in ranges]
    return shown if len(shown) == end - first else []


def located(path: Callable[[str], str], first: int, lines: tuple[tuple[int, int], ...]) -> ArchivedBatch:
    """Describe the messages from *first* on, at *lines* of the transcript; *path* returns the path of a file."""
    return ArchivedBatch(
        reference=path(layout.CONTEXT_FILE),
        transcript=path(layout.TRANSCRIPT_FILE),
        transcript_name=layout.TRANSCRIPT_FILE,
        first=first,
        lines=lines,
    )


def _prepared(message: object, position: int, dialect: str | None, put: Callable[[bytes, str], str]) -> ArchivedMessage:
    try:
        found = dialect_named(dialect) if dialect else detect(message)
        native = ArchivedMessage(position, found.name, found.to_json(message), ())
        # An invalid message fails here, before its payloads are stored. Both properties are cached for later.
        _ = native.view, native.line
    except MessageError as error:
        raise error.at(position) from error
    value, references = take_out(native.value, put)
    return replace(native, value=value, references=references) if references else native
