"""The tokens of a context and its limits, and our count corrected by the provider's."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

from buoyline.compression import ContextConfig
from buoyline.compression.config import AUTO, LEAST_SUMMARY_TOKENS, summary_budget_tokens
from buoyline.errors import ContextOverflowError, UsageError
from buoyline.messages import spell
from buoyline.tokens import TextCounter
from buoyline.tokens.counter import count_tools
from buoyline.tokens.usage import Usage
from buoyline.window.context import Entry

_MOST_ABOVE_OURS: Final = 2
"""No tokenizer needs more than this many times the tokens of another, for a whole conversation."""

_ENOUGH: Final = 1 / 4
"""Of the window: what our count has to be before a ratio says something about the tokenizer, and not about what a
provider adds to each request, such as a prompt for tools."""

_AUTO_GROWTH_TOKENS: Final = 12_000
"""With ``"auto"``, so many tokens are added between two compactions. What a session costs is flat around that."""

_NAMED_PINS: Final = 5


class Budget:
    """Limits of a window of *size* tokens, of which *reserved* are for the answer.

    All tokens are by our own count but for the results of `tokens`.

    Attributes:
        limit: Most tokens of a request, by the provider's count.
        fixed: Tokens of system prompt and tools.
        scale: How many of the provider's tokens one of ours is, from 1 to 2. It belongs to the tokenizer and outlasts a
            compaction; the last usage does not, or a context that has just become small would be compacted again.
    """

    def __init__(self, size: int, reserved: int, counter: TextCounter, system: Any, tools: Sequence[Any]) -> None:
        """Begin without any usage."""
        self.size, self.reserved = size, reserved
        self.limit = size - reserved
        self._counter = counter
        self.send_beside(system, tools)
        self.scale = 1.0
        self._sent: int | None = None
        self._known: tuple[int, Usage] | None = None
        self._seen: tuple[int, Usage] | None = None

    def send_beside(self, system: Any, tools: Sequence[Any]) -> None:
        """Count these as system prompt and tools of each request."""
        text = system if isinstance(system, str) else spell(system)
        self.fixed = self._counter.count(text) + count_tools(tools, self._counter)

    def tokens(self, ours: int) -> int:
        """Return what a request takes by the provider's count, as far as that is known."""
        if self._known is None:
            return math.ceil(ours * self.scale)
        sent, usage = self._known
        return max(usage.input_tokens + math.ceil((ours - sent) * self.scale), 0)

    def hand_out(self, ours: int) -> None:
        """Remember the request that is about to be sent: the next usage is its own."""
        self._sent = ours

    def forget(self) -> None:
        """Forget the last usage, and that of a request which is still under way."""
        self._sent = self._known = None

    def note(self, usage: Usage) -> bool:
        """Take the provider's count of the last request.

        Returns:
            False if it cannot be that: nothing was handed out since the last compaction, it is 0, less than half of our
            count, or that of the request before although our count differs.

        Raises:
            UsageError: It is more than twice what the window holds.
        """
        sent = self._sent
        if sent is None or usage.input_tokens == 0:
            return False
        if max(usage.input_tokens, usage.output_tokens) > _MOST_ABOVE_OURS * max(self.size, sent):
            raise UsageError(
                f"{usage.input_tokens:,} input and {usage.output_tokens:,} output tokens cannot be those of one "
                f"request to a window of {self.size:,}; pass the last response's usage alone, not the sum of several"
            )
        if self._seen is not None and usage == self._seen[1] and abs(sent - self._seen[0]) > 1:
            return False
        if usage.input_tokens * _MOST_ABOVE_OURS < sent:
            return False  # it may lack the tokens that were read from the cache
        self._known = self._seen = sent, usage
        if sent >= self.size * _ENOUGH:
            self.scale = min(max(usage.input_tokens / sent, 1.0), float(_MOST_ABOVE_OURS))
        return True

    # What a compaction keeps.

    def exceeds(self, ours: int, staying: int, summary: int, config: ContextConfig) -> bool:
        """Return whether a context is above the trigger.

        *staying* are the tokens of system messages and pins, *summary* those of the summary and what is around it.
        """
        return self.tokens(ours) > self._line(staying, summary, config)

    def kept_tokens(self, staying: int, summary: int, config: ContextConfig) -> int:
        """Return what the newest messages may take after a compaction; for the arguments see `exceeds`."""
        room = self._line(staying, summary, config) / self.scale - self.fixed - staying - summary
        return int(min(config.reserve_ratio * self.size / self.scale, max(room, 0) / 2))

    def summary_tokens(
        self, archived: int, replaced: int, others: int, config: ContextConfig, most: int | None = None
    ) -> tuple[int, int]:
        """Return what a summary may take, and what the window has room for beside *others*.

        It stands for *archived* tokens and the summary that it replaces. The whole context may take *most*.
        """
        room = int(self.limit / self.scale) - others
        tokens = summary_budget_tokens(
            archived,
            config.summary_limit(self.size),
            replaced_tokens=replaced,
            trigger_room_tokens=int(self._trigger(0, 0, config) / self.scale) - others,
            window_room_tokens=room // (1 if self.reserved else 2),
        )
        if most is not None:
            tokens = max(min(tokens, int(most / self.scale) - others), LEAST_SUMMARY_TOKENS)
        return tokens, room

    def check(self, staying: int, entries: Iterable[Entry]) -> None:
        """Raise `ContextOverflowError` if what always stays leaves no room; it names the largest pins of *entries*."""
        if self.fixed + staying <= self.limit:
            return
        pins = sorted((entry for entry in entries if entry.pinned), key=lambda entry: -entry.tokens)[:_NAMED_PINS]
        named = ", ".join(f"message {entry.number} ({entry.tokens:,} tokens)" for entry in pins)
        hint = f"unpin messages by index with ContextWindow.unpin, the largest being {named}" if pins else "send less"
        reason = f"system prompt, tools and pinned messages leave no room; use a larger window, or {hint}"
        raise ContextOverflowError(self.fixed + staying, self.limit, reason)

    def _trigger(self, staying: int, summary: int, config: ContextConfig) -> float:
        trigger = config.largest_trigger_ratio * self.size - self.reserved
        if config.trigger_ratio == AUTO:
            left = self.scale * (self.fixed + staying + (summary or config.summary_limit(self.size)))
            trigger = min(trigger, left + config.reserve_ratio * self.size + _AUTO_GROWTH_TOKENS)
        return trigger

    def _line(self, staying: int, summary: int, config: ContextConfig) -> float:
        """Return the trigger, or more if what stays comes near it: messages may then fill a quarter of the rest.

        Otherwise each further message would compact the context again.
        """
        trigger, least = self._trigger(staying, summary, config), self.scale * (self.fixed + staying + summary)
        return max(trigger, least + (self.limit - least) / 4) if least > 0.75 * trigger else trigger
