"""Storages of offloaded content under the names of Strands' own, over a workspace.

Source: Strands' page on the storage of its context offloader, for names, parameters and defaults.
"""

import os
import posixpath
import re
import time
import uuid
from typing import TYPE_CHECKING, Any, Final

from strands.sandbox.not_a_sandbox_local_environment import NotASandboxLocalEnvironment
from strands.vended_plugins.context_offloader import InMemoryStorage as TheirInMemoryStorage

from buoyline.errors import ConfigError, MessageError
from buoyline.integrations.strands.storage import WorkspaceStorage
from buoyline.messages import spell
from buoyline.messages.jsonl import is_object, parse
from buoyline.workspace import MemoryWorkspace, layout

if TYPE_CHECKING:
    from strands.sandbox.base import Sandbox

_SIDECAR: Final = ".metadata.json"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_KEY_CHARS: Final = 60


def is_sandboxed(sandbox: "Sandbox | None") -> bool:
    """Return whether the files of *sandbox* are not the host's, as they are without a sandbox."""
    return sandbox is not None and not isinstance(sandbox, NotASandboxLocalEnvironment)


class SandboxStorage:
    """Stores each block as a file in one directory of a sandbox, where the agent's shell finds it.

    Each file has a sidecar with its content type: with one sidecar for all, two agents would overwrite each other's
    types. Any process retrieves a block by its reference.

    Source: Strands' page, for the sidecars and the form of references.
    """

    def __init__(self, artifact_dir: str, sandbox: "Sandbox") -> None:
        """Store in *artifact_dir* of *sandbox*; nothing is created before something is stored."""
        self._directory, self._sandbox = artifact_dir.rstrip("/"), sandbox

    async def store(self, key: str, content: bytes, content_type: str = "text/plain") -> str:
        """Store *content* and return the path of its file in the sandbox.

        Raises:
            OSError: The sandbox refused.
        """
        slug = _UNSAFE.sub("_", key).strip("_")[:_KEY_CHARS] or "block"
        extension = posixpath.splitext(layout.blob_name(b"", content_type))[1]
        path = f"{self._directory}/{int(time.time() * 1000)}_{uuid.uuid4().hex[:8]}_{slug}{extension}"
        await self._sandbox.write_file(f"{path}{_SIDECAR}", spell({"content_type": content_type}).encode())
        await self._sandbox.write_file(path, content)
        return path

    async def retrieve(self, reference: str) -> tuple[bytes, str]:
        """Return the content behind *reference*, a path, a file name, or one without extension, and its type.

        Raises:
            KeyError: There is no such file in the directory.
        """
        directory, _, name = reference.rpartition("/")
        is_below = not directory or posixpath.normpath(directory) == posixpath.normpath(self._directory)
        if not name or name.startswith(".") or name.endswith(_SIDECAR) or not is_below:
            raise KeyError(f"Reference not found: {reference}")
        try:
            path = f"{self._directory}/{name if '.' in name else await self._named(name)}"
            return await self._sandbox.read_file(path), await self._type_of(path)
        except OSError as error:
            raise KeyError(f"Reference not found: {reference}") from error

    async def _named(self, stem: str) -> str:
        """Return the one file whose name without its extension is *stem*; else *stem* itself."""
        names = [file.name for file in await self._sandbox.list_files(self._directory)]
        found = [name for name in names if posixpath.splitext(name)[0] == stem]
        return found[0] if len(found) == 1 else stem

    async def _type_of(self, path: str) -> str:
        """Return the content type of a file; if its sidecar is missing or damaged, that of its extension."""
        try:
            noted = parse(await self._sandbox.read_file(f"{path}{_SIDECAR}"))
        except (MessageError, OSError):
            noted = None
        kind = noted.get("content_type") if is_object(noted) else None
        return kind if isinstance(kind, str) else layout.media_type_of(path)


class FileStorage(WorkspaceStorage):
    """`WorkspaceStorage` in a directory: change the import, and offloaded content is durable and whole.

    With a sandbox, the files are in the sandbox, block by block, as with Strands' own storage: a workspace needs locks
    and syncs, which no sandbox offers.

    Attributes:
        in_sandbox: Stores the blocks in the sandbox; None without one.
    """

    def __init__(
        self, artifact_dir: str | os.PathLike[str] = "./artifacts", *, sandbox: "Sandbox | None" = None
    ) -> None:
        """Store in *artifact_dir*; see `WorkspaceStorage`.

        Args:
            artifact_dir: The directory of a workspace. If it is relative, so are references.
            sandbox: Files are written and read through it, unless it is Strands' `NotASandboxLocalEnvironment`.

        Raises:
            ConfigError: *artifact_dir* is not a path.
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

    It is a subclass of Strands' class of that name, since Strands' own plugin counts turns for that class alone.
    """

    def __init__(self, evict_after_turns: int | None = 20) -> None:
        """Store content in memory; see `MemoryWorkspace`.

        Args:
            evict_after_turns: Turns after the last use of content; None keeps everything.

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
            ConfigError: It has one already. It is a ValueError.
        """
        if self._is_evicting and self._agent_id not in (0, agent_id):
            raise ConfigError(
                "storage", "InMemoryStorage cannot be shared by agents while it evicts; give each its own"
            )
        self._agent_id = agent_id
