"""Context-management documents: which managers run at which hook, and when.

Here documents are read, checked and explained, and managers decide what to do with a view of the context. Only a
`ContextEditor`, such as a window, changes a context.
"""

from buoyline.management.actions import (
    ActionResult,
    ContextEditor,
    Decision,
    Evict,
    ManagerAction,
    Offload,
    Pin,
    Summarize,
)
from buoyline.management.conversation import ManagedConversation
from buoyline.management.custom import Reducer
from buoyline.management.managers import MANAGERS
from buoyline.management.model import ContextManagement, ManagerEntry
from buoyline.management.opensearch import chosen, management_in
from buoyline.management.registry import BUILT_IN, Registry, built_in
from buoyline.management.rules import HOOKS, Activation, DocumentWarning, Hook
from buoyline.management.run import ManagementReport, ManagerRun, run, run_on_overflow
from buoyline.management.settings import (
    advice,
    explained,
    from_context_config,
    from_strands_settings,
    to_context_config,
    to_strands_settings,
)
from buoyline.management.view import ContextMessage, ContextView

__all__ = [
    "BUILT_IN",
    "HOOKS",
    "MANAGERS",
    "ActionResult",
    "Activation",
    "ContextEditor",
    "ContextManagement",
    "ContextMessage",
    "ContextView",
    "Decision",
    "DocumentWarning",
    "Evict",
    "Hook",
    "ManagedConversation",
    "ManagementReport",
    "ManagerAction",
    "ManagerEntry",
    "ManagerRun",
    "Offload",
    "Pin",
    "Reducer",
    "Registry",
    "Summarize",
    "advice",
    "built_in",
    "chosen",
    "explained",
    "from_context_config",
    "from_strands_settings",
    "management_in",
    "run",
    "run_on_overflow",
    "to_context_config",
    "to_strands_settings",
]
