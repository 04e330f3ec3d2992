"""How much room a window has, and how much of it its context takes."""

import logging
import math
from dataclasses import dataclass

from buoyline.compression import ContextConfig
from buoyline.compression.config import LEAST_SUMMARY_TOKENS, summary_budget_tokens
from buoyline.errors import ContextOverflowError, UsageError
from buoyline.tokens.usage import Usage
from buoyline.window.state import Context

# The provider's own count of the last request, and what follows from it for the context since.


logger = logging.getLogger(__name__)

_MOST_ABOVE_OURS = 2
"""No tokenizer needs more than this many times the tokens of another, for a whole conversation."""

# Of the window: what our count has to have grown by, or to be at all, before a ratio says something about the
# tokenizer and not about what a provider adds to each request, such as a prompt for tools.
_ENOUGH_GROWTH = 1 / 16
_ENOUGH_ALONE = 1 / 4


@dataclass(frozen=True, slots=True)
class Sent:
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
    sent: Sent


class Anchor:
    """Holds on to the last usage that the provider stated, until a compression makes it meaningless.

    What was sent then takes what the provider said. What was added since is counted by ourselves and scaled: another
    tokenizer than ours, Claude's for one, makes some 10 to 40 % more of the same text. The scale is how much faster
    the provider's count grows than ours, from 1 to 2; pictures, which we estimate on the high side, do not bring it
    below 1. It outlasts a compression, since it belongs to the tokenizer and not to the messages; the usage does not:
    kept, it would have a context compressed again that has just become small.
    """

    def __init__(self, size: int) -> None:
        """Begin without any usage, for a window of *size* tokens."""
        self.scale = 1.0
        self._size = size
        self._sent: Sent | None = None
        self._first: _Known | None = None
        self._last: _Known | None = None
        self._seen: _Known | None = None

    @property
    def answer(self) -> int | None:
        """The session index of the answer whose tokens the usage states; None where it states none."""
        known = self._last
        return known.sent.end if known is not None and known.usage.output_tokens else None

    def hand_out(self, sent: Sent) -> None:
        """Remember what is about to be sent: the next usage is that of this request."""
        self._sent = sent

    def drop(self) -> None:
        """Forget the usage, and that of a request which is still under way."""
        self._sent = self._first = self._last = None

    def note(self, usage: Usage) -> bool:
        """Take the usage of the context that was handed out last.

        Returns:
            True if it counts from now on. It does not where nothing was handed out since the last compression, where
            it is 0, where it is the one of the request before and our count is another one, and where it is less than
            half of our own count, which is another request's, or one without what came from the cache; our count then
            holds.

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
            answer_tokens: What of these the message at `answer` takes; 0 where it has not been added.
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

    def _refuse_absurd(self, usage: Usage, sent: Sent) -> None:
        most = _MOST_ABOVE_OURS * max(self._size, sent.tokens)
        if max(usage.input_tokens, usage.output_tokens) > most:
            raise UsageError(
                f"{usage.input_tokens:,} input and {usage.output_tokens:,} output tokens cannot be those of one "
                f"request to a window of {self._size:,}; pass the last response's usage alone, not the sum of several"
            )


def _differ(sent: Sent, other: Sent) -> bool:
    """Return whether two requests are so unlike that a provider cannot count the same number of tokens for both.

    Two compactions in a row may well leave contexts of the same size; their usages are then the same, too.
    """
    return abs(sent.tokens - other.tokens) >= _MOST_ABOVE_OURS


_LEAST_LEFT = 1 / 4


@dataclass(frozen=True, slots=True)
class Room:
    """Compares what a context takes, the model's answer included, with what its window holds.

    Attributes:
        size: Tokens of the window.
        max_output_tokens: What of it is kept free for the model's answer.
        context: What stands in it.
        anchor: The provider's count, as far as it is known.
    """

    size: int
    max_output_tokens: int
    context: Context
    anchor: Anchor

    @property
    def limit(self) -> int:
        """What a context may take, so that the answer fits behind it."""
        return self.size - self.max_output_tokens

    @property
    def tokens(self) -> int:
        """What the context takes."""
        answer_tokens = self.context.contents.answer_tokens(self.anchor.answer)
        return self.anchor.total(self.context.tokens(), answer_tokens)

    def exceeds(self, ratio: float) -> bool:
        """Tell whether the context and the answer take more than this share of the window.

        Where what stays in any case comes near it, a quarter of the rest may be taken first: otherwise each further
        message would compress the context anew, and leave it above.
        """
        return self.tokens > self._line(ratio)

    def check(self) -> None:
        """Make sure that what stays whatever is archived leaves room for anything else.

        Raises:
            ContextOverflowError: It does not.
        """
        needed = self.context.least_tokens()
        if needed > self.limit:
            beside = f" beside an answer of {self.max_output_tokens:,} tokens" if self.max_output_tokens else ""
            reason = f"system prompt, tools and pinned messages leave no room{beside}; use a larger window or pin less"
            raise ContextOverflowError(needed, self.limit, reason)

    def kept_tokens(self, settings: ContextConfig) -> int:
        """Return what the newest messages may take after a compression, by our own count.

        Where system prompt and answer fill most of the window, that is half of what they leave below the trigger, for
        the same reason.
        """
        wanted = self.anchor.ours(settings.reserve_ratio * self.size)
        left = self.anchor.ours(self._line(settings.trigger_ratio)) - self._standing()
        return min(wanted, max(left, 0) // 2)

    def summary_tokens(
        self, cut: int, settings: ContextConfig, again: int = 0, *, max_context_tokens: int | None = None
    ) -> int:
        """Return what the summary of the oldest *cut* messages may take, by our own count.

        Args:
            cut: So many leave.
            settings: Of the summary.
            again: What those of them take that stand again for now.
            max_context_tokens: What the whole context may take in any case, as the provider counts.
        """
        context = self.context
        leaving = sum(entry.tokens for entry in context.contents.until(cut) if not entry.stays) - again
        replaced = context.summary[0].tokens if context.summary else 0
        others = context.fixed_tokens() + context.standing_tokens() - replaced + context.contents.tokens - leaving
        budget = summary_budget_tokens(
            leaving,
            settings.summary_limit(self.size),
            replaced_tokens=replaced,
            trigger_room_tokens=self.anchor.ours(settings.trigger_ratio * self.size - self.max_output_tokens) - others,
            window_room_tokens=self.anchor.ours(self.limit) - others,
            has_answer_room=bool(self.max_output_tokens),
        )
        if max_context_tokens is None:
            return budget
        return max(min(budget, self.anchor.ours(max_context_tokens) - others), LEAST_SUMMARY_TOKENS)

    def _standing(self) -> int:
        context = self.context
        return context.fixed_tokens() + context.standing_tokens() + context.contents.staying_tokens

    def _line(self, ratio: float) -> float:
        line, standing = ratio * self.size - self.max_output_tokens, self.anchor.theirs(self._standing())
        is_near = standing > (1 - _LEAST_LEFT) * line
        return max(line, standing + (self.limit - standing) * _LEAST_LEFT) if is_near else line
