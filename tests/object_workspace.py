"""A workspace on an object store, for reading: the third implementation of `ReadableWorkspace`.

The store has objects that are put once, read by ranges and listed by prefix; it has no append, rename, link or lock.
So a file that grows is a run of numbered objects.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Self

from buoyline.errors import NotFoundError, StorageError
from buoyline.workspace import Files, LocalWorkspace, ReadableWorkspace, Status, StoredSession, layout
from buoyline.workspace.root_files import check_workspace

GROWING = (layout.CONTEXT_FILE, layout.JOURNAL_FILE, layout.SUMMARIES_FILE, layout.TRANSCRIPT_FILE, layout.WINDOW_FILE)
SEGMENT = "{}/{:010}"
SEGMENT_DIGITS = 10


class Objects:
    """What an object store can do."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}
        self.ranges: list[tuple[str, int]] = []
        """Key and size of every range that was read."""

    def put_if_absent(self, key: str, content: bytes) -> bool:
        return self._objects.setdefault(key, content) is content

    def read_range(self, key: str, offset: int, size_bytes: int) -> bytes:
        content = self._objects[key][offset : offset + size_bytes]
        self.ranges.append((key, len(content)))
        return content

    def sizes(self, prefix: str) -> dict[str, int]:
        return {key: len(content) for key, content in sorted(self._objects.items()) if key.startswith(prefix)}


class ObjectStatus(NamedTuple):
    """Of an object or a run of them, or of a prefix."""

    st_mode: int
    st_size: int = 0
    st_ino: int = 0
    st_mtime_ns: int = 0
    st_ctime_ns: int = 0


class ObjectFile:
    """A run of objects as it was when it was opened."""

    def __init__(self, objects: Objects, sizes: Mapping[str, int]) -> None:
        self._objects = objects
        self._sizes = sizes
        self.identity = 0, _number(next(iter(sizes)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def size(self) -> int:
        return sum(self._sizes.values())

    def read(self, offset: int, size_bytes: int, /) -> bytes:
        found, begin = b"", 0
        for key, size in self._sizes.items():
            first, end = max(offset - begin, 0), min(offset + size_bytes - begin, size)
            if first < end:
                found += self._objects.read_range(key, first, end - first)
            begin += size
        return found


class ObjectFiles(Files):
    """The files that the keys of a store spell."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def path(self, name: str, /) -> str:
        return f"objects:///{name}"

    def status(self, name: str, /) -> Status | None:
        sizes = self._run(name)
        if sizes:
            return _status(sizes)
        return ObjectStatus(stat.S_IFDIR | 0o700) if not name or self._objects.sizes(f"{name}/") else None

    def entries(self, name: str, /) -> dict[str, Status]:
        above = f"{name}/" if name else ""
        names = {key.removeprefix(above).partition("/")[0] for key in self._objects.sizes(above)}
        statuses = {entry: self.status(above + entry) for entry in sorted(names)}
        return {entry: status for entry, status in statuses.items() if status is not None}

    def open(self, name: str, /) -> ObjectFile:
        sizes = self._run(name)
        if not sizes:
            raise StorageError(errno.ENOENT, os.strerror(errno.ENOENT), self.path(name))
        return ObjectFile(self._objects, sizes)

    def _run(self, name: str) -> dict[str, int]:
        """Return keys and sizes of the object *name*, or of its numbered ones."""
        if name.rpartition("/")[2] in GROWING:
            return self._objects.sizes(f"{name}/")
        return {key: size for key, size in self._objects.sizes(name).items() if key == name}


class ObjectWorkspace:
    """A workspace on a store of objects."""

    def __init__(self, objects: Objects) -> None:
        self.files = ObjectFiles(objects)
        self.roots = ("objects://",)

    def session(self, session_id: str, /) -> StoredSession:
        session = StoredSession(self.files, session_id)
        if not session.exists():
            raise NotFoundError("session", session_id)
        return session

    def check(self) -> None:
        check_workspace(self.files)


def pushed(workspace: LocalWorkspace, objects: Objects) -> ReadableWorkspace:
    """Put into *objects* what *workspace* has more than they do; a file that grew gets one more object."""
    there = ObjectFiles(objects)
    for name in _files_below(workspace.files, ""):
        if name.rpartition("/")[2] in GROWING:
            known = there.size(name) or 0
            key = SEGMENT.format(name, len(objects.sizes(f"{name}/")))
            objects.put_if_absent(key, workspace.files.read(name, known))
        else:
            objects.put_if_absent(name, workspace.files.read(name))
    return ObjectWorkspace(objects)


def _files_below(files: Files, directory: str) -> Iterator[str]:
    for name, status in files.entries(directory).items():
        path = f"{directory}/{name}" if directory else name
        if stat.S_ISDIR(status.st_mode):
            yield from () if name.startswith(".") else _files_below(files, path)
        else:
            yield path


def _status(sizes: Mapping[str, int]) -> ObjectStatus:
    keys = "".join(sizes)
    return ObjectStatus(stat.S_IFREG | 0o600, sum(sizes.values()), _number(next(iter(sizes))), _number(keys))


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7])
