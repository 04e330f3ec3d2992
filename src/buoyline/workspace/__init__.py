"""The workspace: one log of each session, its results, and the files beside them."""

from buoyline.workspace.workspace import LocalWorkspace, MemoryWorkspace, Workspace

__all__ = [
    "LocalWorkspace",
    "MemoryWorkspace",
    "Workspace",
]
