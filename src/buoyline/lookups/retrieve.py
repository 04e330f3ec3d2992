"""Retrieve offloaded content by reference, in the form of Strands' tool ``retrieve_offloaded_content``.

Source: the page on the context offloader, for the parameters, the modes and the form of an answer.
"""

import dataclasses
import itertools
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from buoyline.errors import ConfigError
from buoyline.lookups.answer import Answer, Budget, Counter, Line, Spelling
from buoyline.lookups.hits import Deadline, Hit, hits
from buoyline.lookups.lines import count_lines, fragments, windows
from buoyline.lookups.patterns import Finder, finder
from buoyline.lookups.places import Files, Workspace, files_of
from buoyline.lookups.read import Source, lines_from
from buoyline.lookups.references import (
    MAX_MEDIA_BYTES,
    MediaContent,
    Retrieved,
    Target,
    TextContent,
    contents_of,
    is_text,
    media_of,
    target_of,
)
from buoyline.previews.source import MAX_LINE_CHARS, visible
from buoyline.tokens import as_text_counter, default_counter
from buoyline.workspace import layout

# Numbered lines of one file in the form of Strands' retrieval tool: by range, or around the hits of a pattern.
#
# Source: the page on the context offloader for the form: the count first, an empty line, numbers at the right before
# a
# ``|``, ``>`` before hits, ``---`` between groups, guidance where the answer is cut. Ours is how a part of a long
# line is
# labelled, ``line:first-last/length|``, and that the guidance says where to go on.


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
    found = _found_passages(tree, scope, query)
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


def _found_passages(tree: Source, scope: Scope, query: Query) -> _Found:
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


DEFAULT_MAX_TOKENS: Final = 2_500
DEFAULT_CONTEXT_LINES: Final = 5
DEFAULT_TIMEOUT_S: Final = 30.0

# The longest token of o200k_base has 128 bytes; a file with more bytes than that a token need not be counted.
_MAX_BYTES_PER_TOKEN = 128
_MAX_NAMED_MEDIA = 5
_CHUNK_BYTES = 1 << 20
_PLACE = re.compile(r"(.+):([0-9]{1,15}):([0-9]{1,15})", re.DOTALL)
_EMPTY = "Content is empty (0 lines)."
_LITERAL = "the pattern is no RE2 syntax, which has no look-around or back-references: its text itself was searched for"
_SPLIT = "no line of the view matches; these lines are of {name}, the result as the tool gave it"


def as_call(position: Mapping[str, Any]) -> str:
    """Say how to go on to a model, in the JSON that its next call will hold."""
    return "repeat the call with " + ", ".join(f'"{name}": {json.dumps(value)}' for name, value in position.items())


def retrieve(
    workspace: Workspace,
    reference: str,
    pattern: str | None = None,
    line_range: Mapping[str, Any] | None = None,
    context_lines: int | None = None,
    *,
    whole: bool = False,
    session: str | None = None,
    timeout_s: float | None = DEFAULT_TIMEOUT_S,
    max_tokens: int | None = DEFAULT_MAX_TOKENS,
    counter: Counter | None = None,
    spelling: Spelling = as_call,
) -> Retrieved:
    """Retrieve offloaded content: whole in its native types, or lines of it, or what matches a pattern.

    Lines are counted as in stubs and pointers: in the view of a result where it has one. Where no line of the view
    matches, the result is searched as the tool gave it, since a match may stand on two lines of the view. Blocking.

    Args:
        workspace: Where the content is, on disk or in memory; in memory, retrieving it counts as a use of it.
        reference: In any form that `buoyline.lookups.references.target_of` knows.
        pattern: A regular expression in RE2 syntax; what is none is taken as the text itself, and the answer says so.
            The empty pattern shows all lines.
        line_range: ``{"start": first, "end": last}``, 1-based and inclusive; an end behind the last line stands for it.
        context_lines: Lines before and after each hit, 5 where it is None; a negative number is 0. Without *pattern*
            and *line_range*: how many lines to show from the beginning, at least one.
        whole: Give all that is asked for, whatever *max_tokens* says: content up to 20 MB.
        session: The only session whose content may be had; None for all.
        timeout_s: After how many seconds to answer with the matches found until then; None for no bound.
        max_tokens: For the whole text of the answer. None lifts the bound, also that of 20 MB on a payload.
        counter: Counts them; the default counter where it is None.
        spelling: Says in the answer how to go on.

    Returns:
        Without the three options the content itself, text as it was to the last byte. Where it has more than
        *max_tokens* tokens: its first lines and how to go on. In this it departs from the documented tool, whose full
        retrieval puts any size back into the context; *whole* does that here.

    Raises:
        ConfigError: *line_range* is not within the content, an option cannot be, lines of binary content are asked
            for, *max_tokens* is too few to show anything, *whole* asks for over 20 MB, or *workspace* is neither of the
            two.
        CorruptError: The payload that *reference* names is not what was stored.
        InvalidNameError: *reference* leads out of the workspace, or is no text.
        NotFoundError: There is no such content or session, or a call has several results.
        StorageError: A file cannot be read.
    """
    files = files_of(workspace)
    target = target_of(files, reference, session)
    if whole and (files.tree.size(target.whole) or 0) > MAX_MEDIA_BYTES:
        raise ConfigError("whole", f"the content has over {MAX_MEDIA_BYTES:,} bytes; give a pattern or a line_range")
    form = Form(None if whole else max_tokens, counter, spelling)
    context = None if context_lines is None else max(_whole_number("context_lines", context_lines), 0)
    if pattern is None and line_range is None and context is None and not target.is_narrowed:
        return _whole(files, target, form, is_bounded=max_tokens is not None)
    _require_text(files, target)
    total = count_lines(files.tree.chunks(target.name))
    if not total:
        return Retrieved.of(TextContent(_EMPTY))
    if line_range is None and pattern is None and context is not None:
        line_range = {"start": target.first, "end": target.first + max(context, 1) - 1}
    scope = _scope(target, total, line_range)
    if not pattern:
        return Retrieved.shown(span(files.tree, scope, form))
    query, notes = _query(pattern, DEFAULT_CONTEXT_LINES if context is None else context, timeout_s)
    return Retrieved.shown(_found(files, target, scope, query, dataclasses.replace(form, notes=notes)))


def retrieve_lines(
    content: bytes,
    reference: str,
    pattern: str | None = None,
    line_range: Mapping[str, Any] | None = None,
    context_lines: int | None = None,
    *,
    max_tokens: int | None = DEFAULT_MAX_TOKENS,
    counter: Counter | None = None,
    spelling: Spelling = as_call,
) -> Answer:
    """Show lines of content that is in no workspace, in the form of `retrieve`; the first ones without an option.

    Args:
        content: Text in UTF-8.
        reference: What it is called; ``:120:1001`` behind it begins at a column of a line, as answers say it.
        pattern: See `retrieve`.
        line_range: See `retrieve`.
        context_lines: See `retrieve`.
        max_tokens: See `retrieve`.
        counter: See `retrieve`.
        spelling: See `retrieve`.

    Raises:
        ConfigError: See `retrieve`.
    """
    name, first, column = place_in(reference)
    source, form = _Held(content), Form(max_tokens, counter, spelling)
    total = count_lines(source.chunks(name))
    if not total:
        return Answer(_EMPTY, name)
    context = None if context_lines is None else max(_whole_number("context_lines", context_lines), 0)
    if line_range is None and pattern is None and context is not None:
        line_range = {"start": first, "end": first + max(context, 1) - 1}
    scope = _scope(
        Target(name, name, first=first, column=column, is_narrowed=first > 1 or column > 1), total, line_range
    )
    if not pattern:
        return span(source, scope, form)
    query, notes = _query(pattern, DEFAULT_CONTEXT_LINES if context is None else context, DEFAULT_TIMEOUT_S)
    return search(source, scope, query, dataclasses.replace(form, notes=notes))


def place_in(reference: str) -> tuple[str, int, int]:
    """Return the name that *reference* begins with, and the line and the column behind it; 1 and 1 without them."""
    place = _PLACE.fullmatch(reference)
    return (reference, 1, 1) if place is None else (place[1], max(int(place[2]), 1), max(int(place[3]), 1))


@dataclasses.dataclass(frozen=True, slots=True)
class _Held:
    """Content in memory, as lines are read from it."""

    content: bytes

    def chunks(self, name: str) -> Iterator[bytes]:  # noqa: ARG002 - there is one only
        for start in range(0, len(self.content), _CHUNK_BYTES):
            yield self.content[start : start + _CHUNK_BYTES]


def _scope(target: Target, total: int, line_range: Mapping[str, Any] | None) -> Scope:
    """Return the lines that are asked for.

    Raises:
        ConfigError: There are none such.
    """
    start, end = (1, total) if line_range is None else _bounds(line_range, total)
    first, last = max(start, target.first), min(end, target.last, total)
    if first > last:
        problem = f"lines {start} to {end} are not within those that the reference names; the content has 1 to {total}"
        raise ConfigError("line_range", problem)
    column = target.column if first == target.first else 1
    return Scope(target.name, first, last, total, column, is_narrowed=line_range is not None or target.is_narrowed)


def _bounds(line_range: Any, total: int) -> tuple[int, int]:
    if not isinstance(line_range, Mapping) or "start" not in line_range or "end" not in line_range:
        raise ConfigError("line_range", f'must be {{"start": first, "end": last}}; valid are 1 to {total}')
    start, end = (_whole_number(f"line_range.{name}", line_range[name]) for name in ("start", "end"))
    if not 1 <= start <= end:
        raise ConfigError(
            "line_range", f"start {start} must be at least 1 and not behind end {end}; 1 to {total} is valid"
        )
    if start > total:
        raise ConfigError("line_range", f"start {start} is behind the last line; 1 to {total} is valid")
    return start, end


def _whole_number(name: str, value: Any) -> int:
    """Return *value* as a number; models also spell it as text, or with a fraction of zero."""
    try:
        if isinstance(value, (int, float, str)) and not isinstance(value, bool) and int(value) == float(value):
            return int(value)
    except (ValueError, OverflowError):
        pass
    raise ConfigError(name, f"must be a whole number, not {str(value)[:80]!r}")


def _query(pattern: str, context_lines: int, timeout_s: float | None) -> tuple[Query, tuple[str, ...]]:
    """Return what to search for, and what is to be said of it."""
    if not isinstance(pattern, str):
        raise ConfigError("pattern", f"must be text, not {type(pattern).__name__}")
    try:
        return Query(pattern, finder(pattern), context_lines, Deadline(timeout_s)), ()
    except ConfigError:
        return Query(pattern, finder(pattern, literal=True), context_lines, Deadline(timeout_s)), (_LITERAL,)


def _found(workspace: Files, target: Target, scope: Scope, query: Query, form: Form) -> Answer:
    """Search the view of a result, and where nothing in it matches, the result itself."""
    answer = search(workspace.tree, scope, query, form)
    if answer.lines or scope.is_narrowed or target.whole == target.name:
        return answer
    total = count_lines(workspace.tree.chunks(target.whole))
    form = dataclasses.replace(form, notes=(*form.notes, _SPLIT.format(name=target.whole)))
    found = search(workspace.tree, Scope(target.whole, 1, total, total), query, form)
    return found if found.lines else answer


def _whole(workspace: Files, target: Target, form: Form, *, is_bounded: bool) -> Retrieved:
    """Return all of the content if it fits, else its first lines and the media, up to 20 MB if *is_bounded*."""
    media = media_of(workspace, target, is_bounded=is_bounded)
    if not is_text(workspace, target.whole):
        return Retrieved.of(*media)
    whole = _fitting(workspace, target, media, form)
    if whole is not None:
        return whole
    named = [part.text for part in media[:_MAX_NAMED_MEDIA]]
    if len(media) > len(named):
        named.append(f"[{len(media) - len(named)} more, not text either]")
    total = count_lines(workspace.tree.chunks(target.name))
    if not total:
        return Retrieved(media, "\n".join(named))
    form = dataclasses.replace(form, notes=tuple(note[1:-1] for note in named))
    return Retrieved.shown(span(workspace.tree, _scope(target, total, None), form), *media)


def _fitting(workspace: Files, target: Target, media: tuple[MediaContent, ...], form: Form) -> Retrieved | None:
    """Return all of the content; None where it is too large. What is far too large is not read for that."""
    if form.max_tokens is None:
        return Retrieved.of(*contents_of(workspace, target, media))
    if (workspace.tree.size(target.whole) or 0) > form.max_tokens * _MAX_BYTES_PER_TOKEN:
        return None
    whole = Retrieved.of(*contents_of(workspace, target, media))
    counter = as_text_counter(default_counter() if form.counter is None else form.counter)
    return None if counter.exceeds(whole.text, form.max_tokens) else whole


def _require_text(workspace: Files, target: Target) -> None:
    """Refuse to look for lines where there are none.

    Raises:
        ConfigError: The content is a payload, or a result of payloads alone.
    """
    media = [part.get("path", "") for part in target.parts if "path" in part]
    if not is_text(workspace, target.whole):
        media = [target.whole]
    elif not media or workspace.tree.size(target.whole):
        return
    problem = f"cannot search binary content ({', '.join(map(layout.media_type_of, media[:_MAX_NAMED_MEDIA]))})"
    raise ConfigError("reference", f"{problem}; leave out pattern, line_range and context_lines to get it whole")
