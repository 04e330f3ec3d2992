"""Files as texts that are read in pieces."""

import errno
from pathlib import Path

from buoyline.errors import NotFoundError, StorageError
from buoyline.offloader.source import BytesSource
from buoyline.workspace._files import Tree, outside_chunks

CHUNK_BYTES = 1 << 18
"""Less than a block: what is left of the last one and a chunk are joined, and that should not take two."""


def file_source(tree: Tree, name: str) -> BytesSource:
    """Return the text of the file *name* of a workspace.

    Raises:
        NotFoundError: It is not there.
    """
    size_bytes = tree.size(name)
    if size_bytes is None:
        raise NotFoundError("file", tree.path(name))
    return BytesSource(lambda: tree.chunks(name, CHUNK_BYTES), size_bytes)


def outside_source(path: Path) -> BytesSource:
    """Return the text of a file that belongs to no workspace and does not grow while it is read.

    Raises:
        StorageError: The file system refuses to tell its size, or it is no file.
    """
    if not path.is_file():
        raise StorageError(errno.EINVAL, "is no regular file, which could be read twice", str(path))
    return BytesSource(lambda: outside_chunks(path, CHUNK_BYTES), path.stat().st_size)
