"""The places of exact strings, short runs of lines in the order of the conversation, and which of them to cite."""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import accumulate, groupby
from operator import attrgetter, itemgetter
from typing import Final, NamedTuple

from buoyline.compression.extractive.lines import result_texts
from buoyline.compression.pointers import Pointer, citation_marks
from buoyline.compression.summary import Fact, SourceMessage
from buoyline.tokens import TextCounter

# Select strings to say and lines to cite: strings that are likely needed, at few places.


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
        tokens: Its cost.
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
        file: Their file; empty if they share their mark with no other snippet.
        more_tokens: Cost of citing them if another snippet of the file is cited.
    """

    mark_tokens: float
    lines: float
    follows: bool = False
    file: str = ""
    more_tokens: float = 0.0


class CitedSpan(NamedTuple):
    """Neighbouring snippets that one pointer names.

    Attributes:
        first: Number of the first snippet.
        last: Number of the last one.
        said: Positions of the strings that are said beside the pointer; empty if none is likely enough needed.
        near: Positions of those that can be looked up there.
        mark_tokens: Cost of citing the span.
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
        auction = _Auction(wanted, places, price, max_places, line_tokens, files, least_need)
        found = list(auction.spans())
        if _tokens(found, wanted) <= max_tokens:
            best, high = found, price
        else:
            low, dearer = price, found
    return best or list(_lightened(dearer[:1], wanted, max_tokens))


def _lightened(found: Iterable[CitedSpan], wanted: Sequence[StringCandidate], max_tokens: float) -> Iterator[CitedSpan]:
    """Yield spans with as many of their strings as fit: no price separates strings that are alike."""
    for span in found:
        room = max_tokens - span.mark_tokens
        said: list[int] = []
        for position in sorted(span.said, key=lambda position: wanted[position].need, reverse=True):
            if wanted[position].tokens <= room:
                room -= wanted[position].tokens
                said.append(position)
        if said:
            near = sorted({*span.near, *span.said} - {*said})
            yield span._replace(said=sorted(said), near=near)


def _tokens(found: Iterable[CitedSpan], wanted: Sequence[StringCandidate]) -> float:
    return sum(span.mark_tokens + sum(wanted[position].tokens for position in span.said) for span in found)


@dataclass(slots=True)
class _Auction:
    """The spans that are worth citing at a given price of a token."""

    wanted: Sequence[StringCandidate]
    places: Sequence[Snippet]
    price: float
    max_places: int
    line_tokens: float
    named: frozenset[str]
    least_need: float
    _gains: list[float] = field(default_factory=list[float])
    _is_said: list[bool] = field(default_factory=list[bool])
    _held: dict[int, set[int]] = field(default_factory=dict[int, set[int]])  # of places with strings, in no order
    _taken: set[int] = field(default_factory=set[int])
    _closed: set[str] = field(default_factory=set[str])
    _line_price: float = field(init=False)
    _paid: set[str] = field(init=False)
    _seeds: defaultdict[str, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self._line_price = self.line_tokens * max(self.price, LEAST_PRICE)
        for position, string in enumerate(self.wanted):
            nearby = NEARNESS * string.need
            spoken = string.need - self.price * string.tokens if string.need >= self.least_need else 0.0
            gain = max(spoken, nearby) - (nearby if string.is_near else 0.0)
            self._gains.append(gain)
            self._is_said.append(spoken > nearby)
            for place in string.places if gain > 0 else ():
                self._held.setdefault(place, set()).add(position)
        self._paid = set(self.named)
        self._seeds = self._sown()

    def spans(self) -> Iterator[CitedSpan]:
        """Yield the spans that are worth their price, the most valuable first."""
        heap = [(self._cost(seed) - self._gain(seed), seed) for seeds in self._seeds.values() for seed in seeds]
        heapify(heap)
        while heap:
            known, seed = heappop(heap)
            gain = self._gain(seed)
            if gain <= 0:
                continue
            if (lost := self._cost(seed) - gain) > known:
                heappush(heap, (lost, seed))
            elif self._is_worth_naming(self.places[seed].file):
                found, _ = self._grown(seed)
                if found is not None:
                    yield self._opened(found)

    def _sown(self) -> defaultdict[str, list[int]]:
        """Return the snippets that a span may begin with, by file.

        The worth of a snippet and all in reach is an upper bound for a span: most snippets are dropped after one look.
        """
        held = sorted(self._held)
        sums = [0.0, *accumulate(sum(map(self._gains.__getitem__, self._held[place])) for place in held)]
        reach = self.max_places - 1
        seeds: defaultdict[str, list[int]] = defaultdict(list)
        for place in held:
            around = sums[bisect_right(held, place + reach)] - sums[bisect_left(held, place - reach)]
            if around > self.price * self._mark(place):
                seeds[self.places[place].file].append(place)
        return seeds

    def _is_worth_naming(self, file: str) -> bool:
        """Return whether a file is named already, or all its worthwhile snippets together pay for its name."""
        if not file or file in self._paid:
            return True
        if file not in self._closed and not self._pays_for_its_name(file):
            self._closed.add(file)  # what is taken elsewhere makes it worth less, and never more
        return file not in self._closed

    def _pays_for_its_name(self, file: str) -> bool:
        seeds = sorted(self._seeds[file], key=lambda seed: self._cost(seed) - self._gain(seed))
        first = self.places[seeds[0]]
        owed = self.price * (first.mark_tokens - first.more_tokens)
        before = set(self._taken)
        for seed in seeds:
            owed -= self._grown(seed)[1] if self._gain(seed) > 0 else 0.0
            if owed < 0:
                break
        self._taken = before
        return owed < 0

    def _opened(self, found: CitedSpan) -> CitedSpan:
        """Return *found*, with the cost of its file's name if nothing else has paid for it."""
        place = self.places[found.first]
        if not place.file or place.file in self._paid:
            return found
        self._paid.add(place.file)
        return found._replace(mark_tokens=place.mark_tokens)

    def _mark(self, place: int) -> float:
        """Return the cost of citing *place* beside others of its file."""
        found = self.places[place]
        return found.more_tokens if found.file else found.mark_tokens

    def _cost(self, place: int) -> float:
        """Return the cost of a pointer to *place* alone."""
        return self.price * self._mark(place) + self._line_price * self.places[place].lines

    def _gain(self, place: int) -> float:
        return sum(map(self._gains.__getitem__, self._held[place] - self._taken))

    def _grown(self, seed: int) -> tuple[CitedSpan | None, float]:
        """Return the best span around *seed* and its worth; None if that is less than its mark."""
        first = last = seed
        held = self._held[seed] - self._taken
        worth = self._gain(seed) - self._cost(seed)
        while last - first + 1 < self.max_places:
            more, first, last = self._extended(first, last, held)
            if more <= 0:
                break
            worth += more
        if worth <= 0:
            return None, 0.0
        said = sorted(position for position in held if self._is_said[position])
        if not said and not self.least_need:  # a pointer alone tells nobody why it is there
            said = [max(held, key=lambda position: (self.wanted[position].need, -position))]
        self._taken |= held
        return CitedSpan(first, last, said, sorted(held.difference(said)), self._mark(seed)), worth

    def _extended(self, first: int, last: int, held: set[int]) -> tuple[float, int, int]:
        """Take in the most valuable neighbours on one side, and add their strings to *held*."""
        room = self.max_places - (last - first + 1)
        worth, end = max(self._best_end(last, 1, room, held), self._best_end(first, -1, room, held), key=itemgetter(0))
        if worth <= 0:
            return 0.0, first, last
        for place in range(last + 1, end + 1) if end > last else range(end, first):
            held |= self._held.get(place, set()) - self._taken
        return worth, min(first, end), max(last, end)

    def _best_end(self, place: int, step: int, room: int, held: set[int]) -> tuple[float, int]:
        """Return where the best run of at most *room* neighbours ends, and its worth without the strings in *held*.

        The run begins behind *place*, or before it if *step* is -1.
        """
        places, best, best_end = self.places, 0.0, place
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


# Lines of exact strings in the order of their places, several places of one file on a line.


LABEL_KIND: Final = "label"
"""The kind of a file name that precedes bare strings and says where they are from."""

MAX_RANGES: Final = 6
"""So many places of a file share a line and its mark. More save little: four take 8 tokens each, six 7, one alone 12.

And of a string on such a line only its rank tells which of these places it is from.
"""


UNLABELLED: Final = "More names in use:"
"""Begins a line that only cites: its lines hold strings of which none alone is likely needed."""


@dataclass(slots=True)
class Row:
    """One line of exact strings.

    Attributes:
        label: Name of their file; empty if not known.
        pointers: Their places, in order; touching ones are one.
        strings: Place by place, and paths first in each: they say what the names behind them belong to.
    """

    label: str
    pointers: list[Pointer] = field(default_factory=list[Pointer])
    strings: list[str] = field(default_factory=list[str])

    @property
    def text(self) -> str:
        """The line without its mark."""
        label = [f"{self.label}:"] if self.label else [] if self.strings else [UNLABELLED]
        return " ".join([*label, *map(_unparted, self.strings)])

    def add(self, pointers: Sequence[Pointer], strings: Iterable[str]) -> None:
        """Add the strings of one more place."""
        self.strings += strings
        for pointer in pointers:
            last = self.pointers[-1] if self.pointers else None
            if last is not None and last.path == pointer.path and last.start <= pointer.start <= last.end + 1:
                self.pointers[-1] = Pointer(last.path, last.start, max(last.end, pointer.end))
            else:
                self.pointers.append(pointer)


def rows(items: Iterable[Fact]) -> list[Row]:
    """Put strings on lines, those of one file together unless their labels differ.

    Args:
        items: Exact strings and labels, in any order.

    Returns:
        Rows in the order of their first places. Only a row for strings with more places of their own exceeds
        `MAX_RANGES`.
    """
    found: list[Row] = []
    waiting: dict[tuple[frozenset[str], str], Row] = {}
    # In one place paths come first: they say what the names behind them belong to.
    ordered = sorted(items, key=lambda item: (item.pointers, item.kind != "path", item.kind, item.text))
    for pointers, group in groupby(ordered, key=attrgetter("pointers")):
        members = list(group)
        label = next((item.text for item in members if item.kind == LABEL_KIND), "")
        strings = [item.text for item in members if item.kind != LABEL_KIND]
        files = frozenset(pointer.path for pointer in pointers)
        row = waiting.get((files, label))
        is_full = (
            row is not None and len(row.pointers) + len(pointers) > MAX_RANGES and (label or strings or row.strings)
        )
        if row is None or len(files) != 1 or is_full:
            row = waiting[files, label] = Row(label)
            found.append(row)
        row.add(pointers, strings)
    return found


def prices(pointers: Sequence[Pointer], counter: TextCounter) -> tuple[float, float]:
    """Return the cost of citing *pointers* alone on a line, and on average beside others of their file."""
    alone = counter.count(_frame(pointers))
    more = counter.count(_frame((*pointers, *pointers))) - alone
    return alone, more + (alone - more) / MAX_RANGES


def _frame(pointers: Sequence[Pointer]) -> str:
    return f"- {''.join(f' {mark}' for mark in citation_marks(pointers))}\n"


def _unparted(string: str) -> str:
    """Return a string so that blanks separate it from the next: few contain blanks, and commas take tokens."""
    return f"“{string}”" if " " in string else string


SECTION_LINES: Final = 4
"""Lines of a section. With six, more lines are cited for as many strings; with three, more marks."""

MAX_WINDOW_LINES: Final = 96
MIN_WINDOW_LINES: Final = 12
"""Strings within so many lines may share a pointer: with more it cites too much, with fewer there are too many."""

LINES_PER_TOKEN: Final = 36
"""The same for each line and each token of the summary, at most a quarter of all lines.

More tokens then shorten the runs instead of citing more lines. Measured on recorded sessions.
"""

USUAL_LINE_CHARS: Final = 100
"""A longer line counts as several, since it takes as long to read."""

LINE_PRICE: Final = 0.5
"""Cost of citing all lines, as a share of the summary's tokens: among many lines one costs little."""

MAX_LINE_TOKENS: Final = 0.25
"""Limit of the cost of one line, for a conversation of few lines."""

MAX_LEAD_LINES: Final = 12
"""So many lines before the first string are also cited to show the file that it is from."""

MAX_PLACES: Final = 6
"""Of the sections that hold a string the newest are considered: an older one is seldom better to read."""


_DIGIT = re.compile("[0-9]")


class Section(NamedTuple):
    """Consecutive lines.

    Attributes:
        pointer: Their place; None if no lines are known.
        lines: Their text; a message without known lines is one line, cited as a whole.
        is_whole: They cannot be divided, or cited together with others.
    """

    pointer: Pointer | None
    lines: tuple[str, ...]
    is_whole: bool = False


class Sections:
    """The lines of a conversation, and the exact strings in them.

    Attributes:
        places: Of each string, the numbers of the sections that hold it, in order.
    """

    def __init__(self, sources: Iterable[SourceMessage], strings: Callable[[str], Iterable[str]]) -> None:
        """Read *sources*; *strings* finds the exact strings in a text."""
        self._sections = [section for source in sources for section in _sections(source)]
        self._numbered = {
            (section.pointer.path, section.pointer.start + at): line
            for section in self._sections
            if section.pointer is not None and not section.is_whole
            for at, line in enumerate(section.lines)
        }
        self._lines = sum(len(section.lines) for section in self._sections)
        self._strings = strings
        self._prices: dict[tuple[str, str], tuple[float, float]] = {}
        self.places: defaultdict[str, list[int]] = defaultdict(list)
        for number, section in enumerate(self._sections):
            for string in strings("\n".join(section.lines)):
                self.places[string].append(number)

    def __len__(self) -> int:
        """Return how many sections there are."""
        return len(self._sections)

    def most_in_a_row(self, max_tokens: int) -> int:
        """Return how many neighbours may share a pointer in a summary of *max_tokens*."""
        lines = min(LINES_PER_TOKEN * self._lines // max(max_tokens, 1), MAX_WINDOW_LINES)
        return max(MIN_WINDOW_LINES, lines) // SECTION_LINES

    def line_tokens(self, max_tokens: int) -> float:
        """Return the cost of citing a line in a summary of *max_tokens*, in tokens."""
        return min(LINE_PRICE * max(max_tokens, 1) / max(self._lines, 1), MAX_LINE_TOKENS)

    def holding(self, string: str) -> list[int]:
        """Return the numbers of the newest sections that hold *string*; empty if none does."""
        return self.places.get(string, [])[-MAX_PLACES:]

    def place(self, number: int, counter: TextCounter) -> Snippet:
        """Return the cost of citing a section."""
        section = self._sections[number]
        lines = sum(max(len(line) / USUAL_LINE_CHARS, 1.0) for line in section.lines)
        alone, more = self._prices_of(section.pointer, counter)
        file = "" if section.pointer is None else section.pointer.path
        return Snippet(alone, lines, self._follows(number), file, more)

    def strings_at(self, pointers: Iterable[Pointer]) -> set[str]:
        """Return the exact strings in the lines that *pointers* name, as far as the lines are known."""
        lines = (
            self._line(pointer, at)
            for pointer in dict.fromkeys(pointers)
            for at in range(pointer.start, pointer.end + 1)
        )
        return set(self._strings("\n".join(lines)))

    def lines_of(self, first: int, last: int, strings: Iterable[str]) -> tuple[Pointer, ...]:
        """Return the lines in a run of sections that show each of *strings*."""
        pointers: list[Pointer] = []
        for string in strings:
            held = self.places[string]
            at = bisect_left(held, first)
            if at < len(held) and held[at] <= last and (pointer := self._line_of(held[at], string)) is not None:
                pointers.append(pointer)
        if not pointers:
            return ()
        start, end = min(pointer.start for pointer in pointers), max(pointer.end for pointer in pointers)
        return (Pointer(pointers[0].path, start, end),)

    def led_by(self, pointer: Pointer, name: str) -> Pointer | None:
        """Return the lines of *pointer*, with some before them if these contain *name*; None if none does."""
        named = (
            at for at in range(pointer.end, pointer.start - MAX_LEAD_LINES - 1, -1) if name in self._line(pointer, at)
        )
        at = next((at for at in named if at <= pointer.start), None)
        if at is None:
            is_within = any(name in self._line(pointer, at) for at in range(pointer.start, pointer.end + 1))
            return pointer if is_within else None
        return Pointer(pointer.path, at, pointer.end)

    def _line(self, pointer: Pointer, number: int) -> str:
        return self._numbered.get((pointer.path, number), "")

    def _prices_of(self, pointer: Pointer | None, counter: TextCounter) -> tuple[float, float]:
        """Return the cost of citing *pointer*; numbers of as many digits cost the same."""
        key = ("", "") if pointer is None else (pointer.path, _DIGIT.sub("0", pointer.lines))
        if key not in self._prices:
            self._prices[key] = prices(() if pointer is None else (pointer,), counter)
        return self._prices[key]

    def _follows(self, number: int) -> bool:
        if number == 0:
            return False
        before, section = self._sections[number - 1], self._sections[number]
        if before.is_whole or section.is_whole or before.pointer is None or section.pointer is None:
            return False
        return before.pointer.path == section.pointer.path and before.pointer.end + 1 == section.pointer.start

    def _line_of(self, number: int, string: str) -> Pointer | None:
        section = self._sections[number]
        if section.pointer is None or section.is_whole:
            return section.pointer
        at = next((at for at, line in enumerate(section.lines) if string in line), 0)
        return Pointer(section.pointer.path, section.pointer.start + at, section.pointer.start + at)


def _sections(source: SourceMessage) -> Iterator[Section]:
    if source.pointer is None or not source.lines:
        yield Section(source.pointer, tuple(_said(source)), is_whole=True)
    else:
        yield from _parted(source.pointer.path, source.pointer.start, source.lines)
    for excerpt in source.excerpts:
        if excerpt is not None and excerpt.path:
            for first, lines in _runs(excerpt.numbered):
                yield from _parted(excerpt.path, first, lines)


def _said(source: SourceMessage) -> Iterator[str]:
    """Yield the texts of a message without known lines, except offloaded results with lines of their own."""
    yield source.message.text
    yield from (call.arguments for call in source.message.calls)
    yield from (reading.text for reading in result_texts(source) if not reading.has_own_lines)


def _parted(path: str, first: int, lines: Sequence[str]) -> Iterator[Section]:
    for at in range(0, len(lines), SECTION_LINES):
        some = tuple(lines[at : at + SECTION_LINES])
        yield Section(Pointer(path, first + at, first + at + len(some) - 1), some)


def _runs(numbered: Sequence[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    """Yield the first number and the texts of consecutive lines."""
    run: list[str] = []
    first = 0
    for number, text in numbered:
        if run and number != first + len(run):
            yield first, run
            run = []
        first = first if run else number
        run.append(text)
    if run:
        yield first, run
