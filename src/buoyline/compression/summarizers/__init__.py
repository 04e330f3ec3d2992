"""Summarizers that ask a model or a function."""
