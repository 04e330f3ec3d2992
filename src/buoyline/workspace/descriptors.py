"""Operations on open files and directories: the half of `local_tree` that knows descriptors and no paths.

Every name is relative to an open directory, no link is followed, every mode is set explicitly. Only `local_tree` uses
this module.
"""

import contextlib
import errno
import fcntl
import os
import resource
import secrets
import stat
import sys
import time
import weakref
from collections.abc import Callable, Generator
from types import TracebackType
from typing import ClassVar, Self

from buoyline.errors import LockTimeout, StorageError, storage_error
from buoyline.workspace.layout import TEMPORARY_PREFIX

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
REGULAR = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
CHUNK_BYTES = 1 << 20
_MAX_KEPT = 256
_TOO_MANY_OPEN = frozenset({errno.EMFILE, errno.ENFILE})
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP})
_NAMING_TIMEOUT_S = 30.0
_FIRST_WAIT_S = 0.0005
# At most as long as a few appends take: with 20 ms, four processes wrote half as fast.
_LONGEST_WAIT_S = 0.003


Identity = tuple[int, int, int]
"""Device, inode and mode: another one with the same name, or one with other permissions, has to be opened again."""


def identity_of(status: os.stat_result) -> Identity:
    """Return the identity of the file or directory that has *status*."""
    return status.st_dev, status.st_ino, status.st_mode


Close = Callable[[int], None]
"""Takes over a descriptor that nobody uses any more: `os.close`, or it keeps it."""


def _kept_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX_KEPT if soft == resource.RLIM_INFINITY else min(_MAX_KEPT, soft // 4)


class KeptDescriptors:
    """Open descriptors that nobody uses, for the next call: opening and closing took half the calls of an append.

    A descriptor is either in use or kept, never both, so no thread closes or unlocks that of another one. The process
    keeps at most a quarter of the descriptors that it may have; those that were not used for longest are closed. There
    is no lock: each step on the dict is atomic, and a child may be forked, or a tree collected, at any time.
    """

    _all: ClassVar[dict[tuple[int, str], tuple[int, Identity]]] = {}
    _limit: ClassVar[int] = _kept_limit()

    def __init__(self) -> None:
        """Keep none yet; they are closed when nobody refers to this any more."""
        weakref.finalize(self, KeptDescriptors._close, id(self)).atexit = False

    def take(self, name: str, find: Callable[[], os.stat_result]) -> tuple[int, os.stat_result] | None:
        """Return the descriptor kept for *name* and its status, if *find* shows that the name still leads to it."""
        kept = self._all.pop((id(self), name), None)
        if kept is None:
            return None
        descriptor, identity = kept
        try:
            status = find()
        except OSError:
            status = None  # opening it again reports why
        if status is not None and identity_of(status) == identity:
            return descriptor, status
        os.close(descriptor)
        return None

    def keep(self, name: str, identity: Identity, descriptor: int) -> None:
        """Take over *descriptor*, that of *name*."""
        kept = descriptor, identity
        if self._all.setdefault((id(self), name), kept) is not kept:
            os.close(descriptor)  # another thread used the name at the same time
        if len(self._all) > self._limit:
            self._close_one(list(self._all)[0])  # noqa: RUF015 - another thread may change it during an iteration

    def close(self) -> None:
        """Close those that are kept here."""
        self._close(id(self))

    @classmethod
    def close_all(cls) -> bool:
        """Close those that are kept in the process; False if there are none."""
        return cls._close(None)

    @classmethod
    def _close(cls, owner: int | None) -> bool:
        return sum(cls._close_one(key) for key in list(cls._all) if owner in {None, key[0]}) > 0

    @classmethod
    def _close_one(cls, key: tuple[int, str]) -> bool:
        kept = cls._all.pop(key, None)
        if kept is not None:
            # The call that used it has finished, and another one must not report an error of it.
            with contextlib.suppress(OSError):
                os.close(kept[0])
        return kept is not None


# A child shares the locks of these files with its parent.
os.register_at_fork(after_in_child=KeptDescriptors.close_all)


class Handle:
    """An open regular file that is appended to and cut back, with its path for messages.

    Closed by `close`, or at the end of a ``with`` block.
    """

    def __init__(
        self,
        descriptor: int,
        path: str,
        status: os.stat_result,
        *,
        is_durable: bool,
        is_locked: bool,
        close: Close = os.close,
    ) -> None:
        """Take over *descriptor*; *path* is for messages, and `sync` reaches the device if *is_durable*.

        *is_locked* means that nobody else writes to the open file. Its size is then cached, and `append` fails if
        somebody wrote to it nevertheless; reading the size ten times took a tenth of the time of one append. *close*
        gets the descriptor in the end, unless a write failed.
        """
        self._descriptor = descriptor
        self._path = path
        self._identity = status.st_dev, status.st_ino
        self._is_durable = is_durable
        self._size = status.st_size if is_locked else None
        self._close = close

    def __enter__(self) -> Self:
        """Return the handle."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file; its unsynced bytes are not lost."""
        descriptor, self._descriptor = self._descriptor, -1
        (os.close if self._size is None else self._close)(descriptor)

    def size(self) -> int:
        """Return the size in bytes."""
        if self._size is not None:
            return self._size
        with translated(self._path):
            return os.fstat(self._descriptor).st_size

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode, which differ after the file was replaced."""
        return self._identity

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return up to *size_bytes* bytes from *offset*; fewer only at the end of the file."""
        with translated(self._path):
            pieces: list[bytes] = []
            while size_bytes > 0 and (piece := os.pread(self._descriptor, min(size_bytes, CHUNK_BYTES), offset)):
                pieces.append(piece)
                offset += len(piece)
                size_bytes -= len(piece)
            return b"".join(pieces)

    def append(self, content: bytes) -> None:
        """Write *content* at the end, in one call if the system accepts it whole, and check the size."""
        expected = self.size() + len(content)
        # Unknown until the write has succeeded.
        self._size = None
        with translated(self._path):
            write_all(self._descriptor, content)
            if os.fstat(self._descriptor).st_size != expected:
                raise OSError(errno.EIO, "the file has another size than was written", self._path)
        self._size = expected

    def write_back(self, offset: int, size_bytes: int) -> None:
        """Start writing the bytes at *offset* to the device, so that `sync` waits less."""
        if self._is_durable:
            start_writing_back(self._descriptor, offset, size_bytes)

    def cut(self, size_bytes: int) -> None:
        """Cut the file to *size_bytes*, unless it is shorter: it must not grow, since its end would be zeros."""
        self._size = None
        with translated(self._path):
            if os.fstat(self._descriptor).st_size > size_bytes:
                os.ftruncate(self._descriptor, size_bytes)

    def sync(self) -> None:
        """Make the content and the size durable. Never retried: after an error only new bytes help."""
        if self._is_durable:
            size, self._size = self._size, None
            with translated(self._path):
                sync_data(self._descriptor)
            self._size = size


class translated:  # noqa: N801 - a context manager, used like a function
    """Raises errors of the file system as `StorageError` with the path."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        """Use *path* in errors."""
        self._path = path

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Translate an `OSError` that is not one of ours yet."""
        if isinstance(error, OSError) and not isinstance(error, StorageError):
            # Calls with dir_fd name only the last step, or a temporary one; the caller knows the whole path.
            # The system reports too many levels of links, since it must follow none.
            reason = "is a link, which is not followed; move it away" if error.errno == errno.ELOOP else error.strerror
            raise storage_error(OSError(error.errno, reason), self._path) from error


def open_entry(parent: int | None, name: str, flags: int) -> int:
    """Open what is called *name* in directory *parent*; a file that is created has mode 0600 less the umask.

    If too many files are open, those that are kept are closed first.
    """
    try:
        return os.open(name, flags, FILE_MODE, dir_fd=parent)
    except OSError as error:
        if error.errno not in _TOO_MANY_OPEN or not KeptDescriptors.close_all():
            raise
    return os.open(name, flags, FILE_MODE, dir_fd=parent)


def require_regular(descriptor: int, path: str) -> os.stat_result:
    """Return the status of an open file; refuse other than regular files, since a pipe would wait forever."""
    with translated(path):
        status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise StorageError(errno.EINVAL, "is not a regular file; move it away", path)
    return status


def require_one_name(status: os.stat_result, path: str) -> None:
    """Refuse to write to a file with a second hard link: a copy made of links would change with it."""
    if status.st_nlink > 1:
        raise StorageError(errno.EMLINK, "has another name, too; put a copy in its place", path)


def make_entry(parent: int, name: str) -> None:
    """Create a directory called *name* with mode 0700, whatever the umask."""
    os.mkdir(name, DIRECTORY_MODE, dir_fd=parent)
    if stat.S_IMODE(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode) & DIRECTORY_MODE != DIRECTORY_MODE:
        os.chmod(name, DIRECTORY_MODE, dir_fd=parent)


def restore_mode(descriptor: int, status: os.stat_result) -> None:
    """Restore the mode of our own file after an umask such as 0777, or its next opening would fail."""
    if stat.S_IMODE(status.st_mode) & FILE_MODE != FILE_MODE and status.st_uid == os.geteuid():
        os.fchmod(descriptor, FILE_MODE)


def give_name(parent: int, temporary: str, name: str, source: int | None = None) -> bool:
    """Move the complete file *temporary* to the name *name* in *parent*; False if that is taken.

    It is in directory *source*, or in *parent* if that is None.
    """
    source = parent if source is None else source
    try:
        os.link(temporary, name, src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        return _rename_unless_taken(parent, temporary, name, source)
    else:
        return True
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=source)


def _rename_unless_taken(parent: int, temporary: str, name: str, source: int) -> bool:
    # A rename overwrites. Without hard links all our writers come here, and the directory's lock, which ends with its
    # holder, lets one at a time check and rename. A placeholder would be an empty file after a crash.
    wait_for_lock(parent, name, _NAMING_TIMEOUT_S, fcntl.LOCK_EX)
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(temporary, name, src_dir_fd=source, dst_dir_fd=parent)
        return True
    finally:
        # The directory may stay open for the next call.
        fcntl.flock(parent, fcntl.LOCK_UN)
    return False


def write_all(descriptor: int, content: bytes) -> None:
    """Write all of *content* at the position of the open file."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def start_writing_back(descriptor: int, offset: int, size_bytes: int) -> None:
    """Start writing a large piece to the device while the next one is made, so that the sync waits less.

    Linux starts to write pages that are declared as not needed, and keeps them until they are written. It is a hint:
    if the system ignores it, the sync does all the work.
    """
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):
            os.posix_fadvise(descriptor, offset, size_bytes, os.POSIX_FADV_DONTNEED)


def sync_data(descriptor: int) -> None:
    """Make content and size of an open file durable."""
    if sys.platform == "darwin":
        # fsync on macOS does not flush the drive's cache.
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(descriptor)


def wait_for_lock(descriptor: int, path: str, timeout_s: float, kind: int) -> None:
    """Take the kernel's lock of a *kind* on an open file.

    Raises:
        LockTimeout: Others held it for *timeout_s* seconds.
    """
    deadline = time.monotonic() + timeout_s
    wait_s = _FIRST_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                reason = f"another writer has held this lock for {timeout_s:g} s; try again later"
                raise LockTimeout(errno.ETIMEDOUT, reason, path) from None
            time.sleep(wait_s)
            wait_s = min(wait_s * 2, _LONGEST_WAIT_S)
        else:
            return


_held_locks: set[int] = set()
"""Descriptors of the locks that this process holds."""


@contextlib.contextmanager
def held_lock(descriptor: int, close: Close) -> Generator[None]:
    """Release the lock on an open file at the end of the block, and pass the file to *close*."""
    _held_locks.add(descriptor)
    try:
        yield
    finally:
        # In a child that was forked within the block, the lock is the parent's, and the file is closed already.
        if descriptor in _held_locks:
            _held_locks.discard(descriptor)
            try:
                # A child that was forked meanwhile may have the lock open, too, and keep it locked after our close.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            except OSError:
                # The block has finished, and an error would say otherwise; closing releases the lock, too.
                os.close(descriptor)
            else:
                close(descriptor)


def _leave_locks_to_the_parent() -> None:
    """Close the locks that were held at the fork: they belong to the parent, and end with it."""
    while _held_locks:
        os.close(_held_locks.pop())


os.register_at_fork(after_in_child=_leave_locks_to_the_parent)


def temporary_name() -> str:
    """Return a new name for an incomplete file or directory."""
    return f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"


def remove_flat(parent: int, name: str, descriptor: int) -> None:
    """Remove an open directory with the files in it, if it is still called *name*.

    A rename may report an error after it took effect; the directory is then in use under its new name.
    """
    try:
        is_called_so = os.path.samestat(os.stat(name, dir_fd=parent, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return
    if not is_called_so:
        return
    for entry in os.listdir(descriptor):
        os.unlink(entry, dir_fd=descriptor)
    os.rmdir(name, dir_fd=parent)


@contextlib.contextmanager
def opened_directory(parent: int, name: str) -> Generator[int]:
    """Open the directory called *name* until the end of the block."""
    descriptor = open_entry(parent, name, DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def is_removed(parent: int, name: str) -> bool:
    """Remove *name* unless it is a directory; tell whether it is gone."""
    try:
        if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            return False
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        pass
    return True


def empty(descriptor: int) -> None:
    """Remove the content of an open directory.

    The content of an inner directory is moved up first, so that neither the stack nor the descriptors run out, however
    deep an agent nested them.
    """
    while names := os.listdir(descriptor):
        for name in names:
            if not is_removed(descriptor, name):
                with opened_directory(descriptor, name) as inner:
                    for entry in os.listdir(inner):
                        if not is_removed(inner, entry):
                            os.rename(entry, temporary_name(), src_dir_fd=inner, dst_dir_fd=descriptor)
                os.rmdir(name, dir_fd=descriptor)
