"""Which tool result a reference means that a storage has given: a path, a bare file name, or one without extension."""

import os
from pathlib import Path, PurePosixPath

from buoyline.errors import NotFoundError
from buoyline.messages import is_object
from buoyline.workspace import LocalWorkspace, layout
from buoyline.workspace.journal import Record


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


def named_result(reference: str, root: str, session_id: str) -> str | None:
    """Return the file name of the session's result that *reference*, a path below *root* or a bare name, spells."""
    directory, _, name = reference.removeprefix(root).rpartition("/")
    if directory not in ("", layout.session_directory(session_id)):
        return None
    return name if layout.is_result_name(name) else None


def result_named(workspace: LocalWorkspace, session_id: str, named: str) -> str | None:
    """Return the file name of the result of a session that *named*, relative to the workdir, leads to. Blocking.

    Raises:
        CorruptError: The session's journal is gone.
    """
    try:
        session = workspace.session(session_id)
    except NotFoundError:
        return None
    found = [
        name
        for name, record in session.index().results.items()
        for path in (f"{session.directory}/{name}", *_payloads(record))
        if _is_named(path, named)
    ]
    return found[-1] if found else None


def _is_named(path: str, named: str) -> bool:
    if "/" in named:
        return path == named
    name = PurePosixPath(path)
    return named in (name.name, name.stem)


def _payloads(record: Record) -> list[str]:
    parts = record.get("parts", ())
    return [part["path"] for part in parts if is_object(part) and isinstance(part.get("path"), str)]


def _checked(named: str) -> str | None:
    return named if named and ".." not in named.split("/") and "\0" not in named else None
