"""``workspace.json``, which says that a directory is a workspace, and in which format."""

import uuid

from buoyline.errors import CorruptError, FormatVersionError, MessageError
from buoyline.messages import is_object, parse, spell
from buoyline.workspace import layout
from buoyline.workspace._files import Tree


def new_document() -> bytes:
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


def create(tree: Tree) -> None:
    """Create the directory of the workspace and its fixed parts, as far as they are not there.

    Raises:
        FormatVersionError: A newer buoyline wrote it; nothing was touched.
        CorruptError: See `check_format`.
        StorageError: The file system refused.
    """
    tree.make_root()
    if not tree.exists(layout.WORKSPACE_FILE):
        tree.publish(layout.WORKSPACE_FILE, (new_document(),))
    check_format(tree)
    for name in (layout.SESSIONS, layout.DATA, layout.LOCKS):
        tree.make_directory(name)
    tree.sync_directory("")
