"""Numbers that stand before the lines of a text, as ``cat -n`` writes them."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_NUMBER = re.compile(r"\s{0,12}(\d{1,7})(?:\u2192|\t| ?\| ?|[:-] ?)")
_SAMPLE = 200
_LEAST = 0.85


@dataclass(frozen=True, slots=True)
class Gutter:
    """A text without the numbers before its lines.

    Attributes:
        texts: The lines behind their numbers; empty where a line has none.
        note: How the numbers differ from those of the lines; empty where they do not.
    """

    texts: list[str]
    note: str


def without_gutter(lines: Sequence[str]) -> Gutter | None:
    """Take the numbers from *lines*; None where they bear none, or not one after the other."""
    sample = [_NUMBER.match(line) for line in lines[:_SAMPLE] if line.strip()]
    numbers = [int(found[1]) for found in sample if found is not None]
    if len(numbers) < 3 or len(numbers) < _LEAST * len(sample):  # noqa: PLR2004 - two may be chance
        return None
    if sum(after == before + 1 for before, after in pairwise(numbers)) < _LEAST * (len(numbers) - 1):
        return None
    found = [_NUMBER.match(line) for line in lines]
    texts = [line[match.end() :] if match is not None else "" for line, match in zip(lines, found, strict=True)]
    offsets = Counter(number - int(match[1]) for number, match in enumerate(found, 1) if match is not None)
    return Gutter(texts, _note(offsets))


def _note(offsets: Counter[int]) -> str:
    offset, count = offsets.most_common(1)[0]
    if count < _LEAST * offsets.total():
        return "numbers here are of the lines, not those in them"
    if offset == 0:
        return ""
    return f"numbers here are of the lines; those in them are {abs(offset):,} {'less' if offset > 0 else 'more'}"
