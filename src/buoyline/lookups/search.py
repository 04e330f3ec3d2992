"""`search`: passages that have most to do with a question, for those who know no word to grep for."""

import codecs
import collections
import heapq
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

from buoyline.errors import ConfigError
from buoyline.lookups.answer import DATA_LABEL, Answer, AnswerBudget, Counter, Line, Spelling, as_arguments, shown_path
from buoyline.lookups.glob import files_to_search
from buoyline.lookups.hits import Deadline, LineRanges
from buoyline.lookups.read import description_of
from buoyline.lookups.sources import FileTree, require_files
from buoyline.workspace import LocalWorkspace

# Text of any size in chunks that are long enough to mean something and short enough to be shown whole.
#
# Chunks end where a text has its own joints: before a heading (of the transcript, too), behind a blank line, else
# behind a line; inside a line only where that line is longer than a chunk. No line is looked at by itself: on 100 MB
# of log lines that would take longer than all the rest.


MAX_CHUNK_CHARS = 800
"""About 200 tokens: ten of them in an answer of 2,000."""

# A record with a heading is a chunk of its own; a comment in code, which looks like one, seldom begins another.
_BEFORE_HEADING_CHARS = 100
_BEFORE_BLANK_CHARS = 400
_BREAK_WITHIN_CHARS = 80


class Chunk(NamedTuple):
    r"""A piece of a file.

    Attributes:
        number: The line that it begins in, 1-based.
        column: Of its first character in that line, 1-based; over 1 where it begins inside the line.
        text: Its characters, at most 800; lines end in ``\n``. Invalid UTF-8 stands as U+FFFD.
    """

    number: int
    column: int
    text: str

    @property
    def last(self) -> int:
        """The line that it ends in."""
        return self.number + self.text.count("\n", 0, -1)


def chunks_of(content: Iterable[bytes]) -> Iterator[Chunk]:
    """Yield a file in chunks that together are the whole of it, those without a visible character left out.

    They do not depend on the pieces of *content*, which are never held but for a few.
    """
    number, column = 1, 1
    for text in _texts(content):
        if text.strip():
            yield Chunk(number, column, text)
        lines = text.count("\n")
        number += lines
        column = len(text) - text.rfind("\n") if lines else column + len(text)


def _texts(content: Iterable[bytes]) -> Iterator[str]:
    held = ""
    for text in _decoded(content):
        held += text
        position = 0
        # One character more than a chunk has to be there, so that each is cut with the same knowledge.
        while len(held) - position > MAX_CHUNK_CHARS + 1:
            end = _end(held, position)
            yield held[position:end]
            position = end
        held = held[position:]
    position = 0
    while position < len(held):
        end = _end(held, position)
        yield held[position:end]
        position = end


def _end(text: str, start: int) -> int:
    """Return where the chunk ends that begins at *start*."""
    most = start + MAX_CHUNK_CHARS
    heading = text.find("\n#", start + _BEFORE_HEADING_CHARS, most + 1) + 1
    blank = text.find("\n\n", start + _BEFORE_BLANK_CHARS, most) + 2
    joints = [joint for joint, least in ((heading, 1), (blank, 2)) if joint >= least]
    if joints:
        return min(joints)
    if len(text) <= most:
        return len(text)
    line = text.rfind("\n", start, most) + 1
    return line or text.rfind(" ", most - _BREAK_WITHIN_CHARS, most) + 1 or most


def _decoded(content: Iterable[bytes]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for piece in content:
        yield decoder.decode(piece)
    yield decoder.decode(b"", final=True)


# The words of a query, and how often a text holds each of them, in any script.
#
# Nothing here knows a language: no list of stop words (words that are everywhere weigh next to nothing anyway) and no
# stemmer. Words that only begin alike count half, which finds most plurals and tenses; scripts without blanks between
# words are taken in pairs of characters, as Lucene's ``CJKBigramFilter`` does.


MAX_WORDS = 64
"""More of a query says no more about what is wanted."""

MAX_PHRASES = 16
"""Each costs a look at every passage, where single words all together cost one."""

VARIANT_WEIGHT = 0.5

# Thai to Lao, Burmese, Khmer, kana, Han, Hangul: words are not, or not reliably, parted by blanks.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_UNSPACED_RUN = re.compile(f"[{_UNSPACED}\U00020000-\U0003ffff]+")
_WORD = re.compile(r"[^\W_]+")
_COMPOUND = re.compile(r"[^\W_]+(?:[-_./:@#+]+[^\W_]+)+")
_QUOTED = re.compile("\"([^\"]{2,80})\"|(?<!\\w)'([^']{2,80})'(?!\\w)|`([^`]{2,80})`|[“«「]([^”»」]{2,80})[”»」]")
_ASCII_GAPS = {code: " " for code in range(0x80) if not chr(code).isalnum()}

_LEAST_STEM_CHARS = 3
_CHARS_PER_DROPPED = 4
_MAX_DROPPED = 3
_MAX_ADDED = 2
_MAX_REMEMBERED = 100_000


def folded(text: str) -> str:
    """Return *text* as words are compared: without case, and without what only looks different."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", text).casefold()


class Words:
    """What a query asks for.

    Attributes:
        texts: What is looked for, folded, in order: what is quoted, identifiers such as ``order-0042``, single
            words. At most 64.
    """

    def __init__(self, query: str) -> None:
        """Take the words of *query*; there may be none."""
        text = folded(query)
        single, unspaced = _singles(text)
        self.texts = tuple(dict.fromkeys([*_phrases(text), *single, *unspaced]))[:MAX_WORDS]
        places = {word: place for place, word in enumerate(self.texts)}
        self._forms = _Forms({word: places[word] for word in single if word in places})
        self._pairs = [(word, places[word]) for word in unspaced if word in places]
        self._phrases = [(word, places[word], _whole_word(word)) for word in _phrases(text)]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.texts)

    def count(self, text: str) -> dict[int, float]:
        """Return how often *text* holds each word that it holds, by position; other forms count half."""
        text = folded(text)
        counts: dict[int, float] = {}
        # Most passages hold nothing of what is looked for, and that is told before they are split.
        if any(map(text.__contains__, self._forms.stems)):
            for meant in map(self._forms.__getitem__, _split(text)):
                for place, weight in meant:
                    counts[place] = counts.get(place, 0) + weight
        counts.update((place, len(found)) for place, found in self._found_phrases(text) if found)
        if not text.isascii():
            counts.update((place, text.count(pair)) for pair, place in self._pairs if pair in text)
        return counts

    def _found_phrases(self, text: str) -> Iterator[tuple[int, list[str]]]:
        return ((place, pattern.findall(text)) for phrase, place, pattern in self._phrases if phrase in text)


class _Forms(dict[str, tuple[tuple[int, float], ...]]):
    """By a word of a text, the places of the words of the query that it is a form of, with what it counts.

    A text has few different words, so each is worked out once; with random ids there is no end of them.
    """

    def __init__(self, words: dict[str, int]) -> None:
        super().__init__()
        self._words = words
        self.stems: dict[str, list[str]] = {}
        for word in words:
            self.stems.setdefault(_stem(word), []).append(word)
        self._longest = max(map(len, self.stems), default=0)

    def __missing__(self, found: str) -> tuple[tuple[int, float], ...]:
        beginnings = (found[:size] for size in range(1, min(len(found), self._longest) + 1))
        meant = [word for stem in beginnings for word in self.stems.get(stem, ()) if _is_form(found, word)]
        if len(self) >= _MAX_REMEMBERED:
            self.clear()
        self[found] = tuple((self._words[word], 1 if word == found else VARIANT_WEIGHT) for word in meant)
        return self[found]


def _is_form(found: str, word: str) -> bool:
    stem = _stem(word)
    return found == word or (stem != word and len(found) <= len(word) + _MAX_ADDED)


def _stem(word: str) -> str:
    """Return what begins all forms of *word*; the whole of it where it is short, or an identifier."""
    dropped = min(len(word) // _CHARS_PER_DROPPED, _MAX_DROPPED)
    stem = word[: len(word) - dropped]
    return stem if len(stem) >= _LEAST_STEM_CHARS and word.isalpha() else word


def _split(text: str) -> Iterable[str]:
    # A table takes 4 us for 800 characters, where the pattern takes 25.
    return text.translate(_ASCII_GAPS).split() if text.isascii() else _WORD.findall(text)


def _singles(text: str) -> tuple[list[str], list[str]]:
    """Return the words of *text*, and of what has no blanks between words all pairs of characters."""
    pairs = [run[at : at + 2] for run in _UNSPACED_RUN.findall(text) for at in range(max(len(run) - 1, 1))]
    return _WORD.findall(_UNSPACED_RUN.sub(" ", text)), pairs


def _phrases(text: str) -> list[str]:
    quoted = (" ".join("".join(groups).split()) for groups in _QUOTED.findall(text))
    several = (phrase for phrase in quoted if len(_WORD.findall(phrase)) > 1)
    return list(dict.fromkeys([*several, *_COMPOUND.findall(text)]))[:MAX_PHRASES]


def _whole_word(phrase: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![^\W_]){re.escape(phrase)}(?![^\W_])")


# Which passages have most to do with a query.
#
# BM25 in Lucene's form, in one pass: what a word weighs is known at the end, so candidates are kept with their
# counts,
# and no more of them than will ever be shown. Pure. Source: Robertson and Zaragoza, The Probabilistic Relevance
# Framework (2009); k1 and b are the usual ones, and were not tuned.
#
# An answer has room for some twenty passages. Where hundreds of records or lines of a log say the same of the query,
# they took all of it; so each of them comes a little behind the one before, and what holds other words of the query,
# or
# stands in another file, is seen, too. How much that is hardly matters: in ``benchmarks/memory.py`` the second search
# found the next record of the chain for 36 of 50 questions without it, and for 45 with a tenth, with 1/(1 + n/4) and
# with 1/sqrt(1 + n).


MAX_CANDIDATES = 4_000
"""So many passages are ranked at last; who would read on behind them asks for something else."""

_K1 = 1.2
_B = 0.75
_REPEATED = 0.9


class Candidate(NamedTuple):
    """A passage that holds a word of the query.

    Attributes:
        order: Its place among all passages, in the order of searching.
        path: The file, relative to the workdir.
        chunk: What is shown.
        counts: How often it holds each word that it holds, by the word's position.
    """

    order: int
    path: str
    chunk: Chunk
    counts: Mapping[int, float]


@dataclass(slots=True)
class Ranking:
    """Ranks passages as they come.

    Attributes:
        words: What is looked for.
        total: How many passages hold any of it.
        passages: How many passages there were.
    """

    words: Words
    total: int
    passages: int
    _chars: int
    _holding: list[int]
    _candidates: list[Candidate]

    def __init__(self, words: Words) -> None:
        """Look for *words*."""
        self.words = words
        self.total = self.passages = self._chars = 0
        self._holding = [0] * len(words)
        self._candidates = []

    def add(self, path: str, chunk: Chunk) -> None:
        """Take a passage into account."""
        self.passages += 1
        self._chars += len(chunk.text)
        counts = self.words.count(chunk.text)
        if not counts:
            return
        self.total += 1
        for place in counts:
            self._holding[place] += 1
        self._candidates.append(Candidate(self.passages, path, chunk, counts))
        if len(self._candidates) >= 2 * MAX_CANDIDATES:
            self._candidates = [candidate for *_, candidate in self._ranked()]

    def best(self) -> list[Candidate]:
        """Return the passages that were kept, the best first; of equals the one that came first.

        Each passage counts a tenth less than the last one of its file that holds the same words of the query.
        """
        alike: collections.Counter[tuple[str, frozenset[int]]] = collections.Counter()
        ranked: list[tuple[float, int, Candidate]] = []
        for score, order, candidate in self._ranked():
            kind = candidate.path, frozenset(candidate.counts)
            ranked.append((score * _REPEATED ** alike[kind], order, candidate))
            alike[kind] += 1
        return [candidate for *_, candidate in sorted(ranked, reverse=True)]

    def _ranked(self) -> list[tuple[float, int, Candidate]]:
        """Return up to 4,000 passages with their scores, the best first."""
        weights = [math.log1p((self.passages - holding + 0.5) / (holding + 0.5)) for holding in self._holding]
        mean_chars = self._chars / max(self.passages, 1)

        def score(candidate: Candidate) -> float:
            damping = _K1 * (1 - _B + _B * len(candidate.chunk.text) / mean_chars)
            return sum(weights[place] * count / (count + damping) for place, count in candidate.counts.items())

        scored = ((score(candidate), -candidate.order, candidate) for candidate in self._candidates)
        return heapq.nlargest(MAX_CANDIDATES, scored)


MAX_QUERY_CHARS = 2_000

_CHUNKS_BETWEEN_LOOKS = 256
_CUT = "[This passage is cut: read shows the rest of its lines.]\n"


def search(
    workspace: LocalWorkspace,
    query: str,
    path: str | Sequence[str] | None = None,
    *,
    start: int = 1,
    session: str | None = None,
    confined: bool = False,
    timeout_s: float | None = None,
    max_tokens: int = 2_000,
    counter: Counter | None = None,
    spelling: Spelling = as_arguments,
) -> Answer:
    """Find the passages of files that have most to do with a query, in plain words of any language.

    Passages are ranked by BM25 over the words of the query: rare ones weigh most, in identifiers and quoted words the
    whole counts, too, and other forms of a word count half. Nothing is kept on disk; the same files give the same
    answer. Blocking; the cost is linear in the bytes that are searched (1 to 6 s for 100 MB of text), and they are
    never held whole.

    Args:
        workspace: Where to search.
        query: A question, or some words.
        path: A file, the lines of a citation, a directory with everything below it, a glob such as
            ``tool_result-*.txt``, or several of these. None searches all that was archived or offloaded: transcripts,
            and tool results in their readable form.
        start: Rank of the first passage to show, 1-based; an earlier answer says where it has ended.
        session: The only session to search if *path* is None; else the session whose directory is tried first for a
            relative *path*.
        confined: Whether only that directory can be reached, and blobs in ``data/`` by their whole name.
        timeout_s: After how many seconds to answer with the hits so far.
        max_tokens: For the whole text of the answer.
        counter: Counts tokens; None for the default counter.
        spelling: Says in the answer how to go on.

    Returns:
        Passages of up to 800 characters, the best first, each with its place as a pointer that `read` takes, and its
        lines with their numbers. `Answer.total` counts all passages that hold a word of the query; up to 4,000 are
        ranked. `Answer.lines` has their lines, in the order of the text.

    Raises:
        ConfigError: *workspace* is not on disk, *query* has no word or over 2,000 characters, *start* cannot be,
            or *max_tokens* is too few.
        InvalidNameError: *path* leads out of the workspace or to a hidden file.
        NotFoundError: There is no such file or session.
        StorageError: A file cannot be read.
    """
    require_files(workspace)
    if start < 1:
        raise ConfigError("start", f"{start} cannot be; it counts from 1")
    ranking = Ranking(_wanted(query))
    ranges = files_to_search(workspace, path, session, confined=confined)
    stopped_in = _rank(workspace.tree, ranges, ranking, Deadline(timeout_s))
    ranked = [_Passage(candidate) for candidate in ranking.best()]
    page = _Page(ranking, len(ranked), len(ranges), start, stopped_in, spelling)
    shown = AnswerBudget(max_tokens, counter).fill(ranked[start - 1 :], page)
    following = page.following(shown)
    repeated = {"query": query, "path": path if path is None or isinstance(path, str) else [*path], "session": session}
    return Answer(
        text=page.text(shown),
        lines=tuple(line for passage in shown for line in passage.lines()),
        total=ranking.total,
        next={**repeated, **following} if following else {},
    )


def _wanted(query: str) -> Words:
    if not isinstance(query, str):
        raise ConfigError("query", f"must be text, not {type(query).__name__}")
    if len(query) > MAX_QUERY_CHARS:
        raise ConfigError("query", f"has {len(query):,} characters; give up to {MAX_QUERY_CHARS:,}")
    wanted = Words(query)
    if not len(wanted):
        raise ConfigError("query", "has no word to look for; grep finds other characters")
    return wanted


def _rank(tree: FileTree, ranges: LineRanges, ranking: Ranking, deadline: Deadline) -> str:
    """Rank what is in *ranges*; return the file in which the time was up, or nothing."""
    for path in ranges:
        if description_of(tree, path) is not None:  # a picture has no words
            continue
        for place, chunk in enumerate(chunks_of(tree.chunks(path)), 1):
            if any(first <= chunk.last and chunk.number <= last for first, last in ranges[path]):
                ranking.add(path, chunk)
            if place % _CHUNKS_BETWEEN_LOOKS == 0 and deadline.is_over():
                return path
        if deadline.is_over():
            return path
    return ""


@dataclass(frozen=True, slots=True)
class _Passage:
    """A passage as it is shown: its first *chars* characters, or all where that is None."""

    found: Candidate
    chars: int | None = None

    @property
    def content(self) -> str:
        return self.found.chunk.text[: self.chars]

    def shortened(self, chars: int) -> Self:
        return replace(self, chars=chars)

    def lines(self) -> list[Line]:
        return _lines(self.found.path, self.found.chunk._replace(text=self.content))

    def text(self) -> str:
        whole, lines = _lines(self.found.path, self.found.chunk), self.lines()
        rows = "".join(f"{_label(line)}\t{line.text}\n" for line in lines)
        cut = "" if self.content == self.found.chunk.text else _CUT
        return f"== {shown_path(self.found.path)}:{whole[0].number}-{whole[-1].number}\n{rows}{cut}"


def _lines(path: str, chunk: Chunk) -> list[Line]:
    """Return the lines of *chunk* without the blank ones at its end."""
    texts = chunk.text.removesuffix("\n").split("\n")
    while len(texts) > 1 and not texts[-1].strip():
        texts.pop()
    return [
        Line(path, number, 1 if place else chunk.column, text.removesuffix("\r"), is_hit=True)
        for place, (number, text) in enumerate(enumerate(texts, chunk.number))
    ]


def _label(line: Line) -> str:
    return str(line.number) if line.column == 1 else f"{line.number}:{line.column}"


@dataclass(frozen=True, slots=True)
class _Page:
    """The text of an answer about *files* files, whose passages are shown from rank *start* on."""

    ranking: Ranking
    ranked: int
    files: int
    start: int
    stopped_in: str
    spelling: Spelling

    def frame(self) -> str:
        return self._heading(self.ranked) + self._footer(0)

    def row(self, passage: _Passage) -> str:
        return passage.text()

    def text(self, passages: Sequence[_Passage]) -> str:
        return self._heading(len(passages)) + "".join(map(self.row, passages)) + self._footer(len(passages))

    def following(self, passages: Sequence[_Passage]) -> dict[str, Any]:
        """Return where to go on behind *passages*; empty when nothing is left."""
        return self._following(len(passages))

    def _following(self, count: int) -> dict[str, Any]:
        end = self.start + count
        return {"start": end} if end <= self.ranked else {}

    def _heading(self, count: int) -> str:
        files = f"{self.files:,} file" + ("" if self.files == 1 else "s")
        if self.start > self.ranked or not count:
            further = "further " if self.ranked else ""
            return f"[No {further}passage with a word of the query in {files}{self._until()}.]\n"
        shown = f"{self.start}-{self.start + count - 1} of {self.ranking.total}"
        return f"[Passages {shown} with words of the query in {files}, the best first. {DATA_LABEL}]\n"

    def _footer(self, count: int) -> str:
        time = f"[Not all was searched{self._until()}.]\n" if self.stopped_in and count else ""
        following = self._following(count)
        return time + (f"[Cut here. To go on, {self.spelling(following)}]\n" if following else "")

    def _until(self) -> str:
        if not self.stopped_in:
            return ""
        return f": the time was up in {shown_path(self.stopped_in)}; search fewer files at once"
