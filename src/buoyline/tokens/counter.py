"""What it takes to count tokens, and what buoyline needs beyond counting."""

from typing import Protocol


class TokenCounter(Protocol):
    """Count the tokens of a text: all that a counter of one's own must do.

    `as_text_counter` makes a `TextCounter` of it, and of a plain function as well.
    """

    def count(self, text: str) -> int:
        """Return the number of tokens in *text*: 0 or more, the same number for the same text.

        It may be called from several threads at once.
        """
        ...


class TextCounter(TokenCounter, Protocol):
    """Count tokens, and answer the three questions that need not count a whole text.

    A result of 100 MB is offloaded because it exceeds 3,000 tokens and is shown by its head and tail. None of
    that should cost more than a small text does, so each question is a method of its own.
    """

    def exceeds(self, text: str, max_tokens: int) -> bool:
        """Tell whether ``count(text) > max_tokens``, looking at no more of *text* than that takes."""
        ...

    def head(self, text: str, max_tokens: int) -> str:
        """Return a prefix of *text* with ``count(prefix) <= max_tokens``, as long as reasonably possible.

        It is *text* itself where that does not exceed *max_tokens*, and may be empty.

        Raises:
            ValueError: *max_tokens* is negative.
        """
        ...

    def tail(self, text: str, max_tokens: int) -> str:
        """Return a suffix of *text* with ``count(suffix) <= max_tokens``, as long as reasonably possible.

        It is *text* itself where that does not exceed *max_tokens*, and may be empty.

        Raises:
            ValueError: *max_tokens* is negative.
        """
        ...


def require_token_limit(max_tokens: int) -> None:
    """Refuse a limit that no text can keep.

    Raises:
        ValueError: *max_tokens* is negative.
    """
    if max_tokens < 0:
        msg = f"max_tokens must be 0 or more, got {max_tokens}; even the empty text has 0 tokens"
        raise ValueError(msg)
