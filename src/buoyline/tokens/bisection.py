"""Make a full counter of one that can only count."""

import operator
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, SupportsIndex, TypeGuard

from buoyline.tokens.counter import TextCounter, TokenCounter, require_token_limit

_METHODS = ("count", "exceeds", "head", "tail")
_FIRST_CHARS_PER_TOKEN = 4
_FEW_CHARS = 1_024


def as_text_counter(counter: TokenCounter | Callable[[str], int]) -> TextCounter:
    """Return *counter* with everything that buoyline asks of a counter.

    A user brings what the model's vendor offers, mostly one function from text to number. What is missing is
    derived from that number alone.

    Args:
        counter: An object with a ``count(text)`` method, or a function that takes a text and returns its
            tokens, 0 or more.

    Returns:
        *counter* itself if it has all of ``count``, ``exceeds``, ``head`` and ``tail``; else a
        `BisectingCounter` around it.

    Raises:
        TypeError: *counter* is neither: the name of a model, say, or a class instead of an instance.
    """
    given: object = counter
    if isinstance(given, type | Sequence):  # a string and a list have a count() that counts something else
        raise _not_a_counter(counter)
    if _is_text_counter(counter):
        return counter
    if _is_token_counter(counter):
        return BisectingCounter(counter.count)
    if callable(counter):
        return BisectingCounter(counter)
    raise _not_a_counter(counter)


class BisectingCounter:
    """Answer all questions about tokens by counting, with a bounded number of counts.

    Nothing is assumed of the counter but that longer texts have more tokens, give or take a few: whatever
    `head` and `tail` return has been counted and found within the limit. An error of the counter passes
    through.
    """

    def __init__(self, count: Callable[[str], int]) -> None:
        """Build on *count*, which returns the tokens of a text, 0 or more."""
        self._count = count

    def count(self, text: str) -> int:
        """Return what the wrapped counter says about *text*.

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
        """Tell whether *text* has more than *max_tokens* tokens, by counting all of it.

        Raises:
            TypeError: The counter returned no whole number.
            ValueError: The counter returned a negative number.
        """
        return self.count(text) > max_tokens

    def head(self, text: str, max_tokens: int) -> str:
        """Return a prefix of *text* that has been counted and has at most *max_tokens* tokens.

        It takes at most 2·log2(len(text)) + 3 counts, of prefixes no longer than twice the result or 4
        characters per token, and of the whole text where that is hardly longer, so a slow counter is not asked
        about all of a long text. If the counter finds more than *max_tokens* tokens even in the empty text, that
        is returned: there is no shorter one.

        Raises:
            TypeError: The counter returned no whole number.
            ValueError: *max_tokens* is negative, or the counter returned a negative number.
        """
        require_token_limit(max_tokens)
        chars = _longest(
            lambda chars: self.count(text[:chars]) <= max_tokens,
            first=_FIRST_CHARS_PER_TOKEN * max_tokens,
            last=len(text),
        )
        return text[:chars]

    def tail(self, text: str, max_tokens: int) -> str:
        """Return a suffix of *text* that has been counted and has at most *max_tokens* tokens.

        The counterpart of `head`, with the same number of counts.

        Raises:
            TypeError: The counter returned no whole number.
            ValueError: *max_tokens* is negative, or the counter returned a negative number.
        """
        require_token_limit(max_tokens)
        chars = _longest(
            lambda chars: self.count(text[len(text) - chars :]) <= max_tokens,
            first=_FIRST_CHARS_PER_TOKEN * max_tokens,
            last=len(text),
        )
        return text[len(text) - chars :]


def _longest(fits: Callable[[int], bool], first: int, last: int) -> int:
    """Return a length that *fits*, next to one that does not, or *last* if that fits, or 0.

    Tries *first* and doubles it until it no longer fits, then halves the interval.
    """
    fitting, probe = 0, min(max(first, 1), last)
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
    """Return *answer* as an int; numpy's integers are welcome.

    Raises:
        TypeError: It is a float, a coroutine, or anything else that is no whole number.
    """
    if isinstance(answer, SupportsIndex):
        return operator.index(answer)
    hint = "return a whole number"
    if isinstance(answer, Coroutine):
        answer.close()  # else Python warns that it was never awaited
        hint = "make it a plain function, not an async one"
    msg = f"the token counter returned {answer!r}; {hint}"
    raise TypeError(msg)


def _is_token_counter(counter: object) -> TypeGuard[TokenCounter]:
    return callable(getattr(counter, "count", None))


def _is_text_counter(counter: object) -> TypeGuard[TextCounter]:
    return all(callable(getattr(counter, method, None)) for method in _METHODS)


def _not_a_counter(counter: object) -> TypeError:
    return TypeError(
        f"{counter!r} cannot count tokens; pass an object with count(text), or a function from a text to its "
        "number of tokens such as `lambda text: len(encoding.encode_ordinary(text))`"
    )


if TYPE_CHECKING:
    _conforms: type[TextCounter] = BisectingCounter
