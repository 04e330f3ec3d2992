"""The summarizer without a model."""
