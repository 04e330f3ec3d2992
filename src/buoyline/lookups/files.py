"""The files and lines that a search goes through, and their order."""

import fnmatch
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from buoyline.errors import ConfigError, CorruptError, NotFoundError
from buoyline.lookups.hits import LineRanges
from buoyline.lookups.paths import FileLines, directory_of, entries_below, is_own, resolve_path
from buoyline.lookups.sources import Unread, created_at, noting_unread, records_of
from buoyline.messages.formats import is_text_type
from buoyline.messages.jsonl import is_object
from buoyline.workspace import Files, ReadableWorkspace, layout
from buoyline.workspace.content import OPAQUE, REFERENCE

MAX_PATHS = 100
MAX_PATTERN_CHARS = 1_000

_RESULT = "tool_result-"
_UNSEEN = frozenset({OPAQUE, REFERENCE})
_WILDCARDS = frozenset("*?[")


class Rank(NamedTuple):
    """The search order: a session's transcript, its results, then text in ``data/``."""

    is_data: bool
    directory: str
    is_other: bool
    path: str
    number: int
    column: int


def rank_of(path: str, number: int = 0, column: int = 0) -> Rank:
    """Return the rank of a place in the file *path*, relative to the workdir."""
    directory, _, name = path.rpartition("/")
    return Rank(directory == layout.DATA, directory, name != layout.TRANSCRIPT_FILE, path, number, column)


def files_to_search(
    workspace: ReadableWorkspace,
    path: str | Sequence[str] | None,
    session: str | None,
    unread: Unread,
) -> LineRanges:
    """Return which lines of which files to search, in the order of `rank_of`.

    *path* is a file, a citation, a directory, a pattern of names, or several of these. None means transcripts and tool
    results of *session* or of all sessions, with those of their blobs in ``data/`` that are text. *unread* gets the
    directories that cannot be listed, below those that were asked for.

    Raises:
        ConfigError: More than 100 paths are given, or none.
        InvalidNameError: A path leads out of the workspace or to a hidden file.
        NotFoundError: There is no such file or session, or a pattern matches nothing.
    """
    ranges: dict[str, list[tuple[int, int]]] = {}
    found = (
        map(FileLines, _readable(workspace, session, unread))
        if path is None
        else _given(workspace, path, session, unread)
    )
    for resolved in found:
        ranges.setdefault(resolved.name, []).extend(resolved.spans)
    return {name: ranges[name] for name in sorted(ranges, key=rank_of) if is_own(workspace, name)}


def _given(
    workspace: ReadableWorkspace, path: str | Sequence[str], session: str | None, unread: Unread
) -> Iterator[FileLines]:
    paths = [path] if isinstance(path, str) else list(path)
    if not 0 < len(paths) <= MAX_PATHS:
        raise ConfigError(
            "path",
            f"{len(paths)} paths at once; give 1 to {MAX_PATHS}, a directory or a pattern such as tool_result-*.txt",
        )
    files = workspace.files
    for each in paths:
        try:
            resolved = resolve_path(workspace, each, session)
        except NotFoundError:
            is_pattern = bool(_WILDCARDS & set(each))
            names = set(_files_matching(workspace, each, session, unread) if is_pattern else ())
            if not names:
                raise
            # Of a result with a view only the view, which can be read: both have the same content.
            yield from (FileLines(name) for name in names if layout.view_name(name) not in names)
        else:
            if resolved.name and not files.is_directory(resolved.name):
                yield resolved
                continue
            below = entries_below(files, resolved.name, unread)
            yield from (FileLines(name) for name, size_bytes in below if size_bytes is not None)


def _files_matching(workspace: ReadableWorkspace, pattern: str, session: str | None, unread: Unread) -> list[str]:
    """Return the files whose path matches *pattern*, or whose name does if it has no slash.

    They are in the directory of *session*, or anywhere without one. A ``*`` also matches slashes.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        return []
    directory = "" if session is None else directory_of(workspace, session)
    relative = next((pattern[len(root) + 1 :] for root in workspace.roots if pattern.startswith(f"{root}/")), pattern)
    wanted = relative.removeprefix("**/")

    def is_wanted(name: str) -> bool:
        names = (name, name.removeprefix(f"{directory}/")) if "/" in wanted else (name.rpartition("/")[2],)
        return any(fnmatch.fnmatchcase(each, wanted) for each in names)

    entries = entries_below(workspace.files, directory, unread)
    return [name for name, size_bytes in entries if size_bytes is not None and is_wanted(name)]


def _readable(workspace: ReadableWorkspace, session: str | None, unread: Unread) -> Iterator[str]:
    files = workspace.files
    if session is not None:
        yield from _transcript_and_results(files, directory_of(workspace, session))
        yield from _text_documents_of(workspace, session)
        return
    for name in files.names(layout.SESSIONS):
        directory = f"{layout.SESSIONS}/{name}"
        with noting_unread(directory, unread):
            yield from _transcript_and_results(files, directory)
    for name in files.names(layout.DATA):
        path = f"{layout.DATA}/{name}"
        if layout.digest_in(path) is not None and is_text_type(layout.media_type_of(path)):
            yield path


def _transcript_and_results(files: Files, directory: str) -> Iterator[str]:
    """Yield the transcript of a session and its tool results, or their views."""
    names = set(files.names(directory)) if files.is_directory(directory) else set[str]()
    for name in names:
        is_result = name.startswith(_RESULT) and name.endswith(".txt") and layout.view_name(name) not in names
        if is_result or name == layout.TRANSCRIPT_FILE:
            yield f"{directory}/{name}"


def _text_documents_of(workspace: ReadableWorkspace, session: str) -> Iterator[str]:
    """Yield the text in ``data/`` that a session's results hold: JSON or tables that a tool returned as documents."""
    try:
        records = workspace.session(session).index().results.values()
    except CorruptError:
        return  # the search goes on without the journal
    for part in (part for record in records for part in record.get("parts", ()) if is_object(part)):
        path, is_text = str(part.get("path", "")), is_text_type(part.get("media_type", ""))
        is_document = layout.digest_in(path) is not None and part.get("kind") not in _UNSEEN
        if is_document and is_text and workspace.files.size(path) is not None:
            yield path


def newest_first(workspace: ReadableWorkspace, ranges: LineRanges) -> LineRanges:
    """Return *ranges* with the newest files first, in an order that does not change while a session grows.

    The newest session comes first. Its transcript comes before its results, which follow from the last one on, since
    the transcript names the results. Other files come after those of sessions, and ``data/`` last.
    """
    directories = {name.rpartition("/")[0] for name in ranges}
    created = {directory: created_at(workspace, directory) for directory in directories}
    places = {directory: list(records_of(workspace, directory)) for directory in directories if created[directory]}
    numbers = {f"{directory}/{file}": n for directory, files in places.items() for n, file in enumerate(files, 1)}

    def rank(name: str) -> tuple[bool, str, str, bool, int, str]:
        directory, _, file = name.rpartition("/")
        number = numbers.get(f"{directory}/{layout.result_behind(file)}", numbers.get(name, 0))
        is_data = directory == layout.DATA
        return not is_data, created[directory], directory, file == layout.TRANSCRIPT_FILE, number, name

    return {name: ranges[name] for name in sorted(ranges, key=rank, reverse=True)}
