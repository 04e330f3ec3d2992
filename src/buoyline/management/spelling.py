"""Documents as text: JSON, YAML, or TOML."""

import json
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, TypeAlias

from buoyline.errors import ConfigError, DocumentError

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
