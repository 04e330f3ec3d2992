"""A workspace as the storage of a Strands agent and of its context offloader, also under the names of Strands' own.

Source: Strands' pages on the context offloader and its storage.
"""

import asyncio
import errno
import logging
import os
import posixpath
import re
import time
import uuid
from collections.abc import Coroutine, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from strands.sandbox.not_a_sandbox_local_environment import NotASandboxLocalEnvironment
from strands.vended_plugins.context_offloader import InMemoryStorage as TheirInMemoryStorage

from buoyline.errors import ConfigError, InvalidNameError, MessageError, NotFoundError, StorageError
from buoyline.integrations.strands.history import session_named
from buoyline.messages import Json, Media, Text, ToolResult, spell
from buoyline.messages.jsonl import is_object, parse
from buoyline.offloader import StoredResult
from buoyline.workspace import LocalWorkspace, MemoryWorkspace, layout
from buoyline.workspace.journal import Record

if TYPE_CHECKING:
    from strands.sandbox.base import Sandbox
    from strands.storage import Storage

# Bytes of a content type as a part of a tool result, and back.

PLAIN_TEXT: Final = "text/plain"
_KINDS: Final = frozenset({"audio", "image", "video"})


def part_of(content: bytes, content_type: str) -> Text | Media:
    """Return *content* as a part: plain text as text, all else as media of its type."""
    if content_type == PLAIN_TEXT:
        try:
            return Text(content.decode("utf-8"))
        except UnicodeDecodeError:
            pass
    kind = content_type.partition("/")[0]
    return Media(kind if kind in _KINDS else "document", content_type, len(content), payload=content or None)


def payload_of(result: ToolResult, blob: str = "") -> tuple[bytes, str]:
    """Return the bytes and the content type of a stored *result*, or of the media in it whose file is *blob*.

    A result of one JSON block is that JSON; one of several blocks is their text.

    Raises:
        KeyError: No part of *result* is in *blob*.
    """
    if blob:
        for part in result.parts:
            content = part.content() if isinstance(part, Media) else None
            if isinstance(part, Media) and content and layout.blob_name(content, part.media_type) == blob:
                return content, part.media_type
        raise KeyError(blob)
    match result.parts:
        case (Media() as part,):
            return part.content() or b"", part.media_type
        case (Json() as part,):
            return part.json.encode("utf-8", "surrogatepass"), "application/json"
        case _:
            return result.text.encode("utf-8", "surrogatepass"), PLAIN_TEXT


# Strands' context offloader puts a frame around content that it writes to a unified storage.
#
# Source: ``_frame_content`` of `strands.vended_plugins.context_offloader.plugin`: two bytes with the length of the
# content type, big-endian, the content type in UTF-8, the content.

_LENGTH_BYTES: Final = 2
_CONTENT_TYPE = re.compile(rb"[A-Za-z0-9!#$&^_.+-]{1,120}/[A-Za-z0-9!#$&^_.+-]{1,120}")


class Framed(NamedTuple):
    """Content without its frame; without a frame, *content_type* is empty and *content* all bytes."""

    content_type: str
    content: bytes


def framed(content: bytes, content_type: str) -> bytes:
    """Return *content* in the frame of the context offloader."""
    spelled = content_type.encode("utf-8")
    return len(spelled).to_bytes(_LENGTH_BYTES, "big") + spelled + content


def unframed(data: bytes) -> Framed:
    r"""Return *data* without its frame.

    >>> unframed(b"\x00\x0atext/plainhi")
    Framed(content_type='text/plain', content=b'hi')
    """
    end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "big")
    content_type = data[_LENGTH_BYTES:end]
    if len(data) < end or _CONTENT_TYPE.fullmatch(content_type) is None:
        return Framed("", data)
    return Framed(content_type.decode("ascii"), data[end:])


# References of a storage: a path, a bare file name, or one without extension.


class Located(NamedTuple):
    """A stored result, or media in it.

    Attributes:
        session_id: The session that stored it.
        name: Of the result's file, within the session.
        blob: The file of the media, relative to the workdir; empty for the result itself.
    """

    session_id: str
    name: str
    blob: str = ""


def session_in(workspace: LocalWorkspace | MemoryWorkspace, directory: str) -> str | None:
    """Return the id of the session whose files are in *directory*; None if there is none. Blocking."""
    try:
        found = parse(workspace.files.read(f"{directory}/{layout.SESSION_FILE}"))
    except (InvalidNameError, MessageError, NotFoundError, StorageError):
        return None
    session_id = found.get("id") if is_object(found) else None
    return session_id if isinstance(session_id, str) else None


def relative_to(reference: str, root: str | None, workspace: LocalWorkspace) -> str | None:
    """Return *reference* relative to the workdir, a bare name as it is; None if it leads elsewhere.

    It may also be relative to where the process was started. *root* is the beginning of relative references; None: they
    are absolute.
    """
    if root is not None and reference.startswith(f"{root}/"):
        return _checked_name(reference[len(root) + 1 :])
    if _checked_name(reference) is None or "/" not in reference:
        return _checked_name(reference)
    path = Path(reference).absolute()
    for workdir in workspace.roots:
        if path.is_relative_to(workdir):
            return path.relative_to(workdir).as_posix()
    return None if Path(reference).is_absolute() else reference


def held_result(workspace: MemoryWorkspace, reference: str, session_id: str, *, is_confined: bool) -> Located | None:
    """Return the result in memory behind *reference*, a path or a bare name in *session_id*; None if there is none.

    With *is_confined*, paths of other sessions are refused.
    """
    directory, _, name = reference.removeprefix("memory:///").rpartition("/")
    if not layout.is_result_name(name):
        return None
    owner = session_in(workspace, directory) if directory else session_id
    return None if owner is None or (is_confined and owner != session_id) else Located(owner, name)


def result_anywhere(workspace: LocalWorkspace, named: str) -> Located | None:
    """Return the result or media at *named*, relative to the workdir, in any session. Blocking.

    A bare name that several sessions have is ambiguous: None. The type of a blob is in any session that has it.

    Raises:
        CorruptError: A session's journal is gone.
    """
    directory = named.rpartition("/")[0]
    if directory.startswith(f"{layout.SESSIONS}/"):
        owner = session_in(workspace, directory)
        return None if owner is None else result_named(workspace, owner, named)
    found = [place for each in workspace.session_ids() if (place := result_named(workspace, each, named)) is not None]
    return found[0] if len({place.blob or place for place in found}) == 1 else None


def result_named(workspace: LocalWorkspace, session_id: str, named: str) -> Located | None:
    """Return the newest result or media of a session at *named*, relative to the workdir. Blocking.

    Raises:
        CorruptError: The session's journal is gone.
    """
    try:
        session = workspace.session(session_id)
    except NotFoundError:
        return None
    results = session.index().results
    places = (place for name, record in reversed(results.items()) for place in _places(session_id, name, record))
    for place in places:
        path = place.blob or f"{session.directory}/{place.name}"
        bare = PurePosixPath(path)
        if named == path or ("/" not in named and named in (bare.name, bare.stem)):
            return place
    return None


def _places(session_id: str, name: str, record: Record) -> Iterator[Located]:
    yield Located(session_id, name)
    for part in record.get("parts", ()):
        if is_object(part) and isinstance(part.get("path"), str):
            yield Located(session_id, name, part["path"])


def _checked_name(named: str) -> str | None:
    return named if named and ".." not in named.split("/") and "\0" not in named else None


Workspace: TypeAlias = LocalWorkspace | MemoryWorkspace


class WorkspaceStorage:
    """Stores content that a Strands agent offloads in a workspace, whole, durable and readable.

    ``ContextOffloader(storage=WorkspaceStorage("./workspace"))`` calls ``store`` and ``retrieve`` with each block; the
    references that the model sees are paths for ``cat`` and ``grep``.

    Plain text is a file of the session, where buoyline's lookups find it. Everything else is under ``data/`` by the
    hash of its bytes, with the extension of its type (``.bin`` for HTML and SVG, which run when they are opened). The
    session's journal has both with their types, so that any process finds them. The same key with other content is
    another file.

    Nothing is evicted on disk. A `MemoryWorkspace` evicts by turns, which `WorkspaceOffloader` or `ContextWindow`
    count.
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
            workspace: A workspace, or the directory of one. With a relative directory, references are relative, else
                absolute.
            session_id: The session of the content; content of other sessions cannot be retrieved. Default:
                ``"strands"``, or with `WorkspaceOffloader` each agent's own; then `retrieve` finds the content of all
                sessions, since the storage belongs to the host program, not to one agent.
            agent_id: The agent within the session, if several share it.
            sandbox: That of the agent. Files are on the host all the same: the agent reads them with the tools that run
                there.

        Raises:
            InvalidNameError: The session cannot have this id.
            ConfigError: *workspace* is neither a workspace nor a path.
        """
        self._root: str | None = None  # the beginning of relative references; None: they are absolute
        if isinstance(workspace, Workspace):
            self.workspace = workspace
        elif isinstance(workspace, (str, os.PathLike)):
            given = os.path.expanduser(workspace)  # noqa: PTH111 - as `LocalWorkspace` does
            self._root = None if Path(given).is_absolute() else given.rstrip("/") or "."
            self.workspace = LocalWorkspace(given)
        else:
            raise ConfigError("workspace", f"{type(workspace).__name__} is neither a workspace nor the path of one")
        self.is_named = session_id is not None or agent_id is not None
        session_id = "strands" if session_id is None else session_id
        self.session_id = session_id if agent_id is None else session_named(session_id, agent_id)
        layout.session_directories(self.session_id)
        self._sandbox = sandbox
        self._places: dict[str, Located] = {}

    def for_sandbox(self, sandbox: "Sandbox") -> "WorkspaceStorage":
        """Return this storage if it was made for a sandbox, else one for *sandbox* on the same session."""
        return self if self._sandbox is not None else self._bound(self.session_id, sandbox)

    def for_session(self, session_id: str) -> "WorkspaceStorage":
        """Return a storage in the same workspace for *session_id*; itself if it was made for a session."""
        return self if self.is_named or session_id == self.session_id else self._bound(session_id, self._sandbox)

    async def store(self, key: str, content: bytes, content_type: str = "text/plain") -> str:
        """Store *content*, durable on return, and return its reference: the path of its file.

        Args:
            key: Of the block; is part of the file's name. The same key with other content is another file.
            content: The raw bytes.
            content_type: Its media type, which determines the extension.

        Raises:
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
            reference: As `store` has returned it, as an absolute or relative path, or the bare name of the file, with
                or without its extension.

        Raises:
            KeyError: There is no such content, or, in memory, no longer; or it belongs to another session than that of
                the storage; or several sessions have a file of that bare name.
            CorruptError: The file is not as it was stored.
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
        """Remove all content of a `MemoryWorkspace`, of every session.

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
        name = path or stored.reference.removeprefix(self.workspace.roots[0]).removeprefix("/")
        return self.workspace.files.reference(name) if self._root is None else f"{self._root}/{name}"

    def _held_payload(self, reference: str) -> tuple[bytes, str]:
        """Return a blob in memory. It belongs to no session: only those know its hash who have seen the reference.

        Raises:
            KeyError: *reference* is not that of a blob.
            NotFoundError: It is not in memory, or no longer.
        """
        name = reference.removeprefix("memory:///")
        if isinstance(self.workspace, LocalWorkspace) or layout.digest_in(name) is None:
            raise KeyError(reference)
        return self.workspace.retrieve(layout.reference_to(name)), layout.media_type_of(name)

    async def _found(self, reference: str) -> Located | None:
        """Return the content behind *reference*; None if this storage may return none."""
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


# Strands' own storages over a workspace.
#
# Source: Strands' page on the storage of its context offloader, for names, parameters and defaults.

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


if TYPE_CHECKING:
    from strands.vended_plugins.context_offloader import Storage as BlockStorage

    _block_storage: type[BlockStorage] = WorkspaceStorage


# Storages of users, which may raise anything: a failure must not cost a tool result.

T = TypeVar("T")


async def attempted(work: Coroutine[Any, Any, T]) -> T | Exception:
    """Return the result of *work*, or its exception; the end of the program and a cancellation are raised.

    An exception in a hook of Strands' turns a successful result into an error, and the model never sees the result.
    """
    found: T | BaseException = (await asyncio.gather(work, return_exceptions=True))[0]
    if isinstance(found, BaseException) and not isinstance(found, Exception):
        raise found
    return found


logger = logging.getLogger(__name__)

_PREFIX_PARTS: Final = 2


class FramedStorage:
    """A unified storage in the form of the offloader's: content with its type in front; the key is the reference.

    Keys are below the session, so that two agents on one storage do not overwrite each other's results.
    """

    def __init__(self, storage: "Storage", session_id: str) -> None:
        """Use *storage*, below ``offloader/<session_id>/``."""
        self._storage, self._prefix = storage, f"offloader/{session_id}/"
        self._cycles: dict[str, int] = {}
        self._cycle = 0

    async def evict(self, cycle: int, after_cycles: int | None) -> None:
        """Delete entries that were unused for more than *after_cycles* cycles before *cycle*; None deletes nothing.

        If the storage refuses, the next call tries again.
        """
        self._cycle = cycle
        if after_cycles is None:
            return
        for key in [key for key, used in self._cycles.items() if used < cycle - after_cycles]:
            failure = await attempted(self._storage.delete(key))
            if failure is None:
                del self._cycles[key]
            else:
                logger.debug("%s could not be evicted: %r", key, failure)

    def with_session_of(self, reference: str) -> "FramedStorage":
        """Return a storage for the session in *reference*; itself if there is none."""
        parts = reference.split("/")
        is_ours = len(parts) > _PREFIX_PARTS and parts[0] == "offloader"
        return FramedStorage(self._storage, parts[1]) if is_ours else self

    async def store(self, key: str, content: bytes, content_type: str = "text/plain") -> str:
        """Store *content* and return its key."""
        name = f"{self._prefix}{key}"
        await self._storage.write(name, framed(content, content_type))
        self._cycles[name] = self._cycle
        return name

    async def retrieve(self, reference: str) -> tuple[bytes, str]:
        """Return content and type.

        Raises:
            KeyError: The session has no such content.
        """
        data = await self._storage.read(reference) if reference.startswith(self._prefix) else None
        if data is None:
            raise KeyError(f"Reference not found: {reference}")
        if reference in self._cycles:
            self._cycles[reference] = self._cycle
        content_type, content = unframed(data)
        return content, content_type or "application/octet-stream"
