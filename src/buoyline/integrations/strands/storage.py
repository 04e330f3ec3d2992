"""Storages of Strands' context offloader: a workspace, and Strands' own names over a directory or in memory.

Source: Strands' page on the storages, for names, parameters, references and errors.
"""

import asyncio
import errno
import json
import os
import re
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from strands.sandbox.not_a_sandbox_local_environment import NotASandboxLocalEnvironment
from strands.vended_plugins.context_offloader import InMemoryStorage as TheirInMemoryStorage

from buoyline.errors import ConfigError, CorruptError, NotFoundError, StorageError
from buoyline.messages import Text, ToolResult
from buoyline.offloader.protocol import StoredFile
from buoyline.window.records import stub_key
from buoyline.workspace import LocalWorkspace, Workspace, layout
from buoyline.workspace.results import get_blob
from buoyline.workspace.session import Session

if TYPE_CHECKING:
    from strands.sandbox.base import Sandbox
    from strands.types.content import Message

StrPath: TypeAlias = str | os.PathLike[str]

_T = TypeVar("_T")

_TEXT: Final = "text/plain"
_LIST: Final = "[Stored references:]"


class _Place(NamedTuple):
    """Where content is.

    Attributes:
        path: Its file, relative to the workdir.
        session: The session that has stored it, as it was read.
        record: What the session says of it.
    """

    path: str
    session: Session
    record: Mapping[str, Any]


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
        layout.session_directory(self.session_id)
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
        store = partial(_stored, key=key, content=content, content_type=content_type)
        name = await self._in_session(store)
        return f"{self._root or self.workspace.roots[0]}/{name}"

    async def retrieve(self, reference: str) -> tuple[bytes, str]:
        """Return the content of *reference* and its type.

        Args:
            reference: The path, as `store` has returned it or spelled otherwise, or the bare name of the file.

        Raises:
            KeyError: There is no such content, this storage may not read it, or several sessions have that bare name.
            CorruptError: The file is not as it was stored.
            StorageError: The file cannot be read.
        """
        return await asyncio.to_thread(self._retrieved, reference)

    async def record_stub(self, stub: str) -> None:
        """Record that the text *stub* lists results of this session.

        A restarted agent without a session manager has another session than its messages come from. A path in a message
        proves nothing, since anybody may write it. The whole text of a recorded stub does: nobody can guess it.

        Raises:
            BuoylineError: The workspace refused.
        """
        names = {self._name_of(listed) for listed in re.findall(r"\n  (.+) \(", stub.rpartition(_LIST)[2])}

        def note(session: Session) -> None:
            found = [place.record for place in _places_in([session]) if place.path in names]
            files = {file[0]: file for record in found for file in record["files"]}
            for record in found[:1]:
                noted = {"key": record["key"], "files": [*files.values()], "type": record["type"]}
                session.note_result({**noted, "stub": stub_key(stub)})

        await self._in_session(note)

    async def _in_session(self, work: Callable[[Session], _T]) -> _T:
        def run(session: Session) -> _T:
            if not session.state.exists:
                session.load()
            return work(session)

        return await self.workspace.in_session(self.session_id, run)

    def _retrieved(self, reference: str) -> tuple[bytes, str]:
        """Do the work of `retrieve`. Blocking."""
        places = self._places_of(reference, everywhere=not self._is_named) or self._listed_places(reference)
        if len({place.path for place in places}) != 1:
            raise KeyError(f"Reference not found: {reference}")
        try:
            return _content(places[-1]), str(places[-1].record.get("type", _TEXT))
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            raise KeyError(f"Reference not found: {reference}") from error

    def _listed_places(self, reference: str) -> list[_Place]:
        """Return the places of *reference* in sessions that have recorded one of the agent's own tool results."""
        blocks = [block for message in self._messages for block in message["content"]]
        parts = [part for block in blocks if "toolResult" in block for part in block["toolResult"]["content"]]
        stubs = {stub_key(text) for part in parts if reference in (text := part.get("text", ""))}
        places = self._places_of(reference, everywhere=True) if stubs else []
        return [
            place
            for place in places
            if any(record.get("stub") in stubs for record in place.session.state.results.values())
        ]

    def _places_of(self, reference: str, *, everywhere: bool) -> list[_Place]:
        """Return the places that *reference* names in this session, or *everywhere* in the workspace."""
        name = self._name_of(reference)
        try:
            sessions = self.workspace.sessions() if everywhere else [self.workspace.stored(self.session_id)]
            return [place for place in _places_in(sessions) if name in {place.path, place.path.rpartition("/")[2]}]
        except NotFoundError:
            return []

    def _name_of(self, reference: str) -> str:
        """Return *reference* relative to the workdir; a bare name, and a path that leads elsewhere, as it is."""
        for spelled in (reference, os.path.abspath(reference)) if "/" in reference else ():  # noqa: PTH100 - resolves `..`
            for root in (self._root, *self.workspace.roots):
                if root and spelled.startswith(f"{root}/"):
                    return spelled.removeprefix(f"{root}/")
        return reference


def _places_in(sessions: Iterable[Session]) -> Iterator[_Place]:
    """Yield each file with content of *sessions*, oldest first."""
    for session in sessions:
        for name, record in session.state.results.items():
            path = name if name.startswith(f"{layout.DATA}/") else f"{session.name}/{name}"
            yield _Place(path, session, record)


def _stored(session: Session, key: str, content: bytes, content_type: str) -> str:
    """Store content, and return the name of its file relative to the workdir."""
    text = content.decode("utf-8", "replace")
    if content_type == _TEXT and text.encode() == content:
        stored = session.results.store(session.redaction.result(ToolResult(key, "", (Text(text),))))
        name, files = f"{session.name}/{stored.name}", stored.files
    else:
        name = layout.blob_behind(session.put(content, content_type)) or ""
        files = (StoredFile(name, len(content), ""),)
    known = session.state.results.get(files[0].name)
    if known is None or known.get("type") != content_type:
        session.note_result({"key": key, "files": [[*file] for file in files], "type": content_type})
    return name


def _content(place: _Place) -> bytes:
    """Return what was stored.

    Raises:
        CorruptError: The file was changed.
        StorageError: It cannot be read.
    """
    disk, (_, size_bytes, crc) = place.session.disk, place.record["files"][0]
    if not crc:
        return get_blob(disk, layout.reference_to(place.path))
    content = disk.read(place.path)
    if (len(content), f"{zlib.crc32(content):08x}") != (size_bytes, crc):
        raise CorruptError(disk.path(place.path), "is not what was stored; restore it from a copy")
    return content


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
        """Return the content of *reference*, a path or the bare name of a file, and its type.

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
