"""Where a conversation may be cut, and what stands again behind the cut.

Pure. No call is parted from its result, however ids repeat or are missing; the system message, pins and the user's
newest words are never lost; something always stays.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from buoyline.compression import legal_cuts, pair_spans
from buoyline.management.situation import Held, Situation
from buoyline.messages import Message


class Cutting:
    """The ways to cut a situation, worked out once: a manager compares many of them.

    Attributes:
        cuts: Numbers of oldest messages that may leave so that at least one does not stand again, best first: in
            ascending order those that hold all calls without a result, then those that hold only the newest turn's.
        head: Positions in the head of what stays there.
    """

    def __init__(self, situation: Situation) -> None:
        """Look at *situation*."""
        self._views = views = situation.views
        preserved = set(closed(views, _preserved(situation.messages)))
        self._protected = closed(views, (*preserved, *_current(situation)))
        passing = [held.is_counted and at not in preserved for at, held in enumerate(situation.messages)]
        protected = set(self._protected)
        again = [is_passing and at in protected for at, is_passing in enumerate(passing)]
        self._passing, self._again = [0, *accumulate(passing)], [0, *accumulate(again)]
        head = [held.message for held in situation.head]
        lasting = closed(head, _preserved(situation.head))
        self.head = closed(head, (*lasting, *_current_in_head(situation)))
        self._passing_head = len(self.head) - len(lasting)
        self.cuts = [cut for cut in _cuts(views) if self.leaving(cut)]

    def standing(self, cut: int) -> tuple[int, ...]:
        """Return the positions before *cut*, ascending, of what stands again."""
        return self._protected[: bisect_left(self._protected, cut)]

    def closed_with(self, positions: Iterable[int], cut: int) -> tuple[int, ...]:
        """Return what stands again before *cut* where *positions* shall, too, with all that belongs to them."""
        return closed(self._views, (*self.standing(cut), *positions))

    def leaving(self, cut: int) -> int:
        """Return how many messages before *cut* do not stand again."""
        return cut - len(self.standing(cut))

    def counted(self, cut: int) -> int:
        """Return how many messages *cut* leaves, without what is preserved for good."""
        return self._passing_head + self._again[cut] + self._passing[-1] - self._passing[cut]


def closed(messages: Sequence[Message], positions: Iterable[int]) -> tuple[int, ...]:
    """Return *positions*, ascending, with those of all calls and results that belong to one of them.

    A result alone would be an orphan, and its call alone would wait for ever; so either all of a group stand or none.
    """
    found = set(positions)
    spans = pair_spans(messages)
    is_growing = bool(found)
    while is_growing:
        joined = {end for span in spans if found.intersection(span) for end in span}
        is_growing = not joined <= found
        found |= joined
    return tuple(sorted(found))


def _preserved(messages: Sequence[Held]) -> Iterator[int]:
    """Yield the positions of what stays for good: system messages, pins, and what stands for others."""
    return (at for at, held in enumerate(messages) if held.pinned or not held.is_counted)


def _current(situation: Situation) -> tuple[int, ...]:
    current = situation.current_user()
    return () if current is None else (current,)


def _current_in_head(situation: Situation) -> tuple[int, ...]:
    """Return the position of the user's newest words in the head; none where there are newer ones behind it.

    Those stood there for being the newest; they go when they no longer are, with what stood with them.
    """
    spoken = [at for at, held in enumerate(situation.head) if held.is_spoken_by_user]
    return tuple(spoken[-1:]) if situation.current_user() is None else ()


def _cuts(views: Sequence[Message]) -> Iterator[int]:
    """Yield legal cuts; where an orphaned result would come first behind one, and may leave as well, the next instead.

    A call that waits for its result is held, and so is all behind it. Where it is not of the newest turn, the result
    will hardly come any more; but such a cut is only the second best.
    """
    held = legal_cuts(views)
    speaker = max((at for at, view in enumerate(views) if view.role == "assistant"), default=0)
    others = [cut for cut in legal_cuts(views, hold_pending=False) if cut <= speaker]
    orphans = _orphans(views)
    for cuts in (held, sorted(set(others) - set(held))):
        allowed = set(cuts)
        yield from (cut for cut in cuts if cut not in orphans or cut + 1 not in allowed)


def _orphans(messages: Sequence[Message]) -> set[int]:
    """Return the positions of messages that hold nothing but results of no call."""
    paired = {end for _, end in pair_spans(messages)}
    return {at for at, message in enumerate(messages) if message.role == "tool" and at not in paired}
