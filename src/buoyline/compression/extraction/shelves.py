"""Exact strings with the lines behind them: those of this conversation, and those that the last summary held."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from buoyline.compression.extraction.conversation import Conversation
from buoyline.compression.extraction.covering import Wanted, allotted
from buoyline.compression.extraction.wording import LABEL_KIND, LEDGER_KINDS, mark_of
from buoyline.compression.summary import Item, Pointer
from buoyline.tokens import TextCounter

STRINGS_PER_TOKEN: Final = 0.5
"""Of the most needed strings so many are looked at for each token that there is room for: twice what ever fits."""


class Shelves:
    """Knows where strings stand, and chooses among them."""

    def __init__(self, conversation: Conversation, old: Iterable[Item], counter: TextCounter) -> None:
        """Know the lines of *conversation*, and those of the strings in *old*, items of the last summary."""
        self._conversation = conversation
        self._sections = conversation.sections
        self._counter = counter
        strings = [item for item in old if item.kind in LEDGER_KINDS]
        self._held = {item.text: item.pointers for item in strings if item.kind != LABEL_KIND}
        self._labels = {item.pointers: item for item in strings if item.kind == LABEL_KIND}

    def stocked(self, needs: Sequence[tuple[Item, float]], max_tokens: float) -> tuple[list[Item], int]:
        """Choose strings and their lines.

        Args:
            needs: Strings, and how likely each is needed.
            max_tokens: For the lines that say them, pointers included.

        Returns:
            The strings with their pointers, most needed first, and what they take.
        """
        ranked = sorted(needs, key=lambda found: found[1], reverse=True)[: int(STRINGS_PER_TOKEN * max_tokens)]
        numbers: dict[tuple[Pointer, ...] | int, int] = {}
        wanted: list[Wanted] = []
        for item, need in ranked:
            places = [numbers.setdefault(place, len(numbers)) for place in self._places(item)]
            wanted.append(Wanted(need, self._counter.count(f" {item.text}"), places))
        keys = list(numbers)
        found = allotted(wanted, [self._mark_tokens(key) for key in keys], max_tokens)
        placed: dict[int, Item] = {}
        labels: list[Item] = []
        for window, positions in found.items():
            pointers = self._lines(keys[window], [ranked[position][0].text for position in positions])
            pointers, label = self._labelled(pointers, ranked[min(positions)][0])
            labels += label
            placed.update((position, self._on(ranked[position][0], pointers)) for position in positions)
        used = sum(wanted[position].tokens for position in placed) + sum(self._mark_tokens(keys[w]) for w in found)
        return [*labels, *(placed[position] for position in sorted(placed))], used

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
        place = self._places(item)[0]
        return self._on(item, self._lines(place, [item.text]))

    def _places(self, item: Item) -> Sequence[tuple[Pointer, ...] | int]:
        windows = self._sections.windows(item.text)
        return [*windows] or [self._held.get(item.text, ())]

    def _lines(self, place: tuple[Pointer, ...] | int, strings: Sequence[str]) -> tuple[Pointer, ...]:
        return self._sections.lines_of(place, strings) if isinstance(place, int) else place

    def _mark_tokens(self, place: tuple[Pointer, ...] | int) -> int:
        pointers = self._sections.whole(place) if isinstance(place, int) else place
        return self._counter.count(f"- {mark_of(pointers)}\n")

    def _on(self, item: Item, pointers: tuple[Pointer, ...]) -> Item:
        return replace(item, pointer=pointers[0] if pointers else None, also=pointers[1:])
