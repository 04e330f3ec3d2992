"""Which strings are said, and which lines are named beside them: much needed ones, and few places to look at."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import accumulate
from typing import Final, NamedTuple

ROUNDS: Final = 10
"""Of halving the price of a token: 10 find it to a part in a thousand."""

NEARNESS: Final = 0.45
"""How much of a string's worth it has to stand in lines that are named, without being said itself: one look away."""


LEAST_PRICE: Final = 0.005
"""Of a token, where lines are named: tokens may be plenty, and a reader's time is not."""


class Wanted(NamedTuple):
    """A string that could be said.

    Attributes:
        need: How likely it is needed, above 0.
        tokens: What it takes to say it.
        places: Numbers of the places that hold it; none is empty.
        is_near: It stands in lines that are named already.
    """

    need: float
    tokens: int
    places: Sequence[int]
    is_near: bool = False


class Place(NamedTuple):
    """Some lines that may be named.

    Attributes:
        mark_tokens: What it takes to name them, or a run of places that begins with them.
        lines: How many they are; a long one counts as several.
        follows: They may be named together with the place before.
        file: Where they stand; empty for a place that shares its mark with none.
        more_tokens: What it takes to name them where another place of the same file is named.
    """

    mark_tokens: float
    lines: float
    follows: bool = False
    file: str = ""
    more_tokens: float = 0.0


class Stretch(NamedTuple):
    """Places in a row that are named by one pointer.

    Attributes:
        first: Number of the first place.
        last: Number of the last one.
        said: Positions of the strings that are said beside the pointer, never empty.
        near: Positions of those that can be looked up there.
        mark_tokens: What it takes to name the places.
    """

    first: int
    last: int
    said: list[int]
    near: list[int]
    mark_tokens: float


def allotted(
    wanted: Sequence[Wanted],
    places: Sequence[Place],
    max_tokens: float,
    *,
    max_places: int,
    line_tokens: float = 0.0,
    named: Iterable[str] = (),
) -> list[Stretch]:
    """Choose strings, and for each of them the place that is named with it, so that much is said that is needed.

    A place that is named costs its mark, so that a string which stands beside others is cheaper than one alone; and
    what stands there unsaid is worth something, too. The name of a file is paid for once: its first place is taken
    where all that is worth a look in the file pays for the name together. A token has a price; at a price, a string is
    worth its need less the price of its tokens, or a part of its need if it is only near. The place with the most worth
    comes first and takes in neighbours that are worth their lines; a string counts once. The lowest price that keeps
    to *max_tokens* is looked for: a Lagrangian relaxation of the budgeted maximum coverage problem, solved greedily.

    Args:
        wanted: The strings.
        places: Where they stand, in the order of the conversation.
        max_tokens: For strings and marks.
        max_places: So many in a row may share a pointer, at least 1.
        line_tokens: What it costs to name a line, in tokens: whoever follows a pointer reads all of its lines.
        named: Files that are named anyway.

    Returns:
        What is named, most worth first.

    >>> here = Place(8, lines=1)
    >>> allotted([Wanted(0.5, 2, [0, 1]), Wanted(0.5, 2, [1]), Wanted(0.2, 2, [2])], [here] * 3, 13, max_places=1)
    [Stretch(first=1, last=1, said=[0, 1], near=[], mark_tokens=8)]
    """
    low, high = 0.0, max((string.need / string.tokens for string in wanted), default=0.0)
    best: list[Stretch] = []
    dearer: list[Stretch] = []
    files = frozenset(named)
    for _ in range(ROUNDS):
        price = (low + high) / 2
        auction = _Auction(wanted, places, price=price, max_places=max_places, line_tokens=line_tokens, named=files)
        found = list(auction.stretches())
        if _tokens(found, wanted) <= max_tokens:
            best, high = found, price
        else:
            low, dearer = price, found
    return best or list(_lightened(dearer[:1], wanted, max_tokens))


def _lightened(found: Iterable[Stretch], wanted: Sequence[Wanted], max_tokens: float) -> Iterator[Stretch]:
    """Yield stretches with as many of their strings as there are tokens for: no price parts strings that are alike."""
    for stretch in found:
        room = max_tokens - stretch.mark_tokens
        said: list[int] = []
        for position in sorted(stretch.said, key=lambda position: wanted[position].need, reverse=True):
            if wanted[position].tokens <= room:
                room -= wanted[position].tokens
                said.append(position)
        if said:
            near = sorted({*stretch.near, *stretch.said} - {*said})
            yield stretch._replace(said=sorted(said), near=near)


def _tokens(found: Iterable[Stretch], wanted: Sequence[Wanted]) -> float:
    return sum(stretch.mark_tokens + sum(wanted[position].tokens for position in stretch.said) for stretch in found)


class _Auction:
    """What is worth naming where a token has a certain price."""

    def __init__(
        self,
        wanted: Sequence[Wanted],
        places: Sequence[Place],
        *,
        price: float,
        max_places: int,
        line_tokens: float,
        named: frozenset[str],
    ) -> None:
        self._wanted = wanted
        self._places = places
        self._price = price
        self._line_price = line_tokens * max(price, LEAST_PRICE)
        self._max_places = max_places
        self._gains: list[float] = []
        self._is_said: list[bool] = []
        self._held: list[list[int]] = [[] for _ in places]
        for position, string in enumerate(wanted):
            spoken, nearby = string.need - price * string.tokens, NEARNESS * string.need
            gain = max(spoken, nearby) - (nearby if string.is_near else 0.0)
            self._gains.append(gain)
            self._is_said.append(spoken > nearby)
            for place in string.places if gain > 0 else ():
                self._held[place].append(position)
        self._taken: set[int] = set()
        self._paid = set(named)
        self._closed: set[str] = set()
        self._seeds = self._sown()

    def stretches(self) -> Iterator[Stretch]:
        """Yield what is worth its price, the place that holds most first."""
        heap = [(self._cost(seed) - self._gain(seed), seed) for seeds in self._seeds.values() for seed in seeds]
        heapify(heap)
        while heap:
            known, seed = heappop(heap)
            gain = self._gain(seed)
            if gain <= 0:
                continue
            if (lost := self._cost(seed) - gain) > known:
                heappush(heap, (lost, seed))
            elif self._is_worth_naming(self._places[seed].file):
                found, _ = self._grown(seed)
                if found is not None:
                    yield self._opened(found)

    def _sown(self) -> defaultdict[str, list[int]]:
        """Return by file the places that a stretch may begin with.

        What a place and all in reach hold bounds what it can become: most places are done with after one look.
        """
        alone = [sum(map(self._gains.__getitem__, held)) for held in self._held]
        sums = [0.0, *accumulate(alone)]
        reach = self._max_places - 1
        seeds: defaultdict[str, list[int]] = defaultdict(list)
        for place, gain in enumerate(alone):
            around = sums[min(place + reach + 1, len(alone))] - sums[max(place - reach, 0)]
            if gain > 0 and around > self._price * self._mark(place):
                seeds[self._places[place].file].append(place)
        return seeds

    def _is_worth_naming(self, file: str) -> bool:
        """Tell whether a file is named already, or all that is worth a look in it pays for its name together."""
        if not file or file in self._paid:
            return True
        if file not in self._closed and not self._pays_for_its_name(file):
            self._closed.add(file)  # what is taken elsewhere makes it worth less, and never more
        return file not in self._closed

    def _pays_for_its_name(self, file: str) -> bool:
        seeds = sorted(self._seeds[file], key=lambda seed: self._cost(seed) - self._gain(seed))
        first = self._places[seeds[0]]
        owed = self._price * (first.mark_tokens - first.more_tokens)
        before = set(self._taken)
        for seed in seeds:
            owed -= self._grown(seed)[1] if self._gain(seed) > 0 else 0.0
            if owed < 0:
                break
        self._taken = before
        return owed < 0

    def _opened(self, found: Stretch) -> Stretch:
        """Return *found*, with the price of the name of its file if nothing else has paid for that."""
        place = self._places[found.first]
        if not place.file or place.file in self._paid:
            return found
        self._paid.add(place.file)
        return found._replace(mark_tokens=place.mark_tokens)

    def _mark(self, place: int) -> float:
        """Return what it takes to name *place* beside others of its file."""
        found = self._places[place]
        return found.more_tokens if found.file else found.mark_tokens

    def _cost(self, place: int) -> float:
        """Return what a pointer to *place* alone costs."""
        return self._price * self._mark(place) + self._line_price * self._places[place].lines

    def _gain(self, place: int, also: frozenset[int] | set[int] = frozenset()) -> float:
        return sum(
            self._gains[position]
            for position in self._held[place]
            if position not in self._taken and position not in also
        )

    def _grown(self, seed: int) -> tuple[Stretch | None, float]:
        """Return the best stretch around *seed* and what it is worth; None where that is not worth its mark."""
        first = last = seed
        held = {position for position in self._held[seed] if position not in self._taken}
        worth = self._gain(seed) - self._cost(seed)
        while last - first + 1 < self._max_places:
            more, first, last = self._extended(first, last, held)
            if more <= 0:
                break
            worth += more
        if worth <= 0:
            return None, 0.0
        said = sorted(position for position in held if self._is_said[position])
        if not said:  # a pointer alone tells nobody why it is there
            said = [max(held, key=lambda position: (self._wanted[position].need, -position))]
        self._taken |= held
        return Stretch(first, last, said, sorted(held.difference(said)), self._mark(seed)), worth

    def _extended(self, first: int, last: int, held: set[int]) -> tuple[float, int, int]:
        """Take in the neighbours on one side that are worth most, and add what they hold to *held*."""
        room = self._max_places - (last - first + 1)
        ahead = self._best_run(self._following(last, room), held)
        behind = self._best_run(self._preceding(first, room), held)
        worth, run = max(ahead, behind, key=lambda found: found[0])
        if worth <= 0:
            return 0.0, first, last
        for place in run:
            held.update(position for position in self._held[place] if position not in self._taken)
        return worth, min(first, run[-1]), max(last, run[-1])

    def _best_run(self, neighbours: Iterable[int], held: set[int]) -> tuple[float, list[int]]:
        best, best_length = 0.0, 0
        worth, seen, run = 0.0, set(held), list[int]()
        for place in neighbours:
            worth -= self._line_price * self._places[place].lines
            run.append(place)
            if not self._held[place]:
                continue
            worth += self._gain(place, seen)
            seen.update(self._held[place])
            if worth > best:
                best, best_length = worth, len(run)
        return best, run[:best_length]

    def _following(self, last: int, room: int) -> Iterator[int]:
        for place in range(last + 1, min(last + 1 + room, len(self._places))):
            if not self._places[place].follows:
                return
            yield place

    def _preceding(self, first: int, room: int) -> Iterator[int]:
        for place in range(first, max(first - room, 0), -1):
            if not self._places[place].follows:
                return
            yield place - 1
