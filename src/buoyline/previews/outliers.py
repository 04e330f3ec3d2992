"""Outliers: lines, and values of a column, that differ from all others of their text.

A text is reduced to its *shapes*: lines without digits and without the letters of hexadecimal numbers. A log of a
million lines has a few dozen shapes; their counts find the lines that are unlike all others. Values at the same place
of the records of a document form a column, and a value that differs in it is an outlier. All searches are pure, and
linear in the number of values except for one sort.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from math import fsum, isfinite
from typing import Final, NamedTuple, TypeAlias, cast

from buoyline.previews.digest import OUTLIER_NOTE, Finding
from buoyline.previews.source import CONTINUED

_MAX_SHAPES = 10_000
_SHAPE_BYTES = 160
_MAX_RARE = 4_000

_LETTERS: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_DIGITS: Final = b"0123456789"
_HIGH: Final = bytes(range(0x80, 0x100))
_HEX: Final = b"0123456789abcdefABCDEF"
_WORDS: Final = bytes(
    code + 32 if 65 <= code <= 90 else code if chr(code).isalpha() or code >= 0x80 or code == 10 else 32  # noqa: PLR2004 - ASCII
    for code in range(256)
)

_FORM: Final = bytes(
    97 if chr(code).isalpha() or code >= 0x80 else 48 if chr(code).isdigit() else code  # noqa: PLR2004 - ASCII
    for code in range(256)
)
_BEGINNING_BYTES = 6

_LEAST_LINES = 8
_MOST_RARE = 5
_LEAST_SCORE = 2.4
_RARE_WEIGHT = 74.0
_RARE_SHARE = 400
_LEAST_WORDS = 3
_MAX_SCORED = 400
_CONTINUED: Final = CONTINUED.encode()


@dataclass(slots=True)
class Shapes:
    """The shapes of the lines of a text.

    Attributes:
        counts: The lines of each shape.
        first: The number and the first 160 bytes of the first line of each shape.
        is_full: Whether there are more shapes than are kept; then only the first lines were counted.
    """

    counts: Counter[bytes] = field(default_factory=Counter[bytes])
    first: dict[bytes, tuple[int, bytes]] = field(default_factory=dict[bytes, tuple[int, bytes]])
    is_full: bool = False

    def read(self, block: bytes, lines: Sequence[bytes], number: int) -> None:
        """Add the *lines* of *block*; the first of them has this *number*."""
        if self.is_full:
            return
        shapes = block.translate(None, _HEX).split(b"\n")
        counts = Counter(shapes)
        where = dict(zip(reversed(shapes), range(len(shapes) - 1, -1, -1), strict=True))
        fresh = [shape for shape in counts if shape not in self.first]
        self.is_full = len(fresh) > _MAX_SHAPES - len(self.first)
        for shape in fresh[: _MAX_SHAPES - len(self.first)]:
            self.first[shape] = (number + where[shape], lines[where[shape]][:_SHAPE_BYTES])
        if self.is_full:
            counts = Counter({shape: counts[shape] for shape in self.first if shape in counts})
        self.counts.update(counts)


def outlier_lines(shapes: Shapes) -> list[Finding]:
    """Find the lines with the rarest words, form, punctuation and beginning.

    Each of the four may be chance, and rare words often are in prose; a line from another text has them all.
    """
    total = sum(shapes.counts.values()) - shapes.counts.get(b"", 0)
    if total < _LEAST_LINES:
        return []
    names = [shape for shape, (_, line) in shapes.first.items() if shape.strip() and not line.startswith(_CONTINUED)]
    names = names[:: len(names) // _MAX_RARE + 1]
    if not names:
        return []
    text = b"\n".join([shapes.first[name][1] for name in names])
    words = [line.split() for line in text.translate(_WORDS).split(b"\n")]
    signs = text.translate(None, _LETTERS + _DIGITS + _HIGH).split(b"\n")
    forms = _forms(text)
    word_counts = Counter(chain.from_iterable(words))
    sign_counts = Counter(chain.from_iterable([line.split() for line in signs]))
    form_counts, beginnings = defaultdict[bytes, int](int), defaultdict[bytes, int](int)
    for name, held, form in zip(names, words, forms, strict=True):
        count = shapes.counts[name]
        form_counts[form] += count
        beginnings[form[:_BEGINNING_BYTES]] += count
        for word in held if count > 1 else ():
            word_counts[word] += count - 1
    own = {word for word, count in word_counts.items() if count == 1 and 3 <= len(word) <= 20}  # noqa: PLR2004 - a longer run of letters is data
    places = [place for place, held in enumerate(words) if not own.isdisjoint(held)]
    places.sort(key=lambda place: (-len(own.intersection(words[place])) / (len(words[place]) + 2), place))
    rare = max(2, sum(form_counts.values()) // _RARE_SHARE)
    scored: list[tuple[float, int]] = []
    for place in places[:_MAX_SCORED]:
        long_words = {word for word in words[place] if 3 <= len(word) <= 20}  # noqa: PLR2004 - as above
        # Exactly rounded: the order of a set, and so a plain sum, depends on the hash seed of the process.
        rarity = fsum(1 / word_counts[word] for word in long_words) / max(len(long_words), _LEAST_WORDS)
        score = (
            2 * rarity
            + 0.08 * min(len(own & long_words), 6)
            + 0.5 * any(sign_counts[sign] == 1 for sign in signs[place].split())
            + (form_counts[forms[place]] <= 2)  # noqa: PLR2004 - twice may be chance
            + 0.6 * (beginnings[forms[place][:_BEGINNING_BYTES]] <= rare)
        )
        if score >= _LEAST_SCORE and shapes.counts[names[place]] == 1:
            scored.append((-score, shapes.first[names[place]][0]))
    return [
        Finding(number, _RARE_WEIGHT - 3 * rank, note=OUTLIER_NOTE)
        for rank, (_, number) in enumerate(sorted(scored)[:_MOST_RARE])
    ]


def _forms(text: bytes) -> list[bytes]:
    """Return the form of each line: words become ``a``, numbers become ``0``."""
    forms = text.translate(_FORM)
    for sign in (b"a", b"0"):
        # Most words have several letters, so that this takes a quarter less time.
        forms = forms.replace(4 * sign, sign).replace(3 * sign, sign)
        while 2 * sign in forms:
            forms = forms.replace(2 * sign, sign)
    return forms.split(b"\n")


class Container:
    """Represents an object or an array in a column."""


CONTAINER = Container()

ColumnValue: TypeAlias = str | float | bool | Container | None

_LEAST = 8
_MOST_PER_COLUMN = 3
_JUMP_WEIGHT = 96.0
_SHOWN_CHARS = 40
_FEW_KINDS = 12
_MAX_SORTED = 50_000

_FAR = 10.0

_SURE = 50
_DOUBT = 16.0


class Outlier(NamedTuple):
    """A value that differs from its column, with a reason such as ``"text, 1,706 others are numbers"``."""

    place: int
    weight: float
    reason: str


def column_outliers(values: Sequence[ColumnValue]) -> list[Outlier]:
    """Find the values of one column that differ from the others in type, size or form.

    Returns:
        At most three of each kind, the most striking first; none among fewer than eight values.
    """
    if len(values) < _LEAST:
        return []
    types = set(map(type, values))
    if types == {str} and "" not in values:
        found = text_outliers(cast("Sequence[str]", values))
    elif types <= {int, float}:
        found = number_outliers(cast("Sequence[float]", values))
    else:
        found = list(_mixed_outliers(values))
    doubt = doubt_in(len(values))
    found = [Outlier(outlier.place, outlier.weight - doubt, outlier.reason) for outlier in found]
    return sorted(found, key=lambda outlier: (-outlier.weight, outlier.place))


def doubt_in(count: int) -> float:
    """Return by how much less an outlier among *count* values weighs: one among eight is often chance."""
    return _DOUBT * max(0.0, 1 - count / _SURE)


def _mixed_outliers(values: Sequence[ColumnValue]) -> Iterator[Outlier]:
    kinds = [_KINDS.get(type(value), "object or array") if value != "" else "empty" for value in values]
    counts = Counter(kinds)
    main = counts.most_common(1)[0][0]
    most = max(1, min(_MOST_PER_COLUMN, len(kinds) // 50))
    odd = {kind for kind, count in counts.items() if kind != main and count <= most}
    for place, kind in enumerate(kinds) if odd else ():
        if kind in odd:
            weight = 88.0 if kind in {"null", "empty"} else 95.0
            yield Outlier(place, weight, f"{kind}, {counts[main]:,} others are {_PLURALS.get(main, main)}")
    indexes = [place for place, kind in enumerate(kinds) if kind == main]
    alike = [values[index] for index in indexes]
    found = list[Outlier]()
    if main == "number":
        found = number_outliers(cast("list[float]", alike))
    elif main == "text":
        found = text_outliers(cast("list[str]", alike))
    for place, weight, reason in found:
        yield Outlier(indexes[place], weight, reason)


_KINDS: Final[dict[type, str]] = {
    type(None): "null", bool: "true or false", str: "text", float: "number", int: "number",
}  # fmt: skip
_PLURALS: Final = {"number": "numbers", "text": "texts", "object or array": "objects or arrays"}


def number_outliers(numbers: Sequence[float]) -> list[Outlier]:
    """Find the numbers that lie apart from all others.

    A number lies apart if the gap to the next one is larger than the span of the others or ten times their size.
    """
    if len(numbers) < _LEAST:
        return []
    distinct = set(numbers)
    if len(distinct) > _MAX_SORTED:
        distinct = set(numbers[:: len(numbers) // _MAX_SORTED + 1]) | {min(numbers), max(numbers)}
    values = sorted(filter(isfinite, distinct))
    if len(values) < 2:  # noqa: PLR2004 - all are equal
        return []
    few = values if len(values) <= 2 * _MOST_PER_COLUMN + 4 else [*values[:5], *values[-5:]]
    near, counts = set(few), Counter[float]()
    counts.update(number for number in numbers if number in near)
    rising = [number for value in few for number in [value] * min(counts[value], 5)]
    falling = rising[::-1]
    high = _separate_count(falling, rising[0], len(numbers))
    low = _separate_count([-number for number in rising], -falling[0], len(numbers))
    apart = {*rising[:low], *falling[:high]}
    span = f"others {_number(rising[low])} to {_number(falling[high])}"
    most = _FAR * _FAR * max(abs(rising[low]), abs(falling[high]), 1)
    weights = {number: _JUMP_WEIGHT if abs(number) > most else 92.0 for number in apart}
    return [Outlier(at, weights[number], span) for at, number in enumerate(numbers if apart else ()) if number in apart]


def text_outliers(texts: Sequence[str]) -> list[Outlier]:
    """Find the texts that occur once although all others are of a few values."""
    counts = Counter(texts)
    common = [text for text, count in counts.items() if count > 2]  # noqa: PLR2004 - twice may be chance
    if not common or len(common) > max(_FEW_KINDS, len(texts) // 50) or len(counts) > len(common) + _MOST_PER_COLUMN:
        return []
    rare = [text for text, count in counts.items() if count == 1]
    if len(common) + len(rare) != len(counts):
        return []
    among = ", ".join(map(_quoted, sorted(common, key=lambda text: -counts[text])[:3]))
    weight = 90.0 if len(common) <= _FEW_KINDS else 72.0
    return [Outlier(texts.index(text), weight, f"others are {among}") for text in rare]


def _separate_count(extremes: Sequence[float], other_end: float, total: int) -> int:
    """Return how many of *extremes*, the largest of *total* numbers, lie apart; 0 to 3."""
    most = max(1, min(_MOST_PER_COLUMN, total // 50))
    for count, (first, last) in enumerate(pairwise(extremes[: most + 1]), 1):
        gap, span = first - last, last - other_end
        # If all others are equal, a count that differs by one is not an outlier.
        if gap > max(span, abs(last) / 2, 1.0) or (last > 1 and first > _FAR * last):
            return count
    return 0


def _quoted(text: str) -> str:
    return f'"{text[:_SHOWN_CHARS]}"'


def _number(number: float) -> str:
    return f"{number:.0f}" if float(number).is_integer() and abs(number) < 1e15 else f"{number:g}"  # noqa: PLR2004 - exact up to there
