"""Diffs: the files and the largest hunks."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from buoyline.previews.rows import Kind, Row, common_folder, counted, listed, middle_cut, shortened

_CONFLICT: Final = re.compile(r"[-+ ]{0,2}(?:<{7}|>{7})(?: |$)")
_MOST_CONFLICTS, _MOST_HUNKS = 8, 16


@dataclass
class _Part:
    """A file of a diff or one of its hunks: its first line, and the lines that it adds and removes."""

    number: int
    name: str
    added: int = 0
    removed: int = 0
    hunks: "list[_Part]" = field(default_factory=list)

    @property
    def changed(self) -> int:
        return self.added + self.removed


def read_diff(lines: Sequence[str]) -> Kind | None:
    """Return the files of a diff by changed lines, its largest hunks and conflict markers; None for another text.

    A removed line ``-- x`` before an added line ``++ y`` is taken for the head of a file.
    """
    if not any(line.startswith(("@@ ", "diff --")) for line in lines):
        return None
    files, known = _files(lines)
    if not files or 2 * known < sum(map(bool, lines)):
        return None
    folder = common_folder([file.name for file in files])
    by_size = sorted(files, key=lambda file: -file.changed)
    hunks = sorted((hunk for file in files for hunk in file.hunks), key=lambda hunk: -hunk.changed)
    named = [
        f"{middle_cut(file.name.removeprefix(folder), 48)} +{file.added} -{file.removed} :{file.number}"
        for file in by_size
    ]
    by_file = listed("Files by changed lines", named)
    by_hunk = listed("Largest hunks", [f"{shortened(hunk.name, 24)} {hunk.changed} :{hunk.number}" for hunk in hunks])
    added, removed = sum(file.added for file in files), sum(file.removed for file in files)
    total = f"Diff: {counted(len(files), 'file')}{f' in {folder}' if folder else ''}, +{added:,} -{removed:,}"
    rows = [Row(hunk.number, 60.5 - rank / 40) for rank, hunk in enumerate(hunks[:_MOST_HUNKS])]
    conflicts = [number for number, line in enumerate(lines, 1) if _CONFLICT.match(line)]
    rows += [Row(number, 90.0, note="conflict marker") for number in conflicts[:_MOST_CONFLICTS]]
    quoted = frozenset(number for number, line in enumerate(lines, 1) if line[:1] in {"+", "-", " "})
    facts = [total, *by_file[:2], *by_hunk[:2], *by_file[2:], *by_hunk[2:]]
    return Kind(facts, rows, quoted=quoted, is_free=True)


def _files(lines: Sequence[str]) -> tuple[list[_Part], int]:
    """Return the files of a diff, and the number of lines that belong to it."""
    files, known, is_inside = list[_Part](), 0, False
    for number, line in enumerate(lines, 1):
        is_pair = line.startswith("--- ") and lines[number : number + 1] and lines[number].startswith("+++ ")
        if line.startswith("diff ") or (is_pair and (not files or files[-1].hunks)):
            files.append(_Part(number, line.split()[-1].removeprefix("b/")))
            is_inside = False
        elif line.startswith("@@") and files:
            files[-1].hunks.append(_Part(number, line.rpartition("@@")[2].strip() or "@@"))
            is_inside = True
        elif is_inside and line[:1] in {"+", "-", " "}:
            for part in (files[-1], files[-1].hunks[-1]):
                part.added += line[:1] == "+"
                part.removed += line[:1] == "-"
        elif not is_inside and line.startswith("+++ ") and files:
            if not line.startswith("+++ /dev/null"):
                files[-1].name = line[4:].partition("\t")[0].strip().removeprefix("b/")
        elif is_inside or not (files or line.startswith("commit ")):
            continue
        known += bool(line)
    return files, known
