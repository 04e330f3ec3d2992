"""`Tree`: the files of a workspace on a disk or in memory, for writing. Private to the two workspaces.

Everything above reads `files.Files`.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Protocol

from buoyline.workspace.files import File, Files


class OpenFile(File, Protocol):
    """An open file that is read, appended to and cut back."""

    def close(self) -> None:
        """Close the file; its unsynced bytes are not lost."""
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


class Tree(Files, Protocol):
    """A directory and all below it. `LocalTree` and `MemoryTree` implement it."""

    @property
    def is_durable(self) -> bool:
        """Whether a sync reaches a device."""
        ...

    def make_root(self) -> None:
        """Create the root if it is missing, durably."""
        ...

    def make_directory(self, name: str, /) -> None:
        """Create directory *name* unless it exists."""
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

    def held(self, name: str, /, *, keep: bool = False) -> "AbstractContextManager[Tree]":
        """Keep directory *name* open during the block, for quick access to its files; with *keep*, for later calls."""
        ...

    def lock(self, name: str, timeout_s: float, /, *, shared: bool = False) -> AbstractContextManager[OpenFile]:
        """Hold lock *name* during the block, alone or *shared*.

        Yields:
            The lock file, whose size may count something.

        Raises:
            LockTimeout: Others held it for *timeout_s* seconds.
        """
        ...
