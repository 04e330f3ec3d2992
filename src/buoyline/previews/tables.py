"""Tables: rows of fields between commas, tabs, semicolons or bars."""

import csv
from collections import Counter
from collections.abc import Iterator, Sequence

from buoyline.previews.digest import Digest, Finding
from buoyline.previews.outliers import ColumnValue, column_outliers
from buoyline.previews.source import visible

_DELIMITERS = ",\t;|"
_SAMPLED_LINES = 40
_LEAST_ROWS = 4
_MOST = 0.9
_MAX_CELLS = 600_000
_MAX_FIELD_CHARS = 1 << 17
_MAX_FINDINGS = 24
_MAX_RAGGED = 8
_SHOWN_COLUMNS = 24
_SHOWN_CHARS = 24


def table_digest(lines: Sequence[str]) -> Digest | None:
    """Read *lines* as a table: its columns, and outliers among its rows and values.

    Returns:
        None if the first lines are not rows of equally many fields.
    """
    delimiter = _delimiter_of(lines[:_SAMPLED_LINES])
    if delimiter is None:
        return None
    rows = list(_rows(lines, delimiter))
    if len(rows) < _LEAST_ROWS:
        return None
    width = Counter(len(row) for _, row in rows).most_common(1)[0][0]
    even = [(number, row) for number, row in rows if len(row) == width]
    if width < 2 or len(even) < _MOST * len(rows):  # noqa: PLR2004 - one field is no table
        return None
    has_header = _is_header(even)
    names = even[0][1] if has_header else [f"column {place}" for place in range(1, width + 1)]
    body = even[1:] if has_header else even
    findings = [*_ragged(rows, width), *_odd_cells(body, names)]
    shown = ", ".join(map(_word, names[:_SHOWN_COLUMNS])) + (", ..." if width > _SHOWN_COLUMNS else "")
    head = [Finding(even[0][0], 96.0)] if has_header else []
    fact = f"Table: {len(rows) - has_header:,} rows, {width} columns: {shown}"
    return Digest((fact,), (*head, *sorted(findings, key=lambda found: -found.weight)[:_MAX_FINDINGS]))


def _delimiter_of(sample: Sequence[str]) -> str | None:
    rows = [line for line in sample if line.strip()]
    if len(rows) < _LEAST_ROWS:
        return None
    best, share = None, _MOST
    for delimiter in _DELIMITERS:
        widths = Counter(len(row) for _, row in _rows(rows, delimiter))
        width, count = max(widths.items(), key=lambda found: found[1], default=(0, 0))
        if width > 1 and count / len(rows) > share:
            best, share = delimiter, count / len(rows)
    return best


def _rows(lines: Sequence[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line number and the fields of each row that is not empty."""
    csv.field_size_limit(_MAX_FIELD_CHARS)
    reader = csv.reader((f"{line}\n".replace("\0", "") for line in lines), delimiter=delimiter)
    first, cells = 1, 0
    while cells < _MAX_CELLS:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error:  # a quotation that does not end, or a carriage return within a line
            row = []
        if any(row):
            yield first, row
            cells += len(row)
        first = reader.line_num + 1


def _is_header(rows: Sequence[tuple[int, list[str]]]) -> bool:
    """Check for a header: a first row without numbers, above numbers or with words that no other row has."""
    first = rows[0][1]
    if any(isinstance(_value(cell), float) for cell in first) or len(set(first)) < len(first):
        return False
    has_numbers = any(isinstance(_value(cell), float) for _, row in rows[1:20] for cell in row)
    return has_numbers or not any(cell in first for _, row in rows[1:] for cell in row)


def _ragged(rows: Sequence[tuple[int, list[str]]], width: int) -> Iterator[Finding]:
    ragged = [(number, len(row)) for number, row in rows if len(row) != width]
    counts = Counter(fields for _, fields in ragged)
    ragged.sort(key=lambda row: (counts[row[1]], row[0]))
    for number, fields in ragged[:_MAX_RAGGED]:
        weight = 93.0 if counts[fields] <= _MAX_RAGGED // 2 else 60.0
        yield Finding(number, weight, note=f"{fields} fields, others {width}")


def _odd_cells(rows: Sequence[tuple[int, list[str]]], names: Sequence[str]) -> Iterator[Finding]:
    for place, name in enumerate(names):
        for outlier in column_outliers(_column([row[place] for _, row in rows])):
            yield Finding(rows[outlier.place][0], outlier.weight, note=f"{_word(name)}: {outlier.reason}")


def _column(cells: Sequence[str]) -> Sequence[ColumnValue]:
    """Return the values of a column; in a column of texts, a numeral is a text as well."""
    values = [_value(cell) for cell in cells]
    are_numbers = 2 * sum(isinstance(value, float) for value in values) >= len(values)
    return values if are_numbers else cells


def _value(cell: str) -> ColumnValue:
    try:
        return float(cell)
    except ValueError:
        return cell


def _word(name: str) -> str:
    return visible(name[:_SHOWN_CHARS]).replace("\n", " ")
