"""The workspace: what left the context, as plain files. Knows messages, never tokens."""

from buoyline.workspace.local import LocalWorkspace

__all__ = ["LocalWorkspace"]
