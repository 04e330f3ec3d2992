"""Watches a workspace: an event for each whole batch or record that any process appends.

It holds no lock and writes nothing. It remembers one offset for each of the two logs of a session; a log that got
shorter, since a failed write was cut back or a repair replaced it, is continued at its new end.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from watchfiles import awatch  # pyright: ignore[reportUnknownVariableType]  # one type is of trio, an extra

from buoyline.errors import StorageError
from buoyline.workspace import layout
from buoyline.workspace.disk import Disk
from buoyline.workspace.log import facts_in, value_in
from buoyline.workspace.session import session_id_in
from buoyline.workspace.workspace import Workspace

__all__ = [
    "MessagesAdded",
    "ResultStored",
    "SessionCreated",
    "SessionRemoved",
    "SummaryWritten",
    "WorkspaceEvent",
    "past_events",
    "watch",
]

POLL_S = 1.0
"""A look this often, even if the system sends no notices, as on network file systems."""

_DEBOUNCE_MS, _STEP_MS = 100, 50


@dataclass(frozen=True, slots=True)
class SessionCreated:
    """A session is there that was not. *time* is ISO 8601 in UTC, here and below."""

    session_id: str
    time: str


@dataclass(frozen=True, slots=True)
class SessionRemoved:
    """A session's directory is gone."""

    session_id: str
    time: str


@dataclass(frozen=True, slots=True)
class MessagesAdded:
    """A batch of messages is in the log.

    Attributes:
        first: Number of the first message, 0-based.
        end: The number after the last one.
    """

    session_id: str
    first: int
    end: int
    time: str


@dataclass(frozen=True, slots=True)
class ResultStored:
    """A whole tool result is in a file of its own.

    Attributes:
        name: Of its file within the session.
    """

    session_id: str
    name: str
    size_bytes: int
    time: str


@dataclass(frozen=True, slots=True)
class SummaryWritten:
    """The oldest messages of a context were compacted.

    Attributes:
        n: Number of the summary in ``summaries.jsonl``; None if a notice stands for the messages.
        archived: So many messages of the conversation are archived now.
    """

    session_id: str
    n: int | None
    archived: int
    time: str


WorkspaceEvent: TypeAlias = SessionCreated | MessagesAdded | ResultStored | SummaryWritten | SessionRemoved


async def watch(workspace: Workspace, session_id: str = "", *, last: int = 0) -> AsyncGenerator[WorkspaceEvent]:
    """Yield an event for whatever any process writes, until it is closed or cancelled.

    Args:
        workspace: It need not exist yet.
        session_id: Only this session; all by default.
        last: Begin with so many events of what is there already.
    """
    watcher = _Watcher(workspace.disk, session_id)
    for event in deque(await asyncio.to_thread(lambda: _by_time(watcher.look())), maxlen=last):
        yield event
    async for _ in _notices(workspace.disk):
        for event in await asyncio.to_thread(lambda: list(watcher.look())):
            yield event


def past_events(workspace: Workspace, session_id: str = "") -> list[WorkspaceEvent]:
    """Return the events of what is there, by time; of all sessions, or of one. Blocks."""
    return _by_time(_Watcher(workspace.disk, session_id).look())


def _by_time(events: Iterable[WorkspaceEvent]) -> list[WorkspaceEvent]:
    found, begun = list(events), dict[str, str]()
    for event in found:  # a message bears the time at which it was given, before its session is created
        begun[event.session_id] = min(begun.get(event.session_id, event.time), event.time)
    return sorted(found, key=lambda event: begun[event.session_id] if isinstance(event, SessionCreated) else event.time)


async def _notices(disk: Disk) -> AsyncGenerator[None]:
    """Yield at once, at each change below ``sessions/``, and every `POLL_S` seconds."""
    yield
    while disk.status(layout.SESSIONS) is None:
        await asyncio.sleep(POLL_S / 10)
        yield
    options: dict[str, Any] = {"debounce": _DEBOUNCE_MS, "step": _STEP_MS, "rust_timeout": int(POLL_S * 1000)}
    async for _ in awatch(disk.path(layout.SESSIONS), yield_on_timeout=True, ignore_permission_denied=True, **options):
        yield


class _Watcher:
    def __init__(self, disk: Disk, session_id: str) -> None:
        self._disk = disk
        self._only = layout.session_directory(session_id) if session_id else ""
        self._followed: dict[str, _Followed] = {}

    def look(self) -> Iterator[WorkspaceEvent]:
        """Yield what happened since the last look; at the first one, what is there."""
        there = {f"{layout.SESSIONS}/{name}" for name in self._disk.entries(layout.SESSIONS)}
        wanted = sorted(name for name in there if not self._only or name == self._only)
        for name in sorted(self._followed.keys() - set(wanted)):
            yield SessionRemoved(self._followed.pop(name).session_id, datetime.now(UTC).isoformat(timespec="seconds"))
        for name in wanted:
            if name not in self._followed:
                session_id = session_id_in(self._disk, name)
                if not session_id:
                    continue  # its first record is not written yet
                self._followed[name] = _Followed(self._disk, name, session_id)
            yield from self._followed[name].look()


class _Followed:
    def __init__(self, disk: Disk, directory: str, session_id: str) -> None:
        self._disk, self.session_id = disk, session_id
        self._offsets = {f"{directory}/{name}": 0 for name in (layout.STATE, layout.CONTEXT)}

    def look(self) -> Iterator[WorkspaceEvent]:
        with suppress(StorageError):  # it is being removed; the next look says so
            for name in self._offsets:
                size = self._size(name)
                self._offsets[name] = min(self._offsets[name], size)
                yield from self._batches(name, size)

    def _size(self, name: str) -> int:
        found = self._disk.status(name)
        return found.size if found else 0

    def _batches(self, name: str, size: int) -> Iterator[WorkspaceEvent]:
        """Yield the events of the whole batches after the offset, and move it after them."""
        offset, batch, rest = self._offsets[name], list[bytes](), b""
        for chunk in self._disk.chunks(name, offset) if size > offset else ():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                batch.append(line + b"\n")
                facts = facts_in(batch[-1])  # none if it is damaged, or of a torn write that is cut later
                if facts and facts["at"] == facts["of"] - 1:
                    offset += sum(map(len, batch))
                    for one in batch:
                        yield from self._events(name, one)
                    batch.clear()
                    self._offsets[name] = offset

    def _events(self, name: str, line: bytes) -> Iterator[WorkspaceEvent]:
        facts = facts_in(line)
        if facts is None:
            return
        time = facts.get("time", "")
        for files in facts.get("stored", {}).values():
            yield ResultStored(self.session_id, files[0][0], files[0][1], time)
        if name.endswith(layout.CONTEXT):
            if facts["at"] == facts["of"] - 1:
                yield MessagesAdded(self.session_id, facts["n"] + 1 - facts["of"], facts["n"] + 1, time)
            return
        record = value_in(line)
        match record["op"]:
            case "session":
                yield SessionCreated(self.session_id, time)
            case "result":
                for file in record.get("files", ())[:1]:
                    yield ResultStored(self.session_id, file[0], file[1], time)
            case "context" if record.get("left"):
                yield SummaryWritten(self.session_id, record["summary"], record["until"], time)
            case _:
                pass
