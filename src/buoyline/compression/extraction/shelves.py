"""Exact strings with the lines behind them: those of this conversation, and those that the last summary held."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from buoyline.compression.extraction.conversation import Conversation
from buoyline.compression.extraction.covering import Place, Stretch, Wanted, allotted
from buoyline.compression.extraction.packing import LABEL_KIND, prices
from buoyline.compression.extraction.wording import LEDGER_KINDS
from buoyline.compression.summary import Item, Pointer
from buoyline.tokens import TextCounter

STRINGS_PER_TOKEN: Final = 2.0
"""Of the most needed strings so many are looked at for each token that there is room for: an eighth of them is said,
and lines are named where more of the others stand."""

LINES_OF_OLD: Final = 12
"""What naming a place of the last summary counts as; its lines are not at hand."""


class Shelves:
    """Knows where strings stand, and chooses among them."""

    def __init__(self, conversation: Conversation, old: Iterable[Item], counter: TextCounter) -> None:
        """Know the lines of *conversation*, and those of the strings in *old*, items of the last summary."""
        self._conversation = conversation
        self._sections = conversation.sections
        self._counter = counter
        self._places = [self._sections.place(number, counter) for number in range(len(self._sections))]
        strings = [item for item in old if item.kind in LEDGER_KINDS]
        self._held = {item.text: item.pointers for item in strings if item.kind != LABEL_KIND}
        self._labels = {item.pointers: item for item in strings if item.kind == LABEL_KIND}

    def strings_in(self, text: str) -> set[str]:
        """Return the exact strings in *text*."""
        return self._conversation.strings_in(text)

    def stocked(
        self,
        needs: Sequence[tuple[Item, float]],
        max_tokens: float,
        cited: Iterable[Pointer] = (),
        said: Iterable[Item] = (),
    ) -> tuple[list[Item], int]:
        """Choose strings and their lines.

        Args:
            needs: Strings, and how likely each is needed.
            max_tokens: For the lines that say them, pointers included.
            cited: Lines that are named already; what stands there is only one look away.
            said: What the ledger says already: a place in one of its files shares a line with these.

        Returns:
            The strings with their pointers, most needed first, and what they take.
        """
        near = self._sections.strings_at(cited)
        ranked = sorted(needs, key=lambda found: found[1], reverse=True)[: int(STRINGS_PER_TOKEN * max_tokens)]
        held: dict[tuple[Pointer, ...], int] = {}
        wanted = [
            Wanted(need, self._tokens(item.text), self._numbers(item.text, held), item.text in near)
            for item, need in ranked
        ]
        keys = list(held)
        places = [*self._places, *(self._old_place(key) for key in keys)]
        found = allotted(
            wanted,
            places,
            max_tokens,
            max_places=self._sections.most_in_a_row,
            line_tokens=self._sections.line_tokens,
            named={pointer.path for item in said if item.kind in LEDGER_KINDS for pointer in item.pointers},
        )
        chosen: list[tuple[int, Item]] = []
        labels: list[Item] = []
        for stretch in found:
            strings = [ranked[position][0] for position in (*stretch.said, *stretch.near)]
            pointers, label = self._labelled(self._lines(stretch, keys, strings), strings[0])
            labels += label
            chosen += [(position, self._on(ranked[position][0], pointers)) for position in stretch.said]
        used = sum(wanted[position].tokens for position, _ in chosen)
        used += math.ceil(sum(stretch.mark_tokens for stretch in found))
        return [*labels, *(item for _, item in sorted(chosen, key=lambda pair: pair[0]))], used

    def beside(self, needs: Iterable[tuple[Item, float]], named: Iterable[Item], max_tokens: float) -> list[Item]:
        """Choose strings that stand in lines which the ledger names anyway: each costs its own tokens and no mark.

        Args:
            needs: Strings, and how likely each is needed.
            named: The ledger's items so far.
            max_tokens: For the strings.

        Returns:
            The strings with the pointers of their lines, those most needed for their tokens first.
        """
        lines = dict.fromkeys(item.pointers for item in named if item.kind in LEDGER_KINDS)
        found = {string: pointers for pointers in lines for string in self._sections.strings_at(pointers)}
        near = [(need, self._tokens(item.text), item) for item, need in needs if item.text in found]
        chosen: list[Item] = []
        for _, tokens, item in sorted(near, key=lambda each: each[0] / each[1], reverse=True):
            if tokens <= max_tokens:
                max_tokens -= tokens
                chosen.append(self._on(item, found[item.text]))
        return chosen

    def _tokens(self, string: str) -> int:
        """Count a string as it stands among others; nothing is free, also where a counter rounds down."""
        return max(self._counter.count(f" {string}"), 1)

    def _numbers(self, string: str, held: dict[tuple[Pointer, ...], int]) -> list[int]:
        """Return the numbers of the places that hold *string*; *held* numbers those of the last summary behind ours."""
        if here := self._sections.holding(string):
            return here
        key = self._held.get(string, ())
        return [len(self._places) + held.setdefault(key, len(held))]

    def _lines(
        self, stretch: Stretch, held: Sequence[tuple[Pointer, ...]], strings: Iterable[Item]
    ) -> tuple[Pointer, ...]:
        if stretch.first >= len(self._places):
            return held[stretch.first - len(self._places)]
        return self._sections.lines_of(stretch.first, stretch.last, (item.text for item in strings))

    def _labelled(self, pointers: tuple[Pointer, ...], first: Item) -> tuple[tuple[Pointer, ...], list[Item]]:
        """Return the lines, and the name of the file that they say they are of."""
        if pointers in self._labels:
            return pointers, [self._labels[pointers]]
        name = self._conversation.file_at(pointers[0]) if len(pointers) == 1 else ""
        led = self._sections.led_by(pointers[0], name) if name else None
        if led is None:
            return pointers, []
        return (led,), [Item(first.field, LABEL_KIND, name, led, first.last_seen)]

    def placed(self, item: Item) -> Item:
        """Return *item* with a pointer of its own."""
        newest = self._sections.holding(item.text)[-1:]
        lines = [self._sections.lines_of(number, number, [item.text]) for number in newest]
        return self._on(item, lines[0] if lines else self._held.get(item.text, ()))

    def _old_place(self, pointers: tuple[Pointer, ...]) -> Place:
        """Return a place of the last summary; those of several files stand alone, as those without any."""
        alone, more = prices(pointers, self._counter)
        files = {pointer.path for pointer in pointers}
        return Place(alone, LINES_OF_OLD, file=files.pop() if len(files) == 1 else "", more_tokens=more)

    def _on(self, item: Item, pointers: tuple[Pointer, ...]) -> Item:
        return replace(item, pointer=pointers[0] if pointers else None, also=pointers[1:])
