"""Which call a line of a transcript or of a tool result belongs to.

The journal knows the lines of each message, and the message knows its calls and results. No text of a transcript is
trusted: a tool may print a line that looks like the heading of a call.
"""

import itertools
import json
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from buoyline.errors import BuoylineError, MessageError
from buoyline.lookups.answer import shown_path
from buoyline.lookups.sources import session_in
from buoyline.messages import Message, ToolCall, ToolResult
from buoyline.messages.jsonl import is_object, parse
from buoyline.messages.registry import dialect_named
from buoyline.workspace import ReadableWorkspace, StoredSession, layout
from buoyline.workspace.batches import rendered_parts

MAX_ARGUMENT_CHARS = 60
"""Of the argument that is shown; a call has about twenty tokens."""

_MAX_NAME_CHARS = 40
_MAX_MESSAGES_BACK = 200
_MAX_MENTIONS = 8
_OVERLAP_BYTES = 1_000
_RESULT_NAME = re.compile(rb"tool_result-[A-Za-z0-9][A-Za-z0-9._~-]{0,127}?\.txt")


class Owner(NamedTuple):
    """Whom a line belongs to: a call, or who speaks; the label is empty if it is not known.

    Two lines of one owner have equal keys, and only they.
    """

    key: object
    label: str
    is_call: bool = False


NOBODY = Owner(None, "")


def owner_row(owner: Owner) -> str:
    """Return the row of an answer that names a call above its lines; empty if *owner* is no call."""
    return f"@ {owner.label}\n" if owner.is_call else ""


class Calls:
    """The calls of the sessions in a workspace, by lines of their files."""

    def __init__(self, workspace: ReadableWorkspace) -> None:
        """Look in *workspace*; each session is read when a line of it is asked for."""
        self._workspace = workspace
        self._sessions: dict[str, _SessionCalls | None] = {}

    def owner(self, path: str, number: int) -> Owner:
        """Return whom line *number* of file *path*, relative to the workdir, belongs to; `NOBODY` if it is not known.

        Damage is for `verify` to report: a line without a known owner is still a line.
        """
        directory, _, file = path.rpartition("/")
        is_transcript = file == layout.TRANSCRIPT_FILE
        if not is_transcript and not layout.is_result_name(file) and not layout.is_view_name(file):
            return NOBODY
        try:
            if directory not in self._sessions:
                session = session_in(self._workspace, directory)
                self._sessions[directory] = None if session is None else _SessionCalls(session)
            calls = self._sessions[directory]
            if calls is None:
                return NOBODY
            if is_transcript:
                return calls.owner_of_line(number)
            return calls.owner_of_result(layout.result_behind(file) if layout.is_view_name(file) else file)
        except BuoylineError:
            return NOBODY


class _Place(NamedTuple):
    """Where an archived message is."""

    dialect: str
    time: str
    offset: int
    size_bytes: int
    line: int
    lines: int


class _SessionCalls:
    """The calls of one session. Whatever was read or found is kept."""

    def __init__(self, session: StoredSession) -> None:
        self._session = session
        self._index = session.index()
        self._batches = self._index.batches
        self._places: dict[int, Sequence[_Place]] = {}
        self._messages: dict[int, Message] = {}
        self._owners: dict[int, Sequence[tuple[int, Owner]]] = {}
        self._results: dict[str, Owner] = {}
        self._mentions: Mapping[str, Sequence[int]] | None = None

    def owner_of_line(self, line: int) -> Owner:
        number = self._number_at(line, "line", "line")
        if number < 0:
            return NOBODY
        if number not in self._owners:
            self._owners[number] = self._owners_in(number)
        offset = line - self._place(number).line
        return next((owner for end, owner in self._owners[number] if offset < end), NOBODY)

    def _owners_in(self, number: int) -> Sequence[tuple[int, Owner]]:
        """Return the owners of the lines of a message, each with the offset of the line after its last one."""
        message, place = self._message(number), self._place(number)
        groups = next(rendered_parts([message], number, [place.time], self._index))
        sizes = [len(lines) for lines in groups]
        if sum(sizes) != place.lines:  # another version has rendered it
            return []
        speaker = Owner(number, _with_time(message.role, place.time))
        parts: list[Owner] = []
        for part in message.parts:
            if isinstance(part, ToolCall):
                parts.append(self._owner_of(part, number))
            elif isinstance(part, ToolResult):
                parts.append(self._owner_of_call(part.call_id, part.name, number))
            else:
                parts.append(speaker)
        around = parts[0] if len(parts) == 1 and parts[0].is_call else speaker
        return list(zip(itertools.accumulate(sizes), [around, *parts, around], strict=True))

    def owner_of_result(self, file: str) -> Owner:
        if file not in self._results:
            self._results[file] = self._found_owner(file)
        return self._results[file]

    def _found_owner(self, file: str) -> Owner:
        record = self._index.results.get(file, {})
        call_id, tool = str(record.get("call_id", "")), str(record.get("tool", ""))
        if self._mentions is None:
            self._mentions = self._first_mentions()
        for number in self._mentions.get(file, ()):
            if any(result.call_id == call_id for result in self._message(number).results):
                return self._owner_of_call(call_id, tool, number)
        return Owner(file, _with_time(_named(tool), str(record.get("time", ""))), is_call=True) if tool else NOBODY

    def _first_mentions(self) -> Mapping[str, Sequence[int]]:
        """Return, for each result that the archive names, the first messages that name it; one of them has its stub."""
        mentions: dict[str, list[int]] = {}
        held, offset = b"", 0
        name = self._session.name(layout.CONTEXT_FILE)
        for chunk in self._session.files.chunks(name) if self._batches else ():
            held += chunk
            for match in _RESULT_NAME.finditer(held):
                file = match[0].decode("ascii")
                number = self._number_at(offset + match.start(), "byte_range.offset", "offset")
                numbers = mentions.setdefault(layout.result_behind(file) if layout.is_view_name(file) else file, [])
                if len(numbers) < _MAX_MENTIONS and number not in numbers:
                    numbers.append(number)
            cut = max(len(held) - _OVERLAP_BYTES, 0)
            held, offset = held[cut:], offset + cut
        return mentions

    def _owner_of_call(self, call_id: str, tool: str, number: int) -> Owner:
        """Return the call with the result *call_id* in message *number*, as far as it is archived."""
        for before in range(number, max(number - _MAX_MESSAGES_BACK, -1), -1):
            for call in reversed(self._message(before).calls):
                if call.call_id == call_id:
                    return self._owner_of(call, before)
        return Owner((number, call_id), _named(tool), is_call=True) if tool else NOBODY

    def _owner_of(self, call: ToolCall, number: int) -> Owner:
        label = f"{_named(call.name)} {telling_argument(call.arguments)}".rstrip()
        return Owner((number, call.call_id), _with_time(label, self._place(number).time), is_call=True)

    def _number_at(self, position: int, of_batch: str, of_place: str) -> int:
        """Return the number of the message at a line or an offset; -1 before the first one."""
        at = bisect_right(self._batches, position, key=attrgetter(of_batch)) - 1
        if at < 0:
            return -1
        return self._batches[at].first + bisect_right(self._places_in(at), position, key=attrgetter(of_place)) - 1

    def _place(self, number: int) -> _Place:
        """Return where message *number* is; raise MessageError if the record of its batch is damaged."""
        at = bisect_right(self._batches, number, key=attrgetter("first")) - 1
        places = self._places_in(at) if at >= 0 else ()
        if not places or number - self._batches[at].first >= len(places):
            raise MessageError("is in no batch of the journal", number)
        return places[number - self._batches[at].first]

    def _places_in(self, at: int) -> Sequence[_Place]:
        """Return the places of the messages in the batch at position *at*."""
        if at not in self._places:
            batch, places = self._batches[at], list[_Place]()
            offset, line = batch.byte_range.offset, batch.line
            sizes = batch.byte_range.sizes
            for dialect, time, size, lines in zip(batch.dialects, batch.times, sizes, batch.lines, strict=True):
                places.append(_Place(dialect, time, offset, size, line, lines))
                offset += size
                line += lines
            self._places[at] = places
        return self._places[at]

    def _message(self, number: int) -> Message:
        """Return an archived message; raise MessageError if it is not what was written."""
        if number not in self._messages:
            place = self._place(number)
            line = self._session.files.read(self._session.name(layout.CONTEXT_FILE), place.offset, place.size_bytes)
            value = parse(line)
            if not is_object(value):
                raise MessageError("is not an object", number)
            self._messages[number] = dialect_named(place.dialect).view(dict(value))
        return self._messages[number]


def telling_argument(arguments: str) -> str:
    """Return the first text among a call's *arguments*, shortened to one line: a command, a path, a query.

    A long path keeps its end, any other text its beginning.
    """
    try:
        found: Any = json.loads(arguments)
    except (ValueError, RecursionError):
        found = arguments
    values = found.values() if is_object(found) else [found]
    text = next((value for value in values if isinstance(value, str) and value.strip()), "")
    line = " ".join(text[: 10 * MAX_ARGUMENT_CHARS].split())
    if len(line) <= MAX_ARGUMENT_CHARS:
        return shown_path(line)
    is_path = "/" in line and " " not in line and len(text) < 10 * MAX_ARGUMENT_CHARS
    return shown_path(f"…{line[-MAX_ARGUMENT_CHARS:]}" if is_path else f"{line[:MAX_ARGUMENT_CHARS]}…")


def _named(tool: str) -> str:
    return shown_path(tool[:_MAX_NAME_CHARS])


def _with_time(label: str, time: str) -> str:
    """Add month, day, hour and minute of *time*, which is ISO 8601 or empty."""
    return f"{label} \u00b7 {time[5:10]} {time[11:16]}" if time else label
