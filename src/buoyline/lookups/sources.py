"""What lookups read of a workspace. No other module of this package touches one.

Names are relative to the workdir: ``sessions/<directory>/<file>`` or ``data/<blob>``. Readable are the transcript and
the tool results of a session, the text of a summary, and blobs. For people there is one more text of each session:
``in_context``, the messages that are in the context.
"""

import re
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from buoyline.errors import (
    BuoylineError,
    ConfigError,
    CorruptError,
    InvalidNameError,
    MessageError,
    NotFoundError,
    StorageError,
)
from buoyline.lookups.text import readable_blocks, shown, whole_lines
from buoyline.messages.formats import is_text_type
from buoyline.messages.jsonl import is_object, parse
from buoyline.messages.registry import dialect_named
from buoyline.offloader.protocol import instead_of
from buoyline.offloader.transcript import render
from buoyline.workspace import ReadableWorkspace, StoredSession, layout
from buoyline.workspace.files import version_in

IN_CONTEXT = "in_context"
"""The name, within a session, of the messages that are in the context."""

LEAST_INDEXED_BYTES = 4 << 20
"""Smaller texts are indexed in memory for each search."""

_MAX_BLOB_BYTES = 64 << 20
_BINARY_BYTES = 8192
_MAX_TOOL_CHARS = 60
_DIRECTORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,127}")
_SUMMARY = re.compile(rf"(.+)/{re.escape(layout.SUMMARIES_FILE)}:([1-9][0-9]{{0,9}})")


class Sources:
    """The texts that one lookup may read: those of one session, or of all. Each method may raise StorageError."""

    def __init__(self, workspace: ReadableWorkspace, session_id: str | None, *, live: bool = False) -> None:
        """Read the session *session_id*, or all if it is None; with *live* also the messages in the context.

        Raises:
            ConfigError: *workspace* is no workspace.
            InvalidNameError: *session_id* cannot be the id of a session.
            NotFoundError: There is no such session.
        """
        if not hasattr(workspace, "files"):
            problem = f"{type(workspace).__name__} is not a workspace; {instead_of(workspace)}"
            raise ConfigError("workspace", problem)
        self.session_id = session_id
        self.unread: dict[str, str] = {}  # by path, why a file or directory was left out
        self._workspace, self._files, self._live = workspace, workspace.files, live
        self._sessions: dict[str, StoredSession | None] = {}
        self._contexts: dict[str, list[list[str]]] = {}
        if session_id is not None:
            session = workspace.session(session_id)
            self._sessions[session.directory] = session

    @cached_property
    def directories(self) -> list[str]:
        """The directories of the sessions, the oldest first."""
        if self.session_id is not None:
            return list(self._sessions)
        # Only names that buoyline gives: an agent may create others, with line ends and escapes in them.
        names = filter(_DIRECTORY.fullmatch, self._files.names(layout.SESSIONS))
        found = [f"{layout.SESSIONS}/{name}" for name in names if self._files.is_directory(f"{layout.SESSIONS}/{name}")]
        return sorted(found, key=lambda directory: (self._created_at(directory), directory))

    def roots(self) -> tuple[str, ...]:
        """Return the paths of the workdir."""
        return tuple(self._workspace.roots)

    def names(self, directory: str) -> list[str]:
        """Return what is searched of a session: transcript, results in their order, messages in the context.

        Of a result with a view it is the view, whose lines stubs and citations name. If all sessions are read, results
        are in the order of their names: reading all logs would take longer than the search.
        """
        try:
            there = set(self._files.names(directory))
        except StorageError as error:
            self.unread[directory] = str(error.strerror)
            return []
        recorded = [*self._records(directory)] if self.session_id is not None else []
        found = [layout.TRANSCRIPT_FILE]
        for name in dict.fromkeys([*recorded, *sorted(filter(layout.is_result_name, there))]):
            view = layout.view_name(name)
            found.append(view if view in there else name)
        in_context = [IN_CONTEXT] if self._messages_in_context(directory) else []
        return [f"{directory}/{name}" for name in (*filter(there.__contains__, found), *in_context)]

    def blobs(self) -> list[str]:
        """Return the blobs that are text: those of the session's results, or all."""
        if self.session_id is None:
            paths = [f"{layout.DATA}/{name}" for name in self._files.names(layout.DATA)]
            return [path for path in paths if layout.digest_in(path) and is_text_type(layout.media_type_of(path))]
        records = self._records(self.directories[0]).values()
        parts = (part for record in records for part in record.get("parts", ()) if is_object(part))
        blobs = (str(part.get("path")) for part in parts if is_text_type(str(part.get("media_type"))))
        return [blob for blob in dict.fromkeys(blobs) if layout.digest_in(blob) and self.size(blob)]

    def named(self, directory: str, *files: str) -> list[str]:
        """Return those of *files* that a session has; for a result with a view the view."""
        found: list[str] = []
        for file in files:
            views = [layout.view_name(file)] if layout.is_result_name(file) else []
            paths = [f"{directory}/{each}" for each in (*views, file) if self._is_readable(each)]
            found += [path for path in paths if self.size(path) is not None][:1]
        return found

    def results_of(self, directory: str, call_id: str) -> list[str]:
        """Return the results of the call *call_id* in a session."""
        records = self._records(directory).items()
        return self.named(directory, *(file for file, record in records if record.get("call_id") == call_id))

    def summary(self, directory: str, number: int) -> str | None:
        """Return the name of a summary's text, a negative number counted from the last; None if there is none."""
        session = self._session(directory)
        try:
            count = 0 if session is None else len(session.index().summaries)
        except BuoylineError:
            return None
        number = count + 1 + number if number < 0 else number
        return f"{directory}/{layout.SUMMARIES_FILE}:{number}" if 1 <= number <= count else None

    def size(self, name: str) -> int | None:
        """Return the size of a text in bytes; None if there is no such text, or it is no regular file."""
        text = self._text_in_memory(name)
        if text is not None:
            return len(text)
        return None if name.endswith(f"/{IN_CONTEXT}") else self._files.size(name)

    def version(self, name: str) -> str:
        """Return what changes with the content of *name*; empty if there is no such text."""
        text = self._text_in_memory(name)
        return str(version_in(self._files, name) or "") if text is None else f"{len(text)} {zlib.crc32(text)}"

    def blocks(self, name: str) -> Iterator[bytes]:
        """Yield a text as blocks of whole lines; none if it is no text.

        A file that is neither transcript nor result nor view has the lines that a view of it would have.
        """
        text = self._text_in_memory(name)
        if text is not None:
            return iter([text] if text else [])
        if not name.startswith(f"{layout.DATA}/"):
            return whole_lines(self._files.chunks(name))
        content = self._files.read(name, 0, _MAX_BLOB_BYTES)
        return iter([]) if b"\0" in content[:_BINARY_BYTES] else readable_blocks(content)

    def unread_row(self) -> str:
        """Return the row of an answer that says what could not be read; empty if all could."""
        if not self.unread:
            return ""
        path, reason = next(iter(self.unread.items()))
        more = f", and {len(self.unread) - 1:,} more" if len(self.unread) > 1 else ""
        return f"[Not searched: {path}: {reason}{more}.]\n"

    def heading(self, name: str, number: int) -> tuple[int, str]:
        """Return whom line *number* belongs to: the line of its message's heading, else 0 and a label.

        The place of a message comes from the log, so no text can forge a heading.
        """
        directory, _, file = name.rpartition("/")
        if file == IN_CONTEXT:
            return _start_of(number, map(len, self._messages_in_context(directory)), 1), ""
        session = self._session(directory)
        try:
            if session is None:
                return 0, ""
            index = session.index()
            if file == layout.TRANSCRIPT_FILE:
                at = bisect_right(index.batches, number, key=lambda batch: batch.line) - 1
                return _start_of(number, index.batches[at].lines, index.batches[at].line) if at >= 0 else 0, ""
            record = index.results.get(layout.result_behind(file) if layout.is_view_name(file) else file, {})
        except BuoylineError:  # `verify` reports the damage; the line can be shown without
            return 0, ""
        tool, time = str(record.get("tool", "")), str(record.get("time", ""))[:16]
        return 0, shown(" · ".join(filter(None, (" ".join(tool[:_MAX_TOOL_CHARS].split()), time)))) if tool else ""

    def index_path(self, names: Iterable[str]) -> str | None:
        """Return the path of the search index; None if *names* are small, or it cannot be on a disk."""
        if sum(self.size(name) or 0 for name in names) < LEAST_INDEXED_BYTES:
            return None
        return self._files.cache_path(self._index_name)

    def remove_index(self) -> None:
        """Remove a damaged search index."""
        self._files.remove_cache(self._index_name)

    @property
    def _index_name(self) -> str:
        scope = "_all" if self.session_id is None else self.directories[0].rpartition("/")[2]
        return f"{layout.SEARCH}/{scope}.sqlite"

    def _is_readable(self, file: str) -> bool:
        is_file = file == layout.TRANSCRIPT_FILE or layout.is_result_name(file) or layout.is_view_name(file)
        return is_file or file == IN_CONTEXT

    def _text_in_memory(self, name: str) -> bytes | None:
        directory, _, file = name.rpartition("/")
        if file == IN_CONTEXT:
            lines = [line for message in self._messages_in_context(directory) for line in message]
            return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace") or None
        found = _SUMMARY.fullmatch(name)
        session = None if found is None else self._session(found[1])
        if found is None or session is None:
            return None
        return b"".join(readable_blocks(str(session.summary(int(found[2])).get("text", "")).encode("utf-8", "replace")))

    def _messages_in_context(self, directory: str) -> list[list[str]]:
        """Return the lines of each message that is in the context, as the transcript will show them."""
        if self._live and directory not in self._contexts:
            session = self._session(directory)
            try:
                self._contexts[directory] = [] if session is None else _rendered_context(session)
            except BuoylineError:
                self._contexts[directory] = []
        return self._contexts.get(directory, [])

    def _session(self, directory: str) -> StoredSession | None:
        """Return the session in *directory*; None if none can be read there, since its files still can."""
        if directory not in self._sessions:
            session_id = self._document(directory).get("id")
            try:
                found = self._workspace.session(session_id) if isinstance(session_id, str) else None
            except (CorruptError, InvalidNameError, NotFoundError):
                found = None
            self._sessions[directory] = found if found is not None and found.directory == directory else None
        return self._sessions[directory]

    def _records(self, directory: str) -> Mapping[str, Mapping[str, Any]]:
        session = self._session(directory)
        try:
            return {} if session is None else session.index().results
        except BuoylineError:
            return {}

    def _created_at(self, directory: str) -> str:
        return str(self._document(directory).get("created_at", ""))

    def _document(self, directory: str) -> Mapping[str, Any]:
        try:
            found = parse(self._files.read(f"{directory}/{layout.SESSION_FILE}"))
        except (BuoylineError, MessageError):
            return {}
        return found if is_object(found) else {}


def _rendered_context(session: StoredSession) -> list[list[str]]:
    window, archived = session.window(), session.index().messages
    natives = window.messages[len(window.head) + max(archived - window.first, 0) :]
    views = [dialect_named(name).view(dialect_named(name).from_json(value)) for name, value in natives]
    return render(views, max(archived, window.first), ["in the context"] * len(views), lambda _: None)


def _start_of(number: int, sizes: Iterable[int], first: int) -> int:
    """Return the first line of the message that holds line *number*; 0 if none of these does."""
    for size in sizes:
        if first <= number < first + size:
            return first
        first += size
    return 0
