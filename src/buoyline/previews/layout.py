"""The numbered lines of a preview: how they are written, and read back."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from buoyline.previews.findings import MOST_TROUBLES, MUST_SHOW, Digest, Finding, by_place, counted
from buoyline.previews.lines import MAX_SHOWN_CHARS, Excerpt, Place
from buoyline.tokens import TextCounter

_NUMBERED = re.compile(r"([1-9][0-9]{0,15})(?::([1-9][0-9]{0,15}))?: (.*)", re.DOTALL)
_MARK = " <<< "
_CUT = re.compile(r"(.*) \[\.\.\. ([1-9][0-9]{0,2}(?:,[0-9]{3}){0,5}) more characters\]", re.DOTALL)
_LEAST_CUT_CHARS = 30


@dataclass(frozen=True, slots=True)
class Shown:
    """A line of a preview, whole or in part.

    Attributes:
        number: Of the line in its file, 1-based.
        text: What is shown of it.
        cut_chars: How many characters of the line are left out behind *text*.
        column: The character of the line with which *text* begins, 1-based.
        mark: What is said of the line: what is odd about it, how many are like it; empty without.
    """

    number: int
    text: str
    cut_chars: int = 0
    column: int = 1
    mark: str = ""

    def __str__(self) -> str:
        """Return the row as the preview has it."""
        place = f"{self.number}" if self.column == 1 else f"{self.number}:{self.column}"
        rest = f" [... {self.cut_chars:,} more characters]" if self.cut_chars else ""
        return f"{place}: {self.text}{rest}{_MARK + self.mark if self.mark else ''}"

    def narrowed(self, chars: int) -> "Shown":
        """Return the row with at most *chars* of its text; a mark may be as long again."""
        cut = max(len(self.text) - chars, 0)
        mark = self.mark if len(self.mark) <= max(chars, _LEAST_CUT_CHARS) else self.mark[:chars] + "..."
        # What is left out must be longer than the words that say so.
        if cut <= _LEAST_CUT_CHARS:
            return replace(self, mark=mark)
        return replace(self, text=self.text[:chars], cut_chars=self.cut_chars + cut, mark=mark)


def shown(number: int, excerpt: Excerpt, mark: str = "") -> Shown:
    """Show a part of the line that has this *number*; see `Shown` for the *mark*."""
    rest = max(excerpt.chars - excerpt.first - len(excerpt.text), 0)
    return Shown(number, excerpt.text, rest, excerpt.first + 1, mark)


def shown_lines(body: str) -> list[Shown]:
    """Read a preview back.

    Args:
        body: What `buoyline.previews.preview` returned.

    Returns:
        Its numbered lines in order. A line that itself ends like one that was cut or marked cannot be told from it.
    """
    rows = (_NUMBERED.fullmatch(row) for row in body.split("\n"))
    return [_read_back(int(row[1]), int(row[2] or 1), row[3]) for row in rows if row is not None]


def _read_back(number: int, column: int, text: str) -> Shown:
    text, _, mark = text.partition(_MARK)
    cut = _CUT.fullmatch(text)
    if cut is None:
        return Shown(number, text, 0, column, mark)
    return Shown(number, cut[1], int(cut[2].replace(",", "")), column, mark)


# The row that says how many lines of trouble are not shown, and with what search all of them are found.


_MOST_WORDS = 6
_MOST_CHARS = 90
_MOST_WORD_CHARS = 40

_SPECIAL = re.compile(r"[\\.^$*+?{}\[\]|()]")
_DIGITS = re.compile(r"[0-9]+")


def others_row(hidden: Sequence[Finding]) -> str:
    """Say how many lines of trouble are not shown, and how to find them.

    Args:
        hidden: Lines of trouble of which no kind is shown.

    Returns:
        ``[41 more lines of trouble, of 12 kinds: grep -nE 'error|--- FAIL']``; the pattern, which means the same to all
        engines, finds each of them. ``""`` where there are none.
    """
    if not hidden:
        return ""
    counts = Counter[str]()
    for finding in hidden:
        counts[_pattern(finding.word)] += finding.count
    chosen = _chosen(counts)
    is_more = len(hidden) >= MOST_TROUBLES or any(not _is_found(word, chosen) for word in counts)
    kinds = f", of {counted(len(hidden), 'kind')}" if len(hidden) > 1 else ""
    lines = counted(counts.total(), "more line", "more lines")
    return f"[{lines} of trouble{kinds}; {'most by ' if is_more else ''}grep -nE '{'|'.join(chosen)}']"


def _chosen(counts: Counter[str]) -> list[str]:
    """Return the patterns that find the most, none of which finds what another does."""
    chosen, room = list[str](), _MOST_CHARS
    for word in sorted(counts, key=lambda word: (-counts[word], len(word), word)):
        if len(chosen) >= _MOST_WORDS or (chosen and len(word) >= room):
            break
        if not _is_found(word, chosen):
            chosen = [*(other for other in chosen if word not in other), word]
            room -= len(word) + 1
    return chosen


def _is_found(word: str, chosen: Sequence[str]) -> bool:
    return any(other in word for other in chosen)


def _pattern(word: str) -> str:
    """Return what finds *word* and all that differs from it in digits alone."""
    if word[:2].strip().upper() == "E":
        return "^E "
    escaped = _SPECIAL.sub(r"\\\g<0>", word[:_MOST_WORD_CHARS].strip())
    return _DIGITS.sub("[0-9]+", escaped)


# Which lines of a text are shown, and how much of each: everything that fits, the weightiest first.
#
# Pure and deterministic. The counts of single rows are close to what they take together; only the count of the whole
# is exact, so it has the last word.


_WIDTHS = (MAX_SHOWN_CHARS, 400, 240, 160, 120, 90, 70, 50)
_MUST_SHARE = 0.85
_OUTER = 96.0
_FILLING = 60.0
_WANTED = 64.0
_LEAST_WANTED_CHARS = 70
_FACT = 94.0
_MORE_FACTS = 73.0
_ALERT = 90.0
_HEAD_SHARE = 0.6
_LAST_CHARS = 100
_TOKENS_PER_ROW = 4


class Budget:
    """How many tokens a preview may take, and by whose count."""

    def __init__(self, max_tokens: int, counter: TextCounter, before: str = "") -> None:
        """Allow *max_tokens* for *before* and the preview behind it together."""
        self.room = max_tokens - counter.count(before)
        self.counter = counter
        self._max_tokens = max_tokens
        self._before = before

    def fits(self, preview: str) -> bool:
        """Tell whether *preview* keeps within the tokens; nothing is counted beyond them."""
        return not self.counter.exceeds(self._before + preview, self._max_tokens)

    def cost(self, row: object) -> int:
        """Return what a row takes on its own, which is close to what it takes among others."""
        return max(1, self.counter.count(f"{row}\n"))


class Choice(NamedTuple):
    """Lines that may be shown, and why.

    Attributes:
        facts: See `Digest`.
        alerts: See `Digest`.
        findings: One a place of a line, the weightiest first; head and tail of the text included.
        total: How many lines the text has.
        troubles: All lines of trouble, those that cannot be shown included.
    """

    facts: tuple[str, ...]
    alerts: tuple[str, ...]
    findings: tuple[Finding, ...]
    total: int
    troubles: tuple[Finding, ...] = ()

    @property
    def places(self) -> frozenset[Place]:
        """What is needed of the text to write them down."""
        return frozenset((finding.number, finding.column) for finding in self.findings)


def choice(digest: Digest, total: int, chars: int, max_tokens: int) -> Choice:
    """Choose which lines to look at: what was found, head and tail; no more than could have a few tokens each.

    Args:
        digest: What was found.
        total: How many lines the text has.
        chars: And how many characters.
        max_tokens: Of the preview.
    """
    most = max(max_tokens // _TOKENS_PER_ROW, 2)
    findings = by_place([*digest.findings, *_outer(total, chars, most)])
    troubles = tuple(finding for finding in findings if finding.word)
    return Choice(digest.facts, digest.alerts, tuple(findings[:most]), total, troubles)


def composed(chosen: Choice, lines: Mapping[Place, Excerpt], budget: Budget) -> str:
    """Write a preview.

    Args:
        chosen: What may be shown.
        lines: The lines that it names.
        budget: For the whole preview.

    Returns:
        The facts, then the lines in the order of the text, then what is left out; ``""`` where not even a part of
        one line fits.
    """
    rows = [*_fact_rows(chosen), *(_row(finding, excerpt) for finding, excerpt in _found(chosen.findings, lines))]
    rows.sort(key=lambda row: -row.weight)
    width = _width(rows, budget)
    rows = [row.narrowed(width) for row in rows]
    room = budget.room - budget.cost(_rest(0, chosen.total))
    taken = _fitting(rows, room, budget)
    hidden = _hidden(taken, chosen.troubles)
    if hidden:
        taken = _fitting(rows, room - budget.cost(hidden), budget)
    while taken:
        written = _written(taken, chosen)
        if budget.fits(written):
            return written
        taken.pop()
    return _beginning(lines.get((1, 0)), chosen.total, budget)


def whole(lines: Mapping[Place, Excerpt], total: int, budget: Budget) -> str:
    """Write down all lines of a text; ``""`` where they do not fit, or there are none."""
    if len(lines) < total:
        return ""
    written = "\n".join(str(shown(number, excerpt)) for (number, _), excerpt in lines.items())
    return written if budget.fits(written) else ""


@dataclass(frozen=True, slots=True)
class _Row:
    """A row that may be shown: a fact, or a line."""

    weight: float
    fact: str = ""
    line: Shown | None = None

    def __str__(self) -> str:
        return self.fact if self.line is None else str(self.line)

    def narrowed(self, chars: int) -> "_Row":
        if self.line is None:
            room = max(2 * chars, _WIDTHS[-3])
            return self if len(self.fact) <= room else _Row(self.weight, f"{self.fact[:room]}...")
        return _Row(self.weight, line=self.line.narrowed(chars))


def _outer(total: int, chars: int, most: int) -> Iterator[Finding]:
    """Yield head and tail, the outermost lines as what must be shown, the others as what fills the room."""
    for number in range(1, min(most, total) + 1):
        yield Finding(number, _OUTER if number == 1 else _FILLING * (1 - number * (1 - _HEAD_SHARE) / most))
    if total == 1 and chars > MAX_SHOWN_CHARS:
        yield Finding(1, _OUTER, max(chars - _LAST_CHARS, 0))
    for place in range(min(most, total - 1)):
        yield Finding(total - place, _OUTER if place == 0 else _FILLING * (1 - place * _HEAD_SHARE / most))


def _fact_rows(chosen: Choice) -> Iterator[_Row]:
    for alert in chosen.alerts:
        yield _Row(_ALERT, alert)
    for place, fact in enumerate(chosen.facts):
        # What the text is as a whole comes first; what follows is worth less than a line that is odd.
        yield _Row(_FACT if place == 0 else _MORE_FACTS - 6 * place, fact)


def _found(findings: Sequence[Finding], lines: Mapping[Place, Excerpt]) -> Iterator[tuple[Finding, Excerpt]]:
    """Yield the findings whose place exists: what is far behind in a line of megabytes cannot be shown."""
    for finding in findings:
        excerpt = lines.get((finding.number, finding.column))
        if excerpt is not None and (excerpt.text or not finding.column):
            yield finding, excerpt


def _row(finding: Finding, excerpt: Excerpt) -> _Row:
    marks = [finding.note] if finding.note else []
    if finding.count > 1:
        like = f"{finding.count - 1:,} more like it"
        numbers = list(map(str, finding.others))
        if len(numbers) < finding.count - 1:
            numbers.insert(-1, "...")
        marks.append(f"{like}: {', '.join(numbers)}" if finding.others else like)
    row = shown(finding.number, excerpt, "; ".join(marks))
    return _Row(finding.weight, line=row)


def _width(rows: Sequence[_Row], budget: Budget) -> int:
    """Return how much of a line to show, so that what must be shown has room, and what is wanted too if it can be."""
    wanted = [row for row in rows if row.weight > _WANTED]
    musts = [row for row in wanted if row.weight >= MUST_SHOW]
    for width in _WIDTHS:
        if _cost(wanted if width >= _LEAST_WANTED_CHARS else musts, width, budget) <= _MUST_SHARE * budget.room:
            return width
    return _WIDTHS[-1]


def _cost(rows: Sequence[_Row], width: int, budget: Budget) -> int:
    return sum(budget.cost(row.narrowed(width)) for row in rows)


def _fitting(rows: Sequence[_Row], room: int, budget: Budget) -> list[_Row]:
    """Take the weightiest rows that fit; of head and tail no more once one does not, lest they have holes."""
    taken: list[_Row] = []
    for row in rows:
        cost = budget.cost(row)
        if cost <= room:
            taken.append(row)
            room -= cost
        elif row.weight <= _FILLING:
            break
    return taken


def _hidden(taken: Sequence[_Row], troubles: Sequence[Finding]) -> str:
    """Say of how many lines of trouble no kind is shown."""
    shown_numbers = {row.line.number for row in taken if row.line is not None}
    return others_row([finding for finding in troubles if finding.number not in shown_numbers])


def _written(taken: Sequence[_Row], chosen: Choice) -> str:
    facts = [row.fact for row in taken if row.line is None]
    lines = sorted((row.line for row in taken if row.line is not None), key=lambda line: (line.number, line.column))
    shown_count = len({line.number for line in lines})
    hidden = _hidden(taken, chosen.troubles)
    rest = [_rest(shown_count, chosen.total)] if shown_count < chosen.total else []
    return "\n".join([*facts, *map(str, lines), *([hidden] if hidden else []), *rest])


def _rest(shown_count: int, total: int) -> str:
    return f"[{total - shown_count:,} of {total:,} lines not shown: those between the numbers]"


def _beginning(line: Excerpt | None, total: int, budget: Budget) -> str:
    """Return as much of the first line as fits beside its number."""
    if line is None:
        return ""
    for room in range(budget.room - 1, 0, -1):
        kept = budget.counter.head(line.text, room)
        if not kept:
            break
        alone = Choice((), (), (), total)
        written = _written([_Row(0.0, line=Shown(1, kept, line.chars - len(kept)))], alone)
        if budget.fits(written):
            return written
    return ""
