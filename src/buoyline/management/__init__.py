"""Context-management documents: which managers run at which hook, and when.

Here documents are read, checked and explained, and managers decide what to do with a view of the context. Only a
`ContextEditor`, such as a window, changes a context.
"""

from buoyline.management.custom import register_manager
from buoyline.management.model import ContextManagement
from buoyline.management.registry import Registry
from buoyline.management.run import ManagementReport, ManagerRun

__all__ = ["ContextManagement", "ManagementReport", "ManagerRun", "Registry", "register_manager"]
