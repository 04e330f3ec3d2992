"""Which lines of which files a search goes through, and in what order."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from buoyline.errors import ConfigError, CorruptError, NotFoundError
from buoyline.lookups.listing import files_matching
from buoyline.lookups.names import directory_of
from buoyline.lookups.paths import Extent, below, extent_of, is_own
from buoyline.messages import is_object
from buoyline.messages.formats import is_text_type
from buoyline.workspace import LocalWorkspace, layout
from buoyline.workspace._files import Tree
from buoyline.workspace.parts import OPAQUE, REFERENCE

MAX_PATHS = 100

Extents = Mapping[str, Sequence[tuple[int, int]]]
"""Ranges of lines by file, in the order of searching; a range is its first line and its last."""

_RESULT = "tool_result-"
_UNSEEN = frozenset({OPAQUE, REFERENCE})
_GLOB = frozenset("*?[")


class Rank(NamedTuple):
    """Where a hit is, in the order of searching: a session's transcript, its results, what is text in ``data/``."""

    is_data: bool
    directory: str
    is_other: bool
    path: str
    number: int
    column: int


def rank_of(path: str, number: int = 0, column: int = 0) -> Rank:
    """Return the rank of a place in the file *path*, which is relative to the workdir."""
    directory, _, name = path.rpartition("/")
    return Rank(directory == layout.DATA, directory, name != layout.TRANSCRIPT_FILE, path, number, column)


def searched(
    workspace: LocalWorkspace, path: str | Sequence[str] | None, session: str | None, *, confined: bool = False
) -> Extents:
    """Return what to search, in order.

    Args:
        workspace: Where to search.
        path: A file, a pointer, a directory, a glob, or several of these; None for transcripts and tool results,
            with what of these is text in ``data/``.
        session: The one session to search where *path* is None; else whose directory a relative path is looked
            for in first.
        confined: Whether nothing else is there but this directory, and what is in ``data/`` by its whole name.

    Raises:
        ConfigError: More than 100 paths are given, or none.
        InvalidNameError: A path leads out of the workspace, or to a hidden file.
        NotFoundError: There is no such file or session, or nothing that a glob matches.
    """
    ranges: dict[str, list[tuple[int, int]]] = {}
    found = (
        map(Extent, _readable(workspace, session))
        if path is None
        else _given(workspace, path, session, confined=confined)
    )
    for extent in found:
        ranges.setdefault(extent.name, []).extend(extent.spans)
    return {name: ranges[name] for name in sorted(ranges, key=rank_of) if is_own(workspace, name)}


def _given(
    workspace: LocalWorkspace, path: str | Sequence[str], session: str | None, *, confined: bool
) -> Iterator[Extent]:
    paths = [path] if isinstance(path, str) else list(path)
    if not 0 < len(paths) <= MAX_PATHS:
        raise ConfigError("path", f"{len(paths)} paths at once; give 1 to {MAX_PATHS}, a directory or a glob")
    for each in paths:
        try:
            extent = extent_of(workspace, each, session, confined=confined)
        except NotFoundError:
            names = set(files_matching(workspace, each, session, confined=confined) if _GLOB & set(each) else ())
            if not names:
                raise
            # Of a result with a view, the one that can be read: both say the same.
            yield from (Extent(name) for name in names if layout.view_name(name) not in names)
        else:
            yield from _files(workspace.tree, extent)


def _files(tree: Tree, extent: Extent) -> Iterator[Extent]:
    if extent.name and not tree.is_directory(extent.name):
        yield extent
    else:
        yield from (Extent(name) for name, is_directory in below(tree, extent.name) if not is_directory)


def _readable(workspace: LocalWorkspace, session: str | None) -> Iterator[str]:
    tree = workspace.tree
    kept = [f"{layout.SESSIONS}/{name}" for name in tree.names(layout.SESSIONS)]
    directories = kept if session is None else [directory_of(workspace, session)]
    for directory in directories:
        yield from _readable_files(tree, directory)
    yield from _text_data(tree) if session is None else _text_data_of(workspace, session)


def _text_data(tree: Tree) -> Iterator[str]:
    for name in tree.names(layout.DATA):
        path = f"{layout.DATA}/{name}"
        if layout.digest_in(path) is not None and is_text_type(layout.media_type_of(path)):
            yield path


def _text_data_of(workspace: LocalWorkspace, session: str) -> Iterator[str]:
    """Yield what of a session's results stands as text in ``data/``: JSON or tables that a tool gave as documents."""
    try:
        records = workspace.session(session).index().results.values()
    except CorruptError:
        return  # what can be found without the journal is found all the same
    for part in (part for record in records for part in record.get("parts", ()) if is_object(part)):
        path, is_text = str(part.get("path", "")), is_text_type(part.get("media_type", ""))
        is_document = layout.digest_in(path) is not None and part.get("kind") not in _UNSEEN
        if is_document and is_text and workspace.tree.size(path) is not None:
            yield path


def _readable_files(tree: Tree, directory: str) -> Iterator[str]:
    """Yield the transcript of a session, and its tool results: the view of one, where there is one."""
    names = set(tree.names(directory)) if tree.is_directory(directory) else set[str]()
    for name in names:
        is_result = name.startswith(_RESULT) and name.endswith(".txt") and layout.view_name(name) not in names
        if is_result or name == layout.TRANSCRIPT_FILE:
            yield f"{directory}/{name}"
