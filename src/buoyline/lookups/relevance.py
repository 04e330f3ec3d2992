"""Which passages have most to do with a query.

BM25 in Lucene's form, in one pass: what a word weighs is known at the end, so candidates are kept with their counts,
and no more of them than will ever be shown. Pure. Source: Robertson and Zaragoza, The Probabilistic Relevance
Framework (2009); k1 and b are the usual ones, and were not tuned.
"""

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from buoyline.lookups.chunks import Chunk
from buoyline.lookups.words import Words

MAX_CANDIDATES = 4_000
"""So many passages are ranked at last; who would read on behind them asks for something else."""

_K1 = 1.2
_B = 0.75


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
            self._candidates = self.best()

    def best(self) -> list[Candidate]:
        """Return the passages that were kept, the best first; of equals the one that came first."""
        weights = [math.log1p((self.passages - holding + 0.5) / (holding + 0.5)) for holding in self._holding]
        mean_chars = self._chars / max(self.passages, 1)

        def score(candidate: Candidate) -> tuple[float, int]:
            damping = _K1 * (1 - _B + _B * len(candidate.chunk.text) / mean_chars)
            counts = candidate.counts.items()
            return sum(weights[place] * count / (count + damping) for place, count in counts), -candidate.order

        return heapq.nlargest(MAX_CANDIDATES, self._candidates, key=score)
