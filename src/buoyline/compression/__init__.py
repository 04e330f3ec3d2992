"""Compression: older messages become a summary that cites the archive.

Here are the configuration, the plan of what is archived, the compressor, the checks of a summary and the summarizers.
Nothing here holds a context or decides when it is compacted: `buoyline.window` does.
"""

from buoyline.compression.compressor import CompressionResult, Compressor, MessageRange
from buoyline.compression.config import ContextConfig
from buoyline.compression.extractive import Extractive
from buoyline.compression.summarizers import CallableSummarizer, ModelSummarizer, SummaryFunction
from buoyline.compression.summary import Draft, Fact, Pointer, SourceMessage, Summarizer, Summary, SummaryRequest

__all__ = [
    "CallableSummarizer",
    "CompressionResult",
    "Compressor",
    "ContextConfig",
    "Draft",
    "Extractive",
    "Fact",
    "MessageRange",
    "ModelSummarizer",
    "Pointer",
    "SourceMessage",
    "Summarizer",
    "Summary",
    "SummaryFunction",
    "SummaryRequest",
]
