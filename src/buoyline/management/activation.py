"""Activation rules: when a manager runs at its hook.

Pure. All rules of an entry must be met; none means always. A rule that cannot be read never counts as met: in
OpenSearch a misspelt rule is dropped, and its manager then runs at every call.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from buoyline.management.fields import Count, Fields, Seconds, Share
from buoyline.management.situation import Situation


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a manager runs.

    Attributes:
        is_met: It does.
        reason: The first rule that is not met, or all that are, with the numbers that were compared.
    """

    is_met: bool
    reason: str


class Activation(Fields):
    """When a manager runs. Source: OpenSearch for the first three; those below are ours.

    Attributes:
        rule_type: ``"always"``, which is also what holds without any rule.
        message_count_exceed: More messages than this, system messages and summaries not counted.
        tokens_exceed: The whole context takes more tokens: system prompt, tools, history, and the newest results.
        tokens_exceed_ratio: The whole context takes more than this share of the window.
        turn_tokens_exceed: The tool results since the model spoke last, or in its newest reply, take more tokens.
        idle_seconds_exceed: More time passed since the model was called last, so that a provider's cache is cold.
        every_model_calls: At every n-th call of the model.
        on_overflow: Only after the provider refused the context as too long; False: only otherwise.
    """

    rule_type: Literal["always"] | None = None
    message_count_exceed: Count | None = None
    tokens_exceed: Count | None = None
    tokens_exceed_ratio: Share | None = None
    turn_tokens_exceed: Count | None = None
    idle_seconds_exceed: Seconds | None = None
    every_model_calls: Count | None = None
    on_overflow: bool | None = None

    def verdict(self, situation: Situation) -> Verdict:
        """Compare each rule with *situation*."""
        met: list[str] = []
        for is_met, words in self._compared(situation):
            if not is_met:
                return Verdict(is_met=False, reason=words)
            met.append(words)
        return Verdict(is_met=True, reason="; ".join(met) or "always")

    def in_words(self) -> str:
        """Return the rules in words, as they follow "runs"."""
        parts = [words for value, words in self._worded() if value is not None]
        return " and ".join(parts) if parts else "always"

    def _compared(self, situation: Situation) -> Iterator[tuple[bool, str]]:
        if self.on_overflow is not None:
            yield situation.is_overflow is self.on_overflow, f"{'an' if situation.is_overflow else 'no'} overflow"
        if self.message_count_exceed is not None:
            yield _exceeds(situation.message_count, self.message_count_exceed, "messages")
        if self.tokens_exceed is not None:
            yield _exceeds(situation.tokens, self.tokens_exceed, "tokens")
        if self.tokens_exceed_ratio is not None:
            yield _exceeds(situation.tokens, int(self.tokens_exceed_ratio * situation.size), "tokens")
        if self.turn_tokens_exceed is not None:
            yield _exceeds(situation.turn_tokens, self.turn_tokens_exceed, "tokens of tool results")
        if self.idle_seconds_exceed is not None:
            yield _exceeds(situation.idle_s, self.idle_seconds_exceed, "seconds of idleness")
        if self.every_model_calls is not None:
            call = situation.model_calls + 1
            yield call % self.every_model_calls == 0, f"call {call:,} of the model, every {self.every_model_calls:,}"

    def _worded(self) -> Iterator[tuple[object, str]]:
        yield self.message_count_exceed, f"when there are more than {self.message_count_exceed or 0:,} messages"
        yield self.tokens_exceed, f"when the context takes more than {self.tokens_exceed or 0:,} tokens"
        yield self.tokens_exceed_ratio, f"when it takes more than {self.tokens_exceed_ratio or 0:.0%} of the window"
        tokens = f"{self.turn_tokens_exceed or 0:,} tokens"
        yield self.turn_tokens_exceed, f"when the tool results of a turn take more than {tokens}"
        yield self.idle_seconds_exceed, f"when the model was not called for {self.idle_seconds_exceed or 0:g} seconds"
        yield self.every_model_calls, f"at every {self.every_model_calls} calls of the model"
        only = "only after" if self.on_overflow else "never after"
        yield self.on_overflow, f"{only} the provider refused the context as too long"


def _exceeds(found: float, limit: float, what: str) -> tuple[bool, str]:
    is_more = found > limit
    return is_more, f"{_shown(found)} {what}, {'more' if is_more else 'not more'} than {_shown(limit)}"


def _shown(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"
