"""`search`: the passages that fit a question best, for an agent that knows no word to grep for."""

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
from buoyline.lookups.calls import Calls, owner_row
from buoyline.lookups.glob import files_to_search
from buoyline.lookups.hits import Deadline, LineRanges
from buoyline.lookups.read import description_of
from buoyline.lookups.sections import Texts
from buoyline.lookups.sources import require_workspace
from buoyline.workspace import ReadableWorkspace

# Chunks are long enough to mean something and short enough to be shown whole. They end before a heading (those of the
# transcript included), after a blank line, else after a line; inside a line only if it is longer than a chunk. Lines
# are not looked at one by one: on 100 MB of log lines that would take longer than all the rest.


MAX_CHUNK_CHARS = 800
"""About 200 tokens: ten of them in an answer of 2,000."""

# A record with a heading gets a chunk; a comment in code looks like a heading and seldom begins a chunk.
_BEFORE_HEADING_CHARS = 100
_BEFORE_BLANK_CHARS = 400
_BREAK_WITHIN_CHARS = 80


class Chunk(NamedTuple):
    r"""A piece of a file.

    Attributes:
        number: The line that it begins in, 1-based.
        column: The column of its first character, 1-based; over 1 if it begins inside the line.
        text: At most 800 characters; lines end in ``\n``. Invalid UTF-8 becomes U+FFFD.
    """

    number: int
    column: int
    text: str

    @property
    def last(self) -> int:
        """The line that it ends in."""
        return self.number + self.text.count("\n", 0, -1)


def chunks_of(content: Iterable[bytes]) -> Iterator[Chunk]:
    """Yield all chunks of a file that have a visible character.

    They do not depend on the pieces of *content*, only a few of which are held.
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
        # One character after the chunk must be known, so that each chunk is cut by the same rule.
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
    """Return the end of the chunk that begins at *start*."""
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


# The words of a query in any script. Nothing depends on a language: there is no stemmer and no list of stop words,
# since words that are everywhere weigh almost nothing. Words that only begin alike count half, which finds most
# plurals and tenses. Scripts without blanks between words are split into pairs of characters, as Lucene's
# ``CJKBigramFilter`` does.


MAX_WORDS = 64
"""Further words of a query add nothing."""

MAX_PHRASES = 16
"""Each phrase costs one pass over every passage; all single words together cost one."""

VARIANT_WEIGHT = 0.5

# Thai to Lao, Burmese, Khmer, kana, Han, Hangul: scripts without reliable blanks between words.
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
    """Return *text* without case and compatibility forms, for comparing words."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", text).casefold()


class Words:
    """The words of a query.

    Attributes:
        texts: Up to 64 folded texts: quoted phrases, then identifiers such as ``order-0042``, then single words.
    """

    def __init__(self, query: str) -> None:
        """Take the words of *query*, if there are any."""
        text = folded(query)
        single, unspaced = _singles(text)
        self.texts = tuple(dict.fromkeys([*_phrases(text), *single, *unspaced]))[:MAX_WORDS]
        places = {word: place for place, word in enumerate(self.texts)}
        self._forms = _Forms({word: places[word] for word in single if word in places})
        self._pairs = [(word, places[word]) for word in unspaced if word in places]
        self._phrases = [(word, places[word], _whole_word(word)) for word in _phrases(text)]

    def __len__(self) -> int:
        """Return the number of words."""
        return len(self.texts)

    def count(self, text: str) -> dict[int, float]:
        """Return how often *text* holds each of the words, by position; other forms count half."""
        text = folded(text)
        counts: dict[int, float] = {}
        # Most passages hold no word, which is known before they are split.
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
    """For a word of a text: the positions and weights of the query's words that it is a form of.

    A text has few distinct words, so each is computed once. The number kept is bounded, since random ids never end.
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
    """Return the beginning of all forms of *word*; the whole of a short word or an identifier."""
    dropped = min(len(word) // _CHARS_PER_DROPPED, _MAX_DROPPED)
    stem = word[: len(word) - dropped]
    return stem if len(stem) >= _LEAST_STEM_CHARS and word.isalpha() else word


def _split(text: str) -> Iterable[str]:
    # A table takes 4 us for 800 characters; the pattern takes 25.
    return text.translate(_ASCII_GAPS).split() if text.isascii() else _WORD.findall(text)


def _singles(text: str) -> tuple[list[str], list[str]]:
    """Return the words of *text*, and all pairs of characters of scripts without blanks."""
    pairs = [run[at : at + 2] for run in _UNSPACED_RUN.findall(text) for at in range(max(len(run) - 1, 1))]
    return _WORD.findall(_UNSPACED_RUN.sub(" ", text)), pairs


def _phrases(text: str) -> list[str]:
    quoted = (" ".join("".join(groups).split()) for groups in _QUOTED.findall(text))
    several = (phrase for phrase in quoted if len(_WORD.findall(phrase)) > 1)
    return list(dict.fromkeys([*several, *_COMPOUND.findall(text)]))[:MAX_PHRASES]


def _whole_word(phrase: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![^\W_]){re.escape(phrase)}(?![^\W_])")


# BM25 in Lucene's form, in one pass: the weight of a word is known at the end, so candidates are kept with their
# counts, and no more of them than can be shown. Source: Robertson and Zaragoza, The Probabilistic Relevance Framework
# (2009); k1 and b are the usual values and were not tuned.
#
# An answer has room for some twenty passages, which hundreds of similar records or log lines would fill. So each of
# them counts a little less than the one before, and passages with other words or of other files are shown as well. The
# amount hardly matters: in ``benchmarks/memory.py`` the second search found the next record of the chain for 36 of 50
# questions without it, and for 45 with a tenth, with 1/(1 + n/4) and with 1/sqrt(1 + n).


MAX_CANDIDATES = 4_000
"""How many passages are ranked at the end; nobody reads more."""

_K1 = 1.2
_B = 0.75
_REPEATED = 0.9


class Candidate(NamedTuple):
    """A passage that holds a word of the query.

    Attributes:
        order: Its position among all passages, in search order.
        path: The file, relative to the workdir.
        chunk: The text.
        counts: How often it holds each word, by the word's position.
    """

    order: int
    path: str
    chunk: Chunk
    counts: Mapping[int, float]


@dataclass(slots=True)
class Ranking:
    """Ranks passages as they come.

    Attributes:
        words: The words of the query.
        total: How many passages hold any of them.
        passages: How many passages there were.
    """

    words: Words
    total: int
    passages: int
    _chars: int
    _holding: list[int]
    _candidates: list[Candidate]

    def __init__(self, words: Words) -> None:
        """Rank by *words*."""
        self.words = words
        self.total = self.passages = self._chars = 0
        self._holding = [0] * len(words)
        self._candidates = []

    def add(self, path: str, chunk: Chunk) -> None:
        """Add a passage."""
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
        """Return the passages that were kept, the best first; equal ones in search order.

        Each passage counts a tenth less than the one before it that is of the same file and holds the same words.
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
_CALL = "### call "
_CUT = "[This passage is cut: read shows the rest of its lines.]\n"


def search(
    workspace: ReadableWorkspace,
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
    """Find the passages of files that fit a query best, in plain words of any language.

    Passages are ranked by BM25 over the words of the query. Rare words weigh most, identifiers and quoted phrases also
    count as a whole, and other forms of a word count half. There is no index on disk; the same files give the same
    answer. Blocking; the time is linear in the bytes that are searched (1 to 6 s for 100 MB of text), and no file is
    held whole.

    Args:
        workspace: Where to search.
        query: A question, or some words.
        path: A file, the lines of a citation, a directory with everything below it, a glob such as
            ``tool_result-*.txt``, or several of these. None searches all that was archived or offloaded: transcripts,
            and tool results in their readable form.
        start: Rank of the first passage to show, 1-based, as in an earlier answer.
        session: The only session to search if *path* is None; else the session whose directory is tried first for a
            relative *path*.
        confined: Whether only that directory can be reached, and blobs in ``data/`` by their whole name.
        timeout_s: After how many seconds to answer with the hits so far.
        max_tokens: For the whole text of the answer.
        counter: Counts tokens; None for the default counter.
        spelling: Says in the answer how to go on.

    Returns:
        Passages of up to 800 characters, the best first, each with a citation that `read` accepts and its numbered
        lines. `Answer.total` counts all passages that hold a word of the query; up to 4,000 are ranked. `Answer.lines`
        has the lines in the order of the text.

    Raises:
        ConfigError: *workspace* is no workspace, *query* has no word or over 2,000 characters, *start* is below 1, or
            *max_tokens* is too small.
        InvalidNameError: *path* leads out of the workspace or to a hidden file.
        NotFoundError: There is no such file or session.
        StorageError: A file cannot be read.
    """
    require_workspace(workspace)
    if start < 1:
        raise ConfigError("start", f"{start} is too small; it counts from 1")
    ranking = Ranking(_wanted(query))
    ranges = files_to_search(workspace, path, session, confined=confined)
    stopped_in = _rank(Texts(workspace), ranges, ranking, Deadline(timeout_s))
    ranked = [_Passage(candidate) for candidate in ranking.best()]
    page = _Page(ranking, len(ranked), len(ranges), start, stopped_in, spelling, Calls(workspace))
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


def _rank(texts: Texts, ranges: LineRanges, ranking: Ranking, deadline: Deadline) -> str:
    """Rank the passages in *ranges*; return the file in which the time was up, or nothing."""
    for path in ranges:
        if description_of(texts, path) is not None:  # an image has no words
            continue
        for place, chunk in enumerate(chunks_of(texts.chunks(path)), 1):
            if any(first <= chunk.last and chunk.number <= last for first, last in ranges[path]):
                ranking.add(path, chunk)
            if place % _CHUNKS_BETWEEN_LOOKS == 0 and deadline.is_over():
                return path
        if deadline.is_over():
            return path
    return ""


@dataclass(frozen=True, slots=True)
class _Passage:
    """The first *chars* characters of a passage; all if that is None."""

    found: Candidate
    chars: int | None = None

    @property
    def content(self) -> str:
        return self.found.chunk.text[: self.chars]

    def shortened(self, chars: int) -> Self:
        return replace(self, chars=chars)

    def lines(self) -> list[Line]:
        return _lines(self.found.path, self.found.chunk._replace(text=self.content))

    def text(self, calls: Calls) -> str:
        """Return the passage below its citation and its call, if it begins within one."""
        whole, lines = _lines(self.found.path, self.found.chunk), self.lines()
        rows = "".join(f"{line.label}\t{line.text}\n" for line in lines)
        cut = "" if self.content == self.found.chunk.text else _CUT
        call = "" if whole[0].content.startswith(_CALL) else owner_row(calls.owner(self.found.path, whole[0].number))
        return f"== {shown_path(self.found.path)}:{whole[0].number}-{whole[-1].number}\n{call}{rows}{cut}"


def _lines(path: str, chunk: Chunk) -> list[Line]:
    """Return the lines of *chunk* without blank ones at the end."""
    texts = chunk.text.removesuffix("\n").split("\n")
    while len(texts) > 1 and not texts[-1].strip():
        texts.pop()
    return [
        Line(path, number, 1 if place else chunk.column, text.removesuffix("\r"), is_hit=True)
        for place, (number, text) in enumerate(enumerate(texts, chunk.number))
    ]


@dataclass(frozen=True, slots=True)
class _Page:
    """The text of an answer about *files* files that shows passages from rank *start* on."""

    ranking: Ranking
    ranked: int
    files: int
    start: int
    stopped_in: str
    spelling: Spelling
    calls: Calls

    def frame(self) -> str:
        return self._heading(self.ranked) + self._footer(0)

    def row(self, passage: _Passage) -> str:
        return passage.text(self.calls)

    def text(self, passages: Sequence[_Passage]) -> str:
        return self._heading(len(passages)) + "".join(map(self.row, passages)) + self._footer(len(passages))

    def following(self, passages: Sequence[_Passage]) -> dict[str, Any]:
        """Return where to go on after *passages*; empty at the end."""
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
