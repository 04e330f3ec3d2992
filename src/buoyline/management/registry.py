"""Documents by name: those of a workspace, in ``context_management/``, and those of the package. All of it blocks."""

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, TypeAlias

from buoyline.errors import ConfigError, DocumentError, NotFoundError
from buoyline.management.model import ContextManagement, nearest
from buoyline.messages.jsonl import is_object
from buoyline.workspace.documents import document_names, read_document, write_document
from buoyline.workspace.workspace import Workspace

__all__ = ["Management", "document_of", "put"]

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
    source, raw = "document", management
    if isinstance(management, ContextManagement):
        return management
    if isinstance(management, str) and ("/" in management or management.lower().endswith(".json")):
        management = Path(management)
    if isinstance(management, Path):
        source, raw = str(management), _in_file(management)
    elif isinstance(management, str):
        return _by_name(management, workspace)
    elif not is_object(management):
        raise ConfigError("management", f"{type(management).__name__} is no document, and no name or file of one")
    bodies = [raw, raw.get("parameters")] if is_object(raw) else []
    found = (body.get(NAME_KEY) for body in bodies if is_object(body))
    name = next((one for one in found if one is not None), None)
    return ContextManagement.read(raw, source=source) if name is None else _by_name(str(name), workspace)


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


def _by_name(name: str, workspace: Workspace | None) -> ContextManagement:
    stored = [] if workspace is None else document_names(workspace.disk)
    if workspace is not None and name in stored:
        content = read_document(workspace.disk, name)
    elif name in BUILT_IN:
        content = (files("buoyline.management") / "documents" / f"{name}.json").read_bytes()
    else:
        raise NotFoundError("context management document", name, nearest(name, sorted({*BUILT_IN, *stored})))
    return ContextManagement.read(_parsed(content, name), name=name, source=name)


def _in_file(path: Path) -> Any:
    try:
        return _parsed(path.read_bytes(), str(path))
    except OSError as error:
        raise DocumentError(str(path), [("", f"cannot be read: {error.strerror}")]) from error


def _parsed(content: bytes, source: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DocumentError(source, [("", f"not JSON: {error}")]) from error
