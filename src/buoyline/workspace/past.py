"""What stood in a session's window right after one of its compressions: put together from what is on disk, and proven.

``window.jsonl`` holds the context as it is now. But each time it was replaced the journal noted its size and hash, and
all that ever stood in it is in the archive, in ``summaries.jsonl``, or still in the window. So the file of then can be
spelled again, line by line, and the hash says whether it is the same.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from buoyline.errors import CorruptError, NotFoundError, StorageError
from buoyline.messages import dialect_named
from buoyline.workspace import layout
from buoyline.workspace.archive import Archive
from buoyline.workspace.archived import ArchivedMessage
from buoyline.workspace.journal import Record, decode, lines_of
from buoyline.workspace.logs import Window
from buoyline.workspace.records import window_line
from buoyline.workspace.session import Session


@dataclass(frozen=True, slots=True)
class PastWindow:
    """A window right after a compression.

    Attributes:
        head: Session indexes of the archived messages that stood again before the summary: system messages and pins.
        end: Session index behind the last message that had been added then.
    """

    head: tuple[int, ...]
    end: int


def past_window(session: Session, archive: Archive, number: int, summary: Mapping[str, Any]) -> PastWindow | None:
    """Return what stood in the window when *summary* was put there.

    Args:
        session: Whose window.
        archive: Of the same session.
        number: Of the summary, counted from 1.
        summary: Its line of ``summaries.jsonl``.

    Returns:
        The window; None where the journal has no note of it (the session has none, the journal was rebuilt, or the
        summary was never shown), or where what is on disk does not give the bytes noted: a message that stayed then
        was shrunk later, or is damaged.

    Raises:
        NotFoundError: There is no such session.
        CorruptError: Its journal is gone.
    """
    first_kept: int = summary["messages"][1]
    if first_kept > session.index().messages:
        return None
    note = _note_behind(session.tree.read(session.name(layout.JOURNAL_FILE)), number, first_kept)
    if note is None or not note["head"] or note["head"][-1] != "summary":
        return None
    staying = list(_staying(archive, note))
    try:
        lines = [archive_line(archive, message) for message in staying]
        lines.append(_summary_line(archive, first_kept, summary))
        kept = _matched(chain(lines, _lines_from(session, archive, first_kept)), note)
    except (CorruptError, StorageError):
        return None
    if kept is None:
        return None
    return PastWindow(tuple(message.number for message in staying), first_kept + kept - len(lines))


def archive_line(archive: Archive, message: ArchivedMessage) -> bytes:
    """Return how an archived message stood in ``window.jsonl``.

    Raises:
        CorruptError: A payload of it is not what was stored.
        StorageError: A payload of it is gone.
    """
    return window_line(archive.with_payloads(message))


def _note_behind(journal: bytes, number: int, first_kept: int) -> Record | None:
    """Return the first note of a window that begins with message *first_kept*, behind summary *number*.

    A note of the window before may stand in between, after a crash.
    """
    summaries = 0
    for _, line in lines_of(journal, 0):
        record = decode(line)
        if record is None:
            continue
        summaries += record["op"] == "summary"
        if record["op"] == "window" and summaries == number and record["first"] == first_kept:
            return record
    return None


def _staying(archive: Archive, note: Record) -> Iterator[ArchivedMessage]:
    """Yield the archived messages in the head, oldest first; no more of the archive is read than up to the last."""
    wanted, pins = len(note["head"]) - 1, set(note["pins"])
    for message in archive.messages(0, note["first"], on_damage=_passed_over) if wanted else ():
        if message.number in pins or message.view.role == "system":
            yield message
            wanted -= 1
        if not wanted:
            return


def _summary_line(archive: Archive, first_kept: int, summary: Mapping[str, Any]) -> bytes:
    (last,) = archive.messages(first_kept - 1, first_kept)
    return window_line(dialect_named(last.dialect).user_message(str(summary.get("text", ""))))


def _lines_from(session: Session, archive: Archive, first: int) -> Iterator[bytes]:
    """Yield the lines of the messages from *first* on: those archived since, then those in the window now."""
    following = first
    for message in archive.messages(first):
        yield archive_line(archive, message)
        following = message.number + 1
    try:
        window = Window(session).load()
    except NotFoundError:
        return
    for _, value in window.messages[len(window.head) + max(following - window.first, 0) :]:
        yield window_line(value)


def _matched(lines: Iterator[bytes], note: Record) -> int | None:
    """Return how many of *lines* are the bytes that *note* is about; None where none are."""
    digest, size_bytes, count = hashlib.sha256(), 0, 0
    while size_bytes < note["bytes"]:
        line = next(lines, b"")
        if not line:
            return None
        digest.update(line)
        size_bytes += len(line)
        count += 1
    return count if size_bytes == note["bytes"] and digest.hexdigest() == note["sha256"] else None


def _passed_over(_: CorruptError) -> None:
    """Go on behind a damaged batch: the hash says whether anything of it was needed."""
