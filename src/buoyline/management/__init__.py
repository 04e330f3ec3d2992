"""Context-management documents: which managers run at which hook, and when.

Here documents are read, checked and explained, and managers decide what to do with a view of the context. Only a
`ContextEditor`, such as a window, changes a context.
"""

from buoyline.management.model import ContextManagement
from buoyline.management.registry import Registry
from buoyline.management.rules import DocumentWarning
from buoyline.management.run import ManagementReport, ManagerRun
from buoyline.management.settings import (
    from_context_config,
    from_strands_settings,
    to_context_config,
    to_strands_settings,
)

__all__ = [
    "ContextManagement",
    "DocumentWarning",
    "ManagementReport",
    "ManagerRun",
    "Registry",
    "from_context_config",
    "from_strands_settings",
    "to_context_config",
    "to_strands_settings",
]
