"""How much of what can be enumerated the fast tests look at: a third of the points; the slow tests look at all."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings

STEP = 3
MANY_EXAMPLES = 1_000
"""The profile of the slow tests has more."""

each_third = pytest.mark.parametrize(
    "first", [1, *(pytest.param(first, marks=pytest.mark.slow) for first in range(2, STEP + 1))]
)
"""For ``every_fault(..., first=first, step=STEP)``."""


def third_of(values: Sequence[Any]) -> list[Any]:
    """Return *values* as parameters of a test, of which each third one is fast."""
    return [pytest.param(value, marks=[pytest.mark.slow] * (at % STEP > 0)) for at, value in enumerate(values)]


def examples(fast: int, slow: int) -> settings:
    """Return settings with *fast* examples, and with *slow* ones in the slow tests, whatever their profile says."""
    return settings(max_examples=fast if settings().max_examples < MANY_EXAMPLES else slow)


def share_of_examples(divisor: int) -> settings:
    """Return settings with a share of the profile's examples, for what is generated slowly or tested in many ways."""
    return settings(max_examples=max(1, settings().max_examples // divisor))
