"""Summarisers that are somebody else's: a function, or a model."""

from buoyline.compression.summarizers.attempts import Retries
from buoyline.compression.summarizers.callables import (
    CallableSummarizer,
    SummaryAnswer,
    SummaryFunction,
    summarizer_from,
)
from buoyline.compression.summarizers.model import ModelSummarizer

__all__ = ["CallableSummarizer", "ModelSummarizer", "Retries", "SummaryAnswer", "SummaryFunction", "summarizer_from"]
