"""`WorkspaceStorage`: a workspace as the storage of a Strands agent and of its context offloader.

Source: Strands' pages on the context offloader and its storage for ``store`` and ``retrieve``, and
`strands.storage.Storage` for the unified form.
"""

import asyncio
import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from buoyline.errors import ConfigError, NotFoundError, StorageError
from buoyline.integrations.strands.blobs import part_of, payload_of
from buoyline.integrations.strands.keyed import KeyedStorage
from buoyline.integrations.strands.locating import (
    Located,
    held_result,
    relative_to,
    result_anywhere,
    result_named,
)
from buoyline.integrations.strands.naming import session_named
from buoyline.messages import ToolResult
from buoyline.offloader import StoredResult
from buoyline.workspace import LocalWorkspace, MemoryWorkspace, layout

if TYPE_CHECKING:
    from strands.sandbox.base import Sandbox

Workspace: TypeAlias = LocalWorkspace | MemoryWorkspace


class WorkspaceStorage(KeyedStorage):
    """Keeps what a Strands agent offloads in a workspace, whole, durable and readable.

    ``ContextOffloader(storage=WorkspaceStorage("./workspace"))`` stores each block raw, since it finds ``store`` and
    ``retrieve``; the references that the model sees are paths that ``cat`` and ``grep`` take. ``Agent(storage=...)``
    uses the unified form beside it, and so does the offloader with ``WorkspaceStorage(...).namespace("offloads")``.

    Plain text is a file of the session, in reach of buoyline's lookups; everything else stands under ``data/`` by the
    hash of its bytes, with the extension of its type (``.bin`` for HTML and SVG, which run when they are opened). Both
    are in the session's journal, with their types, so that any process finds them again. The same key with other
    content is another file.

    Nothing is evicted: what is on disk stays, and a `MemoryWorkspace` ages by turns, which `WorkspaceOffloader` or
    `ContextWindow` count.
    """

    def __init__(
        self,
        workspace: Workspace | str | os.PathLike[str] = "./artifacts",
        *,
        session_id: str | None = None,
        agent_id: str | None = None,
        sandbox: "Sandbox | None" = None,
    ) -> None:
        """Store in *workspace*; nothing is created before something is stored.

        Args:
            workspace: A workspace, or the directory of one. A relative directory makes relative references, an
                absolute one, or a workspace, absolute ones.
            session_id: The session that content belongs to; content of other sessions cannot be retrieved. Left out,
                it is ``"strands"``, or with `WorkspaceOffloader` each agent's own, and `retrieve` finds the content
                of all sessions: the storage belongs to the host program then, not to one agent.
            agent_id: The agent within the session, where several share it: the same one that `session_of` says of an
                agent with these ids.
            sandbox: The one that the agent runs in. Files are the host's all the same: the agent reads them with the
                tools that run outside of it.

        Raises:
            InvalidNameError: The session cannot have this id.
            ConfigError: *workspace* is neither a workspace nor a path.
        """
        self._root = _root_of(workspace)
        self.workspace = workspace if isinstance(workspace, Workspace) else LocalWorkspace(os.fspath(workspace))
        self.is_named = session_id is not None or agent_id is not None
        session_id = "strands" if session_id is None else session_id
        self.session_id = session_id if agent_id is None else session_named(session_id, agent_id)
        layout.session_directories(self.session_id)
        self._sandbox = sandbox
        self._places: dict[str, Located] = {}
        super().__init__(lambda: self.workspace.entries(self.session_id))

    def for_sandbox(self, sandbox: "Sandbox") -> "WorkspaceStorage":  # type: ignore[override]
        """Return this storage where it was made for a sandbox, else one for *sandbox* on the same session."""
        return self if self._sandbox is not None else self._bound(self.session_id, sandbox)

    def for_session(self, session_id: str) -> "WorkspaceStorage":
        """Return a storage in the same workspace for *session_id*; itself where a session was named for it."""
        return self if self.is_named or session_id == self.session_id else self._bound(session_id, self._sandbox)

    async def store(self, key: str, content: bytes, content_type: str = "text/plain") -> str:
        """Store *content*, durable on return, and return its reference: the path of its file.

        Args:
            key: Of the block; used for the file's name. The same key with other content is kept beside the first.
            content: The raw bytes.
            content_type: Its media type; kept as it is, and tells the extension.

        Raises:
            QuotaExceededError: The content, the session or the workspace would exceed its quota.
            RedactionError: A redaction hook failed; nothing was stored.
            StorageError: The file system refused; nothing was changed.
        """
        part = part_of(content, content_type)
        stored = await self.workspace.store_result(self.session_id, ToolResult(key, "", (part,)))
        path = stored.parts[0].path if content else ""
        reference = self._reference(stored, path)
        self._places[reference] = Located(self.session_id, stored.name, path)
        return reference

    async def retrieve(self, reference: str) -> tuple[bytes, str]:
        """Return the content behind *reference* and its type.

        Args:
            reference: What `store` has returned, the same as an absolute or relative path, or the bare name of the
                file, with or without its extension.

        Raises:
            KeyError: There is no such content, or, in memory, no longer; or a storage with a session of its own is
                asked for another one's; or several sessions have a file of that bare name.
            CorruptError: The file is not what was stored.
            StorageError: The file cannot be read.
        """
        place = self._places.get(reference) or await self._found(reference)
        try:
            if place is None:
                return self._held_payload(reference)
            found = await self.workspace.load_result(place.session_id, StoredResult(reference, place.name, "", 0))
            return payload_of(found, place.blob)
        except (NotFoundError, KeyError) as error:
            raise KeyError(f"Reference not found: {reference}") from error
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            raise KeyError(f"Reference not found: {reference}") from error

    def clear(self) -> None:
        """Remove all that a `MemoryWorkspace` holds, of every session. What is on disk stays: `buoyline gc` removes it.

        Raises:
            ConfigError: The workspace is on disk.
        """
        if isinstance(self.workspace, LocalWorkspace):
            raise ConfigError("clear", "is for a MemoryWorkspace; what is on disk, `buoyline gc` removes")
        self.workspace.clear()

    def _bound(self, session_id: str, sandbox: "Sandbox | None") -> "WorkspaceStorage":
        bound = WorkspaceStorage(self.workspace, session_id=session_id, sandbox=sandbox)
        bound._root = self._root
        bound.is_named = self.is_named or session_id != self.session_id
        if session_id == self.session_id:
            bound._places = self._places
        return bound

    def _reference(self, stored: StoredResult, path: str) -> str:
        if not isinstance(self.workspace, LocalWorkspace):
            return stored.parts[0].reference if path else stored.reference
        name = path or stored.reference.removeprefix(self.workspace.tree.path("")).removeprefix("/")
        return self.workspace.tree.path(name) if self._root is None else f"{self._root}/{name}"

    def _held_payload(self, reference: str) -> tuple[bytes, str]:
        """Return a payload in memory, which belongs to no session: who knows its hash has seen the reference.

        Raises:
            KeyError: It is none.
            NotFoundError: It is not held, or no longer.
        """
        name = reference.removeprefix("memory:///")
        if isinstance(self.workspace, LocalWorkspace) or layout.digest_in(name) is None:
            raise KeyError(reference)
        return self.workspace.retrieve(layout.reference_to(name)), layout.media_type_of(name)

    async def _found(self, reference: str) -> Located | None:
        """Return what *reference* means; None if it means nothing that this storage may give."""
        workspace, session_id = self.workspace, self.session_id
        if not isinstance(workspace, LocalWorkspace):
            return held_result(workspace, reference, session_id, is_confined=self.is_named)
        named = relative_to(reference, self._root, workspace)
        if named is None:
            return None
        found = await asyncio.to_thread(result_named, workspace, session_id, named)
        if found is None and not self.is_named:
            found = await asyncio.to_thread(result_anywhere, workspace, named)
        return found


def _root_of(workspace: Workspace | str | os.PathLike[str]) -> str | None:
    """Return what relative references begin with; None for absolute ones.

    Raises:
        ConfigError: *workspace* is neither a workspace nor a path.
    """
    if isinstance(workspace, Workspace):
        return None
    if not isinstance(workspace, (str, os.PathLike)):
        raise ConfigError("workspace", f"{type(workspace).__name__} is neither a workspace nor the path of one")
    given = os.fspath(workspace)
    return None if Path(given).is_absolute() else given.rstrip("/") or "."


if TYPE_CHECKING:
    from strands.storage import Storage
    from strands.vended_plugins.context_offloader import Storage as OffloaderStorage

    _storage: type[Storage] = WorkspaceStorage
    _offloader_storage: type[OffloaderStorage] = WorkspaceStorage
