"""How everything above reads a workspace: files by name, in ranges of bytes, and the journals of its sessions.

`ReadableWorkspace` is the contract of lookups, verification, watching and the command line. A workspace on a disk and
one in memory implement it; one on an object store implements `Files` over its objects and needs no other code.

A name is relative to the workspace, with ``/`` between its steps, and comes from `layout`. Every method raises
`StorageError` if the files refuse, with ``errno.ENOENT`` for a name that is not there.
"""

import stat
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias

from buoyline.workspace.layout import TEMPORARY_PREFIX

if TYPE_CHECKING:
    from buoyline.workspace.stored_session import StoredSession

CHUNK_BYTES = 1 << 20


class Status(Protocol):
    """The fields of `os.stat_result` that readers use; a store without a disk gives its own numbers."""

    @property
    def st_mode(self) -> int:
        """Whether it is a file, a directory, or neither; and its permissions, 0600 or 0700 if there are none."""
        ...

    @property
    def st_size(self) -> int:
        """Size in bytes."""
        ...

    @property
    def st_ino(self) -> int:
        """Differs between two entries that have or had the same name."""
        ...

    @property
    def st_mtime_ns(self) -> int:
        """When its content was last changed."""
        ...

    @property
    def st_ctime_ns(self) -> int:
        """When its content, names or permissions were last changed."""
        ...


Version: TypeAlias = tuple[int, int, int, int]
"""Of a file; if it differs, the file may have other content."""


def version_of(status: Status) -> Version:
    """Return the version of the file that has *status*."""
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def version_in(files: "Files", name: str) -> Version | None:
    """Return the version of file *name*; None if there is no such file."""
    status = files.status(name)
    return None if status is None else version_of(status)


class File(Protocol):
    """An open file: it stays the same one, even if another one takes its name."""

    def __enter__(self) -> Self:
        """Return the file."""
        ...

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        ...

    def size(self) -> int:
        """Return the size in bytes."""
        ...

    @property
    def identity(self) -> tuple[int, int]:
        """Differs between two files that had the same name."""
        ...

    def read(self, offset: int, size_bytes: int, /) -> bytes:
        """Return up to *size_bytes* bytes from *offset*; fewer only at the end of the file."""
        ...


class Files(Protocol):
    """The files of a workspace, for reading. A subclass implements the first four methods, and any others better.

    Links are never followed. What is neither a file nor a directory has a status, and cannot be opened.
    """

    def path(self, name: str, /) -> str:
        """Return *name* as errors spell it."""
        ...

    def status(self, name: str, /) -> Status | None:
        """Return the status of *name*, or of the root if it is empty; None if nothing is there."""
        ...

    def entries(self, name: str, /) -> Mapping[str, Status]:
        """Return every entry of directory *name* with its status, sorted by name; unfinished ones, too."""
        ...

    def open(self, name: str, /) -> File:
        """Open a regular file for reading."""
        ...

    def reference(self, name: str, /) -> str:
        """Return *name* as agents see it."""
        return self.path(name)

    def cache_path(self, name: str, /) -> str | None:  # noqa: ARG002 - for a disk
        """Return the path on this machine's disk where the cache *name* is or may be made; None if none can be."""
        return None

    def remove_cache(self, name: str, /) -> None:  # noqa: ARG002 - for a disk
        """Remove the cache *name* if there is one."""
        return  # nothing to remove where `cache_path` is None

    def names(self, name: str, /) -> list[str]:
        """Return the names in directory *name*, sorted, without unfinished ones; empty if it does not exist."""
        entries = self.entries(name) if self.is_directory(name) else ()
        return [entry for entry in entries if not entry.startswith(TEMPORARY_PREFIX)]

    def exists(self, name: str, /) -> bool:
        """Return whether *name* is there, as anything."""
        return self.status(name) is not None

    def is_directory(self, name: str, /) -> bool:
        """Return whether *name* is a directory and no link to one."""
        status = self.status(name)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def size(self, name: str, /) -> int | None:
        """Return the size of the regular file *name* in bytes; None if there is no such file."""
        status = self.status(name)
        return status.st_size if status is not None and stat.S_ISREG(status.st_mode) else None

    def read(self, name: str, offset: int = 0, size_bytes: int | None = None, /) -> bytes:
        """Return *size_bytes* bytes of a file from *offset*, or all that follows it."""
        with self.open(name) as file:
            return file.read(offset, file.size() - offset if size_bytes is None else size_bytes)

    def chunks(self, name: str, chunk_bytes: int = CHUNK_BYTES, /) -> Generator[bytes]:
        """Yield the content of a file in pieces."""
        with self.open(name) as file:
            offset = 0
            while chunk := file.read(offset, chunk_bytes):
                offset += len(chunk)
                yield chunk

    def held(self, name: str, /) -> "AbstractContextManager[Files]":
        """Keep directory *name* open during the block, for quick access to its files."""
        self.entries(name)
        return nullcontext(self)

    def watched_directories(self, names: Iterable[str], /) -> Mapping[str, tuple[int, int]]:  # noqa: ARG002 - as above
        """Return those of the directories *names* whose changes the system reports, by path, with an identity.

        If none of them exists, it is the one in which they will appear. Without any, a watcher looks now and then.
        """
        return {}


class ReadableWorkspace(Protocol):
    """A workspace, for reading. `LocalWorkspace` and `MemoryWorkspace` implement it."""

    @property
    def files(self) -> Files:
        """The files."""
        ...

    @property
    def roots(self) -> Sequence[str]:
        """The beginnings of absolute references, without a ``/`` at the end; the first is given out."""
        ...

    def session(self, session_id: str, /) -> "StoredSession":
        """Return a session. Raises `NotFoundError`."""
        ...

    def check(self) -> None:
        """Check that there is a workspace that this buoyline can read; see `root_files.check_workspace`."""
        ...
