"""The workspace: offloaded and archived content, as plain files or in memory.

Here live the files of a session and the code that writes, reads and recovers them. Token counting, previews of results,
verification, gc and lookups do not: they use a workspace.
"""

from buoyline.workspace.files import File, Files, ReadableWorkspace, Status
from buoyline.workspace.local import LocalWorkspace
from buoyline.workspace.memory import MemoryWorkspace
from buoyline.workspace.stored_session import StoredSession

__all__ = [
    "File",
    "Files",
    "LocalWorkspace",
    "MemoryWorkspace",
    "ReadableWorkspace",
    "Status",
    "StoredSession",
]
