"""Which tool result a reference means that a storage has given: a path, a bare file name, or one without extension."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from buoyline.errors import NotFoundError
from buoyline.messages import is_object
from buoyline.workspace import LocalWorkspace, layout
from buoyline.workspace.journal import Record


class Located(NamedTuple):
    """A stored result, or a medium in it.

    Attributes:
        name: Of the result's file, within the session.
        blob: Of the medium's file, relative to the workdir; empty for the result itself.
    """

    name: str
    blob: str = ""


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


def held_result(reference: str, session_id: str) -> Located | None:
    """Return the result in memory that *reference* spells, a path or a bare name; None where it spells none of ours."""
    directory, _, name = reference.removeprefix("memory:///").rpartition("/")
    if directory not in ("", layout.session_directory(session_id)) or not layout.is_result_name(name):
        return None
    return Located(name)


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
    found = (place for name, record in reversed(results.items()) for place in _places(name, record))
    return next((place for place in found if _is_named(place.blob or f"{session.directory}/{place.name}", named)), None)


def _is_named(path: str, named: str) -> bool:
    if "/" in named:
        return path == named
    name = PurePosixPath(path)
    return named in (name.name, name.stem)


def _places(name: str, record: Record) -> Iterator[Located]:
    yield Located(name)
    for part in record.get("parts", ()):
        if is_object(part) and isinstance(part.get("path"), str):
            yield Located(name, part["path"])


def _checked(named: str) -> str | None:
    return named if named and ".." not in named.split("/") and "\0" not in named else None
