"""Citations of lines: ``[transcript.md:12-15]``."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Final

POINTER: Final = re.compile(r"\[([^\[\]\s:]{1,200}):(\d{1,9})(?:-(\d{1,9}))?((?:,\d{1,9}(?:-\d{1,9})?){0,99})\]")
"""Pointers to one file in a text: ``[transcript.md:12-15,31]``; give a match to `Pointer.all_of`."""


@dataclass(frozen=True, slots=True, order=True)
class Pointer:
    """Lines that a sentence cites.

    Attributes:
        path: File relative to the session's directory: ``transcript.md`` or the file of an offloaded tool result.
        start: First line, 1-based.
        end: Last line, inclusive.
    """

    path: str
    start: int
    end: int

    @classmethod
    def of(cls, match: "re.Match[str]") -> "Pointer":
        """Return the first pointer of a match of `POINTER`."""
        return cls(match[1], int(match[2]), int(match[3] or match[2]))

    @classmethod
    def all_of(cls, match: "re.Match[str]") -> "tuple[Pointer, ...]":
        """Return all pointers of a match of `POINTER`, in its order."""
        spans = (span.partition("-") for span in match[4].split(",")[1:])
        return (cls.of(match), *(cls(match[1], int(start), int(end or start)) for start, _, end in spans))

    def __str__(self) -> str:
        """Return ``path:start-end``, or ``path:start`` for a single line."""
        return f"{self.path}:{self.lines}"

    @property
    def lines(self) -> str:
        """Its lines without the file: ``start-end``, or ``start`` for a single one."""
        return f"{self.start}" + ("" if self.start == self.end else f"-{self.end}")


def pointers_in(text: str) -> Iterator[Pointer]:
    """Yield all pointers in *text*, in order."""
    for match in POINTER.finditer(text):
        yield from Pointer.all_of(match)


def citation_marks(pointers: Iterable[Pointer]) -> list[str]:
    """Return pointers as they are written in a text; neighbours that name one file share a mark.

    The name of a file takes more tokens than its lines, that of a tool result six times as many.

    >>> citation_marks([Pointer("transcript.md", 12, 15), Pointer("transcript.md", 31, 31), Pointer("a.txt", 1, 2)])
    ['[transcript.md:12-15,31]', '[a.txt:1-2]']
    """
    files = groupby(pointers, key=attrgetter("path"))
    return [f"[{path}:{','.join(pointer.lines for pointer in group)}]" for path, group in files]
