"""Which file of the workspace a path means, and no other.

Paths come from models. They stay within the workspace by their spelling here, and by `Tree`, which follows no
link, on disk. Names with a leading dot (locks, unfinished files) are nobody's business.
"""

import errno
import os
import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from buoyline.errors import InvalidNameError, NotFoundError, StorageError
from buoyline.lookups.places import Files, KeepsFiles
from buoyline.workspace import layout
from buoyline.workspace._files import Tree

_POINTER = re.compile(r"(.+?):([0-9]{1,15}(?:-[0-9]{1,15})?(?:,[0-9]{1,15}(?:-[0-9]{1,15})?){0,99})", re.DOTALL)
_SPAN = re.compile(r"([0-9]+)(?:-([0-9]+))?")


class Extent(NamedTuple):
    """What a path or pointer means.

    Attributes:
        name: The file or directory, relative to the workdir; empty for the workdir itself.
        first: First line, 1-based.
        last: Last line, inclusive.
        ranges: First and last lines of what is meant between these two, in order; empty where that is all of it.
    """

    name: str
    first: int = 1
    last: int = sys.maxsize
    ranges: tuple[tuple[int, int], ...] = ()

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """First and last line of each run of lines that is meant."""
        return self.ranges or ((self.first, self.last),)

    def holds(self, number: int) -> bool:
        """Tell whether line *number* is meant."""
        return any(first <= number <= last for first, last in self.spans)


def extent_of(workspace: Files, path: str, session: str | None = None, *, confined: bool = False) -> Extent:
    """Find what *path* means.

    Args:
        workspace: Where to look.
        path: Absolute below the workdir, or relative to it, or a ``workspace:///data/`` reference; with ``:120``,
            ``:120-135`` or ``:120-135,141`` behind it, it is a pointer to these lines.
        session: Whose directory a relative path is looked for in first, as the pointers in summaries need it.
        confined: Whether nothing else is there but this directory, and what is in ``data/`` by its whole name.

    Raises:
        InvalidNameError: *path* leads out of the workspace, to a hidden file, or is no path.
        NotFoundError: There is nothing of that name, or no such session.
        StorageError: It is neither a regular file nor a directory.
    """
    if not isinstance(path, str):
        raise InvalidNameError(path, f"a path must be text, not {type(path).__name__}")
    directory = "" if session is None else workspace.session(session).directory
    name = _existing(workspace, path, directory, confined=confined)
    if name is not None:
        return Extent(name)
    pointer = _POINTER.fullmatch(path)
    name = None if pointer is None else _existing(workspace, pointer[1], directory, confined=confined)
    if name is None or pointer is None:
        raise NotFoundError("file", path, "glob lists those there are; links are not followed")
    spans = sorted((int(first), int(last or first)) for first, last in _SPAN.findall(pointer[2]))
    ranges = tuple(spans) if len(spans) > 1 else ()
    return Extent(name, spans[0][0], max(last for _, last in spans), ranges)


def file_of(workspace: Files, path: str, session: str | None = None, *, confined: bool = False) -> Extent:
    """Find the file that *path* means; see `extent_of`, which says what is raised.

    Raises:
        NotFoundError: It is a directory.
    """
    extent = extent_of(workspace, path, session, confined=confined)
    if not extent.name or workspace.tree.is_directory(extent.name):
        raise NotFoundError("file", path, f"it is a directory; glob({posixpath.join(extent.name, '*')!r}) lists it")
    return extent


def below(tree: Tree, directory: str = "") -> Iterator[tuple[str, bool]]:
    """Yield all that is in *directory* and below it, without hidden entries, links and pipes.

    Yields:
        Name relative to the workdir, and whether it is a directory; in order of names, a directory before its
        content.
    """
    waiting = _children(tree, directory)
    while waiting:
        name = waiting.pop()
        if tree.is_directory(name):
            yield name, True
            waiting += _children(tree, name)
        elif tree.size(name) is not None:
            yield name, False


def _children(tree: Tree, directory: str) -> list[str]:
    """Return the visible entries of *directory*, the last one first."""
    above = f"{directory}/" if directory else ""
    return [above + entry for entry in reversed(tree.names(directory)) if not entry.startswith(".")]


def _existing(workspace: Files, path: str, directory: str, *, confined: bool) -> str | None:
    """Return the name of what is there under *path*, in the session's *directory* first; None if nothing is."""
    relative = _relative(workspace, path)
    is_absolute = path.startswith("/") or layout.blob_behind(path) is not None
    names = [relative] if is_absolute or not directory else [f"{directory}/{relative}".rstrip("/"), relative]
    if confined:
        names = [name for name in names if _is_within(name, directory) or layout.digest_in(name) is not None]
    return next((name for name in names if _is_there(workspace.tree, name)), None)


def _is_within(name: str, directory: str) -> bool:
    return name == directory or name.startswith(f"{directory}/")


def _relative(workspace: Files, path: str) -> str:
    blob = layout.blob_behind(path)
    if blob is not None:
        return blob
    if not path or "\0" in path or not _is_encodable(path):
        raise InvalidNameError(path, "a path must not be empty, or hold NUL or lone surrogates")
    parts = PurePosixPath(path)
    if parts.is_absolute():
        roots = (workspace.workdir, os.path.realpath(workspace.workdir))
        inside = [parts.relative_to(root) for root in roots if parts.is_relative_to(root)]
        if not inside:
            raise InvalidNameError(path, f"lies outside the workspace {workspace.workdir}")
        parts = inside[0]
    if ".." in parts.parts:
        raise InvalidNameError(path, "must not hold '..'; give it relative to the workdir")
    if any(part.startswith(".") for part in parts.parts):
        raise InvalidNameError(path, "is hidden; names with a leading dot are not for reading")
    return "" if parts == PurePosixPath() else str(parts)


def _is_there(tree: KeepsFiles, name: str) -> bool:
    if not name:
        return True
    try:
        is_known = tree.is_directory(name) or tree.size(name) is not None
        is_anything = tree.exists(name)
    except StorageError as error:
        if error.errno == errno.ENAMETOOLONG:
            return False
        raise
    if is_anything and not is_known:
        raise StorageError(errno.EINVAL, "is a link, a pipe or a device; only regular files are read", tree.path(name))
    return is_known


def _is_encodable(path: str) -> bool:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True
