"""``context_management/``: named documents, as bytes. What they mean is another floor's."""

from buoyline.errors import NotFoundError
from buoyline.workspace import layout
from buoyline.workspace._files import Tree
from buoyline.workspace.document import check_format, create


class Documents:
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
        create(self._tree)
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
