"""Output of searches in files.

The forms are ``path:line:text`` with ``path-line-text`` for context lines, ``path:text``, and a path above its lines.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from buoyline.previews.digest import (
    Digest,
    Finding,
    common_folder,
    counted,
    fact,
    rows,
    sampled,
    share,
    shortened,
)

_LINE_CHARS = 600
_MAX_PATHS = 20_000
_SHOWN_HITS = 40
_HIT_CHARS = 100
_PATH_CHARS = 48
_LEAST = 0.8
_LEAST_LINES = 3

# Possessive, as nothing shorter ends at the colon: a line without one takes 0.4 us, where going back takes 1.1.
_HIT = re.compile(r"((?:[A-Za-z]:[\\/])?[^:\s\x00][^:\x00]{0,400}+)[:\x00](\d{1,9})(?::(\d{1,6}))?:")
_AROUND = re.compile(r"-(\d{1,9})-")
_UNNUMBERED = re.compile(r"((?:[A-Za-z]:[\\/])?[^:\s][^:\s]{0,400}+):(?!//|:)")
_BELOW = re.compile(r"(\d{1,9})[:-]")
_EXTENSION = re.compile(r"\.[A-Za-z]\w{0,11}$")
_DATE = re.compile(r"\d{4}-\d\d-\d\d|\d{1,2}/\d{1,2}/|\w{3,9} \d{1,2} ")
_NO_PATH = re.compile(r"\A[\[(#*-]|[\"'<>|{}=;,\t]")
_BINARY = re.compile(r"(?:grep: .{0,400}: binary file matches|Binary file .{1,400} matches)")
_OTHER = ("--", "grep: ", "rg: ")


@dataclass(slots=True)
class _FileHits:
    """The first hit in a file, or its first line, and the numbers of hits and context lines."""

    first: int = 0
    hits: int = 0
    around: int = 0
    numbers: list[int] = field(default_factory=list[int])


def search_digest(lines: Sequence[str]) -> Digest | None:
    """Summarize the output of a search, or of a compiler that names places in the same form, by file.

    Returns:
        Counts, and the files by hits, each with the line of its first hit. None if less than four in five lines name a
        file.
    """
    sample = sampled(lines)
    if len(sample) < _LEAST_LINES:
        return None
    sample_count = _countable(sample)
    for read, is_numbered in ((_numbered, True), (_headed, True), (_unnumbered, False)):
        if share(sum(1 for _ in read(sample)), sample_count) < _LEAST - 0.1:
            continue
        found = list(read(lines))
        if share(len(found), _countable(lines)) >= _LEAST:
            return _digest(found, lines, is_numbered=is_numbered)
    return None


_PathLine = tuple[int, str, bool]
"""The line number, the path that the line names, and whether the line is a hit."""


def _countable(lines: Sequence[str]) -> int:
    return sum(bool(line.strip()) and not line.startswith(_OTHER) for line in lines)


def _numbered(lines: Sequence[str]) -> Iterator[_PathLine]:
    known: dict[str, bool] = {}
    for number, line in enumerate(lines, 1):
        hit = _HIT.match(line[:_LINE_CHARS])
        if hit is not None and _is_path(hit[1], known):
            yield number, hit[1], True
            continue
        path = _path_around(line[:_LINE_CHARS], known)
        if path:
            yield number, path, False


def _path_around(line: str, known: dict[str, bool]) -> str:
    for place, found in enumerate(_AROUND.finditer(line)):
        path = line[: found.start()]
        if known.get(path) or (_EXTENSION.search(path[-14:]) and _is_path(path, known)):
            return path
        if place > 8:  # noqa: PLR2004 - what follows is text
            break
    return ""


def _headed(lines: Sequence[str]) -> Iterator[_PathLine]:
    path, known = "", dict[str, bool]()
    for number, line in enumerate(lines, 1):
        below = _BELOW.match(line)
        if below is not None and path:
            yield number, path, line[below.end() - 1] == ":"
        elif line and not line[0].isspace() and len(line) < _LINE_CHARS and ":" not in line[2:]:
            has_lines = number < len(lines) and _BELOW.match(lines[number])
            path = line if has_lines and ("/" in line or _EXTENSION.search(line)) and _is_path(line, known) else ""
            if path:
                yield number, path, False


def _unnumbered(lines: Sequence[str]) -> Iterator[_PathLine]:
    known: dict[str, bool] = {}
    for number, line in enumerate(lines, 1):
        hit = _UNNUMBERED.match(line[:_LINE_CHARS])
        if hit is not None and ("/" in hit[1] or _EXTENSION.search(hit[1])) and _is_path(hit[1], known):
            yield number, hit[1], True


def _is_path(path: str, known: dict[str, bool]) -> bool:
    """Check whether the text before the colon can be a path, not a time, an address or a sentence."""
    found = known.get(path)
    if found is None:
        found = not _NO_PATH.search(path) and not _DATE.match(path) and any(map(str.isalpha, path))
        if found and " " in path:
            found = "/" in path.partition(" ")[0] or _EXTENSION.search(path) is not None
        if len(known) < _MAX_PATHS:
            known[path] = found
    return found


def _digest(found: Sequence[_PathLine], lines: Sequence[str], *, is_numbered: bool) -> Digest | None:
    files = _by_file(found)
    if not files or not any("/" in path or _EXTENSION.search(path) for path in files):
        return None
    sample = found[:100]
    columns = (_HIT.match(lines[number - 1][:_LINE_CHARS]) for number, _, _ in sample)
    are_messages = is_numbered and sum(hit is not None and hit[3] is not None for hit in columns) > len(sample) // 2
    what = "Messages about files" if are_messages else "Search output"
    hit_count, around = sum(file.hits for file in files.values()), sum(file.around for file in files.values())
    lines_found = (
        f"{counted(hit_count, 'hit')} and {around:,} lines around them" if around else counted(hit_count, "line")
    )
    folder = common_folder(list(files))
    where = f"{counted(len(files), 'file')}{f' in {folder}' if folder else ''}"
    ranked = sorted(files.items(), key=lambda item: (-item[1].hits, item[1].first))
    items = (f"{path.removeprefix(folder)} {file.hits:,} :{file.first}" for path, file in ranked)
    facts = [fact(f"{what}: {lines_found} in {where}"), *rows("Files by hits", items, most=1)]
    binary = [Finding(number, 40.0) for number, line in enumerate(lines, 1) if _BINARY.match(line[:_LINE_CHARS])][:3]
    names = {number: path for path, file in files.items() for number in file.numbers}
    # The first hit of each file, then the second ones, and so on.
    turns = zip_longest(*(file.numbers for file in list(files.values())[:_SHOWN_HITS]))
    shown = [number for turn in turns for number in turn if number][:_SHOWN_HITS]
    parts = tuple(_hit(lines[number - 1], number, names[number].removeprefix(folder)) for number in shown)
    quoted = frozenset(() if are_messages else (number for number, _, _ in found))
    return Digest(tuple(facts), tuple(binary), parts=parts, quoted=quoted, is_free=not are_messages)


def _hit(line: str, number: int, path: str) -> str:
    """Return a hit as a row: the file without the common folder, its line, the line here, and the text."""
    found = _HIT.match(line[:_LINE_CHARS]) or _BELOW.match(line)
    place = "" if found is None else f":{found[2] if found.re is _HIT else found[1]}"
    text = line[found.end() :] if found is not None else line.partition(":")[2]
    return fact(f"{shortened(path, _PATH_CHARS)}{place} :{number} {text.strip()[:_HIT_CHARS]}")


def _by_file(found: Sequence[_PathLine]) -> dict[str, _FileHits]:
    """Group the lines by file; an absolute and a relative spelling of one path count as one file."""
    paths = {path for _, path, _ in found}
    names = _relative_names(paths) if len(paths) <= _MAX_PATHS else {}
    files = defaultdict[str, _FileHits](_FileHits)
    for number, path, is_hit in found:
        file = files[names.get(path, path)]
        if not file.first or (is_hit and not file.hits):
            file.first = number
        if is_hit and file.hits < _SHOWN_HITS:
            file.numbers.append(number)
        file.hits += is_hit
        file.around += not is_hit
    return dict(files)


def _relative_names(paths: set[str]) -> dict[str, str]:
    relative = {path for path in paths if not path.startswith("/")}
    names: dict[str, str] = {}
    for path in paths - relative if relative else ():
        place = path.find("/", 1)
        while place > 0:
            if path[place + 1 :] in relative:
                names[path] = path[place + 1 :]
                break
            place = path.find("/", place + 1)
    return names
