"""Strands' storages of offloaded content under their own names, with a workspace behind them.

Source: Strands' page on the storage of its context offloader, for names, parameters and defaults.
"""

import os
from typing import TYPE_CHECKING, Any

from strands.vended_plugins.context_offloader import InMemoryStorage as TheirInMemoryStorage

from buoyline.errors import ConfigError
from buoyline.integrations.strands.sandbox_storage import SandboxStorage, is_sandboxed
from buoyline.integrations.strands.storage import WorkspaceStorage
from buoyline.workspace import MemoryWorkspace

if TYPE_CHECKING:
    from strands.sandbox.base import Sandbox


class FileStorage(WorkspaceStorage):
    """`WorkspaceStorage` in a directory: change the import, and what is offloaded is durable and whole.

    With a sandbox the files are in the sandbox, block by block, as Strands' own storage keeps them: a workspace needs
    locks and syncs, which no sandbox offers.

    Attributes:
        in_sandbox: Keeps the blocks in the sandbox; None without one.
    """

    def __init__(
        self, artifact_dir: str | os.PathLike[str] = "./artifacts", *, sandbox: "Sandbox | None" = None
    ) -> None:
        """Store in *artifact_dir*; see `WorkspaceStorage`.

        Args:
            artifact_dir: The directory of a workspace. A relative one makes relative references.
            sandbox: Files are written and read through it; Strands' stand-in for the host means the host.

        Raises:
            ConfigError: *artifact_dir* is no path.
        """
        super().__init__(artifact_dir, sandbox=sandbox)
        self._artifact_dir = os.fspath(artifact_dir)
        self.in_sandbox: SandboxStorage | None = None
        if sandbox is not None and is_sandboxed(sandbox):
            self.in_sandbox = SandboxStorage(self._artifact_dir, sandbox)

    def for_sandbox(self, sandbox: Any) -> WorkspaceStorage:
        """Return this storage if it was made for a sandbox, else one whose files are in *sandbox*."""
        if self._sandbox is None and is_sandboxed(sandbox):
            return FileStorage(self._artifact_dir, sandbox=sandbox)
        return super().for_sandbox(sandbox)

    async def store(self, key: str, content: bytes, content_type: str = "text/plain") -> str:
        """Store *content* and return the path of its file; see `WorkspaceStorage.store`.

        Raises:
            OSError: The sandbox refused.
        """
        if self.in_sandbox is not None:
            return await self.in_sandbox.store(key, content, content_type)
        return await super().store(key, content, content_type)

    async def retrieve(self, reference: str) -> tuple[bytes, str]:
        """Return the content behind *reference* and its type; see `WorkspaceStorage.retrieve`.

        Raises:
            KeyError: There is none.
        """
        if self.in_sandbox is not None:
            return await self.in_sandbox.retrieve(reference)
        return await super().retrieve(reference)


class InMemoryStorage(WorkspaceStorage, TheirInMemoryStorage):
    """`WorkspaceStorage` in memory.

    It is one of Strands' class by that name, since Strands' own plugin counts turns for that class alone.
    """

    def __init__(self, evict_after_turns: int | None = 20) -> None:
        """Hold what is stored for so many turns after it was last used; see `MemoryWorkspace`.

        Args:
            evict_after_turns: None keeps everything.

        Raises:
            ConfigError: *evict_after_turns* is neither None nor a whole number above 0. It is a ValueError.
        """
        self._held = MemoryWorkspace(evict_after_turns=evict_after_turns)
        WorkspaceStorage.__init__(self, self._held)
        self._is_evicting, self._agent_id = evict_after_turns is not None, 0

    def _evict(self, cycle: int) -> None:  # noqa: ARG002 - as Strands' plugin calls it before a model call
        self._held.next_turn()

    def _bind(self, agent_id: int) -> None:
        """Refuse a second agent of Strands' plugin: the turns of both would count.

        Raises:
            ConfigError: There is one already. It is a ValueError.
        """
        if self._is_evicting and self._agent_id not in (0, agent_id):
            raise ConfigError(
                "storage", "InMemoryStorage cannot be shared by agents while it evicts; give each its own"
            )
        self._agent_id = agent_id
