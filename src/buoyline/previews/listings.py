"""Listings of files: ``ls -l``, ``find``, ``du``, ``tar tv``, and searches for names."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from buoyline.previews.digest import Digest, Finding, are_mostly, counted, fact, rows, sampled, share, shortened

_LINE_CHARS = 1_000
_LEAST = 0.85
_LEAST_LINES = 5
_LARGEST = 5
_MOST_LEVELS = 8
_UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}

_LONG = re.compile(
    r"\s{0,12}(?:\d{1,12}\s{1,8}\d{1,12}\s{1,4})?([-dlcbpsD])[-rwxsStTl]{9}[.+@]?\s{1,8}(?:\d{1,9}\s{1,12})?\S{1,64}(?:\s{1,12}[^\s\d]\S{0,63})?\s{1,16}"
    r"(\d[\d,.]{0,20})([KMGTP]?)B?\s{1,4}"
    r"(?:\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?(?:\.\d{1,9})?)?(?:\s[+-]\d{4})?"
    r"|\S{1,10}\s{1,3}\S{1,6}\s{1,3}(?:\d\d:\d\d(?::\d\d)?|\d{4})(?: \d{4})?)\s{1,3}(\S.{0,800})"
)
_SIZED = re.compile(r"(\d[\d.]{0,15})([KMGTP]?)\t(\S.{0,800})$")
# The count of a step, such as "[3/40] copying part 3", is no folder.
_PATH = re.compile(
    r"(?!\[ {0,3}\d{1,6}/\d)(?:\.{0,2}/|~/|[A-Za-z]:\\)?[^\s:*?\"<>|=;,(){}/][^:*?\"<>|={};]{0,600}$|\.{0,2}/$|\.$"
)
_FOLDER = re.compile(r"(\S.{0,600}):$")
_SUMMARY = re.compile(r"total \d|\d{1,9} director(?:y|ies)(?:, \d{1,9} files?)?$|\s*$")


class _Entry(NamedTuple):
    number: int
    path: str
    is_folder: bool = False
    size_bytes: int = -1


def listing_digest(lines: Sequence[str]) -> Digest | None:
    """Summarize a listing: number of files, kinds, folders and the largest files.

    Returns:
        Counts, and findings for the largest files. None if the text is not a listing.
    """
    sample = sampled(lines)
    if len(sample) < _LEAST_LINES:
        return None
    for pattern, read in _FORMS:
        if are_mostly(pattern.match, sample, _LEAST):
            return read(lines)
    return _paths(lines) if are_mostly(_is_path, sample, _LEAST) else None


def _is_path(line: str) -> bool:
    if _PATH.match(line) is None or "\t" in line or "  " in line:
        return False
    # A path with spaces has folders or an extension; a sentence has neither.
    return "/" in line or "\\" in line or (" " not in line and "." in line[1:-1] and line[-1] not in ".,;)")


def _long(lines: Sequence[str]) -> Digest | None:
    entries, folder = list[_Entry](), ""
    for number, line in enumerate(lines, 1):
        found = _LONG.match(line[:_LINE_CHARS])
        heading = _FOLDER.match(line[:_LINE_CHARS]) if found is None else None
        if heading is not None:
            folder = heading[1].removesuffix("/") + "/"
        if found is not None and found[4] not in {".", ".."}:
            name = found[4].partition(" -> ")[0] if found[1] == "l" else found[4]
            entries.append(_Entry(number, folder + name, found[1] == "d", _size(found[2], found[3])))
    return _digest("long", entries)


def _sized(lines: Sequence[str]) -> Digest | None:
    found = ((number, _SIZED.match(line[:_LINE_CHARS])) for number, line in enumerate(lines, 1))
    entries = [
        _Entry(number, match[3], match[3].endswith("/"), _size(match[1], match[2])) for number, match in found if match
    ]
    folders = {entry.path.rpartition("/")[0] for entry in entries}
    return _digest("sizes", [entry._replace(is_folder=entry.is_folder or entry.path in folders) for entry in entries])


def _paths(lines: Sequence[str]) -> Digest | None:
    if share(sum("/" in line or "\\" in line for line in lines), len(lines)) < _LEAST / 2:
        return None
    entries = [
        _Entry(number, line.strip(), line.endswith("/"))
        for number, line in enumerate(lines, 1)
        if line.strip() and _is_path(line)
    ]
    return _digest("paths", entries)


def _any_of(*patterns: re.Pattern[str]) -> re.Pattern[str]:
    return re.compile("|".join(pattern.pattern for pattern in patterns))


_FORMS: tuple[tuple[re.Pattern[str], Callable[[Sequence[str]], Digest | None]], ...] = (
    (_any_of(_LONG, _SUMMARY, _FOLDER), _long),
    (_SIZED, _sized),
)


def _digest(form: str, entries: Sequence[_Entry]) -> Digest | None:
    if len(entries) < _LEAST_LINES:
        return None
    files = [entry for entry in entries if not entry.is_folder]
    folders = len(entries) - len(files)
    of_these = f" ({counted(len(files), 'file')}, {counted(folders, 'folder')})" if folders else ""
    size = sum(entry.size_bytes for entry in files) if form == "long" else 0
    number = counted(len(entries), "entry", "entries")
    facts = [fact(f"Listing ({form}): {number}{of_these}{f', {_bytes(size)}' if size else ''}")]
    has_sizes = form in {"long", "sizes"}
    largest = sorted(files, key=lambda entry: (-entry.size_bytes, entry.number))[:_LARGEST] if has_sizes else []
    sizes = (f"{shortened(entry.path, 60)} {_bytes(entry.size_bytes)} :{entry.number}" for entry in largest)
    facts += rows("Largest", sizes, most=1)
    facts += rows("By folder", _by_folder(files or entries), most=1)
    endings = Counter(_extension(entry.path) for entry in files).most_common(8)
    if len(endings) > 1:
        facts += rows("By ending", (f"{ending} {count:,}" for ending, count in endings), most=1, chars=120)
    findings = [Finding(entry.number, 62.0 - place) for place, entry in enumerate(largest)]
    names = frozenset(entry.number for entry in entries)
    return Digest(tuple(facts), tuple(findings), quoted=names, is_free=True)


def _by_folder(entries: Sequence[_Entry]) -> list[str]:
    """Count the entries in each folder of the first level at which the paths differ."""
    parents = [entry.path.removeprefix("./").split("/")[:-1] for entry in entries]
    distinct = {tuple(parent[:_MOST_LEVELS]) for parent in parents}
    level = next((level for level in range(_MOST_LEVELS) if len({parent[: level + 1] for parent in distinct}) > 1), 0)
    places = ["/".join(parent[: level + 1]) or "." for parent in parents]
    if len(set(places)) == 1:
        return []
    first = {place: entry.number for place, entry in zip(reversed(places), reversed(entries), strict=True)}
    return [f"{shortened(place, 60)} {count:,} :{first[place]}" for place, count in Counter(places).most_common(12)]


def _size(number: str, unit: str) -> int:
    digits = number.replace(",", "") if not unit else number.replace(",", ".")
    try:
        return int(float(digits) * _UNITS[unit])
    except ValueError:
        return 0


def _bytes(size: int) -> str:
    units = ["GB", "MB", "kB", "B"]
    while size >= 10_000 and len(units) > 1:  # noqa: PLR2004 - four digits are read at a glance
        size //= 1000
        units.pop()
    return f"{size:,} {units[-1]}"


def _extension(path: str) -> str:
    name = path.rstrip("/").rpartition("/")[2]
    _, dot, ending = name.removeprefix(".").rpartition(".")
    return f".{ending[:12]}" if dot and ending and " " not in ending else "none"
