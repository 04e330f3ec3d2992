"""`NullConversationManager`: the history stays as it is."""

from typing import TYPE_CHECKING, Any

from buoyline.integrations.strands.leaving import LeavingConversationManager

if TYPE_CHECKING:
    from strands import Agent


class NullConversationManager(LeavingConversationManager):
    """Does not change the history; an overflow reaches the caller.

    Source: Strands' manager of the same name.
    """

    _archives = False

    def reduce_context(self, agent: "Agent", e: Exception | None = None, **kwargs: Any) -> None:  # noqa: ARG002 - Strands' signature
        """Do nothing, or raise *e* again."""
        if e is not None:
            raise e

    async def _reduce(self, agent: "Agent") -> None:
        """Do nothing."""

    async def _recover(self, agent: "Agent", error: Exception) -> None:
        """Do nothing: `reduce_context` has raised."""
