"""Few places for many strings, so that strings which stand together share one pointer."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

FREE_LINES: Final = 40
"""A place of so many lines is half as good as an empty one that holds the same strings."""


def homes(places: Sequence[Sequence[int]], sizes: Mapping[int, int]) -> list[int]:
    """Choose for each string one of the places that hold it, so that few and small places are chosen.

    Greedy weighted set cover: the place that holds most of the strings without a home for its size comes next,
    of equals the newest. The gain of a place only shrinks, so an old gain is a bound, and only the top of the
    heap is ever counted again.

    Args:
        places: For each string the numbers of the places that hold it; none is empty.
        sizes: Lines of each place; one that is missing counts as small.

    Returns:
        A number for each string, in the same order.

    >>> homes([[1, 2], [2, 3], [3]], {})
    [2, 3, 3]
    """
    held: defaultdict[int, set[int]] = defaultdict(set)
    for string, indexes in enumerate(places):
        for index in indexes:
            held[index].add(string)
    chosen = [-1] * len(places)

    def entry(index: int) -> tuple[float, int]:
        return -len(held[index]) / (FREE_LINES + sizes.get(index, 0)), -index

    heap = [entry(index) for index in held]
    heapify(heap)
    while heap:
        index = -heappop(heap)[1]
        waiting = {string for string in held[index] if chosen[string] < 0}
        if len(waiting) < len(held[index]):
            held[index] = waiting
            if waiting:
                heappush(heap, entry(index))
            continue
        for string in waiting:
            chosen[string] = index
    return chosen
