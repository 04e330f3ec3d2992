"""Tables: rows of fields with commas or tabs between them."""

import csv
import re
from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from typing import Final

from buoyline.previews.odd import odd_values
from buoyline.previews.rows import Kind, Row, shortened

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
