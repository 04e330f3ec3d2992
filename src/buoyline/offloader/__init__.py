"""Offloading: the contract of an offloader, the policy, and the texts that replace offloaded content.

Nothing here stores anything; workspaces do.
"""

from buoyline.offloader.hook import stub_for
from buoyline.offloader.policy import ToolRule
from buoyline.offloader.protocol import (
    Abilities,
    ArchivedBatch,
    ContextArchive,
    Offloader,
    Redactor,
    RereadCheck,
    ResultStore,
    ResultStreams,
    ResultWriter,
    StoredPart,
    StoredResult,
    SummaryLog,
    SupportsAbilities,
    ToolOutput,
    TranscriptReader,
    TurnCounter,
    WindowLog,
    WindowState,
)
from buoyline.previews import preview
from buoyline.previews.source import Source

__all__ = [
    "Abilities",
    "ArchivedBatch",
    "ContextArchive",
    "Offloader",
    "Redactor",
    "RereadCheck",
    "ResultStore",
    "ResultStreams",
    "ResultWriter",
    "Source",
    "StoredPart",
    "StoredResult",
    "SummaryLog",
    "SupportsAbilities",
    "ToolOutput",
    "ToolRule",
    "TranscriptReader",
    "TurnCounter",
    "WindowLog",
    "WindowState",
    "preview",
    "stub_for",
]
