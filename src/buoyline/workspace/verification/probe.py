"""Reading for a verification: in pieces, so that no file is too large, and keeping track of what was read."""

import hashlib
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from buoyline.workspace._files import Handle, Tree

MAX_WHOLE_BYTES = 1 << 24
"""Up to 16 MiB a part of a file is also held as a whole, so that more than its hash can be checked."""

_CHUNK_BYTES = 1 << 20
_REFERENCE = re.compile(rb"data/[0-9a-f]{64}\.[a-z0-9]{1,8}")
_LONGEST_REFERENCE = len("data/") + 64 + len(".12345678")


class Part(NamedTuple):
    """A part of a file.

    Attributes:
        sha256: Of its bytes.
        content: The bytes; None where they are more than `MAX_WHOLE_BYTES`.
    """

    sha256: str
    content: bytes | None


class Probe:
    """Reads files of a workspace.

    Attributes:
        bytes_read: So far.
        references: Names of the blobs that are spelled anywhere in what was read: a framework may put a reference
            into a message by itself, and no journal knows of it.
    """

    def __init__(self, on_read: Callable[[int], None] | None = None) -> None:
        """Read nothing yet; *on_read* is called with how many bytes were read so far, after each piece."""
        self._on_read = on_read
        self.bytes_read = 0
        self.references: set[str] = set()

    def chunks(self, handle: Handle, offset: int = 0, size_bytes: int | None = None) -> Iterator[bytes]:
        """Yield *size_bytes* bytes from *offset*, or all that follows it; fewer only at the end of the file."""
        rest = handle.size() - offset if size_bytes is None else size_bytes
        before = b""
        while rest > 0 and (chunk := handle.read(offset, min(rest, _CHUNK_BYTES))):
            offset += len(chunk)
            rest -= len(chunk)
            self._note(before + chunk, len(chunk))
            before = chunk[-_LONGEST_REFERENCE:]
            yield chunk

    def part(self, handle: Handle, offset: int, size_bytes: int) -> Part:
        """Hash a part of a file, and hold it where it is small."""
        digest, kept = hashlib.sha256(), bytearray()
        is_small = size_bytes <= MAX_WHOLE_BYTES
        for chunk in self.chunks(handle, offset, size_bytes):
            digest.update(chunk)
            if is_small:
                kept += chunk
        return Part(digest.hexdigest(), bytes(kept) if is_small else None)

    def file(self, tree: Tree, name: str) -> Part:
        """Hash a whole file, and hold it where it is small."""
        with tree.open(name) as handle:
            return self.part(handle, 0, handle.size())

    def line_ends(self, handle: Handle, offset: int = 0, size_bytes: int | None = None) -> int:
        """Count the line ends in a part of a file."""
        return sum(chunk.count(b"\n") for chunk in self.chunks(handle, offset, size_bytes))

    def _note(self, content: bytes, new_bytes: int) -> None:
        if b"data/" in content:
            self.references.update(name.decode("ascii") for name in _REFERENCE.findall(content))
        self.bytes_read += new_bytes
        if self._on_read is not None:
            self._on_read(self.bytes_read)
