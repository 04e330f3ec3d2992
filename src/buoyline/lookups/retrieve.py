"""`retrieve`: offloaded content by reference, in the form of Strands' tool ``retrieve_offloaded_content``.

Source: the page on the context offloader, for the parameters, the modes and the form of an answer: the count first, an
empty line, line numbers at the right before a ``|``, ``>`` before hits, ``---`` between groups, guidance in an answer
that is cut. Two things are ours: the label of a part of a long line, ``line:first-last/length|``, and that the guidance
says where to go on.
"""

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from buoyline.errors import ConfigError
from buoyline.lookups.answer import Answer, AnswerBudget, Counter, Line
from buoyline.lookups.hits import Deadline, Found, Search, find, search_for
from buoyline.lookups.lines import count_lines, lines_around, lines_from
from buoyline.lookups.paths import PLACE
from buoyline.lookups.references import (
    MAX_MEDIA_BYTES,
    Retrieved,
    Target,
    contents_of,
    is_text,
    media_of,
    resolve_reference,
)
from buoyline.lookups.sources import ByteSource, InMemoryContent, require_workspace
from buoyline.previews.source import MAX_LINE_CHARS, visible
from buoyline.workspace import ReadableWorkspace, layout

DEFAULT_MAX_TOKENS: Final = 2_500
DEFAULT_CONTEXT_LINES: Final = 5
DEFAULT_TIMEOUT_S: Final = 30.0

# The longest token of o200k_base has 128 bytes; a file with more bytes than that a token need not be counted.
_MAX_BYTES_PER_TOKEN = 128
_MAX_NAMED_MEDIA = 5
_SHOWN_PATTERN_CHARS = 50
_EMPTY = "Content is empty (0 lines)."
_TIME_UP = "the time was up before the end; give a simpler pattern"
_LITERAL = "the pattern is no RE2 syntax, which has no look-around or back-references: its text itself was searched for"
_SPLIT = "no line of the view matches; these lines are of {name}, the result as the tool gave it"
_PARTS = (
    "line:first-last/length| shows these characters of a long line; a reference that ends in :line:column, "
    "as in {name}:1:1001, begins there"
)


def as_call(position: Mapping[str, Any]) -> str:
    """Say how to go on to a model, in the JSON that its next call will hold."""
    return "repeat the call with " + ", ".join(f'"{name}": {json.dumps(value)}' for name, value in position.items())


class _Form(NamedTuple):
    """How large an answer may be, and the notes below its lines."""

    budget: AnswerBudget
    notes: tuple[str, ...] = ()


class _Options(NamedTuple):
    """Which lines a call asks for; see `retrieve`."""

    pattern: str | None
    line_range: Mapping[str, Any] | None
    context_lines: int | None
    timeout_s: float | None


def retrieve(
    workspace: ReadableWorkspace,
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
) -> Retrieved:
    """Retrieve offloaded content: whole in its own types, some lines of it, or the lines that match a pattern.

    Lines are counted as in stubs and citations: in the view of a result if it has one. If no line of the view matches,
    the result itself is searched, since the view may have split a match over two lines.

    *reference* has any form that `buoyline.lookups.references.resolve_reference` knows. In memory, retrieving content
    counts as its use. *pattern* is a regular expression in RE2 syntax. Any other text is searched for as it is, and the
    answer says so; the empty pattern shows all lines. *line_range* is ``{"start": first, "end": last}``, 1-based and
    inclusive; an end after the last line means the last. *context_lines* are lines before and after each hit; None
    means 5, a negative number 0. Without *pattern* and *line_range* they are how many lines to show from the beginning,
    at least one.

    *whole* returns everything that is asked for, in any number of tokens, up to 20 MB of content. After *timeout_s*
    seconds the answer has the matches so far; None is no bound. *max_tokens* None lifts the bound of the text and that
    of 20 MB on a blob. For the other arguments see `buoyline.lookups`.

    Returns:
        Without *pattern*, *line_range* and *context_lines* the content itself, byte for byte. If it has more than
        *max_tokens* tokens: its first lines and how to go on. The documented tool would put any size back into the
        context; here *whole* does that.

    Raises:
        ConfigError: *line_range* is not within the content, an option has a wrong value, lines of binary content are
            asked for, *max_tokens* is too small to show anything, *whole* asks for over 20 MB, or *workspace* is no
            workspace.
        CorruptError: The blob that *reference* names is not what was stored.
        InvalidNameError: *reference* leads out of the workspace or is not text.
        NotFoundError: There is no such content or session, or a call has several results.
        StorageError: A file cannot be read.
    """
    require_workspace(workspace)
    target = resolve_reference(workspace, reference, session)
    if whole and (workspace.files.size(target.whole) or 0) > MAX_MEDIA_BYTES:
        raise ConfigError("whole", f"the content has over {MAX_MEDIA_BYTES:,} bytes; give a pattern or a line_range")
    form = _Form(AnswerBudget(None if whole else max_tokens, counter))
    if pattern is None and line_range is None and context_lines is None and not target.is_narrowed:
        return _whole(workspace, target, form, is_bounded=max_tokens is not None)
    context = _context(context_lines)
    is_blob = not is_text(workspace, target.whole)
    media = [target.whole] if is_blob else [part.get("path", "") for part in target.parts if "path" in part]
    if is_blob or (media and not workspace.files.size(target.whole)):
        problem = f"cannot search binary content ({', '.join(map(layout.media_type_of, media[:_MAX_NAMED_MEDIA]))})"
        raise ConfigError("reference", f"{problem}; leave out pattern, line_range and context_lines to get it whole")
    options = _Options(pattern, line_range, context, timeout_s)
    return Retrieved.shown(_lines(workspace.files, target, form, options))


def retrieve_lines(
    content: bytes,
    reference: str,
    pattern: str | None = None,
    line_range: Mapping[str, Any] | None = None,
    context_lines: int | None = None,
    *,
    max_tokens: int | None = DEFAULT_MAX_TOKENS,
    counter: Counter | None = None,
) -> Answer:
    """Show lines of *content*, UTF-8 that is not in a workspace, as `retrieve` does; without an option the first lines.

    *reference* is the content's name; ``:120:1001`` after it begins at a column of a line, as answers say.

    Raises:
        ConfigError: See `retrieve`.
    """
    name, first, column = place_in(reference)
    target = Target(name, name, first=first, column=column, is_narrowed=first > 1 or column > 1)
    form = _Form(AnswerBudget(max_tokens, counter))
    options = _Options(pattern, line_range, context_lines, DEFAULT_TIMEOUT_S)
    return _lines(InMemoryContent(content), target, form, options)


def place_in(reference: str) -> tuple[str, int, int]:
    """Return the name in *reference*, and the line and the column after it; 1 and 1 without them."""
    place = PLACE.fullmatch(reference)
    return (reference, 1, 1) if place is None else (place[1], max(int(place[2]), 1), max(int(place[3]), 1))


def _lines(source: ByteSource, target: Target, form: _Form, options: _Options) -> Answer:
    """Show lines of *target*: a range, those that match, or the first ones."""
    total = count_lines(source.chunks(target.name))
    if not total:
        return Answer(_EMPTY, target.name)
    pattern, line_range, context, timeout_s = options
    context = _context(context)
    if line_range is None and pattern is None and context is not None:
        line_range = {"start": target.first, "end": target.first + max(context, 1) - 1}
    chosen = _narrowed(target, total, line_range)
    if not pattern:
        return _range(source, chosen, total, form)
    if not isinstance(pattern, str):
        raise ConfigError("pattern", f"must be text, not {type(pattern).__name__}")
    try:
        search = search_for(pattern, Deadline(timeout_s), literal=False, ignore_case=False)
    except ConfigError:
        search = search_for(pattern, Deadline(timeout_s), literal=True, ignore_case=False)
        form = form._replace(notes=(_LITERAL,))
    context = DEFAULT_CONTEXT_LINES if context is None else context
    answer = _matches(source, chosen, form, pattern=pattern, search=search, context=context)
    if answer.lines or chosen.is_narrowed or target.whole == target.name:
        return answer
    # The view may have split the match.
    result = Target(target.whole, target.whole, last=count_lines(source.chunks(target.whole)))
    form = form._replace(notes=(*form.notes, _SPLIT.format(name=target.whole)))
    found = _matches(source, result, form, pattern=pattern, search=search, context=context)
    return found if found.lines else answer


def _narrowed(target: Target, total: int, line_range: Mapping[str, Any] | None) -> Target:
    """Return the lines of *target* that are within *line_range*; raise ConfigError if there are none."""
    start, end = (1, total) if line_range is None else _bounds(line_range, total)
    narrowed = replace(target, first=max(start, target.first), last=min(end, target.last, total))
    ranges = narrowed.ranges
    if not ranges:
        problem = f"lines {start} to {end} are not within those that the reference names; the content has 1 to {total}"
        raise ConfigError("line_range", problem)
    first, last = ranges[0][0], ranges[-1][1]
    column = target.column if first == target.first else 1
    is_narrowed = line_range is not None or target.is_narrowed
    return replace(narrowed, first=first, last=last, column=column, is_narrowed=is_narrowed)


def _bounds(line_range: Any, total: int) -> tuple[int, int]:
    if not isinstance(line_range, Mapping) or "start" not in line_range or "end" not in line_range:
        raise ConfigError("line_range", f'must be {{"start": first, "end": last}}; valid are 1 to {total}')
    start, end = (_whole_number(f"line_range.{name}", line_range[name]) for name in ("start", "end"))
    if not 1 <= start <= end:
        problem = f"start {start} must be at least 1 and not behind end {end}; 1 to {total} is valid"
        raise ConfigError("line_range", problem)
    if start > total:
        raise ConfigError("line_range", f"start {start} is behind the last line; 1 to {total} is valid")
    return start, end


def _context(context_lines: Any) -> int | None:
    return None if context_lines is None else max(_whole_number("context_lines", context_lines), 0)


def _whole_number(name: str, value: Any) -> int:
    """Return *value* as a number; models also write it as text, or with a fraction of zero."""
    try:
        number = int(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else None
        if number is not None and (isinstance(value, int) or number == float(value)):
            return number
    except (ValueError, OverflowError):
        pass
    raise ConfigError(name, f"must be a whole number, not {str(value)[:80]!r}")


def _range(source: ByteSource, target: Target, total: int, form: _Form) -> Answer:
    """Show the lines of *target*, each of up to 1,000 characters; a single one for as long as the budget lasts."""
    page = _Page(target, form, len(str(target.last)), total)
    lines = lines_from(source, target.name, target.ranges, target.column, form.budget.max_line_chars)
    shown = form.budget.fill(lines, page)
    if target.column > 1 and not shown[0].content:
        raise ConfigError("reference", f"line {target.first} ends before column {target.column}")
    return Answer(page.text(shown), target.name, tuple(shown), total=total, next=page.following(shown))


def _matches(source: ByteSource, target: Target, form: _Form, *, pattern: str, search: Search, context: int) -> Answer:
    """Show the lines of *target* that match, counted up to 10,000 hits, with lines of context; or say that none does.

    A line over 1,000 characters is shown around each of its matches.
    """
    begin = target.first, target.column
    ranges = {target.name: target.ranges}
    found = find(source, ranges, search, lambda _, hit: (hit.number, hit.column) < begin, {})
    where = f" in lines {target.first}-{target.last}" if target.is_narrowed else ""
    if not found.hits:
        searched_lines = sum(last - first + 1 for first, last in target.ranges)
        searched = f"searched {searched_lines} lines" if found.is_all else _TIME_UP
        text = f"No matches found for pattern '{visible(pattern)}'{where} ({searched})."
        return Answer("\n\n".join([text, *(f"[{note}]" for note in form.notes)]), target.name)
    hits = found.hits[target.name]
    total = len({hit.number for hit in hits})
    count = f"{total}{'' if found.is_all else ' or more'}"
    shown_pattern = re.sub(r"[\n\r/\]]", " ", visible(pattern))[:_SHOWN_PATTERN_CHARS]
    heading = f"{count} {'match' if count == '1' else 'matches'} for /{shown_pattern}/{where}"
    around = lines_around(source, target.name, hits, context, first=target.first, last=target.last)
    lines = list(itertools.islice(around, form.budget.max_lines))
    page = _Page(target, form, len(str(lines[-1].number)), total, heading, found, lines)
    shown = form.budget.fill(lines, page)
    if not any(line.is_hit for line in shown):
        # The lines before the first hit have used up the budget, but the caller asked for the hit.
        only_hits = [line for line in lines if line.is_hit]
        if not only_hits:  # more lines than an answer can have
            around = lines_around(source, target.name, hits, 0, first=target.first, last=target.last)
            only_hits = list(itertools.islice(around, form.budget.max_lines))
        page = replace(page, lines=only_hits)
        shown = form.budget.fill(only_hits, page)
    return Answer(page.text(shown), target.name, tuple(shown), total=total, next=page.following(shown))


@dataclass(frozen=True, slots=True)
class _Page:
    """The text of an answer about lines of *target*, whose numbers take *width* characters.

    It is about a range of the *total* lines; or, below its *heading*, about the matches *found* and the lines around
    them, of which it shows the first.
    """

    target: Target
    form: _Form
    width: int
    total: int
    heading: str = ""
    found: Found | None = None
    lines: Sequence[Line] = ()

    def frame(self) -> str:
        return self._framed([Line(self.target.name, self.target.first, MAX_LINE_CHARS, "", rest=1)], "")

    def row(self, line: Line) -> str:
        return f"---\n{self._row(line)}\n"

    def text(self, lines: Sequence[Line]) -> str:
        rows: list[str] = []
        for before, line in itertools.pairwise([lines[0], *lines]):
            rows += ["---"] if line.number > before.number + 1 else []
            rows.append(self._row(line))
        return self._framed(lines, "\n".join(rows))

    def _row(self, line: Line) -> str:
        mark = ">" if line.is_hit else " "
        end = line.end_column - 1
        columns = f":{line.column}-{end}/{end + line.rest}" if line.is_part else ""
        return f"{mark} {str(line.number).rjust(self.width)}{columns}| {line.text}"

    def _framed(self, lines: Sequence[Line], rows: str) -> str:
        heading = self.heading or f"Lines {self.target.first}-{lines[-1].number} of {self.total}"
        notes = [_PARTS.format(name=self.target.name)] if any(line.is_part for line in lines) else []
        notes += self.form.notes
        if following := self.following(lines):
            cut = "context" if "pattern" in following else "output"
            narrowed = "range" if self.found is None else "search"
            notes.append(f"{cut} truncated, narrow your {narrowed}; to go on, {as_call(following)}")
        return "\n\n".join([f"[{heading}]", rows, *(f"[{note}]" for note in notes)])

    def following(self, lines: Sequence[Line]) -> dict[str, Any]:
        name, newest = self.target.name, lines[-1]
        is_in_line = newest.rest > 0 and not newest.is_abridged
        in_line = {"reference": f"{name}:{newest.number}:{newest.end_column}"}
        below = _line_range(newest.number + 1, self.target.last)
        if self.found is None:
            return in_line if is_in_line else below
        shown = [line for line in lines if line.is_hit]
        left = self.found.hits[name][len(shown) :]
        if shown and left and left[0].number == shown[-1].number:
            return {"reference": f"{name}:{shown[-1].number}:{shown[-1].column + 1}"}
        if left or not self.found.is_all:
            return below
        if is_in_line:
            return {"pattern": None, **in_line}
        if len(lines) < len(self.lines):
            return {"pattern": None, **_line_range(newest.number + 1, self.lines[-1].number)}
        return {}


def _line_range(first: int, last: int) -> dict[str, Any]:
    return {"line_range": {"start": first, "end": last}} if first <= last else {}


def _whole(workspace: ReadableWorkspace, target: Target, form: _Form, *, is_bounded: bool) -> Retrieved:
    """Return all of the content if it fits, else its first lines and the media, up to 20 MB if *is_bounded*."""
    media = media_of(workspace, target, is_bounded=is_bounded)
    if not is_text(workspace, target.whole):
        return Retrieved.of(*media)
    max_tokens = form.budget.max_tokens
    # Content that is far too large is not even read.
    if max_tokens is None or (workspace.files.size(target.whole) or 0) <= max_tokens * _MAX_BYTES_PER_TOKEN:
        whole = Retrieved.of(*contents_of(workspace, target, media))
        if form.budget.fits(whole.text):
            return whole
    named = [part.text for part in media[:_MAX_NAMED_MEDIA]]
    if len(media) > len(named):
        named.append(f"[{len(media) - len(named)} more, not text either]")
    total = count_lines(workspace.files.chunks(target.name))
    if not total:
        return Retrieved(media, "\n".join(named))
    form = form._replace(notes=tuple(note[1:-1] for note in named))
    return Retrieved.shown(_range(workspace.files, _narrowed(target, total, None), total, form), *media)
