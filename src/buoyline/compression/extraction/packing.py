"""Lines of the ledger: exact strings in the order of their places, several places of one file on a line."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from buoyline.compression.summary import Item, Pointer, marks_of
from buoyline.tokens import TextCounter

LABEL_KIND: Final = "label"
"""The kind of the name that stands before bare strings and says which file they stand in."""

MAX_RANGES: Final = 6
"""So many places of a file share a line and its mark. More save little: four take 8 tokens each, six 7, one alone 12.

And of a string on such a line it is known only by its rank among the others which of these places it is from.
"""


@dataclass(slots=True)
class Row:
    """One line of the ledger.

    Attributes:
        label: Name of the file that the strings stand in; empty where none is known.
        pointers: Where they stand, in order, those that touch as one.
        strings: Place by place, and in one place paths first: they say what the names behind them belong to.
    """

    label: str
    pointers: list[Pointer] = field(default_factory=list[Pointer])
    strings: list[str] = field(default_factory=list[str])

    @property
    def text(self) -> str:
        """The line without its mark."""
        return " ".join([*([f"{self.label}:"] if self.label else []), *map(_unparted, self.strings)])

    def add(self, pointers: Sequence[Pointer], strings: Iterable[str]) -> None:
        """Add the strings of one more place."""
        self.strings += strings
        for pointer in pointers:
            last = self.pointers[-1] if self.pointers else None
            if last is not None and last.path == pointer.path and last.start <= pointer.start <= last.end + 1:
                self.pointers[-1] = Pointer(last.path, last.start, max(last.end, pointer.end))
            else:
                self.pointers.append(pointer)


def rows(items: Iterable[Item]) -> list[Row]:
    """Put strings on lines: those from one file together, unless their labels differ.

    Args:
        items: Of the ledger's kinds, in any order.

    Returns:
        Rows in the order of their first places. No row has more places than `MAX_RANGES` but one for strings that had
        more by themselves.
    """
    found: list[Row] = []
    waiting: dict[tuple[frozenset[str], str], Row] = {}
    for pointers, group in groupby(sorted(items, key=_order), key=_pointers):
        members = list(group)
        label = next((item.text for item in members if item.kind == LABEL_KIND), "")
        strings = [item.text for item in members if item.kind != LABEL_KIND]
        files = frozenset(pointer.path for pointer in pointers)
        row = waiting.get((files, label))
        if row is None or len(files) != 1 or len(row.pointers) + len(pointers) > MAX_RANGES:
            row = waiting[files, label] = Row(label)
            found.append(row)
        row.add(pointers, strings)
    return found


def prices(pointers: Sequence[Pointer], counter: TextCounter) -> tuple[float, float]:
    """Return the tokens that naming *pointers* takes alone on a line, and on average beside others of their file."""
    alone = counter.count(_frame(pointers))
    more = counter.count(_frame((*pointers, *pointers))) - alone
    return alone, more + (alone - more) / MAX_RANGES


def _frame(pointers: Sequence[Pointer]) -> str:
    return f"- {''.join(f' {mark}' for mark in marks_of(pointers))}\n"


def _order(item: Item) -> tuple[tuple[Pointer, ...], bool, str, str]:
    return item.pointers, item.kind != "path", item.kind, item.text


def _pointers(item: Item) -> tuple[Pointer, ...]:
    return item.pointers


def _unparted(string: str) -> str:
    """Return a string so that blanks part it from the next: few have blanks themselves, and commas take tokens."""
    return f"“{string}”" if " " in string else string
