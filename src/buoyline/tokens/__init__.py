"""Count tokens, and cut texts to a number of them, without a network and without being stalled by any text.

Importing this package is cheap: tiktoken and the vocabulary are loaded when the first text is counted.
"""

from buoyline.tokens.bisection import as_text_counter
from buoyline.tokens.counter import TextCounter, TokenCounter
from buoyline.tokens.o200k import O200kCounter, default_counter

__all__ = [
    "O200kCounter",
    "TextCounter",
    "TokenCounter",
    "as_text_counter",
    "default_counter",
]
