"""Passages of files, the words of a query, and how well each passage fits them. Pure: nothing here reads a file."""

import codecs
import collections
import heapq
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

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
        offset: The byte that it begins at, if all of the file is UTF-8.
    """

    number: int
    column: int
    text: str
    offset: int = 0

    @property
    def last(self) -> int:
        """The line that it ends in."""
        return self.number + self.text.count("\n", 0, -1)


def chunks_of(content: Iterable[bytes], number: int = 1, column: int = 1, offset: int = 0) -> Iterator[Chunk]:
    """Yield all chunks of a file that have a visible character, from the chunk at *number*, *column* and *offset* on.

    They do not depend on the pieces of *content*, only a few of which are held.
    """
    for text in _texts(content):
        if text.strip():
            yield Chunk(number, column, text, offset)
        offset += size_bytes_of(text)
        lines = text.count("\n")
        number += lines
        column = len(text) - text.rfind("\n") if lines else column + len(text)


def size_bytes_of(text: str) -> int:
    """Return the size of *text* in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8"))


def _texts(content: Iterable[bytes]) -> Iterator[str]:
    held, position = "", 0
    for text in codecs.iterdecode(content, "utf-8", "replace"):
        held += text
        # One character after the chunk must be known, so that each chunk is cut by the same rule.
        while len(held) - position > MAX_CHUNK_CHARS + 1:
            end = _end(held, position)
            yield held[position:end]
            position = end
        held, position = held[position:], 0
    while position < len(held):
        end = _end(held, position)
        yield held[position:end]
        position = end


def _end(text: str, start: int) -> int:
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
        terms: Of each single word or pair, by its position in *texts*: what a term of a passage that holds it begins
            with, and whether the term may be longer; see `terms_of`.
    """

    def __init__(self, query: str) -> None:
        """Take the words of *query*, if there are any."""
        text = folded(query)
        quoted = (" ".join("".join(groups).split()) for groups in _QUOTED.findall(text))
        several = (phrase for phrase in quoted if len(_WORD.findall(phrase)) > 1)
        phrases = list(dict.fromkeys([*several, *_COMPOUND.findall(text)]))[:MAX_PHRASES]
        single, unspaced = _singles(text)
        self.texts = tuple(dict.fromkeys([*phrases, *single, *unspaced]))[:MAX_WORDS]
        places = {word: place for place, word in enumerate(self.texts)}
        self._forms = _Forms({word: places[word] for word in single if word in places})
        self._pairs = [(word, places[word]) for word in unspaced if word in places]
        self.terms = {
            **{places[word]: (_stem(word), _stem(word) != word) for word in single if word in places},
            **{place: (word, len(word) == 1) for word, place in self._pairs},
        }
        # A pattern that begins with the phrase is found at once; one that begins with an assertion is tried at each
        # place.
        literals = ((phrase, re.escape(phrase)) for phrase in phrases)
        self._phrases = [
            (phrase, places[phrase], re.compile(rf"{literal}(?<![^\W_]{literal})(?![^\W_])"))
            for phrase, literal in literals
        ]

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
        for phrase, place, pattern in self._phrases:
            if phrase in text and (found := pattern.findall(text)):
                counts[place] = len(found)
        if not text.isascii():
            counts.update((place, text.count(pair)) for pair, place in self._pairs if pair in text)
        return counts


def terms_of(text: str) -> str:
    """Return the words and pairs of *text* with blanks between them, for an index of words.

    An index splits ASCII at whatever is no letter or digit and ignores its case, which is all that is needed then.
    """
    if text.isascii():
        return text
    text = folded(text)
    runs = _UNSPACED_RUN.findall(text)
    _, pairs = _singles(text)
    return " ".join({*_split(text), *pairs, *(run[-1] for run in runs)})


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
        self._sizes = sorted({len(stem) for stem in self.stems})

    def __missing__(self, found: str) -> tuple[tuple[int, float], ...]:
        meant: list[tuple[int, float]] = []
        for size in self._sizes:
            stem = found[:size]
            for word in self.stems.get(stem, ()) if size <= len(found) else ():
                if found == word:
                    meant.append((self._words[word], 1))
                elif stem != word and len(found) <= len(word) + _MAX_ADDED:
                    meant.append((self._words[word], VARIANT_WEIGHT))
        if len(self) >= _MAX_REMEMBERED:
            self.clear()
        self[found] = tuple(meant)
        return self[found]


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
    """A passage that holds a word of the query; the first one in search order has the *order* 1.

    *counts* has how often it holds each word, by the word's position.
    """

    order: int
    path: str
    chunk: Chunk
    counts: Mapping[int, float]


class Ranking:
    """Ranks passages as they come.

    Of the *passages* so far, *total* hold a word of the query; *holding* has how many hold each word, by its position.
    """

    def __init__(self, words: Words) -> None:
        """Rank by *words*."""
        self.words = words
        self.total = self.passages = self._chars = 0
        self.holding = [0] * len(words)
        self._candidates: list[Candidate] = []

    def add(self, path: str, chunk: Chunk) -> None:
        """Add a passage."""
        self.passages += 1
        self._chars += len(chunk.text)
        if counts := self.words.count(chunk.text):
            self.add_read(path, chunk, counts)

    def add_unread(self, passages: int, chars: int, holding: int, holding_words: Mapping[int, int]) -> None:
        """Add *passages* with *chars* characters in all: those that `add_read` adds next, and some that are not ranked.

        Of the latter, *holding* hold a word; *holding_words* has how many hold each word, by the word's position.
        """
        self.passages += passages
        self._chars += chars
        self.total += holding
        for place, count in holding_words.items():
            self.holding[place] += count

    def add_read(self, path: str, chunk: Chunk, counts: Mapping[int, float]) -> None:
        """Rank a passage that is among the passages already, and that holds each word so often."""
        self.total += 1
        for place in counts:
            self.holding[place] += 1
        self._candidates.append(Candidate(self.total, path, chunk, counts))
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
        weights = [math.log1p((self.passages - holding + 0.5) / (holding + 0.5)) for holding in self.holding]
        mean_chars = self._chars / max(self.passages, 1)

        def score(candidate: Candidate) -> float:
            damping = _K1 * (1 - _B + _B * len(candidate.chunk.text) / mean_chars)
            return sum(weights[place] * count / (count + damping) for place, count in candidate.counts.items())

        scored = ((score(candidate), -candidate.order, candidate) for candidate in self._candidates)
        return heapq.nlargest(MAX_CANDIDATES, scored)
