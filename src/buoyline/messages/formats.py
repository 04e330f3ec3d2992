"""Media types of the short format names that Bedrock's blocks carry, such as ``png`` or ``docx``."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_OFFICE = "application/vnd.openxmlformats-officedocument"
_DOCUMENTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "csv": "text/csv",
        "doc": "application/msword",
        "docx": f"{_OFFICE}.wordprocessingml.document",
        "html": "text/html",
        "json": "application/json",
        "md": "text/markdown",
        "pdf": "application/pdf",
        "txt": "text/plain",
        "xls": "application/vnd.ms-excel",
        "xlsx": f"{_OFFICE}.spreadsheetml.sheet",
        "xml": "application/xml",
    }
)
_IMAGES: Final = frozenset({"png", "jpeg", "jpg", "gif", "webp"})
_VIDEOS: Final = frozenset({"flv", "mkv", "mov", "mpeg", "mpg", "mp4", "three_gp", "webm", "wmv"})


def media_type_of(kind: str, format_name: str) -> str:
    """Return the media type of a *kind* of block in the format called *format_name*.

    >>> media_type_of("image", "png"), media_type_of("document", "md")
    ('image/png', 'text/markdown')

    Args:
        kind: ``"image"``, ``"audio"``, ``"video"`` or ``"document"``.
        format_name: As the block spells it; an unknown document is of type ``application/<format>``, as Strands says.

    Returns:
        Empty where there is no format.
    """
    if not format_name:
        return ""
    if kind == "document":
        return _DOCUMENTS.get(format_name, f"application/{format_name}")
    return f"{kind}/{format_name}"


def guessed_media_type(format_name: str) -> str:
    """Return the media type of a format where the kind of its block is not known; see `media_type_of`.

    >>> guessed_media_type("webp"), guessed_media_type("pdf"), guessed_media_type("wav")
    ('image/webp', 'application/pdf', 'audio/wav')
    """
    kinds = (("image", _IMAGES), ("document", _DOCUMENTS), ("video", _VIDEOS))
    return media_type_of(next((kind for kind, names in kinds if format_name in names), "audio"), format_name)
