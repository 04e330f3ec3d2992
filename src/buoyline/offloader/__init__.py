"""The contract of offloading, and what stays in a context for what was offloaded."""

from buoyline.offloader.blocks import Block, block_of, leaving
from buoyline.offloader.placeholder import is_placeholder, placeholder_for
from buoyline.offloader.policy import TurnResult, is_smaller, is_too_large, stub_budgets
from buoyline.offloader.previews import preview
from buoyline.offloader.protocol import (
    Abilities,
    ArchivedBatch,
    ContextArchive,
    Offloader,
    ReadBacks,
    Redactor,
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
    abilities_of,
)
from buoyline.offloader.readback import is_read_back_notice, read_back_limit, read_back_notice
from buoyline.offloader.rules import ToolRule, rule_for
from buoyline.offloader.source import BytesSource, Source, TextSource
from buoyline.offloader.stub import TRUNCATION_MARKER, notice_of, previewed_lines, stub, stub_of, tokens_of, truncated

__all__ = [
    "TRUNCATION_MARKER",
    "Abilities",
    "ArchivedBatch",
    "Block",
    "BytesSource",
    "ContextArchive",
    "Offloader",
    "ReadBacks",
    "Redactor",
    "ResultStore",
    "ResultStreams",
    "ResultWriter",
    "Source",
    "StoredPart",
    "StoredResult",
    "SummaryLog",
    "SupportsAbilities",
    "TextSource",
    "ToolOutput",
    "ToolRule",
    "TranscriptReader",
    "TurnCounter",
    "TurnResult",
    "WindowLog",
    "WindowState",
    "abilities_of",
    "block_of",
    "is_placeholder",
    "is_read_back_notice",
    "is_smaller",
    "is_too_large",
    "leaving",
    "notice_of",
    "placeholder_for",
    "preview",
    "previewed_lines",
    "read_back_limit",
    "read_back_notice",
    "rule_for",
    "stub",
    "stub_budgets",
    "stub_of",
    "tokens_of",
    "truncated",
]
