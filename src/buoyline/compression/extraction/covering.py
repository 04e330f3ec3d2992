"""Which strings are said, and with which lines behind them: much needed ones, and few places to cite."""

from collections import defaultdict
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

ROUNDS: Final = 12
"""Of halving the price of a token: 12 find it to a part in four thousand."""


class Wanted(NamedTuple):
    """A string that could be said.

    Attributes:
        need: How likely it is needed, above 0.
        tokens: What it takes to say it.
        windows: Numbers of the places that hold it; none is empty.
    """

    need: float
    tokens: int
    windows: Sequence[int]


def allotted(wanted: Sequence[Wanted], mark_tokens: Sequence[int], max_tokens: float) -> dict[int, list[int]]:
    """Choose strings, and for each one of the places that hold it, so that much is said that is needed.

    Each place that is cited costs its mark, so that a string which stands beside others is cheaper than one alone.
    A token has a price; at a price, a string is worth its need less the price of its tokens, and a place is worth its
    strings less the price of its mark. The most valuable place comes first, and the lowest price that keeps to
    *max_tokens* is looked for: a Lagrangian relaxation of the budgeted maximum coverage problem.

    Args:
        wanted: The strings.
        mark_tokens: What each place costs.
        max_tokens: For strings and marks.

    Returns:
        For each place that is cited the positions of its strings in *wanted*.

    >>> allotted([Wanted(0.5, 2, [0, 1]), Wanted(0.5, 2, [1]), Wanted(0.2, 2, [2])], [8, 8, 8], 12)
    {1: [0, 1]}
    """
    low, high = 0.0, max((string.need / string.tokens for string in wanted), default=0.0)
    best: dict[int, list[int]] = {}
    for _ in range(ROUNDS):
        price = (low + high) / 2
        found = _at_price(wanted, mark_tokens, price)
        if _tokens(found, wanted, mark_tokens) <= max_tokens:
            best, high = found, price
        else:
            low = price
    return best


def _at_price(wanted: Sequence[Wanted], mark_tokens: Sequence[int], price: float) -> dict[int, list[int]]:
    values = [string.need - price * string.tokens for string in wanted]
    held: defaultdict[int, list[int]] = defaultdict(list)
    for position, string in enumerate(wanted):
        for window in string.windows if values[position] > 0 else ():
            held[window].append(position)
    chosen: dict[int, list[int]] = {}
    taken: set[int] = set()

    def gain(window: int) -> float:
        return sum(values[position] for position in held[window]) - price * mark_tokens[window]

    # The gain of a place only shrinks, so an old gain is a bound, and only the top of the heap is counted again.
    heap = [(-found, -window) for window in held if (found := gain(window)) > 0]
    heapify(heap)
    while heap:
        window = -heappop(heap)[1]
        left = [position for position in held[window] if position not in taken]
        if len(left) < len(held[window]):
            held[window] = left
            if (found := gain(window)) > 0:
                heappush(heap, (-found, -window))
            continue
        chosen[window] = left
        taken.update(left)
    return chosen


def _tokens(found: dict[int, list[int]], wanted: Sequence[Wanted], mark_tokens: Sequence[int]) -> int:
    return sum(
        mark_tokens[window] + sum(wanted[position].tokens for position in positions)
        for window, positions in found.items()
    )
