"""`MemoryTree`: the files of a `MemoryWorkspace`, as bytes in this process."""

import errno
import os
import stat
import threading
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Self

from buoyline.errors import LockTimeout, StorageError
from buoyline.workspace.files import Files, Status
from buoyline.workspace.layout import TEMPORARY_PREFIX


class MemoryTree(Files):
    """A tree whose operations never wait, but for `lock`; see `buoyline.workspace.tree.Tree`.

    Threads may share it. One lock, `mutex`, stands for all locks of a workspace; it excludes threads of this process,
    and a thread may take it again. Each other operation is one step for other threads.
    """

    is_durable = False

    def __init__(self, root: str) -> None:
        """Begin with an empty directory; *root* begins every path that agents and errors show."""
        self._root = root
        self._numbers = count(1)
        self._files: dict[str, FileNode] = {}
        self._directories: dict[str, _Directory] = {"": _Directory(self._numbers)}
        self._locks: dict[str, FileNode] = {}
        self.mutex = threading.RLock()

    def renew_after_fork(self) -> None:
        """Replace the lock in a forked child, since a thread of the parent may have held it."""
        self.mutex = threading.RLock()

    def __enter__(self) -> Self:
        """Return the tree."""
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def path(self, name: str) -> str:
        """Return the reference of *name*."""
        return f"{self._root}/{name}" if name else self._root

    def make_root(self) -> None:
        """Do nothing: the root is always there."""

    def make_directory(self, name: str) -> None:
        """Create directory *name* unless it exists."""
        above = self._above(name)
        if name not in self._directories:
            self._directories.setdefault(name, _Directory(self._numbers))
            above.add(name.rpartition("/")[2])

    def status(self, name: str) -> Status | None:
        """Return the status of *name*, which follows later changes; its times count changes."""
        return self._files.get(name) or self._directories.get(name)

    def names(self, name: str) -> list[str]:
        """Return the names in directory *name*, sorted, without unfinished ones; empty if it does not exist."""
        directory = self._directories.get(name)
        entries = () if directory is None else tuple(directory.names)
        return sorted(entry for entry in entries if not entry.startswith(TEMPORARY_PREFIX))

    def entries(self, name: str) -> Mapping[str, Status]:
        """Return every entry of directory *name* with its status, sorted by name."""
        names = sorted(self._directory(name).names)
        found = ((entry, self.status(f"{name}/{entry}" if name else entry)) for entry in names)
        return {entry: status for entry, status in found if status is not None}

    def open(self, name: str, *, write: bool = False, create: bool = False) -> "MemoryFile":  # noqa: ARG002
        """Open a file; with *create* an empty one is created if there is none."""
        if create and name not in self._files:
            self._put(name, FileNode(self._numbers, bytearray()))
        return MemoryFile(self._file(name))

    def publish(self, name: str, chunks: Iterable[bytes]) -> bool:
        """Create file *name*; False if the name is taken."""
        return self._put(name, FileNode(self._numbers, b"".join(chunks)))

    def stage(self, directory: str) -> tuple[str, "MemoryFile"]:
        """Create an empty file without a final name, and return its path and the open file."""
        file = FileNode(self._numbers, bytearray())
        name = f"{directory}/{TEMPORARY_PREFIX}{file.st_ino}"
        self._put(name, file)
        return name, MemoryFile(file)

    def publish_staged(self, staged: str, name: str) -> bool:
        """Give the *staged* file its final name; False, with the file removed, if the name is taken."""
        is_new = self.publish(name, (bytes(self._file(staged).content),))
        self.remove(staged)
        return is_new

    def replace(self, name: str, chunks: Iterable[bytes]) -> None:
        """Replace the file *name*; a file that is open keeps the content that it had."""
        above = self._above(name)
        self._files[name] = FileNode(self._numbers, b"".join(chunks))
        above.add(name.rpartition("/")[2])

    def freshen(self, name: str) -> bool:
        """Note a change of the file *name*; False if there is no such file."""
        file = self._files.get(name)
        if file is not None:
            file.st_mtime_ns = next(self._numbers)
        return file is not None

    def remove(self, name: str) -> None:
        """Remove *name*, a directory with all that is in it; do nothing if it does not exist."""
        self._above(name).discard(name.rpartition("/")[2])
        waiting = [name]
        while waiting:
            gone = waiting.pop()
            self._files.pop(gone, None)
            directory = self._directories.pop(gone, None)
            waiting += () if directory is None else (f"{gone}/{entry}" for entry in tuple(directory.names))

    def sync_directory(self, name: str) -> None:
        """Do nothing, since nothing is durable."""
        self._directory(name)

    def publish_directory(self, name: str, files: Iterable[tuple[str, bytes]]) -> bool:
        """Create directory *name* with *files*; False if a directory has the name."""
        above = self._above(name)
        if name in self._directories:
            return False
        made = _Directory(self._numbers)
        for file, content in files:
            made.add(file)
            self._files[f"{name}/{file}"] = FileNode(self._numbers, content)
        self._directories[name] = made
        above.add(name.rpartition("/")[2])
        return True

    def held(self, name: str, *, keep: bool = False) -> Self:  # noqa: ARG002 - for a disk
        """Return the tree, if there is a directory *name*."""
        self._directory(name)
        return self

    @contextmanager
    def lock(self, name: str, timeout_s: float, *, shared: bool = False) -> "Generator[MemoryFile]":  # noqa: ARG002
        """Hold `mutex` during the block, whatever *name* is, and alone even if *shared*.

        Yields:
            The lock file, whose size may count something.

        Raises:
            LockTimeout: Another thread held it for *timeout_s* seconds.
        """
        mutex = self.mutex
        if not mutex.acquire(timeout=timeout_s):
            reason = f"another thread has held this lock for {timeout_s:g} s; try again later"
            raise LockTimeout(errno.ETIMEDOUT, reason, self.path(name))
        try:
            yield MemoryFile(self._locks.setdefault(name, FileNode(self._numbers, bytearray())))
        finally:
            mutex.release()

    def _file(self, name: str) -> "FileNode":
        file = self._files.get(name)
        if file is None:
            raise StorageError(errno.ENOENT, os.strerror(errno.ENOENT), self.path(name))
        return file

    def _directory(self, name: str) -> "_Directory":
        directory = self._directories.get(name)
        if directory is None:
            raise StorageError(errno.ENOENT, os.strerror(errno.ENOENT), self.path(name))
        return directory

    def _above(self, name: str) -> "_Directory":
        return self._directory(name.rpartition("/")[0])

    def _put(self, name: str, file: "FileNode") -> bool:
        """Give *file* the name *name*, unless another one has it."""
        above = self._above(name)
        is_new = self._files.setdefault(name, file) is file
        if is_new:
            above.add(name.rpartition("/")[2])
        return is_new


class MemoryFile:
    """An open file of a `MemoryTree`; see `buoyline.workspace.tree.OpenFile`."""

    __slots__ = ("_file",)

    def __init__(self, file: "FileNode") -> None:
        """Open *file*."""
        self._file = file

    def __enter__(self) -> Self:
        """Return the file."""
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def size(self) -> int:
        """Return the size in bytes."""
        return len(self._file.content)

    @property
    def identity(self) -> tuple[int, int]:
        """Differs between two files that had the same path."""
        return 0, self._file.st_ino

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return up to *size_bytes* bytes from *offset*; fewer only at the end of the file."""
        return self._file.read(offset, size_bytes)

    def append(self, content: bytes) -> None:
        """Write *content* at the end."""
        self._file.grown().extend(content)
        self._file.change()

    def write_back(self, offset: int, size_bytes: int) -> None:
        """Do nothing."""

    def cut(self, size_bytes: int) -> None:
        """Cut the file to *size_bytes*; a shorter one does not grow."""
        del self._file.grown()[size_bytes:]
        self._file.change()

    def sync(self) -> None:
        """Do nothing."""


class _Node:
    """A file or directory, which is also its own `Status`."""

    __slots__ = ("_numbers", "st_ino", "st_mtime_ns")

    def __init__(self, numbers: "count[int]") -> None:
        self._numbers = numbers
        self.st_ino = self.st_mtime_ns = next(numbers)

    @property
    def st_ctime_ns(self) -> int:
        return self.st_mtime_ns

    def change(self) -> None:
        self.st_mtime_ns = next(self._numbers)


class FileNode(_Node):
    """The content of a file: `bytes`, or a `bytearray` once something was appended or cut."""

    __slots__ = ("content",)
    st_mode = stat.S_IFREG | 0o600

    def __init__(self, numbers: "count[int]", content: bytes | bytearray) -> None:
        """Take *content* and the next of *numbers*."""
        super().__init__(numbers)
        self.content = content

    @property
    def st_size(self) -> int:
        """Size in bytes."""
        return len(self.content)

    def read(self, offset: int, size_bytes: int | None) -> bytes:
        """Return *size_bytes* bytes from *offset*; all that follow if it is None."""
        return bytes(self.content[offset : None if size_bytes is None else offset + size_bytes])

    def grown(self) -> bytearray:
        """Return the content to append to or cut; a copy takes the place of `bytes`, which others may hold."""
        content = self.content
        if isinstance(content, bytes):
            content = self.content = bytearray(content)
        return content


class _Directory(_Node):
    """Names, in the order in which they came."""

    __slots__ = ("names",)
    st_mode = stat.S_IFDIR | 0o700
    st_size = 0

    def __init__(self, numbers: "count[int]") -> None:
        super().__init__(numbers)
        self.names: dict[str, None] = {}

    def add(self, name: str) -> None:
        self.names[name] = None
        self.change()

    def discard(self, name: str) -> None:
        self.names.pop(name, None)
        self.change()
