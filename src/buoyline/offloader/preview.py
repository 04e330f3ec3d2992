"""What is shown of a text that is too long: its head and its tail, with line numbers.

Pure and deterministic.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from buoyline.offloader.lines import count_lines
from buoyline.tokens import TextCounter

_HEAD_SHARE = 0.6
_SHOWN_LINE_CHARS = 1000

_NUMBERED = re.compile(r"([1-9][0-9]{0,15}): (.*)", re.DOTALL)
_CUT = re.compile(r"(.*) \[\.\.\. ([1-9][0-9]{0,2}(?:,[0-9]{3}){0,5}) more characters\]", re.DOTALL)


class Shown(NamedTuple):
    """A numbered line of a preview; *cut_chars* characters of it are left out behind *text*."""

    number: int
    text: str
    cut_chars: int = 0

    def __str__(self) -> str:
        """Return the line as the preview shows it."""
        rest = f" [... {self.cut_chars:,} more characters]" if self.cut_chars else ""
        return f"{self.number}: {self.text}{rest}"


def preview(text: str, max_tokens: int, counter: TextCounter) -> str:
    """Show the head and the tail of *text*, three fifths and two fifths, with the lines' own numbers.

    Args:
        text: The whole text; no more of it is counted than what is shown takes, or nearly.
        max_tokens: For the whole preview, line numbers and the mark of the gap included.
        counter: Counts them.

    Returns:
        Lines such as ``17: ...``, those over 1,000 characters cut, and between head and tail a line that names
        what is left out; all lines where they fit; ``""`` where not even a part of the first one does.
    """
    total = count_lines(text)
    head, tail = _chosen(text, total, max_tokens, counter)
    while head:
        shown = _joined(head, tail, total)
        excess = counter.count(shown) - max_tokens
        if excess <= 0:
            return shown
        if tail and len(tail) * _HEAD_SHARE >= len(head) * (1 - _HEAD_SHARE):
            tail = tail[1:]
        elif len(head) > 1:
            head = head[:-1]
        else:
            head = _beginning(head[0], counter.count(head[0].text) - excess, counter)
    return ""


def shown_lines(body: str) -> list[Shown]:
    """Read a preview back.

    Args:
        body: What `preview` returned.

    Returns:
        Its lines in order, without the mark of the gap; each reads as it did, since a line that itself ends like
        one that was cut cannot be told from it.
    """
    rows = (_NUMBERED.fullmatch(row) for row in body.split("\n"))
    return [_read_back(int(row[1]), row[2]) for row in rows if row is not None]


def _read_back(number: int, text: str) -> Shown:
    cut = _CUT.fullmatch(text)
    return Shown(number, text) if cut is None else Shown(number, cut[1], int(cut[2].replace(",", "")))


def _chosen(text: str, total: int, max_tokens: int, counter: TextCounter) -> tuple[list[Shown], list[Shown]]:
    """Choose lines by what each takes on its own, which is close to what they take together."""
    if not counter.exceeds(text, max_tokens):
        whole = list(_from_start(text))
        if not counter.exceeds(_joined(whole, [], total), max_tokens):
            return whole, []
    room = max_tokens - (counter.count(_gap(1, total, total)) if total > 1 else 0)
    share = int(room * _HEAD_SHARE) if total > 1 else room
    head = _fitting(_from_start(text), share, counter)
    if not head:
        head = [short for first in islice(_from_start(text), 1) for short in _beginning(first, share, counter)]
    room -= sum(_cost(line, counter) for line in head)
    tail = _fitting(islice(_from_end(text, total), total - len(head)), room, counter)
    return head, tail[::-1]


def _fitting(lines: Iterable[Shown], max_tokens: int, counter: TextCounter) -> list[Shown]:
    taken: list[Shown] = []
    for line in lines:
        max_tokens -= _cost(line, counter)
        if max_tokens < 0:
            break
        taken.append(line)
    return taken


def _cost(line: Shown, counter: TextCounter) -> int:
    return max(1, counter.count(f"{line}\n"))


def _beginning(line: Shown, max_tokens: int, counter: TextCounter) -> list[Shown]:
    """Return *line* with no more than *max_tokens* of its text; none where that leaves nothing of it."""
    kept = counter.head(line.text, max_tokens) if max_tokens > 0 else ""
    return [Shown(line.number, kept, line.cut_chars + len(line.text) - len(kept))] if kept else []


def _joined(head: Sequence[Shown], tail: Sequence[Shown], total: int) -> str:
    first_hidden = head[-1].number + 1 if head else 1
    last_hidden = tail[0].number - 1 if tail else total
    gap = [_gap(first_hidden, last_hidden, total)] if first_hidden <= last_hidden else []
    return "\n".join([*map(str, head), *gap, *map(str, tail)])


def _gap(first: int, last: int, total: int) -> str:
    what = f"line {first}" if first == last else f"lines {first}-{last}"
    return f"[{what} of {total} not shown]"


def _from_start(text: str) -> Iterator[Shown]:
    start, number = 0, 1
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        yield _shown(number, text, start, end)
        start, number = end + 1, number + 1


def _from_end(text: str, total: int) -> Iterator[Shown]:
    end = len(text) - text.endswith("\n")
    for number in range(total, 0, -1):
        start = text.rfind("\n", 0, end) + 1
        yield _shown(number, text, start, end)
        end = start - 1


def _shown(number: int, text: str, start: int, end: int) -> Shown:
    end -= text.endswith("\r", start, end)
    shown_end = min(end, start + _SHOWN_LINE_CHARS)
    return Shown(number, text[start:shown_end], end - shown_end)
