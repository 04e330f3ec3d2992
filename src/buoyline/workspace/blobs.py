"""``data/``: decoded payloads under the hash of their bytes."""

import errno
import hashlib
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING

from buoyline.errors import CorruptError, InvalidNameError, StorageError
from buoyline.messages import Media, Text, ToolResult
from buoyline.messages.registry import dialect_named
from buoyline.workspace import layout
from buoyline.workspace.files import Files, Status, Version, version_of
from buoyline.workspace.tree import Tree

if TYPE_CHECKING:
    from buoyline.messages.model import ResultPart

_ATTEMPTS = 3


class Blobs:
    """The payloads of a workspace, shared by its sessions. Equal bytes of one type are one file."""

    def __init__(self, tree: Tree, *, lock_timeout_s: float) -> None:
        """Keep the payloads in ``data/`` of *tree*; *lock_timeout_s* is how long to wait for gc."""
        self._tree = tree
        self._lock_timeout_s = lock_timeout_s

    def lease(self) -> AbstractContextManager[object]:
        """Keep gc from removing blobs during the block: from before `put` until the reference is committed.

        Take it before a session's lock, never within one. gc does the same, so the two cannot wait for each other.

        Raises:
            LockTimeout: gc was running for too long.
        """
        return self._tree.lock(layout.GC_LOCK, self._lock_timeout_s, shared=True)

    def put(self, payload: bytes, media_type: str) -> str:
        """Store *payload* durably and return its reference.

        An existing file is not written again, but its time is set to now, so that gc treats it as new. If it holds
        other bytes, it is damaged: these are set aside, as `repair` does, and replaced.

        Raises:
            StorageError: The file system refused, or a directory or link has the name.
        """
        name = layout.blob_name(payload, media_type)
        for _ in range(_ATTEMPTS):
            # Another process may create or remove the file between the two calls.
            if self._tree.freshen(name):
                self._ensure_durable(name, payload)
                return layout.reference_to(name)
            if self._tree.publish(name, (payload,)):
                return layout.reference_to(name)
        raise StorageError(errno.EINVAL, "is not a regular file; move it away", self._tree.path(name))

    def _ensure_durable(self, name: str, payload: bytes) -> None:
        """Check the bytes of the file, and make its name durable."""
        if self._holds(name, payload):
            self._tree.sync_directory(layout.DATA)
            return
        copy_to_torn(self._tree, name)
        self._tree.replace(name, (payload,))

    def _holds(self, name: str, payload: bytes) -> bool:
        offset = 0
        for chunk in self._tree.chunks(name):
            if payload[offset : offset + len(chunk)] != chunk:
                return False
            offset += len(chunk)
        return offset == len(payload)

    def get(self, reference: str) -> bytes:
        """Return the bytes behind *reference*, checked against their hash.

        Raises:
            InvalidNameError: *reference* is not one that `put` returned.
            CorruptError: The file does not hold the stored bytes.
            StorageError: The file is missing.
        """
        return payload_behind(self._tree, reference)


def copy_to_torn(tree: Tree, name: str) -> None:
    """Copy the damaged file *name* to ``torn/`` beside it, durably."""
    digest = hashlib.sha256()
    for chunk in tree.chunks(name):
        digest.update(chunk)
    directory = name.rpartition("/")[0]
    tree.make_directory(f"{directory}/{layout.TORN}")
    tree.sync_directory(directory)
    tree.publish(layout.set_aside_name(name, digest.hexdigest()), tree.chunks(name))


def payload_behind(files: Files, reference: str) -> bytes:
    """Return the bytes behind *reference*. Raises as `Blobs.get`."""
    name = layout.blob_behind(reference)
    if name is None:
        raise InvalidNameError(reference, "is no reference to a file under data/")
    payload = files.read(name)
    if not name.startswith(f"{layout.DATA}/{hashlib.sha256(payload).hexdigest()}."):
        raise CorruptError(files.path(name), "the bytes do not match the name; restore them from a copy")
    return payload


# The references in the files of sessions, for gc.
#
# Any 64 hexadecimal digits that are the hash of a blob count as a reference to it, in any file: a message, the journal,
# a tool result, torn bytes, a file of the agent. Source: docs/format.md, "Retention".


_DIGITS = 64
# Hexadecimal digits become one letter, so that a run of them is found as fast as a word: 1,390 MB/s, where a regular
# expression takes 25 times as long.
_MARKED = bytes(ord("x") if chr(code) in "0123456789abcdef" else ord(" ") for code in range(256))
_RUN = b"x" * _DIGITS
# A file that was changed right before it was read may change again without a visible change of its time.
_SETTLED_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class DirectoryScan:
    """The regular files of a directory.

    Attributes:
        changed_ns: Their newest time of change; 0 if there are none.
        digests: Hashes of the blobs that they refer to.
        stamps: Path and identity of each; a stamp differs after a change.
    """

    size_bytes: int
    changed_ns: int
    digests: frozenset[str]
    stamps: tuple[tuple[str, Version], ...]


class ReferenceScanner:
    """Reads files for the hashes of blobs; a file is read again only after it changed."""

    def __init__(self, files: Files, digests: frozenset[str], on_read: Callable[[int], None] | None = None) -> None:
        """Look for *digests* in files of *files*; *on_read* gets the size of each piece in bytes."""
        self._files = files
        self._digests = frozenset(digest.encode("ascii") for digest in digests)
        self._on_read = on_read
        self._known: dict[str, tuple[Version, frozenset[str]]] = {}

    def scan(self, directory: str, above: Files | None = None) -> DirectoryScan:
        """Look through all regular files below *directory*; links are not followed.

        Args:
            directory: Where to look.
            above: A files that holds the directory above open, which saves walks from the root.

        Raises:
            StorageError: One of them cannot be read.
        """
        with (above or self._files).held(directory) as held:
            files = [(path, status, self._references(path, status, held)) for path, status in _files(held, directory)]
        return DirectoryScan(
            size_bytes=sum(status.st_size for _, status, _ in files),
            changed_ns=max((status.st_mtime_ns for _, status, _ in files), default=0),
            digests=frozenset[str]().union(*(found for *_, found in files)),
            stamps=tuple((path, version_of(status)) for path, status, _ in files),
        )

    def scan_file(self, path: str, status: Status) -> frozenset[str]:
        """Return the hashes of the blobs that one regular file refers to.

        Raises:
            StorageError: It cannot be read.
        """
        return self._references(path, status, self._files)

    def _references(self, path: str, status: Status, files: Files) -> frozenset[str]:
        stamp = version_of(status)
        known = self._known.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        syncs_at_once = status.st_mtime_ns < time.time_ns() - _SETTLED_NS
        found = frozenset(digest.decode("ascii") for digest in self._read(path, files))
        if syncs_at_once:
            self._known[path] = stamp, found
        return found

    def _read(self, path: str, files: Files) -> set[bytes]:
        found: set[bytes] = set()
        before = b""
        try:
            for chunk in files.chunks(path):
                content = before + chunk
                found |= {digest for digest in hex_runs(content) if digest in self._digests}
                before = content[1 - _DIGITS :]
                if self._on_read is not None:
                    self._on_read(len(chunk))
        except StorageError as error:
            # An unfinished file may have got its final name meanwhile; a missing one refers to nothing.
            if error.errno != errno.ENOENT:
                raise
        return found


def _files(files: Files, directory: str) -> Iterator[tuple[str, Status]]:
    waiting = [directory]
    while waiting:
        above = waiting.pop()
        for name, status in files.entries(above).items():
            path = f"{above}/{name}"
            if stat.S_ISDIR(status.st_mode):
                waiting.append(path)
            elif stat.S_ISREG(status.st_mode):
                yield path, status


def hex_runs(content: bytes) -> Iterator[bytes]:
    """Yield every 64 hexadecimal digits in a row in *content*, overlapping ones too."""
    marked = content.translate(_MARKED)
    start = marked.find(_RUN)
    while start >= 0:
        yield content[start : start + _DIGITS]
        is_longer = marked[start + _DIGITS : start + _DIGITS + 1] == b"x"
        start = start + 1 if is_longer else marked.find(_RUN, start + _DIGITS)


# Tags in the text of a tool result that say where its media are, for a framework whose agents read that in the text.
#
# Pure. Source: AgentScope's workspace, which writes ``<data url=... name=... media_type=.../>`` in place of each data
# block of a result; it escapes nothing, and writes the name ``None`` for a block without one.


_AGENTSCOPE = dialect_named("agentscope")


def with_data_tags(result: ToolResult, native: object) -> ToolResult:
    """Return *result*, already redacted, with a tag before each image or file, if *native* is AgentScope's.

    A tag follows a text on its last line, as AgentScope writes it. The media remain parts of the result, so that they
    are stored, loaded and kept by gc like all others.
    """
    if not _AGENTSCOPE.detects_result(native):
        return result
    parts: list[ResultPart] = []
    for part in result.parts:
        if isinstance(part, Media):
            before = parts[-1] if parts else None
            if isinstance(before, Text):
                parts[-1] = Text(before.text + data_tag(part))
            else:
                parts.append(Text(data_tag(part)))
        parts.append(part)
    return replace(result, parts=tuple(parts))


def data_tag(medium: Media) -> str:
    """Return the tag of one image or file, on one line whatever its name is.

    >>> data_tag(Media("image", "image/png", 0, "https://example.org/a.png", "buoy's"))
    "<data url='https://example.org/a.png' name='buoy&#x27;s' media_type='image/png'/>"
    """
    payload = medium.content()
    url = medium.source if payload is None else layout.reference_to(layout.blob_name(payload, medium.media_type))
    facts = {"url": url, "name": medium.name, "media_type": medium.media_type}
    attributes = " ".join(f"{key}='{_escaped(fact)}'" for key, fact in facts.items() if fact)
    return f"<data {attributes}/>"


def _escaped(fact: str) -> str:
    return escape(" ".join(fact.split()))
