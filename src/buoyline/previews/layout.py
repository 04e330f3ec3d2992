"""The layout of a preview: which lines it shows, how much of each, and how to parse its rows.

A preview takes everything that fits, by weight. The token counts of single rows nearly add up to the count of the
whole; only the exact count of the whole decides.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain
from typing import NamedTuple

from buoyline.previews.digest import (
    MAX_ERROR_KINDS,
    MUST_SHOW_WEIGHT,
    Digest,
    Finding,
    by_place,
    counted,
    shortened_end,
    without_color,
)
from buoyline.previews.lines import MAX_SHOWN_CHARS, LineExcerpt, LinePlace
from buoyline.previews.source import visible
from buoyline.tokens import TextCounter

_NUMBERED = re.compile(r"([1-9][0-9]{0,15})(?::([1-9][0-9]{0,15}))?: (.*)", re.DOTALL)
_MARK = " <<< "
_CUT = re.compile(r"(.*) \u2026(?:\+([1-9][0-9]{0,15}))?", re.DOTALL)
_LEAST_NAMED_CHARS = 1_000
_LEAST_CUT_CHARS = 12
# Blanks take hardly a token, and the place of a message says little without the message.
_BEFORE = re.compile(r"\s{0,40}(?:[^\s:]{1,60}:\d{1,6}:\d{1,6}: )?")


class PreviewLine(NamedTuple):
    """A line of a preview, whole or in part.

    Attributes:
        number: 1-based.
        text: Without the colors of a terminal.
        cut_chars: The number of characters missing after *text*. A row names it from 1,000 on; parsed from a shorter
            mark, it is 1.
        column: The character of the line at which *text* begins, 1-based.
        mark: Why the line is an outlier, or how many lines are like it; may be empty.
    """

    number: int
    text: str
    cut_chars: int = 0
    column: int = 1
    mark: str = ""

    def __str__(self) -> str:
        """Return the row of the preview."""
        place = f"{self.number}" if self.column == 1 else f"{self.number}:{self.column}"
        count = f"+{self.cut_chars}" if self.cut_chars >= _LEAST_NAMED_CHARS else ""
        rest = f" \u2026{count}" if self.cut_chars else ""
        return f"{place}: {self.text}{rest}{_MARK + self.mark if self.mark else ''}"

    def narrowed(self, chars: int) -> "PreviewLine":
        """Return the row with at most *chars* of its text; the mark may be longer."""
        if not self.mark and len(self.text) <= chars + _LEAST_CUT_CHARS:
            return self
        place = _BEFORE.match(self.text)
        chars += place.end() if place is not None else 0
        cut = max(len(self.text) - chars, 0)
        room = max(chars * 3 // 2, _LEAST_MARK_CHARS)
        mark = shortened_end(self.mark, room)
        # A cut must save more than its own mark.
        if cut <= _LEAST_CUT_CHARS:
            return self._replace(mark=mark)
        return PreviewLine(self.number, self.text[:chars], self.cut_chars + cut, self.column, mark)


def preview_line(number: int, excerpt: LineExcerpt, mark: str = "") -> PreviewLine:
    """Return a part of line *number* as a row."""
    rest = max(excerpt.chars - excerpt.first - len(excerpt.text), 0)
    return PreviewLine(number, without_color(excerpt.text), rest, excerpt.first + 1, mark)


def parse_preview(body: str) -> list[PreviewLine]:
    """Parse the numbered lines of a preview, in order.

    A line whose own text ends like a cut or marked line is read as one.
    """
    parsed: list[PreviewLine] = []
    for row in filter(None, map(_NUMBERED.fullmatch, body.split("\n"))):
        text, _, mark = row[3].partition(_MARK)
        cut = _CUT.fullmatch(text)
        shown, cut_chars = (text, 0) if cut is None else (cut[1], int(cut[2] or "1"))
        parsed.append(PreviewLine(int(row[1]), shown, cut_chars, int(row[2] or 1), mark))
    return parsed


_MOST_WORDS = 4
_MOST_CHARS = 60
_MOST_WORD_CHARS = 40

_SPECIAL = re.compile(r"[\\.^$*+?{}\[\]|()]")
_DIGITS = re.compile(r"[0-9]+")
_PLACE = re.compile(r":\d+:\d+: $")


def _last_row(lines: int, total: int, hidden: Sequence[Finding]) -> str:
    """Return the row that counts the lines that are not shown, and gives a search for the errors among them.

    Returns:
        ``[982 of 990 lines not shown; 41 errors or warnings of 12 kinds: grep -nE 'error|--- FAIL']``; the pattern
        means the same in all engines.
    """
    rest = f"{lines:,} of {total:,} lines not shown"
    if not hidden:
        return f"[{rest}]"
    counts = Counter[str]()
    for finding in hidden:
        counts[_pattern(finding.word)] += finding.lines
    patterns = _chosen_patterns(counts)
    found = [word for word in counts if any(pattern in word for pattern in patterns)]
    is_more = len(hidden) >= MAX_ERROR_KINDS or len(found) < len(counts)
    kinds = f" of {counted(len(hidden), 'kind')}" if len(hidden) > 1 else ""
    errors = counted(counts.total(), "error or warning", "errors or warnings")
    return f"[{rest}; {errors}{kinds}{', most by' if is_more else ':'} grep -nE '{'|'.join(patterns)}']"


def _chosen_patterns(counts: Counter[str]) -> list[str]:
    """Return the patterns with the most matches; no pattern contains another."""
    patterns, room_chars = list[str](), _MOST_CHARS
    for word in sorted(counts, key=lambda word: (-counts[word], len(word), word)):
        if len(patterns) >= _MOST_WORDS or (patterns and len(word) >= room_chars):
            break
        if not any(pattern in word for pattern in patterns):
            patterns = [*(other for other in patterns if word not in other), word]
            room_chars -= len(word) + 1
    return patterns


def _pattern(word: str) -> str:
    """Return a pattern for *word* and all words that differ only in digits."""
    if word[:2].strip().upper() == "E":
        return "^E "
    if _PLACE.search(word):
        return ":[0-9]+:[0-9]+: "
    escaped = _SPECIAL.sub(r"\\\g<0>", word[:_MOST_WORD_CHARS].strip())
    return _DIGITS.sub("[0-9]+", escaped)


# The characters of a line by its weight: of the worst, of those worth showing, of the first and last lines.
_WIDTHS = (
    (MAX_SHOWN_CHARS, 400, 160),
    (400, 240, 120),
    (240, 160, 90),
    (200, 120, 60),
    (200, 80, 40),
    (140, 70, 40),
    (100, 60, 40),
    (70, 50, 40),
    (50, 40, 40),
)
_LEAST_WIDTHS = (40, 40, 40)
_LEAST_WANTED = 5
_LEAST_MARK_CHARS = 80
_LEAST_FACT_CHARS = 160
_FATAL = 99.0
_LEAST_FATAL_CHARS = 80
_MUST_SHARE = 0.85
_OUTER = 90.5
_FILLING = 60.0
_WANTED = 66.0
_FACT = 94.0
_MORE_FACTS = 73.0
_PARTS = 66.0
_ALERT = 90.0
_HEAD_SHARE = 0.6
_LAST_CHARS = 100
_TOKENS_PER_ROW = 4
_MOST_CHARS_PER_TOKEN = 6
_MOST_NUMBERS = 8
_LEAST_SPAN = 3


class PreviewBudget:
    """The token limit of a preview, and the counter for it."""

    def __init__(self, max_tokens: int, counter: TextCounter, before: str = "") -> None:
        """Allow *max_tokens* for *before* and the preview together."""
        self.room_tokens = max_tokens - counter.count(before)
        self.counter = counter
        self._max_tokens = max_tokens
        self._before = before
        self._costs: dict[str, int] = {}

    def fits(self, preview: str) -> bool:
        """Check whether *preview* keeps to the limit; counting stops there."""
        return not self.counter.exceeds(self._before + preview, self._max_tokens)

    def cost(self, row: object) -> int:
        """Return the tokens of a row alone, which is close to its share of a preview."""
        text = f"{row}\n"
        if text not in self._costs:
            self._costs[text] = max(1, self.counter.count(text))
        return self._costs[text]


class _PreviewRow(NamedTuple):
    """A row that may be shown: a fact or a line."""

    weight: float
    fact: str = ""
    line: PreviewLine | None = None

    def __str__(self) -> str:
        return self.fact if self.line is None else str(self.line)

    def narrowed(self, widths: tuple[int, int, int]) -> "_PreviewRow":
        is_filling = self.weight <= _FILLING or self.weight == _OUTER
        chars = widths[2] if is_filling else widths[0] if self.weight >= MUST_SHOW_WEIGHT else widths[1]
        chars = max(chars, _LEAST_FATAL_CHARS) if self.weight >= _FATAL else chars
        if self.line is None:
            return self._replace(fact=shortened_end(self.fact, max(4 * chars, _LEAST_FACT_CHARS)))
        line = self.line.narrowed(chars)
        return self if line is self.line else self._replace(line=line)


class PreviewPlan(NamedTuple):
    """The rows that a preview may show; of the findings, the heaviest first, at most the first *most* are shown.

    *grouped* has one finding of each form, for a preview that has no room for all error lines.
    """

    facts: Sequence[_PreviewRow]
    findings: Sequence[Finding]
    grouped: Sequence[Finding]
    total: int
    most: int
    is_free: bool

    @property
    def places(self) -> frozenset[LinePlace]:
        """The places in the text that the plan needs."""
        wanted = chain(self.findings[: self.most], self.grouped[: self.most])
        return frozenset((finding.number, finding.column) for finding in wanted)


def plan_preview(digest: Digest, total: int, chars: int, max_tokens: int) -> PreviewPlan:
    """Choose the lines that may be shown: findings, first and last lines, at most one per four tokens.

    The text has *total* lines and *chars* characters.
    """
    most = max(max_tokens // _TOKENS_PER_ROW, 2)
    # The first fact describes the whole text; the others weigh less than an outlier.
    facts = [
        _PreviewRow(_MORE_FACTS - 1.5 * place if place else _FACT, fact) for place, fact in enumerate(digest.facts)
    ]
    facts += [_PreviewRow(_ALERT, alert) for alert in digest.alerts]
    facts += [_PreviewRow(_PARTS - 5 * place / most, part) for place, part in enumerate(digest.parts[:most])]
    # The first and the last line must be shown, their neighbors fill the remaining room.
    head = [
        Finding(number, _FILLING * (1 - number * (1 - _HEAD_SHARE) / most)) for number in range(2, min(most, total) + 1)
    ]
    tail = [
        Finding(total - place, _OUTER if place == 0 else _FILLING * (1 - place * _HEAD_SHARE / most))
        for place in range(min(most, total - 1))
    ]
    outer = [Finding(1, _OUTER), *head] if total else []
    if total == 1 and chars > MAX_SHOWN_CHARS:
        outer.append(Finding(1, _OUTER, max(chars - _LAST_CHARS, 0)))
    findings = by_place([*digest.findings, *outer, *tail])
    return PreviewPlan(facts, findings, _grouped(findings), total, most, digest.is_free)


def _grouped(findings: Sequence[Finding]) -> list[Finding]:
    """Return *findings* with one of each form, which names the others."""
    groups: dict[bytes, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.form, []).append(finding)
    grouped: list[Finding] = []
    for finding in findings:
        alike = groups[finding.form]
        if not finding.form:
            grouped.append(finding)
        elif finding is alike[0]:
            # The lines of the same kind differ in digits only, so a search for this one finds them.
            numbers = sorted(other.number for other in alike[1:])
            if len(numbers) > _MOST_NUMBERS:
                numbers = [*numbers[: _MOST_NUMBERS - 1], numbers[-1]]
            grouped.append(finding._replace(lines=sum(other.lines for other in alike), similar=tuple(numbers)))
    return grouped


def render_preview(plan: PreviewPlan, lines: Mapping[LinePlace, LineExcerpt], budget: PreviewBudget) -> str:
    """Render facts, then lines in the order of the text, then the number of missing lines.

    Returns:
        ``""`` if not even a part of one line fits.
    """
    findings = plan.findings
    taken = _taken_rows(plan, findings, lines, budget, _WIDTHS[-1])
    if not plan.is_free and _hidden(taken, findings):
        findings = plan.grouped
        taken = _taken_rows(plan, findings, lines, budget, _LEAST_WIDTHS)
    while taken:
        written = _joined_rows(taken, plan.total, findings)
        if budget.fits(written):
            return written
        taken.pop()
    first = lines.get((1, 0))
    if first is None:
        return ""
    for room_tokens in range(budget.room_tokens - 1, 0, -1):
        kept = budget.counter.head(first.text, room_tokens)
        if not kept:
            break
        row = _PreviewRow(0.0, line=PreviewLine(1, kept, first.chars - len(kept)))
        written = _joined_rows([row], plan.total, ())
        if budget.fits(written):
            return written
    return ""


def render_whole(lines: Mapping[LinePlace, LineExcerpt], total: int, budget: PreviewBudget) -> str:
    """Render all lines of a text; ``""`` if they do not fit or there are none."""
    if len(lines) < total:
        return ""
    written = "\n".join(str(preview_line(number, excerpt)) for (number, _), excerpt in lines.items())
    return written if budget.fits(written) else ""


def _taken_rows(
    plan: PreviewPlan,
    findings: Sequence[Finding],
    lines: Mapping[LinePlace, LineExcerpt],
    budget: PreviewBudget,
    least: tuple[int, int, int],
) -> list[_PreviewRow]:
    """Return the rows that fit, the heaviest first; *least* are the widths if there is little room."""
    rows = [*plan.facts]
    for finding in findings[: plan.most]:
        excerpt = lines.get((finding.number, finding.column))
        # A place megabytes into a line was not read, so it cannot be shown.
        if excerpt is not None and (excerpt.text or not finding.column):
            rows.append(_row(finding, excerpt))
    rows.sort(key=lambda row: -row.weight)
    widths = _widths(rows, budget, least)
    taken = _rows_that_fit(rows, widths, budget, _last_row(plan.total, plan.total, ()))
    if hidden := _hidden(taken, findings):
        taken = _rows_that_fit(rows, widths, budget, _last_row(plan.total, plan.total, hidden))
    return taken


def _row(finding: Finding, excerpt: LineExcerpt) -> _PreviewRow:
    marks = [visible(" ".join(finding.note.split()))] if finding.note else []
    if finding.lines > 1:
        like = f"{finding.lines - 1:,} more like it"
        numbers = list(map(str, finding.similar))
        if len(numbers) < finding.lines - 1:
            numbers.insert(-1 if len(numbers) >= _LEAST_SPAN else len(numbers), "...")
        marks.append(f"{like}: {', '.join(numbers)}" if finding.similar else f"\u00d7{finding.lines:,}")
    return _PreviewRow(finding.weight, line=preview_line(finding.number, excerpt, "; ".join(marks)))


def _widths(rows: Sequence[_PreviewRow], budget: PreviewBudget, least: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return the widths at which the lines that must be shown fit, and if possible the wanted ones; else *least*."""
    wanted = [row for row in rows if row.weight > _WANTED]
    musts = [row for row in wanted if row.weight >= MUST_SHOW_WEIGHT]
    for place, widths in enumerate(_WIDTHS):
        needed = wanted if place <= _LEAST_WANTED else musts
        # Counting takes longer than a bound by the characters.
        chars = (len(str(row.narrowed(widths))) for row in needed)
        costs = (budget.cost(row.narrowed(widths)) for row in needed)
        if not (
            _exceed(chars, _MOST_CHARS_PER_TOKEN * budget.room_tokens)
            or _exceed(costs, _MUST_SHARE * budget.room_tokens)
        ):
            return widths
    return least


def _exceed(amounts: Iterable[int], most: float) -> bool:
    """Check whether the sum is above *most*; adding stops there."""
    return any(total > most for total in accumulate(amounts, initial=0))


def _rows_that_fit(
    rows: Sequence[_PreviewRow], widths: tuple[int, int, int], budget: PreviewBudget, last: str
) -> list[_PreviewRow]:
    """Take the heaviest rows that fit beside *last*; after a first or last line that does not fit, none: no gaps."""
    taken: list[_PreviewRow] = []
    room_tokens = budget.room_tokens - budget.cost(last)
    for wide in rows:
        row = wide.narrowed(widths)
        cost = budget.cost(row)
        if cost <= room_tokens:
            taken.append(row)
            room_tokens -= cost
        elif row.weight <= _FILLING:
            break
    return taken


def _hidden(taken: Sequence[_PreviewRow], findings: Sequence[Finding]) -> list[Finding]:
    """Return the error lines of which no kind is shown."""
    shown_numbers = {row.line.number for row in taken if row.line is not None}
    return [finding for finding in findings if finding.word and finding.number not in shown_numbers]


def _joined_rows(taken: Sequence[_PreviewRow], total: int, findings: Sequence[Finding]) -> str:
    facts = [row.fact for row in taken if row.line is None]
    lines = sorted((row.line for row in taken if row.line is not None), key=lambda line: (line.number, line.column))
    rest_count = total - len({line.number for line in lines})
    rest = [_last_row(rest_count, total, _hidden(taken, findings))] if rest_count else []
    return "\n".join([*facts, *map(str, lines), *rest])
