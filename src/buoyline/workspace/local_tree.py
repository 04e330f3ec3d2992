"""`LocalTree`: the files of a workspace on a disk. With `descriptors`, the only module that changes files and locks.

Every path is walked step by step without following links, since an agent may have created one. Every file must be a
regular file, since opening a pipe would wait forever. Every mode is set explicitly. A file with a final name is
complete: it is written under a temporary name, synced, and linked to the final one.

Accepted trade-offs: without hard links, another program may create a file between our check and the rename. A crash
may leave ``.tmp-`` files, which nobody reads.
"""

import contextlib
import errno
import fcntl
import os
import stat
import sys
from collections.abc import AsyncGenerator, Generator, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Self

from buoyline.errors import StorageError, UnsupportedPlatformError
from buoyline.workspace.descriptors import (
    CHUNK_BYTES,
    DIRECTORY,
    DIRECTORY_MODE,
    REGULAR,
    Close,
    Handle,
    KeptDescriptors,
    empty,
    give_name,
    held_lock,
    identity_of,
    is_removed,
    make_entry,
    open_entry,
    opened_directory,
    remove_flat,
    require_one_name,
    require_regular,
    restore_mode,
    start_writing_back,
    sync_data,
    temporary_name,
    translated,
    wait_for_lock,
    write_all,
)
from buoyline.workspace.files import Files
from buoyline.workspace.layout import TEMPORARY_PREFIX

__all__ = ["Handle", "HeldTree", "LocalTree", "outside_chunks", "outside_file"]


class LocalTree(Files):
    """A directory and what lies below it, addressed by relative POSIX paths.

    Paths come from `layout`. All methods raise `StorageError` if the file system refuses, of the kinds of
    `storage_error`.
    """

    def __init__(self, root: Path, *, durable: bool = True, shown_as: str = "") -> None:
        """Use *root*, which need not exist yet; agents see it as *shown_as*, if that is not empty.

        Raises:
            UnsupportedPlatformError: Neither Linux nor macOS.
        """
        if sys.platform not in {"linux", "darwin"}:
            raise UnsupportedPlatformError(sys.platform)
        self.root = root
        self._root_path = str(root)
        self.shown_as = shown_as or str(root)
        self._durable = durable
        self._identity: tuple[int, int] | None = None
        self._kept = KeptDescriptors()

    @property
    def is_durable(self) -> bool:
        """Whether syncs reach the device."""
        return self._durable

    def path(self, name: str) -> str:
        """Return the absolute path of *name*."""
        return f"{self._root_path}/{name}" if name else self._root_path

    def cache_path(self, name: str) -> str | None:
        """Return the absolute path of the file *name*, and make its directory; None if it cannot be a file of ours."""
        directory = name.rpartition("/")[0]
        try:
            self.make_directory(directory)
            status = self.status(name)
        except StorageError:
            return None
        is_ours = status is None or stat.S_ISREG(status.st_mode)  # a link may lead anywhere
        return self.path(name) if is_ours and self.is_directory(directory) else None

    def remove_cache(self, name: str) -> None:
        """Remove the file *name* if there is one."""
        self.remove(name)

    def reference(self, name: str) -> str:
        """Return *name* as agents see it."""
        return f"{self.shown_as}/{name}" if name else self.shown_as

    def make_root(self) -> None:
        """Create the root and its missing parents, the root itself with mode 0700, durably."""
        with translated(str(self.root)):
            missing = [above for above in self.root.parents if not above.exists()]
            self.root.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                self.root.mkdir(mode=DIRECTORY_MODE)
                self.root.chmod(DIRECTORY_MODE)
            # Also if the root exists: its creator may have been killed before it was durable.
            for above in {self.root.parent, *(above.parent for above in missing)}:
                with _opened(above) as descriptor:
                    self._sync_directory(descriptor)

    def make_directory(self, name: str) -> None:
        """Create directory *name*, mode 0700, unless it exists; `sync_directory` of its parent makes it durable."""
        with self._parent(name) as (parent, last), translated(self.path(name)), contextlib.suppress(FileExistsError):
            make_entry(parent, last)

    def status(self, name: str) -> os.stat_result | None:
        """Return the status of *name*, a link's own, or that of the root if it is empty; None if nothing is there."""
        try:
            if not name:
                with self._directory("") as descriptor:
                    return os.fstat(descriptor)
            with self._parent(name) as (parent, last), translated(self.path(name)):
                return os.stat(last, dir_fd=parent, follow_symlinks=False)
        except StorageError as error:
            if error.errno in {errno.ENOENT, errno.ENOTDIR}:
                return None
            raise

    def names(self, name: str) -> list[str]:
        """Return the names in directory *name*, sorted, without ``.tmp-`` ones; none if it does not exist."""
        try:
            with self._directory(name) as descriptor, translated(self.path(name)):
                entries = os.listdir(descriptor)
        except StorageError as error:
            if error.errno == errno.ENOENT:
                return []
            raise
        return sorted(entry for entry in entries if not entry.startswith(TEMPORARY_PREFIX))

    def entries(self, name: str) -> dict[str, os.stat_result]:
        """Return every entry of directory *name* with its status, sorted by name; unfinished ones, too.

        Links are not followed: their status is their own. An entry that vanishes meanwhile is skipped.
        """
        found: dict[str, os.stat_result] = {}
        with self._directory(name) as descriptor, translated(self.path(name)):
            for entry in sorted(os.listdir(descriptor)):
                with contextlib.suppress(FileNotFoundError):
                    found[entry] = os.stat(entry, dir_fd=descriptor, follow_symlinks=False)
        return found

    def open(self, name: str, *, write: bool = False, create: bool = False) -> Handle:
        """Open a regular file, for appending with *write*, created empty and durably with *create* (mode 0600).

        A caller that appends holds a lock for as long as the file is open. The descriptor of a file for appending is
        kept when the file is closed.
        """
        path = self.path(name)
        with self._parent(name) as (parent, last):
            find = partial(os.stat, last, dir_fd=parent, follow_symlinks=False)
            kept = self._kept.take(name, find) if write else None
            descriptor, status = kept or self._opened_file(parent, last, path, write=write, create=create)
        if write:
            try:
                require_one_name(status, path)
            except StorageError:
                os.close(descriptor)
                raise
        close = partial(self._kept.keep, name, identity_of(status)) if write else os.close
        return Handle(descriptor, path, status, is_durable=self._durable, is_locked=write, close=close)

    def _opened_file(
        self, parent: int, name: str, path: str, *, write: bool, create: bool
    ) -> tuple[int, os.stat_result]:
        flags = REGULAR | ((os.O_RDWR | os.O_APPEND) if write else os.O_RDONLY)
        with translated(path):
            descriptor = (self._open_or_create if create else open_entry)(parent, name, flags)
        try:
            status = require_regular(descriptor, path)
            if create:
                with translated(path):
                    restore_mode(descriptor, status)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor, status

    def _open_or_create(self, parent: int, name: str, flags: int) -> int:
        try:
            return open_entry(parent, name, flags)
        except FileNotFoundError:
            descriptor = open_entry(parent, name, flags | os.O_CREAT)
        try:
            self._sync_directory(parent)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def watched_directories(self, names: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Return those of the directories *names* that exist, by path, with device and inode.

        Without any, return the nearest existing directory to the root, in which a missing one will appear.
        """
        statuses = {self.path(name): self.status(name) for name in names if self.is_directory(name)}
        found = {path: (status.st_dev, status.st_ino) for path, status in statuses.items() if status is not None}
        for path in () if found else (self.root, *self.root.parents):
            with contextlib.suppress(OSError):
                status = path.stat()
                return {str(path): (status.st_dev, status.st_ino)}
        return found

    def publish(self, name: str, chunks: Iterable[bytes]) -> bool:
        """Create file *name* with the given content, complete or not at all, and durable on return.

        False if *name* is taken; nothing was changed then, and the caller compares the content.
        """
        with self._parent(name) as (parent, last), translated(self.path(name)):
            temporary = self._write_temporary(parent, chunks)
            is_new = give_name(parent, temporary, last)
            # If the name is taken, its creator may have been killed before it was durable.
            self._sync_directory(parent)
            return is_new

    def stage(self, directory: str) -> tuple[str, Handle]:
        """Create an empty file without a final name in *directory*, for content that arrives piece by piece.

        The path is for `publish_staged` or `remove`; the caller syncs and closes the open file.
        """
        temporary = temporary_name()
        name = f"{directory}/{temporary}"
        flags = REGULAR | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL
        with self._directory(directory) as parent, translated(self.path(name)):
            descriptor = open_entry(parent, temporary, flags)
            try:
                status = os.fstat(descriptor)
                restore_mode(descriptor, status)
            except BaseException:
                os.close(descriptor)
                os.unlink(temporary, dir_fd=parent)
                raise
        return name, Handle(descriptor, self.path(name), status, is_durable=self._durable, is_locked=True)

    def publish_staged(self, staged: str, name: str) -> bool:
        """Give the *staged* file, whose content is synced, the name *name*; durable on return.

        False if *name* is taken; the staged file was removed then, and nothing else was changed.
        """
        with (
            self._parent(staged) as (source, temporary),
            self._parent(name) as (parent, last),
            translated(self.path(name)),
        ):
            is_new = give_name(parent, temporary, last, source)
            self._sync_directory(parent)
            return is_new

    def replace(self, name: str, chunks: Iterable[bytes]) -> None:
        """Replace the content of file *name*, all of it or none; durable on return."""
        with self._parent(name) as (parent, last), translated(self.path(name)):
            temporary = self._write_temporary(parent, chunks)
            try:
                os.rename(temporary, last, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                os.unlink(temporary, dir_fd=parent)
                raise
            self._sync_directory(parent)

    def freshen(self, name: str) -> bool:
        """Set the time of the last change of the regular file *name* to now; False if there is no such file."""
        path = self.path(name)
        try:
            with self._parent(name) as (parent, last), translated(path):
                if not stat.S_ISREG(os.stat(last, dir_fd=parent, follow_symlinks=False).st_mode):
                    return False
                os.utime(last, dir_fd=parent, follow_symlinks=False)
                return True
        except StorageError as error:
            if error.errno == errno.ENOENT:
                return False
            raise

    def rename(self, name: str, new_name: str) -> None:
        """Give *name* another name in the same directory, durably; *new_name* must not be taken."""
        with self._parent(name) as (parent, last), translated(self.path(name)):
            os.rename(last, new_name.rpartition("/")[2], src_dir_fd=parent, dst_dir_fd=parent)
            self._sync_directory(parent)

    def remove(self, name: str) -> None:
        """Remove *name*, a directory with its content; do nothing if it does not exist.

        No link is followed. A crash may leave a part of a directory, so the caller renames one that others read.
        Durable after `sync_directory` of its parent.
        """
        with self._parent(name) as (parent, last), translated(self.path(name)):
            if not is_removed(parent, last):
                with opened_directory(parent, last) as descriptor:
                    empty(descriptor)
                os.rmdir(last, dir_fd=parent)
                self._kept.close()  # a removed file takes space on the disk as long as it is open

    def sync_directory(self, name: str) -> None:
        """Make the names in directory *name* durable."""
        with self._directory(name) as descriptor, translated(self.path(name)):
            self._sync_directory(descriptor)

    def publish_directory(self, name: str, files: Iterable[tuple[str, bytes]]) -> bool:
        """Create directory *name* with *files* in it, complete or not at all.

        It is durable after `sync_directory` of its parent. False if a directory has the name; nothing was changed then.
        """
        with self._parent(name) as (parent, last), translated(self.path(name)):
            temporary = temporary_name()
            make_entry(parent, temporary)
            made = open_entry(parent, temporary, DIRECTORY)
            try:
                for file, content in files:
                    self._write_new(made, file, (content,))
                self._sync_directory(made)
                try:
                    os.rename(temporary, last, src_dir_fd=parent, dst_dir_fd=parent)
                except OSError as error:
                    remove_flat(parent, temporary, made)
                    if error.errno in {errno.EEXIST, errno.ENOTEMPTY}:
                        return False
                    raise
            finally:
                os.close(made)
            return True

    def held(self, name: str, *, keep: bool = False) -> "HeldTree":
        """Keep directory *name* open during the block of the returned tree, which opens files there without walking.

        A walk of three steps costs more than opening the file. With *keep*, the descriptor is kept after the block.
        """
        if not keep:
            return HeldTree(self, name, self._walk(name))
        descriptor, status = self._kept.take(name, partial(self._walked_status, name)) or self._walked(name)
        return HeldTree(self, name, descriptor, partial(self._kept.keep, name, identity_of(status)))

    @contextlib.contextmanager
    def lock(self, name: str, timeout_s: float, *, shared: bool = False) -> Generator[Handle]:
        """Hold the kernel's lock on file *name* (created if needed) during the block, alone or *shared*.

        The kernel releases it when its holder dies, so there are no stale locks. Each holder has a descriptor of its
        own, so that threads of one process exclude each other as processes do. The holders may use the file's size as
        a counter.

        Raises:
            LockTimeout: Another writer held it for *timeout_s* seconds.
        """
        path = self.path(name)
        descriptor, status = self._kept.take(name, partial(self._walked_status, name)) or self._opened_lock(name, path)
        try:
            with translated(path):
                wait_for_lock(descriptor, path, timeout_s, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        except BaseException:
            os.close(descriptor)
            raise
        with held_lock(descriptor, partial(self._kept.keep, name, identity_of(status))):
            yield Handle(descriptor, path, status, is_durable=False, is_locked=False)

    def _opened_lock(self, name: str, path: str) -> tuple[int, os.stat_result]:
        with self._parent(name) as (parent, last), translated(path):
            descriptor = open_entry(parent, last, REGULAR | os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            status = require_regular(descriptor, path)
            with translated(path):
                restore_mode(descriptor, status)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor, status

    def close(self) -> None:
        """Close the descriptors that are kept for later calls."""
        self._kept.close()

    def _walked(self, name: str) -> tuple[int, os.stat_result]:
        descriptor = self._walk(name)
        try:
            with translated(self.path(name)):
                return descriptor, os.fstat(descriptor)
        except StorageError:
            os.close(descriptor)
            raise

    def _walked_status(self, name: str) -> os.stat_result:
        """Return the status of *name* if the root is still the same and a walk to *name* follows no link."""
        root = os.stat(self._root_path)
        if (root.st_dev, root.st_ino) != self._identity:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), self._root_path)
        *above, last = name.split("/")
        path = self._root_path
        for step in above:
            path = f"{path}/{step}"
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return os.lstat(f"{path}/{last}")

    def _parent(self, name: str) -> "_Parent":
        above, _, last = name.rpartition("/")
        return _Parent(self._directory(above), last)

    def _directory(self, name: str) -> "_Directory":
        return _Directory(self._walk(name))

    def _walk(self, name: str) -> int:
        """Open directory *name*, step by step, for the caller to close."""
        descriptor, steps = self._start(name)
        try:
            with translated(self.path(name)):
                for step in steps:
                    inner = open_entry(descriptor, step, DIRECTORY)
                    os.close(descriptor)
                    descriptor = inner
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _start(self, name: str) -> tuple[int, list[str]]:
        """Open the directory in which the walk to *name* begins, and return the remaining steps."""
        descriptor = self._open_root()
        try:
            with translated(self._root_path):
                self._require_same_root(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor, name.split("/") if name else []

    def _open_root(self) -> int:
        with translated(self._root_path):
            return open_entry(None, self._root_path, DIRECTORY & ~os.O_NOFOLLOW)

    def _require_same_root(self, descriptor: int) -> None:
        """Refuse a root that became another directory: our knowledge of the first one does not apply to it."""
        status = os.fstat(descriptor)
        found = status.st_dev, status.st_ino
        if self._identity is None:
            self._identity = found
        elif found != self._identity:
            reason = "is another directory than before; put the first back, or open the workspace again"
            raise StorageError(errno.ESTALE, reason, self._root_path)

    def _write_temporary(self, parent: int, chunks: Iterable[bytes]) -> str:
        temporary = temporary_name()
        try:
            self._write_new(parent, temporary, chunks)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=parent)
            raise
        return temporary

    def _write_new(self, parent: int, name: str, chunks: Iterable[bytes]) -> None:
        descriptor = open_entry(parent, name, REGULAR | os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            restore_mode(descriptor, os.fstat(descriptor))
            written = 0
            for chunk in chunks:
                write_all(descriptor, chunk)
                if self._durable and len(chunk) >= CHUNK_BYTES:
                    start_writing_back(descriptor, written, len(chunk))
                written += len(chunk)
            if os.fstat(descriptor).st_size != written:
                raise OSError(errno.EIO, "the file has another size than was written", name)
            if self._durable and written:
                sync_data(descriptor)
        finally:
            os.close(descriptor)

    def _sync_directory(self, descriptor: int) -> None:
        if self._durable:
            os.fsync(descriptor)


class HeldTree(LocalTree):
    """A tree with one directory open until the end of the ``with`` block; walks below it begin there."""

    def __init__(self, tree: LocalTree, name: str, descriptor: int, close: Close = os.close) -> None:
        """Take over *descriptor*, which is that of directory *name* of *tree*, and pass it to *close* in the end."""
        # Everything is that of *tree*, also what it keeps.
        self.__dict__.update(tree.__dict__)
        self._tree = tree
        self._name = name
        self._descriptor = descriptor
        self._close = close

    def __enter__(self) -> Self:
        """Return the tree."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the directory."""
        self._close(self._descriptor)

    def _directory(self, name: str) -> "_Directory":
        if name == self._name:
            return _Directory(self._descriptor, is_lent=True)
        return super()._directory(name) if self._is_below(name) else self._tree._directory(name)  # noqa: SLF001 - ours

    def _walk(self, name: str) -> int:
        # The path may be below a directory that the other tree holds.
        return super()._walk(name) if self._is_below(name) else self._tree._walk(name)  # noqa: SLF001 - ours

    def _start(self, name: str) -> tuple[int, list[str]]:
        first, *steps = name[len(self._name) + 1 :].split("/")
        with translated(self.path(name)):
            return open_entry(self._descriptor, first, DIRECTORY), steps

    def _is_below(self, name: str) -> bool:
        return name.startswith(self._name) and name[len(self._name) : len(self._name) + 1] == "/"


# Entered for each file that is opened: 0.4 us, where a generator takes 0.9.


class _Directory:
    """An open directory, closed at the end of the block unless it *is_lent*."""

    __slots__ = ("_descriptor", "_is_lent")

    def __init__(self, descriptor: int, *, is_lent: bool = False) -> None:
        self._descriptor = descriptor
        self._is_lent = is_lent

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        if not self._is_lent:
            os.close(self._descriptor)


class _Parent:
    """The open parent directory of a path, with the path's last name."""

    __slots__ = ("_directory", "_last")

    def __init__(self, directory: _Directory, last: str) -> None:
        self._directory = directory
        self._last = last

    def __enter__(self) -> tuple[int, str]:
        return self._directory.__enter__(), self._last

    def __exit__(self, *_: object) -> None:
        self._directory.__exit__()


def outside_chunks(path: str | os.PathLike[str], chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """Yield the content of a user's own file, links followed; of a pipe, everything until it is closed.

    Raises:
        StorageError: The file system refused.
    """
    with translated(os.fspath(path)), open(path, "rb", buffering=0) as file:
        while chunk := file.read(chunk_bytes):
            yield chunk


async def outside_file(path: str | os.PathLike[str]) -> AsyncGenerator[bytes]:
    """Yield the content of a user's own regular file, links followed, off the event loop.

    Raises:
        StorageError: The file system refused.
    """
    import aiofiles  # noqa: PLC0415 - takes 10 ms

    with translated(os.fspath(path)):
        async with aiofiles.open(path, "rb", buffering=0) as file:
            while chunk := await file.read(CHUNK_BYTES):
                yield chunk


@contextlib.contextmanager
def _opened(directory: Path) -> Generator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
