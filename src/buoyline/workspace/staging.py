"""Payloads that wait until it is known that there is room for all that belongs to them."""

from collections.abc import Callable

from buoyline.messages.payloads import without_payload
from buoyline.workspace import layout
from buoyline.workspace._files import Tree
from buoyline.workspace.blobs import Blobs
from buoyline.workspace.quotas import Allowance
from buoyline.workspace.redaction import Redaction


class StagedBlobs:
    """The payloads of one batch. Those that need not wait are written at once, so that none is held twice."""

    def __init__(self, blobs: Blobs, allowance: Allowance, *, waits: bool = False) -> None:
        """Write to *blobs* what *allowance* grants; with *waits*, nothing before `write` even without a limit."""
        self.waits = waits or allowance.is_limited
        self._blobs = blobs
        self._allowance = allowance
        self._waiting: dict[str, tuple[bytes, str]] = {}

    def put(self, payload: bytes, media_type: str) -> str:
        """Take *payload* and return the reference that stands for it.

        Raises:
            QuotaExceededError: It is larger than a blob may be.
        """
        self._allowance.check_blob(len(payload))
        if not self.waits:
            return self._blobs.put(payload, media_type)
        name = layout.blob_name(payload, media_type)
        self._waiting[name] = (payload, media_type)
        return layout.reference_to(name)

    def new_bytes(self, tree: Tree) -> int:
        """Return by how much ``data/`` of *tree* will grow."""
        return sum(len(payload) for name, (payload, _) in self._waiting.items() if tree.size(name) is None)

    def write(self) -> None:
        """Store what waits, durably.

        Raises:
            StorageError: The file system refused.
        """
        for payload, media_type in self._waiting.values():
            self._blobs.put(payload, media_type)
        self._waiting.clear()


def store_payload(
    block: object, tree: Tree, blobs: Blobs, allowance: Allowance, *, redaction: Redaction, begin: Callable[[], None]
) -> object:
    """Store the payload of *block* alone, durably, and return the block that refers to it.

    *begin* is called before anything is written, and after all that can be refused without a file.

    Raises:
        QuotaExceededError: There is no room for it; nothing was written.
        StorageError: The file system refused.
    """
    allowance.check_payloads([block])
    staged = StagedBlobs(blobs, allowance, waits=redaction.is_active)

    def put(payload: bytes, media_type: str) -> str:
        return staged.put(redaction.payload(payload, media_type), media_type)

    if not staged.waits:
        begin()
        with blobs.unswept():
            return without_payload(block, put)
    referring = without_payload(block, put)
    begin()
    with blobs.unswept():
        allowance.admit_blobs(tree, staged.new_bytes(tree))
        staged.write()
    return referring
