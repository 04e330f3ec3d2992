"""Storages of Strands' context offloader: a workspace, and Strands' own names over a directory or in memory.

Source: Strands' page on the storages, for names, parameters, references and errors.
"""

import asyncio
import errno
import json
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from strands.sandbox.not_a_sandbox_local_environment import NotASandboxLocalEnvironment
from strands.vended_plugins.context_offloader import InMemoryStorage as TheirInMemoryStorage

from buoyline.errors import ConfigError, NotFoundError, StorageError
from buoyline.messages import Media, Text, ToolResult
from buoyline.messages.model import ResultPart
from buoyline.offloader import StoredResult
from buoyline.workspace import LocalWorkspace, MemoryWorkspace, layout
from buoyline.workspace.stored_session import StoredSession

if TYPE_CHECKING:
    from strands.sandbox.base import Sandbox
    from strands.types.content import Message

StrPath: TypeAlias = str | os.PathLike[str]
Workspace: TypeAlias = LocalWorkspace | MemoryWorkspace

_TEXT: Final = "text/plain"
_LIST: Final = "[Stored references:]"


class _Place(NamedTuple):
    """Where content is.

    Attributes:
        path: Its file, relative to the workdir.
        session_id: The session that has stored it.
        file: The file of its result, within the session.
        part: Its number within the result; None for all texts of it.
    """

    path: str
    session_id: str
    file: str
    part: int | None


class WorkspaceStorage:
    """Stores the content that Strands' offloader takes out of a context, durable, in a session of a workspace.

    References are paths for ``cat`` and ``grep``. Plain text is a file of the session; everything else is below
    ``data/``, by the hash of its bytes. The session records the types, so any process knows them. The same key with
    other content is another file. Nothing is evicted.
    """

    def __init__(self, workspace: Workspace | StrPath, *, session_id: str | None = None) -> None:
        """Store in *workspace*; nothing is created before something is stored.

        Args:
            workspace: A workspace, or the directory of one. References begin with the directory as it is given here.
            session_id: The session to store in, and the only one to retrieve from. Default: each agent's own with our
                plugin; else ``"strands"``, and `retrieve` finds the content of all sessions, since such a storage
                belongs to the host program.

        Raises:
            ConfigError: *workspace* is neither a workspace nor a path.
            InvalidNameError: *session_id* cannot be the id of a session.
        """
        self._root = ""
        if isinstance(workspace, str | os.PathLike):
            given: str = os.fspath(workspace)
            self._root = os.path.expanduser(given).rstrip("/")  # noqa: PTH111 - `./` stays
            workspace = LocalWorkspace(given)
        if not isinstance(workspace, Workspace):
            raise ConfigError("storage", f"{type(workspace).__name__} is neither a workspace, a path nor a storage")
        self.workspace = workspace
        self.session_id = "strands" if session_id is None else session_id
        layout.session_directories(self.session_id)
        self._is_named = session_id is not None
        self._messages: Sequence[Message] = ()

    def for_agent(self, session_id: str, messages: "Sequence[Message]") -> "WorkspaceStorage":
        """Return a storage for the agent with these *messages*, in *session_id* unless this one has a session.

        It also retrieves what an earlier session has stored if the stub is in the agent's own tool results; see
        `record_stub`.
        """
        bound = WorkspaceStorage(self.workspace, session_id=self.session_id if self._is_named else session_id)
        bound._root, bound._messages = self._root, messages
        return bound

    async def store(self, key: str, content: bytes, content_type: str = _TEXT) -> str:
        """Store *content*, durable on return, and return its reference, the path of its file.

        Raises:
            BuoylineError: The workspace refused; nothing was changed.
        """
        part = _part_of(content, content_type)
        stored = await self.workspace.store_result(self.session_id, ToolResult(key, "", (part,)))
        name = stored.parts[0].path or stored.reference.removeprefix(f"{self.workspace.roots[0]}/")
        return f"{self._root}/{name}" if self._root else self.workspace.files.reference(name)

    async def retrieve(self, reference: str) -> tuple[bytes, str]:
        """Return the content behind *reference* and its type.

        Args:
            reference: The path, as `store` has returned it or spelled otherwise, or the bare name of the file.

        Raises:
            KeyError: There is no such content, this storage may not read it, or several sessions have that bare name.
            CorruptError: The file is not as it was stored.
            StorageError: The file cannot be read.
        """
        places = await asyncio.to_thread(self._places_of, reference, everywhere=not self._is_named)
        if not places:
            places = await self._listed_places(reference)
        if len({place.path for place in places}) != 1:
            raise KeyError(f"Reference not found: {reference}")
        _, session_id, file, part = places[-1]
        try:
            found = await self.workspace.load_result(session_id, StoredResult(reference, file))
        except (NotFoundError, StorageError) as error:
            if isinstance(error, StorageError) and error.errno != errno.ENOENT:
                raise
            raise KeyError(f"Reference not found: {reference}") from error
        media = found.parts[part] if part is not None else None
        if isinstance(media, Media):
            return media.content() or b"", media.media_type
        return found.text.encode("utf-8", "surrogatepass"), _TEXT

    async def record_stub(self, stub: str) -> None:
        """Record that the text *stub* lists results of this session.

        A restarted agent without a session manager has another session than its messages come from. A path in a message
        proves nothing, since anybody may write it. The whole text of a recorded stub does: nobody can guess it.

        Raises:
            BuoylineError: The workspace refused.
        """
        for listed in re.findall(r"([^/\s]+) \(", stub.rpartition(_LIST)[2]):
            for place in await asyncio.to_thread(self._places_of, listed):
                await self.workspace.record_stub(self.session_id, stub, StoredResult(listed, place.file))
                return

    async def _listed_places(self, reference: str) -> list[_Place]:
        """Return the places of *reference* in sessions that have recorded one of the agent's own tool results."""
        blocks = [block for message in self._messages for block in message["content"]]
        parts = [part for block in blocks if "toolResult" in block for part in block["toolResult"]["content"]]
        texts = [text for part in parts if reference in (text := part.get("text", ""))]
        places = await asyncio.to_thread(self._places_of, reference, everywhere=True) if texts else []
        return [place for place in places if await self.workspace.load_stubs(place.session_id, texts)]

    def _places_of(self, reference: str, *, everywhere: bool = False) -> list[_Place]:
        """Return the places that *reference* names in this session, or *everywhere* in the workspace. Blocking."""
        try:
            sessions = self.workspace.sessions() if everywhere else [self.workspace.session(self.session_id)]
        except NotFoundError:
            return []
        name = self._name_of(reference)
        is_of_session = name.startswith(f"{layout.SESSIONS}/")
        return [
            place
            for session in sessions
            if not is_of_session or name.startswith(f"{session.directory}/")
            for place in _places_in(session)
            if name in {place.path, place.path.rpartition("/")[2]}
        ]

    def _name_of(self, reference: str) -> str:
        """Return *reference* relative to the workdir; a bare name, and a path that leads elsewhere, as it is."""
        for spelled in (reference, os.path.abspath(reference)) if "/" in reference else ():  # noqa: PTH100 - resolves `..`
            for root in (self._root, *self.workspace.roots):
                if root and spelled.startswith(f"{root}/"):
                    return spelled.removeprefix(f"{root}/")
        return reference


def _places_in(session: StoredSession) -> Iterator[_Place]:
    """Yield each file with content of a session, oldest first."""
    for file, record in [*session.index().results.items()]:  # another thread may add one
        yield _Place(f"{session.directory}/{file}", session.session_id, file, None)
        for number, part in enumerate(record["parts"]):
            if "path" in part:
                yield _Place(part["path"], session.session_id, file, number)


def _part_of(content: bytes, content_type: str) -> ResultPart:
    """Return *content* as a part: plain text as text, all else as media of its type."""
    text = content.decode("utf-8", "replace")
    if content_type == _TEXT and text.encode() == content:
        return Text(text)
    kind = "image" if content_type.startswith("image/") else "document"
    return Media(kind, content_type, len(content), payload=content)


_SIDECAR: Final = ".metadata.json"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_KEY_CHARS: Final = 60


class FileStorage:
    """Strands' storage in a directory: a workspace on the host, plain files in a sandbox.

    A workspace needs locks and syncs, which a sandbox does not offer. There, each block is a file, with its type in a
    file beside it: with one file for all types, two agents would overwrite each other's.

    Attributes:
        host: Stores the content if there is no sandbox.
        sandbox: None on the host.
    """

    def __init__(self, artifact_dir: StrPath = "./artifacts", *, sandbox: "Sandbox | None" = None) -> None:
        """Store in *artifact_dir*, on the host or in *sandbox*; nothing is created before something is stored.

        Raises:
            ConfigError: *artifact_dir* is not a path.
        """
        self.host = WorkspaceStorage(artifact_dir)
        self.sandbox = None if isinstance(sandbox, NotASandboxLocalEnvironment) else sandbox
        self._directory, self._is_bound = os.fspath(artifact_dir).rstrip("/"), sandbox is not None

    def for_sandbox(self, sandbox: "Sandbox") -> "FileStorage":
        """Return this storage if it was made for a sandbox, else one for *sandbox*."""
        if self._is_bound:
            return self
        bound = FileStorage(self._directory, sandbox=sandbox)
        bound.host = self.host  # one workspace, with one pool of threads
        return bound

    async def store(self, key: str, content: bytes, content_type: str = _TEXT) -> str:
        """Store *content* and return its reference: the directory as it was given, and the name of the file.

        Raises:
            OSError: The disk or the sandbox refused.
        """
        if self.sandbox is None:
            return await self.host.store(key, content, content_type)
        slug = _UNSAFE.sub("_", key).strip("_")[:_KEY_CHARS] or "block"
        extension = PurePosixPath(layout.blob_name(b"", content_type)).suffix
        path = f"{self._directory}/{uuid.uuid4().hex}_{slug}{extension}"
        await self.sandbox.write_file(f"{path}{_SIDECAR}", json.dumps({"content_type": content_type}).encode())
        await self.sandbox.write_file(path, content)
        return path

    async def retrieve(self, reference: str) -> tuple[bytes, str]:
        """Return the content behind *reference*, a path or the bare name of a file, and its type.

        Raises:
            KeyError: There is no such content.
        """
        if self.sandbox is None:
            return await self.host.retrieve(reference)
        given = PurePosixPath(reference)
        path = f"{self._directory}/{given.name}"
        try:
            if given.name.endswith(_SIDECAR) or given.parent not in {PurePosixPath(), PurePosixPath(self._directory)}:
                raise FileNotFoundError(reference)
            noted: Any = json.loads(await self.sandbox.read_file(f"{path}{_SIDECAR}"))
            return await self.sandbox.read_file(path), str(noted["content_type"])
        except (KeyError, OSError, TypeError, ValueError) as error:
            raise KeyError(f"Reference not found: {reference}") from error


class InMemoryStorage(TheirInMemoryStorage):
    """Strands' own storage in memory, with the checks that its page documents."""

    def __init__(self, evict_after_turns: int | None = 20) -> None:
        """Keep content until it was unused for *evict_after_turns* model calls; None: for ever.

        Raises:
            ConfigError: *evict_after_turns* is not a positive integer or None. It is a ValueError.
        """
        if evict_after_turns is not None and (type(evict_after_turns) is not int or evict_after_turns < 1):
            raise ConfigError("evict_after_turns", "must be a positive integer, or None to keep everything")
        super().__init__(evict_after_turns)

    def _bind(self, agent_id: int) -> None:
        """Let agents share the storage unless it evicts: their turns differ."""
        if self._evict_after_turns is not None:
            super()._bind(agent_id)
