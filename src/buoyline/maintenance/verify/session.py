"""Checks one session.

The journal is read before the files that it describes, so that a writer at work is not reported as damage.
"""

import errno
import hashlib
import re
import reprlib
import stat
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from typing import Any, NamedTuple

from buoyline.errors import BuoylineError, MessageError, StorageError
from buoyline.maintenance.verify.findings import (
    IntegrityFinding,
    document_in,
    faults_of,
    faults_of_format,
    finding,
    leftover,
    refusals,
    set_aside,
)
from buoyline.maintenance.verify.journal import MAX_LINE_BYTES, Scan, lines_of
from buoyline.messages.jsonl import is_array, is_object, parse
from buoyline.messages.registry import detect
from buoyline.offloader.view import view_of
from buoyline.previews.source import decoded
from buoyline.workspace import File, Files, Status, layout, summary_facts
from buoyline.workspace.batches import messages_of, rendered, transcript_bytes
from buoyline.workspace.journal import Batch, ByteRange, Record
from buoyline.workspace.records import grown_to
from buoyline.workspace.stored_session import is_directory_of

MAX_WHOLE_BYTES = 1 << 24
"""A part of a file up to 16 MiB is also held in memory, so that more than its hash can be checked."""

_CHUNK_BYTES = 1 << 20
_REFERENCE = re.compile(rb"data/[0-9a-f]{64}\.[a-z0-9]{1,8}")
_LONGEST_REFERENCE = len("data/") + 64 + len(".12345678")


class Part(NamedTuple):
    """The SHA-256 of a part of a file, and its bytes; None if they are more than `MAX_WHOLE_BYTES`."""

    sha256: str
    content: bytes | None


class Probe:
    """Reads files in chunks of 1 MiB, and keeps track of what it read.

    Attributes:
        bytes_read: So far.
        references: Names of blobs that occur anywhere in the bytes read. A framework may put a reference into a message
            itself, without a record in the journal.
    """

    def __init__(self, on_read: Callable[[int], None] | None = None) -> None:
        """Call *on_read* after each chunk with the bytes read so far."""
        self._on_read = on_read
        self.bytes_read = 0
        self.references: set[str] = set()

    def chunks(self, handle: File, offset: int = 0, size_bytes: int | None = None) -> Iterator[bytes]:
        """Yield *size_bytes* bytes from *offset*, or all bytes from there; fewer only at the end of the file."""
        rest = handle.size() - offset if size_bytes is None else size_bytes
        before = b""
        while rest > 0 and (chunk := handle.read(offset, min(rest, _CHUNK_BYTES))):
            offset += len(chunk)
            rest -= len(chunk)
            content = before + chunk
            if b"data/" in content:
                self.references.update(name.decode("ascii") for name in _REFERENCE.findall(content))
            self.bytes_read += len(chunk)
            if self._on_read is not None:
                self._on_read(self.bytes_read)
            before = chunk[-_LONGEST_REFERENCE:]
            yield chunk

    def part(self, handle: File, offset: int, size_bytes: int) -> Part:
        """Hash a part of a file, and hold its bytes if it is small."""
        digest, kept = hashlib.sha256(), bytearray()
        is_small = size_bytes <= MAX_WHOLE_BYTES
        for chunk in self.chunks(handle, offset, size_bytes):
            digest.update(chunk)
            if is_small:
                kept += chunk
        return Part(digest.hexdigest(), bytes(kept) if is_small else None)

    def file(self, files: Files, name: str) -> Part:
        """Hash a whole file, and hold its bytes if it is small."""
        with files.open(name) as handle:
            return self.part(handle, 0, handle.size())

    def line_ends(self, handle: File, offset: int = 0, size_bytes: int | None = None) -> int:
        """Count the line ends in a part of a file."""
        return sum(chunk.count(b"\n") for chunk in self.chunks(handle, offset, size_bytes))


class Inspection:
    """One session under inspection.

    Attributes:
        directory: Of the session, relative to the workspace.
        hashes: Read the files' contents, too, and not only their sizes.
        scan: The journal.
        entries: Of the directory, listed after the journal was read. So all files that the journal names are among
            them, even if a writer is at work.
        findings: In the order in which they were made.
    """

    def __init__(self, files: Files, directory: str, probe: Probe, *, hashes: bool) -> None:
        """Inspect *directory* of *files*."""
        self.files = files
        self.directory = directory
        self.probe = probe
        self.hashes = hashes
        self.scan = Scan(self.path(layout.JOURNAL_FILE))
        self.index = self.scan.index
        self.entries: Mapping[str, Status] = {}
        self.findings: list[IntegrityFinding] = []

    def path(self, name: str) -> str:
        """Return the path of the session's file *name*, relative to the workspace."""
        return f"{self.directory}/{name}"

    def size(self, name: str) -> int | None:
        """Return the size of the session's file *name*; None if it is not a regular file."""
        status = self.entries.get(name)
        return status.st_size if status is not None and stat.S_ISREG(status.st_mode) else None

    def add(self, kind: str, name: str, message: str, *, line: int | None = None, offset: int | None = None) -> None:
        """Add a finding about the session's file *name*."""
        self.findings.append(finding(kind, self.path(name), message, line=line, offset=offset))

    def open(self, name: str) -> AbstractContextManager[File]:
        """Open the session's file *name* for reading."""
        return self.files.open(self.path(name))

    def refusals(self) -> AbstractContextManager[None]:
        """Turn a refusal of the file system within the block into a finding, and go on behind the block."""
        return refusals(self.files, self.findings)


_NEEDED = {
    layout.SESSION_FILE: "is gone, so the session is refused; restore it from a copy",
    layout.CONTEXT_FILE: "is gone with all archived messages; restore it from a copy",
    layout.JOURNAL_FILE: "is gone; the next writer makes a new one from the archive, but what it said of stubs, "
    "summaries, payloads and the window is lost, so restore it from a copy before",
}
_FILES = frozenset({*_NEEDED, layout.TRANSCRIPT_FILE, layout.SUMMARIES_FILE, layout.WINDOW_FILE})


def inspected(files: Files, directory: str, probe: Probe, *, hashes: bool) -> Inspection:
    """Inspect the session in *directory*; with *hashes*, also the contents of its files."""
    session = Inspection(files, directory, probe, hashes=hashes)
    window: File | None = None
    with ExitStack() as opened:
        # The window is opened before the journal is read, since a note is written before the window that it describes.
        # In the other order, a compaction in between would show a window without a note.
        with session.refusals():
            if files.size(session.path(layout.WINDOW_FILE)) is not None:
                window = opened.enter_context(session.open(layout.WINDOW_FILE))
        with session.refusals():
            if files.size(session.path(layout.JOURNAL_FILE)) is not None:
                with session.open(layout.JOURNAL_FILE) as journal:
                    session.scan.read(lines_of(probe.chunks(journal)))
        with session.refusals():
            session.entries = files.entries(directory)
        session.findings += session.scan.findings
        if session.entries.keys() & _FILES:
            _check_entries(session)
            _check_format(session)
            _check_archive(session)
            _check_results(session)
            _check_summaries(session)
            _check_window(session, window)
    return session


def _check_entries(session: Inspection) -> None:
    """Check that files which every session needs are there, and the type of all files of buoyline."""
    for name, reason in _NEEDED.items():
        if name not in session.entries:
            session.add("missing-file", name, reason)
    for name, status in session.entries.items():
        path, is_directory = session.path(name), name == layout.TORN
        is_stored = layout.is_result_name(name) or layout.is_view_name(name) or layout.summary_number(name) is not None
        if name.startswith(layout.TEMPORARY_PREFIX):
            session.findings.append(leftover(path))
        elif name in _FILES or is_stored or is_directory:
            session.findings += faults_of(path, status, is_directory=is_directory)
    with session.refusals():
        session.findings += set_aside(session.files, session.path(layout.TORN))


def _check_format(session: Inspection) -> None:
    """Check that the session has a known format, and that it is the one of its directory."""
    if session.size(layout.SESSION_FILE) is None:
        return
    with session.refusals(), session.open(layout.SESSION_FILE) as handle:
        found = document_in(handle)
        if not is_object(found):
            session.add("format", layout.SESSION_FILE, "is not a JSON object; restore it from a copy")
            return
        session.findings += faults_of_format(session.path(layout.SESSION_FILE), found.get("format"))
        session_id = found.get("id")
        if not isinstance(session_id, str) or not is_directory_of(session.files, session_id, session.directory):
            reason = "names another session than its directory; move the directory back to where it was"
            session.add("owner", layout.SESSION_FILE, reason)


def _check_archive(session: Inspection) -> None:
    """Compare ``context.jsonl`` with the journal, and the transcript with ``context.jsonl``."""
    index, size = session.index, session.size(layout.CONTEXT_FILE)
    if size is not None:
        lost = next((batch for batch in index.batches if batch.byte_range.end > size), None)
        if lost is not None and index.may_be_torn(lost):
            _report_unfinished(session, lost)
        elif lost is not None:
            reason = (
                f"ends at byte {size:,} of {index.context_end:,} that are committed: messages {lost.first} to "
                f"{index.messages - 1} are not whole; restore them from a copy"
            )
            session.add("short-file", layout.CONTEXT_FILE, reason, line=lost.first + 1, offset=size)
        beyond = size - index.context_end
        if beyond > 0:
            reason = f"{beyond:,} bytes follow the last commit; the next writer sets them aside in torn/"
            session.add("torn-tail", layout.CONTEXT_FILE, reason, offset=index.context_end)
    is_stale = bool(index.batches) and _is_transcript_short(session, index.batches[-1])
    if size is not None and session.hashes:
        _check_archived_bytes(session, size, can_render=not session.scan.findings, is_stale=is_stale)


def _report_unfinished(session: Inspection, batch: Batch) -> None:
    reason = (
        f"messages {batch.first} to {batch.end - 1}, the last batch, are not what its record says: a power cut "
        "before they were acknowledged, or damage; the next writer sets them aside, so compare with a copy first"
    )
    place = {"line": batch.first + 1, "offset": batch.byte_range.offset}
    session.add("unfinished-batch", layout.CONTEXT_FILE, reason, **place)


def _is_transcript_short(session: Inspection, last: Batch) -> bool:
    """Check the size of the transcript; return whether it lacks lines before the *last* batch."""
    size = session.size(layout.TRANSCRIPT_FILE)
    if size is None:
        if layout.TRANSCRIPT_FILE not in session.entries:
            reason = "is missing; the next writer renders it again"
            session.add("stale-transcript", layout.TRANSCRIPT_FILE, reason)
        return True
    if size < last.transcript_offset:
        reason = f"ends at byte {size:,} of {last.transcript_end:,}; the next writer renders the rest again"
        session.add("stale-transcript", layout.TRANSCRIPT_FILE, reason, offset=size)
        return True
    if size != last.transcript_end:
        reason = f"has {size:,} bytes instead of {last.transcript_end:,}; the next writer cuts or completes it"
        session.add("torn-transcript", layout.TRANSCRIPT_FILE, reason, offset=last.transcript_offset)
    return False


def _check_archived_bytes(session: Inspection, size: int, *, can_render: bool, is_stale: bool) -> None:
    """Compare each batch with its hash, and with the transcript unless that *is_stale* already."""
    index, transcript_size = session.index, session.size(layout.TRANSCRIPT_FILE)
    with (
        session.refusals(),
        session.open(layout.CONTEXT_FILE) as context,
        nullcontext() if transcript_size is None else session.open(layout.TRANSCRIPT_FILE) as transcript,
    ):
        for batch in index.batches:
            if batch.byte_range.end > size:
                break
            messages = f"messages {batch.first} to {batch.end - 1}"
            part = session.probe.part(context, batch.byte_range.offset, sum(batch.byte_range.sizes))
            if part.sha256 != batch.byte_range.sha256 and index.may_be_torn(batch):
                _report_unfinished(session, batch)
            elif part.sha256 != batch.byte_range.sha256:
                reason = f"{messages} are not what was written; restore the file from a copy"
                place = {"line": batch.first + 1, "offset": batch.byte_range.offset}
                session.add("changed-bytes", layout.CONTEXT_FILE, reason, **place)
            elif transcript is not None and not is_stale and batch.transcript_end <= (transcript_size or 0):
                content = part.content if can_render else None
                is_stale = not _is_shown(session, batch, content, transcript)
                if is_stale:  # only the first one is reported: one cut shifts all others
                    are = "are not those of the archive, which is whole"
                    reason = f"the lines of {messages} {are}; read {layout.CONTEXT_FILE} there"
                    place = {"line": batch.line, "offset": batch.transcript_offset}
                    session.add("stale-transcript", layout.TRANSCRIPT_FILE, reason, **place)


def _is_shown(session: Inspection, batch: Batch, content: bytes | None, transcript: File) -> bool:
    """Return whether *transcript* shows a batch as when it was archived; if it cannot be rendered, only lines count."""
    shown: list[list[str]] | None = None
    if content is not None and batch.end not in session.scan.rebuilt:
        with suppress(BuoylineError):  # a dialect that is no longer known
            shown = rendered(messages_of(batch, content), batch.first, batch.times, session.index)
    place = batch.transcript_offset, batch.transcript_bytes
    if shown is None:
        return session.probe.line_ends(transcript, *place) == sum(batch.lines)
    found = b"".join(session.probe.chunks(transcript, *place))
    return found == transcript_bytes(shown) and batch.lines == tuple(map(len, shown))


def _check_results(session: Inspection) -> None:
    """Compare tool results, views and stubs with the journal, in both directions."""
    results = session.index.results
    for name, record in results.items():
        with session.refusals():
            _check_result(session, name, record)
    for name, line in session.scan.stubs.items():
        if name not in session.entries:
            reason = f"a stub in the context points to {name}, which is gone; restore it from a copy"
            session.add("dangling-stub", layout.JOURNAL_FILE, reason, line=line)
    for name in session.entries:
        if layout.is_result_name(name) and name not in results:
            reason = "has no record: its call was not acknowledged, or the journal was lost; nothing refers to it"
            session.add("unrecorded-result", name, reason)
        elif layout.is_view_name(name) and not {layout.result_behind(name)} & {*results, *session.entries}:
            session.add("orphan-view", name, f"is the view of {layout.result_behind(name)}, which is gone")


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


def _check_summaries(session: Inspection) -> None:
    """Compare ``summaries.jsonl`` with the journal, and its citations with the files that they cite."""
    index, byte_ranges = session.index, session.index.summaries
    size = session.size(layout.SUMMARIES_FILE)
    if size is None:
        if byte_ranges and index.may_be_torn_summary(byte_ranges[0]):
            _report_unfinished_summary(session, 1, byte_ranges[0])
        elif byte_ranges and layout.SUMMARIES_FILE not in session.entries:
            reason = f"is gone with {len(byte_ranges)} summaries; restore it from a copy"
            session.add("missing-file", layout.SUMMARIES_FILE, reason)
        return
    lost = next((number for number, byte_range in enumerate(byte_ranges, 1) if byte_range.end > size), None)
    if lost is not None and index.may_be_torn_summary(byte_ranges[lost - 1]):
        _report_unfinished_summary(session, lost, byte_ranges[lost - 1])
    elif lost is not None:
        reason = f"ends within or before summary {lost} of {len(byte_ranges)}; restore it from a copy"
        session.add("short-file", layout.SUMMARIES_FILE, reason, line=lost, offset=size)
    if size > index.summaries_end:
        reason = f"{size - index.summaries_end:,} bytes follow the last commit; the next writer sets them aside"
        session.add("torn-tail", layout.SUMMARIES_FILE, reason, offset=index.summaries_end)
    if session.hashes:
        _check_committed_summaries(session, [one for one in enumerate(byte_ranges, 1) if one[1].end <= size])


def _report_unfinished_summary(session: Inspection, number: int, byte_range: ByteRange) -> None:
    reason = (
        f"summary {number} is not what its record says: a power cut before it was acknowledged, or damage; the "
        "next writer sets it aside, so compare with a copy first"
    )
    session.add("unfinished-batch", layout.SUMMARIES_FILE, reason, line=number, offset=byte_range.offset)


def _check_committed_summaries(session: Inspection, byte_ranges: list[tuple[int, ByteRange]]) -> None:
    """Compare summaries with their hashes, and what they say with the other files; *byte_ranges* have their numbers."""
    counts: dict[str, int] = {  # lines of each file; those of others are counted when they are cited
        **{record.get("view", record["path"]): record["lines"] for record in session.index.results.values()},
        layout.TRANSCRIPT_FILE: session.index.next_line - 1,
    }
    with session.refusals(), session.open(layout.SUMMARIES_FILE) as summaries:
        for number, byte_range in byte_ranges:
            part = session.probe.part(summaries, byte_range.offset, sum(byte_range.sizes))
            if part.sha256 != byte_range.sha256 and session.index.may_be_torn_summary(byte_range):
                _report_unfinished_summary(session, number, byte_range)
            elif part.sha256 != byte_range.sha256:
                reason = f"summary {number} is not what was written; restore the file from a copy"
                session.add("changed-bytes", layout.SUMMARIES_FILE, reason, line=number, offset=byte_range.offset)
            elif part.content is not None:
                summary: object = None
                with suppress(MessageError):
                    summary = parse(part.content)
                if is_object(summary):
                    _check_claims(session, number, summary, counts)
                    _check_facts(session, number, summary)
                else:
                    reason = f"summary {number} is not a JSON object"
                    session.add("bad-line", layout.SUMMARIES_FILE, reason, line=number)


def _check_claims(session: Inspection, number: int, summary: Mapping[str, Any], counts: dict[str, int]) -> None:
    """Check that a summary covers archived messages, and cites lines that exist; *counts* are the lines of files."""

    def report(kind: str, reason: str) -> None:
        session.add(kind, layout.SUMMARIES_FILE, f"summary {number} {reason}", line=number)

    archived, covered = session.index.messages, summary.get("messages")
    if is_array(covered) and covered and isinstance(covered[-1], int) and covered[-1] > archived:
        last = covered[-1] - 1
        reason = f"covers messages up to {last}, but {archived} are archived; restore them from a copy"
        report("missing-messages", reason)
    for path, start, end in dict.fromkeys(_citations(summary)):
        if path not in counts and layout.is_result_name(path) and session.size(path) is not None:
            with session.open(path) as handle:
                counts[path] = sum(1 for _ in lines_of(session.probe.chunks(handle)))
        if path not in counts:
            report("dangling-pointer", f"points to {reprlib.repr(path)}, which is not a file of the session")
        elif not 1 <= start <= end <= counts[path]:
            report("dangling-pointer", f"points to lines {start} to {end} of {path}, which has {counts[path]:,}")


def _citations(summary: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    """Yield file, first and last line of each citation in *summary*, also those of its facts."""
    pointers, items = summary.get("pointers"), summary.get("items")
    found = list[Any](pointers) if is_array(pointers) else []
    if is_array(items):
        found += [item["pointer"] for item in items if is_object(item) and item.get("pointer") is not None]
    for pointer in found:
        match pointer:
            case {"path": str(path), "start": int(start), "end": int(end)}:
                yield path, start, end
            case _:
                yield reprlib.repr(pointer), 0, 0


_NEXT_SUMMARY = (
    "the summary is whole, and the next one carries on its sentences, but no facts that it did not say; restore the "
    "file from a copy"
)


def _check_facts(session: Inspection, number: int, summary: Mapping[str, Any]) -> None:
    """Compare the file with the facts of a summary with its line; those of older summaries are removed."""
    reference = summary_facts.reference_in(summary)
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


_CHANGED = "does not begin with what was written; restore it from a copy, or begin a new session from the archive"
_SHORT = "ends before what was written; restore it from a copy, or begin a new session from the archive"
_ADDED = "has lines that are not what was written; restore it from a copy, or begin a new session from the archive"


def _check_window(session: Inspection, window: File | None) -> None:
    """Compare ``window.jsonl`` with the journal's notes of how it begins.

    *window* is the file as it was when the journal was read; None if it was not there, or not a regular file.
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
                _check_window_bytes(session, window)
    elif notes and all(note["bytes"] == 0 for note in notes):
        session.add("torn-tail", layout.WINDOW_FILE, "a crash came before it was created; it was empty")
    elif notes:
        reason = "is gone, and with it what was in the context and not archived; restore it from a copy"
        session.add("missing-file", layout.WINDOW_FILE, reason)


def _check_window_bytes(session: Inspection, window: File) -> None:
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
        _check_window_lines(session, window)


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
        # After a power cut, lines that were not durable may be zeros, which `_check_window_lines` reports.
        if f"{checksum:08x}" != lines["crc32"] and (lines["durable"] or not has_hole):
            session.add("changed-bytes", layout.WINDOW_FILE, _ADDED, offset=note["bytes"])
    if size > known:
        reason = f"{size - known:,} bytes have no checksum: a writer is at work, or was killed"
        session.add("unchecked-lines", layout.WINDOW_FILE, reason, offset=known)


def _check_window_lines(session: Inspection, window: File) -> None:
    for line in lines_of(session.probe.chunks(window)):
        place = {"line": line.number, "offset": line.offset}
        if b"\0" in line.content:
            reason = "a power cut left zeros in it; the next writer sets it and what follows aside"
            session.add("torn-tail", layout.WINDOW_FILE, reason, **place)
            return
        if not line.is_ended:
            reason = f"a crash left {line.size:,} bytes of a message; the next writer sets them aside in torn/"
            session.add("torn-tail", layout.WINDOW_FILE, reason, **place)
        elif line.size <= MAX_LINE_BYTES:  # a longer line counts as a message
            try:
                detect(parse(line.content))
            except MessageError:
                reason = "is not a message, so the window cannot be resumed; restore the file from a copy"
                session.add("bad-line", layout.WINDOW_FILE, reason, **place)
