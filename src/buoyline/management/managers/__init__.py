"""The managers there are, and how a document calls them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from buoyline.management.managers.compressing import Compression
from buoyline.management.managers.images import ImageLimit
from buoyline.management.managers.masking import Masking
from buoyline.management.managers.offloading import Offloading
from buoyline.management.managers.pinning import Pinning
from buoyline.management.managers.settings import Settings
from buoyline.management.managers.sliding import SlidingWindow
from buoyline.management.managers.summarizing import Summarization
from buoyline.management.managers.truncating import OutputTruncation

MANAGERS: Final[Mapping[str, type[Settings]]] = MappingProxyType(
    {
        manager.type_name: manager
        for manager in (
            SlidingWindow,
            Summarization,
            OutputTruncation,
            Offloading,
            Masking,
            Pinning,
            ImageLimit,
            Compression,
        )
    }
)
"""Managers by the ``type`` of an entry; the first three are OpenSearch's."""

__all__ = [
    "MANAGERS",
    "Compression",
    "ImageLimit",
    "Masking",
    "Offloading",
    "OutputTruncation",
    "Pinning",
    "Settings",
    "SlidingWindow",
    "Summarization",
]
