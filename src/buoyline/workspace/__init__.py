"""The workspace: what left the context, as plain files or in memory. Knows messages, never tokens."""

from buoyline.workspace.local import LocalWorkspace
from buoyline.workspace.memory import MemoryWorkspace
from buoyline.workspace.quotas import Quotas

__all__ = ["LocalWorkspace", "MemoryWorkspace", "Quotas"]
