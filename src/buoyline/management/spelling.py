"""Documents as text: JSON, YAML, or TOML."""

import json
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from buoyline.errors import ConfigError, DocumentError

Spelling: TypeAlias = Literal["json", "yaml", "toml"]

_SUFFIXES: Final[dict[str, Spelling]] = {".json": "json", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml"}


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
