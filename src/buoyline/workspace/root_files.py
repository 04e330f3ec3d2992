"""``context_management/``: named documents, as bytes. What they mean is another floor's."""

import uuid

from buoyline.errors import CorruptError, FormatVersionError, MessageError, NotFoundError
from buoyline.messages import is_object, parse, spell
from buoyline.workspace import layout
from buoyline.workspace.tree import Tree

# ``workspace.json``, which says that a directory is a workspace, and in which format.


def new_workspace_file() -> bytes:
    """Return the content of ``workspace.json`` for a workspace that has none yet."""
    return spell({"format": layout.FORMAT, "id": uuid.uuid4().hex}).encode("utf-8") + b"\n"


def check_format(tree: Tree) -> None:
    """Make sure that this buoyline can read the workspace.

    Raises:
        FormatVersionError: A newer buoyline wrote it.
        CorruptError: ``workspace.json`` is not what was written.
    """
    path = tree.path(layout.WORKSPACE_FILE)
    try:
        found = parse(tree.read(layout.WORKSPACE_FILE))
    except MessageError:
        found = None
    version = found.get("format") if is_object(found) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise CorruptError(
            path, 'is damaged (no "format" key): run `buoyline repair --from BACKUP`, or use another workdir'
        )
    if version > layout.FORMAT:
        raise FormatVersionError(path, version, layout.FORMAT)


def create_workspace(tree: Tree) -> None:
    """Create the directory of the workspace and its fixed parts, as far as they are not there.

    Raises:
        FormatVersionError: A newer buoyline wrote it; nothing was touched.
        CorruptError: See `check_format`.
        StorageError: The file system refused.
    """
    tree.make_root()
    if not tree.exists(layout.WORKSPACE_FILE):
        tree.publish(layout.WORKSPACE_FILE, (new_workspace_file(),))
    check_format(tree)
    for name in (layout.SESSIONS, layout.DATA, layout.LOCKS):
        tree.make_directory(name)
    tree.sync_directory("")


class ContextManagementFiles:
    """The documents of a workspace, one file each. Blocking; a document is read and written whole.

    A file is put in its place in one step, so readers need no lock, and of two writers the later one wins.
    """

    def __init__(self, tree: Tree) -> None:
        """Address the documents in *tree*; nothing is created before one is written."""
        self._tree = tree

    def names(self) -> list[str]:
        """Return the names of all documents, sorted; other names, and what is no file, are nobody's business.

        Raises:
            FormatVersionError: A newer buoyline wrote the workspace.
        """
        self._check()
        found = map(layout.document_in, self._tree.names(layout.CONTEXT_MANAGEMENT))
        return sorted(name for name in found if name and self.has(name))

    def has(self, name: str) -> bool:
        """Tell whether there is a document called *name*."""
        return self._tree.size(layout.document_name(name)) is not None

    def path(self, name: str) -> str:
        """Return the absolute path of the document called *name*, which need not be there.

        Raises:
            InvalidNameError: *name* cannot be one.
        """
        return self._tree.path(layout.document_name(name))

    def read(self, name: str) -> bytes:
        """Return the document called *name*.

        Raises:
            InvalidNameError: *name* cannot be one.
            NotFoundError: There is none.
            StorageError: The file system refused.
        """
        self._check()
        if not self.has(name):
            raise NotFoundError("context management document", name)
        return self._tree.read(layout.document_name(name))

    def write(self, name: str, content: bytes, *, replace: bool = True) -> bool:
        """Keep *content* as the document called *name*; durable on return, whole or not at all.

        Returns:
            False where there is one already that shall not be replaced; then nothing was changed.

        Raises:
            InvalidNameError: *name* cannot be one.
            FormatVersionError: A newer buoyline wrote the workspace; nothing was touched.
            StorageError: The file system refused; nothing was changed.
        """
        path = layout.document_name(name)
        create_workspace(self._tree)
        self._tree.make_directory(layout.CONTEXT_MANAGEMENT)
        self._tree.sync_directory("")
        if not replace:
            return self._tree.publish(path, (content,))
        self._tree.replace(path, (content,))
        return True

    def remove(self, name: str) -> None:
        """Remove the document called *name*, durably.

        Raises:
            InvalidNameError: *name* cannot be one.
            NotFoundError: There is none.
            StorageError: The file system refused.
        """
        self._check()
        if not self.has(name):
            raise NotFoundError("context management document", name)
        self._tree.remove(layout.document_name(name))
        self._tree.sync_directory(layout.CONTEXT_MANAGEMENT)

    def _check(self) -> None:
        if self._tree.exists(layout.WORKSPACE_FILE):
            check_format(self._tree)
