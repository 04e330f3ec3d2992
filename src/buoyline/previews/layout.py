"""The layout of a preview: which rows it shows, how much of each, and how to parse them.

The head of a text, with the facts about it, gets a quarter of the room and its tail a tenth; between them stand the
heaviest rows that fit, whole if possible: fewer rows rather than rows without their message. The token counts of single
rows nearly add up to the count of the whole; only the exact count of the whole decides.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from typing import Final, NamedTuple

from buoyline.previews.odd import MOST_KINDS
from buoyline.previews.source import ERROR, FAR_CHARS, Kind, Row, counted, fact, shortened, visible
from buoyline.tokens import TextCounter

_MARK = " <<< "
_NUMBERED: Final = re.compile(r"([1-9][0-9]{0,15})(?::([1-9][0-9]{0,15}))?: (.*)", re.DOTALL)
_CUT: Final = re.compile(r"(.*) \u2026(?:\+([1-9][0-9]{0,15}))?", re.DOTALL)
_LEAST_NAMED_CHARS = 1_000
_LEAST_CUT_CHARS = 12
# What stands before a message does not count to its width: blanks, times, levels, places.
_BEFORE: Final = re.compile(
    r"\s{0,40}(?:\[?\d{2,4}[-/:]\d\d[-/:]\d\d\S{0,20} |\[?[A-Z]{4,8}\]?:? |[^\s:]{1,60}:\d{1,6}(?::\d{1,6})?: ){0,3}"
)


class PreviewLine(NamedTuple):
    """A line of a preview, whole or in part.

    Attributes:
        number: 1-based.
        text: Without the colors of a terminal, with escapes for control characters.
        cut_chars: The number of characters missing after *text*. A row names it from 1,000 on; parsed from a shorter
            mark, it is 1.
        column: The character of the line at which *text* begins, 1-based.
        mark: Why the line is odd, or how many lines are like it; may be empty.
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


class PreviewBudget:
    """The token limit of a preview and the text before it, and the counter for it."""

    def __init__(self, max_tokens: int, counter: TextCounter, before: str = "") -> None:
        """Allow *max_tokens* for *before* and the preview together."""
        self.room_tokens = max_tokens - counter.count(before)
        self.counter = counter
        self._max_tokens = max_tokens
        self._before = before

    def fits(self, preview: str) -> bool:
        """Check whether *preview* keeps to the limit; counting stops there."""
        return not self.counter.exceeds(self._before + preview, self._max_tokens)

    def excess(self, preview: str) -> int:
        """Return by how many tokens *preview* exceeds the limit; at most 0 if it does not."""
        return self.counter.count(self._before + preview) - self._max_tokens

    def cost(self, row: object) -> int:
        """Return the tokens of a row alone, which is close to its share of a preview."""
        return max(1, self.counter.count(f"{row}\n"))


# The characters of a line: of an error, of another row, of the head and the tail.
_WIDTHS: Final = ((1_000, 400, 400), (400, 240, 160), (240, 160, 90), (160, 120, 70), (80, 70, 50))
_MUST_SHARE = 0.85
_HEAD_SHARE, _TAIL_SHARE = 0.25, 0.1
_FACT, _OUTER, _HEAD, _MORE_FACTS, _PARTS, _FILLING = 98.5, 94.5, 90.5, 73.0, 66.0, 60.0
_LEAST_NOTE_CHARS = 120
_TOKENS_PER_ROW, _MOST_CHARS_PER_TOKEN, _ESCAPE_CHARS = 4, 128, 6
_MOST_NUMBERS = 8


class _Shown(NamedTuple):
    """A row of the preview: a fact, or a line with its width."""

    weight: float
    cost: int
    text: str
    row: Row | None = None
    chars: int = 0


class Lines(NamedTuple):
    """The lines of a text that may be shown.

    Attributes:
        found: The lines that matter, in any order.
        head: The first lines.
        tail: The last lines, the last one first.
        total: The number of lines of the text; 0 if it is no text.
    """

    found: Sequence[Row] = ()
    head: Sequence[Row] = ()
    tail: Sequence[Row] = ()
    total: int = 0


def fit(kind: Kind, lines: Lines, budget: PreviewBudget) -> str:
    """Render facts, then lines in the order of the text, then the number of missing lines.

    Returns:
        ``""`` if not even a part of one line fits.
    """
    found = _merged(lines.found)
    shown, room_tokens = _shown(kind, found, lines, budget), budget.room_tokens
    while room_tokens > 0:
        taken = list[_Shown]()
        left = room_tokens
        for one in shown:
            if one.cost <= left:
                taken.append(one)
                left -= one.cost
        written = _joined(taken, found, lines.total)
        excess = budget.excess(written)
        if excess <= 0 and taken:
            return written
        room_tokens -= max(excess, 1)  # the marks and the last row depend on what is not shown
    return _part_of(lines.head[0], lines.total, budget) if lines.head else ""


def line_row(row: Row, chars: int = 1_000) -> PreviewLine:
    """Return *row* with about *chars* characters of its message."""
    text, rest = row.text, row.rest
    before = _BEFORE.match(text) if not row.column else None
    chars += before.end() if before is not None else 0
    if len(text) > chars + _LEAST_CUT_CHARS:
        rest += len(text) - chars
        text = text[:chars]
    marks = [visible(shortened(" ".join(row.note.split()), max(chars, _LEAST_NOTE_CHARS)))] if row.note else []
    if row.lines > 1:
        numbers = [f"{number}" for number in row.others]
        if len(numbers) > _MOST_NUMBERS:
            numbers = [*numbers[: _MOST_NUMBERS - 1], numbers[-1]]
        if len(numbers) < row.lines - 1:
            numbers.insert(-1, "...")
        marks.append(f"{row.lines - 1:,} more like it: {', '.join(numbers)}")
    return PreviewLine(row.number, visible(text), rest, row.column + 1, "; ".join(marks))


def _merged(rows: Iterable[Row]) -> list[Row]:
    """Return the heaviest row of each place, the heaviest first; it takes the note of another row there."""
    found: dict[tuple[int, int], Row] = {}
    for row in sorted(rows, key=lambda row: (-row.weight, row.number)):
        place = row.number, row.column // 400 if row.column >= FAR_CHARS else -1
        first = found.setdefault(place, row)
        if row is not first:
            errors = row if row.word and not first.word else first
            found[place] = errors._replace(weight=first.weight, note=first.note or row.note)
    return list(found.values())


def _shown(kind: Kind, rows: Sequence[Row], lines: Lines, budget: PreviewBudget) -> list[_Shown]:
    """Return all that may be shown, the heaviest first, at a width at which most of what matters fits."""
    room = budget.room_tokens
    rows = rows[: max(room // _TOKENS_PER_ROW, 2)]
    wanted = [row for row in rows if row.weight > _PARTS]
    ends = [*lines.head[:1], *lines.tail[:1]]
    widths = _WIDTHS[0]
    for widths in _WIDTHS:
        needed = chain(((row, widths[2]) for row in ends), ((row, widths[row.weight < ERROR]) for row in wanted))
        costs = accumulate(budget.cost(line_row(row, chars)) for row, chars in needed)
        if all(total <= _MUST_SHARE * room for total in costs):
            break
    facts = [(_MORE_FACTS - 1.5 * place if place else _FACT, text) for place, text in enumerate(kind.facts)]
    facts += [(_PARTS - place / 20, text) for place, text in enumerate(kind.parts)]
    shown = dict[tuple[int, int], _Shown]()

    def add(row: Row, weight: float, chars: int) -> int:
        """Show *row*, or the row at its place if that one is heavier, and return the cost."""
        known = shown.get((row.number, row.column))
        if known is None or known.weight < weight:
            text = str(line_row(row, chars))
            known = shown[row.number, row.column] = _Shown(weight, budget.cost(text), text, row, chars)
        return known.cost

    for row in rows:
        add(row, row.weight, widths[row.weight < ERROR])
    for side, share in ((lines.head, _HEAD_SHARE), (lines.tail, _TAIL_SHARE)):
        left = share * room - (sum(map(budget.cost, kind.facts)) if side is lines.head else 0)
        for place, row in enumerate(side):
            if left < -2 * room:
                break
            filling = _FILLING * (1 - place * (1 - share) / len(side) / 2)
            left -= add(row, _OUTER if not place else _HEAD if left > 0 else filling, widths[2])
    about = (_Shown(weight, budget.cost(fact(text)), fact(text)) for weight, text in facts)
    return sorted([*about, *shown.values()], key=lambda one: -one.weight)


def _joined(taken: Sequence[_Shown], rows: Sequence[Row], total: int) -> str:
    """Render the rows; of the errors of one form, the first one that is shown names those that are not."""
    shown = {one.row.number for one in taken if one.row is not None}
    hidden = [row for row in rows if row.word and row.number not in shown]
    forms = dict[bytes, list[Row]]()
    for row in hidden:
        forms.setdefault(row.form, []).append(row)
    lines = list[str]()
    placed = ((one.row.number, one.row.column, one) for one in taken if one.row is not None)
    for _, _, one in sorted(placed, key=lambda placed: placed[:2]):
        like = forms.pop(one.row.form, []) if one.row is not None and one.row.form else []
        if one.row is None or not like:
            lines.append(one.text)
            continue
        others = {number for row in like for number in (row.number, *row.others)}
        count = one.row.lines + sum(row.lines for row in like)
        row = one.row._replace(lines=count, others=tuple(sorted({*one.row.others, *others})))
        lines.append(str(line_row(row, one.chars)))
    unnamed = [row for like in forms.values() for row in like]
    last = [_last_row(total - len(shown), total, unnamed)] if total > len(shown) else []
    return "\n".join([*(one.text for one in taken if one.row is None), *lines, *last])


def _part_of(row: Row, total: int, budget: PreviewBudget) -> str:
    """Return as much of *row* as fits."""
    text = row.text[: budget.room_tokens * _MOST_CHARS_PER_TOKEN]
    for room_tokens in range(budget.room_tokens - 1, 0, -1):
        chars = len(budget.counter.head(visible(text), room_tokens)) // (1 if visible(text) == text else _ESCAPE_CHARS)
        line = PreviewLine(row.number, visible(text[:chars]), len(row.text) + row.rest - chars)
        written = "\n".join([str(line), *([_last_row(total - 1, total, ())] if total > 1 else [])])
        if chars and budget.fits(written):
            return written
    return ""


_MOST_WORDS, _MOST_CHARS, _MOST_WORD_CHARS = 4, 60, 40
_SPECIAL: Final = re.compile(r"[\\.^$*+?{}\[\]|()]")
_DIGITS: Final = re.compile(r"[0-9]+")
_PLACE: Final = re.compile(r":\d+:\d+: \S?$")
_BEHIND_PLACE: Final = re.compile(r"(?<=\d): .*")


def _last_row(lines: int, total: int, hidden: Sequence[Row]) -> str:
    """Return the row that counts the lines that are not shown, and gives a search for the errors among them.

    Returns:
        ``[982 of 990 lines not shown; 41 errors or warnings of 12 kinds: grep -nE 'error|--- FAIL']``; the pattern
        means the same in all engines.
    """
    rest = f"{lines:,} of {total:,} lines not shown"
    if not hidden:
        return f"[{rest}]"
    counts = Counter[str]()
    for row in hidden:
        counts[_pattern(row.word)] += row.lines
    patterns = list[str]()
    for word in sorted(counts, key=lambda word: (-counts[word], len(word), word)):
        if not any(pattern in word for pattern in patterns) and len("|".join([*patterns, word])) <= _MOST_CHARS:
            patterns = [*(pattern for pattern in patterns if word not in pattern), word][:_MOST_WORDS]
    missing = [word for word in counts if not any(pattern in word for pattern in patterns)]
    kinds = f" of {counted(len(hidden), 'kind')}" if len(hidden) > 1 else ""
    errors = counted(counts.total(), "error or warning", "errors or warnings")
    most = ", most by" if missing or len(hidden) >= MOST_KINDS else ":"
    return f"[{rest}; {errors}{kinds}{most} grep -nE '{'|'.join(patterns)}']"


def _pattern(word: str) -> str:
    """Return a pattern for *word* and all words that differ only in digits."""
    if word[:2].strip().upper() == "E":
        return "^E "
    if _PLACE.search(word):
        return ":[0-9]+:[0-9]+: "
    word = _BEHIND_PLACE.sub(":", word)[:_MOST_WORD_CHARS].strip()
    escaped = _SPECIAL.sub(r"\\\g<0>", word).replace("'", ".")
    return _DIGITS.sub("[0-9]+", escaped)
