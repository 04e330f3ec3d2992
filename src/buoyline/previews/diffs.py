"""Diffs: the files that they change, by how much, and where each begins.

Source: the unified format of GNU diffutils, and git-diff's "extended headers" and "combined diff format".
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from buoyline.previews.digest import (
    Digest,
    Finding,
    common_folder,
    counted,
    fact,
    rows,
    share,
    shortened,
)
from buoyline.previews.source import CONTINUED

_MAX_FILES = 20_000
_MAX_HUNKS = 50_000
_MAX_ODD = 12
_MAX_PATH_CHARS = 400
_SHOWN_HUNKS = 16
_SHOWN_PATH_CHARS = 48
_NAME_CHARS = 40

# This share of the text must belong to the diff: a report that quotes a diff is not a diff.
_MOSTLY = 0.5
_ODD_IN_A_ROW = 3
_ENDLESS = 1 << 60

_BEGINNINGS = ("diff --git ", "diff --cc ", "diff --combined ", "diff -", "Index: ", "Only in ")
_SIGNS = frozenset("+- ")
_ENDS = (*_BEGINNINGS, "@@", "commit ", "From ")
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
_HEADERS = tuple(_EXTENDED)
_SHOWN_STATES = ("new", "deleted", "renamed", "copied", "binary")
# The name that a heading defines.
_NAME = re.compile(r"([A-Za-z_][\w.:~$-]*)\s*(?:\(|=|:|\{|$)")
_CONFLICT = re.compile(r"[-+ ]{0,3}(?:<{7} |>{7} |<{7}$|>{7}$)")


def diff_digest(lines: Sequence[str]) -> Digest | None:
    """Summarize the changes of a diff by file.

    Returns:
        Counts, the files with most changed lines and the largest hunks with their first lines; findings for conflict
        markers and for lines that a diff cannot have. None if less than half of the text is a diff.
    """
    if not any(line.startswith(("@@ ", "@@@", "diff --")) for line in lines):
        return None
    reader = _DiffReader(lines)
    reader.read()
    if not reader.files or share(reader.known, reader.total) < _MOSTLY:
        return None
    hunks = sorted(reader.hunks, key=lambda hunk: (-hunk.changed, hunk.number))
    findings = [Finding(hunk.number, 60.5 - rank / 40) for rank, hunk in enumerate(hunks[:_SHOWN_HUNKS])]
    findings += [Finding(number, 90.0, note="conflict marker") for number in reader.conflicts]
    if len(reader.odd) <= _MAX_ODD:
        findings += [Finding(number, 84.0, note="in a diff, but no line of one") for number in reader.odd]
    quoted = frozenset(number for number, line in enumerate(lines, 1) if line[:1] in _SIGNS and line[:4] != "--- ")
    return Digest(tuple(_facts(reader, hunks)), tuple(findings), quoted=quoted, is_free=True)


class _Hunk(NamedTuple):
    number: int
    changed: int
    heading: str


@dataclass(slots=True)
class _File:
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
    """Reads a diff hunk by hunk; a hunk ends where its header says, so a removed ``-- x`` does not begin a file."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self.files: list[_File] = []
        self.hunks: list[_Hunk] = []
        self.conflicts: list[int] = []
        self.odd: list[int] = []
        self.commits = 0
        self.known = 0
        self.total = sum(map(bool, lines))
        self._is_message = False

    def read(self) -> None:
        place = 0
        while place < len(self.lines):
            line = self.lines[place]
            place += 1
            if line.startswith("@@") and (end := self._hunk(place, line)):
                self.known += end - place + 1 - self.lines[place:end].count("")
                place = end
            else:
                self.known += bool(line) and self._is_header(place, line)

    def _hunk(self, number: int, header: str) -> int:
        """Read the hunk whose header is line *number*; return the number of its last line, 0 if it is no hunk."""
        found = _HUNK.match(header)
        if found is None and not self.files:
            return 0
        if not self.files:
            self._begin(number, "", "")
        ranges = found[2].split() if found is not None else []
        old_left = _length(ranges[0]) if len(ranges) == 2 else 0  # noqa: PLR2004 - old and new
        new_left = _length(ranges[-1]) if ranges else _ENDLESS
        columns = len(found[1]) - 1 if found is not None else 1
        added = removed = odd_in_a_row = 0
        end = number
        while end < len(self.lines) and (old_left > 0 or new_left > 0):
            line = self.lines[end]
            signs = line[:columns]
            if line[:1] in _SIGNS or not line:
                if new_left > _ENDLESS // 2 and self._begins_paths(end + 1, line):
                    break
                # A combined diff has a column for each parent.
                is_added, is_removed = "+" in signs, "-" in signs
                added += is_added
                removed += is_removed and not is_added
                new_left -= is_added or not is_removed
                old_left -= columns == 1 and not is_added
                odd_in_a_row = 0
                if ("<<<<" in line or ">>>>" in line) and _CONFLICT.match(line) and len(self.conflicts) < _MAX_ODD:
                    self.conflicts.append(end + 1)
            elif not line.startswith(("\\", CONTINUED)):
                # A line of another text in the middle of a hunk does not end it, three in a row do.
                odd_in_a_row += 1
                if line.startswith(_ENDS) or odd_in_a_row >= _ODD_IN_A_ROW:
                    break
                self.odd.append(end + 1)
            end += 1
        file = self.files[-1]
        file.added, file.removed, file.hunks = file.added + added, file.removed + removed, file.hunks + 1
        if len(self.hunks) < _MAX_HUNKS:
            self.hunks.append(_Hunk(number, added + removed, (found[3] if found is not None else "").strip()))
        return end

    def _is_header(self, number: int, line: str) -> bool:
        if line.startswith(_BEGINNINGS):
            self._begin(number, *_header_paths(line))
            return True
        if line.startswith(("--- ", "+++ ")) and self._names_path(number, line):
            return True
        if line.startswith(_HEADERS) and self.files:
            state = next(state for beginning, state in _EXTENDED.items() if line.startswith(beginning))
            self.files[-1].states.update([state] if state else [])
            return True
        if line.startswith(("commit ", "From ")) and _COMMIT.match(line):
            self.commits += 1
            self._is_message = True
            return True
        return self._is_message

    def _names_path(self, number: int, line: str) -> bool:
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

    def _begin(self, number: int, old: str, new: str) -> None:
        self._is_message = False
        if len(self.files) < _MAX_FILES:
            self.files.append(_File(number, old, new))


def _header_paths(line: str) -> tuple[str, str]:
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


def _facts(reader: _DiffReader, hunks: Sequence[_Hunk]) -> Iterator[str]:
    files = reader.files
    folder = common_folder([file.path for file in files])
    distinct = len({file.path for file in files})
    places = f"{counted(distinct, 'file')}{f' in {folder}' if folder else ''}"
    if distinct < len(files):
        places += f" ({len(files):,} changes)"
    added, removed = sum(file.added for file in files), sum(file.removed for file in files)
    states = Counter(state for file in files for state in file.states)
    parts = [f"Diff: {places}", f"+{added:,} -{removed:,}"]
    parts += [f"{states[state]:,} {state}" for state in _SHOWN_STATES if state in states]
    parts += [counted(reader.commits, "commit")] if reader.commits else []
    parts += ["with conflict markers"] if reader.conflicts else []
    yield fact(", ".join(parts))
    largest = sorted(files, key=lambda file: (-file.changed, file.number))
    yield from rows("Files by changed lines", (_described(file, folder) for file in largest), most=3)
    names = (_NAME.search(hunk.heading) for hunk in hunks)
    items = (
        f"{(name[1] if name is not None else hunk.heading)[:_NAME_CHARS] or '@@'} {hunk.changed:,} :{hunk.number}"
        for name, hunk in zip(names, hunks, strict=True)
    )
    yield from rows("Largest hunks", items, most=3)


def _described(file: _File, folder: str) -> str:
    changes = [f"+{file.added:,}"] * bool(file.added) + [f"-{file.removed:,}"] * bool(file.removed)
    states = [f"({', '.join(sorted(file.states))})"] * bool(file.states)
    path = shortened(file.path.removeprefix(folder), _SHOWN_PATH_CHARS)
    return " ".join([path or "?", *states, *changes, f":{file.number}"])
