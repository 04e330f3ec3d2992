"""Summaries: older messages become a summary that cites the archive.

Here are the configuration, the plan of what is archived, the compressor, the checks of a summary and the summarizers.
Nothing here holds a context or decides when it is compacted.
"""

from buoyline.summaries.compressor import CompressionResult, Compressor
from buoyline.summaries.config import ContextConfig
from buoyline.summaries.extractive.summarizer import Extractive
from buoyline.summaries.plan import Plan
from buoyline.summaries.pointers import Pointer
from buoyline.summaries.summarizers.function import CallableSummarizer
from buoyline.summaries.summarizers.model import ModelSummarizer
from buoyline.summaries.summary import (
    Draft,
    Fact,
    ResultExcerpt,
    SourceMessage,
    Summarizer,
    Summary,
    SummaryRequest,
)

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
