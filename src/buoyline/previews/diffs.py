"""Diffs: the files that they change, by how much, and where each begins.

Source: the unified format of GNU diffutils, and git-diff's "extended headers" and "combined diff format".
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from buoyline.previews.digest import (
    Digest,
    Finding,
    common_folder,
    counted,
    fact,
    is_continued,
    rows,
    share,
    without_colors,
)

_MAX_FILES = 20_000
_MAX_HUNKS = 50_000
_MAX_ODD = 12
_MAX_PATH_CHARS = 400
_SHOWN_FILES = 5

# This share of the text must belong to the diff: a report that quotes a diff is not a diff.
_MOSTLY = 0.5
_ODD_IN_A_ROW = 3
_ENDLESS = 1 << 60

_BEGINNINGS = ("diff --git ", "diff --cc ", "diff --combined ", "diff -", "Index: ", "Only in ")
_COMMIT = re.compile(r"commit [0-9a-f]{7,64}\b|From [0-9a-f]{40} ")
_HUNK = re.compile(r"(@{2,9}) ((?:[-+]\d{1,9}(?:,\d{1,9})? ){1,9})@{2,9} ?(.{0,100})")
_EXTENDED = {
    "new file mode": "new",
    "deleted file mode": "deleted",
    "rename from": "renamed",
    "rename to": "renamed",
    "copy from": "copied",
    "copy to": "copied",
    "GIT binary patch": "binary",
    "Binary files": "binary",
    "index ": "",
    "similarity index": "",
    "dissimilarity index": "",
    "old mode": "",
    "new mode": "",
    "mode ": "",
    "====": "",
}
_CONFLICT = re.compile(r"[-+ ]{0,3}(?:<{7} |>{7} |<{7}$|>{7}$)")


def diff_digest(lines: Sequence[str]) -> Digest | None:
    """Summarize the changes of a diff by file.

    Returns:
        Counts, the files with most changed lines and the largest hunks with their first lines; findings for conflict
        markers and for lines that a diff cannot have. None if less than half of the text is a diff.
    """
    if not any(line.startswith(("@@ ", "@@@", "diff --", "\x1b[", "\\x1b[")) for line in lines):
        return None
    reader = _DiffReader(without_colors(lines))
    reader.read()
    if not reader.files or share(reader.known, reader.total) < _MOSTLY:
        return None
    return Digest(tuple(_facts(reader)), tuple(_findings(reader)))


class _Hunk(NamedTuple):
    number: int
    changed: int
    heading: str


@dataclass(slots=True)
class _File:
    """The changes to one file."""

    number: int
    old: str = ""
    new: str = ""
    added: int = 0
    removed: int = 0
    hunks: int = 0
    states: set[str] = field(default_factory=set[str])

    @property
    def changed(self) -> int:
        return self.added + self.removed

    @property
    def path(self) -> str:
        return self.old if self.new in {"", "/dev/null"} else self.new


class _DiffReader:
    """Reads a diff line by line; a hunk ends where its header says, so a removed ``-- x`` does not begin a file."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self.files: list[_File] = []
        self.hunks: list[_Hunk] = []
        self.conflicts: list[int] = []
        self.odd: list[int] = []
        self.commits = 0
        self.known = 0
        self.total = 0
        self._old_left = self._new_left = 0
        self._columns = 1
        self._odd_in_a_row = 0
        self._hunk_start = (0, 0, "")
        self._is_message = False

    def read(self) -> None:
        for number, line in enumerate(self.lines, 1):
            is_known = self._is_hunk_line(number, line) or self._is_header(number, line)
            self.known += bool(line) and is_known
            self.total += bool(line)
        self._end_hunk()

    def _is_hunk_line(self, number: int, line: str) -> bool:
        if self._old_left <= 0 and self._new_left <= 0:
            return False
        if line[:1] not in {" ", "+", "-", "\\", ""}:
            return self._is_odd_in_hunk(number, line)
        if self._new_left > _ENDLESS // 2 and self._begins_paths(number, line):
            return False
        self._odd_in_a_row = 0
        if line[:1] != "\\":
            self._take(line[: self._columns])
            if ("<<<" in line or ">>>" in line) and _CONFLICT.match(line) and len(self.conflicts) < _MAX_ODD:
                self.conflicts.append(number)
        return True

    def _take(self, prefix: str) -> None:
        if "+" in prefix:
            self.files[-1].added += 1
            self._new_left -= 1
        elif "-" in prefix:
            self.files[-1].removed += 1
            self._old_left -= 1
        else:
            self._old_left -= 1
            self._new_left -= 1
        if self._old_left <= 0 and self._new_left <= 0:
            self._end_hunk()

    def _is_odd_in_hunk(self, number: int, line: str) -> bool:
        if is_continued(line):
            return True
        self._odd_in_a_row += 1
        is_end = self._odd_in_a_row >= _ODD_IN_A_ROW or line.startswith((*_BEGINNINGS, "@@")) or _COMMIT.match(line)
        if is_end:
            self._end_hunk()
            return False
        if len(self.odd) <= _MAX_ODD:
            self.odd.append(number)
        return True

    def _is_header(self, number: int, line: str) -> bool:
        if line.startswith(_BEGINNINGS):
            self._begin(number, *_header_paths(line))
        elif line.startswith("@@"):
            return self._is_hunk(number, line)
        elif line.startswith(("--- ", "+++ ")):
            return self._is_path(number, line)
        elif line.startswith(("commit ", "From ")) and _COMMIT.match(line):
            self.commits += 1
            self._is_message = True
        else:
            return self._is_extended(line) or self._is_message
        return True

    def _is_extended(self, line: str) -> bool:
        state = next((_EXTENDED[start] for start in _EXTENDED if line.startswith(start)), None)
        if state is None or not self.files or self._is_message:
            return False
        if state:
            self.files[-1].states.add(state)
        return True

    def _is_path(self, number: int, line: str) -> bool:
        path = line[4 : 4 + _MAX_PATH_CHARS].split("\t", 1)[0].strip()
        if line.startswith("+++"):
            if not self.files:
                return False
            self.files[-1].new = path[2:] if path.startswith(("b/", "w/", "i/")) else path
            return True
        if not self._begins_paths(number, line):
            return False
        if not self.files or self.files[-1].hunks:
            self._begin(number, "", "")
        self.files[-1].old = path[2:] if path.startswith(("a/", "i/", "c/")) else path
        return True

    def _begins_paths(self, number: int, line: str) -> bool:
        return line.startswith("--- ") and number < len(self.lines) and self.lines[number].startswith("+++ ")

    def _is_hunk(self, number: int, line: str) -> bool:
        self._end_hunk()
        found = _HUNK.match(line)
        if not self.files:
            if found is None:
                return False
            self._begin(number, "", "")
        ranges = found[2].split() if found is not None else []
        self._old_left = _length(ranges[0]) if len(ranges) == 2 else 0  # noqa: PLR2004 - old and new
        self._new_left = _length(ranges[-1]) if ranges else _ENDLESS
        self._columns = len(found[1]) - 1 if found is not None else 1
        self._hunk_start = (number, self.files[-1].changed, found[3] if found is not None else "")
        self.files[-1].hunks += 1
        self._odd_in_a_row = 0
        return True

    def _end_hunk(self) -> None:
        number, changed, heading = self._hunk_start
        if number and len(self.hunks) < _MAX_HUNKS:
            self.hunks.append(_Hunk(number, self.files[-1].changed - changed, heading.strip()))
        self._hunk_start = (0, 0, "")
        self._old_left = self._new_left = 0

    def _begin(self, number: int, old: str, new: str) -> None:
        self._end_hunk()
        self._is_message = False
        if len(self.files) < _MAX_FILES:
            self.files.append(_File(number, old, new))


def _header_paths(line: str) -> tuple[str, str]:
    """Return the old and the new path of a line that begins a file."""
    line = line[: 2 * _MAX_PATH_CHARS]
    if line.startswith("diff --git "):
        names = line.removeprefix("diff --git ")
        # Both paths are equal unless the file was renamed; either may contain spaces.
        old, new = names[: len(names) // 2], names[len(names) // 2 + 1 :]
        if old[2:] != new[2:]:
            old, _, new = names.partition(" b/")
            return old.removeprefix("a/"), new
        return (old[2:], new[2:]) if old[1:2] == "/" else (old, new)
    name = line.rstrip().rpartition(" ")[2]
    return name, name


def _length(numbers: str) -> int:
    _, comma, length = numbers.partition(",")
    return int(length) if comma else 1


def _facts(reader: _DiffReader) -> Iterator[str]:
    files = reader.files
    folder = common_folder([file.path for file in files])
    distinct = len({file.path for file in files})
    places = f"{counted(distinct, 'file')}{f' in {folder}' if folder else ''}"
    if distinct < len(files):
        places += f" ({len(files):,} changes)"
    added, removed = sum(file.added for file in files), sum(file.removed for file in files)
    yield fact(", ".join([f"Diff: {places}", f"+{added:,} -{removed:,}", *_states(reader)]))
    largest = sorted(files, key=lambda file: (-file.changed, file.number))
    yield from rows("Files by changed lines", (_described(file, folder) for file in largest), most=4)
    hunks = sorted((hunk for hunk in reader.hunks if hunk.heading), key=lambda hunk: (-hunk.changed, hunk.number))
    yield from rows(
        "Largest hunks", (f"{hunk.heading[:50]} {hunk.changed:,} :{hunk.number}" for hunk in hunks[:4]), most=1
    )


def _states(reader: _DiffReader) -> Iterator[str]:
    for state in ("new", "deleted", "renamed", "copied", "binary"):
        count = sum(state in file.states for file in reader.files)
        if count:
            yield f"{count:,} {state}"
    if reader.commits:
        yield counted(reader.commits, "commit")
    if reader.conflicts:
        yield "with conflict markers"


def _described(file: _File, folder: str) -> str:
    changes = [f"+{file.added:,}"] * bool(file.added) + [f"-{file.removed:,}"] * bool(file.removed)
    states = [f"({', '.join(sorted(file.states))})"] * bool(file.states)
    return " ".join([file.path.removeprefix(folder) or "?", *states, *changes, f":{file.number}"])


def _findings(reader: _DiffReader) -> Iterator[Finding]:
    largest = sorted(reader.files, key=lambda file: (-file.changed, file.number))
    for place, file in enumerate(largest[:_SHOWN_FILES]):
        yield Finding(file.number, 58.0 - place)
    for hunk in sorted(reader.hunks, key=lambda hunk: (-hunk.changed, hunk.number))[:_SHOWN_FILES]:
        yield Finding(hunk.number, 50.0)
    for number in reader.conflicts:
        yield Finding(number, 90.0, note="conflict marker")
    if len(reader.odd) <= _MAX_ODD:
        for number in reader.odd:
            yield Finding(number, 84.0, note="in a diff, but no line of one")
