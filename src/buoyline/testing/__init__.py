"""Conformance suites for your own counter or offloader.

They need pytest and pytest-asyncio, but import neither on loading; docs/internals/testing.md shows how to run them.
Tests of buoyline itself do not belong here.
"""

import sys

if "pytest" in sys.modules:
    # Otherwise a failure in an inherited test does not show the values that it compared.
    sys.modules["pytest"].register_assert_rewrite("buoyline.testing.suites")

from buoyline.testing.suites import HOSTILE_IDS, HOSTILE_TEXTS, CounterConformance, OffloaderConformance

__all__ = [
    "HOSTILE_IDS",
    "HOSTILE_TEXTS",
    "CounterConformance",
    "OffloaderConformance",
]
