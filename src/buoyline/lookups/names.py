"""Names as models write them, resolved to texts of sessions and to blobs.

Of a path only the end counts, so a workspace that was moved, or that an agent sees under another path, needs no rule of
its own. Nothing here is joined to a path that is opened: a name is compared with those that the workspace gave.
"""

import difflib
import fnmatch
import re
import sys
from collections.abc import Sequence
from itertools import chain, islice
from typing import NamedTuple

from buoyline.errors import NotFoundError
from buoyline.lookups.sources import IN_CONTEXT, Sources
from buoyline.lookups.text import Ranges, count_lines, merged
from buoyline.workspace import layout

ALL_LINES: Ranges = ((1, sys.maxsize),)

_SPAN = "[0-9]{1,15}(?:-[0-9]{1,15})?"
_CITED = re.compile(rf"(.+?):(-[0-9]{{1,15}}|{_SPAN}(?:,{_SPAN}){{0,99}})", re.DOTALL)
_PLACE = re.compile(rf"(?:.*/)?({layout.SESSIONS}/[^/]+|{layout.DATA})/([^/]+)", re.DOTALL)
_DIRECTORY = re.compile(rf"(?:.*/)?({layout.SESSIONS}/[^/]+)", re.DOTALL)
_WILDCARDS = frozenset("*?[")
_MAX_PATTERN_CHARS = 1_000
_MAX_NAMED = 4
_MAX_COMPARED = 5_000
_MAX_SHOWN_CHARS = 200


class Target(NamedTuple):
    """A text, and the lines of it that are meant."""

    name: str
    ranges: Ranges = ALL_LINES


def resolve(sources: Sources, text: str) -> Target:
    """Find the text and the lines that *text* means.

    Raises:
        NotFoundError: Nothing has that name, or several texts have it.
    """
    cited = text.strip().removeprefix("[").removesuffix("]").strip()
    citation = _CITED.fullmatch(cited)
    for name, lines in [(cited, ""), *([citation.groups()] if citation is not None else [])]:
        is_summary = name.rpartition("/")[2] == layout.SUMMARIES
        names = _summaries(sources, name, lines or "-1") if is_summary else _named(sources, name)
        if len(names) > 1:
            more = f" and {len(names) - _MAX_NAMED:,} more" if len(names) > _MAX_NAMED else ""
            hint = f"it may mean {', '.join(names[:_MAX_NAMED])}{more}; give one path"
            raise NotFoundError("single file", name, hint)
        if names:
            return Target(names[0], ALL_LINES if is_summary or not lines else _ranges(sources, names[0], lines))
    known = (name.rpartition("/")[2] for directory in sources.directories for name in sources.names(directory))
    near = _near((citation[1] if citation else cited).rpartition("/")[2], list(islice(known, _MAX_COMPARED)))
    hint = f"near are {', '.join(near)}" if near else "nothing was archived or offloaded yet"
    raise NotFoundError("file", text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}...", hint)


def directory_at(sources: Sources, text: str) -> str | None:
    """Return the directory of a session that *text* names; "" for the workdir or ``sessions``; else None."""
    path = text.strip().rstrip("/")
    if path in {"", ".", *sources.roots} or f"/{path}".endswith(f"/{layout.SESSIONS}"):
        return sources.directories[0] if sources.session_id is not None else ""
    found = _DIRECTORY.fullmatch(path)
    return found[1] if found is not None and found[1] in sources.directories else None


def places(sources: Sources, path: str | Sequence[str] | None, *, newest_first: bool = False) -> list[Target]:
    """Return what to search: everything, or the files, citations, directories and name patterns in *path*.

    A session's transcript comes before its results; with *newest_first*, later results and sessions come first.

    Raises:
        NotFoundError: There is no such file, or no name matches a pattern.
    """
    paths = [path] if isinstance(path, str) else ["."] if path is None else list(path)
    found: dict[str, Ranges] = {}
    for each in paths:
        names = _listed(sources, each, newest_first=newest_first)
        for name, ranges in [(name, ALL_LINES) for name in names] or [resolve(sources, each)]:
            found[name] = merged([*found.get(name, ()), *ranges])
    return [Target(name, ranges) for name, ranges in found.items()]


def _listed(sources: Sources, path: str, *, newest_first: bool) -> list[str]:
    """Return the texts in a directory, or those whose names match a pattern; none if *path* is neither."""
    parent, _, pattern = path.strip().rpartition("/") if _WILDCARDS & set(path) else (path, "", "*")
    place = _DIRECTORY.fullmatch(parent) if pattern != "*" else None
    directory = directory_at(sources, parent) if place is None else ""
    if directory is None or len(pattern) > _MAX_PATTERN_CHARS:  # 500,000 wildcards would take 16 s
        return []
    wanted = directory or (place[1] if place is not None else "*")
    directories = [each for each in sources.directories if fnmatch.fnmatchcase(each, wanted)]
    found: list[str] = []
    for each in reversed(directories) if newest_first else directories:
        names = sources.names(each)
        backwards = names[::-1]
        found += sorted(backwards, key=_age) if newest_first else names
    found += sources.blobs() if directories == sources.directories else []
    return [name for name in dict.fromkeys(found) if fnmatch.fnmatchcase(name.rpartition("/")[2], pattern)]


def _age(name: str) -> int:
    file = name.rpartition("/")[2]
    return [IN_CONTEXT, layout.TRANSCRIPT, file].index(file)


def _named(sources: Sources, name: str) -> list[str]:
    """Return the texts that *name* may mean: a path, of which the end counts, a plain name, or the id of a call."""
    place = _PLACE.fullmatch(name)
    directory, file = place.groups() if place is not None else ("", name)
    blob = f"{layout.DATA}/{file}"
    if layout.blob_behind(layout.reference_to(blob)) and directory in {"", layout.DATA}:
        return [blob] if sources.size(blob) is not None else []
    if directory in sources.directories and ".." not in name.split("/"):
        return sources.named(directory, file)
    found = [each for one in sources.directories for each in sources.named(one, name)]
    return found or [each for one in sources.directories for each in sources.results_of(one, name)]


def _summaries(sources: Sources, name: str, number: str) -> list[str]:
    place = _PLACE.fullmatch(name)
    wanted = [one for one in sources.directories if place is None or place[1] == one]
    found = (sources.summary(one, int(number)) for one in wanted if number.removeprefix("-").isdecimal())
    return [name for name in found if name is not None]


def _ranges(sources: Sources, name: str, lines: str) -> Ranges:
    if lines.startswith("-"):
        return ((max(count_lines(sources.blocks(name)) + int(lines) + 1, 1), sys.maxsize),)
    ends = [span.partition("-") for span in lines.split(",")]
    return merged((int(first), int(last or first)) for first, _, last in ends)


def _near(name: str, known: Sequence[str]) -> list[str]:
    wanted = name[:_MAX_SHOWN_CHARS].lower()
    holding = (each for each in known if wanted and wanted in each.lower())
    alike = difflib.get_close_matches(name[:_MAX_SHOWN_CHARS], known, _MAX_NAMED - 1, 0.4)
    return list(dict.fromkeys(chain(islice(holding, _MAX_NAMED - 1), alike, known[:1])))[: _MAX_NAMED - 1]
