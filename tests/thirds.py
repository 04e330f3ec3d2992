"""How much of what can be enumerated the fast tests look at: a third of the points; the slow tests look at all."""

import pytest
from hypothesis import settings

STEP = 3

each_third = pytest.mark.parametrize(
    "first", [1, *(pytest.param(first, marks=pytest.mark.slow) for first in range(2, STEP + 1))]
)
"""For ``every_fault(..., first=first, step=STEP)``."""


def share_of_examples(divisor: int) -> settings:
    """Return settings with a share of the profile's examples, for what is generated slowly or tested in many ways."""
    return settings(max_examples=max(1, settings().max_examples // divisor))
