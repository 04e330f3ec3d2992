"""What does not belong: values that differ from the others of their column.

A column holds what stands at the same place of many records: a field of JSON objects, a column of a table, the n-th
number of lines that are otherwise alike. Pure, and linear in the number of values but for one sort.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest, nsmallest
from itertools import pairwise
from typing import NamedTuple, TypeAlias, cast


class Container:
    """Stands in a column for an object or an array."""


CONTAINER = Container()

Value: TypeAlias = str | float | bool | Container | None

_LEAST = 8
_MOST_PER_COLUMN = 3
_SEQUENCE_WEIGHT = 80.0
_SHOWN_CHARS = 40
_FEW_KINDS = 12

# Of how many values most must be alike for one to stand out: a field of any text has no odd ones.
_MOST = 0.97
_PREFIX_CHARS = 6
_FAR = 10.0

# Among eight values one that differs is often chance, among fifty hardly ever.
_SURE = 50
_DOUBT = 16.0

_LETTERS = re.compile(r"[^\W\d_]+")
_DIGITS = re.compile(r"\d+")
_SHAPED_CHARS = 80


class Deviant(NamedTuple):
    """A value that does not belong.

    Attributes:
        place: Of the value in its column, 0-based.
        weight: From 0 to 100, see `buoyline.offloader.previews.finding.Finding`.
        reason: What the others are, e.g. ``"text, 1,706 others are numbers"``.
    """

    place: int
    weight: float
    reason: str


def deviants(values: Sequence[Value]) -> list[Deviant]:
    """Find the values that differ from the others in type, size or form.

    Args:
        values: Of one column, in order.

    Returns:
        At most three of a sort, the most striking first; none of fewer than eight values, which have no rule.
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
        found += _placed(outliers([cast("float", values[index]) for index in indexes]), indexes)
    elif main == "text":
        found += _placed(odd_texts([cast("str", values[index]) for index in indexes]), indexes)
    doubt = _DOUBT * max(0.0, 1 - len(values) / _SURE)
    found = [Deviant(deviant.place, deviant.weight - doubt, deviant.reason) for deviant in found]
    return sorted(found, key=lambda deviant: (-deviant.weight, deviant.place))


def outliers(numbers: Sequence[float]) -> list[Deviant]:
    """Find the numbers that lie apart from all others.

    A number lies apart when the gap to its neighbour is larger than all that the others span, or ten times their
    size, or when it is the only one below zero, or the only one out of sequence.
    """
    if len(numbers) < _LEAST:
        return []
    # Not sorted: that is one call, and holds the interpreter for as long as there are numbers.
    largest = nlargest(_MOST_PER_COLUMN + 2, range(len(numbers)), key=numbers.__getitem__)
    smallest = nsmallest(_MOST_PER_COLUMN + 2, range(len(numbers)), key=numbers.__getitem__)
    falling, rising = [numbers[index] for index in largest], [numbers[index] for index in smallest]
    high = _apart(falling, rising[0], len(numbers))
    low = _apart([-number for number in rising], -falling[0], len(numbers))
    span = f"others {_number(rising[low])} to {_number(falling[high])}"
    found = [Deviant(index, 92.0, span) for index in (*smallest[:low], *largest[:high])]
    if not found and rising[0] < 0 <= rising[1] and len(numbers) >= 2 * _LEAST:
        found.append(Deviant(smallest[0], 82.0, f"others {_number(rising[1])} to {_number(falling[0])}"))
    return found or _out_of_sequence(numbers)


def odd_texts(texts: Sequence[str]) -> list[Deviant]:
    """Find the texts whose form or value is one of a kind where all others follow a few."""
    shapes = [shape(text) for text in texts]
    found = _odd_values(texts) or _odd_beginnings(texts) or _odd_numbers(texts, shapes) or _odd_shapes(texts, shapes)
    longest, next_longest = nlargest(2, range(len(texts)), key=lambda index: len(texts[index]))
    most, others = len(texts[longest]), len(texts[next_longest])
    if not found and most > max(_FAR / 2 * others, 2 * _SHAPED_CHARS):
        found = [Deviant(longest, 78.0, f"{most:,} characters, others at most {others:,}")]
    return found


def shape(text: str) -> str:
    """Return *text* with each word as ``a`` and each number as ``0``: what is left is its form.

    >>> shape("user-17 at 10.0.0.1")
    'a-0 a 0.0.0.0'
    """
    return _DIGITS.sub("0", _LETTERS.sub("a", text[:_SHAPED_CHARS]))


def _kind(value: Value) -> str:
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


def _odd_kinds(kinds: dict[str, list[int]], main: str) -> Iterator[Deviant]:
    total = sum(map(len, kinds.values()))
    for kind, indexes in kinds.items():
        if kind != main and len(indexes) <= max(1, min(_MOST_PER_COLUMN, total // 50)):
            weight = 88.0 if kind in {"null", "empty"} else 95.0
            for index in indexes:
                yield Deviant(index, weight, f"{kind}, {len(kinds[main]):,} others are {_plural(main)}")


def _plural(kind: str) -> str:
    return {"number": "numbers", "text": "texts", "object or array": "objects or arrays"}.get(kind, kind)


def _apart(extremes: Sequence[float], other_end: float, total: int) -> int:
    """Return how many of the largest of *total* numbers, which come first in *extremes*, lie apart; 0 to 3."""
    most = max(1, min(_MOST_PER_COLUMN, total // 50))
    for count, (first, last) in enumerate(pairwise(extremes[: most + 1]), 1):
        gap, span = first - last, last - other_end
        # Where all others are one number, one more or less is nothing to speak of in a count.
        if gap > max(span, abs(last) / 2, 1.0) or (last > 1 and first > _FAR * last):
            return count
    return 0


def _out_of_sequence(numbers: Sequence[float]) -> list[Deviant]:
    steps = [after - before for before, after in pairwise(numbers)]
    falls = [place for place, step in enumerate(steps, 1) if step < 0]
    if len(numbers) < 5 * _LEAST or not falls or len(falls) > 2:  # noqa: PLR2004 - one value out of sequence makes two falls at most
        return []
    # One number too large is followed by a fall, one too small by a rise: it is the one without which all rise.
    place = falls[0]
    is_low = place < 2 or numbers[place] < numbers[place - 2]  # noqa: PLR2004 - the one before the neighbour
    index = place if is_low and place + 1 < len(numbers) and numbers[place + 1] >= numbers[place - 1] else place - 1
    return [Deviant(index, _SEQUENCE_WEIGHT, "out of sequence")]


def _odd_values(texts: Sequence[str]) -> list[Deviant]:
    counts = Counter(texts)
    common = [text for text, count in counts.items() if count > 2]  # noqa: PLR2004 - twice may be chance
    rare = [text for text, count in counts.items() if count == 1]
    if not common or len(common) > max(_FEW_KINDS, len(texts) // 50) or len(rare) > _MOST_PER_COLUMN:
        return []
    if len(common) + len(rare) != len(counts):
        return []
    among = ", ".join(_quoted(text) for text, _ in counts.most_common(3))
    weight = 90.0 if len(common) <= _FEW_KINDS else 80.0
    return [Deviant(texts.index(text), weight, f"others are {among}") for text in rare]


def _odd_beginnings(texts: Sequence[str]) -> list[Deviant]:
    counts = Counter(text[:_PREFIX_CHARS] for text in texts)
    beginning, count = counts.most_common(1)[0]
    odd = [index for index, text in enumerate(texts) if not text.startswith(beginning)]
    if count < _MOST * len(texts) or not 0 < len(odd) <= _MOST_PER_COLUMN:
        return []
    return [Deviant(index, 90.0, f"others begin {_quoted(beginning)}") for index in odd]


def _odd_numbers(texts: Sequence[str], shapes: Sequence[str]) -> list[Deviant]:
    """Find texts of the most common shape in which one number lies apart from those of the others."""
    usual = Counter(shapes).most_common(1)[0][0]
    indexes = [index for index, form in enumerate(shapes) if form == usual]
    if "0" not in usual or len(indexes) < 2 * _LEAST:
        return []
    rows = [list(map(float, _DIGITS.findall(texts[index][:_SHAPED_CHARS]))) for index in indexes]
    width = min(map(len, rows))
    found = [deviant for place in range(width) for deviant in outliers([row[place] for row in rows])]
    return [Deviant(indexes[index], 86.0, reason) for index, weight, reason in found if weight > _SEQUENCE_WEIGHT]


def _odd_shapes(texts: Sequence[str], shapes: Sequence[str]) -> list[Deviant]:
    counts = Counter(shapes)
    usual = {form for form, count in counts.items() if count > max(1, len(texts) // 200)}
    odd = [index for index, form in enumerate(shapes) if form not in usual]
    if not 0 < len(odd) <= max(1, min(_MOST_PER_COLUMN, round((1 - _MOST) * len(texts)))):
        return []
    like = _quoted(texts[shapes.index(counts.most_common(1)[0][0])])
    return [Deviant(index, 80.0, f"others are like {like}") for index in odd]


def _placed(found: Iterable[Deviant], indexes: Sequence[int]) -> list[Deviant]:
    return [Deviant(indexes[deviant.place], deviant.weight, deviant.reason) for deviant in found]


def _quoted(text: str) -> str:
    return f'"{text[:_SHOWN_CHARS]}"'


def _number(number: float) -> str:
    return f"{number:.0f}" if number.is_integer() and abs(number) < 1e15 else f"{number:g}"  # noqa: PLR2004 - exact up to there
