"""Check that the lines which a summary cites hold what it says; correct or take out citations that do not.

Pure: the lines are those of the messages at hand. A model miscounts lines more often than it misquotes them, so a
wrong citation is first looked for where its claims really stand.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final, NamedTuple

from buoyline.compression.claims import claims, stands_in, unverified
from buoyline.compression.numbered import NumberedLine, blocks_of
from buoyline.compression.rendering import Place
from buoyline.compression.summary import POINTER, Draft, Pointer, SummaryRequest, marks_of, pointers_in

MAX_CITED_LINES: Final = 80
"""Of one citation; one that names more is narrowed where its claims can be found, since it leads to nothing else."""

NEAR_LINES: Final = 12
"""Claims within so many lines are cited as one place."""

MAX_HITS: Final = 200
"""Of one claim that are looked at; what stands in more places tells none of them from the others."""

_GROUP = re.compile(rf"{POINTER.pattern}(?:[ \t,;]{{0,3}}{POINTER.pattern})*")


class _Hit(NamedTuple):
    path: str
    number: int
    claim: str


def with_backed_pointers(draft: Draft, request: SummaryRequest, place: Place) -> tuple[Draft, tuple[str, ...]]:
    """Return *draft* with citations that hold, and those that were taken out.

    A citation stays if its lines are there and at least one of the exact strings of its sentence stands in them; a
    sentence without any, if the lines are there. Citations of the previous summary stay as they are: their lines are
    not at hand, and were checked when it was written.

    Args:
        draft: A summariser's.
        request: What it was asked; its messages are the lines at hand.
        place: Which lines there are.

    Returns:
        The draft, and the citations that were taken out, as ``path:start-end`` in reading order, each once.
    """
    if not POINTER.search("\n".join(draft.fields.values())):
        return draft, ()
    check = _Check(_Lines(line for block in blocks_of(request.sources) for line in block.lines), place)
    fields = {name: "\n".join(check.line(line) for line in text.split("\n")) for name, text in draft.fields.items()}
    found = [pointer for text in fields.values() for pointer in pointers_in(text)]
    return replace(draft, fields=fields, pointers=tuple(dict.fromkeys(found))), tuple(dict.fromkeys(check.dropped))


class _Check:
    def __init__(self, lines: "_Lines", place: Place) -> None:
        self._lines = lines
        self._place = place
        self.dropped: list[str] = []

    def line(self, text: str) -> str:
        """Return one line of a field with its citations checked."""
        pieces: list[str] = []
        start = 0
        for match in _GROUP.finditer(text):
            said = text[start : match.start()]
            pieces.append(said)
            cited = list(pointers_in(match[0]))
            kept = self._kept(cited, claims(said))
            pieces.append("".join(marks_of(kept)))
            if not kept:
                pieces[-2] = said.rstrip()
            start = match.end()
        return "".join([*pieces, text[start:]])

    def _kept(self, cited: Sequence[Pointer], said: Sequence[str]) -> list[Pointer]:
        kept = [pointer for pointer in cited if self._holds(pointer, said)]
        wrong = [pointer for pointer in cited if pointer not in kept]
        if wrong and not kept and (better := self._lines.place_of(said)) is not None:
            return [better]
        self.dropped += [str(pointer) for pointer in wrong]
        return kept

    def _holds(self, pointer: Pointer, said: Sequence[str]) -> bool:
        if self._is_carried(pointer):
            return True
        if not self._place.resolves(pointer):
            return False
        text = self._lines.text_of(pointer)
        if text is None:
            return False
        if pointer.end - pointer.start >= MAX_CITED_LINES and self._lines.place_of(said) is not None:
            return False
        if not said:
            return True
        return len(unverified(_quoted(said), [text])) < len(claims(_quoted(said))) or any(
            stands_in(text, claim) for claim in said
        )

    def _is_carried(self, pointer: Pointer) -> bool:
        return any(
            old.path == pointer.path and old.start <= pointer.start and pointer.end <= old.end
            for old in self._place.carried
        )


def _quoted(said: Sequence[str]) -> str:
    return "\n".join(f'"{claim}"' if " " in claim else claim for claim in said)


class _Lines:
    """The lines at hand, by file."""

    def __init__(self, lines: Iterable[NumberedLine]) -> None:
        self._found: dict[str, list[_Hit]] = {}
        texts: dict[str, dict[int, str]] = {}
        for line in lines:
            if line.number:
                texts.setdefault(line.path, {})[line.number] = line.text
        self._numbers = {path: sorted(found) for path, found in texts.items()}
        self._texts = {path: [found[number] for number in self._numbers[path]] for path, found in texts.items()}
        self._joined = {path: "\n".join(found) for path, found in self._texts.items()}
        self._starts = {path: [0, *accumulate(len(text) + 1 for text in found)] for path, found in self._texts.items()}

    def text_of(self, pointer: Pointer) -> str | None:
        """Return what is at hand of the lines that *pointer* names; None where nothing is."""
        numbers = self._numbers.get(pointer.path, [])
        first, last = bisect_right(numbers, pointer.start - 1), bisect_right(numbers, pointer.end)
        return "\n".join(self._texts[pointer.path][first:last]) if first < last else None

    def place_of(self, said: Sequence[str]) -> Pointer | None:
        """Return the narrow place that holds most of these claims, the newest among equals; None where none is."""
        hits = sorted(hit for claim in said for hit in self._hits(claim))
        best: tuple[int, int, Pointer] | None = None
        start = 0
        for end, hit in enumerate(hits):
            while hits[start].path != hit.path or hit.number - hits[start].number > NEAR_LINES:
                start += 1
            near = hits[start : end + 1]
            held = len({other.claim for other in near})
            span = hit.number - near[0].number
            if best is None or (held, -span) >= best[:2]:
                best = (held, -span, Pointer(hit.path, near[0].number, hit.number))
        return None if best is None else best[2]

    def _hits(self, claim: str) -> list[_Hit]:
        if claim not in self._found:
            self._found[claim] = self._searched(claim)
        return self._found[claim]

    def _searched(self, claim: str) -> list[_Hit]:
        found: list[_Hit] = []
        for path in self._joined:
            for position in self._positions(path, claim):
                found.append(_Hit(path, self._numbers[path][position], claim))
                if len(found) > MAX_HITS:
                    return []
        return found

    def _positions(self, path: str, claim: str) -> Iterator[int]:
        text, starts = self._joined[path], self._starts[path]
        at = text.find(claim)
        while at >= 0:
            position = bisect_right(starts, at) - 1
            if " " in claim or stands_in(self._texts[path][position], claim):
                yield position
            at = text.find(claim, starts[position + 1])
