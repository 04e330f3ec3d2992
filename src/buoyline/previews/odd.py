"""Odd rows: lines with words that no other line has, and values that differ from all others of their column.

What is odd is rare by definition: at most one line in twenty, and at most three of a column.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from math import fsum
from typing import Any, Final, NamedTuple

from buoyline.previews.rows import Row, row_of, shortened
from buoyline.previews.source import decoded

_MOST_SHAPES, _MOST_SCORED = 10_000, 400
_MOST_BYTES = 4_000
_RARE_SHARE = 400
_SEEN_BYTES, _BEGIN_BYTES = 160, 6
_LEAST_SHARE = 20
_LEAST_SCORE = 2.4
_HEAVIEST, _LIGHTEST = 74.0, 62.0

_DIGITS: Final = b"0123456789"
_LETTERS: Final = bytes(code for code in range(256) if code > 0x7F or chr(code).isalpha())  # noqa: PLR2004 - past ASCII
_WORDS: Final = bytes(
    ord(chr(code).lower()) if code in _LETTERS and code < 0x80 else code if code in _LETTERS or code == 0x0A else 0x20  # noqa: PLR2004 - line ends stay
    for code in range(256)
)
_FORM: Final = bytes(0x61 if code in _LETTERS else 0x30 if code in _DIGITS else code for code in range(256))


class RareLines:
    """Collects the lines of a text that is read in blocks; lines that differ in digits only are of one shape."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._shapes: dict[bytes, tuple[int, bytes]] = {}
        self._counts = Counter[bytes]()
        self._lines = 0

    def read(self, content: bytes, first: int) -> None:
        """Add the lines of *content*, in UTF-8, of which the first is line *first*."""
        lines, shapes = content.split(b"\n"), content.translate(None, _DIGITS).split(b"\n")
        self._lines += len(lines)
        if len(self._shapes) >= _MOST_SHAPES:
            return
        self._counts.update(shapes)
        for number, (shape, line) in enumerate(zip(shapes, lines, strict=True), first):
            if shape not in self._shapes and len(line) < _MOST_BYTES:
                self._shapes[shape] = number, line

    def rows(self, most: int, quoted: frozenset[int] = frozenset()) -> list[Row]:
        """Return at most *most* lines, those with the rarest words, punctuation, form and beginning, the rarest first.

        Each of these may be chance, and rare words often are in prose; a line from another text has them all.
        """
        shapes = list(islice(self._shapes, _MOST_SHAPES))
        if not shapes:
            return []
        text = b"\n".join([self._shapes[shape][1][:_SEEN_BYTES] for shape in shapes])
        words = [line.split() for line in text.translate(_WORDS).split(b"\n")]
        signs = [line.split() for line in text.translate(None, _LETTERS + _DIGITS).split(b"\n")]
        forms = _collapsed(text.translate(_FORM)).split(b"\n")
        counts = [self._counts[shape] for shape in shapes]
        same_word, same_sign = Counter(chain.from_iterable(words)), Counter(chain.from_iterable(signs))
        same_form, same_begin = Counter[bytes](), Counter[bytes]()
        for count, of_line, form in zip(counts, words, forms, strict=True):
            same_form[form] += count
            same_begin[form[:_BEGIN_BYTES]] += count
            if count > 1:
                same_word.update(of_line)
        once = {word for word, count in same_word.items() if count == 1 and 3 <= len(word) <= 20}  # noqa: PLR2004 - a longer one is data
        places = [
            place
            for place, of_line in enumerate(words)
            if counts[place] == 1 and not once.isdisjoint(of_line) and self._shapes[shapes[place]][0] not in quoted
        ]
        places.sort(key=lambda place: (-len(once.intersection(words[place])) / (len(words[place]) + 2), place))
        rare, found = max(2, self._lines // _RARE_SHARE), list[tuple[float, int, bytes]]()
        for place in places[:_MOST_SCORED]:
            long = {word for word in words[place] if 3 <= len(word) <= 20}  # noqa: PLR2004 - as above
            score = (
                2 * fsum(1 / same_word[word] for word in long) / max(len(long), 3)
                + 0.08 * min(len(once & long), 6)
                + 0.5 * any(same_sign[sign] == 1 for sign in signs[place])
                + (same_form[forms[place]] <= 2)  # noqa: PLR2004 - twice may be chance
                + 0.6 * (same_begin[forms[place][:_BEGIN_BYTES]] <= rare)
            )
            found.append((-score, *self._shapes[shapes[place]]))
        most = min(most, self._lines // _LEAST_SHARE)
        return [
            row_of(number, _HEAVIEST - (_HEAVIEST - _LIGHTEST) * rank / most, decoded(line))
            for rank, (score, number, line) in enumerate(sorted(found)[:most])
            if score <= -_LEAST_SCORE
        ]


def _collapsed(forms: bytes) -> bytes:
    """Return *forms* with one sign for each word and each number."""
    for sign in (b"a", b"0"):
        while 2 * sign in forms:
            forms = forms.replace(2 * sign, sign)
    return forms


class OddValue(NamedTuple):
    """A value that differs from all others of its column, by its *place* there."""

    place: int
    weight: float
    reason: str


_LEAST_VALUES = 8
_PLURALS: Final = {"text": "texts", "number": "numbers", "object or array": "objects or arrays"}
_FEW = 3
_MOST_REPEATED = 12


def odd_values(values: Sequence[Any]) -> list[OddValue]:
    """Return the few values of a column that have another type, a number far from all others, or a text used once."""
    few = max(1, min(_FEW, len(values) // 50))
    if len(values) < _LEAST_VALUES:
        return []
    is_uniform = (
        len(set(map(type, values))) == 1 and "" not in values
    )  # most columns are, and need no look at each value
    kinds = [_kind(values[0])] * len(values) if is_uniform else [_kind(value) for value in values]
    count = Counter(kinds)
    usual, usually = count.most_common(1)[0]
    others = f"{usually:,} others are {_PLURALS.get(usual, usual)}"
    found = [
        OddValue(place, 88.0 if kind in {"null", "empty"} else 95.0, f"{kind}, {others}")
        for place, kind in enumerate(kinds if len(count) > 1 else ())
        if kind != usual and count[kind] <= few
    ]
    rest = [(value, place) for place, value in enumerate(values) if is_uniform or kinds[place] == usual]
    if usual == "number":
        ranked = sorted(rest)
        with suppress(OverflowError):  # an integer beyond all floats
            found += [*_apart(ranked, few), *_apart([(-value, place) for value, place in reversed(ranked)], few)]
    elif usual == "text":
        found += _used_once(rest)
    return sorted(found, key=lambda odd: -odd.weight)[:few]


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return "text" if value else "empty"
    if isinstance(value, bool):
        return "true or false"
    if value is None:
        return "null"
    return "number" if isinstance(value, int | float) else "object or array"


def _apart(ranked: list[tuple[Any, int]], few: int) -> Iterator[OddValue]:
    """Yield the last values of *ranked* if the gap before them is larger than the span of all others."""
    for size in range(1, min(few, len(ranked) - 1) + 1):
        low, before, after = ranked[0][0], ranked[-size - 1][0], ranked[-size][0]
        if after - before > max(before - low, abs(before) / 2, 1) or after > 10 * before > 10:  # noqa: PLR2004
            least, most = sorted((abs(low), abs(before))) if low * before > 0 else (min(low, before), max(low, before))
            yield from (OddValue(place, 92.0, f"others {least:g} to {most:g}") for _, place in ranked[-size:])
            return


def _used_once(texts: list[tuple[str, int]]) -> list[OddValue]:
    count = Counter(text for text, _ in texts)
    usual = [text for text, times in count.items() if times > 2]  # noqa: PLR2004 - repeated
    once = [place for text, place in texts if count[text] == 1]
    if not usual or len(usual) > _MOST_REPEATED or len(once) > _FEW or len(usual) + len(once) < len(count):
        return []
    others = ", ".join(f'"{shortened(text, 24)}"' for text in usual[:3])
    return [OddValue(place, 90.0, f"others are {others}") for place in once]
