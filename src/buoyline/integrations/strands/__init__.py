"""buoyline in Strands: the offloading plugin, storages and conversation managers of an agent: docs/strands.md.

Names, parameters and defaults are Strands' own. Tool results go from `plugin` over `results` to a `storage`. `managers`
and `documents` plan what is compacted; `followed` keeps a history in step with a window, whose engine archives,
summarizes and writes down. Anything that is not about Strands' own classes belongs to `buoyline.window`.
"""

try:
    import strands as _  # noqa: F401 - to say what is missing in one line
except ModuleNotFoundError as error:
    if error.name != "strands":
        raise
    message = "buoyline.integrations.strands needs the extra 'strands'"
    raise ModuleNotFoundError(message, name="strands") from None

from strands.agent.conversation_manager import ConversationManager, ProactiveCompressionConfig
from strands.vended_plugins.context_offloader import S3Storage, Storage

from buoyline.integrations.strands.conversation import WorkspaceConversationManager
from buoyline.integrations.strands.documents import DocumentConversationManager
from buoyline.integrations.strands.managers import (
    NullConversationManager,
    SlidingWindowConversationManager,
    SummarizingConversationManager,
)
from buoyline.integrations.strands.plugin import ContextOffloader, ShouldOffload, WorkspaceOffloader
from buoyline.integrations.strands.storage import FileStorage, InMemoryStorage, WorkspaceStorage
from buoyline.integrations.strands.summarizers import StrandsModelSummarizer

# Strands' own ConversationManager, ProactiveCompressionConfig, S3Storage and Storage can be imported from here, so that
# code that follows its pages changes an import alone.
__all__ = [
    "ContextOffloader",
    "ConversationManager",
    "DocumentConversationManager",
    "FileStorage",
    "InMemoryStorage",
    "NullConversationManager",
    "ProactiveCompressionConfig",
    "S3Storage",
    "ShouldOffload",
    "SlidingWindowConversationManager",
    "Storage",
    "StrandsModelSummarizer",
    "SummarizingConversationManager",
    "WorkspaceConversationManager",
    "WorkspaceOffloader",
    "WorkspaceStorage",
]
