"""What a lookup reads: the files of a workspace, the summaries of its sessions as sections, or content in memory.

``summary 3`` in a session's directory is the text of its third summary, as the model read it. It is no file: its lines
are those of the text, which ``summaries.jsonl`` holds in one line of JSON.
"""

import errno
import functools
import re
import sys
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ParamSpec, Protocol, TypeAlias, TypeVar

from buoyline.errors import ConfigError, CorruptError, InvalidNameError, MessageError, NotFoundError, StorageError
from buoyline.messages.jsonl import is_object, parse
from buoyline.offloader.protocol import instead_of
from buoyline.workspace import Files, ReadableWorkspace, StoredSession, layout
from buoyline.workspace.index import Index

_CHUNK_BYTES = 1 << 20
_ATTEMPTS = 3
_SECTION = re.compile(r"(?:(.+)/)?summary ([1-9][0-9]{0,8})", re.DOTALL)

P = ParamSpec("P")
R = TypeVar("R")


def repeated_after_removal(lookup: Callable[P, R]) -> Callable[P, R]:
    """Let *lookup* begin again if a file is gone that it had listed: gc may remove a session meanwhile."""

    @functools.wraps(lookup)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        for _ in range(_ATTEMPTS - 1):
            try:
                return lookup(*args, **kwargs)
            except StorageError as error:
                if error.errno != errno.ENOENT:
                    raise
        return lookup(*args, **kwargs)

    return run


Unread: TypeAlias = dict[str, StorageError]
"""Files and directories that a lookup could not read, relative to the workdir; it goes on with the others."""


@contextmanager
def noting_unread(path: str, unread: Unread) -> Generator[None]:
    """Note in *unread* if *path* cannot be read; if it is gone, the StorageError is for `repeated_after_removal`."""
    try:
        yield
    except StorageError as error:
        if error.errno == errno.ENOENT:
            raise
        unread[path] = error


def require_some_read(paths: Collection[str], unread: Unread) -> None:
    """Raise the StorageError of the first one of *paths* if none of them could be read."""
    if paths and unread.keys() >= set(paths):
        raise unread[next(iter(paths))]


def require_workspace(workspace: object) -> None:
    """Raise ConfigError for what is no workspace."""
    # Not by a protocol's isinstance, which resolves the links of the workdir for `roots`.
    if not hasattr(workspace, "files"):
        raise ConfigError("workspace", f"{type(workspace).__name__} is not a workspace; {instead_of(workspace)}")


class ByteSource(Protocol):
    """Files by name, read in pieces or by ranges of bytes."""

    def chunks(self, name: str, /) -> Iterator[bytes]:
        """Yield the content of *name* in pieces."""
        ...

    def read(self, name: str, offset: int = 0, size_bytes: int = ..., /) -> bytes:
        """Return *size_bytes* bytes from *offset*, or all that follows it."""
        ...


@dataclass(frozen=True, slots=True)
class InMemoryContent:
    """Content in memory, read like a file, whatever the name."""

    content: bytes

    def chunks(self, name: str, /) -> Iterator[bytes]:
        """Yield the content in pieces."""
        for start in range(0, len(self.content), _CHUNK_BYTES):
            yield self.read(name, start, _CHUNK_BYTES)

    def read(self, name: str, offset: int = 0, size_bytes: int | None = None, /) -> bytes:
        """Return *size_bytes* bytes from *offset*, or all that follows it."""
        del name
        return self.content[offset : None if size_bytes is None else offset + size_bytes]

    def size(self, name: str, /) -> int:
        """Return the size of the content in bytes."""
        del name
        return len(self.content)


def pieces(
    source: ByteSource, name: str, offset: int, end: int = sys.maxsize, *, first_bytes: int = _CHUNK_BYTES
) -> Iterator[bytes]:
    """Yield the content of a file from *offset* up to *end*, in pieces that grow from *first_bytes* to a megabyte."""
    size_bytes = first_bytes
    while offset < end and (piece := source.read(name, offset, min(end - offset, size_bytes))):
        yield piece
        offset += len(piece)
        size_bytes = min(2 * size_bytes, _CHUNK_BYTES)


def session_in(workspace: ReadableWorkspace, directory: str) -> StoredSession | None:
    """Return the session in *directory*; None if none can be read there."""
    session_id = _document_in(workspace, directory).get("id")
    try:
        return workspace.session(session_id) if isinstance(session_id, str) else None
    except (CorruptError, InvalidNameError, NotFoundError):  # files can be read without it
        return None


def created_at(workspace: ReadableWorkspace, directory: str) -> str:
    """Return when the session in *directory* was created, as its ``session.json`` spells it; empty if it has none."""
    return str(_document_in(workspace, directory).get("created_at", ""))


def _document_in(workspace: ReadableWorkspace, directory: str) -> Mapping[str, Any]:
    name = f"{directory}/{layout.SESSION_FILE}"
    if workspace.files.size(name) is None:
        return {}
    try:
        found = parse(workspace.files.read(name))
    except MessageError:
        return {}
    return found if is_object(found) else {}


def records_of(workspace: ReadableWorkspace, directory: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the journal's records of the tool results in *directory*, by file; none if it cannot be read."""
    index = _index_in(workspace, directory)
    return {} if index is None else index.results


def _index_in(workspace: ReadableWorkspace, directory: str) -> Index | None:
    session = session_in(workspace, directory)
    try:
        return None if session is None else session.index()
    except (CorruptError, NotFoundError, StorageError):  # files can be read without it
        return None


def is_section_name(name: str) -> bool:
    """Return whether *name*, relative to the workdir or to a session, is one that a section may have."""
    return _SECTION.fullmatch(name) is not None


def count_summaries(workspace: ReadableWorkspace, directory: str) -> int:
    """Return how many summaries the session in *directory* has; 0 if its journal cannot be read."""
    index = _index_in(workspace, directory)
    return 0 if index is None else len(index.summaries)


def is_section(workspace: ReadableWorkspace, name: str) -> bool:
    """Return whether *name*, relative to the workdir, is a section that can be read."""
    spelled = _SECTION.fullmatch(name)
    return spelled is not None and int(spelled[2]) <= count_summaries(workspace, spelled[1] or "")


class Texts:
    """The files of a workspace and its sections, by name. Each method raises CorruptError for a damaged summary."""

    def __init__(self, workspace: ReadableWorkspace) -> None:
        """Read files and sections of *workspace*."""
        self.files: Files = workspace.files
        self._workspace = workspace
        self._sections: dict[str, InMemoryContent] = {}

    def chunks(self, name: str, /) -> Iterator[bytes]:
        """Yield the content of *name* in pieces."""
        return self._source(name).chunks(name)

    def read(self, name: str, offset: int = 0, size_bytes: int | None = None, /) -> bytes:
        """Return *size_bytes* bytes from *offset*, or all that follows it."""
        return self._source(name).read(name, offset, size_bytes)

    def size(self, name: str, /) -> int | None:
        """Return the size of *name* in bytes; None if it is no regular file and no section."""
        return self._source(name).size(name)

    def _source(self, name: str) -> Files | InMemoryContent:
        spelled = _SECTION.fullmatch(name)
        if spelled is None or self.files.exists(name) or not is_section(self._workspace, name):
            return self.files
        if name not in self._sections:
            session = session_in(self._workspace, spelled[1] or "")
            text = "" if session is None else str(session.summary(int(spelled[2])).get("text", ""))
            self._sections[name] = InMemoryContent(text.encode("utf-8", "replace"))
        return self._sections[name]
