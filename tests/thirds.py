"""How much of what can be enumerated the fast tests look at: a third of the points; the slow tests look at all."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings

STEP = 3
MANY_EXAMPLES = 1_000
"""The profile of the slow tests has more."""


def each_of(step: int) -> pytest.MarkDecorator:
    """Give a test the argument *first*, 1 to *step*, of which 1 is fast; its points are ``[first - 1 :: step]``."""
    firsts = [1, *(pytest.param(first, marks=pytest.mark.slow) for first in range(2, step + 1))]
    return pytest.mark.parametrize("first", firsts)


each_third = each_of(STEP)
"""For ``every_fault(..., first=first, step=STEP)``."""


def third_of(values: Sequence[Any]) -> list[Any]:
    """Return *values* as parameters of a test, of which each third one is fast."""
    return [pytest.param(value, marks=[pytest.mark.slow] * (at % STEP > 0)) for at, value in enumerate(values)]


def examples(fast: int, slow: int) -> settings:
    """Return settings with *fast* examples, and with *slow* ones in the slow tests, whatever their profile says."""
    return settings(max_examples=fast if settings().max_examples < MANY_EXAMPLES else slow)
