"""The lines of a conversation and the exact strings in them; and which strings to say with the lines that hold them."""

import math
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from buoyline.compression.extractive.fact_text import LABEL_KIND, MAX_RANGES, STRING_KINDS
from buoyline.compression.extractive.lines import result_texts
from buoyline.compression.extractive.spans import SAID_NEED, Snippet, StringCandidate, selected_spans
from buoyline.compression.pointers import Pointer, citation_marks
from buoyline.compression.summary import Fact, SourceMessage
from buoyline.tokens import TextCounter

if TYPE_CHECKING:
    from buoyline.compression.extractive.conversation import Conversation

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

STRINGS_PER_TOKEN: Final = 2.0
"""Candidates for each token of room: an eighth of them is said, and lines are cited that hold more of the others."""

LINES_OF_OLD: Final = 12
"""Assumed lines of a place of the last summary, whose lines are not at hand."""

_DIGIT = re.compile("[0-9]")


class Section(NamedTuple):
    """Consecutive lines; a message without known lines is one line, cited as a whole.

    Attributes:
        pointer: None if no lines are known.
        is_whole: The lines cannot be divided, or cited together with others.
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

    def snippets(self, counter: TextCounter) -> list[Snippet]:
        """Return the cost of citing each section."""
        found: list[Snippet] = []
        before = Section(None, ())
        for section in self._sections:
            pointer = section.pointer
            # Numbers of as many digits cost the same.
            key = ("", "") if pointer is None else (pointer.path, _DIGIT.sub("0", pointer.lines))
            if key not in self._prices:
                self._prices[key] = prices(() if pointer is None else (pointer,), counter)
            alone, more = self._prices[key]
            lines = sum(max(len(line) / USUAL_LINE_CHARS, 1.0) for line in section.lines)
            follows = (
                not (before.is_whole or section.is_whole or before.pointer is None or pointer is None)
                and before.pointer.path == pointer.path
                and before.pointer.end + 1 == pointer.start
            )
            found.append(Snippet(alone, lines, follows, "" if pointer is None else pointer.path, more))
            before = section
        return found

    def strings_at(self, pointers: Iterable[Pointer]) -> set[str]:
        """Return the exact strings in the lines that *pointers* name, as far as the lines are known."""
        lines = (
            self._line(pointer, at)
            for pointer in dict.fromkeys(pointers)
            for at in range(pointer.start, pointer.end + 1)
        )
        return set(self._strings("\n".join(lines)))

    def lines_of(self, first: int, last: int, strings: Iterable[str]) -> tuple[Pointer, ...]:
        """Return the lines in a run of sections that show each of *strings*, as one pointer; empty if none is known."""
        pointers: list[Pointer] = []
        for string in strings:
            held = self.places[string]
            at = bisect_left(held, first)
            section = self._sections[held[at]] if at < len(held) and held[at] <= last else Section(None, ())
            if section.pointer is not None and section.is_whole:
                pointers.append(section.pointer)
            elif section.pointer is not None:
                offset = next((number for number, line in enumerate(section.lines) if string in line), 0)
                start = section.pointer.start + offset
                pointers.append(Pointer(section.pointer.path, start, start))
        if not pointers:
            return ()
        start, end = min(pointer.start for pointer in pointers), max(pointer.end for pointer in pointers)
        return (Pointer(pointers[0].path, start, end),)

    def led_by(self, pointer: Pointer, name: str) -> Pointer | None:
        """Return the lines of *pointer*, with some before them if these contain *name*; None if none does."""
        above = range(pointer.start, pointer.start - MAX_LEAD_LINES - 1, -1)
        at = next((at for at in above if name in self._line(pointer, at)), None)
        if at is not None:
            return Pointer(pointer.path, at, pointer.end)
        is_within = any(name in self._line(pointer, at) for at in range(pointer.start, pointer.end + 1))
        return pointer if is_within else None

    def _line(self, pointer: Pointer, number: int) -> str:
        return self._numbered.get((pointer.path, number), "")


def _sections(source: SourceMessage) -> Iterator[Section]:
    if source.pointer is None or not source.lines:
        # An offloaded result with lines of its own follows.
        results = (reading.text for reading in result_texts(source) if not reading.has_own_lines)
        said = (source.message.text, *(call.arguments for call in source.message.calls), *results)
        yield Section(source.pointer, said, is_whole=True)
    else:
        yield from _parted(source.pointer.path, source.pointer.start, source.lines)
    for excerpt in source.excerpts:
        if excerpt is not None and excerpt.path:
            run: list[str] = []
            first = 0
            for number, text in excerpt.numbered:
                if run and number != first + len(run):
                    yield from _parted(excerpt.path, first, run)
                    run = []
                first = first if run else number
                run.append(text)
            yield from _parted(excerpt.path, first, run)


def _parted(path: str, first: int, lines: Sequence[str]) -> Iterator[Section]:
    for at in range(0, len(lines), SECTION_LINES):
        some = tuple(lines[at : at + SECTION_LINES])
        yield Section(Pointer(path, first + at, first + at + len(some) - 1), some)


def prices(pointers: Sequence[Pointer], counter: TextCounter) -> tuple[float, float]:
    """Return the cost of citing *pointers* alone on a line, and on average beside others of their file."""
    alone, both = (
        counter.count(f"- {''.join(f' {mark}' for mark in citation_marks(cited))}\n")
        for cited in (pointers, (*pointers, *pointers))
    )
    more = both - alone
    return alone, more + (alone - more) / MAX_RANGES


class SnippetIndex:
    """Chooses exact strings and their lines: those of a conversation, and those of the last summary."""

    def __init__(self, conversation: "Conversation", old: Iterable[Fact], counter: TextCounter) -> None:
        """Read the lines of *conversation*, and the places of the strings in *old*, facts of the last summary."""
        self._conversation = conversation
        self._sections = conversation.sections
        self._counter = counter
        self._has_lines = any(source.lines for source in conversation.sources)
        self._places = self._sections.snippets(counter)
        strings = [item for item in old if item.kind in STRING_KINDS]
        self._held = {item.text: item.pointers for item in strings if item.kind != LABEL_KIND}
        self._labels = {item.pointers: item for item in strings if item.kind == LABEL_KIND}

    def strings_in(self, text: str) -> set[str]:
        """Return the exact strings in *text*."""
        return self._conversation.strings_in(text)

    def selected(
        self,
        needs: Sequence[tuple[Fact, float]],
        max_tokens: float,
        cited: Iterable[Pointer] = (),
        said: Iterable[Fact] = (),
        least_need: float = SAID_NEED,
    ) -> tuple[list[Fact], int]:
        """Choose strings and the lines that are cited for them, as far as both take *max_tokens*.

        Args:
            needs: Strings, and how likely each is needed.
            max_tokens: Of the lines that say them, pointers included.
            cited: Lines that are cited already; their strings are only one look away.
            said: Facts that are said already: a place in one of their files shares a line with them.
            least_need: Of a string that is said and not only cited.

        Returns:
            The strings with their pointers, most needed first, and their tokens.
        """
        near, summary_tokens = self._sections.strings_at(cited), self._conversation.limits.max_tokens
        ranked = sorted(needs, key=lambda found: found[1], reverse=True)[: int(STRINGS_PER_TOKEN * max_tokens)]
        held: dict[tuple[Pointer, ...], int] = {}  # places of the last summary, numbered behind the others
        candidates: list[Fact] = []
        wanted: list[StringCandidate] = []
        for item, need in ranked:
            numbers, key = self._sections.holding(item.text), self._held.get(item.text, ())
            if self._has_lines and not (numbers or key):
                continue  # a string without a citation cannot be looked up
            numbers = numbers or [len(self._places) + held.setdefault(key, len(held))]
            candidates.append(item)
            wanted.append(StringCandidate(need, self._tokens(item.text), numbers, item.text in near))
        keys = list(held)
        found = selected_spans(
            wanted,
            [*self._places, *map(self._old_place, keys)],
            max_tokens,
            max_places=self._sections.most_in_a_row(summary_tokens),
            line_tokens=self._sections.line_tokens(summary_tokens),
            named={pointer.path for item in said if item.kind in STRING_KINDS for pointer in item.pointers},
            least_need=least_need,
        )
        chosen: list[tuple[int, Fact]] = []
        labels: list[Fact] = []
        for span in found:
            strings = [candidates[position] for position in (*span.said, *span.near)]
            if span.first < len(self._places):
                pointers = self._sections.lines_of(span.first, span.last, (item.text for item in strings))
            else:
                pointers = keys[span.first - len(self._places)]
            pointers, label = self._labelled(pointers, strings[0])
            if not (span.said or label) and pointers:
                label = [_on(_label("", strings[0]), pointers)]
            labels += label
            chosen += [(position, _on(candidates[position], pointers)) for position in span.said]
        used = sum(wanted[position].tokens for position, _ in chosen)
        used += math.ceil(sum(span.mark_tokens for span in found))
        return [*labels, *(item for _, item in sorted(chosen, key=lambda pair: pair[0]))], used

    def alongside(self, needs: Iterable[tuple[Fact, float]], named: Iterable[Fact], max_tokens: float) -> list[Fact]:
        """Choose strings of lines that are cited for *named* anyway: each costs its own tokens and no mark.

        They come with the pointers of their lines, those most needed for their tokens first.
        """
        lines = dict.fromkeys(item.pointers for item in named if item.kind in STRING_KINDS)
        found = {string: pointers for pointers in lines for string in self._sections.strings_at(pointers)}
        near = [(need, self._tokens(item.text), item) for item, need in needs if item.text in found]
        chosen: list[Fact] = []
        for _, tokens, item in sorted(near, key=lambda each: each[0] / each[1], reverse=True):
            if tokens <= max_tokens:
                max_tokens -= tokens
                chosen.append(_on(item, found[item.text]))
        return chosen

    def placed(self, item: Fact) -> Fact:
        """Return *item* with a pointer of its own."""
        newest = self._sections.holding(item.text)[-1:]
        lines = [self._sections.lines_of(number, number, [item.text]) for number in newest]
        return _on(item, lines[0] if lines else self._held.get(item.text, ()))

    def _tokens(self, string: str) -> int:
        """Count a string among others; it counts at least 1, even if a counter rounds down."""
        return max(self._counter.count(f" {string}"), 1)

    def _old_place(self, pointers: tuple[Pointer, ...]) -> Snippet:
        """Return a place of the last summary; one with several files, or with none, shares its mark with no other."""
        alone, more = prices(pointers, self._counter)
        files = {pointer.path for pointer in pointers}
        return Snippet(alone, LINES_OF_OLD, file=files.pop() if len(files) == 1 else "", more_tokens=more)

    def _labelled(self, pointers: tuple[Pointer, ...], first: Fact) -> tuple[tuple[Pointer, ...], list[Fact]]:
        """Return the lines, and the name of their file if they contain it."""
        if pointers in self._labels:
            return pointers, [self._labels[pointers]]
        name = self._conversation.file_at(pointers[0]) if len(pointers) == 1 else ""
        led = self._sections.led_by(pointers[0], name) if name else None
        return (pointers, []) if led is None else ((led,), [_on(_label(name, first), (led,))])


def _label(name: str, first: Fact) -> Fact:
    """Return the name of the file of several strings, of which *first* is the first, without its lines."""
    return Fact(first.field, LABEL_KIND, name, None, first.last_seen)


def _on(item: Fact, pointers: tuple[Pointer, ...]) -> Fact:
    return replace(item, pointer=pointers[0] if pointers else None, also=pointers[1:])
