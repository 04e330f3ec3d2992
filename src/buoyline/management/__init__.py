"""Context-management documents in OpenSearch's form: which managers run at which hook, and when.

Here documents are read, checked and explained, and managers decide what to do with a context. Only a window acts.
"""

from buoyline.management.managers import register_manager
from buoyline.management.model import ContextManagement

__all__ = ["ContextManagement", "register_manager"]
