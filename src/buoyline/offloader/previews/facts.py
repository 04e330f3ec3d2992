"""How facts are worded: short rows on one line, whatever the text holds that they quote."""

import re
from collections.abc import Iterable, Sequence

from buoyline.offloader.lines import visible

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


def plain(lines: Sequence[str]) -> Sequence[str]:
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
