"""`Tree`: the operations on files that a workspace needs, on a disk or in memory. Private to the two workspaces.

A path is relative to the root, with ``/`` between its steps; it comes from `layout`. Every method raises `StorageError`
if the files refuse, with ``errno.ENOENT`` for a path that is not there.
"""

from collections.abc import Generator, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol, Self


class Status(Protocol):
    """The fields of `os.stat_result` that a workspace reads."""

    @property
    def st_mode(self) -> int:
        """Whether it is a file, a directory, or neither."""
        ...

    @property
    def st_size(self) -> int:
        """Size in bytes."""
        ...

    @property
    def st_ino(self) -> int:
        """Tells it from others that have or had the same path."""
        ...

    @property
    def st_mtime_ns(self) -> int:
        """When it was last changed."""
        ...


class OpenFile(Protocol):
    """An open file that is read, appended to and cut back."""

    def __enter__(self) -> Self:
        """Return the file."""
        ...

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        ...

    def close(self) -> None:
        """Close the file; its unsynced bytes are not lost."""
        ...

    def size(self) -> int:
        """Return the size in bytes."""
        ...

    @property
    def identity(self) -> tuple[int, int]:
        """Differs between two files that had the same path."""
        ...

    def read(self, offset: int, size_bytes: int, /) -> bytes:
        """Return up to *size_bytes* bytes from *offset*; fewer only at the end of the file."""
        ...

    def append(self, content: bytes, /) -> None:
        """Write *content* at the end."""
        ...

    def write_back(self, offset: int, size_bytes: int, /) -> None:
        """Start writing these bytes to the device, so that `sync` waits less."""
        ...

    def cut(self, size_bytes: int, /) -> None:
        """Cut the file to *size_bytes*; a shorter one does not grow."""
        ...

    def sync(self) -> None:
        """Make content and size durable."""
        ...


class Tree(Protocol):
    """A directory and all below it. `LocalTree` and `MemoryTree` implement it."""

    @property
    def is_durable(self) -> bool:
        """Whether a sync reaches a device."""
        ...

    def path(self, name: str, /) -> str:
        """Return *name* as agents and errors spell it."""
        ...

    def make_root(self) -> None:
        """Create the root if it is missing, durably."""
        ...

    def make_directory(self, name: str, /) -> None:
        """Create directory *name* unless it exists."""
        ...

    def status(self, name: str, /) -> Status | None:
        """Return the status of *name*; None if nothing is there."""
        ...

    def exists(self, name: str, /) -> bool:
        """Return whether anything has this path."""
        ...

    def is_directory(self, name: str, /) -> bool:
        """Return whether *name* is a directory."""
        ...

    def size(self, name: str, /) -> int | None:
        """Return the size of the file *name* in bytes; None if there is no such file."""
        ...

    def names(self, name: str, /) -> list[str]:
        """Return the names in directory *name*, sorted, without unfinished ones; empty if it does not exist."""
        ...

    def entries(self, name: str, /) -> Mapping[str, Status]:
        """Return every entry of directory *name* with its status, sorted by name; unfinished ones, too."""
        ...

    def read(self, name: str, offset: int = 0, size_bytes: int | None = None, /) -> bytes:
        """Return *size_bytes* bytes of a file from *offset*; all that follow if it is None."""
        ...

    def chunks(self, name: str, chunk_bytes: int = ..., /) -> Generator[bytes]:
        """Yield the content of a file piece by piece."""
        ...

    def open(self, name: str, /, *, write: bool = False, create: bool = False) -> OpenFile:
        """Open a file, for appending with *write*; with *create* an empty one is created if there is none.

        A caller that appends holds a lock for as long as the file is open.
        """
        ...

    def publish(self, name: str, chunks: Iterable[bytes], /) -> bool:
        """Create file *name*, whole or not at all, and durable on return; False if the name is taken."""
        ...

    def stage(self, directory: str, /) -> tuple[str, OpenFile]:
        """Create an empty file without a final name, and return its path and the open file."""
        ...

    def publish_staged(self, staged: str, name: str, /) -> bool:
        """Give the *staged* file its final name, durably; False, with the file removed, if the name is taken."""
        ...

    def replace(self, name: str, chunks: Iterable[bytes], /) -> None:
        """Replace the content of file *name*, all of it or none, durably."""
        ...

    def freshen(self, name: str, /) -> bool:
        """Set the time of the last change of the file *name* to now; False if there is no such file."""
        ...

    def remove(self, name: str, /) -> None:
        """Remove *name*, a directory with all that is in it; do nothing if it does not exist."""
        ...

    def sync_directory(self, name: str, /) -> None:
        """Make the names in directory *name* durable."""
        ...

    def publish_directory(self, name: str, files: Iterable[tuple[str, bytes]], /) -> bool:
        """Create directory *name* with *files*, whole or not at all; False if a directory has the name."""
        ...

    def held(self, name: str, /) -> "AbstractContextManager[Tree]":
        """Keep directory *name* open during the block, for quick access to its files."""
        ...

    def lock(self, name: str, timeout_s: float, /, *, shared: bool = False) -> AbstractContextManager[OpenFile]:
        """Hold lock *name* during the block, alone or *shared*.

        Yields:
            The lock file, whose size may count something.

        Raises:
            LockTimeout: Others held it for *timeout_s* seconds.
        """
        ...
