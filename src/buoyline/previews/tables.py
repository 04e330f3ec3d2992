"""Tables, and listings and search results: rows of fields."""

import csv
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import chain, islice
from operator import itemgetter
from typing import Final

from buoyline.previews.odd import odd_values
from buoyline.previews.source import Kind, Row, common_folder, counted, listed, middle_cut, shortened

_SAMPLE = 40
_LEAST_ROWS = 4
_MOSTLY = 0.9
_NAME_CHARS = 24
_TIMED: Final = re.compile(r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d,\d{3}\b")


def read_table(lines: Sequence[str]) -> Kind | None:
    """Return the columns of a table, its ragged rows and its odd values; None for another text."""
    sample = [line for line in lines[:_SAMPLE] if line.strip()]
    if len(sample) < _LEAST_ROWS or 2 * sum(_TIMED.match(line) is not None for line in sample) > len(sample):
        return None
    for delimiter in ",\t":
        width, times = max(
            Counter(len(row) for _, row in _rows(sample, delimiter)).items(), key=itemgetter(1), default=(0, 0)
        )
        if width > 1 and times > _MOSTLY * len(sample):
            break
    else:
        return None
    rows = _rows(lines, delimiter)
    even = [(number, cells) for number, cells in rows if len(cells) == width]
    if len(even) < max(_MOSTLY * len(rows), _LEAST_ROWS):
        return None
    first, names = even[0]
    below = list(zip(*(cells for _, cells in even[1:]), strict=True))
    is_number = [isinstance(_value(column[0]), float) for column in below]
    has_header = len(set(names)) == width and not any(
        isinstance(_value(name), float) or name in column[:_SAMPLE] for name, column in zip(names, below, strict=True)
    )
    if not has_header and (width < 3 or not any(is_number)):  # noqa: PLR2004 - a progress bar has two parts, too
        return None
    names = names if has_header else [f"column {place}" for place in range(1, width + 1)]
    body = even[has_header:]
    count = Counter(len(cells) for _, cells in rows)
    found = [
        Row(number, 93.0 if count[len(cells)] <= _LEAST_ROWS else 60.0, note=f"{len(cells)} fields, others {width}")
        for number, cells in rows
        if len(cells) != width
    ]
    for name, cells in zip(names, zip(*(row for _, row in body), strict=True), strict=True):
        for odd in odd_values(_column(cells)):
            note = f'{shortened(name, _NAME_CHARS)} "{shortened(cells[odd.place], _NAME_CHARS)}": {odd.reason}'
            found.append(Row(body[odd.place][0], odd.weight, note=note))
    found.sort(key=lambda row: -row.weight)
    columns = ", ".join(shortened(name, _NAME_CHARS) for name in names[:_NAME_CHARS])
    header = [Row(first, 96.0)] if has_header else []
    return Kind(
        [f"Table: {len(body):,} rows, {width} columns: {columns}"], [*header, *found[:_NAME_CHARS]], is_record=True
    )


def _rows(lines: Sequence[str], delimiter: str) -> list[tuple[int, list[str]]]:
    """Return the rows up to the first one that is damaged, each with its first line."""
    reader = csv.reader((line.replace("\0", "").replace("\r", " ") for line in lines), delimiter=delimiter)
    rows, first = list[tuple[int, list[str]]](), 1
    try:
        for row in reader:
            if any(row):
                rows.append((first, row))
            first = reader.line_num + 1
    except csv.Error:
        pass
    return rows


def _column(cells: Sequence[str]) -> Sequence[float | str]:
    """Return numbers if most of the first cells are numbers, else the texts."""
    sample = [_value(cell) for cell in cells[:_SAMPLE]]
    if 2 * sum(isinstance(value, float) for value in sample) <= len(sample):
        return cells
    try:
        return list(map(float, cells))
    except ValueError:
        return [_value(cell) for cell in cells]


def _value(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell


_PATH_SAMPLE = 200
_MOSTLY_PATHS = 0.8
_MOST_SHOWN = 40
_SEEN_CHARS = 600

# "path:12: text" of a hit, "path-12- text" of a line around it, "path: text" without numbers.
_HIT: Final = re.compile(
    r"((?:[A-Za-z]:[\\/])?[^\s:\x00\[(#*\"'<>|{}=;,][^:\x00\"<>|{}=;()]{0,300}?)(?::(\d+):(?:\d+:)?|-(\d+)-|:)(?!//|:)"
)
_TIME: Final = re.compile(r"\d{4}-\d\d|\d+:\d\d")
_ENDING: Final = re.compile(r"\.[A-Za-z]\w{0,11}$")
_PLACED: Final = re.compile(r"[^:]*:\d+:\d+: ")


def read_search(lines: Sequence[str]) -> Kind | None:
    """Return the hits of a search by file, and the first hits of each file in turn; None for another text."""
    sample = [line for line in lines[:_PATH_SAMPLE] if line.strip() and line != "--"]
    if len(sample) < 3 or sum(_hit(line) is not None for line in sample) < _MOSTLY_PATHS * len(sample):  # noqa: PLR2004
        return None
    if 2 * sum(_PLACED.match(line[:_SEEN_CHARS]) is not None for line in sample) > len(sample):
        return None  # the messages of a compiler
    files, around = defaultdict[str, list[int]](list), 0
    for number, line in enumerate(lines, 1):
        hit = _hit(line)
        if hit is not None and hit[3] is None:
            files[hit[1]].append(number)
        around += hit is not None and hit[3] is not None
    if not files:
        return None
    hits, folder = sum(map(len, files.values())), common_folder(list(files))
    beside = f" and {counted(around, 'line')} around them" if around else ""
    place = f" in {folder}" if folder else ""
    by_hits = sorted(files.items(), key=lambda file: -len(file[1]))
    facts = [
        f"Search output: {counted(hits, 'hit')}{beside} in {counted(len(files), 'file')}{place}",
        *listed("Files by hits", [f"{path.removeprefix(folder)} {len(at)} :{at[0]}" for path, at in by_hits], most=1),
    ]
    turns = sorted(
        (turn, at[turn]) for at in islice(files.values(), _MOST_SHOWN) for turn in range(min(len(at), _MOST_SHOWN))
    )
    parts = [_part(lines[number - 1], number, folder) for _, number in turns[:_MOST_SHOWN]]
    return Kind(facts, parts=parts, quoted=frozenset(chain.from_iterable(files.values())), is_free=True)


def _hit(line: str) -> re.Match[str] | None:
    found = _HIT.match(line[:_SEEN_CHARS])
    if found is None or " " in found[1].partition("/")[0] or _TIME.match(found[1]):
        return None
    return found if "/" in found[1] or _ENDING.search(found[1]) else None


def _part(line: str, number: int, folder: str) -> str:
    hit = _hit(line)
    if hit is None:
        return line
    place = f":{hit[2]}" if hit[2] else ""
    return f"{middle_cut(hit[1].removeprefix(folder), 48)}{place} :{number} {line[hit.end() :].strip()[:100]}"


# A line of "ls -l" with size and name, or one of "du".
_ENTRY: Final = re.compile(
    r"\s*(?:\d+\s+\d+\s+)?[-dlcbps][-rwxsStTl]{9}\S?\s+\d+\s+\S+\s+(?:\S+\s+)?(\d[\d,.]*)[KMG]?\s+\S+\s+\S+\s+[\d:]+\s+(\S.*)"
    r"|\s*(\d[\d.]*)[KMGT]?\t(\S.*)"
)
_PATH: Final = re.compile(r"(?:\.{0,2}/|~/|[A-Za-z]:\\)?[^\s:*?\"<>|=;,(){}\[/][^:*?\"<>|={};\t]{0,600}$")
_LEAST_LINES = 5


def read_listing(lines: Sequence[str]) -> Kind | None:
    """Return the entries of a listing by folder, by ending and by size; None for another text."""
    sample = [line for line in lines[: 2 * _PATH_SAMPLE] if line.strip()]
    if len(sample) < _LEAST_LINES:
        return None
    has_sizes = sum(_ENTRY.match(line[:_SEEN_CHARS]) is not None for line in sample) >= _MOSTLY_PATHS * len(sample)
    if not has_sizes and sum(map(_is_path, sample)) < _MOSTLY_PATHS * len(sample):
        return None
    entries = list[tuple[int, str, float]]()
    for number, line in enumerate(lines, 1):
        found = _ENTRY.match(line[:_SEEN_CHARS]) if has_sizes else None
        if found is not None:
            size = (found[1] or found[3]).replace(",", "")
            entries.append((number, found[2] or found[4], float(size) if size.count(".") < 2 else 0.0))  # noqa: PLR2004
        elif not has_sizes and line.strip():
            entries.append((number, line.strip().removeprefix("./"), 0.0))
    folder = common_folder([path for _, path, _ in entries])
    folders, first = Counter[str](), dict[str, int]()
    for number, path, _ in entries:
        name, slash, _ = path.removeprefix(folder).partition("/")
        folders[f"{name}/" if slash else "."] += 1
        first.setdefault(f"{name}/" if slash else ".", number)
    endings = Counter(_ENDING.findall(path)[0] if _ENDING.search(path) else "none" for _, path, _ in entries)
    largest = sorted((entry for entry in entries if entry[2]), key=lambda entry: -entry[2])[:5]
    facts = [
        f"Listing: {counted(len(entries), 'entry', 'entries')}{f' in {folder}' if folder else ''}",
        *listed("Largest", [f"{middle_cut(path, 60)} {size:,.0f} :{number}" for number, path, size in largest], most=1),
        *listed("By folder", [f"{name} {count} :{first[name]}" for name, count in folders.most_common(12)], most=1),
        *listed("By ending", [f"{name} {count}" for name, count in endings.most_common(8)], most=1),
    ]
    return Kind(facts, quoted=frozenset(number for number, _, _ in entries), is_free=True)


def _is_path(line: str) -> bool:
    return "/" in line and " " not in line.strip().partition("/")[0] and _PATH.match(line.strip()) is not None
