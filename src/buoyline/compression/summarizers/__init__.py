"""Summarizers that ask a function or a model.

Their requests, retries and the reading of answers are here. The summarizer that needs no model is in
`buoyline.compression.extractive`; the check of an answer against the archive is in `buoyline.compression`.
"""
