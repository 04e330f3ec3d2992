"""`Registry`: documents by name, those of a workspace and those of the package."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from buoyline.errors import DocumentError, NotFoundError
from buoyline.management.model import ContextManagement
from buoyline.management.rules import nearest
from buoyline.messages.jsonl import is_object
from buoyline.workspace import LocalWorkspace
from buoyline.workspace.root_files import ContextManagementFiles

NAME_KEY: Final = "context_management_name"
"""In the body of a request that registers or executes an agent of OpenSearch: names its document."""


def document_in_file(path: Path) -> Any:
    """Return the value of the file at *path*.

    Raises:
        DocumentError: It cannot be read, or is not JSON.
    """
    if path.exists() and not path.is_file():  # a device may never end
        raise DocumentError(str(path), [("", "is not a regular file")])
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DocumentError(str(path), [("", f"cannot be read: {error.strerror}")]) from error
    return parsed(content, str(path))


def is_path(text: str) -> bool:
    """Return whether *text* is a file: it ends as one or has a slash, which no name of a document has."""
    return "/" in text or text.lower().endswith(".json")


def parsed(content: bytes, source: str) -> Any:
    """Return the value of *content*; *source* names it in errors.

    Raises:
        DocumentError: It is not JSON; the error says where.
    """
    try:
        return json.loads(content.decode("utf-8-sig"), object_pairs_hook=_once)
    except UnicodeDecodeError as error:
        raise DocumentError(source, [("", f"not UTF-8: {error}")]) from error
    except (ValueError, RecursionError) as error:
        raise DocumentError(source, [("", f"not JSON: {error}")]) from error


def named_in(body: object) -> str | None:
    """Return the name of the document that *body* asks for, of an agent's registration or execution.

    Source: OpenSearch's page has the name at the top level of both; its code reads it within ``parameters`` of an
    execution. Here both are read.

    Raises:
        DocumentError: It is no name.
    """
    if not is_object(body):
        return None
    within = body.get("parameters")
    name = body.get(NAME_KEY, within.get(NAME_KEY) if is_object(within) else None)
    if name is not None and not isinstance(name, str):
        raise DocumentError("body", [(NAME_KEY, "must be the name of a document")])
    return name


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; of two hooks with one name, one would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        message = f"the key {twice!r} is there twice in one object"
        raise ValueError(message)
    return found


BUILT_IN: Final = (
    "long-conversations",
    "tool-heavy",
    "tool-heavy-with-summarization",
)
"""Documents of the package: the use cases of OpenSearch's page."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A document in a registry; a valid one has no *problem*, and one that cannot be read has no description."""

    name: str
    is_built_in: bool
    description: str
    problem: str = ""


class Registry:
    """Finds documents by name. A document of the workspace overrides a built-in one of the same name.

    All methods block. A document in use keeps working after it is replaced.
    """

    def __init__(self, workspace: LocalWorkspace | None = None) -> None:
        """Use *workspace*, in which nothing is created before a document is put there.

        Without one, there are only built-in documents.
        """
        self._documents = None if workspace is None else ContextManagementFiles(workspace.tree)

    def get(self, name: str) -> ContextManagement:
        """Return the document *name*.

        Raises:
            InvalidNameError: *name* cannot be a name.
            NotFoundError: It does not exist; the error names the nearest one.
            DocumentError: It exists but cannot be used.
        """
        if self._documents is not None and self._documents.has(name):
            source = self._documents.path(name)
            return ContextManagement.read(parsed(self._documents.read(name), source), name=name, source=source)
        if name in BUILT_IN:
            return built_in(name)
        raise NotFoundError("context management document", name, nearest(name, self.names()))

    def put(self, raw: ContextManagement | Mapping[str, Any], name: str = "") -> ContextManagement:
        """Store and return a document, after all checks. An earlier one of the name is replaced as a whole.

        The name is by default the document's own.

        Raises:
            InvalidNameError: The name cannot be one.
            DocumentError: It cannot be used; nothing was written.
            NotFoundError: The registry has no workspace.
            FormatVersionError: A newer buoyline wrote the workspace.
            StorageError: The file system refused; nothing was changed.
        """
        if self._documents is None:
            raise NotFoundError("workspace", "", "give one to Registry to keep documents in it")
        if isinstance(raw, ContextManagement):
            document = raw.named(name or raw.name)
        else:
            document = ContextManagement.read(raw, name=name, source=name)
        text = json.dumps(document.to_json(), indent=2, ensure_ascii=False) + "\n"
        # Half a surrogate pair has no UTF-8, but it has a JSON escape, which is Python's own.
        self._documents.write(document.name, text.encode("utf-8", "backslashreplace"))
        return document

    def names(self) -> list[str]:
        """Return the names of all documents, sorted."""
        kept = [] if self._documents is None else self._documents.names()
        return sorted({*kept, *BUILT_IN})

    def listed(self) -> list[Listed]:
        """Return all documents in the order of their names, even unreadable ones."""
        kept = set[str]() if self._documents is None else set(self._documents.names())
        found: list[Listed] = []
        for name in self.names():
            try:
                description, problem = self.get(name).description, ""
            except DocumentError as error:
                description, problem = "", str(error)
            found.append(Listed(name, name not in kept, description, problem))
        return found


def built_in(name: str) -> ContextManagement:
    """Return the document *name* of the package.

    Raises:
        NotFoundError: It does not exist.
    """
    if name not in BUILT_IN:
        raise NotFoundError("built-in document", name, nearest(name, BUILT_IN))
    content = (files("buoyline.management") / "documents" / f"{name}.json").read_bytes()
    return ContextManagement.read(parsed(content, name), name=name, source=name)
