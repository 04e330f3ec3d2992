"""`MemoryFiles`: what a `MemoryWorkspace` holds, under the names that it would have as files, for reading."""

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final

from buoyline.errors import NotFoundError
from buoyline.messages import spell
from buoyline.workspace import layout
from buoyline.workspace.eviction import Evictable
from buoyline.workspace.memory_session import MemorySession, directory_for

ROOT: Final = "memory:///"
_CHUNK_BYTES = 1 << 20


class MemoryFiles:
    """Sessions, tool results, views and payloads in memory, read as a workspace on disk is read.

    It stands in for a `LocalWorkspace` where one is only read, as its own `tree` and `blobs`. What is read counts as
    used; looking at names and sizes does not. What was evicted is not there.

    Attributes:
        workdir: What absolute names begin with, once ``memory://`` is taken off them.
    """

    def __init__(
        self,
        sessions: Mapping[str, MemorySession],
        evictable: Evictable,
        payloads: Mapping[str, bytes],
        *,
        lock: threading.Lock,
        use: Callable[[str], bytes],
    ) -> None:
        """Read what stands in these.

        Args:
            sessions: By directory.
            evictable: Tool results, views, and the payloads that no message has.
            payloads: By name, those that are kept for good.
            lock: Held while names are looked at.
            use: Returns what is behind a reference, which counts as its use; it takes the lock itself.
        """
        self.workdir = PurePosixPath("/")
        self._sessions, self._evictable, self._payloads = sessions, evictable, payloads
        self._lock, self._use = lock, use

    @property
    def tree(self) -> "MemoryFiles":
        """The files."""
        return self

    @property
    def blobs(self) -> "MemoryFiles":
        """The payloads."""
        return self

    def session(self, session_id: str) -> MemorySession:
        """Return the session.

        Raises:
            InvalidNameError: *session_id* cannot be an id.
            NotFoundError: There is no such session.
        """
        with self._lock:
            found = self._sessions.get(directory_for(self._sessions, session_id))
        if found is None:
            raise NotFoundError("session", session_id, "nothing was stored under it in this workspace")
        return found

    def path(self, name: str) -> str:
        """Return the reference of *name*."""
        return f"{ROOT}{name}"

    def names(self, name: str) -> list[str]:
        """Return the entries of directory *name*, sorted; none when it is not there."""
        with self._lock:
            if name == layout.SESSIONS:
                return sorted(directory.rpartition("/")[2] for directory in self._sessions)
            session = self._sessions.get(name)
            files = [] if session is None else session.files()
        return sorted(file for file in files if self.size(f"{name}/{file}") is not None)

    def is_directory(self, name: str) -> bool:
        """Tell whether *name* is a directory."""
        return name in self._sessions or name in {layout.SESSIONS, layout.DATA}

    def exists(self, name: str) -> bool:
        """Tell whether *name* is there."""
        return self.is_directory(name) or self.size(name) is not None

    def size(self, name: str) -> int | None:
        """Return the bytes of the file *name*; None when there is no such file, or no longer."""
        with self._lock:
            content = self._evictable.look(name)
            content = self._payloads.get(name) if content is None else content
        content = self._text(name) if content is None else content
        return None if content is None else len(content)

    def read(self, name: str, offset: int = 0, size_bytes: int = sys.maxsize) -> bytes:
        """Return *size_bytes* bytes of a file from *offset*, or all that follows it.

        Raises:
            NotFoundError: It is not there, or no longer.
        """
        content = self._text(name)
        content = self._use(self.path(name)) if content is None else content
        return content[offset : offset + size_bytes]

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the content of a file in pieces. Raises `NotFoundError`."""
        content = self.read(name)
        for start in range(0, len(content), _CHUNK_BYTES):
            yield content[start : start + _CHUNK_BYTES]

    def get(self, reference: str) -> bytes:
        """Return the payload behind a ``workspace:///data/`` reference. Raises `NotFoundError`."""
        return self._use(reference)

    def is_evicted(self, name: str) -> bool:
        """Tell whether *name* was there once and was removed because nobody used it."""
        with self._lock:
            return self._evictable.is_evicted(name)

    def _text(self, name: str) -> bytes | None:
        """Return a file of a session that cannot be evicted, ``session.json`` included; None when it is none."""
        directory, _, file = name.rpartition("/")
        session = self._sessions.get(directory)
        if session is None:
            return None
        if file == layout.SESSION_FILE:
            return spell({"id": session.session_id}).encode()
        with self._lock:
            return session.text(file)
