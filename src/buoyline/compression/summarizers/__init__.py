"""Summarizers of others: a function, or a model. The one that needs neither is `buoyline.compression.extractive`."""
