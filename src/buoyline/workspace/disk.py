"""`Disk`: the files of a workspace. This module alone opens, renames, syncs, locks and removes.

Names are relative to the root, with ``/`` between their steps, and come from `layout`. Every walk goes step by step
and follows no link, since an agent may have made one; every file must be a regular file, since opening a pipe would
wait forever; every mode is set, whatever the umask. A file with a final name is complete: it is written under a
temporary name, synced, and renamed. All methods raise `StorageError` if the file system refuses.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import sys
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from buoyline.errors import LockTimeout, StorageError, UnsupportedPlatformError, storage_error
from buoyline.workspace.layout import TEMPORARY

CHUNK_BYTES = 1 << 20

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
OWN_MODE = 0o700
_FIRST_WAIT_S = 0.0005
# At most as long as a few appends take: with 20 ms, four processes wrote half as fast.
_LONGEST_WAIT_S = 0.003


class Status(NamedTuple):
    """Facts about an entry; a link's own.

    Attributes:
        mtime_ns: When its content was last changed.
        inode: Differs between two files that had the same name.
    """

    size: int
    mtime_ns: int
    inode: int
    is_file: bool
    is_directory: bool


class OpenFile:
    """An open regular file: it stays the same one, even if another one takes its name."""

    def __init__(self, descriptor: int, path: str, status: os.stat_result, *, durable: bool) -> None:
        """Use *descriptor*, which the caller closes; *path* is for messages."""
        self.descriptor = descriptor
        self._durable = durable
        self.path = path
        self.size = status.st_size
        self.inode = status.st_ino

    def read(self, offset: int, size: int) -> bytes:
        """Return up to *size* bytes from *offset*; fewer only at the end of the file."""
        with _translated(self.path):
            pieces: list[bytes] = []
            while size > 0 and (piece := os.pread(self.descriptor, min(size, CHUNK_BYTES), offset)):
                pieces.append(piece)
                offset += len(piece)
                size -= len(piece)
            return b"".join(pieces)

    def append(self, content: bytes) -> None:
        """Write *content* at the end and sync it. After any failure the file is cut back to what it was, if it can be.

        If it cannot, the next look at it finds bytes that nobody has acknowledged.
        """
        try:
            with _translated(self.path):
                _write_all(self.descriptor, content)
                _require_size(self.descriptor, self.size + len(content))
            self.sync()
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(self.descriptor, self.size)
            raise
        self.size += len(content)

    def cut(self, size: int) -> None:
        """Cut the file to *size* bytes, durably."""
        with _translated(self.path):
            os.ftruncate(self.descriptor, size)
        self.size = size
        self.sync()

    def sync(self) -> None:
        """Make content and size durable."""
        if self._durable:
            with _translated(self.path):
                _sync_data(self.descriptor)


class StagedFile:
    """A file without a name yet, which `publish_as` or `replace` gives it. See `Disk.stage`."""

    def __init__(self, disk: "Disk", directory: str, parent: int) -> None:
        """Create it in the open directory *parent*."""
        self._disk, self._directory, self._parent = disk, directory, parent
        self.name = f"{TEMPORARY}{secrets.token_hex(8)}"
        self.path = disk.path(f"{directory}/{self.name}")
        with _translated(self.path):
            flags = _FILE | os.O_RDWR | os.O_CREAT | os.O_EXCL
            self._descriptor = os.open(self.name, flags, 0o600, dir_fd=parent)
        self.size = 0

    def write(self, content: bytes) -> None:
        """Write *content* at the end."""
        with _translated(self.path):
            _write_all(self._descriptor, content)
        self.size += len(content)

    def read(self, offset: int, size: int) -> bytes:
        """Return up to *size* bytes from *offset*."""
        with _translated(self.path):
            return os.pread(self._descriptor, size, offset)

    def publish_as(self, name: str, *, sync_directory: bool = True) -> bool:
        """Give the file the last step of *name*, which is in its directory. False if that is taken.

        Without *sync_directory* the name is durable after the caller's `Disk.sync_directory`.
        """
        # Another program may take the name in between; our own writers hold a lock, or give equal bytes one name.
        is_new = self._disk.status(name) is None
        if is_new:
            self._finish()
            self._rename(name)
        # Also of a name that is taken: its creator may have been killed before it was durable.
        if sync_directory:
            self._disk.sync_directory(self._directory)
        return is_new

    def replace(self, name: str) -> None:
        """Give the file the last step of *name*, which is in its directory, in place of what has it."""
        self._finish()
        self._rename(name)
        self._disk.sync_directory(self._directory)

    def discard(self) -> None:
        """Close the file, and remove it if it was given no name."""
        os.close(self._descriptor)
        with contextlib.suppress(OSError):
            os.unlink(self.name, dir_fd=self._parent)

    def _rename(self, name: str) -> None:
        with _translated(self._disk.path(name)):
            os.rename(self.name, name.rpartition("/")[2], src_dir_fd=self._parent, dst_dir_fd=self._parent)

    def _finish(self) -> None:
        with _translated(self.path):
            _set_mode(self._descriptor, self._disk.mode & 0o666)
            _require_size(self._descriptor, self.size)
            if self._disk.durable:
                _sync_data(self._descriptor)


class Disk:
    """A directory and what lies below it.

    Attributes:
        durable: Whether a sync reaches the device.
    """

    def __init__(self, root: Path, *, durable: bool = True, mode: int | None = None) -> None:
        """Use the absolute path *root*, which need not exist yet.

        Args:
            root: The directory; it may be a link.
            durable: Sync what is acknowledged.
            mode: Of all directories that are made; files get it without the execute bits. By default it is that of
                an existing root, else 0700.

        Raises:
            UnsupportedPlatformError: Neither Linux nor macOS.
        """
        if sys.platform not in {"linux", "darwin"}:
            raise UnsupportedPlatformError(sys.platform)
        self.root = root
        self.durable = durable
        self._mode = mode

    @property
    def mode(self) -> int:
        """The mode of directories; that of files lacks the execute bits."""
        if self._mode is None:
            try:
                self._mode = stat.S_IMODE(os.stat(self.root).st_mode) & 0o777 | OWN_MODE
            except OSError:
                return OWN_MODE
        return self._mode

    def path(self, name: str) -> str:
        """Return the absolute path of *name*."""
        return f"{self.root}/{name}" if name else str(self.root)

    # Reading.

    @contextmanager
    def opened(self, name: str, *, write: bool = False) -> Generator[OpenFile]:
        """Open a regular file during the block; with *write* for a caller that holds the lock which guards it."""
        flags = _FILE | (os.O_RDWR | os.O_APPEND if write else os.O_RDONLY)
        with self._parent(name) as (parent, last), _translated(self.path(name)):
            descriptor = os.open(last, flags, dir_fd=parent)
        try:
            yield self._open_file(descriptor, name)
        finally:
            os.close(descriptor)

    def read(self, name: str, offset: int = 0, size: int | None = None) -> bytes:
        """Return *size* bytes of a file from *offset*, or all that follows it."""
        with self.opened(name) as file:
            return file.read(offset, max(file.size - offset, 0) if size is None else size)

    def chunks(self, name: str, offset: int = 0) -> Iterator[bytes]:
        """Yield the content of a file from *offset* in pieces of at most 1 MiB."""
        with self.opened(name) as file:
            while chunk := file.read(offset, CHUNK_BYTES):
                yield chunk
                offset += len(chunk)

    def status(self, name: str) -> Status | None:
        """Return facts about *name*, or about the root if it is empty; None if nothing is there."""
        try:
            if not name:
                with _translated(str(self.root)):
                    found = os.stat(self.root)
            else:
                with self._parent(name) as (parent, last), _translated(self.path(name)):
                    found = os.stat(last, dir_fd=parent, follow_symlinks=False)
        except StorageError as error:
            if error.errno in {errno.ENOENT, errno.ENOTDIR}:
                return None
            raise
        is_file, is_directory = stat.S_ISREG(found.st_mode), stat.S_ISDIR(found.st_mode)
        return Status(found.st_size, found.st_mtime_ns, found.st_ino, is_file, is_directory)

    def entries(self, directory: str, *, unfinished: bool = False) -> list[str]:
        """Return the names in *directory*, sorted; none if it is not there. *unfinished* adds temporary ones."""
        try:
            with self._directory(directory) as descriptor, _translated(self.path(directory)):
                names = os.listdir(descriptor)
        except StorageError as error:
            if error.errno == errno.ENOENT:
                return []
            raise
        return sorted(name for name in names if unfinished or not name.startswith(TEMPORARY))

    # Making, naming, removing.

    def make_directory(self, name: str, *, sync: bool = True) -> None:
        """Make the root, *name* and what is between them, where missing; all of them are durable on return.

        Without *sync* they are durable after `sync_upwards` of *name*.
        """
        with _translated(str(self.root)):
            self._make_root()
        steps = name.split("/") if name else []
        for depth, step in enumerate(steps):
            with (
                self._directory("/".join(steps[:depth])) as parent,
                _translated(self.path(name)),
                contextlib.suppress(FileExistsError),
            ):
                os.mkdir(step, 0o700, dir_fd=parent)
                _open_with_mode(step, _DIRECTORY, parent, self.mode)
        # Also if they exist: their creator may have been killed before they were durable.
        if sync:
            self.sync_upwards(name.rpartition("/")[0])

    def create(self, name: str) -> None:
        """Create an empty file unless *name* exists; `sync_directory` makes it durable."""
        flags = _FILE | os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with (
            self._parent(name) as (parent, last),
            _translated(self.path(name)),
            contextlib.suppress(FileExistsError),
        ):
            _open_with_mode(last, flags, parent, self.mode & 0o666)

    def sync_directory(self, name: str) -> None:
        """Make the names in directory *name* durable."""
        if self.durable:
            with self._directory(name) as descriptor, _translated(self.path(name)):
                os.fsync(descriptor)

    def sync_upwards(self, name: str) -> None:
        """Make the names in directory *name* durable, and its own, and those of all directories above it."""
        steps = name.split("/") if name else []
        for depth in range(len(steps), -1, -1):
            self.sync_directory("/".join(steps[:depth]))
        with _translated(str(self.root.parent)):
            self._sync_outside(self.root.parent)

    @contextmanager
    def stage(self, directory: str) -> Generator[StagedFile]:
        """Create a file without a name in *directory*; it is gone after the block unless it was given one."""
        with self._directory(directory) as parent:
            staged = StagedFile(self, directory, parent)
            try:
                yield staged
            finally:
                staged.discard()

    def publish(self, name: str, chunks: Iterable[bytes], *, sync_directory: bool = True) -> bool:
        """Create file *name* with the given content, complete or not at all, and durable on return.

        False if the name is taken; then nothing was changed, and the caller compares the content.
        For *sync_directory* see `StagedFile.publish_as`.
        """
        with self.stage(name.rpartition("/")[0]) as staged:
            for chunk in chunks:
                staged.write(chunk)
            return staged.publish_as(name, sync_directory=sync_directory)

    def replace(self, name: str, chunks: Iterable[bytes]) -> None:
        """Replace the content of file *name*, all of it or none; durable on return."""
        with self.stage(name.rpartition("/")[0]) as staged:
            for chunk in chunks:
                staged.write(chunk)
            staged.replace(name)

    def rename(self, old: str, new: str) -> None:
        """Give the entry *old* the name *new*, in place of what has it; durable on return."""
        with self._parent(old) as (source, first), self._parent(new) as (target, last), _translated(self.path(old)):
            os.rename(first, last, src_dir_fd=source, dst_dir_fd=target)
        for directory in {old.rpartition("/")[0], new.rpartition("/")[0]}:
            self.sync_directory(directory)

    def freshen(self, name: str) -> None:
        """Set the time of the last change of *name* to now: gc spares what is new."""
        with self._parent(name) as (parent, last), _translated(self.path(name)):
            os.utime(last, dir_fd=parent, follow_symlinks=False)

    def remove(self, name: str) -> None:
        """Remove *name*, a directory with all that is in it; do nothing if it is not there. Follows no link.

        A crash may leave a part of a directory, so the caller first renames one that others read. It is durable after
        `sync_directory`.
        """
        with self._parent(name) as (parent, last), _translated(self.path(name)):
            if not _is_removed(parent, last):
                inner = os.open(last, _DIRECTORY, dir_fd=parent)
                try:
                    _empty(inner)
                finally:
                    os.close(inner)
                os.rmdir(last, dir_fd=parent)

    # Locking.

    @contextmanager
    def locked(self, name: str, timeout_s: float) -> Generator[OpenFile]:
        """Open file *name* for appending and hold its lock during the block.

        The kernel releases the lock when its holder dies, so there are no stale locks. Each holder has a descriptor of
        its own: threads of one process exclude each other as processes do.

        Raises:
            LockTimeout: Another writer held it for *timeout_s* seconds.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            with self.opened(name, write=True) as file:
                _wait_for_lock(file.descriptor, file.path, deadline, timeout_s)
                try:
                    current = self.status(name)
                    # A repair may have put another file in its place while we waited.
                    if current is not None and current.inode == file.inode:
                        yield self._open_file(file.descriptor, name)
                        return
                finally:
                    # A child that was forked meanwhile has the lock open, too, and would keep it after our close.
                    fcntl.flock(file.descriptor, fcntl.LOCK_UN)

    # Walking.

    def _make_root(self) -> None:
        missing = [above for above in self.root.parents if not above.exists()]
        self.root.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            self.root.mkdir(mode=0o700)
            self._mode = self._mode or OWN_MODE
            self.root.chmod(self._mode)
        for above in missing:
            self._sync_outside(above.parent)

    def _sync_outside(self, directory: Path) -> None:
        if self.durable:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    @contextmanager
    def _directory(self, name: str) -> Generator[int]:
        """Open directory *name* during the block, step by step."""
        with _translated(self.path(name)):
            descriptor = os.open(self.root, _DIRECTORY & ~os.O_NOFOLLOW)
            try:
                for step in name.split("/") if name else ():
                    inner = os.open(step, _DIRECTORY, dir_fd=descriptor)
                    os.close(descriptor)
                    descriptor = inner
            except BaseException:
                os.close(descriptor)
                raise
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _parent(self, name: str) -> Generator[tuple[int, str]]:
        above, _, last = name.rpartition("/")
        with self._directory(above) as descriptor:
            yield descriptor, last

    def _open_file(self, descriptor: int, name: str) -> OpenFile:
        path = self.path(name)
        with _translated(path):
            status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise StorageError(errno.EINVAL, "is not a regular file; move it away", path)
        return OpenFile(descriptor, path, status, durable=self.durable)


@contextmanager
def _translated(path: str) -> Generator[None]:
    """Raise errors of the file system as `StorageError` with *path*."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        # Calls with dir_fd name only the last step. The system reports too many levels of links, since it must follow
        # none.
        reason = "is a link, which is not followed; move it away" if error.errno == errno.ELOOP else error.strerror
        raise storage_error(OSError(error.errno, reason), path) from error


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _require_size(descriptor: int, size: int) -> None:
    if os.fstat(descriptor).st_size != size:
        raise OSError(errno.EIO, "the file has another size than was written")


def _sync_data(descriptor: int) -> None:
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # fsync on macOS does not flush the drive's cache
    else:
        os.fdatasync(descriptor)


def _set_mode(descriptor: int, mode: int) -> None:
    """Set the permissions of what we made; a directory keeps the group that it inherits."""
    current = stat.S_IMODE(os.fstat(descriptor).st_mode)
    if current & 0o777 != mode:
        os.fchmod(descriptor, mode | current & 0o7000)


def _open_with_mode(name: str, flags: int, parent: int, mode: int) -> None:
    descriptor = os.open(name, flags, 0o600, dir_fd=parent)
    try:
        _set_mode(descriptor, mode)
    finally:
        os.close(descriptor)


def _wait_for_lock(descriptor: int, path: str, deadline: float, timeout_s: float) -> None:
    wait_s = _FIRST_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                reason = f"another writer has held this lock for {timeout_s:g} s; try again later"
                raise LockTimeout(errno.ETIMEDOUT, reason, path) from None
            time.sleep(wait_s)
            wait_s = min(wait_s * 2, _LONGEST_WAIT_S)
        except OSError as error:
            raise storage_error(error, path) from error
        else:
            return


def _is_removed(parent: int, name: str) -> bool:
    """Remove *name* unless it is a directory; return whether it is gone."""
    try:
        if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            return False
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        pass
    return True


def _empty(descriptor: int) -> None:
    """Remove the content of an open directory.

    The content of an inner directory is moved up first, so that neither the stack nor the descriptors run out, however
    deep an agent nested them.
    """
    while names := os.listdir(descriptor):
        for name in names:
            if not _is_removed(descriptor, name):
                inner = os.open(name, _DIRECTORY, dir_fd=descriptor)
                try:
                    for entry in os.listdir(inner):
                        if not _is_removed(inner, entry):
                            moved = f"{TEMPORARY}{secrets.token_hex(8)}"
                            os.rename(entry, moved, src_dir_fd=inner, dst_dir_fd=descriptor)
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=descriptor)
