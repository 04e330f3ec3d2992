"""Tables: rows of fields between commas, tabs, semicolons or bars."""

import csv
import re
from collections import Counter
from collections.abc import Sequence

from buoyline.previews.digest import Digest, Finding
from buoyline.previews.outliers import ColumnValue, column_outliers
from buoyline.previews.source import visible

_DELIMITERS = ",\t;|"
_SAMPLED_LINES = 40
_LEAST_ROWS = 4
_MOST = 0.9
_MAX_CELLS = 300_000
_MAX_FIELD_CHARS = 1 << 17
_MAX_FINDINGS = 24
_MAX_RAGGED = 8
_SHOWN_COLUMNS = 24
_SHOWN_CHARS = 24
_SHORT_ROW_CHARS = 40
_STAMP = re.compile(r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d,\d{3}\b")


def table_digest(lines: Sequence[str]) -> Digest | None:
    """Read *lines* as a table: its columns, and outliers among its rows and values.

    Returns:
        None if the first lines are not rows of equally many fields.
    """
    delimiter = _delimiter_of(lines[:_SAMPLED_LINES])
    if delimiter is None:
        return None
    numbers, rows = _rows(lines, delimiter)
    if len(rows) < _LEAST_ROWS:
        return None
    widths = list(map(len, rows))
    counts = Counter(widths)
    width = counts.most_common(1)[0][0]
    even = [row for row in rows if len(row) == width]
    if width < 2 or len(even) < _MOST * len(rows):  # noqa: PLR2004 - one field is no table
        return None
    has_header = _is_header(even)
    names = even[0] if has_header else [f"column {place}" for place in range(1, width + 1)]
    placed = [number for number, fields in zip(numbers, widths, strict=True) if fields == width]
    ragged = [(number, fields) for number, fields in zip(numbers, widths, strict=True) if fields != width]
    ragged.sort(key=lambda row: (counts[row[1]], row[0]))
    findings = [
        Finding(number, 93.0 if counts[fields] <= _MAX_RAGGED // 2 else 60.0, note=f"{fields} fields, others {width}")
        for number, fields in ragged[:_MAX_RAGGED]
    ]
    first = 1 if has_header else 0
    for name, cells in zip(names, zip(*even[first:], strict=True), strict=False):
        for outlier in column_outliers(_column(cells)):
            # A row may be cut before the cell.
            is_long = sum(map(len, even[first + outlier.place])) > _SHORT_ROW_CHARS
            cell = f' "{_word(cells[outlier.place])}"' if is_long else ""
            note = f"{_word(name)}{cell}: {outlier.reason}"
            findings.append(Finding(placed[first + outlier.place], outlier.weight, note=note))
    findings.sort(key=lambda found: -found.weight)
    shown = ", ".join(map(_word, names[:_SHOWN_COLUMNS])) + (", ..." if width > _SHOWN_COLUMNS else "")
    head = [Finding(placed[0], 96.0)] if has_header else []
    fact = f"Table: {len(rows) - has_header:,} rows, {width} columns: {shown}"
    return Digest((fact,), (*head, *findings[:_MAX_FINDINGS]))


def is_table(lines: Sequence[str]) -> bool:
    """Check whether the first lines are rows of equally many fields."""
    return _delimiter_of(lines[:_SAMPLED_LINES]) is not None


def _delimiter_of(sample: Sequence[str]) -> str | None:
    rows = [line for line in sample if line.strip()]
    if len(rows) < _LEAST_ROWS:
        return None
    best, share = None, _MOST
    for delimiter in _DELIMITERS:
        if sum(delimiter in row for row in rows) <= share * len(rows):
            continue  # fewer rows than that have two fields
        widths = Counter(map(len, _rows(rows, delimiter)[1]))
        width, count = max(widths.items(), key=lambda found: found[1], default=(0, 0))
        if width > 1 and count / len(rows) > share:
            best, share = delimiter, count / len(rows)
    # The comma of a time with milliseconds is in every line of a log.
    is_log = best == "," and sum(_STAMP.match(row) is not None for row in rows) > share * len(rows) / 2
    return None if is_log else best


def _rows(lines: Sequence[str], delimiter: str) -> tuple[list[int], list[tuple[str, ...]]]:
    """Return the first line numbers and the fields of the rows that are not empty."""
    csv.field_size_limit(_MAX_FIELD_CHARS)
    has_nul = any("\0" in line for line in lines)
    reader = csv.reader([line.replace("\0", "") for line in lines] if has_nul else lines, delimiter=delimiter)
    # Two lists and no pairs, and tuples of texts: the garbage collector, which stops an event loop, skips those.
    numbers, rows, first, cells = list[int](), list[tuple[str, ...]](), 1, 0
    while cells < _MAX_CELLS:
        try:
            row = next(reader, None)
        except csv.Error:  # a quotation that does not end, or a carriage return within a line
            row = []
        if row is None:
            break
        if any(row):
            numbers.append(first)
            rows.append(tuple(row))
            cells += len(row)
        first = reader.line_num + 1
    return numbers, rows


def _is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Check for a header: a first row without numbers, above numbers or with words that no other row has."""
    first = rows[0]
    if any(isinstance(_value(cell), float) for cell in first) or len(set(first)) < len(first):
        return False
    has_numbers = any(isinstance(_value(cell), float) for row in rows[1:20] for cell in row)
    return has_numbers or not any(cell in first for row in rows[1:] for cell in row)


def _column(cells: Sequence[str]) -> Sequence[ColumnValue]:
    """Return the values of a column; in a column of texts, a numeral is a text as well."""
    try:
        return list(map(float, cells))
    except ValueError:
        value_of = {cell: _value(cell) for cell in set(cells)}
        values = [value_of[cell] for cell in cells]
    return values if 2 * list(map(type, values)).count(float) >= len(values) else cells


def _value(cell: str) -> ColumnValue:
    try:
        return float(cell)
    except ValueError:
        return cell


def _word(name: str) -> str:
    return visible(name[:_SHOWN_CHARS]).replace("\n", " ")
