"""``OffloadManager``: large tool results leave for files, and a stub with a preview stays."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, model_validator

from buoyline.compression import ContextConfig
from buoyline.management.fields import Count
from buoyline.management.hooks import Hook
from buoyline.management.managers.results import FoundResult, results_of, text_numbers
from buoyline.management.managers.settings import Settings
from buoyline.management.situation import Situation
from buoyline.management.standins import Preview
from buoyline.management.steps import Decision, Replace
from buoyline.offloader import TurnResult, is_too_large, stub_budgets
from buoyline.tokens.messages import count_result

_LEAST_STUB_TOKENS = 200
"""A notice with the paths of a file and its view takes up to this."""

_WORTH_OFFLOADING_TOKENS = 100


class Offloading(Settings):
    """Offloads tool results over a limit, and the largest of a turn whose results are too much together.

    The keys are those of `ContextConfig`, which says what they mean.

    Attributes:
        tool_result_limit: Tokens of one result above which it is offloaded.
        preview_tokens: Tokens of what stays in its place.
        turn_results_limit: Tokens of all results of a turn.
        tool_rules: Limits of single tools, by name or pattern.
    """

    type_name: ClassVar[str] = "OffloadManager"
    usual_hook: ClassVar[Hook] = "post_tool"

    tool_result_limit: Count = 3_000
    preview_tokens: Count = 1_000
    turn_results_limit: Count | None = None
    tool_rules: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict[str, Mapping[str, Any]])

    @model_validator(mode="after")
    def _check(self) -> "Offloading":
        self.config()
        return self

    def config(self) -> ContextConfig:
        """Return the settings as a `ContextConfig`, which refuses what cannot work."""
        rules: dict[str, Any] = dict(self.tool_rules)
        return ContextConfig(
            tool_result_limit=self.tool_result_limit,
            preview_tokens=self.preview_tokens,
            turn_results_limit=self.turn_results_limit,
            tool_rules=rules,
        )

    def decide(self, situation: Situation) -> Decision:
        """Choose among the results of the newest turn; earlier ones were decided about."""
        config = self.config()
        found = list(results_of(situation, situation.turn_at()))
        weighed = [_weighed(situation, one, config) for one in found]
        budgets = stub_budgets(weighed, config.turn_limit(situation.size), least=_LEAST_STUB_TOKENS)
        steps = tuple(
            Replace(
                found[at].position,
                found[at].number,
                f"{count_result(found[at].result, situation.counter):,} tokens",
                texts=text_numbers(found[at].result),
                stand_in=Preview(tokens),
            )
            for at, tokens in sorted(budgets.items())
            if text_numbers(found[at].result)
        )
        return Decision(steps, f"{len(steps)} of {len(found)} tool results of this turn are too much")

    def in_words(self) -> str:
        """Return what it does."""
        rules = f"; {len(self.tool_rules)} tools have rules of their own" if self.tool_rules else ""
        return (
            f"moves tool results over {self.tool_result_limit:,} tokens to files and leaves a stub "
            f"with a preview of {self.preview_tokens:,} tokens{rules}"
        )


def _weighed(situation: Situation, found: FoundResult, config: ContextConfig) -> TurnResult:
    """Weigh a result as a window does before it is shown for the first time."""
    rule = config.rule_for(situation.tool_of(found.position, found.number))
    limit, preview_tokens = rule.limit or config.tool_result_limit, rule.preview_tokens or config.preview_tokens
    is_kept = rule.offload == "never" or (rule.keep_errors and found.result.is_error)
    if found.is_ours or is_kept:
        return TurnResult(count_result(found.result, situation.counter), 0, is_fixed=True)
    if is_too_large(found.result, limit, situation.counter):
        return TurnResult(limit + 1, preview_tokens, is_due=True)
    tokens = count_result(found.result, situation.counter)
    is_due = rule.offload == "always" and tokens > _WORTH_OFFLOADING_TOKENS
    return TurnResult(tokens, min(preview_tokens, tokens // 2), is_due=is_due)
