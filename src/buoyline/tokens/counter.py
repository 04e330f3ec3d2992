"""The contracts of token counters, a counter built from a plain function, and the end of a text."""

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, cast


class TokenCounter(Protocol):
    """Counts the tokens of a text; a counter of your own needs no more.

    `as_text_counter` makes a `TextCounter` of it, and of a plain function as well.
    """

    def count(self, text: str) -> int:
        """Return the number of tokens in *text*: 0 or more, the same number for the same text.

        It may be called from several threads at once.
        """
        ...


class TextCounter(TokenCounter, Protocol):
    """Counts tokens, and answers two questions without counting a whole text.

    A result of 100 MB is offloaded because it exceeds 3,000 tokens, and its beginning is shown. That should cost no
    more than for a small text, so each question is a method of its own.
    """

    def exceeds(self, text: str, max_tokens: int) -> bool:
        """Return whether ``count(text) > max_tokens``, reading no more of *text* than necessary."""
        ...

    def head(self, text: str, max_tokens: int) -> str:
        """Return a prefix of *text* with ``count(prefix) <= max_tokens``, as long as reasonably possible.

        It is *text* itself if that does not exceed *max_tokens*, and may be empty; it is for a negative limit.
        """
        ...


_MOST_CHARS_PER_TOKEN = 8
"""On average, in long texts of words."""


def end_of(text: str, max_tokens: int, counter: TextCounter) -> str:
    """Return a suffix of *text* within *max_tokens* that takes most of them; *text* itself if it fits."""
    if not counter.exceeds(text, max_tokens):
        return text
    chars = min(_MOST_CHARS_PER_TOKEN * max(max_tokens, 0), len(text))
    while chars and counter.exceeds(text[-chars:], max_tokens):
        chars = chars * 15 // 16
    return text[len(text) - chars :]


_METHODS = ("count", "exceeds", "head")
_FIRST_CHARS_PER_TOKEN = 4
_FEW_CHARS = 1_024


def as_text_counter(counter: TokenCounter | Callable[[str], int]) -> TextCounter:
    """Return *counter* itself if it has all methods of a `TextCounter`, else a `BisectingCounter` around it.

    It is an object with a ``count(text)`` method, or a function that takes a text and returns its tokens, 0 or more.

    Raises:
        TypeError: *counter* is neither, for example the name of a model, or a class instead of an instance.
    """
    given: object = counter
    if not isinstance(given, type | Sequence):  # a string and a list have a count() that counts something else
        if all(callable(getattr(given, method, None)) for method in _METHODS):
            return cast("TextCounter", counter)
        count: object = getattr(given, "count", given)
        if callable(count):
            return BisectingCounter(cast("Callable[[str], int]", count))
    msg = (
        f"{counter!r} cannot count tokens; pass an object with count(text), or a function from a text to its "
        "number of tokens such as `lambda text: len(encoding.encode_ordinary(text))`"
    )
    raise TypeError(msg)


class BisectingCounter:
    """Answers all questions about tokens by counting, with a bounded number of counts.

    It assumes only that longer texts have more tokens, give or take a few, and `head` returns only texts that have been
    counted. An error of the counter passes through.
    """

    def __init__(self, count: Callable[[str], int]) -> None:
        """Build on *count*, which returns 0 or more."""
        self._count = count

    def count(self, text: str) -> int:
        """Return the count of the wrapped counter. Raises `TypeError` if it is not a whole number."""
        return operator.index(self._count(text))

    def exceeds(self, text: str, max_tokens: int) -> bool:
        """Return whether *text* has more than *max_tokens* tokens, by counting all of it; errors as in `count`."""
        return self.count(text) > max_tokens

    def head(self, text: str, max_tokens: int) -> str:
        """Return a prefix of *text* that has been counted and has at most *max_tokens* tokens.

        It takes at most 2·log2(len(text)) + 3 counts, of prefixes no longer than twice the result or 4
        characters per token, and of the whole text if that is hardly longer, so a slow counter does not count
        all of a long text. If even the empty text has more than *max_tokens* tokens, the prefix is empty. Errors are
        those of `count`.
        """
        last = len(text)
        fitting, too_long = 0, min(max(_FIRST_CHARS_PER_TOKEN * max_tokens, 1), last)
        while self.count(text[:too_long]) <= max_tokens:
            if too_long == last:
                return text
            fitting, too_long = too_long, min(2 * too_long, last)
        # A whole text may have fewer tokens than its beginning: "plain" is one of o200k_base, "plai" are two.
        if 0 < last - too_long <= _FEW_CHARS and self.count(text) <= max_tokens:
            return text
        while too_long - fitting > 1:
            middle = (fitting + too_long) // 2
            if self.count(text[:middle]) <= max_tokens:
                fitting = middle
            else:
                too_long = middle
        return text[:fitting]


if TYPE_CHECKING:
    _bisecting_conforms: type[TextCounter] = BisectingCounter
