"""Count tokens, and cut texts to a number of them, without a network and without being stalled by any text.

Importing this package is cheap: tiktoken and the vocabulary are loaded when the first text is counted.
"""

from buoyline.tokens.counter import HeuristicCounter, TextCounter, TokenCounter, as_text_counter
from buoyline.tokens.models import context_size
from buoyline.tokens.o200k import O200kCounter, default_counter
from buoyline.tokens.usage import Usage, usage_of

__all__ = [
    "HeuristicCounter",
    "O200kCounter",
    "TextCounter",
    "TokenCounter",
    "Usage",
    "as_text_counter",
    "context_size",
    "default_counter",
    "usage_of",
]
