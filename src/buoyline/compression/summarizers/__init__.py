"""Summarisers that are somebody else's: a function, or a model."""

from buoyline.compression.summarizers.calling import Answer, CallableSummarizer, SummaryFunction, summarizer_from
from buoyline.compression.summarizers.model import ModelSummarizer
from buoyline.compression.summarizers.retrying import Retries

__all__ = ["Answer", "CallableSummarizer", "ModelSummarizer", "Retries", "SummaryFunction", "summarizer_from"]
