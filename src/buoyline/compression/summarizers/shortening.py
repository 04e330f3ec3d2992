"""Bring the fields of a summary within their tokens by taking out whole lines and sentences, the last ones first.

Pure. For a model that was asked twice and still writes too much: what it wrote first is what it held most needed.
"""

import re
from collections.abc import Mapping

from buoyline.tokens import TextCounter

_SENTENCE_END = re.compile(r"(?<=[.!?\])])\s+|(?<=[\u3002\uff01\uff1f])")
_SHRINK = 0.9
_MAX_TRIES = 30


def total(fields: Mapping[str, str], counter: TextCounter) -> int:
    """Count the tokens of all fields as they are shown, one below the other."""
    return counter.count("\n".join(fields.values()))


def shortened(fields: Mapping[str, str], max_tokens: int, counter: TextCounter) -> dict[str, str]:
    """Return *fields* within *max_tokens* together, each cut by as much as it exceeds what the shorter ones leave.

    Returns:
        The same fields; each keeps its beginning, up to the end of a sentence where one is near.
    """
    found = dict(fields)
    room: float = max_tokens
    for _ in range(_MAX_TRIES):
        if total(found, counter) <= max_tokens:
            return found
        cap = _cap([counter.count(text) for text in fields.values()], room)
        found = {name: _cut(text, cap, counter) for name, text in fields.items()}
        room *= _SHRINK
    return dict.fromkeys(fields, "") if total(found, counter) > max_tokens else found


def _cap(counts: list[int], room: float) -> int:
    """Return the most that one field may take so that all go into *room*."""
    waiting = sorted(counts)
    for position, count in enumerate(waiting):
        share = room / (len(waiting) - position)
        if count > share:
            return max(int(share), 0)
        room -= count
    return max(counts, default=0)


def _cut(text: str, max_tokens: int, counter: TextCounter) -> str:
    if not counter.exceeds(text, max_tokens):
        return text
    head = counter.head(text, max_tokens)
    ends = [match.start() for match in _SENTENCE_END.finditer(head)]
    ends += [position for position, char in enumerate(head) if char == "\n"]
    end = max(ends, default=0)
    return head[:end].rstrip() if end * 2 > len(head) else head[: max(head.rfind(" "), 0)].rstrip() or head.rstrip()
