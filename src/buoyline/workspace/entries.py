"""Bytes under keys, beside the sessions: a framework stores, replaces and deletes them.

The content is a plain file, so that ``cat`` and ``grep`` work on it. Each key has a second small file, its *facts*,
whose replacement is the commit: a reader finds the old content or the new one, never a part, and the hash in the facts
reveals damaged content.

Source: docs/format.md, "storage/"; Strands' unified storage for what can be done with a key.
"""

import errno
import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

from buoyline.errors import CorruptError, MessageError, StorageError
from buoyline.messages import spell
from buoyline.messages.jsonl import is_object, parse
from buoyline.workspace import layout
from buoyline.workspace.pool import RunsWork
from buoyline.workspace.redaction import Redaction
from buoyline.workspace.tree import Tree

T = TypeVar("T")

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """The content under a key.

    Attributes:
        media_type: Decides the file's extension.
        frame: A text that the framework wants back with the content, kept unchanged.
    """

    content: bytes
    media_type: str = ""
    frame: str = ""


class StoredEntries:
    """The entries of one scope of a workspace."""

    def __init__(
        self,
        tree: Tree,
        scope: str,
        *,
        run: RunsWork,
        begin: Callable[[], None],
        redaction: Redaction,
        lock_timeout_s: float,
    ) -> None:
        """Keep the entries of *scope* in *tree*; *begin* creates the workspace if necessary.

        Raises:
            InvalidNameError: *scope* cannot be an id.
        """
        self._tree, self._directory, self._lock_name = tree, layout.entries_directory(scope), layout.lock_name(scope)
        self._run, self._begin = run, begin
        self._redaction, self._lock_timeout_s = redaction, lock_timeout_s

    async def write(self, key: str, entry: StoredEntry) -> None:
        """Store *entry* under *key*, and replace an older one: durable on return, whole or not at all.

        Raises:
            RedactionError: A redaction hook failed; nothing was written.
            StorageError: The file system refused; the older entry is unchanged.
        """
        await self._run(lambda: self._write(key, entry))

    async def read(self, key: str) -> StoredEntry | None:
        """Return the entry under *key*; None if there is none.

        Raises:
            CorruptError: Its file is missing or damaged.
            StorageError: The file system refused.
        """
        return await self._run(lambda: self._read(key))

    async def delete(self, key: str) -> None:
        """Remove the entry under *key*, if there is one.

        Raises:
            StorageError: The file system refused.
        """
        await self._run(lambda: self._delete(key))

    async def keys(self, prefix: str) -> list[str]:
        """Return all keys that begin with *prefix*, sorted.

        Raises:
            StorageError: The file system refused.
        """
        return await self._run(lambda: self._keys(prefix))

    def _write(self, key: str, entry: StoredEntry) -> None:
        given = redacted(entry, self._redaction)
        key = self._redaction.text(key)
        digest = hashlib.sha256(given.content).hexdigest()
        file = layout.entry_name(key, digest, given.media_type)
        facts = {"key": key, "file": file, "bytes": len(given.content), "sha256": digest}
        facts |= {"media_type": given.media_type, "frame": given.frame}
        self._begin()
        with self._lock():
            old = self._facts(key)
            self._make_directories()
            self._tree.replace(f"{self._directory}/{file}", (given.content,))
            self._tree.replace(self._facts_name(key), (spell(facts).encode("utf-8"),))
            if old is not None and old["file"] != file:
                self._tree.remove(f"{self._directory}/{old['file']}")

    def _read(self, key: str) -> StoredEntry | None:
        key = self._redaction.text(key)
        for _ in range(_ATTEMPTS):
            facts = self._facts(key)
            if facts is None:
                return None
            name = f"{self._directory}/{facts['file']}"
            try:
                content = self._tree.read(name)
            except StorageError as error:
                # Another writer replaced it between our two reads; the new content has another name.
                if error.errno == errno.ENOENT and self._facts(key) != facts:
                    continue
                raise
            if hashlib.sha256(content).hexdigest() != facts["sha256"]:
                raise CorruptError(self._tree.path(name), "is not what was written; restore it from a copy")
            return StoredEntry(content, facts.get("media_type", ""), facts.get("frame", ""))
        raise StorageError(errno.EBUSY, "is written over again and again", self._tree.path(self._facts_name(key)))

    def _delete(self, key: str) -> None:
        key = self._redaction.text(key)
        if self._facts(key) is None:
            return
        with self._lock():
            facts = self._facts(key)
            self._tree.remove(self._facts_name(key))
            self._tree.sync_directory(f"{self._directory}/{layout.ENTRY_FACTS}")
            if facts is not None:
                self._tree.remove(f"{self._directory}/{facts['file']}")

    def _keys(self, prefix: str) -> list[str]:
        names = self._tree.names(f"{self._directory}/{layout.ENTRY_FACTS}")
        keys = (layout.entry_key(name) or self._named_key(name) for name in names)
        return sorted(key for key in keys if key is not None and key.startswith(prefix))

    def _named_key(self, name: str) -> str | None:
        """Return the key whose facts are in file *name*; it is too long for a file name."""
        facts = self._parsed(f"{self._directory}/{layout.ENTRY_FACTS}/{name}")
        return None if facts is None else facts["key"]

    def _facts(self, key: str) -> dict[str, Any] | None:
        return self._parsed(self._facts_name(key))

    def _parsed(self, name: str) -> dict[str, Any] | None:
        if self._tree.size(name) is None:
            return None
        try:
            found = parse(self._tree.read(name))
        except StorageError as error:
            if error.errno == errno.ENOENT:
                return None
            raise
        except MessageError as error:
            raise CorruptError(self._tree.path(name), "is not what was written; restore it from a copy") from error
        needed = ("key", "file", "sha256")
        if not is_object(found) or not all(isinstance(found.get(name), str) for name in needed) or "/" in found["file"]:
            raise CorruptError(self._tree.path(name), "is not what was written; restore it from a copy")
        return dict(found)

    def _facts_name(self, key: str) -> str:
        return f"{self._directory}/{layout.ENTRY_FACTS}/{layout.entry_facts_name(key)}"

    def _lock(self) -> AbstractContextManager[object]:
        return self._tree.lock(self._lock_name, self._lock_timeout_s)

    def _make_directories(self) -> None:
        facts = f"{self._directory}/{layout.ENTRY_FACTS}"
        if self._tree.is_directory(facts):
            return
        for name, above in ((layout.ENTRIES, ""), (self._directory, layout.ENTRIES), (facts, self._directory)):
            self._tree.make_directory(name)
            self._tree.sync_directory(above)


def redacted(entry: StoredEntry, redaction: Redaction) -> StoredEntry:
    """Return *entry* after redaction; content without a known type counts as text if it is UTF-8."""
    if not redaction.is_active:
        return entry
    content = redaction.payload(entry.content, entry.media_type or "text/plain")
    return StoredEntry(content, entry.media_type, redaction.text(entry.frame))
