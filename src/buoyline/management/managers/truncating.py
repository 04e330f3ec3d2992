"""``ToolsOutputTruncateManager``: what is too long of a tool's output leaves."""

from typing import ClassVar

from buoyline.management.fields import Count
from buoyline.management.hooks import Hook
from buoyline.management.managers.results import results_of, text_numbers
from buoyline.management.managers.settings import Settings
from buoyline.management.situation import Situation
from buoyline.management.standins import Beginning
from buoyline.management.steps import Decision, Replace


class OutputTruncation(Settings):
    """Cuts each tool output to a number of characters, the notice included, and offloads the whole.

    It works on all outputs in the context at every hook: at ``post_tool`` the earlier ones are short already, at
    ``pre_llm`` it does what the page's third use case asks for.

    Attributes:
        max_output_length: Characters that stay at most. Default as in OpenSearch: 40,000.
    """

    type_name: ClassVar[str] = "ToolsOutputTruncateManager"
    usual_hook: ClassVar[Hook] = "post_tool"

    max_output_length: Count = 40_000

    def decide(self, situation: Situation) -> Decision:
        """Choose the outputs that are longer."""
        steps = tuple(
            Replace(
                found.position,
                found.number,
                f"{found.chars:,} characters, more than {self.max_output_length:,}",
                texts=text_numbers(found.result),
                stand_in=Beginning(self.max_output_length),
            )
            for found in results_of(situation)
            if found.chars > self.max_output_length
        )
        return Decision(steps, f"{len(steps)} tool outputs exceed {self.max_output_length:,} characters")

    def in_words(self) -> str:
        """Return what it does."""
        limit = f"{self.max_output_length:,} characters"
        return f"cuts each tool output to {limit} and keeps the whole in a file"
