"""A conversation manager by the document that says what it does."""

from buoyline.errors import ConfigError
from buoyline.integrations.strands.conversation import WorkspaceConversationManager
from buoyline.integrations.strands.null import NullConversationManager
from buoyline.integrations.strands.sliding_window import SlidingWindowConversationManager
from buoyline.integrations.strands.summarizing import SummarizingConversationManager
from buoyline.management import to_strands_settings
from buoyline.offloader import Offloader
from buoyline.tokens import TokenCounter
from buoyline.window.documents import Management, document_of


def conversation_manager_of(
    management: Management,
    *,
    workspace: Offloader,
    session_id: str | None = None,
    counter: TokenCounter | None = None,
) -> WorkspaceConversationManager:
    """Return the conversation manager that does what a document says.

    An agent's history is Strands' own, and its managers act at Strands' moments: so only documents that say what one of
    them can do are taken. `buoyline.management.from_strands_settings` writes such documents.

    Args:
        management: A document, its JSON values, a file, or a name; see `buoyline.window.documents.document_of`.
        workspace: See `WorkspaceConversationManager`; has the documents of its own where it is a `LocalWorkspace`.
        session_id: See `WorkspaceConversationManager`.
        counter: See `WorkspaceConversationManager`.

    Raises:
        ConfigError: The document says more than any of Strands' managers can do; use a `ContextWindow` for it.
        BuoylineError: It cannot be found or acted on.
    """
    name, settings = to_strands_settings(document_of(management, workspace))
    if name == "NullConversationManager":
        return NullConversationManager(workspace=workspace, session_id=session_id, counter=counter)
    if name == "SlidingWindowConversationManager":
        return SlidingWindowConversationManager(workspace=workspace, session_id=session_id, counter=counter, **settings)
    if name == "SummarizingConversationManager":
        return SummarizingConversationManager(workspace=workspace, session_id=session_id, counter=counter, **settings)
    raise ConfigError("management", f"there is no conversation manager {name!r}")
