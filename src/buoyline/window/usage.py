"""Calibration of our token count by the provider's usage of the last request."""

import logging
import math
from dataclasses import dataclass

from buoyline.errors import UsageError
from buoyline.tokens.usage import Usage

logger = logging.getLogger(__name__)

_MOST_ABOVE_OURS = 2
"""No tokenizer needs more than this many times the tokens of another, for a whole conversation."""

# Of the window: what our count has to have grown by, or to be at all, before a ratio says something about the
# tokenizer and not about what a provider adds to each request, such as a prompt for tools.
_ENOUGH_GROWTH = 1 / 16
_ENOUGH_ALONE = 1 / 4


@dataclass(frozen=True, slots=True)
class Request:
    """A context that was handed out.

    Attributes:
        tokens: What it takes by our own count.
        end: Session index that the message after it gets: the answer.
    """

    tokens: int
    end: int


@dataclass(frozen=True, slots=True)
class _Known:
    usage: Usage
    sent: Request


class UsageCalibration:
    """Keeps the last usage of the provider, until a compaction makes it meaningless.

    The messages of that request take what the provider said. Newer messages are counted here, and scaled: Claude's
    tokenizer, for example, makes 10 to 40 % more of the same text. The scale is the growth of the provider's count
    relative to ours, from 1 to 2; images, which we estimate on the high side, do not bring it below 1. The scale
    belongs to the tokenizer and outlasts a compaction; the usage does not, or a context that has just become small
    would be compacted again.
    """

    def __init__(self, size: int) -> None:
        """Begin without any usage, for a window of *size* tokens."""
        self.scale = 1.0
        self._size = size
        self._sent: Request | None = None
        self._first: _Known | None = None
        self._last: _Known | None = None
        self._seen: _Known | None = None

    @property
    def answer(self) -> int | None:
        """Session index of the answer whose tokens the usage states; None if it states none."""
        known = self._last
        return known.sent.end if known is not None and known.usage.output_tokens else None

    def hand_out(self, sent: Request) -> None:
        """Remember the request that is about to be sent: the next usage is its own."""
        self._sent = sent

    def drop(self) -> None:
        """Forget the usage, and that of a request which is still under way."""
        self._sent = self._first = self._last = None

    def note(self, usage: Usage) -> bool:
        """Take the usage of the context that was handed out last.

        Returns:
            True if it counts from now on. It does not if nothing was handed out since the last compaction, if it is 0,
            if it is that of the request before although our count differs, or if it is less than half of our count:
            then it is another request's, or lacks the tokens from the cache.

        Raises:
            UsageError: It is more than twice what the window holds.
        """
        sent = self._sent
        if sent is None or usage.input_tokens == 0:
            return False
        self._refuse_absurd(usage, sent)
        if self._seen is not None and usage == self._seen.usage and _differ(sent, self._seen.sent):
            return False  # a loop that reads it from the last answer it has, before each try of the next one
        if usage.input_tokens * _MOST_ABOVE_OURS < sent.tokens:
            logger.warning(
                "a usage of %d input tokens is not that of the last request, which takes about %d; ignored. Does it "
                "lack the tokens that were read from the cache?",
                usage.input_tokens,
                sent.tokens,
            )
            return False
        self._last = self._seen = _Known(usage, sent)
        self._first = self._first or self._last
        self.scale = self._scale(self._first, self._last)
        return True

    def total(self, tokens: int, answer_tokens: int) -> int:
        """Return what a context takes by the provider's count, as far as that is known.

        Args:
            tokens: What it takes by our own count.
            answer_tokens: Tokens of the message at `answer` among these; 0 if it has not been added.
        """
        if self._last is None:
            return self.theirs(tokens)
        known, new = self._last.usage.input_tokens, tokens - self._last.sent.tokens
        if answer_tokens:
            known, new = known + self._last.usage.output_tokens, new - answer_tokens
        return max(known + self.theirs(new), 0)

    def ours(self, tokens: float) -> int:
        """Return how many tokens by our own count are *tokens* by the provider's."""
        return int(tokens / self.scale)

    def theirs(self, tokens: int) -> int:
        """Return how many tokens by the provider's count are *tokens* by our own, on the high side."""
        return tokens if self.scale == 1 else math.ceil(tokens * self.scale)

    def _scale(self, first: _Known, last: _Known) -> float:
        grown = last.sent.tokens - first.sent.tokens
        if grown >= self._size * _ENOUGH_GROWTH:
            ratio = (last.usage.input_tokens - first.usage.input_tokens) / grown
        elif last.sent.tokens >= self._size * _ENOUGH_ALONE:
            ratio = last.usage.input_tokens / last.sent.tokens
        else:
            return self.scale
        return min(max(ratio, 1.0), float(_MOST_ABOVE_OURS))

    def _refuse_absurd(self, usage: Usage, sent: Request) -> None:
        most = _MOST_ABOVE_OURS * max(self._size, sent.tokens)
        if max(usage.input_tokens, usage.output_tokens) > most:
            raise UsageError(
                f"{usage.input_tokens:,} input and {usage.output_tokens:,} output tokens cannot be those of one "
                f"request to a window of {self._size:,}; pass the last response's usage alone, not the sum of several"
            )


def _differ(sent: Request, other: Request) -> bool:
    """Return whether two requests are so unlike that a provider cannot count the same number of tokens for both.

    Two compactions in a row may well leave contexts of the same size; their usages are then the same, too.
    """
    return abs(sent.tokens - other.tokens) >= _MOST_ABOVE_OURS
