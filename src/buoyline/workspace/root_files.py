"""``workspace.json``, and the context-management documents in ``context_management/``, as bytes."""

import uuid

from buoyline.errors import CorruptError, FormatVersionError, MessageError, NotFoundError
from buoyline.messages import spell
from buoyline.messages.jsonl import is_object, parse
from buoyline.workspace import layout
from buoyline.workspace.files import Files
from buoyline.workspace.tree import Tree

# ``workspace.json`` marks a directory as a workspace, and names its format.


def new_workspace_file() -> bytes:
    """Return the content of ``workspace.json`` for a new workspace."""
    return spell({"format": layout.FORMAT, "id": uuid.uuid4().hex}).encode("utf-8") + b"\n"


def check_workspace(files: Files) -> None:
    """Check that *files* are those of a workspace that this buoyline can read.

    Raises:
        NotFoundError: They are those of none.
        FormatVersionError: A newer buoyline wrote it.
        CorruptError: ``workspace.json`` is not what was written.
    """
    if files.size(layout.WORKSPACE_FILE) is None:
        hint = "name its directory with --workdir or BUOYLINE_WORKDIR"
        if files.is_directory(layout.SESSIONS):
            hint = f"{layout.WORKSPACE_FILE} is gone: `buoyline repair` puts one there"
        raise NotFoundError("workspace", files.path(""), hint)
    check_format(files)


def check_format(files: Files) -> None:
    """Check that this buoyline can read the workspace.

    Raises:
        FormatVersionError: A newer buoyline wrote it.
        CorruptError: ``workspace.json`` is damaged.
    """
    path = files.path(layout.WORKSPACE_FILE)
    try:
        found = parse(files.read(layout.WORKSPACE_FILE))
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
    """Create the missing ones of the workspace's directory and its fixed parts.

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
    """The context-management documents of a workspace, one file each. Blocking.

    A file is replaced in one step, so readers need no lock, and the later of two writers wins.
    """

    def __init__(self, tree: Tree) -> None:
        """Use the documents in *tree*; nothing is created before the first write."""
        self._tree = tree

    def names(self) -> list[str]:
        """Return the names of all documents, sorted. Other entries of the directory are ignored.

        Raises:
            FormatVersionError: A newer buoyline wrote the workspace.
        """
        self._check()
        found = map(layout.document_in, self._tree.names(layout.CONTEXT_MANAGEMENT))
        return sorted(name for name in found if name and self.has(name))

    def has(self, name: str) -> bool:
        """Return whether there is a document called *name*."""
        return self._tree.size(layout.document_name(name)) is not None

    def path(self, name: str) -> str:
        """Return the absolute path of the document called *name*, which need not exist.

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

    def write(self, name: str, content: bytes) -> None:
        """Store *content* as the document called *name*; durable on return, whole or not at all.

        Raises:
            InvalidNameError: *name* cannot be one.
            FormatVersionError: A newer buoyline wrote the workspace; nothing was touched.
            StorageError: The file system refused; nothing was changed.
        """
        path = layout.document_name(name)
        create_workspace(self._tree)
        self._tree.make_directory(layout.CONTEXT_MANAGEMENT)
        self._tree.sync_directory("")
        self._tree.replace(path, (content,))

    def _check(self) -> None:
        if self._tree.exists(layout.WORKSPACE_FILE):
            check_format(self._tree)
