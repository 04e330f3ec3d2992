"""The part of a workspace that lookups read: names, sizes and ranges of bytes, on disk or in memory."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Protocol, TypeAlias

from buoyline.errors import ConfigError
from buoyline.offloader.protocol import instead_of
from buoyline.workspace import LocalWorkspace, MemoryWorkspace
from buoyline.workspace.index import Index

_CHUNK_BYTES = 1 << 20

Workspace: TypeAlias = LocalWorkspace | MemoryWorkspace


class ByteSource(Protocol):
    """Files by name, read in pieces or by ranges of bytes."""

    def chunks(self, name: str, /) -> Iterator[bytes]:
        """Yield the content of *name* in pieces."""
        ...

    def read(self, name: str, offset: int = 0, size_bytes: int = ..., /) -> bytes:
        """Return *size_bytes* bytes from *offset*, or all that follows it."""
        ...


class FileTree(ByteSource, Protocol):
    """Files by names relative to the workdir."""

    def path(self, name: str, /) -> str:
        """Return the path or reference that a model sees for *name*."""
        ...

    def names(self, name: str, /) -> list[str]:
        """Return the entries of directory *name*, sorted."""
        ...

    def is_directory(self, name: str, /) -> bool:
        """Return whether *name* is a directory."""
        ...

    def exists(self, name: str, /) -> bool:
        """Return whether *name* exists, as a file or anything else."""
        ...

    def size(self, name: str, /) -> int | None:
        """Return the bytes of the file *name*; None if there is none."""
        ...


class BlobSource(Protocol):
    """Content under ``data/``."""

    def get(self, reference: str, /) -> bytes:
        """Return the bytes behind *reference*."""
        ...


class SessionFiles(Protocol):
    """The files of one session."""

    @property
    def directory(self) -> str:
        """Their directory, relative to the workdir."""
        ...

    def index(self) -> Index:
        """Return the content of its journal."""
        ...


class WorkspaceFiles(Protocol):
    """A workspace as far as lookups read it."""

    @property
    def workdir(self) -> PurePath:
        """The beginning of absolute paths."""
        ...

    @property
    def tree(self) -> FileTree:
        """The files."""
        ...

    @property
    def blobs(self) -> BlobSource:
        """The content under ``data/``."""
        ...

    def session(self, session_id: str) -> SessionFiles:
        """Return a session. Raises `NotFoundError`."""
        ...


@dataclass(frozen=True, slots=True)
class InMemoryContent:
    """Content in memory, read like a file, whatever the name."""

    content: bytes

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the content in pieces."""
        for start in range(0, len(self.content), _CHUNK_BYTES):
            yield self.read(name, start, _CHUNK_BYTES)

    def read(self, name: str, offset: int = 0, size_bytes: int = sys.maxsize, /) -> bytes:
        """Return *size_bytes* bytes from *offset*, or all that follows it."""
        del name
        return self.content[offset : offset + size_bytes]


def files_of(workspace: object) -> WorkspaceFiles:
    """Return the files of *workspace*.

    Raises:
        ConfigError: It is neither a `LocalWorkspace` nor a `MemoryWorkspace`.
    """
    if isinstance(workspace, (LocalWorkspace, MemoryWorkspace)):
        return workspace
    raise ConfigError("workspace", f"{type(workspace).__name__} is not a workspace; {instead_of(workspace)}")


def require_files(workspace: object) -> None:
    """Refuse a workspace without files on disk.

    Raises:
        ConfigError: *workspace* is no `LocalWorkspace`.
    """
    if isinstance(workspace, LocalWorkspace):
        return
    hint = instead_of(workspace)
    if isinstance(workspace, MemoryWorkspace):
        hint += "; in memory, retrieve and retrieval_tool find what was offloaded"
    raise ConfigError("workspace", f"a {type(workspace).__name__} has no files to look things up in: {hint}")
