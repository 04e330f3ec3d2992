"""``SummarizationManager``: a share of the oldest messages becomes a summary."""

from typing import ClassVar

from buoyline.management.cutting import Cutting
from buoyline.management.fields import CountOrNone, SummaryRatio
from buoyline.management.managers.settings import Settings
from buoyline.management.situation import Situation
from buoyline.management.steps import Decision, Summarise


class Summarization(Settings):
    """Summarises a share of the messages, the oldest, and preserves the most recent.

    Of n messages, n times *summary_ratio* are summarised, at least one, and never one of the preserved: with the
    defaults none of 10, 1 of 11, 6 of 20, 30 of 100. The cut is moved on to where it parts no call from its result, and
    back where that would take a preserved message. System messages and pins stay as they are.

    Attributes:
        summary_ratio: Share of the messages that is summarised, from 0.1 to 0.8.
        preserve_recent_messages: So many of the newest are never summarised.
        summarization_model_id: The model that writes the summary; left out: whichever the agent has.
        summarization_system_prompt: Tells the model how.
    """

    type_name: ClassVar[str] = "SummarizationManager"

    summary_ratio: SummaryRatio = 0.3
    preserve_recent_messages: CountOrNone = 10
    summarization_model_id: str | None = None
    summarization_system_prompt: str | None = None

    def decide(self, situation: Situation) -> Decision:
        """Choose the cut that is nearest to the share of the messages."""
        places = [at for at, held in enumerate(situation.messages) if held.is_counted]
        wanted = min(max(1, int(len(places) * self.summary_ratio)), len(places) - self.preserve_recent_messages)
        if wanted <= 0:
            return Decision(reason=f"{len(places)} messages, of which {self.preserve_recent_messages} are preserved")
        # Positions count system messages, too; the numbers of the document do not.
        target, limit = places[wanted - 1] + 1, self._limit(situation, places)
        cutting = Cutting(situation)
        cuts = sorted(cut for cut in cutting.cuts if cut <= limit)
        if not cuts:
            return Decision(reason="no message may leave without parting a call from its result")
        cut = next((cut for cut in cuts if cut >= target), cuts[-1])
        reason = f"{cut} of {len(situation.messages)} messages are summarised"
        step = Summarise(
            cut,
            cutting.standing(cut),
            cutting.head,
            reason,
            model=self.summarization_model_id or "",
            prompt=self.summarization_system_prompt or "",
        )
        return Decision((step,), reason)

    def in_words(self) -> str:
        """Return what it does."""
        model = f" by {self.summarization_model_id}" if self.summarization_model_id else ""
        return (
            f"summarises the oldest {self.summary_ratio:.0%} of the messages{model}, "
            f"never one of the {self.preserve_recent_messages:,} newest"
        )

    def _limit(self, situation: Situation, places: list[int]) -> int:
        preserved = places[len(places) - self.preserve_recent_messages :]
        return preserved[0] if preserved else len(situation.messages)
