"""Follows one session: reads from its journal what happened since the last look."""

import errno
import hashlib
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from buoyline.errors import MessageError, StorageError
from buoyline.messages.jsonl import is_array, is_object, parse
from buoyline.watching.events import BatchArchived, ResultStored, SummaryWritten, WorkspaceEvent
from buoyline.workspace import File, Files, layout
from buoyline.workspace.files import Version, version_in
from buoyline.workspace.index import is_of_a_kind
from buoyline.workspace.journal import Record, Synced, decode, lines_of, synced_before, tail_of

# A writer extends a journal, cuts it back after a failed commit, or replaces it. A follower therefore remembers the
# ends of the lines that it has read, with the last bytes of each (its checksum among them), and looks for them again.
# Source: docs/format.md, "Commit protocol".


# A failed commit takes back one record or two; more are remembered for journals that people restore from a copy.
_MARKS = 64
_PIECE_BYTES = 1 << 20
_LONGEST_LINE_BYTES = 1 << 26
"""64 MiB, the record of some millions of messages; a longer line is not a record and is skipped in pieces."""
_END_BYTES = 1 << 16


class JournalLine(NamedTuple):
    """A line of the journal, with its last bytes as *mark*; the record is None if it is damaged."""

    offset: int
    end: int
    mark: bytes
    record: Record | None


class Cursor:
    """A position in a journal, behind the lines that were read."""

    def __init__(self, passed: Sequence[JournalLine] = (), offset: int = 0) -> None:
        """Begin behind the lines *passed*; if there are none, at *offset*."""
        marks = [(entry.end, entry.mark) for entry in passed] or [(offset, b"")]
        self._marks = deque(marks, maxlen=_MARKS)

    def find(self, journal: File) -> bool:
        """Go back to the last remembered line that is still there; False, and the beginning, if none is."""
        while self._marks:
            end, mark = self._marks[-1]
            if end <= journal.size() and journal.read(end - len(mark), len(mark)) == mark:
                return True
            self._marks.pop()
        self._marks.append((0, b""))
        return False

    def next_lines(self, journal: File) -> tuple[list[JournalLine], bool]:
        """Return lines behind the position, and whether the journal goes on behind them.

        Damaged lines at the end of the journal are omitted, since the next writer sets them aside. About 1 MiB is read
        at once.
        """
        place, size_bytes = self._marks[-1][0], _PIECE_BYTES
        content = journal.read(place, size_bytes)
        # Two lines are needed: the last one is kept for the next call, since it may be the journal's last one.
        while content.count(b"\n") < 2 and size_bytes == len(content) < _LONGEST_LINE_BYTES:  # noqa: PLR2004
            size_bytes *= 4
            content = journal.read(place, size_bytes)
        found = list(_entries(content, place))
        if len(content) < size_bytes:
            return _up_to_last_record(found), False
        return found[:-1] or found or [JournalLine(place, place + len(content), tail_of(content)[:-1], None)], True

    def advance(self, entry: JournalLine) -> None:
        """Move behind *entry*."""
        self._marks.append((entry.end, entry.mark))


def last_lines(journal: File, is_enough: Callable[[Sequence[JournalLine]], bool]) -> list[JournalLine]:
    """Return lines from the end of the journal up to its last record: as many as *is_enough* asks for.

    If it never returns True, these are all lines, or those of the last 64 MiB. Little is read of a long journal.
    """
    size, size_bytes = journal.size(), _END_BYTES
    while True:
        begin = max(size - size_bytes, 0)
        content = journal.read(begin, size - begin)
        start = content.find(b"\n") + 1 if begin else 0
        found = _up_to_last_record(list(_entries(content[start:], begin + start)))
        if not begin or size_bytes >= _LONGEST_LINE_BYTES or is_enough(found):
            return found
        size_bytes *= 4


def _entries(content: bytes, place: int) -> Iterator[JournalLine]:
    for offset, line in lines_of(content, place):
        yield JournalLine(offset, offset + len(line) + 1, tail_of(line), decode(line))


def _up_to_last_record(entries: list[JournalLine]) -> list[JournalLine]:
    while entries and entries[-1].record is None:
        entries.pop()
    return entries


_COMMITTED_IN: Mapping[str, str] = {"batch": layout.CONTEXT_FILE, "summary": layout.SUMMARIES_FILE}
_REPORTED = frozenset({"batch", "result", "summary"})
_IGNORED_ERRNOS = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL, errno.ENXIO, errno.EACCES, errno.EPERM, errno.EISDIR}
)
_CHUNK_BYTES = 1 << 20
_MAX_SUMMARY_BYTES = 1 << 26


class SessionFollower:
    """Reports the events of one session, each once and in the order of their commits.

    It reads only, from where it stopped. Damage is skipped; `verify` reports it.
    """

    def __init__(self, files: Files, directory: str, session_id: str, *, last: int | None) -> None:
        """Follow the session in *directory*, from *last* events before its end; None: from its beginning.

        Every method raises StorageError if the file system refuses to show the session.
        """
        self.session_id = session_id
        self.directory = directory
        self._files = files
        self._cursor = Cursor()
        self._archived: int | None = None
        self._newest = ""
        self._is_catching_up = False
        self._seen: Version | None = None
        self._awaited: tuple[str, Version | None] | None = None
        if last is not None and self._version(layout.JOURNAL_FILE) is not None:
            self._start(last)

    def _start(self, last: int) -> None:
        """Skip all but the *last* events, and nothing that is incomplete."""
        with self._files.open(self._name(layout.JOURNAL_FILE)) as journal:
            entries = last_lines(journal, lambda found: len(_reported(found)) > last)
        whole = self._whole(entries)
        telling = _reported(entries[:whole])
        start = whole if not last else telling[-last] if len(telling) >= last else 0
        for record in map(_record, entries[:start]):
            if record is not None:
                self._remember(record)
        self._cursor = Cursor(entries[:start], entries[0].offset if entries else 0)

    def look(self) -> tuple[list[WorkspaceEvent], bool]:
        """Return the events committed since the last look, and whether there are more.

        If the journal ends with a batch or summary, it counts only if its bytes are there, as for all readers.
        """
        version = self._version(layout.JOURNAL_FILE)
        is_unchanged = version == self._seen
        if is_unchanged and self._awaited is not None:
            file, awaited = self._awaited
            is_unchanged = self._version(file) == awaited
        if version is None or is_unchanged:
            return [], False
        with self._files.open(self._name(layout.JOURNAL_FILE)) as journal:
            self._is_catching_up |= not self._cursor.find(journal)
            entries, has_more = self._cursor.next_lines(journal)
        events: list[WorkspaceEvent] = []
        for record in self._committed(entries, has_more=has_more):
            is_news = self._is_news(record)
            self._remember(record)
            event = self._event_of(record) if is_news else None
            if event is not None:
                events.append(event)
        self._seen = None if has_more else version
        return events, has_more

    def _committed(self, entries: Sequence[JournalLine], *, has_more: bool) -> Iterator[Record]:
        """Yield the records of *entries* and move behind them; stop before an incomplete one."""
        whole = self._whole(entries)
        for entry in entries[:whole]:
            self._cursor.advance(entry)
            record = _record(entry)
            if record is not None:
                yield record
        if has_more and not whole:
            # A whole piece of the journal without a durable record is damage, and is skipped.
            self._cursor.advance(entries[0])

    def _whole(self, entries: Sequence[JournalLine]) -> int:
        """Count the *entries* before the first one whose bytes are not there, and remember the file that lacks them.

        The records behind it were not acknowledged either, and the next writer sets all of them aside. Only bytes that
        no later record calls durable may be missing in this way, so only these are hashed: mostly those of the last
        record.
        """
        whole, durable = len(entries), Synced()
        self._awaited = None
        for position in range(len(entries) - 1, -1, -1):
            record = _record(entries[position])
            if record is None:
                continue
            file = _COMMITTED_IN.get(record["op"])
            known = durable.summaries if file == layout.SUMMARIES_FILE else durable.context
            if file is not None and record["offset"] + sum(record["bytes"]) > known:
                version = self._version(file)
                if not self._holds(file, record):
                    whole, self._awaited = position, (file, version)
            durable = Synced(*map(max, durable, synced_before(record)))
        return whole

    def _holds(self, file: str, record: Record) -> bool:
        """Hash the bytes that *record* describes in chunks, since a batch may have any size."""
        place, end = record["offset"], record["offset"] + sum(record["bytes"])
        digest = hashlib.sha256()
        with ignoring_foreign_files(), self._files.open(self._name(file)) as handle:
            while place < end <= handle.size() and (chunk := handle.read(place, min(end - place, _CHUNK_BYTES))):
                digest.update(chunk)
                place += len(chunk)
        return bool(place == end and digest.hexdigest() == record["sha256"])

    def _is_news(self, record: Record) -> bool:
        """Return whether *record* is new, or repeated by another journal in the place of the old one.

        A rebuilt journal has all messages in new records. A journal that somebody restored may have any records; of
        these, those that are not newer than all seen ones count as known.
        """
        if record.get("rebuilt") and record["op"] == "batch":
            return self._archived is not None and record["first"] >= self._archived
        if self._is_catching_up and str(record.get("time", "")) <= self._newest:
            return False
        self._is_catching_up = False
        return True

    def _remember(self, record: Record) -> None:
        self._newest = max(self._newest, str(record.get("time", "")))
        if record["op"] == "batch":
            self._archived = max(self._archived or 0, record["first"] + len(record["bytes"]))

    def _event_of(self, record: Record) -> WorkspaceEvent | None:
        """Return the event of *record*; None if it has none, or is of a summary whose line is damaged."""
        match record["op"]:
            case "batch":
                first, line = record["first"], record["line"]
                lines = line, line + sum(record["lines"]) - 1
                return BatchArchived(self.session_id, first, first + len(record["bytes"]), lines, record["time"])
            case "result":
                return ResultStored(
                    session_id=self.session_id,
                    call_id=record["call_id"],
                    name=record["path"],
                    size_bytes=record["bytes"],
                    lines=record["lines"],
                    view=str(record.get("view", "")),
                    time=str(record.get("time", "")),
                    kinds=tuple(part["kind"] for part in record.get("parts", ())),
                )
            case "summary":
                return self._summary_written(record)
            case _:
                return None

    def _summary_written(self, record: Record) -> SummaryWritten | None:
        size_bytes = sum(record["bytes"])
        summary: object = None
        if size_bytes <= _MAX_SUMMARY_BYTES and self._holds(layout.SUMMARIES_FILE, record):
            with ignoring_foreign_files():
                summary = parse(self._files.read(self._name(layout.SUMMARIES_FILE), record["offset"], size_bytes))
        if not is_object(summary):
            return None
        messages = summary.get("messages")
        first, end = messages if is_array(messages) and len(messages) == 2 else (0, 0)  # noqa: PLR2004 - half-open
        return SummaryWritten(
            session_id=self.session_id,
            n=_count(summary.get("n")),
            first=_count(first),
            end=_count(end),
            source_tokens=_count(summary.get("source_tokens")),
            tokens=_count(summary.get("tokens")),
            time=str(summary.get("created_at", "")),
        )

    def _version(self, file: str) -> Version | None:
        return version_in(self._files, self._name(file))

    def _name(self, file: str) -> str:
        return f"{self.directory}/{file}"


@contextmanager
def ignoring_foreign_files() -> Generator[None]:
    """Ignore errors of entries that are not buoyline's files, or are just being removed: links, pipes, missing rights.

    A failing disk or a lack of descriptors is raised.
    """
    try:
        yield
    except StorageError as error:
        if error.errno not in _IGNORED_ERRNOS:
            raise
    except MessageError:
        pass


def _record(entry: JournalLine) -> Record | None:
    """Return the record of *entry*; None if it is damaged, or has an unknown form."""
    return entry.record if entry.record is not None and is_of_a_kind(entry.record) else None


def _reported(entries: Sequence[JournalLine]) -> list[int]:
    """Return the positions of those *entries* that become events."""
    return [
        position
        for position, record in enumerate(map(_record, entries))
        if record is not None and record["op"] in _REPORTED
    ]


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
