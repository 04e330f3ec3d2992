"""Make the messages fit the window of the model that summarises them, whatever their number and size.

Pure. The loudest blocks are cut first, results before words; where even that is too much, the middle goes. What is
left out is named by its lines, so the reader knows that it is there. Nothing here fails: the last resort is to cut
the text where the room ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from buoyline.compression.numbered import Block, NumberedLine
from buoyline.compression.summarizers.spelling import DATA, OMITTED, SPOKEN, omission, spelled, spelled_lines
from buoyline.tokens import TextCounter

LEAST_TOKENS: Final = 40
"""Of a block that is cut: below, the notice of what was left out would take the room of the text itself."""

HEAD_SHARE: Final = 0.6
"""Of a cut block, for its beginning; the rest is for its end, where outcomes stand."""

FIRST_SHARE: Final = 0.25
"""Of the whole where the middle goes, for the beginning, which holds the task; the rest is for the newest."""

USER_WEIGHT: Final = 6
ASSISTANT_WEIGHT: Final = 2
"""So many times what a result may take, before words are cut."""

_MAX_TRIES = 12
_SHRINK = 0.8
_OMISSION_TOKENS = 30


@dataclass(frozen=True)
class _Piece:
    block: Block
    text: str
    tokens: int

    @cached_property
    def weight(self) -> int:
        if self.block.is_result:
            return 1
        return USER_WEIGHT if self.block.role == "user" else ASSISTANT_WEIGHT

    def allowed(self, cap: float) -> float:
        return min(self.tokens, max(cap * self.weight, LEAST_TOKENS))


def fit(blocks: Sequence[Block], transcript: str, max_tokens: int, counter: TextCounter) -> str:
    """Return *blocks* as text of at most *max_tokens*, as much of them as goes.

    Args:
        blocks: In reading order.
        transcript: Path whose lines need no path.
        max_tokens: For the text; nothing at all below 1.
        counter: Counts them.
    """
    pieces = [
        _Piece(block, text, counter.count(text) + 1) for block in blocks if (text := spelled(block, transcript)) != ""
    ]
    room: float = max_tokens
    for _ in range(_MAX_TRIES):
        text = _joined(pieces, transcript, room)
        if not counter.exceeds(text, max(max_tokens, 0)):
            return text
        room *= _SHRINK
    return counter.head(text, max(max_tokens, 0))


def _joined(pieces: Sequence[_Piece], transcript: str, room: float) -> str:
    if sum(piece.tokens for piece in pieces) <= room:
        return "\n".join(piece.text for piece in pieces)
    cap = _cap(pieces, room)
    if cap is not None:
        return "\n".join(_cut(piece, piece.allowed(cap), transcript) for piece in pieces)
    first, last = _ends(pieces, room - _OMISSION_TOKENS)
    left_out = [line for piece in pieces[first:last] for line in piece.block.lines]
    shown = [_cut(piece, piece.allowed(0), transcript) for piece in (*pieces[:first], *pieces[last:])]
    return "\n".join([*shown[:first], omission(left_out), *shown[first:]])


def _cap(pieces: Sequence[_Piece], room: float) -> float | None:
    """Return how much a result may take so that all goes into *room*; None where not even the least does."""
    if sum(piece.allowed(0) for piece in pieces) > room:
        return None
    low, high = 0.0, room
    while high - low > 1:
        middle = (low + high) / 2
        if sum(piece.allowed(middle) for piece in pieces) > room:
            high = middle
        else:
            low = middle
    return low


def _ends(pieces: Sequence[_Piece], room: float) -> tuple[int, int]:
    """Return how many pieces of the beginning stay, and from which one on those of the end do."""
    first, taken = 0, 0.0
    while first < len(pieces) and taken + pieces[first].allowed(0) <= FIRST_SHARE * room:
        taken += pieces[first].allowed(0)
        first += 1
    last = len(pieces)
    while last > first and taken + pieces[last - 1].allowed(0) <= room:
        last -= 1
        taken += pieces[last].allowed(0)
    return first, last


def _cut(piece: _Piece, max_tokens: float, transcript: str) -> str:
    """Return the beginning and the end of a block within about *max_tokens*."""
    if piece.tokens <= max_tokens:
        return piece.text
    bar = DATA if piece.block.is_result else SPOKEN
    chars = int(max(max_tokens - _OMISSION_TOKENS, 0) * len(piece.text) / piece.tokens)
    lines = piece.block.lines
    head = _fitting(lines, int(chars * HEAD_SHARE), transcript)
    tail = _fitting(lines[head:][::-1], chars - int(chars * HEAD_SHARE), transcript)
    middle = lines[head : len(lines) - tail]
    shown = [spelled_lines(lines[:head], transcript, bar)] if head else []
    if head == 0 and middle:
        first = spelled_lines(middle[:1], transcript, bar)
        shown, middle = [first[:chars] + OMITTED if len(first) > chars else first], middle[1:]
    shown += [omission(middle)] if middle else []
    shown += [spelled_lines(lines[len(lines) - tail :], transcript, bar)] if tail else []
    return "\n".join(shown)


def _fitting(lines: Sequence[NumberedLine], chars: int, transcript: str) -> int:
    """Return how many of *lines* go into so many characters."""
    count = 0
    for line in lines:
        chars -= len(spelled_lines([line], transcript, SPOKEN)) + 1
        if chars < 0:
            break
        count += 1
    return count
