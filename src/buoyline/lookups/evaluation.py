"""The program that evaluates an expression on documents, in a process of its own.

Parsing 64 MB of JSON holds the interpreter lock for half a second, and an expression that a model wrote may take any
time and any memory. A process can be ended, and its limits are the system's. Nothing of buoyline is imported here: it
would take longer than the work. That is why all of it is one file.

Run as ``python -I evaluation.py DIRECTORY EXPRESSION MAX_BYTES DESCRIPTOR...``, with the documents open for reading
under the descriptors, and the directory that jmespath is in. Writes the result; exit status 0, or 3 with what is wrong
in words.
"""

import contextlib
import csv
import io
import itertools
import json
import os
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Row = dict[str, Any]

HEADING = "heading"
"""Key under which a record has the first line of its paragraph, where that line is no ``key: value``."""

_WRONG = 3
_MEMORY_BYTES = 3 << 30
_SHOWN_KEYS = 20
_SHOWN_TABLES = 20
_MAX_COLUMNS = 1_000
_MAX_FIELD_CHARS = 64 << 20

# JMESPath could begin so as well, but not with a word behind it.
_SQL = re.compile(r"\s*(?:select|with)\s+[^\s|&=<>!]", re.IGNORECASE)
_READING = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, getattr(sqlite3, "SQLITE_RECURSIVE", 33)}
)
_LARGEST_INTEGER = 1 << 63
_NO_WORD = re.compile(r"\W")

_DELIMITERS = ("\t", ",", ";", "|")
_PAIR = re.compile(r"([^\W\d][\w .-]{0,60}(?:\([^()]{0,30}\))?)\s*:(?:\s+(.*))?")
_MARKS = re.compile(r"[#=*\s]+|[=*\s]+$")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,300})(?:\.[0-9]{1,300})?(?:[eE][+-]?[0-9]{1,2})?")


def main() -> int:
    """Evaluate what the arguments say; return the exit status."""
    directory, expression, max_bytes, *descriptors = sys.argv[1:]
    _limit_memory()
    try:
        documents = [_document(number, int(descriptor)) for number, descriptor in enumerate(descriptors, 1)]
        content = _joined(_pieces(directory, expression, documents), int(max_bytes))
    except MemoryError:
        content = "it takes too much memory; narrow the expression"
    except RecursionError:
        content = "the document or the expression is nested too deeply"
    except ValueError as error:  # jmespath's errors are some, too
        content = " ".join(str(error).split())
    else:
        sys.stdout.buffer.write(content.encode("utf-8", "backslashreplace"))
        return 0
    sys.stdout.buffer.write(content[:2_000].encode("utf-8", "backslashreplace"))
    return _WRONG


def _document(number: int, descriptor: int) -> Any:
    with os.fdopen(descriptor, "rb") as file:
        text = file.read().decode("utf-8-sig", "replace")
    try:
        return _parsed(text)
    except ValueError as error:
        raise ValueError(f"document {number}: {error}") from error


def _joined(pieces: Iterator[str], max_bytes: int) -> str:
    joined: list[str] = []
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > max_bytes:
            how = "narrow it, e.g. with [:10] or LIMIT 10, or ask for length(@) or count(*)"
            raise ValueError(f"the result has more than {max_bytes:,} bytes; {how}")
        joined.append(piece)
    return "".join(joined)


def _pieces(directory: str, expression: str, documents: Sequence[Any]) -> Iterator[str]:
    """Yield the result in pieces.

    Raises:
        ValueError: The expression is neither JMESPath nor SQL that can be run.
    """
    return _selected(expression, documents) if _SQL.match(expression) else _found(directory, expression, documents)


# --- JMESPath


def _found(directory: str, expression: str, documents: Sequence[Any]) -> Iterator[str]:
    sys.path.append(directory)
    import jmespath  # noqa: PLC0415 - the path to it is known only now

    compiled = jmespath.compile(expression)
    document = documents[0] if len(documents) == 1 else {f"t{n}": each for n, each in enumerate(documents, 1)}
    result = compiled.search(document)
    yield from json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(result)
    if result is None or result == []:
        yield f"\n{_shape(document)}"


def _shape(document: Any) -> str:
    """Say what there is instead of nothing."""
    if isinstance(document, dict):
        return f"nothing there; the document is an object with {len(document)} keys: {_keys(document)}"  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(document, list):
        first: Any = next(iter(document), None)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        of = f" objects with keys such as {_keys(first)}" if isinstance(first, dict) else ""  # pyright: ignore[reportUnknownArgumentType]
        return f"nothing there; the document is an array of {len(document)}{of}; begin with [0], or [*].key"  # pyright: ignore[reportUnknownArgumentType]
    return f"nothing there; the document is a {type(document).__name__}"


def _keys(document: Mapping[Any, Any]) -> str:
    return ", ".join(json.dumps(name)[:80] for name in itertools.islice(document, _SHOWN_KEYS))


# --- SQL


def _selected(statement: str, documents: Sequence[Any]) -> Iterator[str]:
    """Run *statement* over the tables of *documents*; yield names of columns and then rows, a JSON array a line."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_FIELD_CHARS)
        tables: dict[str, int] = {}
        for number, document in enumerate(documents, 1):
            for name, rows in _tables(f"t{number}", document):
                tables[name] = _load(database, name, rows)
        described = _described(database, tables)
        # From here on, nothing is written, attached or set, whatever the statement.
        database.set_authorizer(_permission)
        try:
            cursor = database.execute(statement)
            yield _line([name for name, *_ in cursor.description])
            count = 0
            for row in cursor:
                count += 1
                yield "\n" + _line(row)
        except (sqlite3.Error, sqlite3.Warning) as error:
            problem = "only what reads is allowed" if "authorized" in str(error) else f"SQLite says: {error}"
            raise ValueError(f"{problem}; there is {described}") from error
        if not count:
            yield f"\nno rows; there is {described}"


def _permission(action: int, *_: object) -> int:
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY


def _as_hex(blob: bytes) -> str:
    return blob.hex()


_line = json.JSONEncoder(ensure_ascii=False, default=_as_hex).encode


def _tables(name: str, document: Any) -> Iterator[tuple[str, list[Row]]]:
    """Yield tables for *document*: a list is one; an object is a row, and each list in it a table of its own."""
    if isinstance(document, list):
        yield name, [_as_row(each) for each in document]  # pyright: ignore[reportUnknownVariableType]
        return
    row = _as_row(document)
    yield name, [row]
    lists: dict[str, list[Any]] = {key: value for key, value in row.items() if isinstance(value, list)}
    for key, own in zip(lists, _distinct([_NO_WORD.sub("_", key) for key in lists]), strict=True):
        yield f"{name}_{own}", [_as_row(each) for each in lists[key]]


def _as_row(value: Any) -> Row:
    return value if isinstance(value, dict) else {"value": value}  # pyright: ignore[reportUnknownVariableType]


def _load(database: sqlite3.Connection, name: str, rows: Sequence[Row]) -> int:
    """Make table *name* of *rows*; return how many there are."""
    keys = list(dict.fromkeys(itertools.chain.from_iterable(rows))) or ["value"]
    if len(keys) > _MAX_COLUMNS:
        raise ValueError(f"{name} would have {len(keys):,} columns; use JMESPath, e.g. keys(@)")
    columns = ", ".join(map(_quoted, _distinct([_storable(key.replace("\0", "")) for key in keys])))
    database.execute(f"CREATE TABLE {_quoted(name)} ({columns})")
    values = ([_stored(row.get(key)) for key in keys] for row in rows)
    places = ", ".join("?" * len(keys))
    database.execute("BEGIN")
    database.executemany(f"INSERT INTO {_quoted(name)} VALUES ({places})", values)  # noqa: S608 - a quoted name
    database.execute("COMMIT")
    return len(rows)


def _distinct(keys: Sequence[str]) -> Iterator[str]:
    """Yield names of columns: SQL takes ``Id`` and ``id`` for the same."""
    taken: set[str] = set()
    for key in keys:
        names = itertools.chain([key], (f"{key}_{number}" for number in itertools.count(2)))
        name = next(name for name in names if name.lower() not in taken)
        taken.add(name.lower())
        yield name


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _storable(text: str) -> str:
    """Return *text* without lone surrogates, which SQLite does not take."""
    return text.encode("utf-8", "replace").decode()


def _stored(value: Any) -> Any:
    """Return *value* as SQLite takes it; what is nested as JSON, for its functions."""
    if isinstance(value, (dict, list)):
        return json.dumps(value)
    if isinstance(value, str):
        return _storable(value)
    if isinstance(value, int) and not -_LARGEST_INTEGER <= value < _LARGEST_INTEGER:
        return str(value)
    return value


def _described(database: sqlite3.Connection, tables: Mapping[str, int]) -> str:
    """Say which tables there are, with their columns."""
    return "; ".join(
        f"table {name} with {count:,} rows of "
        + ", ".join(column for _, column, *_ in database.execute(f"PRAGMA table_info({_quoted(name)})"))[:400]
        for name, count in itertools.islice(tables.items(), _SHOWN_TABLES)
    )


# --- Documents


def _parsed(text: str) -> Any:
    """Return what *text* holds: a JSON document, or of lines of JSON, a table or records the list of them.

    Raises:
        ValueError: It is nothing of this.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        problems = [f"the file is not JSON: {error}"]
    # Torn lines of JSON may well have the same number of commas each: they are no table.
    is_json = text.lstrip()[:1] in {"{", "["}
    readers: tuple[Callable[[str], list[Any]], ...] = (_json_lines, _table, _records)
    for reader in readers[:1] if is_json else readers:
        try:
            return reader(text)
        except ValueError as error:
            problems.append(str(error))
    raise ValueError("; ".join(problems))


def _json_lines(text: str) -> list[Any]:
    documents: list[Any] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            documents.append(json.loads(line))
        except ValueError as error:
            raise ValueError(f"nor JSON lines: line {number}: {error}") from error
    return documents


def _table(text: str) -> list[Row]:
    """Return the rows of CSV or TSV under the names in its first line; all have as many fields as that."""
    problem = "it has no first line with names of columns"
    for delimiter in _DELIMITERS:
        if delimiter not in text.partition("\n")[0]:
            continue
        try:
            return _rows(text, delimiter)
        except (ValueError, csv.Error) as error:
            problem = str(error)
    raise ValueError(f"nor a table such as CSV: {problem}")


def _rows(text: str, delimiter: str) -> list[Row]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    names = [name.strip() for name in next(reader)]
    if len(set(names)) < len(names) or not all(names):
        raise ValueError("the names of columns in its first line are not different")
    rows: list[Row] = []
    for fields in reader:
        if fields and len(fields) != len(names):
            raise ValueError(f"line {reader.line_num} has {len(fields)} fields, the first one {len(names)}")
        if fields:
            rows.append(dict(zip(names, fields, strict=True)))
    if not rows:
        raise ValueError("it has one line only")
    return _with_numbers(rows)


def _records(text: str) -> list[Row]:
    """Return paragraphs of ``key: value`` lines, as control files and many listings have them.

    The first line of a paragraph may be a heading. Lines that begin with a blank go on with the value above, a key
    that comes again makes a list, and a title above the first record is left out. Everything else is refused: a sum
    over records of which some are left out would be wrong and not look so.
    """
    rows: list[Row] = []
    numbered = enumerate(text.split("\n"), 1)
    for is_blank, lines in itertools.groupby(numbered, key=lambda line: not line[1].strip()):
        row = {} if is_blank else _record(list(lines), is_title_allowed=not rows)
        if row:
            rows.append(row)
    if len(rows) < 2:  # noqa: PLR2004 - one paragraph with a colon is prose
        raise ValueError("nor records of 'key: value' lines: it has fewer than two paragraphs of them")
    return _with_numbers(rows)


def _record(lines: Sequence[tuple[int, str]], *, is_title_allowed: bool) -> Row:
    """Return the record in the paragraph of *lines*; nothing for a title."""
    row: Row = {}
    newest = ""
    for place, (number, line) in enumerate(lines):
        pair = _PAIR.fullmatch(line.rstrip())
        if pair is not None:
            newest = pair[1].rstrip()
            _add(row, newest, pair[2] or "")
        elif place and newest and line[0] in " \t":
            row[newest] = f"{row[newest]}\n{line.strip()}" if isinstance(row[newest], str) else row[newest]
        elif place == 0 and (len(lines) > 1 or is_title_allowed):
            _add(row, HEADING, _MARKS.sub("", line, count=1).strip())
        else:
            raise ValueError(f"nor records of 'key: value' lines: line {number} is none")
    return row if newest else {}


def _add(row: Row, key: str, value: str) -> None:
    """Set *key*; where it is there already, it holds the list of its values."""
    if key in row:
        there = row[key]
        row[key] = [*there, value] if isinstance(there, list) else [there, value]
    else:
        row[key] = value


def _with_numbers(rows: list[Row]) -> list[Row]:
    """Return *rows* with numbers in place of text for each key under which all values are numbers or empty."""
    for key in dict.fromkeys(itertools.chain.from_iterable(rows)):
        holding = [row for row in rows if key in row]
        values = [row[key] for row in holding]
        if any(values) and all(isinstance(value, str) and (not value or _NUMBER.fullmatch(value)) for value in values):
            for row in holding:
                row[key] = json.loads(row[key]) if row[key] else None
    return rows


def _limit_memory() -> None:
    import resource  # noqa: PLC0415 - not on every system

    with contextlib.suppress(OSError, ValueError):  # a hint on macOS, which has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))


if __name__ == "__main__":
    csv.field_size_limit(_MAX_FIELD_CHARS)
    sys.exit(main())
