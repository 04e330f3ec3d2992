"""Strands' storages of offloaded content under their own names, with a workspace behind them.

Source: Strands' page on the storage of its context offloader, for names, parameters and defaults.
"""

import os
from typing import TYPE_CHECKING

from buoyline.integrations.strands.storage import WorkspaceStorage
from buoyline.workspace import MemoryWorkspace

if TYPE_CHECKING:
    from strands.sandbox.base import Sandbox


class FileStorage(WorkspaceStorage):
    """`WorkspaceStorage` in a directory: change the import, and what is offloaded is durable and whole."""

    def __init__(
        self, artifact_dir: str | os.PathLike[str] = "./artifacts", *, sandbox: "Sandbox | None" = None
    ) -> None:
        """Store in *artifact_dir*; see `WorkspaceStorage`.

        Args:
            artifact_dir: The directory of a workspace. A relative one makes relative references.
            sandbox: The one that the agent runs in; files are the host's all the same.

        Raises:
            ConfigError: *artifact_dir* is no path.
        """
        super().__init__(artifact_dir, sandbox=sandbox)


class InMemoryStorage(WorkspaceStorage):
    """`WorkspaceStorage` in memory. `WorkspaceOffloader` counts its turns; Strands' own plugin does not."""

    def __init__(self, evict_after_turns: int | None = 20) -> None:
        """Hold what is stored for so many turns after it was last used; see `MemoryWorkspace`.

        Args:
            evict_after_turns: None keeps everything.

        Raises:
            ConfigError: *evict_after_turns* is neither None nor a whole number above 0. It is a ValueError.
        """
        super().__init__(MemoryWorkspace(evict_after_turns=evict_after_turns))
