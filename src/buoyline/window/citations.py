"""The sentences of a summary, and the lines that back each of them."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from buoyline.compression import Pointer
from buoyline.compression.claims import BETWEEN
from buoyline.compression.summary import POINTER
from buoyline.lookups.lines import fragments, windows
from buoyline.lookups.reading import Source

_FIRST_CHARS = 120
_FIRST_LINES = 6
"""Of what a pointer names so many lines are looked at: a heading, a blank line and a call stand before the words."""

_AROUND = f" \t-*,;.{BETWEEN.strip()}"


@dataclass(frozen=True, slots=True)
class Citation:
    """Lines that a sentence refers to.

    Attributes:
        path: File relative to the session's directory.
        start: First line, 1-based.
        end: Last line, inclusive.
        begins: First words of these lines; empty where there are none.
        is_there: The lines are there.
    """

    path: str
    start: int
    end: int
    begins: str
    is_there: bool


@dataclass(frozen=True, slots=True)
class Sentence:
    """A part of a summary that has pointers of its own.

    Attributes:
        field: Which field it stands in.
        text: Without its pointers.
        citations: What backs it, in order; none where nothing does.
    """

    field: str
    text: str
    citations: tuple[Citation, ...]


def cited_sentences(fields: Mapping[str, str]) -> list[tuple[str, str, tuple[Pointer, ...]]]:
    """Return field, text and pointers of each sentence of a summary, in order. Pure.

    A sentence ends with its last pointer, or with its line.
    """
    return [
        (name, said, cited)
        for name, text in fields.items()
        for line in text.split("\n")
        for said, cited in _in_line(line)
    ]


def resolved(
    sentences: Iterable[tuple[str, str, tuple[Pointer, ...]]], files: Mapping[str, str], source: Source
) -> list[Sentence]:
    """Look up what each sentence refers to; every file is read once.

    Args:
        sentences: As `cited_sentences` returns them.
        files: Names in *source* by what pointers call these files; nothing else is opened, whatever a summary says.
        source: What is read.
    """
    listed = list(sentences)
    wanted = {pointer for _, _, cited in listed for pointer in cited}
    found: dict[Pointer, str | None] = {}
    for path, pointers in itertools.groupby(sorted(wanted), key=lambda pointer: pointer.path):
        found |= _beginnings(list(pointers), files.get(path), source)
    return [Sentence(name, said, tuple(_citation(each, found[each]) for each in cited)) for name, said, cited in listed]


def _citation(pointer: Pointer, begins: str | None) -> Citation:
    return Citation(pointer.path, pointer.start, pointer.end, begins or "", begins is not None)


def _in_line(line: str) -> Iterator[tuple[str, tuple[Pointer, ...]]]:
    said, cited, position = "", list[Pointer](), 0
    for match in POINTER.finditer(line):
        between = line[position : match.start()].strip(_AROUND)
        if between and cited:
            yield said, tuple(cited)
            cited = []
        said, position = between or said, match.end()
        cited.extend(Pointer.all_of(match))
    rest = line[position:].strip(_AROUND)
    if cited:
        yield said, tuple(cited)
    if rest:
        yield rest, ()


def _beginnings(pointers: list[Pointer], name: str | None, source: Source) -> dict[Pointer, str | None]:
    """Return the first words of what each of *pointers* to one file names; None where a line of it is not there."""
    if name is None:
        return dict.fromkeys(pointers)
    lines = _lines(pointers, name, source)
    there = (pointer for pointer in pointers if 1 <= pointer.start <= pointer.end and pointer.end in lines)
    return {**dict.fromkeys(pointers), **{pointer: _words(pointer, lines) for pointer in there}}


def _lines(pointers: list[Pointer], name: str, source: Source) -> dict[int, str]:
    """Return the beginnings of the lines that have to be looked at, by number; the last of each is among them."""
    ends = [(pointer.start, min(pointer.end, pointer.start + _FIRST_LINES - 1)) for pointer in pointers]
    wanted = {line for start, end in ends for line in range(start, end + 1)} | {pointer.end for pointer in pointers}
    chosen = fragments(source.chunks(name), [(line, line) for line in sorted(wanted)])
    lines: dict[int, str] = {}
    for number, parts in itertools.groupby(chosen, key=lambda fragment: fragment.number):
        (lines[number],), _ = windows(parts, (1,), _FIRST_CHARS)
    return lines


def _words(pointer: Pointer, lines: Mapping[int, str]) -> str:
    """Return the first line that says something: the transcript's headings only say who speaks, and how."""
    last = min(pointer.end, pointer.start + _FIRST_LINES - 1)
    shown = [text for line in range(pointer.start, last + 1) if (text := lines.get(line, "").strip())]
    return next((text for text in shown if not text.startswith("#") and text != "(reasoning)"), next(iter(shown), ""))
