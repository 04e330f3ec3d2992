"""Which passages hold which words, in an SQLite file beside the sessions, so that `search` reads few passages.

The file is a cache. Each question first adds the files that are new, have grown or have changed. Whoever removes the
file loses nothing: the next question makes it again. If it cannot be used, `search` reads all files.

It holds the words of passages and the places of these, but no text: passages are read from their files and counted
there, so that an answer never says what no file holds. Source: docs/format.md, ".search".
"""

import codecs
import errno
import hashlib
import json
import logging
import math
import sqlite3
import stat
import sys
from bisect import bisect
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import Final, Literal, NamedTuple

from buoyline.errors import StorageError
from buoyline.lookups.hits import Deadline
from buoyline.lookups.passages import MAX_CHUNK_CHARS, Chunk, Words, chunks_of, size_bytes_of, terms_of
from buoyline.lookups.read import description_of
from buoyline.lookups.sources import Texts
from buoyline.workspace import Files, layout
from buoyline.workspace.files import CHUNK_BYTES, Version, version_of

LEAST_BYTES: Final = 4 << 20
"""Of all files that are searched. Fewer are read in about 0.2 s, and need no index."""

MAX_READ: Final = 500
"""Passages that are read for one question. If more hold a word, those with the most and the rarest words are read."""

_MOST_RANKED = 30_000
"""Places of words that are compared for that, in about 20 ms; more frequent words say little about a passage."""

_SCHEMA_VERSION = 2
_SCHEMA = f"""
CREATE TABLE files (
    id INTEGER PRIMARY KEY, path TEXT UNIQUE, version TEXT, state TEXT, end INTEGER, tail BLOB, last INTEGER,
    passages INTEGER, chars INTEGER
);
CREATE TABLE passages (
    id INTEGER PRIMARY KEY, file INTEGER, offset INTEGER, size INTEGER, number INTEGER, column INTEGER
);
CREATE INDEX passages_of_files ON passages (file);
CREATE VIRTUAL TABLE words USING fts5 (terms, content = '', columnsize = 0, detail = none, tokenize = 'ascii');
PRAGMA user_version = {_SCHEMA_VERSION};
"""

_WHOLE, _PARTIAL, _UNINDEXED = "whole", "partial", "unindexed"
_MOST_FORMS = 100
"""Terms with one beginning that are looked up one by one. FTS5 first reads all places of all terms with a beginning."""

_SAMPLE = 1_000
"""Passages that hold a word. If more do, these are the first and the last ones, and those between are estimated."""

_BATCH = 2_000
_MAX_CHUNK_BYTES = 4 * MAX_CHUNK_CHARS
_TAIL_BYTES = 4_096
_REMOVED = 0
"""Passages of this file are in the table of words for ever, and found no more."""
_MOST_REMOVED_SHARE = 0.5
_BUSY_TIMEOUT_S = 0.2

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class IndexedPassages:
    """What the index knows of a question.

    Attributes:
        files: The files that are indexed; all others must be read. They have *passages* with *chars* characters.
        read: Passages that hold a word, by file and in its order, with how often they hold each word.
        unread: How many passages hold a word and were not read.
        unread_holding: How many of those hold a word, by its position in `Words.texts`; about.
        stopped_in: The file in which the time was up; empty if all files are indexed.
    """

    files: Collection[str] = ()
    read: dict[str, list[tuple[Chunk, Mapping[int, float]]]] = field(
        default_factory=dict[str, list[tuple[Chunk, Mapping[int, float]]]]
    )
    passages: int = 0
    chars: int = 0
    unread: int = 0
    unread_holding: dict[int, int] = field(default_factory=dict[int, int])
    stopped_in: str = ""


def indexed_passages(texts: Texts, paths: Sequence[str], words: Words, deadline: Deadline) -> IndexedPassages:
    """Return the passages of *paths* that hold a word, with the files that are indexed.

    *paths* are whole files, in search order; a name that is no file is not indexed. At *deadline* no more are added.

    Raises:
        StorageError: A file is gone.
    """
    files = texts.files
    spelled = (path for path in paths if path == path.encode("utf-8", "replace").decode("utf-8"))  # not so on all disks
    regular = ((path, status) for path in spelled if (status := files.status(path)) and stat.S_ISREG(status.st_mode))
    versions = {path: version_of(status) for path, status in regular}
    if sum(size for _, size, *_ in versions.values()) < LEAST_BYTES:
        return IndexedPassages()
    path = files.cache_path(layout.SEARCH_INDEX)
    if path is None:
        return IndexedPassages()
    try:
        with closing(sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None)) as database:
            index = _SearchIndex(database, texts)
            stopped_in = index.update(versions, deadline)
            found = index.find(versions, words)
            found.stopped_in = stopped_in
            return found
    except StorageError as error:
        if error.errno == errno.ENOENT:
            raise
        logger.debug("the index of words is not used: %s", error)
    except sqlite3.OperationalError as error:  # in use, read-only, a full disk, or SQLite without FTS5
        logger.debug("the index of words is not used: %s", error)
        if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_FULL) == sqlite3.SQLITE_FULL:  # none: not from SQLite
            files.remove_cache(layout.SEARCH_INDEX)
    except sqlite3.DatabaseError as error:
        logger.warning("the index of words is damaged (%s): the next search makes it again", error)
        files.remove_cache(layout.SEARCH_INDEX)
    return IndexedPassages()


class _IndexedFile(NamedTuple):
    """A file in the index, as it was when it was read.

    *state* says whether all of it is indexed, a part, or nothing since it is not text in UTF-8. *end* is behind the
    last byte that was read, and *tail* a hash of the bytes before. It has *passages* with *chars* characters; the
    number of the last one is *last*, or 0.
    """

    number: int
    version: str
    state: str
    end: int
    tail: bytes
    last: int
    passages: int
    chars: int


class _SearchIndex:
    """The index of words, open."""

    def __init__(self, database: sqlite3.Connection, texts: Texts) -> None:
        self._database = database
        self._texts = texts
        self._files = texts.files
        database.execute("PRAGMA trusted_schema = OFF")  # others may write into the workspace
        if _number(database.execute("PRAGMA user_version")) != _SCHEMA_VERSION:
            database.executescript(
                "DROP TABLE IF EXISTS files; DROP TABLE IF EXISTS passages; DROP TABLE IF EXISTS words;" + _SCHEMA
            )

    def update(self, versions: Mapping[str, Version], deadline: Deadline) -> str:
        """Add what is new in files; return the one in which the time was up, or nothing."""
        if not self._changed(versions):
            return ""
        self._database.execute("BEGIN IMMEDIATE")
        with self._database:
            self._forget_removed_files(versions)
            for path in self._changed(versions):  # another process may have added some
                if not self._add(path, versions[path], deadline) or deadline.is_over():
                    return path
        return ""

    def _changed(self, versions: Mapping[str, Version]) -> list[str]:
        known = self._known(versions)
        return [
            path
            for path, version in versions.items()
            if path not in known or known[path].state == _PARTIAL or known[path].version != json.dumps(version)
        ]

    def _known(self, paths: Iterable[str]) -> dict[str, _IndexedFile]:
        """Return those of *paths* that are in the index, in the order given."""
        rows = self._database.execute(
            "SELECT files.path, files.id, version, state, end, tail, last, passages, chars "
            "FROM json_each(?) AS wanted JOIN files ON files.path = wanted.value ORDER BY wanted.key",
            [json.dumps(list(paths))],
        )
        known = {path: _IndexedFile(*row) for path, *row in rows}
        for file in known.values():
            _require_numbers(file.end, file.last, file.passages, file.chars)
        return known

    def _forget_removed_files(self, present: Collection[str]) -> None:
        """Remove files that no longer exist; begin again if most passages belong to such files."""
        for path, number in self._database.execute("SELECT path, id FROM files").fetchall():
            if path not in present and not self._files.exists(path):
                self._forget(number)
        kept = _number(self._database.execute("SELECT total(passages) FROM files"))
        newest = self._newest_passage()
        if newest > _BATCH and newest - kept > _MOST_REMOVED_SHARE * newest:
            for table in ("files", "passages"):
                self._database.execute(f"DELETE FROM {table}")  # noqa: S608 - of these two
            self._database.execute("INSERT INTO words (words) VALUES ('delete-all')")

    def _forget(self, number: int) -> None:
        self._database.execute("UPDATE passages SET file = ? WHERE file = ?", [_REMOVED, number])
        self._database.execute("DELETE FROM files WHERE id = ?", [number])

    def _newest_passage(self) -> int:
        return _number(self._database.execute("SELECT coalesce(max(id), 0) FROM passages"))

    def _add(self, path: str, version: Version, deadline: Deadline) -> bool:
        """Add what is new in a file; return whether that was all of it."""
        known = self._known([path]).get(path)
        if known is not None and not self._is_continued(path, known, version):
            self._forget(known.number)
            known = None
        if known is None:
            insert = "INSERT INTO files (path, state, end, last, passages, chars) VALUES (?, ?, 0, 0, 0, 0)"
            self._database.execute(insert, [path, _PARTIAL])
            known = self._known([path])[path]
        # What follows in the file may belong to the last passage.
        place, passages, chars = self._without_last(path, known)
        end, last = known.end, 0
        pieces = _strict_pieces(self._files, path, place.offset, version[1])
        chunks = chunks_of(pieces, place.number, place.column, place.offset)
        state = _UNINDEXED if description_of(self._texts, path) is not None else _WHOLE
        try:
            while state == _WHOLE and (batch := list(islice(chunks, _BATCH))):
                last = self._insert(known.number, batch)
                passages += len(batch)
                chars += sum(len(chunk.text) for chunk in batch)
                end = batch[-1].offset + size_bytes_of(batch[-1].text)
                if len(batch) == _BATCH and deadline.is_over():
                    state = _PARTIAL
        except UnicodeDecodeError:
            state = _UNINDEXED
        if state == _UNINDEXED:
            self._database.execute("UPDATE passages SET file = ? WHERE file = ?", [_REMOVED, known.number])
            last = passages = chars = 0
        if state != _PARTIAL:
            end = version[1]
        self._database.execute(
            "UPDATE files SET version = ?, state = ?, end = ?, tail = ?, last = ?, passages = ?, chars = ? "
            "WHERE id = ?",
            [json.dumps(version), state, end, self._tail(path, end), last, passages, chars, known.number],
        )
        return state != _PARTIAL

    def _is_continued(self, path: str, known: _IndexedFile, version: Version) -> bool:
        """Return whether *path* begins with what was read of it."""
        if known.state == _UNINDEXED or version[1] < known.end:
            return False
        return known.version == json.dumps(version) or self._tail(path, known.end) == known.tail

    def _tail(self, path: str, end: int) -> bytes:
        start = max(end - _TAIL_BYTES, 0)
        return hashlib.sha256(self._files.read(path, start, end - start)).digest()

    def _without_last(self, path: str, known: _IndexedFile) -> tuple[Chunk, int, int]:
        """Remove the last passage of a file; return where it began, and how many passages and characters remain."""
        query = "SELECT number, column, offset, size FROM passages WHERE id = ?"
        row = self._database.execute(query, [known.last]).fetchone()
        if row is None:
            return Chunk(1, 1, ""), 0, 0
        number, column, offset, size = row
        chars = len(self._files.read(path, offset, size).decode("utf-8", "replace"))
        self._database.execute("UPDATE passages SET file = ? WHERE id = ?", [_REMOVED, known.last])
        return Chunk(number, column, "", offset), known.passages - 1, known.chars - chars

    def _insert(self, file: int, chunks: Sequence[Chunk]) -> int:
        """Add passages, and return the number of the last one."""
        numbered = list(enumerate(chunks, self._newest_passage() + 1))
        self._database.executemany(
            "INSERT INTO words (rowid, terms) VALUES (?, ?)",
            ((number, terms_of(chunk.text)) for number, chunk in numbered),
        )
        self._database.executemany(
            "INSERT INTO passages VALUES (?, ?, ?, ?, ?, ?)",
            (
                (number, file, chunk.offset, size_bytes_of(chunk.text), chunk.number, chunk.column)
                for number, chunk in numbered
            ),
        )
        return numbered[-1][0]

    def find(self, paths: Iterable[str], words: Words) -> IndexedPassages:
        """Return the passages of *paths* that hold one of *words*."""
        self._database.execute("BEGIN")  # others may add files meanwhile
        with self._database:
            known = {path: file for path, file in self._known(paths).items() if file.state != _UNINDEXED}
            found = IndexedPassages(
                files=known.keys(),
                passages=sum(file.passages for file in known.values()),
                chars=sum(file.chars for file in known.values()),
            )
            lookup = _Lookup(self._database, {file.number for file in known.values()})
            terms = {place: lookup.match(text, is_beginning=longer) for place, (text, longer) in words.terms.items()}
            counts = {match: lookup.count(match) for match in set(terms.values())}
            rarest = sorted((match for match in counts if counts[match]), key=lambda match: (counts[match], match))
            chosen, unread = lookup.choose(rarest, counts, found.passages)
            self._read(found, known, chosen, words)
            if unread:
                read = [counted for passages in found.read.values() for _, counted in passages]
                found.unread = max(lookup.count(" OR ".join(rarest)) - len(read), 0)
                for place, match in terms.items():
                    if match in unread:
                        held = sum(place in counted for counted in read)
                        found.unread_holding[place] = max(counts[match] - held, 0)
            return found

    def _read(
        self, found: IndexedPassages, known: Mapping[str, _IndexedFile], chosen: Collection[int], words: Words
    ) -> None:
        """Read the passages *chosen* and keep those that hold a word."""
        places = self._database.execute(
            "SELECT file, offset, size, number, column FROM passages "
            "WHERE id IN (SELECT value FROM json_each(?)) ORDER BY file, offset",
            [json.dumps(sorted(chosen))],
        )
        by_file: dict[int, list[tuple[int, int, int, int]]] = {}
        for file, offset, size_bytes, number, column in places:
            _require_numbers(offset, size_bytes, number, column)
            by_file.setdefault(file, []).append((offset, size_bytes, number, column))
        for path, indexed in known.items():
            if indexed.number not in by_file:
                continue
            with self._files.open(path) as opened:
                for offset, size_bytes, number, column in by_file[indexed.number]:
                    text = opened.read(offset, min(size_bytes, _MAX_CHUNK_BYTES)).decode("utf-8", "replace")
                    if counts := words.count(text):
                        found.read.setdefault(path, []).append((Chunk(number, column, text, offset), counts))


class _Lookup:
    """Looks terms up in the passages of some files."""

    def __init__(self, database: sqlite3.Connection, numbers: Collection[int]) -> None:
        self._database = database
        spelled = json.dumps(sorted(numbers))
        others = (
            "SELECT EXISTS (SELECT 1 FROM files WHERE passages > 0 AND id NOT IN (SELECT value FROM json_each(?))) "
            "OR EXISTS (SELECT 1 FROM passages WHERE file = ?)"
        )
        self._numbers = spelled if _number(database.execute(others, [spelled, _REMOVED])) else None
        places = (
            "SELECT min((SELECT min(id) FROM passages WHERE file = value)), "
            "max((SELECT max(id) FROM passages WHERE file = value)) FROM json_each(?)"
        )
        self._first, self._last = database.execute(places, [spelled]).fetchone()
        database.execute("CREATE VIRTUAL TABLE temp.terms USING fts5vocab (main, words, row)")

    def match(self, term: str, *, is_beginning: bool) -> str:
        """Return an expression of FTS5 for a term, or for all terms with this beginning."""
        if not is_beginning:
            return _quoted(term)
        query = "SELECT term FROM terms WHERE term >= ? AND term < ? LIMIT ?"
        forms = self._database.execute(query, [term, term + chr(sys.maxunicode), _MOST_FORMS + 1]).fetchall()
        if not forms or len(forms) > _MOST_FORMS:
            return f"{_quoted(term)}*"
        return "(" + " OR ".join(_quoted(form) for (form,) in forms) + ")"

    def count(self, match: str) -> int:
        """Return how many passages match, above 1,000 about."""
        first = self._matching(match, _SAMPLE)
        if len(first) < _SAMPLE:
            return len(first)
        last = self._matching(match, _SAMPLE, order="DESC")
        between = last[-1] - first[-1] - 1
        if between <= 0:
            return len({*first, *last})
        shares = len(first) / (first[-1] - first[0] + 1), len(last) / (last[0] - last[-1] + 1)
        return len(first) + len(last) + int(between * sum(shares) / 2)

    def choose(
        self, matches: Sequence[str], counts: Mapping[str, int], passages: int
    ) -> tuple[Collection[int], Collection[str]]:
        """Return the passages to read, and of which *matches* not all are among them; the rarest match comes first."""
        held = list(accumulate(counts[match] for match in matches))
        ranked = bisect(held, _MOST_RANKED)
        scores: dict[int, float] = {}
        for match in matches[:ranked]:
            weight = math.log1p(passages / counts[match])  # about as BM25 weighs a word
            for number in self._matching(match, _MOST_RANKED):
                scores[number] = scores.get(number, 0) + weight
        if ranked == len(matches) and len(scores) <= MAX_READ:
            return scores, ()
        best = sorted(scores, key=scores.__getitem__, reverse=True)[:MAX_READ]
        chosen = dict.fromkeys(best)
        others = matches[ranked:]
        # Passages with all of the other words, with the two rarest, and with the rarest one.
        for together in sorted({len(others), 2, 1}, reverse=True):
            if 0 < together <= len(others):
                numbers = self._matching(" AND ".join(others[:together]), MAX_READ)
                found = (number for number in numbers if number not in chosen)
                chosen.update(dict.fromkeys(islice(found, MAX_READ - len(chosen))))
        return chosen, matches

    def _matching(self, match: str, limit: int, *, order: Literal["ASC", "DESC"] = "ASC") -> list[int]:
        """Return the first passages that match, or the last ones, in this order."""
        matching, values = "words WHERE words MATCH ?", list[str | int]([match])
        if self._numbers is not None:
            matching = (  # CROSS JOIN: SQLite would sometimes look each passage up in the words, at 20 times the cost
                "words CROSS JOIN passages ON passages.id = words.rowid "
                "WHERE words MATCH ? AND words.rowid BETWEEN ? AND ? "
                "AND passages.file IN (SELECT value FROM json_each(?))"
            )
            values += [self._first, self._last, self._numbers]
        query = f"SELECT words.rowid FROM {matching} ORDER BY words.rowid {order} LIMIT ?"  # noqa: S608 - of these
        rows = self._database.execute(query, [*values, limit])
        return [number for (number,) in rows]


def _number(cursor: sqlite3.Cursor) -> int:
    return int(cursor.fetchone()[0])


def _require_numbers(*values: object) -> None:
    """Raise DatabaseError for a value that is no number of things or bytes: SQLite has no checksums."""
    if not all(isinstance(value, int) and value >= 0 for value in values):
        raise sqlite3.DatabaseError("a value is no number")


def _quoted(term: str) -> str:
    return '"' + term.replace('"', '""') + '"'


def _strict_pieces(files: Files, path: str, offset: int, end: int) -> Iterator[bytes]:
    """Yield the bytes of a file from *offset* to *end*.

    If they are not UTF-8, UnicodeDecodeError is raised: places in the text would say nothing about places in the file.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    with files.open(path) as file:
        while offset < end and (piece := file.read(offset, min(CHUNK_BYTES, end - offset))):
            decoder.decode(piece)
            offset += len(piece)
            yield piece
    decoder.decode(b"", final=True)
