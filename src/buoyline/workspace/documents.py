"""``workspace.json``, and the context-management documents of a workspace, one file each."""

from buoyline.errors import CorruptError, FormatVersionError, MessageError, NotFoundError
from buoyline.messages import spell
from buoyline.messages.jsonl import is_object, parse
from buoyline.workspace import layout
from buoyline.workspace.disk import Disk


def workspace_file() -> bytes:
    """Return the content of ``workspace.json``."""
    return f"{spell({'format': layout.FORMAT})}\n".encode()


def ensure_workspace(disk: Disk, *, sync: bool = True) -> None:
    """Create the missing ones of the workspace's directory, its fixed parts and ``workspace.json``; durable on return.

    Without *sync* they are durable after `Disk.sync_upwards` of the root, or of what is in it.

    Raises:
        FormatVersionError: It has another format; nothing was touched.
        CorruptError: See `check_workspace`.
        StorageError: The file system refused.
    """
    disk.make_directory("", sync=False)
    if disk.status(layout.WORKSPACE) is None:
        disk.publish(layout.WORKSPACE, (workspace_file(),), sync_directory=False)
    check_workspace(disk)
    for name in (layout.SESSIONS, layout.DATA):
        disk.make_directory(name, sync=False)
    if sync:
        disk.sync_upwards("")


def check_workspace(disk: Disk) -> None:
    """Check that *disk* holds a workspace of this format.

    Raises:
        NotFoundError: It holds none.
        FormatVersionError: It has another format.
        CorruptError: ``workspace.json`` is damaged.
    """
    path = disk.path(layout.WORKSPACE)
    if disk.status(layout.WORKSPACE) is None:
        raise NotFoundError("workspace", disk.path(""), "name its directory with --workdir or BUOYLINE_WORKDIR")
    try:
        found = parse(disk.read(layout.WORKSPACE))
    except MessageError:
        found = None
    version = found.get("format") if is_object(found) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise CorruptError(path, f'is damaged: write {{"format": {layout.FORMAT}}} into it, or use another workdir')
    if version != layout.FORMAT:
        raise FormatVersionError(path, version, layout.FORMAT)


def document_names(disk: Disk) -> list[str]:
    """Return the names of all documents, sorted. Other entries of their directory are ignored."""
    entries = disk.entries(layout.CONTEXT_MANAGEMENT)
    return sorted(name for entry in entries if (name := layout.document_in(entry)))


def read_document(disk: Disk, name: str) -> bytes:
    """Return the document called *name*.

    Raises:
        InvalidNameError: *name* cannot be one.
        NotFoundError: There is none; the error names those that are there.
    """
    path = layout.document_name(name)
    if disk.status(path) is None:
        known = ", ".join(document_names(disk))
        raise NotFoundError("context management document", name, f"there are {known}" if known else "")
    return disk.read(path)


def write_document(disk: Disk, name: str, content: bytes) -> None:
    """Store *content* as the document called *name*; durable on return, whole or not at all.

    Raises:
        InvalidNameError: *name* cannot be one.
    """
    path = layout.document_name(name)
    ensure_workspace(disk)
    disk.make_directory(layout.CONTEXT_MANAGEMENT)
    disk.replace(path, (content,))
