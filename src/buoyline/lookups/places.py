"""What offloaded content is read from: a workspace on disk, or one in memory."""

from collections.abc import Iterator
from pathlib import PurePath
from typing import Protocol, TypeAlias

from buoyline.errors import ConfigError
from buoyline.offloader.protocol import instead_of
from buoyline.workspace import LocalWorkspace, MemoryWorkspace
from buoyline.workspace.index import Index

Workspace: TypeAlias = LocalWorkspace | MemoryWorkspace


class KeepsFiles(Protocol):
    """Files by names relative to the workdir; see `buoyline.workspace.local_tree.LocalTree`."""

    def path(self, name: str, /) -> str:
        """Return what the model is told as the place of *name*."""
        ...

    def names(self, name: str, /) -> list[str]:
        """Return the entries of directory *name*, sorted."""
        ...

    def is_directory(self, name: str, /) -> bool:
        """Tell whether *name* is a directory."""
        ...

    def exists(self, name: str, /) -> bool:
        """Tell whether *name* is there, as anything."""
        ...

    def size(self, name: str, /) -> int | None:
        """Return the bytes of the file *name*; None when there is none."""
        ...

    def read(self, name: str, offset: int = 0, size_bytes: int = ..., /) -> bytes:
        """Return *size_bytes* bytes from *offset*, or all that follows it."""
        ...

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the content of *name* in pieces."""
        ...


class KeepsPayloads(Protocol):
    """Payloads by their references."""

    def get(self, reference: str, /) -> bytes:
        """Return the bytes behind *reference*."""
        ...


class Session(Protocol):
    """A session, as far as its files are read."""

    @property
    def directory(self) -> str:
        """Where its files are, relative to the workdir."""
        ...

    def index(self) -> Index:
        """Return what its journal says."""
        ...


class Files(Protocol):
    """The files of a workspace, for reading."""

    @property
    def workdir(self) -> PurePath:
        """What absolute paths begin with."""
        ...

    @property
    def tree(self) -> KeepsFiles:
        """The files."""
        ...

    @property
    def blobs(self) -> KeepsPayloads:
        """The payloads under ``data/``."""
        ...

    def session(self, session_id: str) -> Session:
        """Return a session. Raises `NotFoundError`."""
        ...


def files_of(workspace: object) -> Files:
    """Return the files of *workspace*.

    Raises:
        ConfigError: It is neither a `LocalWorkspace` nor a `MemoryWorkspace`.
    """
    if isinstance(workspace, LocalWorkspace):
        return workspace
    if isinstance(workspace, MemoryWorkspace):
        return workspace.files()
    raise ConfigError("workspace", f"{type(workspace).__name__} is no workspace; {instead_of(workspace)}")


def require_files(workspace: object) -> None:
    """Refuse what has no files on disk, which search by other programs and child processes need.

    Raises:
        ConfigError: *workspace* is no `LocalWorkspace`.
    """
    if isinstance(workspace, LocalWorkspace):
        return
    hint = instead_of(workspace)
    if isinstance(workspace, MemoryWorkspace):
        hint += "; in memory, retrieve and retrieval_tool find what was offloaded"
    raise ConfigError("workspace", f"a {type(workspace).__name__} has no files to look things up in: {hint}")
