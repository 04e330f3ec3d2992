"""What a reference to offloaded content means: one file of the workspace, and what is known of it.

References come from models, so they are taken in every form that a stub, a pointer or an answer shows, and lead to
nothing but what was offloaded: not to the agent's own files, the journal, or another session than the one allowed.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from buoyline.errors import CorruptError, InvalidNameError, MessageError, NotFoundError
from buoyline.lookups.answer import shown_path
from buoyline.lookups.paths import file_of
from buoyline.lookups.places import Files
from buoyline.messages import is_object, parse
from buoyline.workspace import layout
from buoyline.workspace.memory_files import MemoryFiles

MAX_LISTED = 10
"""How many references an error names at most; a session may have thousands of results."""

_EVICTED = "it was in memory, and evicted since nobody used it for too many turns; run the tool again"
_SHOWN_CHARS = 200
_PLACE = re.compile(r"(.+):([0-9]{1,15}):([0-9]{1,15})", re.DOTALL)
_MESSAGE_FILES = frozenset({layout.TRANSCRIPT_FILE, layout.CONTEXT_FILE})


@dataclass(frozen=True, slots=True)
class Target:
    """What a reference means.

    Attributes:
        name: File whose lines are counted, relative to the workdir: the view of a result where there is one, as in
            stubs and pointers.
        whole: File with the content itself, another one than `name` where there is a view.
        parts: What the journal says of a result's blocks, in the tool's order; empty where it says nothing.
        first: First line that is meant, 1-based.
        last: Last line, inclusive; `sys.maxsize` for the end.
        column: Character of line `first` to begin with, 1-based.
        is_narrowed: The reference itself names lines.
    """

    name: str
    whole: str
    parts: tuple[Mapping[str, Any], ...] = ()
    first: int = 1
    last: int = sys.maxsize
    column: int = 1
    is_narrowed: bool = False


def target_of(workspace: Files, reference: str, session: str | None = None) -> Target:
    """Find what *reference* means.

    Args:
        workspace: Where to look.
        reference: The path of a tool result or its view, of a transcript or archive, or of a file under ``data/``:
            absolute, relative to the workdir, or with *session* relative to the session; a
            ``workspace:///data/`` reference; or the id of a call, where it has one result. Behind a path,
            ``:120-135`` narrows to lines of it, and ``:120:1001`` begins at a column of that very file.
        session: The only session whose content may be had; None for all. What is under ``data/`` belongs to no
            session: who knows the hash has seen the reference.

    Raises:
        InvalidNameError: *reference* leads out of the workspace, or is no text.
        NotFoundError: There is no such content, or it is another session's; the error names those there are. Or an id
            has several results; the error names them.
        StorageError: It is no regular file.
    """
    if not isinstance(reference, str):
        raise InvalidNameError(reference, f"a reference must be text, not {type(reference).__name__}")
    named = reference.strip().removeprefix("memory://")  # whose files begin at /
    try:
        return _by_path(workspace, named, session)
    except (InvalidNameError, NotFoundError) as error:
        names = _results_of_call(workspace, named, session)
        if len(names) == 1:
            return _result(workspace, names[0])
        if not names and isinstance(error, InvalidNameError):
            raise
    if names:
        hint = f"this call has several results: {_listed(names)}"
        raise NotFoundError("single offloaded content", _shortened(named), hint)
    is_evicted = isinstance(workspace, MemoryFiles) and workspace.is_evicted(named.removeprefix("/"))
    hint = _EVICTED if is_evicted else _known(workspace, session)
    raise NotFoundError("offloaded content", _shortened(named), hint)


def _by_path(workspace: Files, reference: str, session: str | None) -> Target:
    place = _PLACE.fullmatch(reference)
    if place is not None:
        try:
            extent = file_of(workspace, place[1], session)
        except NotFoundError:
            place = None
        else:
            _require_offloaded(workspace, extent.name, session)
            first, column = max(int(place[2]), 1), max(int(place[3]), 1)
            return Target(extent.name, extent.name, first=first, column=column, is_narrowed=True)
    extent = file_of(workspace, reference, session)
    _require_offloaded(workspace, extent.name, session)
    found = _file(workspace, extent.name)
    if (extent.first, extent.last) == (1, sys.maxsize):
        return found
    return Target(found.name, found.whole, found.parts, extent.first, extent.last, is_narrowed=True)


def _file(workspace: Files, name: str) -> Target:
    directory, _, file = name.rpartition("/")
    if layout.is_view_name(file):
        result = f"{directory}/{layout.result_behind(file)}"
        # A view whose result is gone still says what it says.
        return Target(name, name) if workspace.tree.size(result) is None else _result(workspace, result)
    return _result(workspace, name) if layout.is_result_name(file) else Target(name, name)


def _result(workspace: Files, name: str) -> Target:
    directory, _, file = name.rpartition("/")
    view = f"{directory}/{layout.view_name(file)}"
    shown = name if workspace.tree.size(view) is None else view
    return Target(shown, name, _parts(workspace, directory, file))


def _parts(workspace: Files, directory: str, file: str) -> tuple[Mapping[str, Any], ...]:
    """Return what the journal says of the parts of a result; nothing where it says nothing, or cannot be read."""
    session_id = _session_id(workspace, directory)
    if session_id is None:
        return ()
    try:
        record = workspace.session(session_id).index().find_result(file)
    except (CorruptError, NotFoundError):  # the text is there all the same
        return ()
    return () if record is None else tuple(part for part in record.get("parts", ()) if is_object(part))


def _session_id(workspace: Files, directory: str) -> str | None:
    name = f"{directory}/{layout.SESSION_FILE}"
    if workspace.tree.size(name) is None:
        return None
    try:
        found = parse(workspace.tree.read(name))
    except MessageError:
        return None
    session_id = found.get("id") if is_object(found) else None
    return session_id if isinstance(session_id, str) else None


def _require_offloaded(workspace: Files, name: str, session: str | None) -> None:
    """Refuse what was not offloaded, or by another session.

    Raises:
        NotFoundError: *name* is such a file.
    """
    directory, _, file = name.rpartition("/")
    if layout.digest_in(name) is not None:
        return
    is_ours = layout.is_result_name(file) or layout.is_view_name(file) or file in _MESSAGE_FILES
    above, _, _ = directory.rpartition("/")
    if not is_ours or above != layout.SESSIONS:
        raise NotFoundError("offloaded content", name)
    if session is not None and workspace.session(session).directory != directory:
        raise NotFoundError("offloaded content", name)


def _results_of_call(workspace: Files, call_id: str, session: str | None) -> list[str]:
    """Return the names of all results of a call, the first one first within its session."""
    first = layout.tool_result_name(call_id)
    variant = re.compile(re.escape(first.removesuffix(".txt")) + r"~[a-z2-7]{16}\.txt")
    return [
        f"{directory}/{file}"
        for directory in _directories(workspace, session)
        for file in workspace.tree.names(directory)
        if file == first or variant.fullmatch(file)
    ]


def _directories(workspace: Files, session: str | None) -> list[str]:
    if session is not None:
        return [workspace.session(session).directory]
    names = workspace.tree.names(layout.SESSIONS)
    directories = [f"{layout.SESSIONS}/{name}" for name in names if not name.startswith(".")]
    return [directory for directory in directories if workspace.tree.is_directory(directory)]


def _known(workspace: Files, session: str | None) -> str:
    """Say which references there are."""
    names = list(_offloaded(workspace, session))
    if not names:
        return "nothing was offloaded yet" if session is None else "nothing was offloaded in this session yet"
    return f"there are: {_listed(names)}"


def _offloaded(workspace: Files, session: str | None) -> Iterator[str]:
    for directory in _directories(workspace, session):
        files = workspace.tree.names(directory)
        yield from (f"{directory}/{file}" for file in files if layout.is_result_name(file))
        transcript = f"{directory}/{layout.TRANSCRIPT_FILE}"
        if workspace.tree.size(transcript):
            yield transcript


def _listed(names: list[str]) -> str:
    listed = ", ".join(map(shown_path, names[:MAX_LISTED]))
    more = len(names) - MAX_LISTED
    return listed if more <= 0 else f"{listed} and {more:,} more"


def _shortened(reference: str) -> str:
    return reference if len(reference) <= _SHOWN_CHARS else f"{reference[:_SHOWN_CHARS]}..."
