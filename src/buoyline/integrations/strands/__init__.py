"""buoyline in Strands: the offloading plugin, storages and conversation managers of an agent: docs/strands.md.

Names, parameters and defaults are Strands' own, and so is most of the code: `offloader`, `storage` and `managers` are
subclasses. Anything that is not about Strands' own classes belongs to `buoyline.window`.
"""

from buoyline.errors import MissingExtraError

try:
    import strands as _  # noqa: F401 - to say what is missing in one line
except ModuleNotFoundError as error:
    if error.name != "strands":
        raise
    raise MissingExtraError("strands", "strands") from None

from strands.agent.conversation_manager import ConversationManager, ProactiveCompressionConfig
from strands.vended_plugins.context_offloader import S3Storage, ShouldOffload, Storage

from buoyline.integrations.strands.managers import (
    Archiving,
    NullConversationManager,
    SlidingWindowConversationManager,
    StrandsModelSummarizer,
    SummarizingConversationManager,
    WorkspaceConversationManager,
)
from buoyline.integrations.strands.offloader import ContextOffloader, WorkspaceOffloader
from buoyline.integrations.strands.storage import FileStorage, InMemoryStorage, WorkspaceStorage

# ConversationManager, ProactiveCompressionConfig, S3Storage, ShouldOffload and Storage are Strands' own, so that code
# that follows its pages changes an import alone.
__all__ = [
    "Archiving",
    "ContextOffloader",
    "ConversationManager",
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
