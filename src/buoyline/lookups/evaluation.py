"""The program that evaluates an expression on documents, in a process of its own.

Parsing 64 MB of JSON holds the interpreter lock for half a second, and an expression that a model wrote may take any
time and any memory. A process can be ended, and the system limits it. This is one file without imports of buoyline,
since importing it would take longer than the work.

Run as ``python -I evaluation.py JMESPATH RE2 MAX_BYTES MAX_SECONDS EXPRESSION (BYTES NAME)...``: the directories of the
two packages, empty for one that is missing, and for each document its size and its name. Reads the documents, one after
the other, from its standard input. Writes the result with exit status 0, or an error message with exit status 3.
SIGXCPU ends a process that takes more processor time.
"""

import contextlib
import csv
import functools
import importlib
import io
import itertools
import json
import math
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Row = dict[str, Any]

HEADING = "heading"
"""The key of a record's heading: the first line of its paragraph, if that is not ``key: value``."""

FIELDS = "_fields"
"""The key under which a row of a table has its fields as in the file, if they do not fit the first line."""

_WRONG = 3
_MAX_ERROR_CHARS = 2_000
_MEMORY_BYTES = 3 << 30
_SHOWN_KEYS = 20
_SHOWN_TABLES = 20
_MAX_COLUMNS = 1_000
_MAX_FIELD_CHARS = 64 << 20

# JMESPath can begin with the same word, but not with another word after it.
_SQL = re.compile(r"\s*(?:select|with)\s+[^\s|&=<>!]", re.IGNORECASE)
_READING = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, getattr(sqlite3, "SQLITE_RECURSIVE", 33)}
)
_LARGEST_INTEGER = 1 << 63
_NO_WORD = re.compile(r"\W")
_LINES = "lines"
_WORDS = re.compile(r"\w+")
# Tokens of SQLite that may hold a double quote, and names in double quotes.
_QUOTING = re.compile(r"'[^']*'|`[^`]*`|\[[^\]]*\]|--[^\n]*|/\*.*?(?:\*/|\Z)|\"((?:[^\"]|\"\")*)\"", re.DOTALL)

_DELIMITERS = ("\t", ",", ";", "|")
_PAIR = re.compile(r"([^\W\d][\w .-]{0,60}(?:\([^()]{0,30}\))?)\s*:(?:\s+(.*))?")
# In prose with commas most lines have another number of commas than the first: it is not a table.
_ROWS_PER_ODD = 50
_LEAST_WHOLE_ROWS = 2
_SHOWN_ODD = 5
_MARKS = re.compile(r"[#=*\s]+|[=*\s]+$")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,300})(?:\.[0-9]{1,300})?(?:[eE][+-]?[0-9]{1,2})?")


class QueriedFile(NamedTuple):
    """A file: its path relative to the workdir, and its text."""

    name: str
    text: str


class Document(NamedTuple):
    """The parsed content of a file, and a note about it, usually empty."""

    value: Any
    note: str = ""


def main() -> int:
    """Evaluate the expression in the arguments; return the exit status."""
    jmespath_home, re2_home, max_bytes, max_s, expression, *files = sys.argv[1:]
    sys.path += [home for home in (jmespath_home, re2_home) if home]  # an empty one would be the current directory
    _limit_memory()
    try:
        sources: list[QueriedFile] = []
        for size_bytes, name in zip(files[::2], files[1::2], strict=True):
            content = sys.stdin.buffer.read(int(size_bytes))
            sources.append(QueriedFile(name, content.decode("utf-8-sig", "replace")))
        evaluated = _selected if _SQL.match(expression) else _found
        result, status = _joined(evaluated(expression, sources, float(max_s)), int(max_bytes)), 0
    except MemoryError:
        result, status = "it takes too much memory; narrow the expression", _WRONG
    except RecursionError:
        result, status = "it or its result is nested too deeply", _WRONG
    except ValueError as error:  # the errors of jmespath included
        result, status = " ".join(str(error).split())[:_MAX_ERROR_CHARS], _WRONG
    sys.stdout.buffer.write(result.encode("utf-8", "backslashreplace"))
    return status


def _document(number: int, text: str) -> Document:
    try:
        return _parsed(text)
    except ValueError as error:
        raise ValueError(f"document {number}: {error}") from error
    except RecursionError as error:
        raise ValueError(f"document {number}: the file is nested too deeply") from error


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


# --- JMESPath


def _found(expression: str, sources: Sequence[QueriedFile], max_s: float) -> Iterator[str]:
    try:
        import jmespath  # noqa: PLC0415 - the path to it is known only now
    except ImportError:
        problem = "needs the extra 'query'. SQL needs nothing: SELECT * FROM t1 LIMIT 10"
        raise ValueError(problem) from None

    compiled = jmespath.compile(expression)
    documents = [_document(number, source.text) for number, source in enumerate(sources, 1)]
    document = documents[0].value if len(documents) == 1 else {f"t{n}": d.value for n, d in enumerate(documents, 1)}
    _limit_time(max_s)
    result = compiled.search(document)
    yield from json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(result)
    if result is None or result == []:
        yield f"\n{_shape(document)}"
    yield from _notes(documents)


def _notes(documents: Sequence[Document]) -> Iterator[str]:
    return (f"\nnote: t{number}: {document.note}" for number, document in enumerate(documents, 1) if document.note)


def _shape(document: Any) -> str:
    """Describe the document, for an empty result."""
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


def _selected(statement: str, sources: Sequence[QueriedFile], max_s: float) -> Iterator[str]:
    """Run *statement* over the tables of *sources*; yield names of columns and then rows, a JSON array a line.

    Table ``lines`` is there if the statement names it. What it does not name is then not parsed: a log is not a table.
    """
    words = set(_WORDS.findall(statement.lower()))
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_FIELD_CHARS)
        tables = {_LINES: _load_lines(database, sources)} if _LINES in words else {}
        documents: list[Document] = []
        for number, source in enumerate(sources, 1):
            is_named = any(re.fullmatch(f"t{number}(_.*)?", word) for word in words)
            documents.append(_document(number, source.text) if is_named or not tables else Document([]))
            for name, rows in _tables(f"t{number}", documents[-1].value) if is_named or _LINES not in words else ():
                tables[name] = _load(database, name, rows)
        described = _described(database, tables)
        expressions = _Expressions(database)
        # These make their virtual tables at first use, which counts as writing.
        database.execute("SELECT 1 FROM json_each('[]'), json_tree('[]')")
        # From here on, nothing is written, attached or set, whatever the statement.
        database.set_authorizer(_permission)
        _limit_time(max_s)
        try:
            count = yield from _rows_of(database, statement)
        except (sqlite3.Error, sqlite3.Warning) as error:
            problem = "only what reads is allowed" if "authorized" in str(error) else f"SQLite says: {error}"
            if "no such column" in str(error) and '"' in statement:
                problem += " (double quotes are for names, single quotes for text)"
            raise ValueError(f"{expressions.problem or problem}; there is {described}") from error
        if not count:
            yield f"\nno rows; there is {described}"
    yield from _notes(documents)


def _rows_of(database: sqlite3.Connection, statement: str) -> Generator[str, None, int]:
    """Yield the names of columns and the rows, a JSON array a line; return how many rows there are."""

    def as_name(token: re.Match[str]) -> str:
        """Return a name in double quotes in backquotes, which SQLite never takes for quotes of a text."""
        return token[0] if token[1] is None else "`" + token[1].replace('""', '"').replace("`", "``") + "`"

    named = _QUOTING.sub(as_name, statement)
    if named != statement:
        # A misspelt column in double quotes is text to SQLite: the answer would be wrong and not look so.
        database.execute(f"EXPLAIN {named}")
    cursor = database.execute(statement)
    yield _line([name for name, *_ in cursor.description])
    count = 0
    for row in cursor:
        count += 1
        yield "\n" + _line(row)
    return count


class _Expressions:
    """Regular expressions for SQL: ``text REGEXP pattern`` and ``regexp_extract(text, pattern, group)``.

    RE2 matches them in linear time. *problem* is the error in one of them, if any: SQLite does not say what a function
    raised.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self.problem = ""
        database.create_function("regexp", 2, self._matches, deterministic=True)
        for arguments in (2, 3):
            database.create_function("regexp_extract", arguments, self._extracted, deterministic=True)

    def _matches(self, pattern: Any, text: Any) -> bool | None:
        if pattern is None or text is None:
            return None
        return self._compiled(str(pattern)).search(str(text).encode()) is not None

    def _extracted(self, text: Any, pattern: Any, group: int | None = None) -> str | None:
        """Return the match of *group*, by default the first group or else the whole match; None without a match."""
        if pattern is None or text is None:
            return None
        compiled = self._compiled(str(pattern))
        group = min(compiled.groups, 1) if group is None else group
        if not isinstance(group, int) or not 0 <= group <= compiled.groups:
            self.problem = f"regexp_extract: the pattern has {compiled.groups} groups, and {group!r} is none of them"
            raise ValueError(self.problem)
        match = compiled.search(str(text).encode())
        found = None if match is None else match.group(group)
        return None if found is None else found.decode("utf-8", "replace")

    @functools.lru_cache(maxsize=100)  # noqa: B019 - the process ends with the expression
    def _compiled(self, pattern: str) -> Any:
        re2: Any = importlib.import_module("re2")  # the path to it is known only now
        options = re2.Options()
        options.log_errors = False
        try:
            return re2.compile(pattern.encode(), options)
        except re2.error as error:
            reason = b"".join(part for part in error.args if isinstance(part, bytes)).decode("utf-8", "replace")
            self.problem = f"the pattern {pattern[:80]!r} is not RE2 syntax: {reason}"
            raise


def _load_lines(database: sqlite3.Connection, sources: Sequence[QueriedFile]) -> int:
    """Make table ``lines`` of all *sources*, with the line numbers of `read`; return the number of lines."""
    database.execute(f"CREATE TABLE {_LINES} (path, n, text)")
    database.execute("BEGIN")
    for name, text in sources:
        lines = text.removesuffix("\n").split("\n") if text else []
        rows = ((name, number, line.removesuffix("\r")) for number, line in enumerate(lines, 1))
        database.executemany(f"INSERT INTO {_LINES} VALUES (?, ?, ?)", rows)  # noqa: S608 - our own name
    database.execute("COMMIT")
    return int(database.execute(f"SELECT count(*) FROM {_LINES}").fetchone()[0])  # noqa: S608 - our own name


def _permission(action: int, *_: object) -> int:
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY


_line = json.JSONEncoder(ensure_ascii=False, default=bytes.hex).encode


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
    """Make table *name* of *rows*; return their number."""
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
    """Yield distinct names of columns: to SQL ``Id`` and ``id`` are the same."""
    taken: set[str] = set()
    for key in keys:
        names = itertools.chain([key], (f"{key}_{number}" for number in itertools.count(2)))
        name = next(name for name in names if name.lower() not in taken)
        taken.add(name.lower())
        yield name


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _storable(text: str) -> str:
    """Return *text* without lone surrogates, which SQLite refuses."""
    return text.encode("utf-8", "replace").decode()


def _stored(value: Any) -> Any:
    """Return *value* for SQLite; nested values as JSON, for its functions."""
    if isinstance(value, (dict, list)):
        return json.dumps(value)
    if isinstance(value, str):
        return _storable(value)
    if isinstance(value, int) and not -_LARGEST_INTEGER <= value < _LARGEST_INTEGER:
        return str(value)
    return value


def _described(database: sqlite3.Connection, tables: Mapping[str, int]) -> str:
    return "; ".join(
        f"table {name} with {count:,} rows of "
        + ", ".join(column for _, column, *_ in database.execute(f"PRAGMA table_info({_quoted(name)})"))[:400]
        for name, count in itertools.islice(tables.items(), _SHOWN_TABLES)
    )


# --- Documents


def _parsed(text: str) -> Document:
    """Return the JSON document in *text*, or the list of its JSON lines, rows or records; else raise ValueError."""
    try:
        return Document(json.loads(text))
    except ValueError as error:
        problems = [f"the file is not JSON: {error}"]
    # Torn lines of JSON may have the same number of commas each and are not a table.
    is_json = text.lstrip()[:1] in {"{", "["}
    readers: tuple[Callable[[str], Document], ...] = (_json_lines, _table, _records)
    for reader in readers[:1] if is_json else readers:
        try:
            return reader(text)
        except ValueError as error:
            problems.append(str(error))
    raise ValueError("; ".join(problems))


def _json_lines(text: str) -> Document:
    documents: list[Any] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            documents.append(json.loads(line))
        except ValueError as error:
            raise ValueError(f"nor JSON lines: line {number}: {error}") from error
    return Document(documents)


def _table(text: str) -> Document:
    """Return the rows of CSV or TSV; nearly all have as many fields as the first line has names."""
    problem = "it has no first line with names of columns"
    for delimiter in _DELIMITERS:
        if delimiter not in text.partition("\n")[0]:
            continue
        try:
            return _rows(text, delimiter)
        except (ValueError, csv.Error) as error:
            problem = str(error)
    raise ValueError(f"nor a table such as CSV: {problem}")


def _rows(text: str, delimiter: str) -> Document:
    """Return the rows of a table. A few lines of another form are kept and named, so a torn line costs nothing else.

    Such a row has the fields that fit under the names of the first line, null for the others, and all under `FIELDS`.

    Raises:
        ValueError: Too many lines have another form.
    """
    lines = _fields(text, delimiter)
    _, heading, _ = next(lines)
    names = [name.strip() for name in heading]
    if len(set(names)) < len(names) or not all(names):
        raise ValueError("the names of columns in its first line are not different")
    rows: list[Row] = []
    odd: dict[str, Row] = {}
    for number, fields, is_broken in lines:
        row: Row = dict(zip(names, fields, strict=False))
        if is_broken or len(fields) != len(names):
            count = f"{len(fields)} field{'' if len(fields) == 1 else 's'}"
            odd[f"line {number} has {'broken quotes' if is_broken else count}"] = row
            row |= {**dict.fromkeys(names[len(fields) :]), FIELDS: fields}
        rows.append(row)
    if not rows:
        raise ValueError("it has one line only")
    if odd and (len(rows) - len(odd) < _LEAST_WHOLE_ROWS or len(odd) > 1 + len(rows) // _ROWS_PER_ODD):
        raise ValueError(f"{next(iter(odd))}, the first one {len(names)}")
    note = f"{len(odd)} of {len(rows)} rows are kept although {', '.join(itertools.islice(odd, _SHOWN_ODD))}"
    note += f"{' and so on' if len(odd) > _SHOWN_ODD else ''}; the first line has {len(names)}"
    return Document(_with_numbers(rows, odd.values()), note if odd else "")


def _fields(text: str, delimiter: str) -> Iterator[tuple[int, list[str], bool]]:
    """Yield number and fields of the lines of a table that are not blank, and whether their quotes are broken.

    A last line that is cut may have broken quotes. Raises csv.Error if many lines follow a quote that is not closed.
    """
    newest = [""]

    def lines() -> Iterator[str]:
        for newest[0] in io.StringIO(text, newline=""):
            yield newest[0]

    reader = csv.reader(lines(), delimiter=delimiter, strict=True)
    number = 0
    while True:
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error:
            if reader.line_num > number + 1:
                raise
            yield reader.line_num, next(csv.reader(newest, delimiter=delimiter)), True
        else:
            if fields:
                yield reader.line_num, fields, False
        number = reader.line_num


def _records(text: str) -> Document:
    """Return paragraphs of ``key: value`` lines, as control files and many listings have them.

    The first line of a paragraph may be a heading. A line that begins with a blank continues the value above, a
    repeated key makes a list, and a title above the first record is left out. Any other text is refused: a sum over
    some of the records would be wrong without looking wrong.
    """
    rows: list[Row] = []
    numbered = enumerate(text.split("\n"), 1)
    for is_blank, lines in itertools.groupby(numbered, key=lambda line: not line[1].strip()):
        row = {} if is_blank else _record(list(lines), is_title_allowed=not rows)
        if row:
            rows.append(row)
    if len(rows) < 2:  # noqa: PLR2004 - one paragraph with a colon is prose
        raise ValueError("nor records of 'key: value' lines: it has fewer than two paragraphs of them")
    return Document(_with_numbers(rows))


def _record(lines: Sequence[tuple[int, str]], *, is_title_allowed: bool) -> Row:
    """Return the record in the paragraph of *lines*; an empty one for a title."""
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
            raise ValueError(f"nor records of 'key: value' lines: line {number} is not one")
    return row if newest else {}


def _add(row: Row, key: str, value: str) -> None:
    """Set *key*; a key that is there already gets a list of its values."""
    if key in row:
        there = row[key]
        row[key] = [*there, value] if isinstance(there, list) else [there, value]
    else:
        row[key] = value


def _with_numbers(rows: list[Row], odd: Collection[Row] = ()) -> list[Row]:
    """Return *rows* with numbers instead of text for each key whose values are all numbers or empty.

    The rows in *odd* do not count for that and get null instead of text, which SQL's max takes for more than any
    number.
    """
    passed_over = set(map(id, odd))
    for key in dict.fromkeys(itertools.chain.from_iterable(rows)):
        holding = [row for row in rows if key in row]
        values = [row[key] for row in holding if id(row) not in passed_over]
        if any(values) and all(isinstance(value, str) and (not value or _NUMBER.fullmatch(value)) for value in values):
            for row in holding:
                row[key] = json.loads(row[key]) if row[key] and _NUMBER.fullmatch(row[key]) else None
    return rows


def _limit_memory() -> None:
    import resource  # noqa: PLC0415 - not on every system

    with contextlib.suppress(OSError, ValueError):  # a hint on macOS, which has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))


def _limit_time(max_s: float) -> None:
    """End this process by SIGXCPU once it has had *max_s* more seconds of a processor."""
    import resource  # noqa: PLC0415 - not on every system

    end_s = math.ceil(time.process_time() + max_s)
    with contextlib.suppress(OSError, ValueError):  # a lower limit is in force already
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        resource.setrlimit(resource.RLIMIT_CPU, (end_s, resource.getrlimit(resource.RLIMIT_CPU)[1]))


if __name__ == "__main__":
    csv.field_size_limit(_MAX_FIELD_CHARS)
    sys.exit(main())
