"""Summarizers of others: a function, or a model. The one that needs neither is `buoyline.compression.extractive`."""

from buoyline.compression.summarizers.attempts import Retries
from buoyline.compression.summarizers.callables import (
    CallableSummarizer,
    SummaryAnswer,
    SummaryFunction,
    summarizer_from,
)
from buoyline.compression.summarizers.model import ModelSummarizer

__all__ = ["CallableSummarizer", "ModelSummarizer", "Retries", "SummaryAnswer", "SummaryFunction", "summarizer_from"]
