"""Summaries: older messages become a summary that cites the archive.

Here are the configuration, the plan of what is archived, the compressor, the checks of a summary and the summarizers.
Nothing here holds a context or decides when it is compacted.
"""

from buoyline.compression.compressor import CompressionResult, Compressor, Plan
from buoyline.compression.config import ContextConfig
from buoyline.compression.extractive.choose import Extractive
from buoyline.compression.summarizers.model import CallableSummarizer, ModelSummarizer
from buoyline.compression.summary import (
    Draft,
    Fact,
    ResultExcerpt,
    SourceMessage,
    Summarizer,
    Summary,
    SummaryRequest,
)
from buoyline.compression.text import Pointer

__all__ = [
    "CallableSummarizer",
    "CompressionResult",
    "Compressor",
    "ContextConfig",
    "Draft",
    "Extractive",
    "Fact",
    "ModelSummarizer",
    "Plan",
    "Pointer",
    "ResultExcerpt",
    "SourceMessage",
    "Summarizer",
    "Summary",
    "SummaryRequest",
]
