"""What lookups read of a workspace, and names as models write them.

Names are relative to the workdir: ``sessions/<directory>/<file>`` or ``data/<blob>``. Readable are the transcript and
the tool results of a session, the text of a summary, and blobs. For people there is one more text of each session:
``in_context``, the messages that are in the context.
"""

import difflib
import fnmatch
import re
import sys
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain, islice
from typing import Any, NamedTuple

from buoyline.errors import BuoylineError, ConfigError, NotFoundError, StorageError
from buoyline.lookups.answer import Ranges, count_lines, merged, readable_blocks, shown, whole_lines
from buoyline.messages.parts import is_text_type
from buoyline.messages.registry import stored_view
from buoyline.offloader.protocol import instead_of
from buoyline.offloader.transcript import render
from buoyline.workspace import layout
from buoyline.workspace.log import LogLine
from buoyline.workspace.memory import MemoryDisk
from buoyline.workspace.session import Session, first_record
from buoyline.workspace.state import LoggedMessage, stored_from_json
from buoyline.workspace.workspace import Workspace

IN_CONTEXT = "in_context"
"""The name, within a session, of the messages that are in the context."""

LEAST_INDEXED_BYTES = 4 << 20
"""Smaller texts are indexed in memory for each search."""

_MAX_BLOB_BYTES = 64 << 20
_BINARY_BYTES = 8192
_MAX_TOOL_CHARS = 60
_DIRECTORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,127}")
_READABLE = frozenset({layout.TRANSCRIPT, IN_CONTEXT})
_SUMMARY = re.compile(rf"(.+)/{re.escape(layout.SUMMARIES)}:([1-9][0-9]{{0,9}})")


class Result(NamedTuple):
    """An offloaded result of a session: whose it is, and its payloads."""

    tool: str
    time: str
    blobs: tuple[str, ...]


class Sources:
    """The texts that one lookup may read: those of one session, or of all. Each method may raise StorageError."""

    def __init__(self, workspace: Workspace, session_id: str | None, *, live: bool = False) -> None:
        """Read the session *session_id*, or all if it is None; with *live* also the messages in the context.

        Raises:
            ConfigError: *workspace* is no workspace.
            InvalidNameError: *session_id* cannot be the id of a session.
            NotFoundError: There is no such session.
        """
        given: object = workspace
        if not isinstance(given, Workspace):
            problem = f"{type(given).__name__} is not a workspace; {instead_of(given)}"
            raise ConfigError("workspace", problem)
        self.session_id = session_id
        self.unread: dict[str, str] = {}  # by path, why a file or directory was left out
        self.roots = workspace.roots
        self._workspace, self._disk, self._live = workspace, workspace.disk, live
        self._sessions: dict[str, Session | None] = {}
        self._results: dict[str, dict[str, Result]] = {}
        self._contexts: dict[str, list[list[str]]] = {}
        if session_id is not None:
            session = workspace.stored(session_id)
            self._sessions[session.name] = session

    @cached_property
    def directories(self) -> list[str]:
        """The directories of the sessions, the oldest first."""
        if self.session_id is not None:
            return list(self._sessions)
        # Only names that buoyline gives: an agent may create others, with line ends and escapes in them.
        names = filter(_DIRECTORY.fullmatch, self._disk.entries(layout.SESSIONS))
        found = ((name, self._disk.status(name)) for name in (f"{layout.SESSIONS}/{name}" for name in names))
        directories = [name for name, status in found if status is not None and status.is_directory]
        return sorted(directories, key=lambda directory: (self._created_at(directory), directory))

    def names(self, directory: str) -> list[str]:
        """Return what is searched of a session: transcript, results in their order, messages in the context.

        Of a result with a view it is the view, whose lines stubs and citations name. If all sessions are read, results
        are in the order of their names: reading all logs would take longer than the search.
        """
        try:
            there = set(self._disk.entries(directory))
        except StorageError as error:
            self.unread[directory] = str(error.strerror)
            return []
        recorded = [*self._results_in(directory)] if self.session_id is not None else []
        found = [layout.TRANSCRIPT]
        for name in dict.fromkeys([*recorded, *sorted(filter(layout.is_result_name, there))]):
            view = layout.view_name(name)
            found.append(view if view in there else name)
        in_context = [IN_CONTEXT] if self._messages_in_context(directory) else []
        return [f"{directory}/{name}" for name in (*filter(there.__contains__, found), *in_context)]

    def blobs(self) -> list[str]:
        """Return the blobs that are text: those of the session's results, or all."""
        if self.session_id is None:
            blobs: Iterable[str] = (f"{layout.DATA}/{name}" for name in self._disk.entries(layout.DATA))
        else:
            blobs = chain.from_iterable(result.blobs for result in self._results_in(self.directories[0]).values())
        texts = (blob for blob in dict.fromkeys(blobs) if is_text_type(layout.media_type_of(blob)))
        return [blob for blob in texts if layout.blob_behind(layout.reference_to(blob)) and self.size(blob)]

    def named(self, directory: str, *files: str) -> list[str]:
        """Return those of *files* that a session has; for a result with a view the view."""
        found: list[str] = []
        for file in files:
            views = [layout.view_name(file)] if layout.is_result_name(file) else []
            paths = [
                f"{directory}/{each}"
                for each in (*views, file)
                if each in _READABLE or layout.is_result_name(each) or layout.is_view_name(each)
            ]
            found += [path for path in paths if self.size(path) is not None][:1]
        return found

    def results_of(self, directory: str, call_id: str) -> list[str]:
        """Return the results of the call *call_id* in a session."""
        first = layout.result_name(call_id)
        further = f"{first.removesuffix('.txt')}~"
        names = self._disk.entries(directory)
        return self.named(directory, *(name for name in names if name == first or name.startswith(further)))

    def summary(self, directory: str, number: int) -> str | None:
        """Return the name of a summary's text, a negative number counted from the last; None if there is none."""
        count = len(self._summaries(directory))
        number = count + 1 + number if number < 0 else number
        return f"{directory}/{layout.SUMMARIES}:{number}" if 1 <= number <= count else None

    def size(self, name: str) -> int | None:
        """Return the size of a text in bytes; None if there is no such text, or it is no regular file."""
        text = self._text_in_memory(name)
        if text is not None:
            return len(text)
        status = self._disk.status(name)
        return status.size if status is not None and status.is_file and not name.endswith(f"/{IN_CONTEXT}") else None

    def version(self, name: str) -> str:
        """Return what changes with the content of *name*; empty if there is no such text."""
        text = self._text_in_memory(name)
        return str(self._disk.status(name) or "") if text is None else f"{len(text)} {zlib.crc32(text)}"

    def blocks(self, name: str) -> Iterator[bytes]:
        """Yield a text as blocks of whole lines; none if it is no text.

        A file that is neither transcript nor result nor view has the lines that a view of it would have.
        """
        text = self._text_in_memory(name)
        if text is not None:
            return iter([text] if text else [])
        if not name.startswith(f"{layout.DATA}/"):
            return whole_lines(self._disk.chunks(name))
        content = self._disk.read(name, 0, _MAX_BLOB_BYTES)
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
        if file == layout.TRANSCRIPT:
            session = self._session(directory)
            starts = [0] if session is None else [0, *session.transcript_starts()]
            return starts[bisect_right(starts, number) - 1], ""
        result = self._results_in(directory).get(layout.result_behind(file) if layout.is_view_name(file) else file)
        if result is None or not result.tool:
            return 0, ""
        return 0, shown(" · ".join(filter(None, (" ".join(result.tool[:_MAX_TOOL_CHARS].split()), result.time[:16]))))

    def index_path(self, names: Iterable[str]) -> str | None:
        """Return the path of the search index; None if *names* are small, or it cannot be on a disk."""
        if isinstance(self._disk, MemoryDisk) or sum(self.size(name) or 0 for name in names) < LEAST_INDEXED_BYTES:
            return None
        try:
            self._disk.make_directory(layout.SEARCH)
            found = self._disk.status(self._index_name)
        except StorageError:  # a workspace that may only be read
            return None
        return self._disk.path(self._index_name) if found is None or found.is_file else None

    def remove_index(self) -> None:
        """Remove a damaged search index."""
        self._disk.remove(self._index_name)

    @property
    def _index_name(self) -> str:
        scope = "_all" if self.session_id is None else self.directories[0].rpartition("/")[2]
        return f"{layout.SEARCH}/{scope}.sqlite"

    def _text_in_memory(self, name: str) -> bytes | None:
        directory, _, file = name.rpartition("/")
        if file == IN_CONTEXT:
            lines = [line for message in self._messages_in_context(directory) for line in message]
            return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace") or None
        found = _SUMMARY.fullmatch(name)
        if found is None:
            return None
        text = self._summaries(found[1])[int(found[2]) - 1]
        return b"".join(readable_blocks(text.encode("utf-8", "replace")))

    def _messages_in_context(self, directory: str) -> list[list[str]]:
        """Return the lines of each message that is in the context, as the transcript will show them."""
        session = self._session(directory) if self._live else None
        if session is not None and directory not in self._contexts:
            self._contexts[directory] = []
            with suppress(BuoylineError):  # `verify` reports the damage
                self._contexts[directory] = _rendered(session.read(session.state.live))
        return self._contexts.get(directory, [])

    def _session(self, directory: str) -> Session | None:
        """Return the session in *directory*; None if none can be read there, since its files still can."""
        if directory not in self._sessions:
            record = first_record(self._disk, directory)
            try:
                found = None if record is None else self._workspace.stored(str(record.value.get("id")))
            except BuoylineError:  # `verify` reports the damage
                found = None
            self._sessions[directory] = found if found is not None and found.name == directory else None
        return self._sessions[directory]

    def _summaries(self, directory: str) -> list[str]:
        """Return the texts of a session's summaries by number; of one that is damaged it is empty."""
        session = self._session(directory)
        known = {} if session is None else {one["n"]: str(one.get("text", "")) for one in session.summaries()}
        return [known.get(number, "") for number in range(max(known, default=-1) + 1)]

    def _results_in(self, directory: str) -> Mapping[str, Result]:
        """Return the offloaded results of a session by the names of their files, in their order."""
        if directory not in self._results:
            session = self._session(directory)
            found: dict[str, Result] = {}
            calling: LogLine | None = None
            for line in () if session is None else session.lines():
                if not line.facts.get("stored"):
                    calling = line
                    continue
                tools = _tools_of(line, calling)
                for place, files in stored_from_json(line.facts["stored"]).items():
                    found[files[0].name] = Result(tools.get(place, ""), line.facts.get("time", ""), _blobs(files))
            for name, record in ({} if session is None else session.state.results).items():
                found[name] = Result(str(record.get("tool", "")), record["time"], _blobs(record["files"]))
            self._results[directory] = found
        return self._results[directory]

    def _created_at(self, directory: str) -> str:
        record = first_record(self._disk, directory)
        return "" if record is None else str(record.facts.get("time", ""))


def _blobs(files: Iterable[Sequence[Any]]) -> tuple[str, ...]:
    return tuple(str(name) for name, *_ in files if str(name).startswith(f"{layout.DATA}/"))


def _tools_of(line: LogLine, calling: LogLine | None) -> dict[int, str]:
    """Return the names of the tools whose results a message holds; *calling* is the message before the results."""
    calls = () if calling is None else stored_view(calling.value, calling.facts.get("dialect", "")).calls
    names = {call.call_id: call.name for call in calls}
    results = stored_view(line.value, line.facts.get("dialect", "")).results
    return {place: result.name or names.get(result.call_id, "") for place, result in enumerate(results)}


def _rendered(lines: Iterable[LoggedMessage]) -> list[list[str]]:
    views = ((line.number, stored_view(line.value, line.dialect)) for line in lines)
    shown_as = (render([view], number, ["in the context"], lambda _: None) for number, view in views)
    return [*chain.from_iterable(shown_as)]


def _start_of(number: int, sizes: Iterable[int], first: int) -> int:
    """Return the first line of the message that holds line *number*; 0 if none of these does."""
    for size in sizes:
        if first <= number < first + size:
            return first
        first += size
    return 0


ALL_LINES: Ranges = ((1, sys.maxsize),)

_SPAN = "[0-9]{1,15}(?:-[0-9]{1,15})?"
_CITED = re.compile(rf"(.+?):(-[0-9]{{1,15}}|{_SPAN}(?:,{_SPAN}){{0,99}})", re.DOTALL)
_PLACE = re.compile(rf"(?:.*/)?({layout.SESSIONS}/[^/]+|{layout.DATA})/([^/]+)", re.DOTALL)
_NAMED_DIRECTORY = re.compile(rf"(?:.*/)?({layout.SESSIONS}/[^/]+)", re.DOTALL)
_WILDCARDS = frozenset("*?[")
_MAX_PATTERN_CHARS = 1_000
_MAX_NAMED = 4
_MAX_COMPARED = 5_000
_MAX_SHOWN_CHARS = 200


class Target(NamedTuple):
    """A text, and the lines of it that are meant."""

    name: str
    ranges: Ranges = ALL_LINES


def resolve(sources: Sources, text: str) -> Target:
    """Find the text and the lines that *text* means.

    Raises:
        NotFoundError: Nothing has that name, or several texts have it.
    """
    cited = text.strip().removeprefix("[").removesuffix("]").strip()
    citation = _CITED.fullmatch(cited)
    for name, lines in [(cited, ""), *([citation.groups()] if citation is not None else [])]:
        is_summary = name.rpartition("/")[2] == layout.SUMMARIES
        names = _summaries(sources, name, lines or "-1") if is_summary else _named(sources, name)
        if len(names) > 1:
            more = f" and {len(names) - _MAX_NAMED:,} more" if len(names) > _MAX_NAMED else ""
            hint = f"it may mean {', '.join(names[:_MAX_NAMED])}{more}; give one path"
            raise NotFoundError("single file", name, hint)
        if names:
            return Target(names[0], ALL_LINES if is_summary or not lines else _ranges(sources, names[0], lines))
    known = (name.rpartition("/")[2] for directory in sources.directories for name in sources.names(directory))
    near = _near((citation[1] if citation else cited).rpartition("/")[2], list(islice(known, _MAX_COMPARED)))
    hint = f"near are {', '.join(near)}" if near else "nothing was archived or offloaded yet"
    raise NotFoundError("file", text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}...", hint)


def directory_at(sources: Sources, text: str) -> str | None:
    """Return the directory of a session that *text* names; "" for the workdir or ``sessions``; else None."""
    path = text.strip().rstrip("/")
    if path in {"", ".", *sources.roots} or f"/{path}".endswith(f"/{layout.SESSIONS}"):
        return sources.directories[0] if sources.session_id is not None else ""
    found = _NAMED_DIRECTORY.fullmatch(path)
    return found[1] if found is not None and found[1] in sources.directories else None


def places(sources: Sources, path: str | Sequence[str] | None, *, newest_first: bool = False) -> list[Target]:
    """Return what to search: everything, or the files, citations, directories and name patterns in *path*.

    A session's transcript comes before its results; with *newest_first*, later results and sessions come first.

    Raises:
        NotFoundError: There is no such file, or no name matches a pattern.
    """
    paths = [path] if isinstance(path, str) else ["."] if path is None else list(path)
    found: dict[str, Ranges] = {}
    for each in paths:
        names = _listed(sources, each, newest_first=newest_first)
        for name, ranges in [(name, ALL_LINES) for name in names] or [resolve(sources, each)]:
            found[name] = merged([*found.get(name, ()), *ranges])
    return [Target(name, ranges) for name, ranges in found.items()]


def _listed(sources: Sources, path: str, *, newest_first: bool) -> list[str]:
    """Return the texts in a directory, or those whose names match a pattern; none if *path* is neither."""
    parent, _, pattern = path.strip().rpartition("/") if _WILDCARDS & set(path) else (path, "", "*")
    place = _NAMED_DIRECTORY.fullmatch(parent) if pattern != "*" else None
    directory = directory_at(sources, parent) if place is None else ""
    if directory is None or len(pattern) > _MAX_PATTERN_CHARS:  # 500,000 wildcards would take 16 s
        return []
    wanted = directory or (place[1] if place is not None else "*")
    directories = [each for each in sources.directories if fnmatch.fnmatchcase(each, wanted)]
    found: list[str] = []
    for each in reversed(directories) if newest_first else directories:
        names = sources.names(each)
        backwards = names[::-1]
        found += sorted(backwards, key=_age) if newest_first else names
    found += sources.blobs() if directories == sources.directories else []
    return [name for name in dict.fromkeys(found) if fnmatch.fnmatchcase(name.rpartition("/")[2], pattern)]


def _age(name: str) -> int:
    file = name.rpartition("/")[2]
    return [IN_CONTEXT, layout.TRANSCRIPT, file].index(file)


def _named(sources: Sources, name: str) -> list[str]:
    """Return the texts that *name* may mean: a path, of which the end counts, a plain name, or the id of a call."""
    place = _PLACE.fullmatch(name)
    directory, file = place.groups() if place is not None else ("", name)
    blob = f"{layout.DATA}/{file}"
    if layout.blob_behind(layout.reference_to(blob)) and directory in {"", layout.DATA}:
        return [blob] if sources.size(blob) is not None else []
    if directory in sources.directories and ".." not in name.split("/"):
        return sources.named(directory, file)
    found = [each for one in sources.directories for each in sources.named(one, name)]
    return found or [each for one in sources.directories for each in sources.results_of(one, name)]


def _summaries(sources: Sources, name: str, number: str) -> list[str]:
    place = _PLACE.fullmatch(name)
    wanted = [one for one in sources.directories if place is None or place[1] == one]
    found = (sources.summary(one, int(number)) for one in wanted if number.removeprefix("-").isdecimal())
    return [name for name in found if name is not None]


def _ranges(sources: Sources, name: str, lines: str) -> Ranges:
    if lines.startswith("-"):
        return ((max(count_lines(sources.blocks(name)) + int(lines) + 1, 1), sys.maxsize),)
    ends = [span.partition("-") for span in lines.split(",")]
    return merged((int(first), int(last or first)) for first, _, last in ends)


def _near(name: str, known: Sequence[str]) -> list[str]:
    wanted = name[:_MAX_SHOWN_CHARS].lower()
    holding = (each for each in known if wanted and wanted in each.lower())
    alike = difflib.get_close_matches(name[:_MAX_SHOWN_CHARS], known, _MAX_NAMED - 1, 0.4)
    return list(dict.fromkeys(chain(islice(holding, _MAX_NAMED - 1), alike, known[:1])))[: _MAX_NAMED - 1]
