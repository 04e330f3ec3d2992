"""``data/``: decoded payloads under the hash of their bytes."""

import hashlib

from buoyline.errors import CorruptError, InvalidNameError
from buoyline.workspace import layout
from buoyline.workspace._files import Tree


class Blobs:
    """The payloads of a workspace, shared by its sessions; equal bytes of one type are one file."""

    def __init__(self, tree: Tree) -> None:
        """Keep the payloads in ``data/`` of *tree*."""
        self._tree = tree

    def put(self, payload: bytes, media_type: str) -> str:
        """Store *payload* durably and return the reference that stands for it.

        A file that is there already is complete, since it got its name only when it was; it is not written again.
        """
        name = layout.blob_name(payload, media_type)
        if self._tree.size(name) is None:
            self._tree.publish(name, (payload,))
        return layout.reference_to(name)

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
