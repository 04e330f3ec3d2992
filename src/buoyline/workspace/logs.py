"""``summaries.jsonl``, ``facts-<n>.jsonl`` and ``window.jsonl`` of a session."""

import zlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, NamedTuple

from buoyline.errors import CorruptError, SessionExistsError, StorageError
from buoyline.messages import spell
from buoyline.messages.times import now
from buoyline.offloader.protocol import ModelCall
from buoyline.workspace import layout, summary_facts
from buoyline.workspace.blobs import Blobs, hex_runs
from buoyline.workspace.commit import Appender
from buoyline.workspace.journal import ByteRange, Record, byte_range_fields
from buoyline.workspace.journal_tail import JournalTail
from buoyline.workspace.records import (
    call_record,
    check_writer,
    checked_times,
    lines_record,
    unknown_stubs,
    window_lines,
    window_note,
    window_record,
)
from buoyline.workspace.session import Session
from buoyline.workspace.stored_session import WINDOW_CHANGED


class Summaries:
    """The summaries of a session, one line each, and the facts of the last ones in files of their own.

    A file of facts is durable before the line that names it. A crash in between leaves a file without a line, which the
    next summary replaces, since it gets the same number.
    """

    def __init__(self, session: Session) -> None:
        """Keep them in *session*."""
        self._session = session

    def add(self, summary: Mapping[str, Any]) -> int:
        """Append *summary* with its number as ``n``, counted from 1; durable on return.

        Raises:
            StorageError: The file system refused; nothing was changed.
        """
        with self._session.writing() as (tail, appender):
            number = tail.summaries + 1
            line, facts = _summary_line(summary, number)
            # The oldest is removed first, so that no gap hides what a crash left.
            outdated = self._facts_up_to(number - summary_facts.KEPT)[::-1]
            if facts is not None:
                appender.tree.replace(self._facts_file(number), (facts,))
            if appender.tree.size(self._session.name(layout.SUMMARIES_FILE)) == 0:
                # Its creator may have been killed before its name was durable.
                appender.tree.sync_directory(self._session.directory)
            appender.set_aside_behind(layout.SUMMARIES_FILE, tail.summaries_end)
            try:
                appender.commit(layout.SUMMARIES_FILE, [line], lambda byte_range: _summary_record(number, byte_range))
            except StorageError:
                with suppress(StorageError):
                    appender.tree.remove(self._facts_file(number))
                raise
            # The summary is committed, whatever becomes of the old files; the next call removes what is left.
            with suppress(StorageError):
                for old in outdated:
                    appender.tree.remove(self._facts_file(old))
            return number

    def _facts_up_to(self, newest: int) -> list[int]:
        """Return the numbers of the summaries up to *newest* whose facts are still there, newest first.

        The search ends at a gap, but not before the last few numbers: a summary may have no facts.
        """
        found: list[int] = []
        for number in range(newest, 0, -1):
            if self._session.tree.exists(self._facts_file(number)):
                found.append(number)
            elif newest - number > summary_facts.KEPT:
                break
        return found

    def _facts_file(self, number: int) -> str:
        return self._session.name(layout.summary_facts_name(number))


class NewMessages(NamedTuple):
    """Redacted messages for a window, and what is recorded with them; see `WindowLog.extend_window`.

    Attributes:
        messages: Native messages, in order.
        times: When each was added; empty if that is not known.
        dialects: Of each message; empty: detected.
        stubs: Texts that replace results, each with the file of its result. They are recorded first.
        calls: Durable with the next sync of the journal.
        writer: Who writes; empty for a window that anybody may write to.
    """

    messages: Sequence[Any]
    times: Sequence[str]
    dialects: Sequence[str]
    stubs: Sequence[tuple[str, str]]
    calls: Sequence[ModelCall]
    writer: str


class Window:
    """The messages in a session's context: ``window.jsonl``, one message a line.

    It grows line by line and is replaced at a compaction. The journal records the new content before the file is
    replaced. Of the last two such records, the one that matches the bytes is valid, so a crash between record and
    replacement does no harm.
    """

    def __init__(self, session: Session, blobs: Blobs | None = None) -> None:
        """Keep it in *session*; its messages may refer to *blobs*."""
        self._session = session
        self._blobs = blobs

    def start(self, settings: Mapping[str, Any], writer: str = "") -> None:
        """Begin with an empty context.

        Raises:
            SessionExistsError: The session has messages or a window already.
        """
        records: list[Record] = [{"op": "writer", "writer": writer, "time": now()}] if writer else []
        records += [{"op": "settings", "settings": settings, "time": now()}, window_record(b"", (), 0, (), now())]
        with self._session.writing() as (tail, appender):
            # A record without its file is a start that a crash interrupted; it was never acknowledged.
            has_window = bool(tail.windows) and appender.tree.exists(self._session.name(layout.WINDOW_FILE))
            if has_window and writer and writer == tail.writer and not tail.last_batch:
                # The records were durable before the file existed; its name is not if its creator was killed.
                appender.tree.sync_directory(self._session.directory)
                return
            if tail.last_batch or has_window:
                raise SessionExistsError(self._session.session_id, self._session.tree.path(self._session.directory))
            *others, last = records
            for record in others:
                appender.note(record, durable=False)
            appender.note(last)
            appender.replace(layout.WINDOW_FILE, b"")

    def claim(self, writer: str) -> None:
        """Make *writer* the window's only writer; the one before it is refused from now on.

        Raises:
            NotFoundError: There is no such session, or it never had a window.
        """
        self._session.window()
        with self._session.writing() as (_, appender):
            appender.note({"op": "writer", "writer": writer, "time": now()})

    def extend(self, new: NewMessages, pins: Sequence[int]) -> None:
        """Append messages that were added to the context, and record the pins if they changed; durable on return.

        Raises:
            StaleWindowError: Another writer has taken the window over; nothing was changed.
            ValueError: See `WindowLog.extend_window`.
        """
        content = window_lines(new.messages, new.dialects)
        times = checked_times(new.times, new.messages)
        with self._lease(content), self._session.writing() as (tail, appender):
            check_writer(tail, self._session.session_id, new.writer)
            records, called = list[Record](), list(map(call_record, new.calls))
            if tuple(pins) != tail.pins:
                records.append({"op": "pins", "pins": list(pins), "time": now()})
            self._check_length(tail, appender.tree.size(self._session.name(layout.WINDOW_FILE)) or 0)
            for record in unknown_stubs(tail, new.stubs):
                appender.note(record, durable=False)
            before, end = appender.append_lines(layout.WINDOW_FILE, content), tail.end
            try:
                if content:
                    appender.note(_grown(tail, appender, before, content, times), durable=False)
                for record in called:
                    appender.note(record, durable=False)
                for record in records:
                    appender.note(record)
            except StorageError:
                # The journal first: a record of lines that are gone would make the rest look damaged.
                appender.files[layout.JOURNAL_FILE].cut(end)
                appender.files[layout.WINDOW_FILE].cut(before)
                raise

    def replace(self, new: NewMessages, head: Sequence[str], first: int, pins: Sequence[int]) -> None:
        """Write the context after a compaction; durable on return.

        Raises:
            StaleWindowError: Another writer has taken the window over; nothing was changed.
            ValueError: See `WindowLog.extend_window`.
        """
        content = window_lines(new.messages, new.dialects)
        record = window_record(content, head, first, pins, now(), times=checked_times(new.times, new.messages))
        with self._lease(content), self._session.writing() as (tail, appender):
            check_writer(tail, self._session.session_id, new.writer)
            for other in (*unknown_stubs(tail, new.stubs), *map(call_record, new.calls)):
                appender.note(other, durable=False)
            before = tail.end
            self._reaffirm(tail, appender)
            appender.note(record)
            try:
                appender.replace(layout.WINDOW_FILE, content)
            except StorageError:
                # If only the sync of the directory failed, the file is the new one, and needs its record.
                if self._session.window_content() != content:
                    appender.files[layout.JOURNAL_FILE].cut(before)
                raise

    def _lease(self, content: bytes) -> AbstractContextManager[object]:
        """Keep gc out while lines are written that may refer to blobs: it would miss these references."""
        refers = next(hex_runs(content), None) is not None
        return self._blobs.lease() if self._blobs is not None and refers else nullcontext()

    def _check_length(self, tail: JournalTail, size_bytes: int) -> None:
        """Refuse a file that lost durable lines: later lines would hide the loss.

        Raises:
            CorruptError: It is shorter than its durable lines.
        """
        known = tail.lines
        if known is not None and known["durable"] and size_bytes < known["bytes"]:
            raise CorruptError(self._session.path(layout.WINDOW_FILE), WINDOW_CHANGED)

    def _reaffirm(self, tail: JournalTail, appender: Appender) -> None:
        """Record the file's content again if the replacement after the newest record never happened.

        Readers check two records. After two such crashes in a row, neither would match the file.
        """
        note = window_note(tail, self._session.window_content() or b"")
        if note is not None and note is not tail.windows[-1]:
            appender.note({key: note[key] for key in note if key not in {"before", "unsynced"}}, durable=False)


def _grown(tail: JournalTail, appender: Appender, before: int, added: bytes, times: Sequence[str]) -> Record:
    """Return the record of the window's growth by *added*, which follows *before* bytes."""
    known = tail.lines
    is_known = known is not None and known["bytes"] <= before
    start, checksum = (known["bytes"], int(known["crc32"], 16)) if known is not None and is_known else (0, 0)
    checksum = zlib.crc32(appender.files[layout.WINDOW_FILE].read(start, before - start), checksum)
    return lines_record(
        before + len(added), zlib.crc32(added, checksum), times=times, is_durable=appender.tree.is_durable
    )


def _summary_line(summary: Mapping[str, Any], number: int) -> tuple[bytes, bytes | None]:
    """Return the line of a summary, and the content of the file with its facts if it has any."""
    line, facts = summary_facts.separated(summary, number)
    return spell(line).encode("utf-8") + b"\n", facts


def _summary_record(number: int, byte_range: ByteRange) -> Record:
    return {"op": "summary", "n": number, **byte_range_fields(byte_range)}
