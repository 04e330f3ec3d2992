"""Compression: older messages become a summary that cites the archive.

Here are the configuration, the plan of what is archived, the compressor, the checks of a summary and the summarizers.
Nothing here holds a context or decides when it is compacted: `buoyline.window` does.
"""

from buoyline.compression.compressor import CompressionResult, Compressor, MessageRange
from buoyline.compression.config import ContextConfig
from buoyline.compression.extractive import Extractive
from buoyline.compression.plan import Plan, legal_cut_before, legal_cuts, pair_spans
from buoyline.compression.summarizers import CallableSummarizer, ModelSummarizer, SummaryFunction
from buoyline.compression.summary import (
    FIELDS,
    POINTER,
    Draft,
    Fact,
    Pointer,
    SourceMessage,
    Summarizer,
    Summary,
    SummaryRequest,
    pointers_in,
    summary_from,
)

__all__ = [
    "FIELDS",
    "POINTER",
    "CallableSummarizer",
    "CompressionResult",
    "Compressor",
    "ContextConfig",
    "Draft",
    "Extractive",
    "Fact",
    "MessageRange",
    "ModelSummarizer",
    "Plan",
    "Pointer",
    "SourceMessage",
    "Summarizer",
    "Summary",
    "SummaryFunction",
    "SummaryRequest",
    "legal_cut_before",
    "legal_cuts",
    "pair_spans",
    "pointers_in",
    "summary_from",
]
