"""What a name means that is no path: a plain file name, the id of a call, or the unique beginning of one.

Names come from models. They are compared with the names of files and with the ids in journals, and never opened, so
an id such as ``../x`` leads nowhere but to the result that was stored under it.
"""

import difflib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from buoyline.errors import CorruptError, MessageError, NotFoundError
from buoyline.lookups.places import Files
from buoyline.messages import is_object, parse
from buoyline.workspace import layout

LEAST_BEGINNING_CHARS = 4
"""A shorter beginning of an id is too likely to be a slip."""

MAX_NEAR = 3
"""How many names an error suggests at most; a session may have thousands of results."""

_RESULT_PREFIX = "tool_result-"
_MAX_COMPARED = 5_000
_MAX_COMPARED_CHARS = 200


def spellings(text: str) -> list[str]:
    """Return *text* as it was given, and as a citation says it: without blanks, ``[`` and ``]`` around it."""
    cited = text.strip().removeprefix("[").removesuffix("]").strip()
    return [text] if cited in {text, ""} else [text, cited]


def directory_of(workspace: Files, session: str) -> str:
    """Return the directory of *session*, relative to the workdir.

    Raises:
        InvalidNameError: It cannot be the id of a session.
        NotFoundError: There is no such session.
    """
    try:
        return workspace.session(session).directory
    except NotFoundError as error:
        raise NotFoundError("session", session, "nothing has left the context in it yet") from error


def directories_of(workspace: Files, session: str | None) -> list[str]:
    """Return the directory of *session*, or of all where it is None. Raises as `directory_of`."""
    if session is not None:
        return [directory_of(workspace, session)]
    names = workspace.tree.names(layout.SESSIONS)
    directories = [f"{layout.SESSIONS}/{name}" for name in names if not name.startswith(".")]
    return [directory for directory in directories if workspace.tree.is_directory(directory)]


def files_meant(workspace: Files, name: str, session: str | None) -> list[str]:
    """Return the files that *name* may mean, relative to the workdir; none if it means nothing.

    Those of that very name; else the results of the call with that id; else those of calls whose id begins so. An id
    may be spelled as the file of its result would be without a hash, ``tool_result-<id>.txt``. Of a result, its view
    comes if it has one, since its lines are those that stubs and citations count.

    Args:
        workspace: Where to look.
        name: Without ``:120-135``.
        session: The only session to look in; None for all.
    """
    listed = {directory: workspace.tree.names(directory) for directory in directories_of(workspace, session)}
    same = [f"{directory}/{name}" for directory, names in listed.items() if name in names and name[0] != "."]
    if same or not name:
        return same
    ids = {name, name.removeprefix(_RESULT_PREFIX).removesuffix(".txt").removesuffix(".view")} - {""}
    calls = [
        (call_id, f"{directory}/{file}")
        for directory, names in listed.items()
        if any("~" in entry or entry.startswith(tuple(f"{_RESULT_PREFIX}{each}" for each in ids)) for entry in names)
        for call_id, file in _results_in(workspace, directory, names)
    ]
    exact = [file for call_id, file in calls if call_id in ids]
    beginnings = tuple(each for each in ids if len(each) >= LEAST_BEGINNING_CHARS)
    return [_readable(workspace, file) for file in exact or (f for call, f in calls if call.startswith(beginnings))]


def near(name: str, known: Iterable[str]) -> list[str]:
    """Return up to three of the *known* names that *name* may have meant, those that hold it first."""
    wanted = name.rpartition("/")[2].lower()
    if not 0 < len(wanted) <= _MAX_COMPARED_CHARS:
        return []
    lowered = {each.lower(): each for each in itertools.islice(known, _MAX_COMPARED)}
    holding = (lowered[each] for each in lowered if wanted in each)
    alike = (lowered[each] for each in difflib.get_close_matches(wanted, lowered, MAX_NEAR))
    return list(dict.fromkeys(itertools.chain(itertools.islice(holding, MAX_NEAR), alike)))[:MAX_NEAR]


def names_in(workspace: Files, session: str | None) -> Iterator[str]:
    """Yield the plain names of all files of *session*, or of all sessions, and the ids of their calls."""
    for directory in directories_of(workspace, session):
        names = [name for name in workspace.tree.names(directory) if not name.startswith(".")]
        yield from names
        yield from (call_id for call_id, _ in _results_in(workspace, directory, names) if call_id)


def shortened(name: str) -> str:
    """Return *name* for an error, which quotes no more than 200 characters of it."""
    return name if len(name) <= _MAX_COMPARED_CHARS else f"{name[:_MAX_COMPARED_CHARS]}..."


def records_of(workspace: Files, directory: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the journal's records of the tool results in *directory*, by file; none where it cannot be read."""
    session_id = _session_id_of(workspace, directory)
    if session_id is None:
        return {}
    try:
        return workspace.session(session_id).index().results
    except (CorruptError, NotFoundError):  # the files are there all the same
        return {}


def _session_id_of(workspace: Files, directory: str) -> str | None:
    name = f"{directory}/{layout.SESSION_FILE}"
    if workspace.tree.size(name) is None:
        return None
    try:
        found = parse(workspace.tree.read(name))
    except MessageError:
        return None
    session_id = found.get("id") if is_object(found) else None
    return session_id if isinstance(session_id, str) else None


def _results_in(workspace: Files, directory: str, names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield id and file of each tool result in *directory*, by the journal; what it does not know by its name."""
    records = records_of(workspace, directory)
    for file in filter(layout.is_result_name, names):
        record = records.get(file)
        if record is None:
            yield file.removeprefix(_RESULT_PREFIX).removesuffix(".txt").partition("~")[0], file
        else:
            yield str(record.get("call_id", "")), file


def _readable(workspace: Files, file: str) -> str:
    view = layout.view_name(file)
    return file if workspace.tree.size(view) is None else view
