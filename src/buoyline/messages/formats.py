"""Media types of the short format names that Bedrock's blocks carry, such as ``png`` or ``docx``."""

import base64
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from buoyline.messages.conversion.blocks import Losses, Medium, Said
from buoyline.messages.model import Base64

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
_DOCUMENT_BLOCKS: Final = frozenset({"pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"})
_TEXT_TYPES: Final = frozenset(
    f"application/{name}"
    for name in (
        *("csv", "graphql", "html", "javascript", "json", "md", "sql", "toml", "txt"),
        *("typescript", "x-ndjson", "x-yaml", "xml", "yaml"),
    )
)
_TEXT_SUFFIXES: Final = ("+json", "+xml", "+yaml")
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


def format_named(media_type: str) -> str:
    """Return the short name of a media type, as the blocks of Bedrock take it.

    >>> format_named("text/markdown"), format_named("image/png"), format_named("application/docx")
    ('md', 'png', 'docx')
    """
    essence = media_type.split(";", maxsplit=1)[0].strip().lower()
    known = next((name for name, kind in _DOCUMENTS.items() if kind == essence), None)
    return known or essence.rpartition("/")[2]


def is_document_format(name: str) -> bool:
    """Tell whether a document block may be of this format."""
    return name in _DOCUMENT_BLOCKS


def is_image_format(name: str) -> bool:
    """Tell whether an image block may be of this format."""
    return name in _IMAGES


def is_text_type(media_type: str) -> bool:
    """Tell whether content of this type is text, as far as the name of the type says."""
    essence = media_type.split(";", maxsplit=1)[0].strip().lower()
    return essence.startswith("text/") or essence in _TEXT_TYPES or essence.endswith(_TEXT_SUFFIXES)


# Payloads on their way from one dialect to another, and what stands where one has no place.


def bytes_of(medium: Medium) -> bytes | None:
    """Return the payload; None where there is none, or where it is no base64."""
    payload = medium.payload
    return Base64(payload).decoded() if isinstance(payload, str) else payload


def base64_of(medium: Medium) -> str:
    """Return the payload in base64, as it was spelled where it was; there must be one."""
    payload = medium.payload or b""
    return payload if isinstance(payload, str) else base64.b64encode(payload).decode("ascii")


def text_document(text: str, name: str) -> Medium:
    """Return a document of plain text."""
    return Medium("document", "text/plain", text.encode("utf-8", "surrogatepass"), name=name)


def document_text(medium: Medium) -> str | None:
    """Return what a document of text says; None for all else, and where it is no UTF-8."""
    if medium.kind != "document" or not is_text_type(medium.media_type):
        return None
    try:
        return (bytes_of(medium) or b"").decode("utf-8", "surrogatepass") or None
    except UnicodeDecodeError:
        return None


def shown(medium: Medium) -> str:
    """Say in a few words what *medium* is.

    >>> shown(Medium("image", "image/png", b"abc", name="chart.png"))
    'image chart.png, image/png, 3 bytes'
    """
    payload = medium.payload
    size_bytes = len(payload) if isinstance(payload, bytes) else len((payload or "").rstrip("=")) * 3 // 4
    size = f"{size_bytes:,} bytes" if payload else medium.url
    return ", ".join(filter(None, [f"{medium.kind} {medium.name}".strip(), medium.media_type, size]))


def left_out(medium: Medium, number: int, losses: Losses, why: str = "") -> Said:
    """Note that *medium* has no place, and return the text that stands there instead."""
    losses.note(number, shown(medium), why)
    return Said(f"[{shown(medium)}: not shown here]")


def foreign(kind: str, number: int, losses: Losses) -> Said:
    """Note a block of a *kind* that no other dialect has; return the text that stands instead."""
    losses.note(number, f"block of type {kind!r}")
    return Said(f"[a block of type {kind!r}: not shown here]")
