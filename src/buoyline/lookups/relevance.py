"""Which passages have most to do with a query.

BM25 in Lucene's form, in one pass: what a word weighs is known at the end, so candidates are kept with their counts,
and no more of them than will ever be shown. Pure. Source: Robertson and Zaragoza, The Probabilistic Relevance
Framework (2009); k1 and b are the usual ones, and were not tuned.

An answer has room for some twenty passages. Where hundreds of records or lines of a log say the same of the query,
they took all of it; so each of them comes a little behind the one before, and what holds other words of the query, or
stands in another file, is seen, too. How much that is hardly matters: in ``benchmarks/memory.py`` the second search
found the next record of the chain for 36 of 50 questions without it, and for 45 with a tenth, with 1/(1 + n/4) and
with 1/sqrt(1 + n).
"""

import heapq
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from buoyline.lookups.chunks import Chunk
from buoyline.lookups.words import Words

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
        alike: Counter[tuple[str, frozenset[int]]] = Counter()
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
