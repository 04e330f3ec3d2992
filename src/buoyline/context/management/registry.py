"""Documents by name: those of a workspace, in ``context_management/``, and those of the package. All of it blocks."""

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, TypeAlias

from buoyline.context.management.model import ContextManagement, nearest
from buoyline.errors import ConfigError, DocumentError, NotFoundError
from buoyline.messages.jsonl import is_object
from buoyline.store.documents import document_names, read_document, write_document
from buoyline.store.workspace import Workspace

Management: TypeAlias = ContextManagement | Mapping[str, Any] | Path | str
"""A document, the JSON values of one or of a body that names one, a file, or a name."""

NAME_KEY: Final = "context_management_name"
"""In the body of a request that registers or executes an agent of OpenSearch: names its document."""

BUILT_IN: Final = ("long-conversations", "tool-heavy", "tool-heavy-with-summarization")
"""Documents of the package: the use cases of OpenSearch's page."""


def document_of(management: Management, workspace: Workspace | None = None) -> ContextManagement:
    """Return the document that *management* means.

    A text is a file if it ends in ``.json`` or has a slash, else a name. A document of the workspace goes before one of
    the package.

    Raises:
        ConfigError: *management* is nothing of that kind.
        NotFoundError: There is no document of that name.
        DocumentError: It cannot be read or acted on.
    """
    if isinstance(management, ContextManagement):
        return management
    if isinstance(management, Path) or (isinstance(management, str) and _is_path(management)):
        return _named(_in_file(Path(management)), str(management), workspace)
    if isinstance(management, str):
        return _by_name(management, workspace)
    if not is_object(management):
        raise ConfigError("management", f"{type(management).__name__} is no document, and no name or file of one")
    return _named(management, "document", workspace)


def names(workspace: Workspace | None = None) -> list[str]:
    """Return the names of all documents, sorted."""
    return sorted({*BUILT_IN, *([] if workspace is None else document_names(workspace.disk))})


def put(document: ContextManagement | Mapping[str, Any], workspace: Workspace, name: str) -> None:
    """Store a document, after all checks; an earlier one of the name is replaced as a whole.

    Raises:
        InvalidNameError: *name* cannot be one.
        DocumentError: It cannot be used; nothing was written.
    """
    if not isinstance(document, ContextManagement):
        document = ContextManagement.read(document, name=name, source=name)
    text = json.dumps({**document.to_json(), "name": name}, indent=2) + "\n"
    write_document(workspace.disk, name, text.encode())


def parsed(content: bytes, source: str) -> Any:
    """Return the value of *content*; *source* names it in errors.

    Raises:
        DocumentError: It is not JSON; the error says where.
    """
    try:
        return json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DocumentError(source, [("", f"not UTF-8: {error}")]) from error
    except (ValueError, RecursionError) as error:
        raise DocumentError(source, [("", f"not JSON: {error}")]) from error


def _named(raw: object, source: str, workspace: Workspace | None) -> ContextManagement:
    """Return a document, or the one that a body names at the top or in its ``parameters``."""
    within = raw.get("parameters") if is_object(raw) else None
    name = raw.get(NAME_KEY, within.get(NAME_KEY) if is_object(within) else None) if is_object(raw) else None
    if name is None:
        return ContextManagement.read(raw, source=source)
    if not isinstance(name, str):
        raise DocumentError("body", [(NAME_KEY, "must be the name of a document")])
    return _by_name(name, workspace)


def _by_name(name: str, workspace: Workspace | None) -> ContextManagement:
    if workspace is not None and name in document_names(workspace.disk):
        content = read_document(workspace.disk, name)
    elif name in BUILT_IN:
        content = (files("buoyline.context.management") / "documents" / f"{name}.json").read_bytes()
    else:
        raise NotFoundError("context management document", name, nearest(name, names(workspace)))
    return ContextManagement.read(parsed(content, name), name=name, source=name)


def _is_path(text: str) -> bool:
    return "/" in text or text.lower().endswith(".json")


def _in_file(path: Path) -> Any:
    try:
        return parsed(path.read_bytes(), str(path))
    except OSError as error:
        raise DocumentError(str(path), [("", f"cannot be read: {error.strerror}")]) from error
