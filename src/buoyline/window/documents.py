"""Finding the document that a window is told to be managed by."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from buoyline.compression import ContextConfig
from buoyline.errors import ConfigError, DocumentError
from buoyline.management import ContextManagement, Registry, management_in
from buoyline.management.bodies import is_body
from buoyline.management.spelling import document_in_file, is_path
from buoyline.messages import is_object
from buoyline.workspace import LocalWorkspace

Management: TypeAlias = ContextManagement | Mapping[str, Any] | Path | str
"""A document, the JSON values of one or of a body that names one, a file, or a name."""


def document_of(management: Management, offloader: object, *, allowed: Sequence[str] = ()) -> ContextManagement:
    """Return the document that *management* means. Blocking.

    A text is a file where it ends as one or has a slash, which no name has; else a name, which is looked for in the
    workspace first, and then among those that come with the package.

    Args:
        management: See `Management`.
        offloader: Has the documents of its own where it is a `LocalWorkspace`; otherwise there are only the package's.
        allowed: Dotted names of managers that may be imported; see `ContextManagement.read`.

    Raises:
        ConfigError: *management* is nothing of that kind.
        NotFoundError: There is no document of that name.
        DocumentError: It cannot be read or acted on, or names none.
        BuoylineError: See `Registry.get`.
    """
    registry = Registry(offloader if isinstance(offloader, LocalWorkspace) else None, allowed=allowed)
    if isinstance(management, Path) or (isinstance(management, str) and is_path(management)):
        return _meant(document_in_file(Path(management)), registry, allowed, str(management))
    if not isinstance(management, ContextManagement | str) and not is_object(management):
        raise ConfigError("management", f"{type(management).__name__} is no document, and no name or file of one")
    if isinstance(management, ContextManagement | str):
        return registry.resolve(management)
    return _meant(management, registry, allowed, "document")


def own_document_of(management: Management, offloader: object, config: ContextConfig) -> ContextManagement:
    """Return the document of a window with *config*; see `document_of`.

    Raises:
        ConfigError: *config* says when to compress in the background, and the document when to compress.
        BuoylineError: See `document_of`.
    """
    if config.background_ratio is not None:
        raise ConfigError("background_ratio", "a document says when to compress; leave one of them out")
    return document_of(management, offloader)


def _meant(raw: object, registry: Registry, allowed: Sequence[str], source: str) -> ContextManagement:
    """Return the document that *raw* is, or that a body in its place asks for."""
    if not is_object(raw) or not is_body(raw):
        return ContextManagement.read(raw, allowed=allowed, source=source)
    found = management_in(raw, registry.get)
    if found is None:
        raise DocumentError(source, [("context_management_name", "names no document")])
    return found
