"""`grep`: lines that match, in files of the workspace."""

import collections
import difflib
import itertools
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from buoyline.errors import ConfigError
from buoyline.lookups.answer import (
    DATA_LABEL,
    LEAST_TOKENS_TO_NAME,
    Answer,
    AnswerBudget,
    Counter,
    Line,
    cut_row,
    reasons,
    shown_path,
    unread_row,
)
from buoyline.lookups.calls import Calls, owner_row
from buoyline.lookups.files import files_to_search, newest_first, rank_of
from buoyline.lookups.hits import Deadline, Found, LineHit, LineRanges, Search, find, hits_in_ranges, search_for
from buoyline.lookups.lines import blocks_from_end, lines_around
from buoyline.lookups.paths import PLACE
from buoyline.lookups.sources import Texts, Unread, repeated_after_removal, require_workspace
from buoyline.workspace import ReadableWorkspace

MAX_CONTEXT_LINES = 100

# Hits of early files may fill an answer. About an eighth of it says where the others are; a small answer has no room.
_LISTED_CHARS_PER_TOKEN = 0.3

_MAX_LOOKING_S = 2.0  # for each of the two suggestions in an answer without a hit
_WORD = re.compile(r"[A-Za-z0-9_.-]{4,60}")
_MAX_HITS = 1_000
_MAX_WORDS = 3
_MAX_PLACE_CHARS = 150
_LINE_BYTES = 1 << 12


@repeated_after_removal
def grep(
    workspace: ReadableWorkspace,
    pattern: str,
    path: str | Sequence[str] | None = None,
    *,
    context: int = 0,
    literal: bool = False,
    ignore_case: bool = False,
    last: bool = False,
    after: str = "",
    session: str | None = None,
    timeout_s: float | None = None,
    max_tokens: int = 2_000,
    counter: Counter | None = None,
) -> Answer:
    """Search files of the workspace line by line.

    *pattern* is a regular expression in RE2 syntax, or plain text with *literal*. *path* is a file, the lines of a
    citation, a directory with everything below it, names such as ``tool_result-*.txt``, or several of these; None
    searches all that was archived or offloaded: transcripts, and tool results in their readable form. The time is
    linear in the bytes that are searched, for any pattern, and no file is held whole; after *timeout_s* seconds the
    answer has the hits so far.

    *context* lines are shown before and after each hit, at most 100. Hits are in the order of names and lines; *last*
    shows the newest first: the last line of a file before the others, a session's transcript before its results, and
    later results before earlier ones. Hits up to *after*, a ``path:line:column`` of an earlier answer, are skipped. For
    the other arguments see `buoyline.lookups`.

    Returns:
        Each path after ``==``, and below it hits as ``line: text`` and lines of context as ``line- text``, with ``--``
        between groups: a path in each line would take half of the tokens. A line over 1,000 characters is shown around
        the match, as ``line:column: text``. A row after ``@`` names the call that the lines below it belong to.
        `Answer.total` counts up to 10,000 hits after *after*.

        An answer without a hit says whether ignoring case finds any, or which words are similar. If hits of further
        files are cut, it says how many each file has, as far as an eighth of the answer can name them.

    Raises:
        ConfigError: *workspace* is no workspace, *pattern* is not RE2 syntax, *context* or *after* is invalid, or
            *max_tokens* is too small.
        InvalidNameError: *path* leads out of the workspace or to a hidden file.
        NotFoundError: There is no such file or session.
        StorageError: A file cannot be read.
    """
    require_workspace(workspace)
    if not 0 <= context <= MAX_CONTEXT_LINES:
        raise ConfigError("context", f"{context} is not in 0 to {MAX_CONTEXT_LINES}")
    deadline = Deadline(timeout_s)
    search = search_for(pattern, deadline, literal=literal, ignore_case=ignore_case)
    unread: Unread = {}
    ranges = files_to_search(workspace, path, session, unread)
    ranges = newest_first(workspace, ranges) if last else ranges
    texts = Texts(workspace)
    found = find(texts, ranges, search, _shown_up_to(after, list(ranges), last=last), unread, last=last)
    ranges = {name: ranges[name] for name in ranges if name not in unread}
    found.files = len(ranges)
    suggestion = ""
    if not found.total and found.is_all and not ignore_case and max_tokens >= LEAST_TOKENS_TO_NAME:
        suggestion = _suggestion(texts, ranges, pattern, literal=literal)
    budget = AnswerBudget(max_tokens, counter)
    max_lines = max(budget.max_lines, 2 * MAX_CONTEXT_LINES)
    lines, blocks = _lines(texts, found, context, max_lines, last=last)
    listed_chars = int(max_tokens * _LISTED_CHARS_PER_TOKEN) if max_tokens >= LEAST_TOKENS_TO_NAME else 0
    calls = Calls(workspace)
    row, befores = unread_row(unread, max_tokens), _befores(lines)
    page = _Page(found, suggestion, row, len(lines), befores, context > 0, listed_chars, last, calls)
    shown = budget.fill(lines, page)
    shown = shown[: max((end for end in blocks if end <= len(shown)), default=0)] if last else shown
    if not any(line.is_hit for line in shown):
        # The lines before the first hit have used up the budget, but the caller asked for the hit.
        only_hits = [line for line in lines if line.is_hit]
        page = replace(page, befores=_befores(only_hits))
        shown = budget.fill(only_hits, page)
    following = page.following(shown)
    repeated = {
        "pattern": pattern,
        "path": path if path is None or isinstance(path, str) else [*path],
        "context": context,
        "session": session,
    }
    options = {"literal": literal, "ignore_case": ignore_case, **({"last": True} if last else {})}
    return Answer(
        text=page.text(shown),
        lines=tuple(shown),
        total=found.total,
        next={**repeated, **options, **following} if following else {},
        unread=reasons(unread),
    )


def _shown_up_to(after: str, names: Sequence[str], *, last: bool) -> Callable[[str, LineHit], bool]:
    """Return a function that returns whether a hit was shown up to *after*, in the order of *names* if *last*."""
    if not after:
        return lambda _name, _hit: False
    place = PLACE.fullmatch(after)
    if place is None:
        raise ConfigError("after", f"{after!r} is not of the form path:line:column; take it from an earlier answer")
    path, number, column = place[1], int(place[2]), int(place[3])
    if not last:
        newest = rank_of(path, number, column)
        return lambda name, hit: rank_of(name, hit.number, hit.column) <= newest
    if path not in names:
        raise ConfigError("after", f"{path!r} is not among the files that are searched; begin again without after")
    places = {name: place for place, name in enumerate(names)}
    oldest = places[path], -number, -column
    return lambda name, hit: (places[name], -hit.number, -hit.column) <= oldest


def _suggestion(texts: Texts, ranges: LineRanges, pattern: str, *, literal: bool) -> str:
    """Return a row about hits without regard to case, or about similar words; empty if there are neither."""
    try:
        folded = search_for(pattern, Deadline(_MAX_LOOKING_S), literal=literal, ignore_case=True)
    except ConfigError:  # too large with both cases of each letter
        return ""
    hits = list(itertools.islice(_hits(texts, ranges, folded), _MAX_HITS))
    if hits:
        count = f"{len(hits):,}{' or more' if len(hits) == _MAX_HITS else ''} hit{'' if len(hits) == 1 else 's'}"
        path, first = hits[0]
        place = f"{shown_path(path)}:{first.number}"
        first_place = f", the first in {place}" if len(place) <= _MAX_PLACE_CHARS else ""
        return f"[Without regard to case, as with (?i), {count}{first_place}.]\n"
    words = _near_words(texts, ranges, pattern) if _WORD.fullmatch(pattern) else []
    return f"[Words that are near: {', '.join(words)}.]\n" if words else ""


def _near_words(texts: Texts, ranges: LineRanges, word: str) -> list[str]:
    """Return up to three words that are similar to *word*, out of those that share a half with it."""
    half = len(word) // 2
    begin, end = re.escape(word[:half]), re.escape(word[half:])
    expression = rf"\b{begin}[\w.-]{{0,60}}|[\w.-]{{0,60}}{end}\b"
    try:
        search = search_for(expression, Deadline(_MAX_LOOKING_S), literal=False, ignore_case=True)
    except ConfigError:  # RE2 may not know an escape of Python
        return []
    near: dict[str, None] = {}
    either = re.compile(expression, re.IGNORECASE | re.ASCII)
    for path, hit in itertools.islice(_hits(texts, ranges, search), _MAX_HITS + 1):
        line, _, _ = texts.read(path, hit.offset, _LINE_BYTES).partition(b"\n")
        near.update(dict.fromkeys(found[0].strip(".-") for found in either.finditer(line.decode("utf-8", "replace"))))
    return difflib.get_close_matches(word, near, _MAX_WORDS, 0.7)


def _hits(texts: Texts, ranges: LineRanges, search: Search) -> Iterator[tuple[str, LineHit]]:
    for path in ranges:
        for hit in hits_in_ranges(texts, path, ranges[path], search):
            yield path, hit
        if search.deadline.is_over():
            return


def _lines(texts: Texts, found: Found, context: int, max_lines: int, *, last: bool) -> tuple[list[Line], list[int]]:
    """Return up to *max_lines* lines with hits and their context, and after how many of them a block of them ends."""
    if not last:
        around = (lines_around(texts, name, hits[:max_lines], context) for name, hits in found.hits.items())
        return list(itertools.islice(itertools.chain.from_iterable(around), max_lines)), []
    lines: list[Line] = []
    ends: list[int] = []
    for name, hits in found.hits.items():
        for block in blocks_from_end(texts, name, hits[:max_lines], context):
            lines += block
            ends.append(len(lines))
            if len(lines) >= max_lines:
                return lines, ends
    return lines, ends


def _befores(lines: Sequence[Line]) -> Mapping[tuple[str, int, int], Line]:
    """Return the line that is shown before each of *lines*, by place."""
    return {(line.path, line.number, line.column): before for before, line in itertools.pairwise(lines)}


@dataclass(frozen=True, slots=True)
class _Page:
    """The text of an answer about *found*, out of *count* lines; *befores* has the line before each.

    The row *unread* says what could not be searched. Up to *listed_chars* characters name the files whose hits are cut.
    """

    found: Found
    suggestion: str
    unread: str
    count: int
    befores: Mapping[tuple[str, int, int], Line]
    has_context: bool
    listed_chars: int
    last: bool
    calls: Calls

    def frame(self) -> str:
        longest = Line(max(self.found.hits, key=len, default=""), sys.maxsize, sys.maxsize, "", is_hit=True)
        return self._heading([longest]) + self._footer([longest])

    def row(self, line: Line) -> str:
        mark = ":" if line.is_hit else "-"
        place = f"{line.number}{mark}{line.column}" if line.is_part else str(line.number)
        return f"{self._gap(line)}{place}{mark} {line.text}\n"

    def text(self, lines: Sequence[Line]) -> str:
        return self._heading(lines) + "".join(map(self.row, lines)) + self._footer(lines)

    def following(self, lines: Sequence[Line]) -> dict[str, Any]:
        shown = [line for line in lines if line.is_hit]
        is_at_end = self.found.is_all or self.found.stopped_in
        if is_at_end and len(shown) >= sum(map(len, self.found.hits.values())):
            return {}
        end = shown[-1] if shown else lines[-1]
        return {"after": f"{end.path}:{end.number}:{end.column}"}

    def _heading(self, lines: Sequence[Line]) -> str:
        found = self.found
        files = f"{found.files:,} file" + ("" if found.files == 1 else "s")
        if not lines:
            further, until = "further " if found.before else "", ""
            if found.stopped_in:
                until = f" until the time was up, in {shown_path(found.stopped_in)}; search fewer files at once"
            return f"[No {further}hit in {files}{until}.]\n{self.unread}{self.suggestion}"
        hits = f"{found.before + 1}-{found.before + sum(line.is_hit for line in lines)} of {found.total}"
        more = "" if found.is_all else " or more"
        order = ", the newest first" if self.last else ""
        return f"[Hits {hits}{more} in {files}{order}. {DATA_LABEL}]\n{self.unread}"

    def _gap(self, line: Line) -> str:
        """Return the rows between a line and the one before: the path, the call, or that there are lines between."""
        before = self.befores.get((line.path, line.number, line.column))
        owner = self.calls.owner(line.path, line.number)
        if before is None or before.path != line.path:
            return f"== {shown_path(line.path)}\n" + owner_row(owner)
        previous = self.calls.owner(before.path, before.number)
        if previous.is_call != owner.is_call or (owner.is_call and previous.key != owner.key):
            return owner_row(owner) or f"@ {owner.label or 'unknown'}\n"
        is_next = line.number in {before.number, before.number + 1}
        return "--\n" if self.has_context and not is_next else ""

    def _footer(self, lines: Sequence[Line]) -> str:
        parts = ""
        if any(line.is_part for line in lines):
            parts = "[line:column: marks a part of a long line.]\n"
        following = self.following(lines)
        if following:
            return f"{parts}{self._left(lines)}{cut_row(following)}"
        if self.found.stopped_in and lines:
            return f"{parts}[The time was up in {shown_path(self.found.stopped_in)}: search fewer files at once.]\n"
        if lines and len(lines) < self.count:
            return f"{parts}[Context is cut here. To see more, read from line {lines[-1].number + 1}.]\n"
        return parts

    def _left(self, lines: Sequence[Line]) -> str:
        """Say how many hits are left in which files; nothing if all are in the file that is shown last."""
        shown = collections.Counter(line.path for line in lines if line.is_hit)
        left = {path: len(hits) - shown[path] for path, hits in self.found.hits.items()}
        here = left.pop(lines[-1].path, 0)
        further = {path: count for path, count in left.items() if count}
        is_known = self.found.is_all or self.found.files == 1
        if not self.listed_chars or (is_known and not further):
            return ""
        ends = itertools.accumulate(map(len, further))
        named = [path for path, end in zip(further, ends, strict=True) if end <= self.listed_chars]
        parts = [f"{here:,} in this file"] if here else []
        parts += [f"{further[path]:,} in {shown_path(path)}" for path in named]
        if others := len(further) - len(named):
            hits = sum(further.values()) - sum(further[path] for path in named)
            parts.append(f"{hits:,} in {others:,} further file{'s' if others > 1 else ''}")
        more = "" if self.found.is_all else ", and those in what was not searched yet"
        return f"[Hits left: {', '.join(parts)}{more}. Give a file as path to see its hits.]\n"
