"""The tokens of a context, its limits, and the calibration of our token count by the provider's usage."""

import logging
import math
from functools import cached_property
from typing import Any, NamedTuple

from buoyline.compression import ContextConfig
from buoyline.compression.config import AUTO, LEAST_SUMMARY_TOKENS, summary_budget_tokens
from buoyline.errors import ContextOverflowError, UsageError
from buoyline.messages import spell
from buoyline.tokens import TextCounter
from buoyline.tokens.messages import count_tools
from buoyline.tokens.usage import Usage
from buoyline.window.state import State

logger = logging.getLogger(__name__)

_NAMED_PINS = 5
"""So many pins are in an error."""

_LEAST_LEFT = 1 / 4
_AUTO_GROWTH_TOKENS = 12_000
"""With ``"auto"``, so many tokens are added between two compactions. What a session costs is flat around that."""


class TokenBudget:
    """Compares the tokens of a context and the model's answer with the size of the window.

    Attributes:
        limit: Most tokens of a context, so that the answer fits, too.
    """

    def __init__(self, size: int, max_output_tokens: int, counter: TextCounter, system: Any, tools: list[Any]) -> None:
        """Begin without any usage."""
        self.size = size
        self.max_output_tokens = max_output_tokens
        self.limit = size - max_output_tokens
        self.counter = counter
        self.system = system
        self.tools = tools
        self.usage = UsageCalibration(size)

    @cached_property
    def fixed_tokens(self) -> int:
        """Tokens of system prompt and tools; counted once."""
        system = self.system if isinstance(self.system, str) else spell(self.system)
        return self.counter.count(system) + count_tools(self.tools, self.counter)

    def send_beside(self, system: Any, tools: list[Any]) -> None:
        """Count another system prompt, or other tools, from now on."""
        if (system, tools) != (self.system, self.tools):
            self.system, self.tools = system, tools
            self.__dict__.pop("fixed_tokens", None)

    def own_tokens(self, state: State) -> int:
        """Return the tokens of everything, by our own count."""
        return self.fixed_tokens + state.leading_tokens + state.messages.tokens

    def tokens_by_kind(self, state: State) -> dict[str, int]:
        """Return the parts of `own_tokens`, by the names of `ModelCall.tokens`."""
        return {
            "fixed": self.fixed_tokens,
            "prefix": state.prefix.tokens,
            "summary": state.leading_tokens - state.prefix.tokens - state.reinserted.tokens,
            "reinserted": state.reinserted.tokens,
            "messages": state.messages.tokens,
        }

    def tokens(self, state: State) -> int:
        """Return the tokens of everything, by the provider's count as far as that is known."""
        answer = self.usage.answer
        answer_tokens = 0 if answer is None else state.messages.answer_tokens(answer)
        return self.usage.total(self.own_tokens(state), answer_tokens)

    def least_tokens(self, state: State) -> int:
        """Return the tokens of all that stays, however much is archived."""
        return self.fixed_tokens + state.prefix.tokens + state.messages.staying_tokens

    def trigger_tokens(self, state: State, settings: ContextConfig) -> float:
        """Return the tokens of context and answer above which the context is compacted, by the provider's count."""
        largest = settings.largest_trigger_ratio * self.size
        if settings.trigger_ratio != AUTO:
            return largest
        summary_tokens = settings.summary_limit(self.size) if state.summary is None else state.summary.entry.tokens
        left = self.fixed_tokens + state.prefix.tokens + summary_tokens + state.reinserted.tokens
        left_tokens = self.usage.theirs(left) + settings.reserve_ratio * self.size + self.max_output_tokens
        return min(largest, left_tokens + _AUTO_GROWTH_TOKENS)

    def exceeds(self, state: State, settings: ContextConfig) -> bool:
        """Return whether the context and the answer take more than the trigger.

        If the content that always stays comes near that, messages may fill a quarter of the rest first: otherwise each
        further message would compact the context again, and it would still be above.
        """
        return self.tokens(state) > self._line(state, self.trigger_tokens(state, settings))

    def check(self, state: State) -> None:
        """Check that there is room for more than system prompt, tools, system messages and pins.

        Raises:
            ContextOverflowError: There is none; the error names the largest pins.
        """
        needed = self.least_tokens(state)
        if needed > self.limit:
            beside = f" beside an answer of {self.max_output_tokens:,} tokens" if self.max_output_tokens else ""
            reason = f"system prompt, tools and pinned messages leave no room{beside}; use a larger window or pin less"
            pins = [entry for entry in (*state.prefix, *state.messages) if entry.pinned]
            pins = sorted(pins, key=lambda entry: entry.tokens, reverse=True)[:_NAMED_PINS]
            if pins:
                named = ", ".join(f"message {entry.index} ({entry.tokens:,} tokens)" for entry in pins)
                reason += f", or unpin messages by index with ContextWindow.unpin, the largest being {named}"
            raise ContextOverflowError(needed, self.limit, reason)

    def exceeding(self, state: State) -> list[tuple[int, int]]:
        """Return index and tokens of each message that alone does not fit next to those that must stay.

        If each of them does, return the largest; if the whole context fits, return nothing.
        """
        if self.tokens(state) <= self.limit:
            return []
        free = self.usage.ours(self.limit) - self.fixed_tokens - state.leading_tokens + state.reinserted.tokens
        movable = [*state.reinserted, *state.messages]
        found = [(entry.index, entry.tokens) for entry in movable if entry.tokens > free]
        largest = max(movable, key=lambda entry: entry.tokens, default=None)
        return found or ([] if largest is None else [(largest.index, largest.tokens)])

    def kept_tokens(self, state: State, settings: ContextConfig) -> int:
        """Return the tokens that the newest messages may take after a compaction, by our own count.

        If system prompt and answer fill most of the window, that is half of what they leave below the trigger, for
        the same reason as in `exceeds`.
        """
        left = self.usage.ours(self._line(state, self.trigger_tokens(state, settings))) - self._staying_tokens(state)
        return min(self.usage.ours(settings.reserve_ratio * self.size), max(left, 0) // 2)

    def summary_tokens(
        self,
        state: State,
        cut: int,
        settings: ContextConfig,
        reinserted_tokens: int = 0,
        *,
        max_context_tokens: int | None = None,
    ) -> int:
        """Return the tokens that the summary of the oldest *cut* messages may take, by our own count.

        Of these, *reinserted_tokens* are reinserted for now. *max_context_tokens* limits the whole context, as the
        provider counts.
        """
        evicted = sum(entry.tokens for entry in state.messages[:cut] if not entry.stays) - reinserted_tokens
        replaced = state.summary.entry.tokens if state.summary else 0
        others = self.own_tokens(state) - replaced - evicted
        trigger_tokens = self.trigger_tokens(state, settings) - self.max_output_tokens
        budget = summary_budget_tokens(
            evicted,
            settings.summary_limit(self.size),
            replaced_tokens=replaced,
            trigger_room_tokens=self.usage.ours(trigger_tokens) - others,
            window_room_tokens=self.usage.ours(self.limit) - others,
            has_answer_room=bool(self.max_output_tokens),
        )
        if max_context_tokens is None:
            return budget
        return max(min(budget, self.usage.ours(max_context_tokens) - others), LEAST_SUMMARY_TOKENS)

    def _staying_tokens(self, state: State) -> int:
        return self.fixed_tokens + state.leading_tokens + state.messages.staying_tokens

    def _line(self, state: State, trigger_tokens: float) -> float:
        line, staying = trigger_tokens - self.max_output_tokens, self.usage.theirs(self._staying_tokens(state))
        is_near = staying > (1 - _LEAST_LEFT) * line
        return max(line, staying + (self.limit - staying) * _LEAST_LEFT) if is_near else line


# Calibration of our token count by the provider's usage of the last request.


_MOST_ABOVE_OURS = 2
"""No tokenizer needs more than this many times the tokens of another, for a whole conversation."""

# Of the window: what our count has to have grown by, or to be at all, before a ratio says something about the
# tokenizer and not about what a provider adds to each request, such as a prompt for tools.
_ENOUGH_GROWTH = 1 / 16
_ENOUGH_ALONE = 1 / 4


class Request(NamedTuple):
    """A context that was handed out: its tokens by our own count, and the session index that its answer gets."""

    tokens: int
    end: int


class _Known(NamedTuple):
    usage: Usage
    sent: Request


class UsageCalibration:
    """Keeps the last usage of the provider, until a compaction makes it meaningless.

    The messages of that request take what the provider said. Newer messages are counted here, and scaled: Claude's
    tokenizer, for example, makes 10 to 40 % more of the same text. The scale is the growth of the provider's count
    relative to ours, from 1 to 2; images, which we estimate on the high side, do not bring it below 1. The scale
    belongs to the tokenizer and outlasts a compaction; the usage does not, or a context that has just become small
    would be compacted again.

    `answer` is the session index of the answer whose tokens the usage states; None if it states none.
    """

    def __init__(self, size: int) -> None:
        """Begin without any usage, for a window of *size* tokens."""
        self.scale = 1.0
        self.answer: int | None = None
        self._size = size
        self._sent: Request | None = None
        self._first: _Known | None = None
        self._last: _Known | None = None
        self._seen: _Known | None = None

    def hand_out(self, sent: Request) -> None:
        """Remember the request that is about to be sent: the next usage is its own."""
        self._sent = sent

    def drop(self) -> None:
        """Forget the usage, and that of a request which is still under way."""
        self._sent = self._first = self._last = self.answer = None

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
        most = _MOST_ABOVE_OURS * max(self._size, sent.tokens)
        if max(usage.input_tokens, usage.output_tokens) > most:
            raise UsageError(
                f"{usage.input_tokens:,} input and {usage.output_tokens:,} output tokens cannot be those of one "
                f"request to a window of {self._size:,}; pass the last response's usage alone, not the sum of several"
            )
        # A loop may read it from the last answer it has, before each try of the next one. But two compactions in a row
        # may leave contexts of the same size: a provider then counts the same for both.
        seen = self._seen
        if seen is not None and usage == seen.usage and abs(sent.tokens - seen.sent.tokens) >= _MOST_ABOVE_OURS:
            return False
        if usage.input_tokens * _MOST_ABOVE_OURS < sent.tokens:
            logger.warning(
                "a usage of %d input tokens is not that of the last request, which takes about %d; ignored. Does it "
                "lack the tokens that were read from the cache?",
                usage.input_tokens,
                sent.tokens,
            )
            return False
        self._last = self._seen = _Known(usage, sent)
        self.answer = sent.end if usage.output_tokens else None
        self._first = self._first or self._last
        grown = sent.tokens - self._first.sent.tokens
        if grown >= self._size * _ENOUGH_GROWTH:
            ratio = (usage.input_tokens - self._first.usage.input_tokens) / grown
        elif sent.tokens >= self._size * _ENOUGH_ALONE:
            ratio = usage.input_tokens / sent.tokens
        else:
            return True
        self.scale = min(max(ratio, 1.0), float(_MOST_ABOVE_OURS))
        return True

    def total(self, tokens: int, answer_tokens: int) -> int:
        """Return what a context of *tokens* takes by the provider's count, as far as that is known.

        *answer_tokens* are those of the message at `answer` among them; 0 if it has not been added.
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
