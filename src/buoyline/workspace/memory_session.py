"""One session of a `MemoryWorkspace`: what `LocalWorkspace` has in files, as bytes in this process.

Synchronous and not thread-safe; `MemoryWorkspace` calls it under its lock.
"""

import hashlib
import sys
import threading
import zlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import PurePosixPath
from typing import Any, Final

from buoyline.errors import ConfigError, NotFoundError, SessionExistsError
from buoyline.messages import ToolResult, parse, spell
from buoyline.messages.times import now
from buoyline.offloader.protocol import ArchivedBatch, StoredResult, WindowState
from buoyline.workspace import layout
from buoyline.workspace.batches import (
    ArchivedMessage,
    batch_after,
    batches_between,
    check_first,
    known_batch,
    line_ranges,
    lines_of,
    located,
    messages_of,
    rendered,
    text_digest,
    times_of,
    transcript_bytes,
    transcript_lines,
)
from buoyline.workspace.content import (
    ONE_TEXT,
    BytesContent,
    Measure,
    ResultContent,
    ViewedContent,
    described,
    placed,
    result_from,
)
from buoyline.workspace.index import Index
from buoyline.workspace.journal import Batch, ByteRange, Record, batch_record, encode
from buoyline.workspace.records import (
    absent,
    check_writer,
    checked_times,
    lines_record,
    pins_record,
    result_record,
    settings_record,
    stored_result,
    streamed_record,
    stub_record,
    window_line,
    window_record,
    window_state,
    writer_record,
)
from buoyline.workspace.result_names import ResultNames, names_for

# Contents that are kept in memory for as long as somebody uses them.
#
# Source: Strands' ``InMemoryStorage`` for the turns and their default.


@dataclass(slots=True)
class _Entry:
    """Contents that come and go together, and the turn of their last use."""

    files: Mapping[str, bytes]
    used: int


class Evictable:
    """Contents by name; those that were neither stored nor retrieved for a number of turns are removed."""

    def __init__(self, evict_after_turns: int | None) -> None:
        """Keep what was used within *evict_after_turns* turns; None keeps everything.

        Raises:
            ConfigError: It is no whole number above 0.
        """
        if evict_after_turns is not None:
            _require_turns(evict_after_turns)
        self._evict_after_turns = evict_after_turns
        self._turn = 0
        self._entries: dict[str, _Entry] = {}
        self._evicted: set[str] = set()

    def store(self, files: Mapping[str, bytes]) -> None:
        """Keep *files* under their names; using one uses all of them. What is there already is replaced."""
        self._entries.update(dict.fromkeys(files, _Entry(files, self._turn)))
        self._evicted.difference_update(files)

    def use(self, name: str) -> bytes | None:
        """Return the content called *name*, which counts as its use; None when it is not there."""
        entry = self._entries.get(name)
        if entry is None:
            return None
        # One of its files may meanwhile have come once more, with others: a picture that two results have.
        for file in entry.files:
            self._entries.get(file, entry).used = self._turn
        return entry.files[name]

    def look(self, name: str) -> bytes | None:
        """Return the content called *name*, which is no use of it; None when it is not there."""
        entry = self._entries.get(name)
        return None if entry is None else entry.files[name]

    def release(self, name: str) -> bytes | None:
        """Take the content called *name* out, for somebody who keeps it for good; None when it is not there."""
        entry = self._entries.pop(name, None)
        return None if entry is None else entry.files[name]

    def is_evicted(self, name: str) -> bool:
        """Tell whether *name* was here once and was removed because nobody used it."""
        return name in self._evicted

    def next_turn(self) -> None:
        """Begin the next turn, and remove what was last used too many turns ago."""
        self._turn += 1
        if self._evict_after_turns is None:
            return
        oldest = self._turn - self._evict_after_turns
        stale = [name for name, entry in self._entries.items() if entry.used < oldest]
        for name in stale:
            del self._entries[name]
        self._evicted.update(stale)

    def clear(self) -> None:
        """Remove everything, the memory of what was evicted included."""
        self._entries.clear()
        self._evicted.clear()


def _require_turns(turns: object) -> None:
    if isinstance(turns, bool) or not isinstance(turns, int) or turns < 1:
        reason = f"{turns!r} is not a whole number of turns above 0; None keeps everything"
        raise ConfigError("evict_after_turns", reason)


def directory_for(sessions: Mapping[str, "MemorySession"], session_id: str) -> str:
    """Return the directory that a session has among *sessions*, or, where it is new, the one that is free for it.

    Raises:
        InvalidNameError: *session_id* cannot be an id.
    """
    directories = layout.session_directories(session_id)
    own = (path for path in directories if path in sessions and sessions[path].session_id == session_id)
    free = (path for path in directories if layout.folded(path) not in map(layout.folded, sessions))
    return next(chain(own, free), directories[-1])


class MemorySession:
    """A session in memory: archive, tool results, summaries and window."""

    def __init__(self, session_id: str, directory: str, root: str, evictable: Evictable) -> None:
        """Begin an empty session.

        Args:
            session_id: Its id.
            directory: What its files would be in.
            root: What every reference begins with.
            evictable: Takes the tool results, which may be evicted; all else stays here.
        """
        self.session_id = session_id
        self.directory = directory
        self._root = root
        self._evictable = evictable
        self._index = Index()
        self._names = ResultNames()
        self._context = bytearray()
        self._transcript = bytearray()
        self._summaries = bytearray()
        self._window = bytearray()

    @property
    def messages(self) -> int:
        """How many messages are archived."""
        return self._index.messages

    def path(self, file: str) -> str:
        """Return the reference of the session's *file*."""
        return f"{self._root}{self._name(file)}"

    def text(self, file: str) -> bytes | None:
        """Return the content of the session's *file* that cannot be evicted; None when there is none."""
        files = {
            layout.CONTEXT_FILE: self._context,
            layout.TRANSCRIPT_FILE: self._transcript,
            layout.SUMMARIES_FILE: self._summaries,
            layout.WINDOW_FILE: self._window,
        }
        found = files.get(file)
        return None if found is None else bytes(found)

    def files(self) -> list[str]:
        """Return the names that its files have or had: transcript, archive, tool results and their views."""
        results = self._index.results
        texts = [layout.TRANSCRIPT_FILE, layout.CONTEXT_FILE] if self._index.messages else []
        return [*texts, *results, *map(layout.view_name, results)]

    def index(self) -> Index:
        """Return what its journal would say."""
        return self._index

    def add(
        self, messages: Sequence[ArchivedMessage], batch_id: str, first: int | None = None, added: Sequence[str] = ()
    ) -> Batch:
        """Append *messages*, at least one, as a batch; a repetition is the batch that there is.

        *added* says when each was added; see `times_of`.

        Raises:
            ConflictError: *batch_id* stands for other messages.
            StaleWindowError: The first would get another index than *first*.
        """
        lines = lines_of(messages)
        known = known_batch(self._index, self.session_id, batch_id, messages, lines)
        if known is not None:
            return known
        check_first(self._index, self.session_id, first)
        time, times = now(), times_of(messages, added)
        shown = rendered(messages, self._index.messages, times, self._index)
        derived = transcript_bytes(shown)
        content = b"".join(lines)
        digest = hashlib.sha256(content).hexdigest()
        end = len(self._context)
        byte_range = ByteRange(end, tuple(map(len, lines)), digest, end, self._index.end)
        batch = batch_after(
            self._index,
            messages,
            batch_id=batch_id,
            lines=shown,
            derived=derived,
            byte_range=byte_range,
            time=time,
            times=times,
        )
        self._note(batch_record(batch))
        self._context += content
        self._transcript += derived
        return batch

    def archived(self, first: int, end: int) -> Iterator[ArchivedMessage]:
        """Yield the archived messages from *first* up to *end*, in order; fewer where there are fewer."""
        for batch in batches_between(self._index, first, end):
            content = bytes(self._context[batch.byte_range.offset : batch.byte_range.end])
            yield from (message for message in messages_of(batch, content) if first <= message.number < end)

    def located(self, first: int, end: int) -> ArchivedBatch:
        """Return where the archived messages from *first* up to *end* stand.

        Raises:
            NotFoundError: They are not all archived.
        """
        return located(self.path, first, line_ranges(self._index, self.session_id, first, end))

    def transcript_lines(self, first: int, end: int) -> list[list[str]]:
        """Return the transcript's lines of the messages from *first* up to *end*."""
        batches = batches_between(self._index, first, end)
        return transcript_lines(
            batches, first, end, lambda offset, size: bytes(self._transcript[offset : offset + size])
        )

    def missing(self, strings: Sequence[str]) -> list[str]:
        """Return those of *strings* that neither the transcript nor a tool result still held has, in order."""
        results = (self._evictable.look(self._name(name)) for name in self._index.results)
        held = (content for content in results if content is not None)
        return absent(strings, chain((bytes(self._transcript),), held))

    def store(self, result: ToolResult, kept: Container[str] = ()) -> StoredResult:
        """Store the text of *result*, its view and its media, which counts as their use.

        Args:
            result: The result.
            kept: Names of payloads that are held for good.
        """
        files: dict[str, bytes] = {}

        def put(payload: bytes, media_type: str) -> str:
            name = layout.blob_name(payload, media_type)
            files.update({} if name in kept else {name: payload})
            return layout.reference_to(name)

        content, parts = ResultContent(result), described(result, put)
        view = content.view()
        name = self._name_for(result.call_id, result.name, content.measure(), placed(parts, content.measure()))
        if name not in self._index.results:
            others = self._index.result_bytes
            record = result_record(result, name, content.measure(), parts, view, others_bytes=others, time=now())
            self._note(record)
        return self._stored(name, content, view, files)

    def store_bytes(self, call_id: str, content: bytes, partial: str = "") -> StoredResult:
        """Store what came piece by piece and its view, which counts as their use.

        Args:
            call_id: The id of the call.
            content: All of it.
            partial: Why it is not whole; empty where it is.
        """
        given = BytesContent(content)
        view, measure = given.view(), given.measure()
        name = self._name_for(call_id, "", measure, placed(ONE_TEXT, measure))
        if name not in self._index.results:
            record = streamed_record(
                call_id,
                name,
                measure,
                view=None if view is None else (view.count(b"\n"), len(view)),
                partial=partial,
                others_bytes=self._index.result_bytes,
                time=now(),
            )
            self._note(record)
        return replace(self._stored(name, given, view, {}), partial=partial)

    def load(self, name: str, use: Callable[[str], bytes]) -> ToolResult:
        """Return the result in file *name*, equal to what was given.

        Args:
            name: Of the file within the session.
            use: Returns the content behind a reference or a workspace-relative name, which counts as its use.

        Raises:
            NotFoundError: There is no such result, or no longer.
        """
        record = self._index.find_result(name)
        if record is None:
            raise NotFoundError("tool result", name, "nothing was stored under it in this session")
        return result_from(record, use(self._name(name)), use)

    def stubs(self, texts: Sequence[str]) -> dict[str, StoredResult]:
        """Return those of *texts* that are recorded stubs, with the results that they stand for."""
        return {text: stored for text in texts if (stored := self._behind(text)) is not None}

    def record_stub(self, stub: str, name: str) -> None:
        """Remember that the text *stub* stands for the result called *name*."""
        record = stub_record(stub, name, now())
        if record["sha256"] not in self._index.stubs:
            self._note(record)

    def add_summary(self, summary: Mapping[str, Any]) -> int:
        """Append *summary* with its number as ``n``, counted from 1."""
        number = self._summaries.count(b"\n") + 1
        self._summaries += spell({**summary, "n": number}).encode("utf-8") + b"\n"
        return number

    def summaries(self) -> list[dict[str, Any]]:
        """Return all summaries in order."""
        return [parse(line) for line in bytes(self._summaries).split(b"\n")[:-1]]

    def start_window(self, settings: Mapping[str, Any], writer: str) -> None:
        """Begin with an empty context; the same *writer* may repeat it.

        Raises:
            SessionExistsError: The session has messages or a window already.
        """
        if writer and writer == self._index.writer and self._index.windows and not self._index.batches:
            return
        if self._index.batches or self._index.windows:
            raise SessionExistsError(self.session_id, f"{self._root}{self.directory}")
        if writer:
            self._note(writer_record(writer, now()))
        self._note(settings_record(settings, now()))
        self.replace_window((), (), 0, ())

    def claim_window(self, writer: str) -> None:
        """Make *writer* the one that goes on; the one before it is refused from now on.

        Raises:
            NotFoundError: It never had a window.
        """
        self.window()
        self._note(writer_record(writer, now()))

    def extend_window(
        self, messages: Sequence[Any], pins: Sequence[int], *, times: Sequence[str] = (), writer: str = ""
    ) -> None:
        """Append messages that were added to the context, and note the pins.

        Raises:
            StaleWindowError: Another writer has gone on with the window.
            ValueError: See `WindowLog.extend_window`.
        """
        check_writer(self._index, self.session_id, writer)
        times = checked_times(times, messages)
        added = b"".join(window_line(message) for message in messages)
        growth = self._index.lines[-1] if self._index.lines else []
        checksum = int(growth[-1]["crc32"], 16) if growth else zlib.crc32(self._window)
        self._window += added
        if messages:
            self._note(lines_record(len(self._window), zlib.crc32(added, checksum), times=times, is_durable=True))
        self._note(pins_record(pins, now()))

    def replace_window(
        self,
        messages: Sequence[Any],
        head: Sequence[str],
        first: int,
        pins: Sequence[int],
        *,
        times: Sequence[str] = (),
        writer: str = "",
    ) -> None:
        """Put down the context after a compression.

        Raises:
            StaleWindowError: Another writer has gone on with the window.
        """
        check_writer(self._index, self.session_id, writer)
        content = b"".join(window_line(message) for message in messages)
        self._note(window_record(content, head, first, pins, now(), times=checked_times(times, messages)))
        self._window = bytearray(content)

    def window(self) -> WindowState:
        """Return what stands in the context.

        Raises:
            NotFoundError: It never had a window.
        """
        state = window_state(self._index, bytes(self._window))
        if state is None:
            raise NotFoundError("window in session", self.session_id, "start it with ContextWindow(...)")
        return state

    def _behind(self, stub: str) -> StoredResult | None:
        record = self._index.stubs.get(text_digest(stub))
        found = None if record is None else self._index.results.get(record["path"])
        return None if found is None else self._described(found)

    def _stored(
        self, name: str, content: ViewedContent, view: bytes | None, files: Mapping[str, bytes]
    ) -> StoredResult:
        """Put *content* and *files* where they may be evicted, and describe the result."""
        views = {} if view is None else {self._name(layout.view_name(name)): view}
        self._evictable.store({**files, self._name(name): b"".join(content.chunks()), **views})
        return self._described(self._index.results[name])

    def _name(self, file: str) -> str:
        return f"{self.directory}/{file}"

    def _name_for(self, call_id: str, tool: str, measure: Measure, parts: Sequence[Record]) -> str:
        """Choose the result's name; one that was evicted still stands for what it stood for."""
        name = next(names_for(self._index, self._names, call_id, tool, measure=measure, parts=parts))
        self._names.add(name)
        return name

    def _described(self, record: Record) -> StoredResult:
        return stored_result(record, self.path, lambda name: f"{self._root}{name}")

    def _note(self, record: Record) -> None:
        # By way of its bytes: what is remembered is then a copy, exactly as a workspace on disk would read it.
        self._index.absorb(encode(record))


# `MemoryFiles`: what a `MemoryWorkspace` holds, under the names that it would have as files, for reading.


ROOT: Final = "memory:///"
_CHUNK_BYTES = 1 << 20


class MemoryFiles:
    """Sessions, tool results, views and payloads in memory, read as a workspace on disk is read.

    It stands in for a `LocalWorkspace` where one is only read, as its own `tree` and `blobs`. What is read counts as
    used; looking at names and sizes does not. What was evicted is not there.

    Attributes:
        workdir: What absolute names begin with, once ``memory://`` is taken off them.
    """

    def __init__(
        self,
        sessions: Mapping[str, MemorySession],
        evictable: Evictable,
        payloads: Mapping[str, bytes],
        *,
        lock: threading.Lock,
        use: Callable[[str], bytes],
    ) -> None:
        """Read what stands in these.

        Args:
            sessions: By directory.
            evictable: Tool results, views, and the payloads that no message has.
            payloads: By name, those that are kept for good.
            lock: Held while names are looked at.
            use: Returns what is behind a reference, which counts as its use; it takes the lock itself.
        """
        self.workdir = PurePosixPath("/")
        self._sessions, self._evictable, self._payloads = sessions, evictable, payloads
        self._lock, self._use = lock, use

    @property
    def tree(self) -> "MemoryFiles":
        """The files."""
        return self

    @property
    def blobs(self) -> "MemoryFiles":
        """The payloads."""
        return self

    def session(self, session_id: str) -> MemorySession:
        """Return the session.

        Raises:
            InvalidNameError: *session_id* cannot be an id.
            NotFoundError: There is no such session.
        """
        with self._lock:
            found = self._sessions.get(directory_for(self._sessions, session_id))
        if found is None:
            raise NotFoundError("session", session_id, "nothing was stored under it in this workspace")
        return found

    def path(self, name: str) -> str:
        """Return the reference of *name*."""
        return f"{ROOT}{name}"

    def names(self, name: str) -> list[str]:
        """Return the entries of directory *name*, sorted; none when it is not there."""
        with self._lock:
            if name == layout.SESSIONS:
                return sorted(directory.rpartition("/")[2] for directory in self._sessions)
            session = self._sessions.get(name)
            files = [] if session is None else session.files()
        return sorted(file for file in files if self.size(f"{name}/{file}") is not None)

    def is_directory(self, name: str) -> bool:
        """Tell whether *name* is a directory."""
        return name in self._sessions or name in {layout.SESSIONS, layout.DATA}

    def exists(self, name: str) -> bool:
        """Tell whether *name* is there."""
        return self.is_directory(name) or self.size(name) is not None

    def size(self, name: str) -> int | None:
        """Return the bytes of the file *name*; None when there is no such file, or no longer."""
        with self._lock:
            content = self._evictable.look(name)
            content = self._payloads.get(name) if content is None else content
        content = self._text(name) if content is None else content
        return None if content is None else len(content)

    def read(self, name: str, offset: int = 0, size_bytes: int = sys.maxsize) -> bytes:
        """Return *size_bytes* bytes of a file from *offset*, or all that follows it.

        Raises:
            NotFoundError: It is not there, or no longer.
        """
        content = self._text(name)
        content = self._use(self.path(name)) if content is None else content
        return content[offset : offset + size_bytes]

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the content of a file in pieces. Raises `NotFoundError`."""
        content = self.read(name)
        for start in range(0, len(content), _CHUNK_BYTES):
            yield content[start : start + _CHUNK_BYTES]

    def get(self, reference: str) -> bytes:
        """Return the payload behind a ``workspace:///data/`` reference. Raises `NotFoundError`."""
        return self._use(reference)

    def is_evicted(self, name: str) -> bool:
        """Tell whether *name* was there once and was removed because nobody used it."""
        with self._lock:
            return self._evictable.is_evicted(name)

    def _text(self, name: str) -> bytes | None:
        """Return a file of a session that cannot be evicted, ``session.json`` included; None when it is none."""
        directory, _, file = name.rpartition("/")
        session = self._sessions.get(directory)
        if session is None:
            return None
        if file == layout.SESSION_FILE:
            return spell({"id": session.session_id}).encode()
        with self._lock:
            return session.text(file)
