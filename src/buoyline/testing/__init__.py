"""Conformance suites for your own implementations; needs pytest and pytest-asyncio, imports neither."""

from buoyline.testing.offloader import OffloaderConformance

__all__ = ["OffloaderConformance"]
