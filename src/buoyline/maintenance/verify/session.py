"""Checks one session.

The journal is read before the files that it describes, so that a writer at work is not reported as damage.
"""

import errno
import reprlib
import zlib
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

from buoyline.errors import BuoylineError, MessageError, StorageError
from buoyline.maintenance.verify.inspection import (
    Inspection,
    Part,
    Probe,
    document_in,
    faults_of,
    foreign,
    is_known_format,
    leftover,
    set_aside,
    unknown_format,
)
from buoyline.maintenance.verify.journal import MAX_LINE_BYTES, FileLine, lines_of
from buoyline.messages.jsonl import is_array, is_object, parse
from buoyline.messages.registry import detect
from buoyline.offloader.view import view_of
from buoyline.previews.source import decoded
from buoyline.workspace import File, Files, layout, summary_facts
from buoyline.workspace.batches import messages_of, rendered, transcript_bytes
from buoyline.workspace.journal import Batch, ByteRange, Record
from buoyline.workspace.records import grown_to
from buoyline.workspace.stored_session import is_directory_of


class ArchiveCheck:
    """Compares ``context.jsonl`` with the journal, and the transcript with ``context.jsonl``."""

    def __init__(self, session: Inspection, renderer: object) -> None:
        """Check *session*, whose transcript has the version *renderer*."""
        self._session = session
        self._index = session.index
        self._can_render = renderer == layout.RENDERER and session.scan.is_whole
        self._transcript_size = session.size(layout.TRANSCRIPT_FILE)
        self._is_stale = False

    def run(self) -> None:
        """Check sizes, then contents if hashes are wanted."""
        size = self._session.size(layout.CONTEXT_FILE)
        if size is not None:
            self._check_size(size)
        if self._index.batches:
            self._check_transcript_size()
        if size is not None and self._session.hashes:
            self._check_contents(size)

    def _check_size(self, size: int) -> None:
        lost = next((batch for batch in self._index.batches if batch.byte_range.end > size), None)
        if lost is not None and self._index.may_be_torn(lost):
            self._report_unfinished(lost)
        elif lost is not None:
            reason = (
                f"ends at byte {size:,} of {self._index.context_end:,} that are committed: messages {lost.first} to "
                f"{self._index.messages - 1} are not whole; restore them from a copy"
            )
            self._session.add("short-file", layout.CONTEXT_FILE, reason, line=lost.first + 1, offset=size)
        beyond = size - self._index.context_end
        if beyond > 0:
            reason = f"{beyond:,} bytes follow the last commit; the next writer sets them aside in torn/"
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
        is_there = self._transcript_size is not None
        with (
            session.refusals(),
            session.open(layout.CONTEXT_FILE) as context,
            session.open(layout.TRANSCRIPT_FILE) if is_there else nullcontext() as transcript,
        ):
            for batch in self._index.batches:
                if batch.byte_range.end > size:
                    break
                part = session.probe.part(context, batch.byte_range.offset, sum(batch.byte_range.sizes))
                if part.sha256 != batch.byte_range.sha256 and self._index.may_be_torn(batch):
                    self._report_unfinished(batch)
                elif part.sha256 != batch.byte_range.sha256:
                    messages = f"messages {batch.first} to {batch.end - 1}"
                    reason = f"{messages} are not what was written; restore the file from a copy"
                    place = {"line": batch.first + 1, "offset": batch.byte_range.offset}
                    session.add("changed-bytes", layout.CONTEXT_FILE, reason, **place)
                elif transcript is not None and batch.transcript_end <= (self._transcript_size or 0):
                    self._compare(transcript, batch, part.content)

    def _compare(self, transcript: File, batch: Batch, content: bytes | None) -> None:
        """Report the first batch whose lines differ from the transcript; one cut shifts all others."""
        if self._is_stale:
            return
        probe, place = self._session.probe, (batch.transcript_offset, batch.transcript_bytes)
        expected = None if content is None else self._rendered(batch, content)
        if expected is None:
            is_equal = probe.line_ends(transcript, *place) == sum(batch.lines)
        else:
            found = b"".join(probe.chunks(transcript, *place))
            is_equal = found == transcript_bytes(expected) and batch.lines == tuple(map(len, expected))
        if not is_equal:
            reason = (
                f"the lines of messages {batch.first} to {batch.end - 1} are not those of the archive, which is whole; "
                f"read {layout.CONTEXT_FILE} there"
            )
            self._report_stale(reason, line=batch.line, offset=batch.transcript_offset)

    def _rendered(self, batch: Batch, content: bytes) -> list[list[str]] | None:
        """Render a batch as when it was archived; None if that is no longer possible."""
        if not self._can_render or batch.end in self._session.scan.rebuilt:
            return None
        try:
            return rendered(messages_of(batch, content), batch.first, batch.heading_times, self._index)
        except BuoylineError:
            return None

    def _report_unfinished(self, batch: Batch) -> None:
        reason = (
            f"messages {batch.first} to {batch.end - 1}, the last batch, are not what its record says: a power cut "
            "before they were acknowledged, or damage; the next writer sets them aside, so compare with a copy first"
        )
        self._session.add(
            "unfinished-batch", layout.CONTEXT_FILE, reason, line=batch.first + 1, offset=batch.byte_range.offset
        )

    def _report_stale(self, reason: str, *, line: int | None = None, offset: int | None = None) -> None:
        self._is_stale = True
        self._session.add("stale-transcript", layout.TRANSCRIPT_FILE, reason, line=line, offset=offset)


def check_results(session: Inspection) -> None:
    """Compare tool results, views and stubs of *session* with the journal, in both directions."""
    for name, record in session.index.results.items():
        with session.refusals():
            _check_result(session, name, record)
    for name, line in session.scan.stubs.items():
        if name not in session.entries:
            reason = f"a stub in the context points to {name}, which is gone; restore it from a copy"
            session.add("dangling-stub", layout.JOURNAL_FILE, reason, line=line)
    for name in session.entries:
        _check_name(session, name)


def _check_result(session: Inspection, name: str, record: Record) -> None:
    size = session.size(name)
    if size is None:
        if name not in session.entries:
            session.add("missing-result", name, "is recorded, and gone; restore it from a copy")
        return
    part = session.probe.file(session.files, session.path(name)) if session.hashes else None
    if size != record["bytes"] or (part is not None and part.sha256 != record["sha256"]):
        session.add("changed-bytes", name, "is not what the tool gave, and can still be read; restore it from a copy")
    elif "view" in record and not _is_view(session, record, part):
        reason = f"is not the view of {name}, which is whole; read that one"
        session.add("stale-view", record["view"], reason)


def _is_view(session: Inspection, record: Record, result: Part | None) -> bool:
    """Return whether the view exists, has the lines that stubs count on, and shows its result."""
    view: str = record["view"]
    lines: int = record["lines"]
    if session.size(view) is None:
        return view in session.entries  # as a link or a directory, which is reported already
    if result is None:
        return True
    with session.open(view) as handle:
        part = session.probe.part(handle, 0, handle.size())
        if part.content is None:
            return session.probe.line_ends(handle) == lines
    if part.content.count(b"\n") != lines:
        return False
    if result.content is None:
        return True
    return part.content == (view_of(decoded(result.content)) or "").encode("utf-8")


def _check_name(session: Inspection, name: str) -> None:
    results = session.index.results
    if layout.is_result_name(name) and name not in results:
        reason = "has no record: its call was not acknowledged, or the journal was lost; nothing refers to it"
        session.add("unrecorded-result", name, reason)
    elif layout.is_view_name(name) and not {layout.result_behind(name)} & {*results, *session.entries}:
        session.add("orphan-view", name, f"is the view of {layout.result_behind(name)}, which is gone")


Pointer = tuple[str, int, int]


class SummariesCheck:
    """Compares ``summaries.jsonl`` with the journal, and its citations with the files that they cite."""

    def __init__(self, session: Inspection) -> None:
        """Check *session*."""
        self._session = session
        self._lines = _lines_by_file(session)

    def run(self) -> None:
        """Check the size, then contents if hashes are wanted."""
        session, byte_ranges = self._session, self._session.index.summaries
        size = session.size(layout.SUMMARIES_FILE)
        if size is None:
            if byte_ranges and session.index.may_be_torn_summary(byte_ranges[0]):
                self._report_unfinished(1, byte_ranges[0])
            elif byte_ranges and layout.SUMMARIES_FILE not in session.entries:
                reason = f"is gone with {len(byte_ranges)} summaries; restore it from a copy"
                session.add("missing-file", layout.SUMMARIES_FILE, reason)
            return
        self._check_size(size)
        if session.hashes:
            with session.refusals(), session.open(layout.SUMMARIES_FILE) as summaries:
                for number, byte_range in enumerate(byte_ranges, 1):
                    if byte_range.end <= size:
                        part = session.probe.part(summaries, byte_range.offset, sum(byte_range.sizes))
                        self._check_summary(number, byte_range, part)

    def _check_size(self, size: int) -> None:
        index = self._session.index
        lost = next((number for number, byte_range in enumerate(index.summaries, 1) if byte_range.end > size), None)
        if lost is not None and index.may_be_torn_summary(index.summaries[lost - 1]):
            self._report_unfinished(lost, index.summaries[lost - 1])
        elif lost is not None:
            reason = f"ends within or before summary {lost} of {len(index.summaries)}; restore it from a copy"
            self._session.add("short-file", layout.SUMMARIES_FILE, reason, line=lost, offset=size)
        if size > index.summaries_end:
            reason = f"{size - index.summaries_end:,} bytes follow the last commit; the next writer sets them aside"
            self._session.add("torn-tail", layout.SUMMARIES_FILE, reason, offset=index.summaries_end)

    def _report_unfinished(self, number: int, byte_range: ByteRange) -> None:
        reason = (
            f"summary {number} is not what its record says: a power cut before it was acknowledged, or damage; the "
            "next writer sets it aside, so compare with a copy first"
        )
        self._session.add("unfinished-batch", layout.SUMMARIES_FILE, reason, line=number, offset=byte_range.offset)

    def _check_summary(self, number: int, byte_range: ByteRange, part: Part) -> None:
        if part.sha256 != byte_range.sha256 and self._session.index.may_be_torn_summary(byte_range):
            self._report_unfinished(number, byte_range)
        elif part.sha256 != byte_range.sha256:
            reason = f"summary {number} is not what was written; restore the file from a copy"
            self._session.add("changed-bytes", layout.SUMMARIES_FILE, reason, line=number, offset=byte_range.offset)
        elif part.content is not None:
            summary = _object_in(part.content)
            if summary is None:
                self._report("bad-line", number, "is not a JSON object")
            else:
                self._check_claims(number, summary)
                self._check_facts(number, summary)

    def _check_claims(self, number: int, summary: Mapping[str, Any]) -> None:
        archived, covered = self._session.index.messages, summary.get("messages")
        if is_array(covered) and covered and isinstance(covered[-1], int) and covered[-1] > archived:
            reason = f"covers messages up to {covered[-1] - 1}, but {archived} are archived; restore them from a copy"
            self._report("missing-messages", number, reason)
        for pointer in dict.fromkeys(_pointers(summary)):
            fault = self._fault_of(*pointer)
            if fault:
                self._report("dangling-pointer", number, fault)

    def _check_facts(self, number: int, summary: Mapping[str, Any]) -> None:
        """Compare the file with the facts of a summary with its line; those of older summaries are removed."""
        session, reference = self._session, summary_facts.reference_in(summary)
        # A writer at work may be ahead of the journal that was read.
        numbers = (layout.summary_number(name) or 0 for name in session.entries)
        if reference is None or number + summary_facts.KEPT <= max(len(session.index.summaries), *numbers):
            return
        if session.size(reference.path) is None:
            if reference.path not in session.entries:
                session.add("lost-facts", reference.path, f"is gone; {_NEXT_SUMMARY}")
            return
        try:
            part = session.probe.file(session.files, session.path(reference.path))
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            return  # the next summary but one was written meanwhile
        if part.sha256 != reference.sha256:
            session.add("lost-facts", reference.path, f"is not what was written; {_NEXT_SUMMARY}")

    def _fault_of(self, path: str, start: int, end: int) -> str:
        """Return why a citation is dangling; an empty text if its lines exist."""
        lines = self._lines_in(path)
        if lines is None:
            return f"points to {reprlib.repr(path)}, which is not a file of the session"
        if not 1 <= start <= end <= lines:
            return f"points to lines {start} to {end} of {path}, which has {lines:,}"
        return ""

    def _lines_in(self, name: str) -> int | None:
        """Return the number of lines of a file; if the journal does not say it, they are counted once."""
        if name not in self._lines and layout.is_result_name(name) and self._session.size(name) is not None:
            with self._session.open(name) as handle:
                self._lines[name] = sum(1 for _ in lines_of(self._session.probe.chunks(handle)))
        return self._lines.get(name)

    def _report(self, kind: str, number: int, reason: str) -> None:
        self._session.add(kind, layout.SUMMARIES_FILE, f"summary {number} {reason}", line=number)


_NEXT_SUMMARY = (
    "the summary is whole, and the next one carries on its sentences, but no facts that it did not say; restore the "
    "file from a copy"
)


def _object_in(content: bytes) -> Mapping[str, Any] | None:
    try:
        found: object = parse(content)
    except MessageError:
        return None
    return found if is_object(found) else None


def _lines_by_file(session: Inspection) -> dict[str, int]:
    """Return the number of lines of each file whose lines the journal counts."""
    results = session.index.results.values()
    counted: dict[str, int] = {record.get("view", record["path"]): record["lines"] for record in results}
    return {**counted, layout.TRANSCRIPT_FILE: session.index.next_line - 1}


def _pointers(summary: Mapping[str, Any]) -> Iterator[Pointer]:
    """Yield file, first and last line of each citation in *summary*, also those of its facts."""
    pointers, items = summary.get("pointers"), summary.get("items")
    for found in pointers if is_array(pointers) else ():
        yield _pointer(found)
    for item in items if is_array(items) else ():
        if is_object(item) and item.get("pointer") is not None:
            yield _pointer(item["pointer"])


def _pointer(found: object) -> Pointer:
    match found:
        case {"path": str(path), "start": int(start), "end": int(end)}:
            return path, start, end
        case _:
            return reprlib.repr(found), 0, 0


_CHANGED = "does not begin with what was written; restore it from a copy, or begin a new session from the archive"

_SHORT = "ends before what was written; restore it from a copy, or begin a new session from the archive"
_ADDED = "has lines that are not what was written; restore it from a copy, or begin a new session from the archive"


def check_window(session: Inspection, window: File | None) -> None:
    """Compare ``window.jsonl`` with the journal's notes of how it begins.

    Args:
        session: The session.
        window: The file as it was when the journal was read; None if it was not there, or not a regular file.
    """
    notes = session.index.windows
    if notes and notes[-1]["first"] > session.index.messages:
        reason = (
            f"goes on from message {notes[-1]['first']}, but only {session.index.messages} are archived; restore the "
            "messages between from a copy"
        )
        session.add("missing-messages", layout.WINDOW_FILE, reason)
    if layout.WINDOW_FILE in session.entries:
        if window is not None:
            with session.refusals():
                _check_contents(session, window)
    elif notes and all(note["bytes"] == 0 for note in notes):
        session.add("torn-tail", layout.WINDOW_FILE, "a crash came before it was created; it was empty")
    elif notes:
        reason = "is gone, and with it what was in the context and not archived; restore it from a copy"
        session.add("missing-file", layout.WINDOW_FILE, reason)


def _check_contents(session: Inspection, window: File) -> None:
    notes, size = session.index.windows, window.size()
    if not notes:
        reason = "the journal has no note of it, so no window can be resumed from it; the archive is not affected"
        session.add("unrecorded-window", layout.WINDOW_FILE, reason)
    elif all(note["bytes"] > size for note in notes):
        session.add("short-file", layout.WINDOW_FILE, _CHANGED, offset=size)
    elif session.hashes:
        for note in reversed(notes):
            if session.probe.part(window, 0, note["bytes"]).sha256 == note["sha256"]:
                _check_growth(session, window, size, note)
                break
        else:
            session.add("changed-bytes", layout.WINDOW_FILE, _CHANGED, offset=0)
        _check_lines(session, window)


def _check_growth(session: Inspection, window: File, size: int, note: Record) -> None:
    """Check the lines behind the bytes of *note*, as far as the journal describes them."""
    growth = grown_to(session.index, note)
    lines = growth[-1] if growth else None
    if lines is not None and lines["bytes"] > size:
        if lines["durable"]:
            session.add("short-file", layout.WINDOW_FILE, _SHORT, offset=size)
        return
    known = note["bytes"]
    if lines is not None:
        known, checksum, has_hole = lines["bytes"], 0, False
        for chunk in session.probe.chunks(window, 0, known):
            checksum, has_hole = zlib.crc32(chunk, checksum), has_hole or b"\0" in chunk
        # After a power cut, lines that were not durable may be zeros, which `_check_lines` reports.
        if f"{checksum:08x}" != lines["crc32"] and (lines["durable"] or not has_hole):
            session.add("changed-bytes", layout.WINDOW_FILE, _ADDED, offset=note["bytes"])
    if size > known:
        reason = f"{size - known:,} bytes have no checksum: of an older version, or a writer at work or killed"
        session.add("unchecked-lines", layout.WINDOW_FILE, reason, offset=known)


def _check_lines(session: Inspection, window: File) -> None:
    for line in lines_of(session.probe.chunks(window)):
        place = {"line": line.number, "offset": line.offset}
        if b"\0" in line.content:
            reason = "a power cut left zeros in it; the next writer sets it and what follows aside"
            session.add("torn-tail", layout.WINDOW_FILE, reason, **place)
            return
        if not line.is_ended:
            reason = f"a crash left {line.size:,} bytes of a message; the next writer sets them aside in torn/"
            session.add("torn-tail", layout.WINDOW_FILE, reason, **place)
        elif not _is_message(line):
            reason = "is not a message, so the window cannot be resumed; restore the file from a copy"
            session.add("bad-line", layout.WINDOW_FILE, reason, **place)


def _is_message(line: FileLine) -> bool:
    """Return whether *line* holds a message; a line that is too long to parse counts as one."""
    if line.size > MAX_LINE_BYTES:
        return True
    try:
        detect(parse(line.content))
    except MessageError:
        return False
    return True


_NEEDED = {
    layout.SESSION_FILE: "is gone, so the session is refused; restore it from a copy",
    layout.CONTEXT_FILE: "is gone with all archived messages; restore it from a copy",
    layout.JOURNAL_FILE: "is gone; the next writer makes a new one from the archive, but what it said of stubs, "
    "summaries, payloads and the window is lost, so restore it from a copy before",
}
_FILES = frozenset({*_NEEDED, layout.TRANSCRIPT_FILE, layout.SUMMARIES_FILE, layout.WINDOW_FILE})


def inspected(files: Files, directory: str, probe: Probe, *, hashes: bool) -> Inspection:
    """Inspect the session in *directory*; with *hashes*, also the contents of its files."""
    session, is_listed = Inspection(files, directory, probe, hashes=hashes), False
    with _held_window(session) as window:
        with session.refusals():
            _read_journal(session)
        with session.refusals():
            session.entries = files.entries(directory)
            is_listed = True
        session.findings += session.scan.findings
        if session.entries.keys() & _FILES:
            _check_entries(session)
            ArchiveCheck(session, _checked_renderer(session)).run()
            check_results(session)
            SummariesCheck(session).run()
            check_window(session, window)
        elif is_listed:
            session.findings.append(foreign(directory, "session"))
    return session


@contextmanager
def _held_window(session: Inspection) -> Generator[File | None]:
    """Open the window before the journal is read, since a note is written before the window that it describes.

    In the other order, a compaction in between would show a window without a note.
    """
    with ExitStack() as stack:
        window: File | None = None
        with session.refusals():
            if session.files.size(session.path(layout.WINDOW_FILE)) is not None:
                window = stack.enter_context(session.open(layout.WINDOW_FILE))
        yield window


def _read_journal(session: Inspection) -> None:
    if session.files.size(session.scan.path) is not None:
        with session.open(layout.JOURNAL_FILE) as journal:
            session.scan.read(lines_of(session.probe.chunks(journal)))


def _check_entries(session: Inspection) -> None:
    for name, reason in _NEEDED.items():
        if name not in session.entries:
            session.add("missing-file", name, reason)
    for name, status in session.entries.items():
        if name.startswith(layout.TEMPORARY_PREFIX):
            session.findings.append(leftover(session.path(name)))
        elif name == layout.TORN:
            session.findings += faults_of(session.path(name), status, is_directory=True)
        elif (
            name in _FILES
            or layout.is_result_name(name)
            or layout.is_view_name(name)
            or layout.summary_number(name) is not None
        ):
            session.findings += faults_of(session.path(name), status)
    with session.refusals():
        session.findings += set_aside(session.files, session.path(layout.TORN))


def _checked_renderer(session: Inspection) -> object:
    """Check whose session it is; return the version of its transcript's form, None if that is not known."""
    size = session.size(layout.SESSION_FILE)
    if size is None:
        return None
    found: object = None
    with session.refusals(), session.open(layout.SESSION_FILE) as handle:
        found = document_in(handle)
        if not is_object(found):
            session.add("format", layout.SESSION_FILE, "is not a JSON object; restore it from a copy")
    if not is_object(found):
        return None
    if not is_known_format(found.get("format")):
        session.findings.append(unknown_format(session.path(layout.SESSION_FILE), found.get("format")))
    session_id = found.get("id")
    if not isinstance(session_id, str) or not is_directory_of(session.files, session_id, session.directory):
        reason = "names another session than its directory; move the directory back to where it was"
        session.add("owner", layout.SESSION_FILE, reason)
    return found.get("renderer")
