"""Numbered lines of one file in the form of Strands' retrieval tool: by range, or around the hits of a pattern.

Source: the page on the context offloader for the form: the count first, an empty line, numbers at the right before a
``|``, ``>`` before hits, ``---`` between groups, guidance where the answer is cut. Ours is how a part of a long line is
labelled, ``line:first-last/length|``, and that the guidance says where to go on.
"""

import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from buoyline.errors import ConfigError
from buoyline.lookups.answer import Answer, Budget, Counter, Line, Spelling
from buoyline.lookups.hits import Hit, hits
from buoyline.lookups.lines import fragments, windows
from buoyline.lookups.patterns import Finder
from buoyline.lookups.reading import Source, lines_from
from buoyline.lookups.scanning import Deadline
from buoyline.offloader.lines import MAX_LINE_CHARS, visible

# They cost 4 s a million, as in `grep`.
MAX_COUNTED_HITS = 10_000

_HELD_CHARS_PER_TOKEN = 16
_SHOWN_PATTERN_CHARS = 50
_UNBOUNDED = sys.maxsize
_TIME_UP = "the time was up before the end; give a simpler pattern"


@dataclass(frozen=True, slots=True)
class Scope:
    """Which lines of a file are looked at.

    Attributes:
        name: The file, relative to the workdir.
        first: First line, 1-based.
        last: Last line, inclusive; not behind the last of the file.
        total: Lines of the file, at least 1.
        column: Character of line `first` to begin with, 1-based.
        is_narrowed: Whether the caller has named the lines.
    """

    name: str
    first: int
    last: int
    total: int
    column: int = 1
    is_narrowed: bool = False

    @property
    def label(self) -> str:
        """The lines for a heading; empty where the caller named none."""
        return f" in lines {self.first}-{self.last}" if self.is_narrowed else ""


@dataclass(frozen=True, slots=True)
class Form:
    """How an answer may look.

    Attributes:
        max_tokens: For the whole text; None for no bound.
        counter: Counts them; the default counter where it is None.
        spelling: Says how to go on.
        notes: What is to be said below the lines.
    """

    max_tokens: int | None
    counter: Counter | None
    spelling: Spelling
    notes: tuple[str, ...] = ()

    @property
    def max_lines(self) -> int:
        """More lines than that cannot be shown, since each takes a token."""
        return _UNBOUNDED if self.max_tokens is None else self.max_tokens

    def fill(self, lines: Iterable[Line], page: "_Page") -> list[Line]:
        """Return those of *lines* that fit; see `Budget.fill`."""
        return list(lines) if self.max_tokens is None else Budget(self.max_tokens, self.counter).fill(lines, page)


class Query(NamedTuple):
    """What is searched for.

    Attributes:
        pattern: As it was given, for the heading.
        find: Finds it.
        context_lines: Lines to show before and after each hit, 0 or more; none from outside of the scope.
        deadline: When to stop looking.
    """

    pattern: str
    find: Finder
    context_lines: int
    deadline: Deadline


def span(tree: Source, scope: Scope, form: Form) -> Answer:
    """Show the lines of *scope*, each of up to 1,000 characters; a single one for as long as the budget lasts.

    Raises:
        ConfigError: The first line ends before the column of *scope*, or the tokens are too few for anything.
    """
    held = _UNBOUNDED if form.max_tokens is None else max(form.max_tokens * _HELD_CHARS_PER_TOKEN, MAX_LINE_CHARS)
    page = _Span(scope, form, len(str(scope.last)))
    shown = form.fill(lines_from(tree, scope.name, (scope.first, scope.last), scope.column, held), page)
    if scope.column > 1 and not shown[0].content:
        raise ConfigError("reference", f"line {scope.first} ends before column {scope.column}")
    return _answer(page, shown, scope.total)


def search(tree: Source, scope: Scope, query: Query, form: Form) -> Answer:
    """Show the lines of *scope* that match, with lines of context around them.

    Returns:
        An answer with `Answer.total` matching lines, counted up to 10,000 hits; a line over 1,000 characters is shown
        around each of its matches. Without a match the answer has no lines, and says so.
    """
    found = _found(tree, scope, query)
    if not found.hits:
        searched = f"searched {scope.last - scope.first + 1} lines" if found.is_all else _TIME_UP
        text = f"No matches found for pattern '{visible(query.pattern)}'{scope.label} ({searched})."
        return Answer("\n\n".join([text, *_bracketed(form.notes)]), scope.name)
    shown_pattern = re.sub(r"[\n\r/\]]", " ", visible(query.pattern))[:_SHOWN_PATTERN_CHARS]
    lines = list(itertools.islice(_around(tree, scope, found.hits, query.context_lines), form.max_lines))
    page = _Search(scope, form, len(str(lines[-1].number)), shown_pattern, found, lines)
    shown = form.fill(lines, page)
    if not any(line.is_hit for line in shown):
        # The lines before the first hit have used up the budget. It is the hit that was asked for.
        page = replace(page, lines=[line for line in lines if line.is_hit])
        shown = form.fill(page.lines, page)
    return _answer(page, shown, found.matching_lines)


@dataclass(slots=True)
class _Found:
    """What a search has found.

    Attributes:
        hits: In order; several in a long line.
        matching_lines: How many lines have one.
        is_all: Whether counting came to the end.
    """

    hits: list[Hit] = field(default_factory=list[Hit])
    matching_lines: int = 0
    is_all: bool = True


def _found(tree: Source, scope: Scope, query: Query) -> _Found:
    found, newest = _Found(), 0
    for hit in hits(tree.chunks(scope.name), query.find, is_over=query.deadline.is_over):
        if hit.number > scope.last:
            break
        if hit.number < scope.first or (hit.number == scope.first and hit.column < scope.column):
            continue
        if len(found.hits) == MAX_COUNTED_HITS:
            found.is_all = False
            break
        found.hits.append(hit)
        found.matching_lines += hit.number != newest
        newest = hit.number
    found.is_all = found.is_all and not query.deadline.is_over()
    return found


def _around(tree: Source, scope: Scope, places: Sequence[Hit], context: int) -> Iterator[Line]:
    columns = {
        number: [hit.column for hit in in_line]
        for number, in_line in itertools.groupby(places, key=lambda hit: hit.number)
    }
    around = ((max(number - context, scope.first), min(number + context, scope.last)) for number in columns)
    chosen = fragments(tree.chunks(scope.name), _merged(around))
    for number, line in itertools.groupby(chosen, key=lambda fragment: fragment.number):
        begins = columns.get(number, [1])
        texts, chars = windows(line, begins, MAX_LINE_CHARS)
        for column, text in zip(begins, texts, strict=True):
            rest = max(chars - (column - 1) - len(text), 0)
            yield Line(scope.name, number, column, text, rest, is_abridged=rest > 0, is_hit=number in columns)


def _merged(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Join *ranges*, of which there is at least one, where they touch."""
    waiting = iter(ranges)
    first, last = next(waiting)
    for begin, end in waiting:
        if begin > last + 1:
            yield first, last
            first = begin
        last = end
    yield first, last


@dataclass(frozen=True, slots=True)
class _Page:
    """The text of an answer about lines of *scope*, whose numbers take *width* characters."""

    scope: Scope
    form: Form
    width: int

    def heading(self, lines: Sequence[Line]) -> str:
        """Return what stands first."""
        raise NotImplementedError

    def following(self, lines: Sequence[Line]) -> dict[str, Any]:
        """Return where to go on behind *lines*; empty where nothing is left."""
        raise NotImplementedError

    def guidance(self, position: Mapping[str, Any]) -> str:
        """Say how to go on at *position*."""
        raise NotImplementedError

    def frame(self) -> str:
        longest = Line(self.scope.name, self.scope.first, MAX_LINE_CHARS, "", rest=1)
        return self._framed([longest], "")

    def row(self, line: Line) -> str:
        return f"---\n{self._row(line)}\n"

    def text(self, lines: Sequence[Line]) -> str:
        rows = (
            self._gap(before, line) + self._row(line) for before, line in itertools.pairwise([None, *lines]) if line
        )
        return self._framed(lines, "\n".join(rows))

    def _framed(self, lines: Sequence[Line], rows: str) -> str:
        following = self.following(lines)
        below = [*([_PARTS.format(name=self.scope.name)] if any(map(_is_part, lines)) else []), *self.form.notes]
        if following:
            below.append(self.guidance(following))
        return "\n\n".join([f"[{self.heading(lines)}]", rows, *_bracketed(below)])

    def _row(self, line: Line) -> str:
        mark = ">" if line.is_hit else " "
        return f"{mark} {str(line.number).rjust(self.width)}{_columns(line)}| {line.text}"

    def _gap(self, before: Line | None, line: Line) -> str:
        return "" if before is None or line.number <= before.number + 1 else "---\n"

    def _from(self, number: int, column: int) -> dict[str, Any]:
        return {"reference": f"{self.scope.name}:{number}:{column}"}


_PARTS = (
    "line:first-last/length| shows these characters of a long line; a reference that ends in :line:column, "
    "as in {name}:1:1001, begins there"
)


class _Span(_Page):
    def heading(self, lines: Sequence[Line]) -> str:
        return f"Lines {self.scope.first}-{lines[-1].number} of {self.scope.total}"

    def following(self, lines: Sequence[Line]) -> dict[str, Any]:
        newest = lines[-1]
        if newest.rest and not newest.is_abridged:
            return self._from(newest.number, newest.end_column)
        return _range(newest.number + 1, self.scope.last)

    def guidance(self, position: Mapping[str, Any]) -> str:
        return f"output truncated, narrow your range; to go on, {self.form.spelling(position)}"


@dataclass(frozen=True, slots=True)
class _Search(_Page):
    pattern: str
    found: _Found
    lines: Sequence[Line]

    def heading(self, lines: Sequence[Line]) -> str:
        del lines
        count = f"{self.found.matching_lines}{'' if self.found.is_all else ' or more'}"
        matches = "match" if count == "1" else "matches"
        return f"{count} {matches} for /{self.pattern}/{self.scope.label}"

    def following(self, lines: Sequence[Line]) -> dict[str, Any]:
        shown = [line for line in lines if line.is_hit]
        left = self.found.hits[len(shown) :]
        if shown and left and left[0].number == shown[-1].number:
            return self._from(shown[-1].number, shown[-1].column + 1)
        if left or not self.found.is_all:
            return _range(lines[-1].number + 1, self.scope.last)
        if lines[-1].rest and not lines[-1].is_abridged:
            return {"pattern": None, **self._from(lines[-1].number, lines[-1].end_column)}
        if len(lines) < len(self.lines):
            return {"pattern": None, **_range(lines[-1].number + 1, self.lines[-1].number)}
        return {}

    def guidance(self, position: Mapping[str, Any]) -> str:
        kind = "context" if "pattern" in position else "output"
        return f"{kind} truncated, narrow your search; to go on, {self.form.spelling(position)}"


def _answer(page: _Page, shown: Sequence[Line], total: int) -> Answer:
    return Answer(page.text(shown), page.scope.name, tuple(shown), total=total, next=page.following(shown))


def _range(first: int, last: int) -> dict[str, Any]:
    return {"line_range": {"start": first, "end": last}} if first <= last else {}


def _columns(line: Line) -> str:
    if not _is_part(line):
        return ""
    return f":{line.column}-{line.end_column - 1}/{line.end_column - 1 + line.rest}"


def _is_part(line: Line) -> bool:
    return line.column > 1 or line.rest > 0


def _bracketed(notes: Iterable[str]) -> list[str]:
    return [f"[{note}]" for note in notes]
