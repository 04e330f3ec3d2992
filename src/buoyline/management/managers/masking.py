"""``ToolResultMaskManager``: older tool results become one line each."""

from fnmatch import fnmatchcase
from typing import ClassVar

from buoyline.management.fields import Count, CountOrNone
from buoyline.management.managers.results import FoundResult, results_of, text_numbers
from buoyline.management.managers.settings import Settings
from buoyline.management.situation import Situation
from buoyline.management.standins import Mask
from buoyline.management.steps import Decision, Replace
from buoyline.tokens.messages import count_result


class Masking(Settings):
    """Leaves one line in place of each older tool result, which names the file that holds it.

    Attributes:
        keep_recent_results: So many of the newest results stay whole; those since the model spoke last always do.
        min_tokens: Smaller results stay as well: the line takes some 50 itself.
        keep_tools: Names of tools, or patterns such as ``mcp__*``, whose results stay.
    """

    type_name: ClassVar[str] = "ToolResultMaskManager"

    keep_recent_results: CountOrNone = 5
    min_tokens: Count = 200
    keep_tools: tuple[str, ...] = ()

    def decide(self, situation: Situation) -> Decision:
        """Choose the older results that are worth it."""
        found = list(results_of(situation))
        newest = len(found) - self.keep_recent_results
        steps = tuple(
            self._step(situation, one)
            for one in found[: max(newest, 0)]
            if not situation.is_unread(one.position, one.number) and self._may_leave(situation, one)
        )
        return Decision(steps, f"{len(steps)} of {len(found)} tool results are old enough and large enough")

    def in_words(self) -> str:
        """Return what it does."""
        kept = f", those of {', '.join(self.keep_tools)} apart" if self.keep_tools else ""
        return (
            f"leaves one line in place of each tool result of {self.min_tokens:,} tokens or more{kept}, "
            f"except for the {self.keep_recent_results:,} newest"
        )

    def _step(self, situation: Situation, found: FoundResult) -> Replace:
        tool = situation.tool_of(found.position, found.number)
        numbers = text_numbers(found.result)
        return Replace(found.position, found.number, "an older result", texts=numbers, stand_in=Mask(tool))

    def _may_leave(self, situation: Situation, found: FoundResult) -> bool:
        tool = situation.tool_of(found.position, found.number)
        is_kept = any(fnmatchcase(tool, pattern) for pattern in self.keep_tools)
        has_text = bool(text_numbers(found.result))
        return has_text and not is_kept and count_result(found.result, situation.counter) >= self.min_tokens
