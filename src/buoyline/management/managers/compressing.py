"""``CompressionManager``: what does not fit a share of the window becomes a summary, as `ContextConfig` says it."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from buoyline.compression import ContextConfig
from buoyline.compression.plan import plan
from buoyline.management.cutting import Cutting
from buoyline.management.fields import Count
from buoyline.management.managers.settings import Settings
from buoyline.management.situation import Situation
from buoyline.management.steps import Decision, Summarise

_DEFAULTS = ContextConfig()


class Compression(Settings):
    """Summarises as many of the oldest messages as brings the others down to a share of the window.

    The keys are those of `ContextConfig`, which says what they mean; its `trigger_ratio` is the activation rule
    ``tokens_exceed_ratio``.
    """

    type_name: ClassVar[str] = "CompressionManager"

    reserve_ratio: Annotated[float, Field(ge=0, lt=0.9, allow_inf_nan=False)] = 0.1
    summary_tokens: Count | None = None
    compression_prompt: str | None = None
    summary_template: str | None = None
    summary_schema: Mapping[str, Any] | None = None

    @model_validator(mode="after")
    def _check(self) -> "Compression":
        self.config()
        return self

    def config(self, **others: Any) -> ContextConfig:
        """Return the settings as a `ContextConfig`, which refuses what cannot work."""
        named = ("compression_prompt", "summary_template", "summary_schema")
        given = {name: value for name in named if (value := getattr(self, name)) is not None}
        trigger = others.pop("trigger_ratio", max(_DEFAULTS.trigger_ratio, min(self.reserve_ratio + 0.01, 0.9)))
        return ContextConfig(
            reserve_ratio=self.reserve_ratio,
            trigger_ratio=trigger,
            summary_tokens=self.summary_tokens,
            **given,
            **others,
        )

    def decide(self, situation: Situation) -> Decision:
        """Plan as a window does without a document."""
        tokens = [held.tokens for held in situation.messages]
        max_kept_tokens = int(self.reserve_ratio * situation.size)
        decided = plan(situation.views, tokens, max_kept_tokens=max_kept_tokens)
        cutting = Cutting(situation)
        # The plan lets go of the newest turn's open calls where all else is too much; no manager does.
        cut = max((cut for cut in cutting.cuts if cut <= decided.cut), default=0)
        if cut == 0:
            return Decision(reason=decided.reason)
        step = Summarise(cut, cutting.standing(cut), cutting.head, decided.reason, self.config())
        return Decision((step,), decided.reason)

    def in_words(self) -> str:
        """Return what it does."""
        return f"summarises the oldest messages until the others take {self.reserve_ratio:.0%} of the window"
