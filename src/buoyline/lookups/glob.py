"""`glob`: names of files in the workspace; and the files and lines that a search goes through."""

import fnmatch
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from buoyline.errors import ConfigError, CorruptError, NotFoundError
from buoyline.lookups.answer import (
    DATA_LABEL,
    Answer,
    AnswerBudget,
    Counter,
    Spelling,
    as_arguments,
    cut_row,
    reasons,
    shown_path,
    unread_row,
)
from buoyline.lookups.hits import LineRanges
from buoyline.lookups.paths import FileLines, directory_of, entries_below, is_own, resolve_path
from buoyline.lookups.sources import (
    Unread,
    created_at,
    noting_unread,
    records_of,
    repeated_after_removal,
    require_workspace,
)
from buoyline.messages.formats import is_text_type
from buoyline.messages.jsonl import is_object
from buoyline.workspace import Files, ReadableWorkspace, layout
from buoyline.workspace.content import OPAQUE, REFERENCE

MAX_PATTERN_CHARS = 1_000


@repeated_after_removal
def glob(
    workspace: ReadableWorkspace,
    pattern: str,
    *,
    after: str = "",
    session: str | None = None,
    confined: bool = False,
    max_tokens: int = 2_000,
    counter: Counter | None = None,
    spelling: Spelling = as_arguments,
) -> Answer:
    """List files and directories whose path matches a pattern, with their sizes.

    *pattern* is relative to the workdir, or with *session* to its directory, or absolute below it. ``*``, ``?`` and
    ``[...]`` match within a name, and ``**`` any number of directories. A pattern without ``/`` matches names at any
    depth. Hidden names, links and pipes are not listed, nor are paths up to *after*, as in an earlier answer. For the
    other arguments see `buoyline.lookups`; with *session* nothing else is listed, *confined* or not.

    Returns:
        Paths relative to the workdir in the order of names, each directory before its content.

    Raises:
        ConfigError: *workspace* is no workspace, *pattern* is empty, absolute or too long, or *max_tokens* is too
            small.
        NotFoundError: There is no such session.
        StorageError: A directory cannot be read.
    """
    require_workspace(workspace)
    wanted = _without_root(workspace, pattern)
    if not wanted or wanted.startswith("/") or len(pattern) > MAX_PATTERN_CHARS:
        raise ConfigError("pattern", f"must be relative to the workdir, of 1 to {MAX_PATTERN_CHARS:,} characters")
    del confined
    directory = "" if session is None else directory_of(workspace, session)
    unread: Unread = {}
    entries = list(_entries(workspace.files, directory, wanted, unread))
    left = [entry for entry in entries if _steps(entry.path) > _steps(after)] if after else entries
    page = _Page(len(entries), left, unread_row(unread, max_tokens), spelling)
    shown = AnswerBudget(max_tokens, counter).fill(left, page)
    following = page.following(shown)
    repeated = {"pattern": pattern, "session": session}
    return Answer(
        text=page.text(shown),
        paths=tuple(entry.path for entry in shown),
        total=len(entries),
        next={**repeated, **following} if following else {},
        unread=reasons(unread),
    )


def _without_root(workspace: ReadableWorkspace, pattern: str) -> str:
    return next((pattern[len(root) + 1 :] for root in workspace.roots if pattern.startswith(f"{root}/")), pattern)


def _steps(path: str) -> list[str]:
    return path.rstrip("/").split("/")


@dataclass(frozen=True, slots=True)
class _Entry:
    """A file, or a directory without a size and with a path that ends in ``/``; half of its path is no path."""

    path: str
    size_bytes: int | None = None
    content: str = ""

    def shortened(self, chars: int) -> Self:
        del chars
        return self


def _entries(files: Files, directory: str, pattern: str, unread: Unread) -> Iterator[_Entry]:
    """Yield what matches *pattern*, relative to *directory* or to the workdir; paths are relative to the workdir."""
    pattern = pattern.removeprefix(f"{directory}/") if directory else pattern
    parts = pattern.split("/") if "/" in pattern else ["**", pattern]
    outer = len(directory.split("/")) if directory else 0
    for name, size_bytes in entries_below(files, directory, unread):
        if _matches(name.split("/")[outer:], parts):
            yield _Entry(f"{name}/") if size_bytes is None else _Entry(name, size_bytes)


def _matches(names: Sequence[str], parts: Sequence[str]) -> bool:
    """Match in time of the product of both lengths: only the last ``**`` passed can still take one more name."""
    name = part = 0
    retried: tuple[int, int] | None = None
    while name < len(names) or part < len(parts):
        if part < len(parts) and parts[part] == "**":
            retried = name, part
            part += 1
        elif part < len(parts) and name < len(names) and fnmatch.fnmatchcase(names[name], parts[part]):
            name, part = name + 1, part + 1
        elif retried is not None and retried[0] < len(names):
            retried = retried[0] + 1, retried[1]
            name, part = retried[0], retried[1] + 1
        else:
            return False
    return True


@dataclass(frozen=True, slots=True)
class _Page:
    """The text of an answer that lists some of the entries *left*, out of *total*, with the row *unread*."""

    total: int
    left: Sequence[_Entry]
    unread: str
    spelling: Spelling

    def frame(self) -> str:
        longest = [max(self.left, key=lambda entry: len(entry.path))] if self.left else []
        return self._heading(self.left) + cut_row(self.following(longest), self.spelling)

    def row(self, entry: _Entry) -> str:
        size = "" if entry.size_bytes is None else f"  {entry.size_bytes:,} bytes"
        return f"{shown_path(entry.path)}{size}\n"

    def text(self, entries: Sequence[_Entry]) -> str:
        rows = "".join(map(self.row, entries))
        return self._heading(entries) + rows + cut_row(self.following(entries), self.spelling)

    def following(self, entries: Sequence[_Entry]) -> dict[str, Any]:
        return {"after": entries[-1].path} if entries and len(entries) < len(self.left) else {}

    def _heading(self, entries: Sequence[_Entry]) -> str:
        if not entries:
            return f"[No {'further ' if self.total else ''}path matches.]\n{self.unread}"
        first = self.total - len(self.left) + 1
        return f"[Paths {first}-{first + len(entries) - 1} of {self.total}. {DATA_LABEL}]\n{self.unread}"


MAX_PATHS = 100

_RESULT = "tool_result-"
_UNSEEN = frozenset({OPAQUE, REFERENCE})
_GLOB = frozenset("*?[")


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
    *,
    confined: bool = False,
) -> LineRanges:
    """Return which lines of which files to search, in the order of `rank_of`.

    *path* is a file, a citation, a directory, a glob, or several of these. None means transcripts and tool results of
    *session* or of all sessions, with those of their blobs in ``data/`` that are text. *unread* gets the directories
    that cannot be listed, below those that were asked for.

    Raises:
        ConfigError: More than 100 paths are given, or none.
        InvalidNameError: A path leads out of the workspace or to a hidden file.
        NotFoundError: There is no such file or session, or a glob matches nothing.
    """
    ranges: dict[str, list[tuple[int, int]]] = {}
    found = (
        map(FileLines, _readable(workspace, session, unread))
        if path is None
        else _given(workspace, path, session, unread, confined=confined)
    )
    for resolved in found:
        ranges.setdefault(resolved.name, []).extend(resolved.spans)
    return {name: ranges[name] for name in sorted(ranges, key=rank_of) if is_own(workspace, name)}


def _given(
    workspace: ReadableWorkspace, path: str | Sequence[str], session: str | None, unread: Unread, *, confined: bool
) -> Iterator[FileLines]:
    paths = [path] if isinstance(path, str) else list(path)
    if not 0 < len(paths) <= MAX_PATHS:
        raise ConfigError("path", f"{len(paths)} paths at once; give 1 to {MAX_PATHS}, a directory or a glob")
    files = workspace.files
    for each in paths:
        try:
            resolved = resolve_path(workspace, each, session, confined=confined)
        except NotFoundError:
            is_glob = bool(_GLOB & set(each))
            names = set(_files_matching(workspace, each, session, unread, confined=confined) if is_glob else ())
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


def _files_matching(
    workspace: ReadableWorkspace, pattern: str, session: str | None, unread: Unread, *, confined: bool
) -> list[str]:
    """Return the files that match *pattern* in the directory of *session*, else in the workdir unless *confined*."""
    own = [] if session is None else [directory_of(workspace, session)]
    if len(pattern) > MAX_PATTERN_CHARS:
        return []
    for directory in own if confined else [*own, ""]:
        entries = _entries(workspace.files, directory, _without_root(workspace, pattern), unread)
        if names := [entry.path for entry in entries if entry.size_bytes is not None]:
            return names
    return []


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
