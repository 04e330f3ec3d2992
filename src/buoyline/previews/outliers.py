"""Outliers: lines, and values of a column, that differ from all others of their text.

Three searches go from regular texts to free ones. In a text of few forms, such as a log or a listing, a line of another
form is an outlier. Among lines of one form, a value that differs in its column is. In a text without forms, such as a
program or prose, the rarest lines are.

A column holds the values at the same place of many records: a field of JSON objects, a column of a table, the n-th
token of lines of one form. All searches are pure, and linear in the number of values except for one sort.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import nlargest, nsmallest
from itertools import pairwise
from math import fsum
from typing import NamedTuple, TypeAlias, cast

from buoyline.previews.digest import OUTLIER_NOTE, Finding
from buoyline.previews.source import CONTINUED

_LOOKED_AT_CHARS = 200
_BEGINNING_CHARS = 6
# Many lines per call: 0.1 s for 40,000 lines instead of half a second. A single call would hold the interpreter as
# long.
_LINES_AT_ONCE = 500
_LEAST_WORDS = 3
_MOST_FINDINGS = 5
_LEAST_SCORE = 2.4
_WEIGHT = 74.0
_RARE_SHARE = 400

# A longer run of letters is data: base64, a key, or a name made of many words.
_WORD = re.compile(r"(?<![^\W\d_])[^\W\d_]{3,20}(?![^\W\d_])")
_LETTERS = re.compile(r"[^\W\d_]+")
_DIGITS = re.compile(r"\d+")
_SIGNS = re.compile(r"[^\w\s]+")


def forms_of(lines: Sequence[str]) -> list[str]:
    """Return the form of each line: words become ``a``, numbers become ``0``.

    >>> forms_of(["user-17 at 10.0.0.1"])
    ['a-0 a 0.0.0.0']
    """
    forms: list[str] = []
    for start in range(0, len(lines), _LINES_AT_ONCE):
        text = "\n".join([line[:_LOOKED_AT_CHARS] for line in lines[start : start + _LINES_AT_ONCE]])
        forms += _DIGITS.sub("0", _LETTERS.sub("a", text)).split("\n")
    return forms


def rare_lines(lines: Sequence[str], forms: Sequence[str]) -> list[Finding]:
    """Find the lines with the rarest words, form, punctuation and beginning.

    Each of the four may be chance, and rare words often are in prose; a line from another text has them all. Measured:
    in 37 recorded outputs of all kinds, a line planted anywhere was among the first five in nine of ten copies.

    Args:
        lines: In order, from line 1 on.
        forms: The form of each line.

    Returns:
        At most five, the rarest first.
    """
    numbers = [number for number, line in enumerate(lines, 1) if line.strip() and not line.startswith(CONTINUED)]
    words = _Features(
        frozenset(map(str.lower, _WORD.findall(lines[number - 1][:_LOOKED_AT_CHARS]))) for number in numbers
    )
    signs = _Features(frozenset(_SIGNS.findall(lines[number - 1][:_LOOKED_AT_CHARS])) for number in numbers)
    own_forms = [forms[number - 1] for number in numbers]
    beginnings = [form[:_BEGINNING_CHARS] for form in own_forms]
    form_counts, beginning_counts = Counter(own_forms), Counter(beginnings)
    rare = max(2, len(numbers) // _RARE_SHARE)
    scores = [
        2 * words.rarity(place)
        + 0.08 * min(words.own(place), 6)
        + 0.5 * (signs.own(place) > 0)
        + (form_counts[own_forms[place]] <= 2)  # noqa: PLR2004 - twice may be chance
        + 0.6 * (beginning_counts[beginnings[place]] <= rare)
        for place in range(len(numbers))
    ]
    best = nlargest(_MOST_FINDINGS, range(len(numbers)), key=lambda place: (scores[place], -place))
    return [
        Finding(numbers[place], _WEIGHT - 3 * rank, note=OUTLIER_NOTE)
        for rank, place in enumerate(best)
        if scores[place] >= _LEAST_SCORE
    ]


class _Features:
    """The features of each line, and how many lines have each feature."""

    def __init__(self, held: Iterable[frozenset[str]]) -> None:
        self._held = list(held)
        counts = Counter(feature for features in self._held for feature in features)
        self._own = {feature for feature, count in counts.items() if count == 1}
        self._shares = {feature: 1 / count for feature, count in counts.items()}

    def own(self, place: int) -> int:
        """Count the features that only this line has."""
        return len(self._own & self._held[place])

    def rarity(self, place: int) -> float:
        """Return 1 if no other line shares a feature with this one, near 0 if many lines have all of them."""
        features = self._held[place]
        # Exactly rounded: the order of a set, and so a plain sum, depends on the hash seed of the process.
        return fsum(map(self._shares.__getitem__, features)) / max(len(features), _LEAST_WORDS)


class Container:
    """Represents an object or an array in a column."""


CONTAINER = Container()

ColumnValue: TypeAlias = str | float | bool | Container | None

_LEAST = 8
_MOST_PER_COLUMN = 3
_SEQUENCE_WEIGHT = 80.0
_SHOWN_CHARS = 40
_FEW_KINDS = 12

# This share of the values must be alike before one counts as an outlier: free text has no outliers.
_MOST = 0.97
_PREFIX_CHARS = 6
_FAR = 10.0

# One odd value among eight is often chance, among fifty hardly ever.
_SURE = 50
_DOUBT = 16.0

_SHAPED_CHARS = 80


class Outlier(NamedTuple):
    """A value that differs from its column, with a reason such as ``"text, 1,706 others are numbers"``."""

    place: int
    weight: float
    reason: str


def column_outliers(values: Sequence[ColumnValue]) -> list[Outlier]:
    """Find the values that differ from the others in type, size or form.

    Args:
        values: The values of one column, in order.

    Returns:
        At most three of each kind, the most striking first; none among fewer than eight values.
    """
    if len(values) < _LEAST:
        return []
    kinds = defaultdict[str, list[int]](list)
    for index, value in enumerate(values):
        kinds[_kind(value)].append(index)
    main = max(kinds, key=lambda kind: len(kinds[kind]))
    found = list(_odd_kinds(kinds, main))
    indexes = kinds[main]
    if main == "number":
        found += _placed(number_outliers([cast("float", values[index]) for index in indexes]), indexes)
    elif main == "text":
        found += _placed(text_outliers([cast("str", values[index]) for index in indexes]), indexes)
    doubt = _DOUBT * max(0.0, 1 - len(values) / _SURE)
    found = [Outlier(outlier.place, outlier.weight - doubt, outlier.reason) for outlier in found]
    return sorted(found, key=lambda outlier: (-outlier.weight, outlier.place))


def number_outliers(numbers: Sequence[float]) -> list[Outlier]:
    """Find the numbers that lie apart from all others.

    A number lies apart if the gap to the next one is larger than the span of the others or ten times their size. So
    does the only negative number, and the only number out of sequence.
    """
    if len(numbers) < _LEAST:
        return []
    # No sort: that is a single call, which holds the interpreter for as long as it takes.
    largest = nlargest(_MOST_PER_COLUMN + 2, range(len(numbers)), key=numbers.__getitem__)
    smallest = nsmallest(_MOST_PER_COLUMN + 2, range(len(numbers)), key=numbers.__getitem__)
    falling, rising = [numbers[index] for index in largest], [numbers[index] for index in smallest]
    high = _separate_count(falling, rising[0], len(numbers))
    low = _separate_count([-number for number in rising], -falling[0], len(numbers))
    span = f"others {_number(rising[low])} to {_number(falling[high])}"
    found = [Outlier(index, 92.0, span) for index in (*smallest[:low], *largest[:high])]
    if not found and rising[0] < 0 <= rising[1] and len(numbers) >= 2 * _LEAST:
        found.append(Outlier(smallest[0], 82.0, f"others {_number(rising[1])} to {_number(falling[0])}"))
    return found or _out_of_sequence(numbers)


def text_outliers(texts: Sequence[str]) -> list[Outlier]:
    """Find the texts whose form or value is unique although all others follow a few."""
    shape_of = {text: shape(text) for text in set(texts)}
    shapes = [shape_of[text] for text in texts]
    found = _odd_values(texts) or _odd_beginnings(texts) or _odd_numbers(texts, shapes) or _odd_shapes(texts, shapes)
    longest, next_longest = nlargest(2, range(len(texts)), key=lambda index: len(texts[index]))
    most, others = len(texts[longest]), len(texts[next_longest])
    if not found and most > max(_FAR / 2 * others, 2 * _SHAPED_CHARS):
        found = [Outlier(longest, 78.0, f"{most:,} characters, others at most {others:,}")]
    return found


def shape(text: str) -> str:
    """Return the form of *text*: words become ``a``, numbers become ``0``.

    >>> shape("user-17 at 10.0.0.1")
    'a-0 a 0.0.0.0'
    """
    return _DIGITS.sub("0", _LETTERS.sub("a", text[:_SHAPED_CHARS]))


def _kind(value: ColumnValue) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case str():
            return "text" if value else "empty"
        case Container():
            return "object or array"
        case _:
            return "number"


def _odd_kinds(kinds: dict[str, list[int]], main: str) -> Iterator[Outlier]:
    total = sum(map(len, kinds.values()))
    for kind, indexes in kinds.items():
        if kind != main and len(indexes) <= max(1, min(_MOST_PER_COLUMN, total // 50)):
            weight = 88.0 if kind in {"null", "empty"} else 95.0
            for index in indexes:
                yield Outlier(index, weight, f"{kind}, {len(kinds[main]):,} others are {_plural(main)}")


def _plural(kind: str) -> str:
    return {"number": "numbers", "text": "texts", "object or array": "objects or arrays"}.get(kind, kind)


def _separate_count(extremes: Sequence[float], other_end: float, total: int) -> int:
    """Return how many of *extremes*, the largest of *total* numbers, lie apart; 0 to 3."""
    most = max(1, min(_MOST_PER_COLUMN, total // 50))
    for count, (first, last) in enumerate(pairwise(extremes[: most + 1]), 1):
        gap, span = first - last, last - other_end
        # If all others are equal, a count that differs by one is not an outlier.
        if gap > max(span, abs(last) / 2, 1.0) or (last > 1 and first > _FAR * last):
            return count
    return 0


def _out_of_sequence(numbers: Sequence[float]) -> list[Outlier]:
    steps = [after - before for before, after in pairwise(numbers)]
    falls = [place for place, step in enumerate(steps, 1) if step < 0]
    if len(numbers) < 5 * _LEAST or not falls or len(falls) > 2:  # noqa: PLR2004 - one value out of sequence makes two falls at most
        return []
    # A fall follows a number that is too large, a rise one that is too small: the outlier is the one without which all
    # rise.
    place = falls[0]
    is_low = place < 2 or numbers[place] < numbers[place - 2]  # noqa: PLR2004 - the one before the neighbour
    index = place if is_low and place + 1 < len(numbers) and numbers[place + 1] >= numbers[place - 1] else place - 1
    return [Outlier(index, _SEQUENCE_WEIGHT, "out of sequence")]


def _odd_values(texts: Sequence[str]) -> list[Outlier]:
    counts = Counter(texts)
    common = [text for text, count in counts.items() if count > 2]  # noqa: PLR2004 - twice may be chance
    rare = [text for text, count in counts.items() if count == 1]
    if not common or len(common) > max(_FEW_KINDS, len(texts) // 50) or len(rare) > _MOST_PER_COLUMN:
        return []
    if len(common) + len(rare) != len(counts):
        return []
    among = ", ".join(_quoted(text) for text, _ in counts.most_common(3))
    weight = 90.0 if len(common) <= _FEW_KINDS else 80.0
    return [Outlier(texts.index(text), weight, f"others are {among}") for text in rare]


def _odd_beginnings(texts: Sequence[str]) -> list[Outlier]:
    counts = Counter(text[:_PREFIX_CHARS] for text in texts)
    beginning, count = counts.most_common(1)[0]
    odd = [index for index, text in enumerate(texts) if not text.startswith(beginning)]
    if count < _MOST * len(texts) or not 0 < len(odd) <= _MOST_PER_COLUMN:
        return []
    return [Outlier(index, 90.0, f"others begin {_quoted(beginning)}") for index in odd]


def _odd_numbers(texts: Sequence[str], shapes: Sequence[str]) -> list[Outlier]:
    """Find texts of the most common shape in which one number lies apart."""
    usual = Counter(shapes).most_common(1)[0][0]
    indexes = [index for index, form in enumerate(shapes) if form == usual]
    if "0" not in usual or len(indexes) < 2 * _LEAST:
        return []
    rows = [list(map(float, _DIGITS.findall(texts[index][:_SHAPED_CHARS]))) for index in indexes]
    width = min(map(len, rows))
    found = [outlier for place in range(width) for outlier in number_outliers([row[place] for row in rows])]
    return [Outlier(indexes[index], 86.0, reason) for index, weight, reason in found if weight > _SEQUENCE_WEIGHT]


def _odd_shapes(texts: Sequence[str], shapes: Sequence[str]) -> list[Outlier]:
    counts = Counter(shapes)
    usual = {form for form, count in counts.items() if count > max(1, len(texts) // 200)}
    odd = [index for index, form in enumerate(shapes) if form not in usual]
    if not 0 < len(odd) <= max(1, min(_MOST_PER_COLUMN, round((1 - _MOST) * len(texts)))):
        return []
    like = _quoted(texts[shapes.index(counts.most_common(1)[0][0])])
    return [Outlier(index, 80.0, f"others are like {like}") for index in odd]


def _placed(found: Iterable[Outlier], indexes: Sequence[int]) -> list[Outlier]:
    return [Outlier(indexes[outlier.place], outlier.weight, outlier.reason) for outlier in found]


def _quoted(text: str) -> str:
    return f'"{text[:_SHOWN_CHARS]}"'


def _number(number: float) -> str:
    return f"{number:.0f}" if number.is_integer() and abs(number) < 1e15 else f"{number:g}"  # noqa: PLR2004 - exact up to there


MAX_EXAMINED_LINES = 40_000
"""At most this many lines are examined one by one."""

_MAX_FORMS = 40
_MAX_FINDINGS = 12
_SIGNATURE_CHARS = 200
_MOST_TOKENS = 24

_LEAST_LINES = 8
# The usual forms must cover this share of a text before a line of another form is an outlier.
_REGULAR = 0.88

_TOKEN = re.compile(r"\d+(?:\.\d+)?|[^\W\d_]+")


def outlier_lines(lines: Sequence[str]) -> list[Finding]:
    """Find the outliers among lines by all three searches.

    Args:
        lines: In order, from line 1 on; at most `MAX_EXAMINED_LINES`.

    Returns:
        At most a dozen from each search.
    """
    form_of_line = forms_of(lines)
    forms = defaultdict[str, list[int]](list)
    for number, form in enumerate(form_of_line, 1):
        if form and not form.isspace():
            forms[form].append(number)
    total = sum(map(len, forms.values()))
    if total < _LEAST_LINES:
        return []
    usual = [form for form, numbers in forms.items() if len(numbers) > max(2, total // 100)]
    odd = _odd_forms(forms, usual, total)
    return [*odd, *_odd_places(lines, forms, usual), *rare_lines(lines, form_of_line)]


def _odd_forms(forms: dict[str, list[int]], usual: Sequence[str], total: int) -> list[Finding]:
    covered = sum(len(forms[form]) for form in usual)
    if covered < _REGULAR * total:
        return []
    rare = sorted((len(numbers), numbers[0]) for numbers in forms.values() if len(numbers) <= 2)  # noqa: PLR2004
    weight = 86.0 if len(rare) <= 4 else 74.0 if len(rare) <= _MAX_FINDINGS else 45.0  # noqa: PLR2004 - a few are odd
    return [Finding(number, weight - count, note=OUTLIER_NOTE) for count, number in rare[:_MAX_FINDINGS]]


def _odd_places(lines: Sequence[str], forms: dict[str, list[int]], usual: Sequence[str]) -> Iterator[Finding]:
    """Find values that differ from those at the same place in lines of the same form."""
    common = sorted(usual, key=lambda form: -len(forms[form]))[:_MAX_FORMS]
    found = [finding for form in common for finding in _odd_in_form(lines, forms[form])]
    found.sort(key=lambda finding: -finding.weight)
    for rank, finding in enumerate(found[:_MAX_FINDINGS]):
        yield replace(finding, weight=finding.weight - 2 * rank)


def _odd_in_form(lines: Sequence[str], numbers: Sequence[int]) -> Iterator[Finding]:
    if len(numbers) < 2 * _LEAST_LINES:
        return
    rows = [_TOKEN.findall(lines[number - 1][:_SIGNATURE_CHARS])[:_MOST_TOKENS] for number in numbers]
    width = min(map(len, rows))
    for place in range(width):
        column = [row[place] for row in rows]
        value_of = {token: _value(token) for token in set(column)}  # most tokens of a column recur
        if len(value_of) == 1:
            continue
        for outlier in column_outliers([value_of[token] for token in column])[:2]:
            yield Finding(
                numbers[outlier.place], outlier.weight - 14, note=f"{rows[outlier.place][place]}: {outlier.reason}"
            )


def _value(token: str) -> ColumnValue:
    return float(token) if token[0].isdecimal() and token.isascii() else token


def rare_kinds(kinds: Mapping[bytes, int]) -> list[bytes]:
    """Find the kinds of lines that occur once in a text of which a few forms cover nearly everything else.

    Args:
        kinds: How many lines there are of each kind.

    Returns:
        At most a dozen; none for a text without such forms.
    """
    counts = Counter[str]()
    names = list(kinds)
    forms = dict(zip(names, forms_of([name.decode("utf-8", "replace") for name in names]), strict=True))
    for kind, count in kinds.items():
        counts[forms[kind]] += count
    total = sum(kinds.values())
    usual = sum(count for count in counts.values() if count > max(2, total // 1_000))
    if usual < _REGULAR * total:
        return []
    odd = [kind for kind, form in forms.items() if counts[form] == 1]
    return odd[:_MAX_FINDINGS] if len(odd) <= _MAX_FINDINGS * 4 else []
