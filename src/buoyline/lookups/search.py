"""`search`: passages that fit a question, ranked by SQLite's full-text index FTS5."""

import json
import re
import sqlite3
from collections import Counter as Counts
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from buoyline.errors import ConfigError, StorageError
from buoyline.lookups.answer import DATA_LABEL, Answer, AnswerRow, Counter, Frame, Line, fitted, numbered, shown
from buoyline.lookups.sources import Sources, places
from buoyline.workspace.workspace import Workspace

MAX_CHUNK_CHARS = 800
"""About 200 tokens: ten passages in an answer of 2,000."""

# A record with a heading gets a passage of its own; a comment in code looks like a heading and seldom begins one.
_BEFORE_HEADING_CHARS = 100
_BEFORE_BLANK_CHARS = 400

_VERSION = 4
_SCHEMA = (
    "DROP TABLE IF EXISTS files",
    "DROP TABLE IF EXISTS passages",
    "CREATE TABLE files (path TEXT PRIMARY KEY, version TEXT, first INTEGER, last INTEGER)",
    """CREATE VIRTUAL TABLE passages USING fts5 (text, pairs, path UNINDEXED, number UNINDEXED,
       tokenize = "porter unicode61 categories 'L* N* Co M*'")""",
    f"PRAGMA user_version = {_VERSION}",
)
_INSERT = "INSERT INTO passages (rowid, text, pairs, path, number) VALUES (?, ?, ?, ?, ?)"
_MATCHING = "FROM passages WHERE passages MATCH :words AND (:all OR path IN (SELECT value FROM json_each(:names)))"
_COUNT = "SELECT count(*) " + _MATCHING
_BEST = "SELECT path, number, text, rank " + _MATCHING + " ORDER BY rank LIMIT 500"
_LOCKED_S = 30.0

_MAX_QUERY_CHARS = 2_000
_MAX_WORDS = 64
_FEW_PASSAGES = 10_000
_RAREST = 3

# Similar records or log lines would fill an answer. In ``benchmarks/memory.py`` a second search found the next record
# for 36 of 50 questions without this, and for 45 with it.
_ALIKE = 0.9

_WORD = re.compile(r"[^\W_]+")
_COMPOUND = re.compile(r"[^\W_]+(?:[-_./:@#+]+[^\W_]+)+")
_QUOTED = re.compile('"([^"]{2,80})"|`([^`]{2,80})`')
# Thai to Lao, Burmese, Khmer, kana, Han, Hangul: scripts without reliable blanks between words.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff]+"
)


class Passage(NamedTuple):
    """Whole lines of a file, of about 800 characters at most, from line *number* on."""

    path: str
    number: int
    text: str


def search(
    workspace: Workspace,
    query: str,
    path: str | Sequence[str] | None = None,
    *,
    start: int = 1,
    session: str | None = None,
    live: bool = False,
    max_tokens: int = 2_000,
    counter: Counter | None = None,
) -> Answer:
    """Find the passages that fit *query*, a question or some words, best; the same files give the same answer.

    *path* is as for `grep`, but files are searched whole. *start* is the rank of the first passage to show. For the
    other arguments see `buoyline.lookups`.

    Returns:
        Each passage after ``== path:first-last``. The second row names the rarest words of *query*. `Answer.total` is
        the number of passages, up to 500.

    Raises:
        ConfigError: *query* has no word, or another argument is out of range.
        NotFoundError: There is no such file or session.
    """
    words = words_of(query)
    if not words or start < 1:
        raise ConfigError("query", "has no word to look for, or start is under 1; grep finds other characters")
    sources = Sources(workspace, session, live=live)
    names = [place.name for place in places(sources, path)]
    ranked, rarest = _ranked(sources, names, words)
    total = len(ranked)
    if total < start:
        which = "further passage" if total else "passage"
        files = "1 file" if len(names) == 1 else f"{len(names):,} files"
        return Answer(f"[No {which} with a word of the query in {files}.]\n{sources.unread_row()}", total=total)
    counts = ", ".join(f"{word} ({count:,})" for word, count in rarest)
    note = sources.unread_row()
    if start == 1 and counts and len(words) > 1:
        note += f"[Rarest words, and in how many passages: {counts}.]\n"

    def frame(rows: Sequence[AnswerRow]) -> Frame:
        end = start + len(rows)
        heading = f"[Passages {start}-{end - 1} of {total:,}, the best first. {DATA_LABEL}]\n{note}"
        return Frame(heading, {"start": end} if end <= total else {})

    rows = (_row(sources, passage) for passage in ranked[start - 1 :])
    return fitted(rows, frame, total=total, max_tokens=max_tokens, counter=counter)


def words_of(query: str) -> list[str]:
    """Return quoted phrases, identifiers such as ``order-0042``, words and pairs of characters, each once."""
    text = query[:_MAX_QUERY_CHARS].lower()  # the time for a long word is quadratic
    quoted = [" ".join(_WORD.findall("".join(groups))) for groups in _QUOTED.findall(text)]
    found = [*quoted, *_COMPOUND.findall(text), *_WORD.findall(_UNSPACED.sub(" ", text)), *_pairs(text)]
    return list(filter(None, dict.fromkeys(found)))[:_MAX_WORDS]


def _pairs(text: str, *, is_indexed: bool = False) -> Iterator[str]:
    """Yield the pairs of characters of scripts without blanks; for the index also the last character alone."""
    for run in _UNSPACED.findall(text):
        yield from (run[at : at + 2] for at in range(len(run) if is_indexed else max(len(run) - 1, 1)))


def _ranked(
    sources: Sources, names: Sequence[str], words: Sequence[str]
) -> tuple[list[Passage], list[tuple[str, int]]]:
    """Return the best passages, and the rarest words with the number of passages that hold each."""
    database = sources.index_path(names)
    if database is not None:
        try:
            return _asked(sources, database, names, words)
        except sqlite3.OperationalError:  # read-only, in use, or full
            pass
        except sqlite3.DatabaseError:
            sources.remove_index()
    try:
        return _asked(sources, ":memory:", names, words)
    except sqlite3.OperationalError as error:
        if "fts5" not in str(error):
            raise
        raise ConfigError("search", "needs a Python whose sqlite3 has FTS5; use grep") from error


def _asked(
    sources: Sources, database: str, names: Sequence[str], words: Sequence[str]
) -> tuple[list[Passage], list[tuple[str, int]]]:
    with closing(sqlite3.connect(database, timeout=_LOCKED_S, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = OFF")  # whatever a power cut takes is indexed again
        _update(sources, db, names)
        spans = {path: last - first + 1 for path, first, last in db.execute("SELECT path, first, last FROM files")}
        given = {"names": json.dumps(names), "all": spans.keys() == set(names)}
        counts = {word: db.execute(_COUNT, {**given, "words": _quoted(word)}).fetchone()[0] for word in words}
        # BM25 gives no weight to a word in more than half of the passages, and ranking one takes 1 us.
        most = max(sum(spans.values()) // 2, _FEW_PASSAGES)
        telling = [word for word in words if counts[word] <= most] or words
        rows = db.execute(_BEST, {**given, "words": " OR ".join(map(_quoted, telling))}).fetchall()
    rarest = sorted((held for held in counts.items() if held[1]), key=lambda held: (held[1], held[0]))[:_RAREST]
    alike: Counts[Any] = Counts()
    ranked: list[tuple[float, int, Passage]] = []
    for order, (path, number, text, score) in enumerate(rows):
        low = text.lower()
        kind = path, frozenset(word for word in words if word in low)
        ranked.append((score * _ALIKE ** alike[kind], order, Passage(path, number, text)))
        alike[kind] += 1
    return [passage for *_, passage in sorted(ranked)], rarest


def _quoted(word: str) -> str:
    return f'"{word}"*' if _UNSPACED.fullmatch(word) and len(word) == 1 else f'"{word}"'


def _update(sources: Sources, db: sqlite3.Connection, names: Sequence[str]) -> None:
    """Index new and changed files, and forget those that are gone."""
    versions = {name: sources.version(name) for name in names}
    if not _is_made(db) or _outdated(sources, db, versions):
        db.execute("BEGIN IMMEDIATE")
        with db:  # another process may have been here in between
            for statement in () if _is_made(db) else _SCHEMA:
                db.execute(statement)
            for path in _outdated(sources, db, versions):
                for span in db.execute("SELECT first, last FROM files WHERE path = ?", [path]).fetchall():
                    db.execute("DELETE FROM passages WHERE rowid BETWEEN ? AND ?", span)
                    db.execute("DELETE FROM files WHERE path = ?", [path])
                if path in versions:
                    _add(sources, db, path, versions[path])


def _is_made(db: sqlite3.Connection) -> bool:
    found: int = db.execute("PRAGMA user_version").fetchone()[0]
    return found == _VERSION


def _outdated(sources: Sources, db: sqlite3.Connection, versions: Mapping[str, str]) -> list[str]:
    known = dict(db.execute("SELECT path, version FROM files"))
    gone = [path for path in known if path not in versions and not sources.version(path)]
    return gone + [path for path in versions if known.get(path) != versions[path]]


def _add(sources: Sources, db: sqlite3.Connection, path: str, version: str) -> None:
    row = first = db.execute("SELECT coalesce(max(last), 0) + 1 FROM files").fetchone()[0]
    try:
        for row, (number, text) in enumerate(passages(sources.blocks(path)), first):
            pairs = "" if text.isascii() else " ".join(_pairs(text.lower(), is_indexed=True))
            db.execute(_INSERT, (row, text, pairs, path, number))
    except StorageError as error:
        sources.unread[path] = str(error.strerror)
        version = ""  # the next search tries again
    db.execute("INSERT INTO files VALUES (?, ?, ?, ?)", [path, version, first, row])


def passages(blocks: Iterable[bytes]) -> Iterator[tuple[int, str]]:
    """Yield whole lines of up to 800 characters, each with the number of the first; a longer line alone.

    They end before a heading (those of the transcript included), after a blank line, else after a line.
    """
    number = 1
    for block in blocks:
        text, start = block.decode("utf-8", "replace"), 0
        while start < len(text):
            end = _end(text, start)
            passage = text[start:end]
            if passage.strip():
                yield number, passage
            number += passage.count("\n")
            start = end


def _end(text: str, start: int) -> int:
    most = start + MAX_CHUNK_CHARS
    heading = text.find("\n#", start + _BEFORE_HEADING_CHARS, most + 1) + 1
    blank = text.find("\n\n", start + _BEFORE_BLANK_CHARS, most) + 2
    joints = [joint for joint, least in ((heading, 1), (blank, 2)) if joint >= least]
    if joints:
        return min(joints)
    if len(text) <= most:
        return len(text)
    return text.rfind("\n", start, most) + 1 or text.find("\n", most) + 1 or len(text)


def _row(sources: Sources, passage: Passage) -> AnswerRow:
    lines = passage.text.removesuffix("\n").split("\n")
    found = tuple(Line(passage.path, number, shown(line)) for number, line in enumerate(lines, passage.number))
    at, label = sources.heading(passage.path, passage.number)
    if at and at != passage.number:
        label = next((shown(line) for _, line in numbered(sources.blocks(passage.path), ((at, at),))), "").lstrip("# ")
    head = f"== {passage.path}:{passage.number}-{found[-1].number}\n" + (f"@ {label}\n" if label else "")
    return AnswerRow(head + "".join(f"{line.number}\t{line.text}\n" for line in found), found)
