"""The contracts of token counters, and counters built from a plain function."""

import operator
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Protocol, SupportsIndex, cast


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
    """Counts tokens, and answers three questions without counting a whole text.

    A result of 100 MB is offloaded because it exceeds 3,000 tokens, and its head and tail are shown. That should cost
    no more than for a small text, so each question is a method of its own.
    """

    def exceeds(self, text: str, max_tokens: int) -> bool:
        """Return whether ``count(text) > max_tokens``, reading no more of *text* than necessary."""
        ...

    def head(self, text: str, max_tokens: int) -> str:
        """Return a prefix of *text* with ``count(prefix) <= max_tokens``, as long as reasonably possible.

        It is *text* itself if that does not exceed *max_tokens*, and may be empty.

        Raises:
            ValueError: *max_tokens* is negative.
        """
        ...

    def tail(self, text: str, max_tokens: int) -> str:
        """Return a suffix of *text* with ``count(suffix) <= max_tokens``, as long as reasonably possible.

        It is *text* itself if that does not exceed *max_tokens*, and may be empty.

        Raises:
            ValueError: *max_tokens* is negative.
        """
        ...


def require_token_limit(max_tokens: int) -> None:
    """Raise `ValueError` if *max_tokens* is negative: no text has fewer than 0 tokens."""
    if max_tokens < 0:
        msg = f"max_tokens must be 0 or more, got {max_tokens}; even the empty text has 0 tokens"
        raise ValueError(msg)


# A full counter from one that can only count.

_METHODS = ("count", "exceeds", "head", "tail")
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
        if callable(getattr(given, "count", None)):
            return BisectingCounter(cast("TokenCounter", counter).count)
        if callable(counter):
            return BisectingCounter(counter)
    msg = (
        f"{counter!r} cannot count tokens; pass an object with count(text), or a function from a text to its "
        "number of tokens such as `lambda text: len(encoding.encode_ordinary(text))`"
    )
    raise TypeError(msg)


class BisectingCounter:
    """Answers all questions about tokens by counting, with a bounded number of counts.

    It assumes only that longer texts have more tokens, give or take a few, and `head` and `tail` return only texts that
    have been counted. An error of the counter passes through.
    """

    def __init__(self, count: Callable[[str], int]) -> None:
        """Build on *count*, which returns 0 or more."""
        self._count = count

    def count(self, text: str) -> int:
        """Return the count of the wrapped counter.

        Raises:
            TypeError: It is not a whole number.
            ValueError: It is negative.
        """
        tokens = _whole_number(self._count(text))
        if tokens < 0:
            msg = f"the token counter returned {tokens}; return 0 or more"
            raise ValueError(msg)
        return tokens

    def exceeds(self, text: str, max_tokens: int) -> bool:
        """Return whether *text* has more than *max_tokens* tokens, by counting all of it; errors as in `count`."""
        return self.count(text) > max_tokens

    def head(self, text: str, max_tokens: int) -> str:
        """Return a prefix of *text* that has been counted and has at most *max_tokens* tokens.

        It takes at most 2·log2(len(text)) + 3 counts, of prefixes no longer than twice the result or 4
        characters per token, and of the whole text if that is hardly longer, so a slow counter does not count
        all of a long text. If even the empty text has more than *max_tokens* tokens, the prefix is empty. Errors are
        those of `count`, and `ValueError` for a negative *max_tokens*.
        """
        return text[: self._longest(text, max_tokens, lambda chars: text[:chars])]

    def tail(self, text: str, max_tokens: int) -> str:
        """Return a suffix of *text* that has been counted; the counts and errors are those of `head`."""
        return text[len(text) - self._longest(text, max_tokens, lambda chars: text[len(text) - chars :]) :]

    def _longest(self, text: str, max_tokens: int, part: Callable[[int], str]) -> int:
        """Return the length of a *part* that fits, next to one that does not, or of the whole if that fits, or 0.

        It tries four characters a token and doubles them until they no longer fit, then halves the interval.
        """
        require_token_limit(max_tokens)

        def fits(chars: int) -> bool:
            return self.count(part(chars)) <= max_tokens

        last = len(text)
        fitting, probe = 0, min(max(_FIRST_CHARS_PER_TOKEN * max_tokens, 1), last)
        while fits(probe):
            if probe == last:
                return last
            fitting, probe = probe, min(2 * probe, last)
        # A whole text may have fewer tokens than its beginning: "plain" is one of o200k_base, "plai" are two.
        if 0 < last - probe <= _FEW_CHARS and fits(last):
            return last
        return halve(fits, fitting, probe)


def halve(fits: Callable[[int], bool], fitting: int, too_long: int) -> int:
    """Return a length that *fits* next to one that does not, between *fitting* and *too_long*."""
    while too_long - fitting > 1:
        middle = (fitting + too_long) // 2
        if fits(middle):
            fitting = middle
        else:
            too_long = middle
    return fitting


def _whole_number(answer: object) -> int:
    """Return *answer* as an int, also one of numpy's; raise `TypeError` for a float, a coroutine and the like."""
    if isinstance(answer, SupportsIndex):
        return operator.index(answer)
    hint = "return a whole number"
    if isinstance(answer, Coroutine):
        answer.close()  # else Python warns that it was never awaited
        hint = "make it a plain function, not an async one"
    msg = f"the token counter returned {answer!r}; {hint}"
    raise TypeError(msg)


if TYPE_CHECKING:
    _bisecting_conforms: type[TextCounter] = BisectingCounter
