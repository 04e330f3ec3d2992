"""What reading a text brings to light, before anything is known of how much of it can be shown."""

import importlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, cast

from buoyline.previews.lines import FAR_CHARS
from buoyline.previews.source import visible

MUST_SHOW_WEIGHT = 80.0
"""From this weight on a line is worth narrowing the others for."""

MAX_ERROR_KINDS = 400
"""So many kinds of lines of trouble are told apart in a text."""

_SEEN_CHARS = 400

OUTLIER_NOTE = "unlike all others"
"""The note of a line that is shown for nothing else; of one that is shown anyway it says nothing of use."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A line that is worth more than its neighbours.

    Attributes:
        number: Of the line, 1-based.
        weight: From 0 to 100; what is shown is chosen by it.
        column: The character of the line that it is about, 0-based.
        count: How many lines are of its kind, itself included.
        similar: The numbers of some of these, ascending; not all, and never its own.
        note: What is odd about it, where the line does not say so itself; empty where it does.
        word: Of a line of trouble, characters by which a search finds it and all of its kind; empty of others.
    """

    number: int
    weight: float
    column: int = 0
    count: int = 1
    similar: tuple[int, ...] = ()
    note: str = ""
    word: str = ""


@dataclass(frozen=True, slots=True)
class Digest:
    """What is known of a text.

    Attributes:
        facts: Rows that say what the text is as a whole, the most important first. None begins with a digit, which
            is how a numbered line begins.
        findings: Lines worth showing, in no order; one line may be found several times.
        alerts: Rows like facts that say what is odd where a line for each would take too much room.
    """

    facts: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    alerts: tuple[str, ...] = ()

    def __add__(self, other: "Digest") -> "Digest":
        """Return what both have brought to light."""
        return Digest(self.facts + other.facts, self.findings + other.findings, self.alerts + other.alerts)


def by_place(findings: Iterable[Finding]) -> list[Finding]:
    """Return one finding a place, the heaviest, with what the others know beside it; the heaviest place first.

    A place is a line, or so much of a long one as is seen at once.
    """
    found: dict[tuple[int, int], Finding] = {}
    for finding in sorted(findings, key=lambda finding: -finding.weight):
        part = finding.column // _SEEN_CHARS if finding.column >= FAR_CHARS else -1
        first = found.setdefault((finding.number, part), finding)
        if finding.note not in {"", OUTLIER_NOTE} and not first.note:
            found[finding.number, part] = replace(first, note=finding.note)
    return sorted(found.values(), key=lambda finding: (-finding.weight, finding.number, finding.column))


# How facts are worded: short rows on one line, whatever the text holds that they quote.


MAX_FACT_CHARS = 300

# About 50 tokens of paths and numbers: a preview of 300 has room for several such rows.
ROW_CHARS = 170
_ITEM_CHARS = 90
_SAMPLED_CHARS = 400
_CONTINUED = "\u2026 "

_COLOUR = re.compile(r"(?:\x1b|\\x1b)\[[0-9;]{0,20}[A-Za-z]")


def fact(text: str) -> str:
    """Return *text* as a row: one line, at most 300 characters, with nothing in it that a terminal would act on."""
    row = " ".join(visible(text[: 2 * MAX_FACT_CHARS]).split())
    return row if len(row) <= MAX_FACT_CHARS else f"{row[: MAX_FACT_CHARS - 3]}..."


def rows(label: str, items: Iterable[str], *, most: int = 3, chars: int = ROW_CHARS) -> list[str]:
    """Return rows that list *items*, as many in each as fit; the last says how many are left out.

    Args:
        label: Begins each row.
        items: The most important first; each is cut where it is long.
        most: How many rows there are at most.
        chars: How long one is at most, but for a single item.

    Returns:
        ``["Files: a :1, b :20", "Files, more: c :33; 12 more"]``; none without items.
    """
    waiting = [shortened(item, _ITEM_CHARS) for item in items]
    found: list[str] = []
    while waiting and len(found) < most:
        head = f"{label}, more: " if found else f"{label}: "
        taken = _fitting(waiting, chars - len(head))
        found.append(head + ", ".join(waiting[:taken]))
        del waiting[:taken]
    if waiting:
        found[-1] += f"; {len(waiting):,} more"
    return list(map(fact, found))


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number and what it counts.

    >>> counted(1, "file"), counted(1200, "file"), counted(2, "directory", "directories")
    ('1 file', '1,200 files', '2 directories')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def shortened(text: str, chars: int) -> str:
    """Return *text*, or its two ends where it is longer than *chars*: a path tells most at its end."""
    if len(text) <= chars:
        return text
    head = chars // 3
    return f"{text[:head]}...{text[len(text) - (chars - head - 3) :]}"


def sampled(lines: Sequence[str], most: int = 400) -> list[str]:
    """Return some lines that are not blank: the first of all, and others from everywhere, cut to 400 characters."""
    head = lines[: most // 2]
    step = max(1, (len(lines) - len(head)) // max(most - len(head), 1))
    rest = lines[len(head) :: step][: most - len(head)]
    return [line[:_SAMPLED_CHARS] for line in (*head, *rest) if line.strip()]


def without_colors(lines: Sequence[str]) -> Sequence[str]:
    r"""Return *lines* without colours and ``\r`` at their ends."""
    if not any("\x1b[" in line or "\\x1b[" in line or line.endswith("\r") for line in lines):
        return lines
    return [_COLOUR.sub("", line).rstrip("\r") for line in lines]


def is_continued(line: str) -> bool:
    """Tell whether *line* goes on with the line above it, as a view writes one that is too long."""
    return line.startswith(_CONTINUED)


def share(part: int, whole: int) -> float:
    """Return *part* of *whole* as a number from 0 to 1; 0 of nothing."""
    return part / whole if whole else 0.0


def common_folder(paths: Sequence[str]) -> str:
    """Return the folder that all *paths* lie in, with a slash at its end; empty where it is not worth a word."""
    if len(paths) < 2:  # noqa: PLR2004 - a single path is shown whole
        return ""
    first, last = min(paths), max(paths)
    length = next((place for place, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    folder = first[: first.rfind("/", 0, length) + 1]
    return folder if 4 <= len(folder) <= _ITEM_CHARS else ""  # noqa: PLR2004 - "./" and "src/" cost no more than a word


def _fitting(items: Sequence[str], chars: int) -> int:
    """Return how many of the first items fit; at least one."""
    for place, item in enumerate(items):
        chars -= len(item) + 2
        if chars < -2 and place:  # noqa: PLR2004 - the last one needs no comma
            return place
    return len(items)


# Patterns that look at many lines at once, in time linear in them, whatever the lines hold.


# As much of a text is looked at as a reader needs to know its kind and its parts: 0.1 s of RE2's time.
_MAX_BYTES = 16_000_000


class PatternMatch(NamedTuple):
    """Where a pattern was found.

    Attributes:
        number: Of the line, 1-based.
        column: The byte of the line at which the match begins, 0-based.
        groups: What its groups hold; empty where one has no part in it.
    """

    number: int
    column: int
    groups: tuple[str, ...]


class LinearPattern:
    """A pattern in RE2's syntax, for bytes of UTF-8.

    ``^`` and ``$`` are the ends of a line, which a match never leaves. It is compiled, and RE2 imported, when it is
    first used: a program that only appends needs none of it.
    """

    def __init__(self, pattern: str) -> None:
        """Take *pattern* without looking at it."""
        self._pattern = pattern

    @cached_property
    def compiled(self) -> re.Pattern[bytes]:
        """The compiled pattern."""
        re2: Any = importlib.import_module("re2")
        options = re2.Options()
        options.never_nl = True
        options.log_errors = False
        return cast("re.Pattern[bytes]", re2.compile(b"(?m)" + self._pattern.encode(), options))


def encoded_lines(lines: Sequence[str], chars: int) -> bytes:
    r"""Return *lines* in UTF-8, each cut to *chars*, with ``\n`` between them; at most 16 MB."""
    text = "\n".join([line[:chars] for line in lines] if any(len(line) > chars for line in lines) else lines)
    return text.encode("utf-8", "replace")[:_MAX_BYTES]


def matches(pattern: LinearPattern, text: bytes, most: int) -> Iterator[PatternMatch]:
    """Yield where *pattern* is found in *text*, in order; no more than *most*."""
    number, position = 1, 0
    for count, found in enumerate(pattern.compiled.finditer(text)):
        if count >= most:
            return
        start = found.start()
        number += text.count(b"\n", position, start)
        position = start
        groups = tuple((group or b"").decode("utf-8", "replace") for group in found.groups())
        yield PatternMatch(number, start - (text.rfind(b"\n", 0, start) + 1), groups)


def match_count(pattern: LinearPattern, text: bytes) -> int:
    """Return how often *pattern* is found in *text*."""
    return sum(1 for _ in pattern.compiled.finditer(text))
