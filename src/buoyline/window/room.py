"""How much room a window has, and how much of it its context takes."""

from dataclasses import dataclass

from buoyline.compression import ContextConfig
from buoyline.compression.budget import LEAST_SUMMARY_TOKENS, summary_budget_tokens
from buoyline.errors import ContextOverflowError
from buoyline.window.anchor import Anchor
from buoyline.window.context import Context

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
