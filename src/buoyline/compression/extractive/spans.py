"""Which lines to cite for exact strings, and which of the strings to say: the most needed ones, at few places."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import accumulate
from operator import itemgetter
from typing import Final, NamedTuple

ROUNDS: Final = 10
"""Of halving the price of a token: 10 find it to a part in a thousand."""

NEARNESS: Final = 0.8
"""Share of a string's worth if it is in cited lines without being said itself: it is one look away."""

SAID_NEED: Final = 0.3
"""Of a string that is said. Those below are only near."""

LEAST_PRICE: Final = 0.006
"""Of a token of cited lines: tokens may be plentiful, but the reader's time is not."""


class StringCandidate(NamedTuple):
    """A string that could be said.

    Attributes:
        need: How likely it is needed, above 0.
        places: Numbers of the snippets that hold it; not empty.
        is_near: It is in lines that are cited already.
    """

    need: float
    tokens: int
    places: Sequence[int]
    is_near: bool = False


class Snippet(NamedTuple):
    """Some lines that may be cited.

    Attributes:
        mark_tokens: Cost of citing them, or a span that begins with them.
        lines: How many they are; a long one counts as several.
        follows: One pointer may name them together with the snippet before.
        file: Empty if they share their mark with no other snippet.
        more_tokens: Cost of citing them if another snippet of the file is cited.
    """

    mark_tokens: float
    lines: float
    follows: bool = False
    file: str = ""
    more_tokens: float = 0.0


class CitedSpan(NamedTuple):
    """Neighbouring snippets that one pointer names, from *first* to *last*.

    Attributes:
        said: Positions of the strings that are said beside the pointer; empty if none is likely enough needed.
        near: Positions of those that can be looked up there.
    """

    first: int
    last: int
    said: list[int]
    near: list[int]
    mark_tokens: float


def selected_spans(
    wanted: Sequence[StringCandidate],
    places: Sequence[Snippet],
    max_tokens: float,
    *,
    max_places: int,
    line_tokens: float = 0.0,
    named: Iterable[str] = (),
    least_need: float = 0.0,
) -> list[CitedSpan]:
    """Choose strings, and for each a place that is cited with it, so that the most needed strings are said.

    Citing a place costs its mark, so a string near others is cheaper than one alone, and unsaid strings at the place
    are worth something too. The name of a file is paid for once: its first place is taken if all worthwhile places of
    the file together pay for the name. A token has a price; at a price, a string is worth its need less the price of
    its tokens, or a part of its need if it is only near. The place with the most worth comes first and takes in
    neighbours that are worth their lines; a string counts once. The search finds the lowest price that keeps to
    *max_tokens*: a Lagrangian relaxation of the budgeted maximum coverage problem, solved greedily.

    Args:
        wanted: The strings.
        places: Their places, in the order of the conversation.
        max_tokens: Of strings and marks.
        max_places: So many neighbours may share a pointer, at least 1.
        line_tokens: Cost of citing a line, in tokens: whoever follows a pointer reads all of its lines.
        named: Files that are named anyway.
        least_need: Of a string that is said. If it is above 0, a span may say none.

    Returns:
        The cited spans, most valuable first.

    >>> here = Snippet(8, lines=1)
    >>> strings = [StringCandidate(0.5, 2, [0, 1]), StringCandidate(0.3, 4, [1]), StringCandidate(0.2, 2, [2])]
    >>> selected_spans(strings, [here] * 3, 13, max_places=1)
    [CitedSpan(first=1, last=1, said=[0], near=[1], mark_tokens=8)]
    """
    low, high = 0.0, max((string.need / string.tokens for string in wanted), default=0.0)
    best: list[CitedSpan] = []
    dearer: list[CitedSpan] = []
    files = frozenset(named)
    for _ in range(ROUNDS):
        price = (low + high) / 2
        auction = _Auction(
            wanted,
            places,
            price,
            max_places=max_places,
            line_tokens=line_tokens,
            named=files,
            least_need=least_need,
        )
        found, tokens = list[CitedSpan](), 0.0
        for span in auction.spans():
            found.append(span)
            tokens += span.mark_tokens + sum(wanted[position].tokens for position in span.said)
            if tokens > max_tokens:  # the price is too low, whatever follows
                low, dearer = price, found
                break
        else:
            best, high = found, price
    if best or not dearer:
        return best
    # No price separates strings that are alike: as many of them as fit are said beside the first span.
    span, said = dearer[0], list[int]()
    room = max_tokens - span.mark_tokens
    for position in sorted(span.said, key=lambda position: wanted[position].need, reverse=True):
        if wanted[position].tokens <= room:
            room -= wanted[position].tokens
            said.append(position)
    near = sorted({*span.near, *span.said} - {*said})
    return [span._replace(said=sorted(said), near=near)] if said else []


class _Auction:
    """The spans that are worth citing at a given price of a token."""

    def __init__(
        self,
        wanted: Sequence[StringCandidate],
        places: Sequence[Snippet],
        price: float,
        *,
        max_places: int,
        line_tokens: float,
        named: Iterable[str],
        least_need: float,
    ) -> None:
        self._wanted, self._places, self._price, self._max_places = wanted, places, price, max_places
        self._line_price = line_tokens * max(price, LEAST_PRICE)
        self._may_say_none = least_need > 0
        self._gains: list[float] = []
        self._is_said: list[bool] = []
        self._held: dict[int, set[int]] = {}  # the strings at each place, in no order
        self._taken: set[int] = set()  # strings that a span has
        self._paid = set(named)  # files that are named
        self._closed: set[str] = set()  # files that are not worth their names
        for position, string in enumerate(wanted):
            nearby = NEARNESS * string.need
            spoken = string.need - price * string.tokens if string.need >= least_need else 0.0
            gain = max(spoken, nearby) - (nearby if string.is_near else 0.0)
            self._gains.append(gain)
            self._is_said.append(spoken > nearby)
            for place in string.places if gain > 0 else ():
                self._held.setdefault(place, set()).add(position)
        # Snippets that a span may begin with, by file. The worth of one and all in reach is an upper bound for a span:
        # most are dropped after one look.
        held = sorted(self._held)
        sums = [0.0, *accumulate(sum(map(self._gains.__getitem__, self._held[place])) for place in held)]
        reach = max_places - 1
        self._seeds: defaultdict[str, list[int]] = defaultdict(list)
        self._costs: dict[int, float] = {}  # of a pointer to each of them alone
        for place in held:
            around = sums[bisect_right(held, place + reach)] - sums[bisect_left(held, place - reach)]
            cost = price * self._mark(place)
            if around > cost:
                self._seeds[places[place].file].append(place)
                self._costs[place] = cost + self._line_price * places[place].lines

    def spans(self) -> Iterator[CitedSpan]:
        """Yield the spans that are worth their price, the most valuable first."""
        heap = [(self._costs[seed] - self._gain(seed), seed) for seeds in self._seeds.values() for seed in seeds]
        heapify(heap)
        while heap:
            known, seed = heappop(heap)
            gain = self._gain(seed)
            if gain <= 0:
                continue
            if (lost := self._costs[seed] - gain) > known:
                heappush(heap, (lost, seed))
            elif self._is_worth_naming(self._places[seed].file):
                found, _ = self._grown(seed)
                if found is None:
                    continue
                first = self._places[found.first]
                if first.file and first.file not in self._paid:
                    self._paid.add(first.file)
                    found = found._replace(mark_tokens=first.mark_tokens)
                yield found

    def _is_worth_naming(self, file: str) -> bool:
        """Return whether a file is named already, or all its worthwhile snippets together pay for its name."""
        if not file or file in self._paid:
            return True
        if file in self._closed:
            return False
        seeds = sorted(self._seeds[file], key=lambda seed: self._costs[seed] - self._gain(seed))
        first = self._places[seeds[0]]
        owed = self._price * (first.mark_tokens - first.more_tokens)
        before = set(self._taken)
        for seed in seeds:
            owed -= self._grown(seed)[1] if self._gain(seed) > 0 else 0.0
            if owed < 0:
                break
        self._taken = before
        if owed >= 0:
            self._closed.add(file)  # what is taken elsewhere makes it worth less, and never more
        return owed < 0

    def _mark(self, place: int) -> float:
        """Return the cost of citing *place* beside others of its file."""
        found = self._places[place]
        return found.more_tokens if found.file else found.mark_tokens

    def _gain(self, place: int) -> float:
        return sum(map(self._gains.__getitem__, self._held[place] - self._taken))

    def _grown(self, seed: int) -> tuple[CitedSpan | None, float]:
        """Return the best span around *seed* and its worth, and take its strings; None if it is not worth its mark.

        It takes in the most valuable neighbours on one side, again and again.
        """
        first = last = seed
        held = self._held[seed] - self._taken
        worth = self._gain(seed) - self._costs[seed]
        while (room := self._max_places - (last - first + 1)) > 0:
            ends = self._best_end(last, 1, room, held), self._best_end(first, -1, room, held)
            more, end = max(ends, key=itemgetter(0))
            if more <= 0:
                break
            for place in range(last + 1, end + 1) if end > last else range(end, first):
                held |= self._held.get(place, set()) - self._taken
            first, last = min(first, end), max(last, end)
            worth += more
        if worth <= 0:
            return None, 0.0
        said = sorted(position for position in held if self._is_said[position])
        if not (said or self._may_say_none):  # a pointer alone tells nobody why it is there
            said = [max(held, key=lambda position: (self._wanted[position].need, -position))]
        self._taken |= held
        return CitedSpan(first, last, said, sorted(held.difference(said)), self._mark(seed)), worth

    def _best_end(self, place: int, step: int, room: int, held: set[int]) -> tuple[float, int]:
        """Return where the best run of at most *room* neighbours ends, and its worth without the strings in *held*.

        The run begins behind *place*, or before it if *step* is -1.
        """
        places, best, best_end = self._places, 0.0, place
        worth, seen = 0.0, set(held)
        for neighbour in range(place + step, place + step * (room + 1), step):
            if not 0 <= neighbour < len(places) or not places[max(neighbour, neighbour - step)].follows:
                break
            worth -= self._line_price * places[neighbour].lines
            strings = self._held.get(neighbour)
            if strings is None:
                continue
            new = strings.difference(self._taken, seen)
            if new:
                worth += sum(map(self._gains.__getitem__, new))
                seen.update(new)
                if worth > best:
                    best, best_end = worth, neighbour
        return best, best_end
