"""Lines that say what no other line of their text says, in whatever form."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import nlargest

from buoyline.offloader.lines import CONTINUED
from buoyline.offloader.previews.finding import UNLIKE, Finding

_LOOKED_AT_CHARS = 200
_BEGINNING_CHARS = 6
# Many lines in one call: 0.1 s for 40,000, not half a second. All in one would hold the interpreter as long.
_LINES_AT_ONCE = 500
_LEAST_WORDS = 3
_MOST_FINDINGS = 5
_LEAST_SCORE = 2.4
_WEIGHT = 74.0
_RARE_SHARE = 400

# A longer run of letters is data: base64, a key, a name made of many words.
_WORD = re.compile(r"(?<![^\W\d_])[^\W\d_]{3,20}(?![^\W\d_])")
_LETTERS = re.compile(r"[^\W\d_]+")
_DIGITS = re.compile(r"\d+")
_SIGNS = re.compile(r"[^\w\s]+")


def forms_of(lines: Sequence[str]) -> list[str]:
    """Return the form of each line: each word as ``a``, each number as ``0``, all else as it stands.

    >>> forms_of(["user-17 at 10.0.0.1"])
    ['a-0 a 0.0.0.0']
    """
    forms: list[str] = []
    for start in range(0, len(lines), _LINES_AT_ONCE):
        text = "\n".join([line[:_LOOKED_AT_CHARS] for line in lines[start : start + _LINES_AT_ONCE]])
        forms += _DIGITS.sub("0", _LETTERS.sub("a", text)).split("\n")
    return forms


def novel(lines: Sequence[str], forms: Sequence[str]) -> list[Finding]:
    """Find the lines that are the most of their own: in words, in form, in signs, in how they begin.

    Each of the four may be chance, and in prose words alone often are; a line that belongs to another text altogether
    has them all. Found by trying: in 37 recorded outputs of all kinds, a line planted anywhere was among the first five
    in nine of ten copies.

    Args:
        lines: In order, from line 1 on.
        forms: Their forms.

    Returns:
        At most five, the most of their own first.
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
        Finding(numbers[place], _WEIGHT - 3 * rank, note=UNLIKE)
        for rank, place in enumerate(best)
        if scores[place] >= _LEAST_SCORE
    ]


class _Features:
    """What each line holds of a sort, and how many lines hold it."""

    def __init__(self, held: Iterable[frozenset[str]]) -> None:
        self._held = list(held)
        self._counts = Counter(feature for features in self._held for feature in features)

    def own(self, place: int) -> int:
        """Return how many features of a line no other line has."""
        return sum(self._counts[feature] == 1 for feature in self._held[place])

    def rarity(self, place: int) -> float:
        """Return 1 where no other line has any feature of this one, near 0 where many have all of them."""
        features = self._held[place]
        return sum(1 / self._counts[feature] for feature in features) / max(len(features), _LEAST_WORDS)
