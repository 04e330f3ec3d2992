"""``SlidingWindowManager``: the most recent messages stay."""

from typing import ClassVar

from buoyline.management.cutting import Cutting
from buoyline.management.fields import Count, CountOrNone
from buoyline.management.managers.settings import Settings
from buoyline.management.situation import Situation
from buoyline.management.steps import Decision, Leave


class SlidingWindow(Settings):
    """Keeps the most recent messages, and sends all before them to the archive.

    System messages, pins and what stands for messages that left are not counted and stay. The user's newest words
    are counted and stay as well, wherever they stand. Messages that belong together, a call with its results, stay or
    leave together: so a few less than *max_messages* may stay, and more only where the newest alone are more.

    Attributes:
        max_messages: So many stay at most. Default as in OpenSearch: 20.
        at_least: So many leave at least, even where fewer than *max_messages* stand. Source: Strands, whose sliding
            window drops messages on an overflow, however few there are. On an overflow, at least one leaves anyway.
        notice: Leave a line that says where the messages are.
    """

    type_name: ClassVar[str] = "SlidingWindowManager"

    max_messages: Count = 20
    at_least: CountOrNone = 0
    notice: bool = True

    def decide(self, situation: Situation) -> Decision:
        """Choose the first cut after which no more than *max_messages* stay."""
        at_least = max(self.at_least, int(situation.is_overflow))
        cutting = Cutting(situation)
        count = cutting.counted(0)
        if at_least == 0 and count <= self.max_messages:
            return Decision(reason=f"{count:,} messages, not more than {self.max_messages:,}")
        if not cutting.cuts:
            return Decision(reason="no message may leave: all belong to the newest ones")
        good = (cut for cut in cutting.cuts if cutting.leaving(cut) >= at_least)
        cut = next((cut for cut in good if cutting.counted(cut) <= self.max_messages), None)
        if cut is None:
            cut = max(cutting.cuts)
            reason = f"the newest {len(situation.messages) - cut:,} messages belong together"
        else:
            reason = f"{cutting.counted(cut):,} of {count:,} messages stay"
        step = Leave(cut, cutting.standing(cut), cutting.head, reason, self.notice)
        return Decision((step,), reason)

    def in_words(self) -> str:
        """Return what it does."""
        return f"keeps the {self.max_messages:,} most recent messages and sends the ones before them to the archive"
