"""Which tool result a reference means that a storage has given: a path, a bare file name, or one without extension."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from buoyline.errors import InvalidNameError, MessageError, NotFoundError, StorageError
from buoyline.lookups.places import files_of
from buoyline.messages import is_object, parse
from buoyline.workspace import LocalWorkspace, MemoryWorkspace, layout
from buoyline.workspace.journal import Record


class Located(NamedTuple):
    """A stored result, or a medium in it.

    Attributes:
        session_id: The session that stored it.
        name: Of the result's file, within the session.
        blob: Of the medium's file, relative to the workdir; empty for the result itself.
    """

    session_id: str
    name: str
    blob: str = ""


def session_in(workspace: LocalWorkspace | MemoryWorkspace, directory: str) -> str | None:
    """Return the id of the session whose files are in *directory*; None if there is none. Blocking."""
    try:
        found = parse(files_of(workspace).tree.read(f"{directory}/{layout.SESSION_FILE}"))
    except (InvalidNameError, MessageError, NotFoundError, StorageError):
        return None
    session_id = found.get("id") if is_object(found) else None
    return session_id if isinstance(session_id, str) else None


def relative_to(reference: str, root: str | None, workspace: LocalWorkspace) -> str | None:
    """Return *reference* relative to the workdir, a bare name as it is; None where it leads elsewhere.

    Args:
        reference: Absolute, or relative to where the process was started, or a bare name.
        root: What relative references of the storage begin with; None where they are absolute.
        workspace: The workspace.
    """
    if root is not None and reference.startswith(f"{root}/"):
        return _checked(reference[len(root) + 1 :])
    if _checked(reference) is None or "/" not in reference:
        return _checked(reference)
    path = Path(reference).absolute()
    for workdir in (workspace.workdir, Path(os.path.realpath(workspace.workdir))):
        if path.is_relative_to(workdir):
            return path.relative_to(workdir).as_posix()
    return None if Path(reference).is_absolute() else reference


def held_result(
    workspace: MemoryWorkspace, reference: str, session_id: str, *, is_confined: bool = True
) -> Located | None:
    """Return the result in memory that *reference* spells, a path or a bare name; None where it spells none of ours.

    Args:
        workspace: The workspace.
        reference: A path or a bare name.
        session_id: The session that a bare name is looked for in.
        is_confined: Whether a path of another session is none of ours.
    """
    directory, _, name = reference.removeprefix("memory:///").rpartition("/")
    if not layout.is_result_name(name):
        return None
    owner = session_in(workspace, directory) if directory else session_id
    return None if owner is None or (is_confined and owner != session_id) else Located(owner, name)


def result_anywhere(workspace: LocalWorkspace, named: str) -> Located | None:
    """Return what *named*, relative to the workdir, leads to in any session. Blocking.

    A bare name that several sessions have means none of them. Of a blob any session knows the type, and all are asked.

    Raises:
        CorruptError: A session's journal is gone.
    """
    directory = named.rpartition("/")[0]
    if directory.startswith(f"{layout.SESSIONS}/"):
        owner = session_in(workspace, directory)
        return None if owner is None else result_named(workspace, owner, named)
    found = [place for each in workspace.session_ids() if (place := result_named(workspace, each, named)) is not None]
    return found[0] if len({place.blob or place for place in found}) == 1 else None


def result_named(workspace: LocalWorkspace, session_id: str, named: str) -> Located | None:
    """Return what *named*, relative to the workdir, leads to among the results of a session; the newest. Blocking.

    Raises:
        CorruptError: The session's journal is gone.
    """
    try:
        session = workspace.session(session_id)
    except NotFoundError:
        return None
    results = session.index().results
    found = (place for name, record in reversed(results.items()) for place in _places(session_id, name, record))
    return next((place for place in found if _is_named(place.blob or f"{session.directory}/{place.name}", named)), None)


def _is_named(path: str, named: str) -> bool:
    if "/" in named:
        return path == named
    name = PurePosixPath(path)
    return named in (name.name, name.stem)


def _places(session_id: str, name: str, record: Record) -> Iterator[Located]:
    yield Located(session_id, name)
    for part in record.get("parts", ()):
        if is_object(part) and isinstance(part.get("path"), str):
            yield Located(session_id, name, part["path"])


def _checked(named: str) -> str | None:
    return named if named and ".." not in named.split("/") and "\0" not in named else None
