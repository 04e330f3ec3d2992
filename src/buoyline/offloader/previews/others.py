"""The row that says how many lines of trouble are not shown, and with what search all of them are found."""

import re
from collections import Counter
from collections.abc import Sequence

from buoyline.offloader.previews.facts import counted
from buoyline.offloader.previews.finding import MOST_TROUBLES, Finding

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
