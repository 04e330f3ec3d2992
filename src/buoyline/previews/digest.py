"""Digests: what the readers of a text found, before the preview chooses what fits.

This module also holds what the readers share: the wording of facts, and linear-time patterns over many lines.
"""

import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple, cast

from buoyline.previews.lines import FAR_CHARS
from buoyline.previews.source import visible

MUST_SHOW_WEIGHT = 80.0
"""From this weight on, other lines are cut shorter to make room for a line."""

MAX_ERROR_KINDS = 400
"""A preview tells at most this many kinds of error lines apart."""

_SEEN_CHARS = 400

OUTLIER_NOTE = "unlike all others"
"""The note of a line that is shown only as an outlier; it is dropped if another finding shows the line anyway."""


class Finding(NamedTuple):
    """A line that is more important than its neighbors.

    Attributes:
        number: 1-based.
        weight: From 0 to 100; the preview takes the highest first.
        column: The character that the finding is about, 0-based.
        lines: The number of lines of this kind, this one included.
        similar: The numbers of some of the other lines of this kind, ascending.
        note: Why the line is odd, if the line does not say so itself.
        word: For an error line, characters that find every line of its kind; else empty.
        form: For an error line, its words without values; a preview without room names lines of one form by number.
    """

    number: int
    weight: float
    column: int = 0
    lines: int = 1
    similar: tuple[int, ...] = ()
    note: str = ""
    word: str = ""
    form: bytes = b""


@dataclass(frozen=True, slots=True)
class Digest:
    """What a reader knows about a text.

    Attributes:
        facts: Rows about the text as a whole, the most important first. No row begins with a digit, as numbered lines
            do.
        findings: Lines worth showing, in any order; a line may occur several times.
        alerts: Rows about outliers that are too many for a line each.
        parts: Rows about parts of the text, such as records or paragraphs, in the order of the text; they are worth
            more than its first and last lines.
        quoted: The numbers of the lines that quote another text: words of errors in them are no errors of this one.
        is_free: Whether nearly every line of such a text is unlike all others, as in a program or a page.
    """

    facts: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    alerts: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    quoted: frozenset[int] = frozenset()
    is_free: bool = False

    def __add__(self, other: "Digest") -> "Digest":
        """Return both digests as one; the facts of *self* come first."""
        return Digest(
            self.facts + other.facts,
            self.findings + other.findings,
            self.alerts + other.alerts,
            self.parts + other.parts,
            self.quoted | other.quoted,
            self.is_free or other.is_free,
        )


def by_place(findings: Iterable[Finding]) -> list[Finding]:
    """Merge the findings of each place into the heaviest one; the heaviest place comes first.

    A finding without a note takes that of another one at its place; one that knows other lines of its form takes the
    weight of the heaviest one instead. A place is a line, or the part of a long line that a preview shows at once.
    """
    found: dict[tuple[int, int], Finding] = {}
    for finding in sorted(findings, key=lambda finding: -finding.weight):
        part = finding.column // _SEEN_CHARS if finding.column >= FAR_CHARS else -1
        first = found.setdefault((finding.number, part), finding)
        note = finding.note if finding.note not in {"", OUTLIER_NOTE} and not first.note else first.note
        if finding.word and not first.word:
            first = finding._replace(weight=first.weight, note=note)
        elif note != first.note:
            first = first._replace(note=note)
        found[finding.number, part] = first
    return sorted(found.values(), key=lambda finding: (-finding.weight, finding.number, finding.column))


# Facts: short rows on one line, even if they quote a text with control characters.


MAX_FACT_CHARS = 300

# About 50 tokens of paths and numbers: a preview of 300 tokens has room for several rows.
ROW_CHARS = 170
_ITEM_CHARS = 90
_SAMPLED_CHARS = 400

_COLOUR = re.compile(r"(?:\x1b|\\x1b)\[[0-9;]{0,20}[A-Za-z]")


def fact(text: str) -> str:
    """Return *text* as a row: one line, at most 300 characters, without terminal control characters."""
    row = " ".join(visible(text[: 2 * MAX_FACT_CHARS]).split())
    return row if len(row) <= MAX_FACT_CHARS else f"{row[: MAX_FACT_CHARS - 3]}..."


def rows(label: str, items: Iterable[str], *, most: int = 3, chars: int = ROW_CHARS) -> list[str]:
    """List *items*, the most important first, in at most *most* rows of *chars*; the last one counts the missing ones.

    Returns:
        ``["Files: a :1, b :20", "Files, more: c :33; 12 more"]``; no rows without items. Long items are cut in the
        middle, and a row has at least one.
    """
    waiting = [shortened(item, _ITEM_CHARS) for item in items]
    found: list[str] = []
    while waiting and len(found) < most:
        head = f"{label}, more: " if found else f"{label}: "
        taken, width = 0, len(head)
        while taken < len(waiting) and (not taken or width + len(waiting[taken]) <= chars):
            width += len(waiting[taken]) + 2
            taken += 1
        found.append(head + ", ".join(waiting[:taken]))
        del waiting[:taken]
    if waiting:
        found[-1] += f"; {len(waiting):,} more"
    return list(map(fact, found))


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number and its noun, such as ``"1,200 files"``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def shortened(text: str, chars: int) -> str:
    """Return *text*, cut in the middle if it is longer than *chars*: the end of a path says most."""
    if len(text) <= chars:
        return text
    head = chars // 3
    return f"{text[:head]}...{text[len(text) - (chars - head - 3) :]}"


def shortened_end(text: str, chars: int) -> str:
    """Return *text* with an ellipsis as its end if it is longer than *chars*."""
    return text if len(text) <= chars else f"{text[: chars - 1]}\u2026"


def sampled(lines: Sequence[str], most: int = 400) -> list[str]:
    """Return lines that are not blank, cut to 400 characters: the first ones, then an even sample of the rest."""
    head = lines[: most // 2]
    step = max(1, (len(lines) - len(head)) // max(most - len(head), 1))
    rest = lines[len(head) :: step][: most - len(head)]
    return [line[:_SAMPLED_CHARS] for line in (*head, *rest) if line.strip()]


def are_mostly(is_so: Callable[[str], object], lines: Sequence[str], least: float) -> bool:
    """Check whether *is_so* holds for the share *least* of *lines*; the first ones tell most texts apart."""
    others = 0
    for line in lines:
        if not is_so(line):
            others += 1
            if share(len(lines) - others, len(lines)) < least:
                return False
    return True


def without_colors(lines: Sequence[str]) -> Sequence[str]:
    r"""Return *lines* without color codes and without ``\r`` at their ends."""
    text = "\n".join(lines)
    if "\x1b[" not in text and "\\x1b[" not in text and "\r" not in text:
        return lines
    return [without_color(line).rstrip("\r") for line in lines]


def without_color(text: str) -> str:
    """Return *text* without the color codes of terminals, also as views spell them."""
    return _COLOUR.sub("", text) if "x1b[" in text or "\x1b[" in text else text


def share(part: int, whole: int) -> float:
    """Return *part* / *whole*, or 0 if *whole* is 0."""
    return part / whole if whole else 0.0


def common_folder(paths: Sequence[str]) -> str:
    """Return the common folder of all *paths* with a final slash; empty if it is very short or too long to print."""
    if len(paths) < 2:  # noqa: PLR2004 - a single path is shown whole
        return ""
    first, last = min(paths), max(paths)
    length = next((place for place, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    folder = first[: first.rfind("/", 0, length) + 1]
    return folder if 4 <= len(folder) <= _ITEM_CHARS else ""  # noqa: PLR2004 - "./" and "src/" cost no more than a word


# Patterns that search many lines at once, in linear time for every input.


# Enough to know the kind of a text and its parts; RE2 needs 0.1 s for it.
_MAX_BYTES = 16_000_000


class PatternMatch(NamedTuple):
    """The line of a match, 1-based, and its groups, empty if they took no part."""

    number: int
    groups: tuple[str, ...]


class LinearPattern:
    """A pattern in RE2 syntax for UTF-8 bytes.

    ``^`` and ``$`` match at line ends, and no match spans lines. The first use imports RE2 and compiles the pattern, so
    a program that only appends pays for neither.
    """

    def __init__(self, pattern: str) -> None:
        """Wrap *pattern*."""
        self._pattern = pattern

    @cached_property
    def compiled(self) -> re.Pattern[bytes]:
        """Return the pattern, compiled by RE2."""
        re2: Any = importlib.import_module("re2")
        options = re2.Options()
        options.never_nl = True
        options.log_errors = False
        return cast("re.Pattern[bytes]", re2.compile(b"(?m)" + self._pattern.encode(), options))


def encoded_lines(lines: Sequence[str], chars: int) -> bytes:
    r"""Encode *lines*, each cut to *chars* and joined with ``\n``; at most 16 MB."""
    is_long = max(map(len, lines), default=0) > chars
    text = "\n".join([line[:chars] for line in lines] if is_long else lines)
    return text.encode("utf-8", "replace")[:_MAX_BYTES]


def matches(pattern: LinearPattern, text: bytes, most: int) -> Iterator[PatternMatch]:
    """Yield the first *most* matches of *pattern* in *text*, in order."""
    number, position = 1, 0
    for found in islice(pattern.compiled.finditer(text), most):
        start = found.start()
        number += text.count(b"\n", position, start)
        position = start
        groups = tuple((group or b"").decode("utf-8", "replace") for group in found.groups())
        yield PatternMatch(number, groups)


def match_count(pattern: LinearPattern, text: bytes) -> int:
    """Return the number of matches of *pattern* in *text*."""
    return sum(1 for _ in pattern.compiled.finditer(text))
