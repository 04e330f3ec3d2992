"""Checks of ``window.jsonl``."""

import zlib

from buoyline.errors import MessageError
from buoyline.messages import detect, parse
from buoyline.workspace import layout
from buoyline.workspace._files import Handle
from buoyline.workspace.journal import Record
from buoyline.workspace.records import grown_to
from buoyline.workspace.verification.inspection import Inspection
from buoyline.workspace.verification.scan import MAX_LINE_BYTES, Line, lines_of

_CHANGED = "does not begin with what was written; restore it from a copy, or begin a new session from the archive"

_SHORT = "ends before what was written; restore it from a copy, or begin a new session from the archive"
_ADDED = "has lines that are not what was written; restore it from a copy, or begin a new session from the archive"


def check_window(session: Inspection, window: Handle | None) -> None:
    """Compare ``window.jsonl`` of *session* with what the journal says that it begins with.

    Args:
        session: The session.
        window: The file as it was when the journal was read; None when it was not there, or no regular file.
    """
    notes = session.index.windows
    if notes and notes[-1]["first"] > session.index.messages:
        reason = (
            f"goes on from message {notes[-1]['first']}, but only {session.index.messages} are archived; restore the "
            "messages between from a copy"
        )
        session.add("missing-messages", layout.WINDOW_FILE, reason)
    if layout.WINDOW_FILE not in session.entries:
        _report_missing(session, notes)
    elif window is not None:
        with session.refusals():
            _check_contents(session, window)


def _check_contents(session: Inspection, window: Handle) -> None:
    notes, size = session.index.windows, window.size()
    if not notes:
        reason = "the journal has no note of it, so no window can be resumed from it; the archive is not concerned"
        session.add("unrecorded-window", layout.WINDOW_FILE, reason)
    elif all(note["bytes"] > size for note in notes):
        session.add("short-file", layout.WINDOW_FILE, _CHANGED, offset=size)
    elif session.hashes:
        _check_bytes(session, window, size)
        _check_lines(session, window)


def _report_missing(session: Inspection, notes: list[Record]) -> None:
    if notes and all(note["bytes"] == 0 for note in notes):
        session.add("torn-tail", layout.WINDOW_FILE, "a crash came before it was created; it was empty")
    elif notes:
        reason = "is gone, and with it what was in the context and not archived; restore it from a copy"
        session.add("missing-file", layout.WINDOW_FILE, reason)


def _check_bytes(session: Inspection, window: Handle, size: int) -> None:
    for note in reversed(session.index.windows):
        if session.probe.part(window, 0, note["bytes"]).sha256 == note["sha256"]:
            _check_growth(session, window, size, note)
            return
    session.add("changed-bytes", layout.WINDOW_FILE, _CHANGED, offset=0)


def _check_growth(session: Inspection, window: Handle, size: int, note: Record) -> None:
    """Check what was added behind the bytes of *note*, as far as the journal says what it is."""
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


def _check_lines(session: Inspection, window: Handle) -> None:
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
            reason = "is no message, so the window cannot be resumed; restore the file from a copy"
            session.add("bad-line", layout.WINDOW_FILE, reason, **place)


def _is_message(line: Line) -> bool:
    """Tell whether *line* holds a message; one that is too long to look at is taken for one."""
    if line.size > MAX_LINE_BYTES:
        return True
    try:
        detect(parse(line.content))
    except MessageError:
        return False
    return True
