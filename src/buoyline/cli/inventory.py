"""What there is of a session on disk, in numbers."""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from buoyline.errors import CorruptError, NotFoundError, StorageError
from buoyline.offloader.protocol import WindowState
from buoyline.workspace import LocalWorkspace, layout
from buoyline.workspace.logs import Window
from buoyline.workspace.session import Session

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Inventory:
    """The numbers of a session.

    Attributes:
        id: As the agent's framework gave it.
        directory: Relative to the workdir.
        created: ISO 8601 in UTC; empty when it is not known.
        messages: All of the session: archived, or still in the context.
        archived: Those that left the context.
        in_context: Messages in the context, with the summary and the copies before it; 0 without a window.
        has_summary: One of them is a summary.
        tool_results: Stored whole in files.
        summaries: One for each compression.
        bytes: Of all files in the directory.
        files: Name within the directory, and size in bytes; those in ``torn/`` too.
    """

    id: str
    directory: str
    created: str
    messages: int
    archived: int
    in_context: int
    has_summary: bool
    tool_results: int
    summaries: int
    bytes: int
    files: tuple[tuple[str, int], ...]


def of_each(
    workspace: LocalWorkspace, count: Callable[[Session], T], newest: int | None = None
) -> tuple[dict[str, T], list[str]]:
    """Count what each session has; one that cannot be counted does not keep the others from being shown.

    Args:
        workspace: With the sessions.
        count: Counts what one of them has.
        newest: Only so many sessions, those that were last active first; None for all, in the order of their names.

    Returns:
        What *count* gave, by session id, and in words what could not be counted and why.
    """
    counted: dict[str, T] = {}
    refusals: list[str] = []
    for session in workspace.sessions(newest):
        try:
            counted[session.session_id] = count(session)
        except (CorruptError, StorageError) as error:
            refusals.append(f"session {session.session_id!r} is left out: {error}; `buoyline verify` says more")
    return counted, refusals


def inventory_of(session: Session) -> Inventory:
    """Count what *session* has.

    Raises:
        NotFoundError: There is no such session.
        CorruptError: Its window is not what was written, or its directory belongs to another session.
    """
    index = session.index()
    window = _window_of(session)
    behind = 0 if window is None else window.first + len(window.messages) - len(window.head)
    files = tuple(_files(session))
    return Inventory(
        id=session.session_id,
        directory=session.directory,
        created=session.created_at(),
        messages=max(index.messages, behind),
        archived=index.messages,
        in_context=0 if window is None else len(window.messages),
        has_summary=window is not None and "summary" in window.head,
        tool_results=len(index.results),
        summaries=len(index.summaries),
        bytes=sum(size for _, size in files),
        files=files,
    )


def _window_of(session: Session) -> WindowState | None:
    try:
        return Window(session).load()
    except NotFoundError:
        return None


def _files(session: Session) -> Iterator[tuple[str, int]]:
    """Yield name and size of each file; one listing costs a quarter of asking for each name."""
    entries = session.tree.entries(session.directory)
    yield from _sizes(entries)
    if layout.TORN in entries and stat.S_ISDIR(entries[layout.TORN].st_mode):
        torn = session.tree.entries(session.name(layout.TORN))
        yield from ((f"{layout.TORN}/{name}", size) for name, size in _sizes(torn))


def _sizes(entries: Mapping[str, os.stat_result]) -> Iterator[tuple[str, int]]:
    for name, status in entries.items():
        if stat.S_ISREG(status.st_mode) and not name.startswith(layout.TEMPORARY_PREFIX):
            yield name, status.st_size
