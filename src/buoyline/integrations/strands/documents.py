"""A conversation manager by the document that says what it does."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from buoyline.compression import Summarizer
from buoyline.compression.summarizers.callables import SummaryFunction
from buoyline.errors import ConfigError
from buoyline.integrations.strands.conversation import WorkspaceConversationManager
from buoyline.integrations.strands.cuts import LeavingConversationManager
from buoyline.integrations.strands.manager import DocumentConversationManager
from buoyline.integrations.strands.sliding_window import SlidingWindowConversationManager
from buoyline.integrations.strands.summaries import EXTRACTIVE, SummarizingConversationManager
from buoyline.management import ContextManagement, to_strands_settings
from buoyline.offloader import Offloader
from buoyline.tokens import TokenCounter
from buoyline.window.events import OnEvent
from buoyline.window.settings import Management, document_of

if TYPE_CHECKING:
    from strands import Agent

# `NullConversationManager`: the history stays as it is.


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


def conversation_manager_of(
    management: Management,
    *,
    workspace: Offloader,
    session_id: str | None = None,
    counter: TokenCounter | None = None,
    summarizer: Summarizer | SummaryFunction | None = None,
    summarizers: Mapping[str, Summarizer | SummaryFunction] | None = None,
    use_model: bool = False,
    on_event: OnEvent | None = None,
    allowed: Sequence[str] = (),
) -> WorkspaceConversationManager:
    """Return a conversation manager that does what a document says.

    A document that says just what one of Strands' managers does, such as `buoyline.management.from_strands_settings`
    writes, gives that one; any other, and each with *on_event*, a `DocumentConversationManager`.

    Args:
        management: A document, its JSON values, a file, or a name; see `buoyline.window.settings.document_of`.
        workspace: See `WorkspaceConversationManager`; has the documents of its own where it is a `LocalWorkspace`.
        session_id: See `WorkspaceConversationManager`.
        counter: See `WorkspaceConversationManager`.
        summarizer: See `DocumentConversationManager`.
        summarizers: See `DocumentConversationManager`.
        use_model: See `DocumentConversationManager`.
        on_event: See `DocumentConversationManager`.
        allowed: See `DocumentConversationManager`.

    Raises:
        BuoylineError: The document cannot be found or acted on.
    """
    document = document_of(management, workspace, allowed=allowed)
    given: dict[str, Any] = {"workspace": workspace, "session_id": session_id, "counter": counter}
    writers: dict[str, Any] = {"summarizer": summarizer, "use_model": use_model}
    has_writer = use_model or summarizer is not None
    named = None if on_event is not None else _named(document)
    match named:
        case ("NullConversationManager", _):
            return NullConversationManager(**given)
        case ("SlidingWindowConversationManager", settings):
            return SlidingWindowConversationManager(**given, **settings)
        case ("SummarizingConversationManager", settings) if not (
            has_writer and "summarization_system_prompt" in settings
        ):
            has_writer = has_writer or "summarization_system_prompt" in settings
            return SummarizingConversationManager(
                **given, summarizer=summarizer if has_writer else EXTRACTIVE, **settings
            )
        case _:
            return DocumentConversationManager(
                document, **given, **writers, summarizers=summarizers, on_event=on_event, allowed=allowed
            )


def _named(document: ContextManagement) -> tuple[str, dict[str, Any]] | None:
    """Return the manager of Strands' that does what *document* says, with its settings; None where none does."""
    try:
        return to_strands_settings(document)
    except ConfigError:
        return None
