"""The contract of offloading, and what stays in a context for what was offloaded."""

from buoyline.offloader.policy import is_smaller, is_too_large
from buoyline.offloader.preview import preview
from buoyline.offloader.protocol import (
    Abilities,
    ArchivedBatch,
    ContextArchive,
    Offloader,
    Redactor,
    ResultStore,
    StoredResult,
    SummaryLog,
    SupportsAbilities,
    TurnCounter,
    WindowLog,
    WindowState,
    abilities_of,
)
from buoyline.offloader.stub import TRUNCATION_MARKER, notice_of, previewed_lines, stub, truncated

__all__ = [
    "TRUNCATION_MARKER",
    "Abilities",
    "ArchivedBatch",
    "ContextArchive",
    "Offloader",
    "Redactor",
    "ResultStore",
    "StoredResult",
    "SummaryLog",
    "SupportsAbilities",
    "TurnCounter",
    "WindowLog",
    "WindowState",
    "abilities_of",
    "is_smaller",
    "is_too_large",
    "notice_of",
    "preview",
    "previewed_lines",
    "stub",
    "truncated",
]
