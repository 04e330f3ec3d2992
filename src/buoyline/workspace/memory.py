"""`MemoryDisk`: the files of a workspace that lives in this process and is gone with it."""

import errno
import itertools
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from buoyline.errors import LockTimeout, StorageError
from buoyline.workspace.disk import Disk, OpenFile, StagedFile, Status
from buoyline.workspace.layout import TEMPORARY


class MemoryFile(OpenFile):
    """An open file in memory."""

    def __init__(self, content: bytearray, path: str) -> None:
        """Read and write *content*; *path* is for messages."""
        self._content = content
        self.path, self.inode = path, id(content)
        self.size = len(content)

    def read(self, offset: int, size: int) -> bytes:
        """Return up to *size* bytes from *offset*."""
        return bytes(self._content[offset : offset + size])

    def append(self, content: bytes) -> None:
        """Write *content* at the end."""
        self._content += content
        self.size = len(self._content)

    def cut(self, size: int) -> None:
        """Cut the file to *size* bytes."""
        del self._content[size:]
        self.size = size

    def sync(self) -> None:
        """Do nothing."""


class MemoryStagedFile(StagedFile):
    """A file in memory without a final name."""

    def __init__(self, disk: "MemoryDisk", name: str) -> None:
        """Write to *name*, which is a temporary one."""
        self._memory, self.path = disk, disk.path(name)
        self._content = bytearray()
        self.size = 0

    def write(self, content: bytes) -> None:
        """Write *content* at the end."""
        self._content += content
        self.size = len(self._content)

    def read(self, offset: int, size: int) -> bytes:
        """Return up to *size* bytes from *offset*."""
        return bytes(self._content[offset : offset + size])

    def publish_as(self, name: str, *, sync_directory: bool = True) -> bool:  # noqa: ARG002 - there is nothing to sync
        """Give the file its name; False if that is taken."""
        return self._memory.put(name, self._content, is_new=True)

    def replace(self, name: str) -> None:
        """Give the file its name in place of what has it."""
        self._memory.put(name, self._content)

    def discard(self) -> None:
        """Do nothing."""


class MemoryDisk(Disk):
    """Files in a dictionary, with the methods of `Disk`. Several threads may use it."""

    def __init__(self, root: str) -> None:
        """Begin empty; *root* is what paths begin with."""
        self.root, self.durable, self._mode = Path(root), False, 0o700
        self._files: dict[str, bytearray] = {}
        self._times_ns: dict[str, int] = {}
        self._directories = {""}
        self._guard = threading.RLock()
        self._locks: dict[str, threading.Lock] = {}
        self._numbers = itertools.count()

    def put(self, name: str, content: bytearray, *, is_new: bool = False) -> bool:
        """Give *content* a name; with *is_new* only if that is free."""
        with self._guard:
            if is_new and name in self._files:
                return False
            self._files[name], self._times_ns[name] = content, time.time_ns()
            return True

    @contextmanager
    def opened(self, name: str, *, write: bool = False) -> Generator[OpenFile]:  # noqa: ARG002 - all are writable
        """Open a file during the block."""
        yield MemoryFile(self._found(name), self.path(name))

    def status(self, name: str) -> Status | None:
        """Return facts about *name*; None if nothing is there."""
        with self._guard:
            content = self._files.get(name)
            if content is None:
                return Status(0, 0, 0, is_file=False, is_directory=True) if name in self._directories else None
            return Status(len(content), self._times_ns[name], id(content), is_file=True, is_directory=False)

    def entries(self, directory: str, *, unfinished: bool = False) -> list[str]:
        """Return the names in *directory*, sorted."""
        prefix = f"{directory}/" if directory else ""
        with self._guard:
            below = {name.removeprefix(prefix).partition("/")[0] for name in self._names() if name.startswith(prefix)}
        return sorted(name for name in below - {""} if unfinished or not name.startswith(TEMPORARY))

    def make_directory(self, name: str, *, sync: bool = True) -> None:  # noqa: ARG002 - there is nothing to sync
        """Make *name* and what is above it."""
        steps = name.split("/")
        with self._guard:
            self._directories.update("/".join(steps[:depth]) for depth in range(1, len(steps) + 1))

    def create(self, name: str) -> None:
        """Create an empty file unless *name* exists."""
        self.put(name, bytearray(), is_new=True)

    def sync_directory(self, name: str) -> None:
        """Do nothing."""

    @contextmanager
    def stage(self, directory: str) -> Generator[StagedFile]:
        """Create a file without a name."""
        yield MemoryStagedFile(self, f"{directory}/{TEMPORARY}{next(self._numbers)}")

    def rename(self, old: str, new: str) -> None:
        """Give *old*, and what is below it, the name *new*."""
        with self._guard:
            if old not in self._directories:
                self._found(old)
            for name in [name for name in self._names() if name == old or name.startswith(f"{old}/")]:
                renamed = f"{new}{name.removeprefix(old)}"
                if name in self._directories:
                    self._directories.remove(name)
                    self._directories.add(renamed)
                else:
                    self._files[renamed] = self._files.pop(name)
                    self._times_ns[renamed] = self._times_ns.pop(name)

    def freshen(self, name: str) -> None:
        """Set the time of *name* to now."""
        with self._guard:
            self._found(name)
            self._times_ns[name] = time.time_ns()

    def remove(self, name: str) -> None:
        """Remove *name*, and what is below it."""
        with self._guard:
            for one in [one for one in self._names() if one == name or one.startswith(f"{name}/")]:
                self._files.pop(one, None)
                self._times_ns.pop(one, None)
                self._directories.discard(one)

    @contextmanager
    def locked(self, name: str, timeout_s: float) -> Generator[OpenFile]:
        """Open file *name* for appending and hold its lock during the block."""
        with self._guard:
            lock = self._locks.setdefault(name, threading.Lock())
        if not lock.acquire(timeout=timeout_s):
            reason = f"another writer has held this lock for {timeout_s:g} s; try again later"
            raise LockTimeout(errno.ETIMEDOUT, reason, self.path(name))
        try:
            with self.opened(name) as file:
                yield file
        finally:
            lock.release()

    def _names(self) -> Iterator[str]:
        yield from (*self._files, *self._directories)

    def _found(self, name: str) -> bytearray:
        content = self._files.get(name)
        if content is None:
            raise StorageError(errno.ENOENT, "No such file or directory", self.path(name))
        return content
