"""Token counts of texts and messages, cuts to a number of tokens, and the limits of models. No network.

Importing this package is cheap: tiktoken and the vocabulary are loaded when the first text is counted. Budgets and
decisions about them do not belong here.
"""

from buoyline.tokens.counter import TextCounter, TokenCounter, as_text_counter
from buoyline.tokens.o200k import default_counter
from buoyline.tokens.usage import context_size

__all__ = [
    "TextCounter",
    "TokenCounter",
    "as_text_counter",
    "context_size",
    "default_counter",
]
