"""`Session`: the logs and the transcript of one session on disk. Blocking.

Every write takes the lock of ``context.jsonl``, looks at both logs, syncs what others wrote, and sets torn bytes
aside; then it is one write and one sync. So nothing unsynced ever lies below a line that is synced. Source:
docs/format.md, "Writing".
"""

import contextlib
import errno
import json
import os
import secrets
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, chain
from typing import Any, NoReturn

from buoyline.errors import ConfigError, CorruptError, FormatVersionError, StaleWindowError, StorageError
from buoyline.messages import spell
from buoyline.messages.jsonl import now
from buoyline.messages.payloads import put_back
from buoyline.workspace import layout
from buoyline.workspace.disk import Disk, OpenFile
from buoyline.workspace.documents import ensure_workspace
from buoyline.workspace.log import Damage, Facts, Log, LogLine, Tail, body_of, has_lost_line_ends
from buoyline.workspace.redaction import Redaction
from buoyline.workspace.results import Results, get_blob, put_blob
from buoyline.workspace.state import (
    ContextRecord,
    Keys,
    LoggedMessage,
    NewForm,
    NewLine,
    Range,
    Rendered,
    SessionState,
    Transcript,
    line_of,
)

_OF_A_WINDOW = frozenset({"claim", "settings", "context", "form"})


class Session:
    """A handle of one session. One call at a time; several handles and processes may share a session.

    A window calls `open` first. From then on the handle refuses to write if somebody else has continued the session,
    since the window's memory would lack it. A handle that was not opened takes in what others wrote.

    Attributes:
        session_id: Any text.
        name: The session's directory, relative to the workdir.
        state: What this handle knows.
        redaction: Of the workspace; callers use it before they append.
        results: The files of tool results.
        settings: What the window wants to be recorded, plain JSON; it is written with the claim, and with the next
            records if it differs.
    """

    def __init__(
        self,
        disk: Disk,
        session_id: str,
        *,
        lock_timeout_s: float = 30.0,
        shown_as: str = "",
        redaction: Redaction | None = None,
    ) -> None:
        """Use *disk*, whose root the agent knows as *shown_as*; nothing is read or created yet.

        Raises:
            InvalidNameError: *session_id* cannot be an id.
        """
        self.session_id = session_id
        self.name = layout.session_directory(session_id)
        self.settings: Mapping[str, Any] | None = None
        self.disk = disk
        self.redaction = redaction or Redaction()
        self.results = Results(
            disk,
            self.name,
            prepare=self.prepare,
            shown=lambda name: f"{self._shown_as}/{name}",
            lock_timeout_s=lock_timeout_s,
        )
        self._lock_timeout_s = lock_timeout_s
        self._shown_as = shown_as or str(disk.root)
        self._writer = secrets.token_hex(8)
        self._is_window = self._is_durable = False
        self._refusal = ""  # why a window may not write until it is opened again
        self._pid = os.getpid()
        self._forget()

    def _forget(self) -> None:
        names = (layout.STATE, layout.CONTEXT, layout.SUMMARIES)
        self._records, self._messages, self._summaries = (Log(self.disk, f"{self.name}/{name}") for name in names)
        self.state = SessionState()

    def path_of(self, name: str) -> str:
        """Return the path of the session's file *name* as the agent sees it."""
        return f"{self._shown_as}/{self.name}/{name}"

    # Reading.

    def open(self) -> SessionState:
        """Read the state for a window. Writes nothing; a session that is not there is empty.

        Raises:
            CorruptError: It is damaged in a way that may have changed the context, or belongs to another id.
            FormatVersionError: Another version of buoyline wrote it.
        """
        self.load()
        if self.state.damaged:
            raise self._records.corrupt(f"record {self.state.damaged[0]} is damaged")
        for log in (self._records, self._messages):
            if log.tail.end < log.tail.size:
                _require_torn(log, log.tail, self.disk.read(log.name, log.tail.end, log.tail.size - log.tail.end))
        self._is_window, self._refusal = True, ""
        self._pid, self._writer = os.getpid(), secrets.token_hex(8)
        return self.state

    def load(self) -> SessionState:
        """Read the state for somebody who only looks: damaged records are left out, and nothing is claimed.

        Raises:
            CorruptError: Messages that were acknowledged are missing, or the session belongs to another id.
            FormatVersionError: Another version of buoyline wrote it.
        """
        self._forget()
        known = -1
        while True:
            records, messages = self._looked(self._records), self._looked(self._messages)
            # A record that a line names was there before the line: if it is not, a writer was at work in between.
            if messages.facts.get("s", 0) <= records.count or records.count == known:
                break
            known = records.count
        self._require_all(records, messages)
        self._fold()
        return self.state

    def read(self, numbers: Iterable[int]) -> list[LoggedMessage]:
        """Return messages by number, in that order, each in its newest form.

        Raises:
            CorruptError: One of them is damaged, or not there.
        """
        wanted = list(numbers)
        found = self._lines(self._messages, wanted)
        forms = self._lines(self._records, [self.state.forms[n] for n in wanted if n in self.state.forms])
        keys = self.state.form_keys
        return [
            line_of(found[n], forms[self.state.forms[n]] if n in self.state.forms else None, keys.get(n, ()))
            for n in wanted
        ]

    def with_payloads(self, line: LoggedMessage) -> dict[str, Any]:
        """Return a message as it came, its payloads in the place of their references.

        Raises:
            CorruptError: A payload is damaged.
            StorageError: A payload is missing.
        """
        found: dict[str, Any] = put_back(line.value, line.refs, lambda reference: get_blob(self.disk, reference))
        return found

    def keys(self, first: int = 0) -> list[Keys]:
        """Return what identifies each message from number *first* on, those of damaged lines left out."""
        forms = self.state.form_keys
        return [
            Keys(
                line.number,
                line.facts.get("id", ""),
                (*line.facts.get("keys", ()), *forms.get(line.number, ())),
                line.facts.get("ours", False),
                line.facts.get("archived", False),
            )
            for line in self._messages.lines(first)
        ]

    def lines(self) -> Iterator[LogLine]:
        """Yield the lines of ``context.jsonl`` as they were written, damaged ones left out."""
        return self._messages.lines()

    def records(self) -> Iterator[LogLine]:
        """Yield the records of ``state.jsonl``, damaged ones left out."""
        return self._records.lines()

    def transcript_starts(self) -> list[int]:
        """Return the first line of each message in the transcript, in order: no text can forge a heading."""
        if self.state.is_plain:
            return [line.facts["line"] for line in self._messages.lines()]
        return self.state.starts

    def summaries(self) -> list[dict[str, Any]]:
        """Return the summaries in order, each with its number as ``n``; damaged and lost ones are left out."""
        if not self._summaries.is_synced:
            self._looked(self._summaries)
        return [line.value for line in self._summaries.lines() if "n" in line.value]

    def damage(self) -> list[Damage]:
        """Return the bytes of the three logs that are not what was written; reads all of them."""
        logs = (self._records, self._messages, self._summaries)
        return [found for log in logs if self.disk.status(log.name) is not None for found in log.damage()]

    # Writing.

    def put(self, payload: bytes, media_type: str) -> str:
        """Store a payload under ``data/``, redacted; return its reference. Durable on return."""
        self.prepare()
        return put_blob(self.disk, self.redaction.payload(payload, media_type), media_type)

    def append(self, lines: Sequence[NewLine]) -> int:
        """Append messages, whole or not at all, in one write and one sync; return the number of the first.

        Raises:
            ConfigError: The session holds messages of `offload_context`.
            StaleWindowError: Another writer has continued the session.
            CorruptError: Something that was acknowledged is missing; nothing was written.
            StorageError: The file system refused; nothing was changed.
        """
        if not lines:
            return self.state.end
        with self._writing(as_window=True) as (context, _):
            return self._append_messages(context, lines, [line.facts() for line in lines])

    def append_archived(
        self, lines: Sequence[NewLine], render: Callable[[int], Sequence[Sequence[str]]]
    ) -> tuple[int, bool]:
        """Append messages that have left a context that is not ours, as one batch.

        Args:
            lines: In order. A batch equal to the newest one is the same, if each message has an ``id``.
            render: Gets the number of the first, and returns the transcript's lines of each.

        Returns:
            The number of the first, and whether the batch is new.

        Raises:
            ConfigError: A window has written to the session.
            StorageError: The file system refused; nothing was changed.
        """
        if not lines:
            return self.state.end, False
        with self._writing(as_window=False) as (context, _):
            if self.state.claim:
                raise ConfigError("session_id", f"a window writes to {self.session_id!r}; use a new session id")
            if self._is_newest_batch(lines):
                return self.state.end - len(lines), False
            rendered = self._append_transcript(render(self.state.end))
            places = zip(lines, rendered.lines, strict=False)
            facts = [{**line.facts(), "archived": True, "line": place} for line, place in places]
            facts[-1]["transcript"] = rendered.transcript
            first = self._append_messages(context, lines, facts)
            self.state.transcript = rendered.transcript
            return first, True

    def note_forms(self, forms: Sequence[NewForm]) -> None:
        """Record new forms of messages in one synced batch. Raises as `append` does."""
        if forms:
            values = [{"op": "form", "message": form.value} for form in forms]
            with self._writing(as_window=True) as (_, state):
                self._append_records(state, values, [form.facts() for form in forms])

    def note_context(self, record: ContextRecord) -> None:
        """Record the context: the commit of a compaction or fork. Raises as `append` does."""
        with self._writing(as_window=True) as (_, state):
            self._append_records(state, [record.to_json()])

    def note_usage(self, usage: Mapping[str, Any]) -> None:
        """Record the provider's count of a request that no message has taken. Raises as `append` does."""
        with self._writing(as_window=True) as (_, state):
            self._append_records(state, [{"op": "usage", "usage": usage}])

    def note_result(self, record: Mapping[str, Any]) -> None:
        """Record a result that no message names; *record* has its call's ``key`` and its ``files``, its own first."""
        made = {"op": "result", **record}
        with self._writing(as_window=False) as (_, state):
            known = self.state.results.get(made["files"][0][0], {})
            if {**known, "time": ""} != {**made, "time": ""}:
                self._append_records(state, [made])

    def archive(self, texts: Sequence[Sequence[str]]) -> Rendered:
        """Append the rendered lines of each message to the transcript, durably; `note_context` commits them.

        What was appended and never committed is cut first. Raises as `append` does.
        """
        with self._writing(as_window=True):
            return self._append_transcript(texts)

    def append_summary(self, record: Mapping[str, Any]) -> int:
        """Append a summary, durably; return its number, which is also its ``n``. Raises as `append` does."""
        log = self._summaries
        with self._writing(as_window=True), self.disk.opened(log.name, write=True) as file:
            if not log.knows(file):
                tail = log.look(file)
                if tail.count < self.state.named_summaries:
                    raise log.corrupt(f"holds {tail.count} summaries of {self.state.named_summaries} that were written")
                self._take_over(log, file, tail)
            (line,) = log.append(file, [{"n": log.count, **record}], [{"time": now()}])
            return line.number

    def _looked(self, log: Log) -> Tail:
        """Take over what a log holds; one that is not there is empty."""
        try:
            with self.disk.opened(log.name) as file:
                tail = log.look(file)
                log.accept(file, tail, is_synced=False)
                return tail
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            return Tail(0, {}, 0)

    # The way of a write.

    def prepare(self) -> None:
        """Create what is missing of the session, durably; each write does, and so must who stores payloads first.

        Only a session without a record is created: one that this handle knows and that is gone was removed.
        """
        if self._is_durable:
            return
        # In this order: whoever creates the session meanwhile writes the records first.
        written, found = self.disk.status(self._messages.name), self.disk.status(self._records.name)
        if not self.state.exists and (found is None or found.size == 0):
            if found is None and written is not None and written.size > 0:
                raise self._messages.corrupt(
                    "has no record in state.jsonl; if another program began it, use another id"
                )
            ensure_workspace(self.disk, sync=False)
            self.disk.make_directory(self.name, sync=False)
            for name in layout.SESSION_FILES:
                self.disk.create(f"{self.name}/{name}")
        self.disk.sync_upwards(self.name)
        self._is_durable = True

    @contextmanager
    def _writing(self, *, as_window: bool) -> Generator[tuple[OpenFile, OpenFile]]:
        """Hold the lock, with all that others wrote taken in; yields both logs, open."""
        if self._is_window and self._pid != os.getpid():
            self._refuse("it was opened before a fork")
        if self._refusal:
            self._refuse(self._refusal)
        is_known = self._is_durable or self.state.exists
        if not self._is_window and is_known and self.disk.status(self.name) is None:
            self._forget()
            self._is_durable = False
        try:
            self.prepare()
            with (
                self.disk.locked(self._messages.name, self._lock_timeout_s) as context,
                self.disk.opened(self._records.name, write=True) as state,
            ):
                self._catch_up(context, state)
                self._begin(state, as_window=as_window)
                yield context, state
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            if self.disk.status(self.name) is not None:
                raise CorruptError(str(error.filename), "is missing; run `buoyline repair`") from error
            if self._is_window:
                self._refuse("it was removed")
            raise

    def _refuse(self, reason: str) -> NoReturn:
        """Let a window write nothing until it is opened again."""
        self._refusal = reason
        raise StaleWindowError(self.session_id, reason)

    def _catch_up(self, context: OpenFile, state: OpenFile) -> None:
        """Sync and take in what others wrote, and set torn bytes aside."""
        logs = ((self._records, state), (self._messages, context))
        is_known = (self.state.records, self.state.end) == (self._records.count, self._messages.count)
        if is_known and all(log.knows(file) for log, file in logs):
            return
        tails = [log.look(file) for log, file in logs]
        self._require_all(*tails)
        is_replaced = [log.is_replaced(file, tail) for (log, file), tail in zip(logs, tails, strict=True)]
        if self._is_window and (any(is_replaced) or tails[1].count != self._messages.count):
            self._refuse("another writer has continued it, or a failed write could not be undone")
        if is_replaced[0]:
            self.state = SessionState()
        for (log, file), tail in zip(logs, tails, strict=True):
            self._take_over(log, file, tail)
        new = self._records.lines(self.state.records)
        if self._is_window and any(line.value["op"] in _OF_A_WINDOW for line in new):
            self._refuse("another window has continued it")
        self._fold()

    def _require_all(self, records: Tail, messages: Tail) -> None:
        """Refuse a log that is shorter than the other one proves: the missing part was acknowledged."""
        named = records.facts.get("end", 0)
        if messages.count < named:
            raise self._messages.corrupt(f"holds {messages.count} messages of {named} that were written")
        named = messages.facts.get("s", 0)
        if records.count < named:
            raise self._records.corrupt(f"holds {records.count} records of {named} that were written")

    def _take_over(self, log: Log, file: OpenFile, tail: Tail) -> None:
        """Make durable what others wrote to *file*; move torn bytes at its end to a file of their own."""
        if tail.end < tail.size:
            torn = file.read(tail.end, tail.size - tail.end)
            _require_torn(log, tail, torn)
            self.disk.make_directory(f"{self.name}/{layout.TORN}")
            short = log.name.rpartition("/")[2]
            self.disk.publish(f"{self.name}/{layout.torn_name(short, tail.end, torn)}", [torn])
            file.cut(tail.end)
        elif not log.knows(file):
            file.sync()
        log.accept(file, Tail(tail.end, tail.facts, tail.end), is_synced=True)

    def _fold(self) -> None:
        """Take in the records that are new."""
        for line in self._records.lines(self.state.records):
            try:
                self.state.fold(line)
            except (KeyError, TypeError, ValueError) as error:
                raise self._records.corrupt(f"record {line.number} cannot be read: {error!r}") from error
            if line.number == 0:
                self._require_ours(line.value)
        self.state.end = self._messages.count
        if self._messages.tail.facts.get("archived"):
            self.state.fold_archived(self._messages.tail.facts)

    def _require_ours(self, record: Mapping[str, Any]) -> None:
        if record.get("format") != layout.FORMAT:
            raise FormatVersionError(self.disk.path(self._records.name), record.get("format"), layout.FORMAT)
        if record.get("id") != self.session_id:
            raise CorruptError(self.disk.path(self._records.name), f"belongs to the session {record.get('id')!r}")

    def _begin(self, state: OpenFile, *, as_window: bool) -> None:
        """Record what has to be there before the first message: the session, and the claim of a window."""
        first: list[Mapping[str, Any]] = []
        if not self.state.exists:
            first.append({"op": "session", "id": self.session_id, "format": layout.FORMAT})
        if as_window and self.state.claim != self._writer:
            if self.state.is_plain:
                raise ConfigError(
                    "session_id", f"{self.session_id!r} holds messages of `offload_context`; use a new one"
                )
            first.append({"op": "claim", "writer": self._writer})
        if first:
            self._append_records(state, first)

    def _append_records(
        self, state: OpenFile, records: Sequence[Mapping[str, Any]], facts: Sequence[Facts] = ()
    ) -> None:
        more = [dict(given) for given in facts] or [Facts() for _ in records]
        values = list(records)
        if self._is_window and self.settings is not None:
            settings = self.redaction.value(json.loads(spell(self.settings)))
            if settings != self.state.settings:
                values.append({"op": "settings", "settings": settings})
                more.append({})
        common = {"end": self.state.end, "time": now()}
        for line in self._records.append(state, values, [{**common, **given} for given in more]):
            self.state.fold(line)

    def _append_messages(self, context: OpenFile, lines: Sequence[NewLine], facts: Sequence[Facts]) -> int:
        known = {"s": self._records.count}
        written = self._messages.append(context, [line.value for line in lines], [{**known, **more} for more in facts])
        self.state.end = self._messages.count
        return written[0].number

    def _append_transcript(self, texts: Sequence[Sequence[str]]) -> Rendered:
        length, crc, count = self.state.transcript
        content = "".join(f"{line}\n" for line in chain.from_iterable(texts)).encode("utf-8", "replace")
        with self.disk.opened(f"{self.name}/{layout.TRANSCRIPT}", write=True) as file:
            if file.size < length:
                reason = f"has {file.size} bytes of {length} that were written; run `buoyline repair`"
                raise CorruptError(file.path, reason)
            if file.size > length:
                file.cut(length)
            file.append(content)
        lines = tuple(accumulate(map(len, texts), initial=count + 1))
        made = Transcript(length + len(content), f"{zlib.crc32(content, int(crc, 16)):08x}", lines[-1] - 1)
        return Rendered(made, lines)

    def _is_newest_batch(self, lines: Sequence[NewLine]) -> bool:
        newest = self._messages.tail.facts
        if newest.get("of") != len(lines) or not all(line.value.get("id") for line in lines):
            return False
        written = [line.body for line in self._messages.lines(newest["n"] + 1 - len(lines))]
        return written == [body_of(line.value) for line in lines]

    def _lines(self, log: Log, numbers: Iterable[int]) -> dict[int, LogLine]:
        found = {line.number: line for first, end in _runs(numbers) for line in log.lines(first, end)}
        for number in numbers:
            if number not in found:
                raise log.corrupt(f"line {number + 1} is damaged or missing")
        return found


def _require_torn(log: Log, tail: Tail, content: bytes) -> None:
    """Refuse *content* after the last whole batch that is no torn write, but was acknowledged."""
    if has_lost_line_ends(content, tail.count):
        raise log.corrupt("a line end near its end is damaged")


def _runs(numbers: Iterable[int]) -> list[Range]:
    """Return *numbers* as ranges."""
    runs: list[Range] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][1] == number:
            runs[-1] = runs[-1][0], number + 1
        else:
            runs.append((number, number + 1))
    return runs


def first_record(disk: Disk, directory: str) -> LogLine | None:
    """Return record 0 of the session in *directory*, which names its id; None if it is damaged or missing."""
    with contextlib.suppress(StorageError):
        first = next(Log(disk, f"{directory}/{layout.STATE}").first_lines(), None)
        if first is not None and first.number == 0:
            return first
    return None


def session_id_in(disk: Disk, directory: str) -> str:
    """Return the id of the session in *directory*; empty if its first record is damaged or missing."""
    first = first_record(disk, directory)
    return "" if first is None else str(first.value.get("id", ""))
