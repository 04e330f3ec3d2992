"""`KeyedStorage`: Strands' unified storage over the entries of a workspace.

Source: `strands.storage.Storage` and its shipped backends for the keys: runs of ``/`` are one, none at either end, and
neither a backslash nor a ``..`` segment.
"""

import builtins
import re
from collections.abc import Callable

from strands.storage.search.keyword import KeywordSearchStrategy
from strands.storage.storage import (
    _NAMESPACED,  # pyright: ignore[reportPrivateUsage] - how Strands knows that its prefix is not wanted again
    StorageSearchResult,
)
from strands.types.exceptions import StorageError

from buoyline.errors import BuoylineError
from buoyline.integrations.strands.frames import framed, unframed
from buoyline.workspace.entries import Entry, KeepsEntries


class KeyedStorage:
    """Bytes under keys, as Strands' subsystems and the unified form of its context offloader store them.

    A frame that the offloader puts around content is kept beside it: the file holds the content alone, so ``cat`` and
    ``grep`` work. Writing over a key is atomic and durable, and what was damaged on disk is an error.
    """

    def __init__(self, entries: Callable[[], KeepsEntries], prefix: str = "") -> None:
        """Use what *entries* gives when something is first done, under keys that begin with *prefix*."""
        self._entries, self._prefix = entries, prefix
        if prefix:
            self._namespaced = _NAMESPACED

    async def write(self, key: str, data: bytes) -> None:
        """Store *data* under *key*, in place of what is there.

        Raises:
            strands.types.exceptions.StorageError: *key* cannot be one, or the workspace refused.
        """
        content_type, content = unframed(bytes(data))
        try:
            await self._entries().write(self._key(key), Entry(content, content_type, content_type))
        except BuoylineError as error:
            raise StorageError(f"Failed to write {key!r}: {error}") from error

    async def read(self, key: str) -> bytes | None:
        """Return the bytes under *key*; None where there are none.

        Raises:
            strands.types.exceptions.StorageError: *key* cannot be one, or what is there is not what was written.
        """
        try:
            found = await self._entries().read(self._key(key))
        except BuoylineError as error:
            raise StorageError(f"Failed to read {key!r}: {error}") from error
        if found is None:
            return None
        return framed(found.content, found.frame) if found.frame else found.content

    async def delete(self, key: str) -> None:
        """Remove what is under *key*; nothing happens where nothing is.

        Raises:
            strands.types.exceptions.StorageError: *key* cannot be one, or the workspace refused.
        """
        try:
            await self._entries().delete(self._key(key))
        except BuoylineError as error:
            raise StorageError(f"Failed to delete {key!r}: {error}") from error

    async def list(self, query: str = "") -> builtins.list[str]:
        """Return the keys that begin with *query*, sorted.

        Raises:
            strands.types.exceptions.StorageError: *query* cannot be one, or the workspace refused.
        """
        prefix = f"{self._prefix}{_checked(query).lstrip('/')}"
        try:
            keys = await self._entries().keys(prefix)
        except BuoylineError as error:
            raise StorageError(f"Failed to list {query!r}: {error}") from error
        return [key.removeprefix(self._prefix) for key in keys]

    async def search(self, query: str) -> builtins.list[StorageSearchResult]:
        """Return what has words of *query* in it, the best first, ranked as Strands' own storages rank it."""
        return await KeywordSearchStrategy().search(self, query)

    def namespace(self, prefix: str) -> "KeyedStorage":
        """Return a view of what is below *prefix*.

        Raises:
            strands.types.exceptions.StorageError: *prefix* cannot be one.
        """
        below = _checked(prefix).strip("/")
        return KeyedStorage(self._entries, f"{self._prefix}{below}/" if below else self._prefix)

    def for_sandbox(self, sandbox: object) -> "KeyedStorage":  # noqa: ARG002 - the interface passes it
        """Return itself: files are the host's, whichever sandbox the agent's commands run in."""
        return self

    def _key(self, key: str) -> str:
        checked = _checked(key).strip("/")
        if not checked:
            raise StorageError("Storage key must not be empty")
        return f"{self._prefix}{checked}"


def _checked(key: str) -> str:
    if "\\" in key:
        raise StorageError(f"Invalid storage key {key!r}: backslashes are not allowed")
    normalized = re.sub(r"/+", "/", key)
    if ".." in normalized.split("/"):
        raise StorageError(f"Invalid storage key {key!r}: '..' path segments are not allowed")
    return normalized
