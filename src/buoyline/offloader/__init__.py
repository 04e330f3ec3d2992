"""Offloading: the contract of an offloader, the policy, and the texts that replace offloaded content.

Nothing here stores anything; workspaces do.
"""

from buoyline.offloader.policy import ToolRule
from buoyline.offloader.protocol import (
    Abilities,
    ArchivedBatch,
    ContextArchive,
    ModelCall,
    Offloader,
    Redactor,
    RereadCheck,
    ResultStore,
    ResultStreams,
    ResultWriter,
    StoredPart,
    StoredResult,
    SummaryLog,
    ToolOutput,
    TranscriptReader,
    TurnCounter,
    WindowLog,
    WindowState,
)
from buoyline.offloader.stub import stub_for

__all__ = [
    "Abilities",
    "ArchivedBatch",
    "ContextArchive",
    "ModelCall",
    "Offloader",
    "Redactor",
    "RereadCheck",
    "ResultStore",
    "ResultStreams",
    "ResultWriter",
    "StoredPart",
    "StoredResult",
    "SummaryLog",
    "ToolOutput",
    "ToolRule",
    "TranscriptReader",
    "TurnCounter",
    "WindowLog",
    "WindowState",
    "stub_for",
]
