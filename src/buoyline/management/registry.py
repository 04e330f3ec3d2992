"""`Registry`: documents by name, those of a workspace and those that come with the package."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, TypeAlias

from buoyline.errors import ConfigError, DocumentError, NotFoundError
from buoyline.management.model import ContextManagement
from buoyline.management.rules import nearest
from buoyline.workspace import LocalWorkspace
from buoyline.workspace.root_files import ContextManagementFiles

# Documents as text: JSON, YAML, or TOML.


Spelling: TypeAlias = Literal["json", "yaml", "toml"]

_MOST_BYTES: Final = 64 * 1024 * 1024
_SUFFIXES: Final[dict[str, Spelling]] = {".json": "json", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml"}


def document_text(stream: BinaryIO, source: str) -> str:
    """Read the text of a document; a device that never ends is none.

    Raises:
        DocumentError: It cannot be read, is too large for a document, or is not UTF-8.
    """
    try:
        content = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise DocumentError(source, [("", f"cannot be read: {error.strerror}")]) from error
    if len(content) > _MOST_BYTES:
        raise DocumentError(source, [("", f"is larger than {_MOST_BYTES:,} bytes; no document is")])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentError(source, [("", f"not UTF-8: {error}")]) from error


def document_in_file(path: Path, spelling: Spelling | None = None) -> Any:
    """Return the value that the file at *path* spells.

    Raises:
        DocumentError: See `document_text` and `parsed`.
        ConfigError: See `parsed`.
    """
    try:
        stream = path.open("rb")
    except OSError as error:
        raise DocumentError(str(path), [("", f"cannot be read: {error.strerror}")]) from error
    with stream:
        text = document_text(stream, str(path))
    return parsed(text, spelling or spelling_of(path), str(path))


def spelling_of(path: Path) -> Spelling:
    """Return how the file at *path* is spelled, by its suffix; JSON where that says nothing."""
    return _SUFFIXES.get(path.suffix.lower(), "json")


def is_path(text: str) -> bool:
    """Return whether *text* means a file: it ends as one or has a slash, which no name of a document has."""
    return "/" in text or Path(text).suffix.lower() in _SUFFIXES


def parsed(text: str, spelling: Spelling = "json", source: str = "document") -> Any:
    """Return the value that *text* spells.

    Args:
        text: The document.
        spelling: How it is spelled.
        source: What to call it in errors.

    Raises:
        DocumentError: It is not spelled like that; the error says where.
        ConfigError: PyYAML is not installed.
    """
    if spelling == "yaml":
        return _yaml(text, source)
    try:
        return tomllib.loads(text) if spelling == "toml" else json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise DocumentError(source, [("", f"not {spelling.upper()}: {error}")]) from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; two hooks of one name would be one that is lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        message = f"the key {twice!r} stands twice in one object"
        raise ValueError(message)
    return found


def _yaml(text: str, source: str) -> Any:
    try:
        yaml: Any = import_module("yaml")
    except ImportError as error:
        raise ConfigError("yaml", "PyYAML is not installed: pip install 'buoyline[yaml]'") from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise DocumentError(source, [("", f"not YAML: {' '.join(str(error).split())}")]) from error


BUILT_IN: Final = (
    "long-conversations",
    "tool-heavy",
    "tool-heavy-with-summarization",
    "coding-agent",
    "research-agent",
    "chat",
    "small-local-model",
)
"""Documents that come with the package: the common cases of OpenSearch's page, then presets named after their use."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A document that a registry has.

    Attributes:
        name: Its name.
        is_built_in: It comes with the package.
        description: Its own; empty where it cannot be read.
        problem: Why it cannot be used; empty for a good one.
    """

    name: str
    is_built_in: bool
    description: str
    problem: str = ""


class Registry:
    """Finds documents by name. A document of the workspace counts more than a built-in one of the same name.

    Blocking. A document that was handed out goes on working when it is deleted or replaced.
    """

    def __init__(self, workspace: LocalWorkspace | None = None, *, allowed: Sequence[str] = ()) -> None:
        """Look into *workspace*; without one, there are only those that come with the package.

        Args:
            workspace: Where documents are kept; nothing is created before one is put there.
            allowed: Dotted names of managers that its documents may import; see `ContextManagement.read`.
        """
        self._documents = None if workspace is None else ContextManagementFiles(workspace.tree)
        self._allowed = allowed

    def get(self, name: str, *, strict: bool = True) -> ContextManagement:
        """Return the document called *name*.

        Raises:
            InvalidNameError: *name* cannot be a name.
            NotFoundError: There is none; the error names the nearest one.
            DocumentError: It stands there, but cannot be acted on.
        """
        if self._documents is not None and self._documents.has(name):
            content, source = self._documents.read(name), self._documents.path(name)
            try:
                raw = parsed(content.decode("utf-8"), source=source)
            except UnicodeDecodeError as error:
                raise DocumentError(source, [("", f"not UTF-8: {error}")]) from error
            return ContextManagement.read(raw, name=name, strict=strict, allowed=self._allowed, source=source)
        if name in BUILT_IN:
            return built_in(name)
        raise NotFoundError("context management document", name, nearest(name, self.names()))

    def put(
        self, raw: ContextManagement | Mapping[str, Any], name: str = "", *, replace: bool = True, strict: bool = True
    ) -> ContextManagement:
        """Keep a document, checked before anything is written. What was there before is replaced as a whole.

        Args:
            raw: The document.
            name: Left out: as it calls itself.
            replace: Also where there is one of this name in the workspace.
            strict: See `ContextManagement.read`.

        Returns:
            What is kept.

        Raises:
            InvalidNameError: The name cannot be one.
            ConfigError: *raw* is a text: the arguments are in the wrong order.
            DocumentError: It cannot be acted on, or there is one and it shall not be replaced; nothing was written.
            NotFoundError: The registry has no workspace.
            FormatVersionError: A newer buoyline wrote the workspace.
            StorageError: The file system refused; nothing was changed.
        """
        if isinstance(raw, str):
            raise ConfigError("raw", "put(document, name) takes the document first, not a text")
        if self._documents is None:
            raise NotFoundError("workspace", "", "give one to Registry to keep documents in it")
        if isinstance(raw, ContextManagement):
            document = raw.named(name or raw.name)
        else:
            document = ContextManagement.read(raw, name=name, strict=strict, allowed=self._allowed, source=name)
        text = json.dumps(document.to_json(), indent=2, ensure_ascii=False) + "\n"
        # Half a surrogate pair has no UTF-8, but an escape in JSON, which is Python's own.
        content = text.encode("utf-8", "backslashreplace")
        if not self._documents.write(document.name, content, replace=replace):
            raise DocumentError(document.name, [("name", f"{document.name!r} exists already; choose another one")])
        return document

    def delete(self, name: str) -> None:
        """Remove the document called *name* from the workspace; agents that have it go on with it.

        Raises:
            InvalidNameError: *name* cannot be a name.
            NotFoundError: The workspace has none; one that comes with the package cannot be removed.
            StorageError: The file system refused.
        """
        if self._documents is None or not self._documents.has(name):
            hint = "it comes with the package and cannot be deleted" if name in BUILT_IN else ""
            raise NotFoundError("context-management document in this workspace:", name, hint)
        self._documents.remove(name)

    def names(self) -> list[str]:
        """Return the names of all documents, sorted."""
        kept = [] if self._documents is None else self._documents.names()
        return sorted({*kept, *BUILT_IN})

    def listed(self) -> list[Listed]:
        """Return all documents in the order of their names, also those that cannot be read."""
        kept = set[str]() if self._documents is None else set(self._documents.names())
        found: list[Listed] = []
        for name in self.names():
            try:
                description, problem = self.get(name).description, ""
            except DocumentError as error:
                description, problem = "", str(error)
            found.append(Listed(name, name not in kept, description, problem))
        return found

    def resolve(self, management: ContextManagement | Mapping[str, Any] | str) -> ContextManagement:
        """Return *management*: a document, the JSON values of one, or a name.

        Raises:
            BuoylineError: See `get` and `ContextManagement.read`.
        """
        if isinstance(management, ContextManagement):
            return management
        if isinstance(management, str):
            return self.get(management)
        return ContextManagement.read(management, allowed=self._allowed)


def built_in(name: str) -> ContextManagement:
    """Return the document called *name* that comes with the package.

    Raises:
        NotFoundError: There is none.
    """
    if name not in BUILT_IN:
        raise NotFoundError("built-in document", name, nearest(name, BUILT_IN))
    text = (files("buoyline.management") / "documents" / f"{name}.json").read_text("utf-8")
    return ContextManagement.read(parsed(text), name=name, source=name)
