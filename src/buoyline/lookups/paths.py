"""Paths, names, ids and citations, resolved to files of the workspace.

They come from models. Checks of their spelling here keep them within the workspace, and on disk `LocalTree` follows no
link. Names with a leading dot (locks, unfinished files) cannot be reached. Names and ids are compared with those of
files and journals and never opened, so an id such as ``../x`` leads only to the result that was stored under it.
"""

import difflib
import errno
import hashlib
import itertools
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from buoyline.errors import ConfigError, InvalidNameError, NotFoundError, StorageError
from buoyline.lookups.answer import shown_path
from buoyline.lookups.lines import count_lines
from buoyline.lookups.sources import (
    Texts,
    Unread,
    count_summaries,
    is_section,
    is_section_name,
    noting_unread,
    records_of,
)
from buoyline.workspace import Files, ReadableWorkspace, Status, layout

MAX_NEAR = 3
"""How many names an error suggests; a session may have thousands of results."""

PLACE = re.compile(r"(.+):([0-9]{1,15}):([0-9]{1,15})", re.DOTALL)
"""A file, a line and a column."""

_RESULT_PREFIX = "tool_result-"
_MAX_COMPARED = 5_000
_MAX_COMPARED_CHARS = 200


def spellings(text: str) -> list[str]:
    """Return *text* as given, and without the blanks and brackets of a citation."""
    cited = text.strip().removeprefix("[").removesuffix("]").strip()
    return [text] if cited in {text, ""} else [text, cited]


def directory_of(workspace: ReadableWorkspace, session: str) -> str:
    """Return the directory of *session*, relative to the workdir.

    Raises:
        InvalidNameError: It cannot be the id of a session.
        NotFoundError: There is no such session.
    """
    try:
        return workspace.session(session).directory
    except NotFoundError as error:
        raise NotFoundError("session", session, "nothing was archived or offloaded in it yet") from error


def directories_of(workspace: ReadableWorkspace, session: str | None) -> list[str]:
    """Return the directory of *session*, or those of all sessions if it is None. Raises as `directory_of`."""
    if session is not None:
        return [directory_of(workspace, session)]
    names = workspace.files.names(layout.SESSIONS)
    directories = [f"{layout.SESSIONS}/{name}" for name in names if not name.startswith(".")]
    return [directory for directory in directories if workspace.files.is_directory(directory)]


def files_named(workspace: ReadableWorkspace, name: str, session: str | None) -> list[str]:
    """Return the files that *name*, without ``:120-135``, may mean, relative to the workdir.

    These are the files and sections of that name; else the results of the call with that id. ``tool_result-<id>.txt``
    also counts as an id. A result with a view is represented by the view, whose lines stubs and citations count. Only
    *session* is looked in, unless it is None.
    """
    listed = {directory: workspace.files.names(directory) for directory in directories_of(workspace, session)}
    same = [f"{directory}/{name}" for directory, names in listed.items() if name in names and name[0] != "."]
    same += [f"{directory}/{name}" for directory in listed if is_section(workspace, f"{directory}/{name}")]
    if same or not name:
        return same
    ids = {name, name.removeprefix(_RESULT_PREFIX).removesuffix(".txt").removesuffix(".view")} - {""}
    found = [
        f"{directory}/{file}"
        for directory, names in listed.items()
        if any("~" in entry or entry.startswith(tuple(f"{_RESULT_PREFIX}{each}" for each in ids)) for entry in names)
        for call_id, file in _results_in(workspace, directory, names)
        if call_id in ids
    ]
    views = {file: layout.view_name(file) for file in found}
    return [file if workspace.files.size(views[file]) is None else views[file] for file in found]


def _results_in(workspace: ReadableWorkspace, directory: str, names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield id and file of each tool result in *directory*: by the journal, else by the file's name."""
    records = records_of(workspace, directory)
    for file in filter(layout.is_result_name, names):
        record = records.get(file)
        if record is None:
            yield file.removeprefix(_RESULT_PREFIX).removesuffix(".txt").partition("~")[0], file
        else:
            yield str(record.get("call_id", "")), file


def near(name: str, known: Iterable[str]) -> list[str]:
    """Return up to three of the *known* names that *name* may have meant; those that contain it come first."""
    wanted = name.rpartition("/")[2].lower()
    if not 0 < len(wanted) <= _MAX_COMPARED_CHARS:
        return []
    lowered = {each.lower(): each for each in itertools.islice(known, _MAX_COMPARED)}
    holding = (lowered[each] for each in lowered if wanted in each)
    alike = (lowered[each] for each in difflib.get_close_matches(wanted, lowered, MAX_NEAR))
    return list(dict.fromkeys(itertools.chain(itertools.islice(holding, MAX_NEAR), alike)))[:MAX_NEAR]


def names_in(workspace: ReadableWorkspace, session: str | None) -> Iterator[str]:
    """Yield the plain names of all files of *session*, or of all sessions, and the ids of their calls."""
    for directory in directories_of(workspace, session):
        names = [name for name in workspace.files.names(directory) if not name.startswith(".")]
        yield from names
        yield from (call_id for call_id, _ in _results_in(workspace, directory, names) if call_id)


def shortened(name: str) -> str:
    """Return at most 200 characters of *name*, for an error."""
    return name if len(name) <= _MAX_COMPARED_CHARS else f"{name[:_MAX_COMPARED_CHARS]}..."


_LINES = re.compile(r"[0-9]{1,15}(?:-[0-9]{1,15})?(?:,[0-9]{1,15}(?:-[0-9]{1,15})?){0,99}")
_FROM_END = re.compile(r"-([0-9]{1,15})(?:--([0-9]{1,15}))?")
_CITATION = re.compile(r"(.+?):([0-9,-]+)", re.DOTALL)
_MAX_LISTED = 4
_MAX_NAMED = 20
_SPAN = re.compile(r"([0-9]+)(?:-([0-9]+))?")


class FileLines(NamedTuple):
    """A file or directory, relative to the workdir, and the lines that a citation names; no name is the workdir.

    *ranges* has the first and last line of each cited range from *first* to *last*, in order; empty if all of these are
    meant. *is_from_end*: the citation counts from the end of the file.
    """

    name: str
    first: int = 1
    last: int = sys.maxsize
    ranges: tuple[tuple[int, int], ...] = ()
    is_from_end: bool = False

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """First and last line of each range."""
        return self.ranges or ((self.first, self.last),)

    def within(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the ranges of cited lines from *first* to *last*, in order and without overlap."""
        merged: list[tuple[int, int]] = []
        for cited_first, cited_last in self.spans:
            begin, end = max(cited_first, first), min(cited_last, last)
            if merged and begin <= merged[-1][1] + 1:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            elif begin <= end:
                merged.append((begin, end))
        return merged


def resolve_path(workspace: ReadableWorkspace, path: str, session: str | None = None) -> FileLines:
    """Find the file or directory, and the lines, that *path* means.

    *path* is absolute below the workdir, or relative to the directory of *session* or to the workdir, or a
    ``workspace:///data/`` reference, or the absolute path that a file of a session or a blob had before the workspace
    was moved. Else it is the plain name of a file, a section such as ``summary 3`` or ``summaries.jsonl:3``, or the id
    of a call. With *session* only its files and blobs can be reached. ``:120``, ``:120-135`` or ``:120-135,141`` after
    it cites these lines, ``:-60`` the last 60, and ``:-60--20`` these without the last 19. The brackets of a citation
    may be there.

    Raises:
        ConfigError: *path* cites something that cannot be lines.
        InvalidNameError: *path* leads out of the workspace or to a hidden file, or is not a path.
        NotFoundError: Nothing has that name, several files have it, or there is no such session.
        StorageError: It is neither a regular file nor a directory.
    """
    if not isinstance(path, str):
        raise InvalidNameError(path, f"a path must be text, not {type(path).__name__}")
    directory = "" if session is None else directory_of(workspace, session)
    refused: InvalidNameError | None = None
    for spelled in spellings(path):
        for name, lines in _readings(spelled):
            try:
                found = _existing(workspace, name, directory)
            except InvalidNameError as error:  # it may still be a citation or an id
                refused = refused or error
                continue
            if found is not None:
                return _cited(workspace, found, lines)
    for spelled in spellings(path):
        for name, lines in _readings(spelled):
            if found := _file_named(workspace, name, session):
                return _cited(workspace, found, lines)
    raise refused or _nothing(workspace, path, session)


def resolve_file(workspace: ReadableWorkspace, path: str, session: str | None = None) -> FileLines:
    """Find the file that *path* means. Raises as `resolve_path`.

    Raises:
        NotFoundError: It is a directory.
    """
    resolved = resolve_path(workspace, path, session)
    if not resolved.name or workspace.files.is_directory(resolved.name):
        names = [shown_path(name) for name in workspace.files.names(resolved.name) if not name.startswith(".")]
        more = f" and {len(names) - _MAX_NAMED:,} more" if len(names) > _MAX_NAMED else ""
        raise NotFoundError("file", path, f"it is a directory of {', '.join(names[:_MAX_NAMED]) or 'nothing'}{more}")
    return resolved


def entries_below(files: Files, directory: str, unread: Unread) -> Iterator[tuple[str, int | None]]:
    """Yield the name of each entry below *directory*, relative to the workdir, and its size; None for a directory.

    Hidden entries, links and pipes are left out. A directory comes before its content. *unread* gets the directories
    below *directory* that cannot be listed.
    """
    waiting = _children(files, directory)
    while waiting:
        name, status = waiting.pop()
        if stat.S_ISDIR(status.st_mode):
            yield name, None
            with noting_unread(name, unread):
                waiting += _children(files, name)
        elif stat.S_ISREG(status.st_mode):
            yield name, status.st_size


def _children(files: Files, directory: str) -> list[tuple[str, Status]]:
    """Return the visible entries of *directory*, the last one first; none if it was just removed."""
    above = f"{directory}/" if directory else ""
    try:
        entries = files.entries(directory)
    except StorageError as error:
        if error.errno == errno.ENOENT:
            return []
        raise
    return [(above + name, entries[name]) for name in reversed(list(entries)) if not name.startswith(".")]


def _readings(text: str) -> list[tuple[str, str]]:
    """Return *text* as a name without lines; and if it may be a citation, its name and its lines."""
    citation = _CITATION.fullmatch(text)
    return [(text, ""), *([(citation[1], citation[2])] if citation else [])]


def _file_named(workspace: ReadableWorkspace, name: str, session: str | None) -> str | None:
    """Return the one file whose name or id is *name*; raise NotFoundError if it means several."""
    files = files_named(workspace, name, session)
    if len(files) > 1:
        listed = ", ".join(map(shown_path, files[:_MAX_LISTED]))
        more = f" and {len(files) - _MAX_LISTED:,} more" if len(files) > _MAX_LISTED else ""
        raise NotFoundError("single file", name, f"it may mean {listed}{more}; give one of these paths")
    return files[0] if files and _is_there(workspace, files[0]) else None


def _cited(workspace: ReadableWorkspace, name: str, lines: str) -> FileLines:
    """Return the *lines* of a citation, such as ``120-135,141`` or ``-60``, in the file *name*; all if there are none.

    A single line of ``summaries.jsonl`` is the section of that summary. Raises ConfigError for what cannot be lines.
    """
    if not lines:
        return FileLines(name)
    from_end = _FROM_END.fullmatch(lines)
    if from_end is not None:
        found = _from_end(workspace, name, int(from_end[1]), int(from_end[2] or 1))
    elif _LINES.fullmatch(lines):
        spans = sorted((int(first), int(last or first)) for first, last in _SPAN.findall(lines))
        ranges = tuple(spans) if len(spans) > 1 else ()
        found = FileLines(name, spans[0][0], max(last for _, last in spans), ranges)
    else:
        raise ConfigError("path", f"{lines!r} cannot be lines; give 120, 120-135, 120-135,141, or -60 for the last 60")
    directory, _, file = name.rpartition("/")
    section = f"{directory}/summary {found.first}"
    is_summary = file == layout.SUMMARIES_FILE and found.first == found.last and is_section(workspace, section)
    return FileLines(section) if is_summary else found


def _from_end(workspace: ReadableWorkspace, name: str, first: int, last: int) -> FileLines:
    """Return the lines from the *first* to the *last* one of file *name*, both counted from its end."""
    if not first >= last >= 1:
        raise ConfigError("path", f"-{first}--{last} cannot be lines; -60--20 are the last 60 without the last 19")
    texts = Texts(workspace)
    if texts.size(name) is None:  # a directory
        return FileLines(name)
    total = count_lines(texts.chunks(name))
    if last > max(total, 1):
        raise ConfigError("path", f"{shown_path(name)} has {total:,} lines; -{last} is before the first one")
    return FileLines(name, max(total - first + 1, 1), max(total - last + 1, 1), is_from_end=True)


def _nothing(workspace: ReadableWorkspace, path: str, session: str | None) -> NotFoundError:
    *_, (named, _) = _readings(path)
    if is_section_name(named.rpartition("/")[2]):
        counts = [count_summaries(workspace, directory) for directory in directories_of(workspace, session)]
        count = max(counts, default=0)
        return NotFoundError(
            "section", shortened(path), f"the session has {count:,} summar{'y' if count == 1 else 'ies'}"
        )
    own = [] if session is not None else [name for name in workspace.files.names("") if not name.startswith(".")]
    names = near(named, [*own, *names_in(workspace, session)])
    nearest = f"; near are {', '.join(map(shown_path, names))}" if names else ""
    place = f"session {session!r}" if session is not None else f"{shown_path(workspace.roots[0])} and its sessions"
    return NotFoundError("file", shortened(path), f"looked in {place}{nearest}; links are not followed")


def _existing(workspace: ReadableWorkspace, path: str, directory: str) -> str | None:
    """Return the name of the file or directory at *path*, of the session in *directory* if that is given, or None."""
    parts = _parts(path)
    is_outside = parts.is_absolute() and not any(parts.is_relative_to(root) for root in workspace.roots)
    names = _names_elsewhere(parts) if is_outside else _names(workspace, path, directory)
    if directory:
        names = [name for name in names if f"{name}/".startswith(f"{directory}/") or layout.digest_in(name) is not None]
    found = next((name for name in names if _is_there(workspace, name)), None)
    if is_outside and found is None:
        raise InvalidNameError(path, f"lies outside the workspace {workspace.roots[0]}")
    return found


def _names(workspace: ReadableWorkspace, path: str, directory: str) -> list[str]:
    """Return the names that *path* may mean, best first."""
    relative, is_absolute = _relative(workspace, path)
    names = [relative] if is_absolute or not directory else [f"{directory}/{relative}".rstrip("/"), relative]
    blob = f"{layout.DATA}/{relative}"
    return [*names, *([blob] if layout.digest_in(blob) is not None else [])]


def _names_elsewhere(parts: PurePosixPath) -> list[str]:
    """Return the name of a file that the workspace had under another path, before it was moved or shown elsewhere.

    Only files of a session and blobs have one: any path may end like that of another file.
    """
    blob = f"{parts.parent.name}/{parts.name}"
    if ".." in parts.parts:
        return []
    if layout.digest_in(blob) is not None:
        return [blob]
    is_of_session = parts.parent.parent.name == layout.SESSIONS and "/." not in f"/{blob}"
    return [f"{layout.SESSIONS}/{blob}"] if is_of_session else []


def _parts(path: str) -> PurePosixPath:
    try:
        is_spelled = bool(path) and "\0" not in path and bool(os.fsencode(path))
    except UnicodeEncodeError:
        is_spelled = False
    if not is_spelled:
        raise InvalidNameError(path, "a path must not be empty, or hold NUL or lone surrogates")
    return PurePosixPath(path)


def _relative(workspace: ReadableWorkspace, path: str) -> tuple[str, bool]:
    """Return *path*, which is not outside the workspace, relative to the workdir, and whether it was absolute."""
    blob = layout.blob_behind(path)
    if blob is not None:
        return blob, True
    parts = PurePosixPath(path)
    has_root = parts.is_absolute() or "://" in path
    inside = [parts.relative_to(root) for root in workspace.roots if parts.is_relative_to(root)] if has_root else []
    parts = inside[0] if inside else parts
    if ".." in parts.parts:
        raise InvalidNameError(path, "must not hold '..'; give it relative to the workdir")
    if any(part.startswith(".") for part in parts.parts):
        raise InvalidNameError(path, "is hidden; names with a leading dot are not for reading")
    return "" if parts == PurePosixPath() else str(parts), bool(inside)


def is_own(workspace: ReadableWorkspace, name: str) -> bool:
    """Return whether the file *name* belongs to the workspace: another hard link to it may lead outside.

    A file with several links passes if its content has the hash of its record or name, as in a copy of a workspace made
    of links.
    """
    files = workspace.files
    if not files.is_named_elsewhere(name):
        return True
    directory, _, file = name.rpartition("/")
    digest = layout.digest_in(name) or records_of(workspace, directory).get(file, {}).get("sha256")
    found = hashlib.sha256()
    for chunk in files.chunks(name) if digest else ():
        found.update(chunk)
    return digest == found.hexdigest()


def _is_there(workspace: ReadableWorkspace, name: str) -> bool:
    if not name:
        return True
    files = workspace.files
    try:
        status = files.status(name)
    except StorageError as error:
        if error.errno == errno.ENAMETOOLONG:
            return False
        raise
    if status is None:
        return is_section(workspace, name)
    if not stat.S_ISDIR(status.st_mode) and not stat.S_ISREG(status.st_mode):
        raise StorageError(errno.EINVAL, "is a link, a pipe or a device; only regular files are read", files.path(name))
    if not is_own(workspace, name):
        raise StorageError(errno.EMLINK, "has another name (a hard link); put a copy in its place", files.path(name))
    return True
