"""Where exact strings stand: short runs of lines, in the order of the conversation."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from buoyline.compression.extraction.covering import Place
from buoyline.compression.extraction.packing import prices
from buoyline.compression.extraction.reading import readings
from buoyline.compression.summary import Pointer, Source
from buoyline.tokens import TextCounter

SECTION_LINES: Final = 4
"""So many lines are one section. With six, more lines are named for as many strings; with three, more marks."""

MAX_WINDOW_LINES: Final = 96
MIN_WINDOW_LINES: Final = 12
"""Strings in so many lines may share a pointer: with more a pointer names too much, with less there are too many."""

LINES_PER_TOKEN: Final = 36
"""The same for each line that there is and each token of the summary: so that more tokens do not mean more lines that
are cited, but shorter runs of them; a quarter of all at most, measured on recorded sessions."""

USUAL_LINE_CHARS: Final = 100
"""A longer line counts as several: it takes as long to read."""

LINE_PRICE: Final = 0.5
"""What it costs to name all lines, as a share of the summary's tokens: where there are many lines one costs little."""

MAX_LINE_TOKENS: Final = 0.25
"""Of the price of a line, in a conversation of few lines."""

MAX_LEAD_LINES: Final = 12
"""So many lines before the first string are cited as well to show which file it stands in."""

MAX_PLACES: Final = 6
"""So many sections that hold a string are looked at, the newest: an older place is seldom the better one to read."""


_DIGIT = re.compile("[0-9]")


class Section(NamedTuple):
    """Some lines in a row.

    Attributes:
        pointer: What they are; None where no lines are known.
        lines: Their text; a message whose lines are not known is one line, cited as a whole.
        is_whole: They cannot be parted, or named together with others.
    """

    pointer: Pointer | None
    lines: tuple[str, ...]
    is_whole: bool = False


class Sections:
    """The lines of a conversation, and which exact strings stand in them."""

    def __init__(self, sources: Iterable[Source], strings: Callable[[str], Iterable[str]], *, max_tokens: int) -> None:
        """Read *sources*, whose exact strings *strings* finds in a text, for a summary of *max_tokens*."""
        self._sections = [section for source in sources for section in _sections(source)]
        self._numbered = {
            (section.pointer.path, section.pointer.start + at): line
            for section in self._sections
            if section.pointer is not None and not section.is_whole
            for at, line in enumerate(section.lines)
        }
        lines = sum(len(section.lines) for section in self._sections)
        most = max(MIN_WINDOW_LINES, min(LINES_PER_TOKEN * lines // max_tokens, MAX_WINDOW_LINES))
        self.most_in_a_row = most // SECTION_LINES
        self.line_tokens = min(LINE_PRICE * max_tokens / max(lines, 1), MAX_LINE_TOKENS)
        self._strings = strings
        self._prices: dict[tuple[str, str], tuple[float, float]] = {}
        self._holding: defaultdict[str, list[int]] = defaultdict(list)
        for number, section in enumerate(self._sections):
            for string in strings("\n".join(section.lines)):
                self._holding[string].append(number)

    def __len__(self) -> int:
        """Return how many sections there are."""
        return len(self._sections)

    def holding(self, string: str) -> list[int]:
        """Return the numbers of the newest sections that hold *string*; none for what stands nowhere here."""
        return self._holding.get(string, [])[-MAX_PLACES:]

    def place(self, number: int, counter: TextCounter) -> Place:
        """Return what it takes to name a section."""
        section = self._sections[number]
        lines = sum(max(len(line) / USUAL_LINE_CHARS, 1.0) for line in section.lines)
        alone, more = self._prices_of(section.pointer, counter)
        file = "" if section.pointer is None else section.pointer.path
        return Place(alone, lines, self._follows(number), file, more)

    def strings_at(self, pointers: Iterable[Pointer]) -> set[str]:
        """Return the exact strings in the lines that *pointers* name, as far as these are known."""
        lines = (
            self._line(pointer, at)
            for pointer in dict.fromkeys(pointers)
            for at in range(pointer.start, pointer.end + 1)
        )
        return set(self._strings("\n".join(lines)))

    def lines_of(self, first: int, last: int, strings: Iterable[str]) -> tuple[Pointer, ...]:
        """Return the lines of a run of sections from the first to the last that it takes to see each of *strings*."""
        pointers = [pointer for string in strings for pointer in self._first_in(first, last, string)]
        if not pointers:
            return ()
        start, end = min(pointer.start for pointer in pointers), max(pointer.end for pointer in pointers)
        return (Pointer(pointers[0].path, start, end),)

    def led_by(self, pointer: Pointer, name: str) -> Pointer | None:
        """Return the lines of *pointer*, with a few before them if these name *name*; None if none of them does."""
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
        """Return what naming *pointer* takes; numbers of as many digits take the same."""
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

    def _first_in(self, first: int, last: int, string: str) -> Iterator[Pointer]:
        held = self._holding[string]
        at = bisect_left(held, first)
        if at < len(held) and held[at] <= last and (pointer := self._line_of(held[at], string)) is not None:
            yield pointer

    def _line_of(self, number: int, string: str) -> Pointer | None:
        section = self._sections[number]
        if section.pointer is None or section.is_whole:
            return section.pointer
        at = next((at for at, line in enumerate(section.lines) if string in line), 0)
        return Pointer(section.pointer.path, section.pointer.start + at, section.pointer.start + at)


def _sections(source: Source) -> Iterator[Section]:
    if source.pointer is None or not source.lines:
        yield Section(source.pointer, tuple(_said(source)), is_whole=True)
    else:
        yield from _parted(source.pointer.path, source.pointer.start, source.lines)
    for excerpt in source.excerpts:
        if excerpt is not None and excerpt.path:
            for first, lines in _runs(excerpt.numbered):
                yield from _parted(excerpt.path, first, lines)


def _said(source: Source) -> Iterator[str]:
    """Yield what a message says whose lines are not known; of an offloaded result with lines of its own nothing."""
    yield source.message.text
    yield from (call.arguments for call in source.message.calls)
    yield from (reading.text for reading in readings(source) if not reading.has_own_lines)


def _parted(path: str, first: int, lines: Sequence[str]) -> Iterator[Section]:
    for at in range(0, len(lines), SECTION_LINES):
        some = tuple(lines[at : at + SECTION_LINES])
        yield Section(Pointer(path, first + at, first + at + len(some) - 1), some)


def _runs(numbered: Sequence[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    """Yield the first number and the texts of lines that follow each other without a gap."""
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
