"""Where the lines of a lookup come from: the files of a workspace, or content in memory."""

import errno
import functools
import sys
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ParamSpec, Protocol, TypeAlias, TypeVar

from buoyline.errors import ConfigError, StorageError
from buoyline.offloader.protocol import instead_of

_CHUNK_BYTES = 1 << 20
_ATTEMPTS = 3

P = ParamSpec("P")
R = TypeVar("R")


def repeated_after_removal(lookup: Callable[P, R]) -> Callable[P, R]:
    """Let *lookup* begin again if a file is gone that it had listed: gc may remove a session meanwhile."""

    @functools.wraps(lookup)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        for _ in range(_ATTEMPTS - 1):
            try:
                return lookup(*args, **kwargs)
            except StorageError as error:
                if error.errno != errno.ENOENT:
                    raise
        return lookup(*args, **kwargs)

    return run


Unread: TypeAlias = dict[str, StorageError]
"""Files and directories that a lookup could not read, relative to the workdir; it goes on with the others."""


@contextmanager
def noting_unread(path: str, unread: Unread) -> Generator[None]:
    """Note in *unread* if *path* cannot be read.

    Raises:
        StorageError: It is gone; see `repeated_after_removal`.
    """
    try:
        yield
    except StorageError as error:
        if error.errno == errno.ENOENT:
            raise
        unread[path] = error


def require_some_read(paths: Collection[str], unread: Unread) -> None:
    """Refuse an answer about *paths* if none of them could be read.

    Raises:
        StorageError: The reason of the first one.
    """
    if paths and unread.keys() >= set(paths):
        raise unread[next(iter(paths))]


class ByteSource(Protocol):
    """Files by name, read in pieces or by ranges of bytes."""

    def chunks(self, name: str, /) -> Iterator[bytes]:
        """Yield the content of *name* in pieces."""
        ...

    def read(self, name: str, offset: int = 0, size_bytes: int = ..., /) -> bytes:
        """Return *size_bytes* bytes from *offset*, or all that follows it."""
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


def require_workspace(workspace: object) -> None:
    """Refuse what is no workspace.

    Raises:
        ConfigError: It is no workspace.
    """
    # Not by a protocol's isinstance, which resolves the links of the workdir for `roots`.
    if not hasattr(workspace, "files"):
        raise ConfigError("workspace", f"{type(workspace).__name__} is not a workspace; {instead_of(workspace)}")
