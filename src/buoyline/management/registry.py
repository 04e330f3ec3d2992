"""`Registry`: documents by name, those of a workspace and those of the package."""

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
_OF_CONVERTERS: Final = (ValueError, LookupError, AttributeError, TypeError, RecursionError)
"""Errors that PyYAML lets through: a date in month 13 is a ValueError."""
_SUFFIXES: Final[dict[str, Spelling]] = {".json": "json", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml"}


def document_text(stream: BinaryIO, source: str) -> str:
    """Read the text of a document, up to a limit, since a device may never end.

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
    """Return the value of the file at *path*.

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
    """Return the format of the file at *path* by its suffix; JSON for an unknown suffix."""
    return _SUFFIXES.get(path.suffix.lower(), "json")


def is_path(text: str) -> bool:
    """Return whether *text* is a file: it has a known suffix or a slash, which no name of a document has."""
    return "/" in text or Path(text).suffix.lower() in _SUFFIXES


def parsed(text: str, spelling: Spelling = "json", source: str = "document") -> Any:
    """Return the value of *text*; *source* names it in errors.

    Raises:
        DocumentError: It does not have this format; the error says where.
        ConfigError: PyYAML is not installed.
    """
    if spelling == "yaml":
        try:
            yaml: Any = import_module("yaml")
        except ImportError as error:
            raise ConfigError("yaml", "needs the extra 'yaml'") from error
        try:
            return _yaml_value(yaml, text)
        except (yaml.YAMLError, *_OF_CONVERTERS) as error:
            raise DocumentError(source, [("", f"not YAML: {' '.join(str(error).split())}")]) from error
    try:
        return tomllib.loads(text) if spelling == "toml" else json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise DocumentError(source, [("", f"not {spelling.upper()}: {error}")]) from error


def _yaml_value(yaml: Any, text: str) -> Any:
    """Return the value of *text*; a key that is there twice is an error, as in the other formats."""
    loader = yaml.SafeLoader(text)
    root: Any = loader.get_single_node()
    waiting, seen = [root], set[int]()  # an alias may occur anywhere, even within its own object
    while waiting:
        node = waiting.pop()
        if not isinstance(node, yaml.CollectionNode) or id(node) in seen:
            continue
        seen.add(id(node))
        if not isinstance(node, yaml.MappingNode):
            waiting += node.value
            continue
        names = set[str]()
        for key, value in node.value:
            if str(key.value) in names:
                problem = f"the key {key.value!r} is there twice in one object"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            names.add(str(key.value))
            waiting.append(value)
    return None if root is None else loader.construct_document(root)


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
    "coding-agent",
    "research-agent",
    "chat",
    "small-local-model",
)
"""Documents of the package: the common cases of OpenSearch's page, then presets named after their use."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A document in a registry; a valid one has no *problem*, and one that cannot be read has no description."""

    name: str
    is_built_in: bool
    description: str
    problem: str = ""


class Registry:
    """Finds documents by name. A document of the workspace overrides a built-in one of the same name.

    All methods block. A document in use keeps working after it is deleted or replaced.
    """

    def __init__(self, workspace: LocalWorkspace | None = None, *, allowed: Sequence[str] = ()) -> None:
        """Use *workspace*, in which nothing is created before a document is put there.

        Without one, there are only built-in documents. For *allowed* see `ContextManagement.read`.
        """
        self._documents = None if workspace is None else ContextManagementFiles(workspace.tree)
        self._allowed = allowed

    def get(self, name: str, *, strict: bool = True) -> ContextManagement:
        """Return the document *name*.

        Raises:
            InvalidNameError: *name* cannot be a name.
            NotFoundError: It does not exist; the error names the nearest one.
            DocumentError: It exists but cannot be used.
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
        """Store and return a document, after all checks. An earlier one of the name is replaced as a whole.

        The name is by default the document's own; for *strict* see `ContextManagement.read`.

        Raises:
            InvalidNameError: The name cannot be one.
            ConfigError: *raw* is a text: the arguments are in the wrong order.
            DocumentError: It cannot be used, or it exists and *replace* is false; nothing was written.
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
        # Half a surrogate pair has no UTF-8, but it has a JSON escape, which is Python's own.
        content = text.encode("utf-8", "backslashreplace")
        if not self._documents.write(document.name, content, replace=replace):
            raise DocumentError(document.name, [("name", f"{document.name!r} exists already; choose another one")])
        return document

    def delete(self, name: str) -> None:
        """Remove the document *name* from the workspace; agents that use it keep it.

        Raises:
            InvalidNameError: *name* cannot be a name.
            NotFoundError: The workspace does not have it; a built-in document cannot be removed.
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

    def resolve(self, management: ContextManagement | Mapping[str, Any] | str) -> ContextManagement:
        """Return *management*, which is a document, its JSON values, or its name.

        Raises:
            BuoylineError: See `get` and `ContextManagement.read`.
        """
        if isinstance(management, ContextManagement):
            return management
        if isinstance(management, str):
            return self.get(management)
        return ContextManagement.read(management, allowed=self._allowed)


def built_in(name: str) -> ContextManagement:
    """Return the document *name* of the package.

    Raises:
        NotFoundError: It does not exist.
    """
    if name not in BUILT_IN:
        raise NotFoundError("built-in document", name, nearest(name, BUILT_IN))
    text = (files("buoyline.management") / "documents" / f"{name}.json").read_text("utf-8")
    return ContextManagement.read(parsed(text), name=name, source=name)
