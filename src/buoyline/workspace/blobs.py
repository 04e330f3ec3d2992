"""``data/``: decoded payloads under the hash of their bytes."""

import errno
import hashlib
from contextlib import AbstractContextManager

from buoyline.errors import CorruptError, InvalidNameError, StorageError
from buoyline.workspace import layout
from buoyline.workspace._files import Tree

_ATTEMPTS = 3


class Blobs:
    """The payloads of a workspace, shared by its sessions; equal bytes of one type are one file."""

    def __init__(self, tree: Tree, *, lock_timeout_s: float) -> None:
        """Keep the payloads in ``data/`` of *tree*; *lock_timeout_s* is how long to wait for gc."""
        self._tree = tree
        self._lock_timeout_s = lock_timeout_s

    def unswept(self) -> AbstractContextManager[object]:
        """Keep gc from sweeping for as long as the block runs: from before `put` until the reference is committed.

        It is taken before a session's lock, never within one; gc does the same, so the two cannot wait for each other.

        Raises:
            LockTimeout: gc was at work for too long.
        """
        return self._tree.lock(layout.GC_LOCK, self._lock_timeout_s, shared=True)

    def put(self, payload: bytes, media_type: str) -> str:
        """Store *payload* durably and return the reference that stands for it.

        A file that is there already is not written again, but its time is set to now, so that gc takes it for a new
        one. Other bytes under its name are damage: they are set aside as `repair` does, since here are the true ones.

        Raises:
            StorageError: The file system refused, or something that is no file has the name.
        """
        name = layout.blob_name(payload, media_type)
        for _ in range(_ATTEMPTS):
            # Another one may take the name, or take the file away, between the two.
            if self._tree.freshen(name):
                self._settle(name, payload)
                return layout.reference_to(name)
            if self._tree.publish(name, (payload,)):
                return layout.reference_to(name)
        raise StorageError(errno.EINVAL, "is not a regular file; move it away", self._tree.path(name))

    def _settle(self, name: str, payload: bytes) -> None:
        """Make sure that the file has the bytes, and that its name is durable."""
        if self._holds(name, payload):
            self._tree.sync_directory(layout.DATA)
            return
        damaged = hashlib.sha256()
        for chunk in self._tree.chunks(name):
            damaged.update(chunk)
        aside = layout.set_aside_name(name, damaged.hexdigest())
        self._tree.make_directory(layout.DATA_TORN)
        self._tree.sync_directory(layout.DATA)
        self._tree.publish(aside, self._tree.chunks(name))
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
            CorruptError: The bytes are not what was stored.
            StorageError: The file is gone.
        """
        name = layout.blob_behind(reference)
        if name is None:
            raise InvalidNameError(reference, "is no reference to a file under data/")
        payload = self._tree.read(name)
        if not name.startswith(f"{layout.DATA}/{hashlib.sha256(payload).hexdigest()}."):
            raise CorruptError(self._tree.path(name), "the bytes do not match the name; restore them from a copy")
        return payload
