"""What there is of a session on disk, in numbers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from buoyline.errors import CorruptError, MessageError, NotFoundError, StorageError
from buoyline.messages import parse
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
        in_context: Messages in the context, with the summary and copies at its head; 0 without a window.
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
    tool_results: int
    summaries: int
    bytes: int
    files: tuple[tuple[str, int], ...]


def of_each(workspace: LocalWorkspace, count: Callable[[Session], T]) -> tuple[dict[str, T], list[str]]:
    """Count what each session has; one that cannot be counted does not keep the others from being shown.

    Returns:
        What *count* gave, by session id, and in words what could not be counted and why.
    """
    counted: dict[str, T] = {}
    refusals: list[str] = []
    for session_id in workspace.session_ids():
        try:
            counted[session_id] = count(workspace.session(session_id))
        except (CorruptError, StorageError) as error:
            refusals.append(f"session {session_id!r} is left out: {error}; `buoyline verify` says more")
    return counted, refusals


def inventory_of(session: Session) -> Inventory:
    """Count what *session* has.

    Raises:
        NotFoundError: There is no such session.
        CorruptError: Its window is not what was written, or its directory belongs to another session.
    """
    index = session.index()
    messages, in_context = _in_window(session, index.messages)
    files = tuple(_files(session))
    return Inventory(
        id=session.session_id,
        directory=session.directory,
        created=_created(session),
        messages=messages,
        archived=index.messages,
        in_context=in_context,
        tool_results=len(index.results),
        summaries=len(index.summaries),
        bytes=sum(size for _, size in files),
        files=files,
    )


def _in_window(session: Session, archived: int) -> tuple[int, int]:
    try:
        window = Window(session).load()
    except NotFoundError:
        return archived, 0
    return max(archived, window.first + len(window.messages) - len(window.head)), len(window.messages)


def _files(session: Session) -> Iterator[tuple[str, int]]:
    for name in session.tree.names(session.directory):
        size = session.tree.size(session.name(name))
        if size is not None:
            yield name, size
    torn = session.name(layout.TORN)
    for name in session.tree.names(torn) if session.tree.is_directory(torn) else ():
        yield f"{layout.TORN}/{name}", session.tree.size(f"{torn}/{name}") or 0


def _created(session: Session) -> str:
    try:
        return str(parse(session.tree.read(session.name(layout.SESSION_FILE)))["created_at"])
    except (MessageError, LookupError, TypeError):
        return ""
