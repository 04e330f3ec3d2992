"""Summarisers that are somebody else's: a function, or a model."""

from buoyline.compression.summarizers.attempts import Retries
from buoyline.compression.summarizers.callables import Answer, CallableSummarizer, SummaryFunction, summarizer_from
from buoyline.compression.summarizers.model import ModelSummarizer

__all__ = ["Answer", "CallableSummarizer", "ModelSummarizer", "Retries", "SummaryFunction", "summarizer_from"]
