"""Media types and the short format names of Bedrock's blocks, such as ``png``; payloads as base64 and text."""

import base64
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from buoyline.messages.model import Base64, Media

_OFFICE = "application/vnd.openxmlformats-officedocument"
_DOCUMENTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "csv": "text/csv",
        "doc": "application/msword",
        "docx": f"{_OFFICE}.wordprocessingml.document",
        "html": "text/html",
        "json": "application/json",
        "md": "text/markdown",
        "mp3": "audio/mpeg",
        "pdf": "application/pdf",
        "txt": "text/plain",
        "xls": "application/vnd.ms-excel",
        "xlsx": f"{_OFFICE}.spreadsheetml.sheet",
        "xml": "application/xml",
    }
)
KNOWN_FORMATS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "image": frozenset({"png", "jpeg", "gif", "webp"}),
        "document": frozenset(_DOCUMENTS.keys() - {"json", "mp3", "xml"}),
        "video": frozenset({"flv", "mkv", "mov", "mpeg", "mpg", "mp4", "three_gp", "webm", "wmv"}),
        "audio": frozenset({"mp3", "opus", "wav", "aac", "flac", "ogg", "mka", "m4a", "pcm"}),
    }
)
"""The formats that Bedrock takes in each kind of block."""

_TEXT_NAMES: Final = frozenset(
    {
        *("csv", "graphql", "html", "javascript", "json", "md", "sql", "toml", "txt"),
        *("typescript", "x-ndjson", "x-yaml", "xml", "yaml"),
    }
)
"""The types of text whose names begin with ``application/``."""


def media_type_of(kind: str, format_name: str) -> str:
    """Return the media type of a *kind* of block in the format called *format_name*.

    >>> media_type_of("image", "png"), media_type_of("document", "md")
    ('image/png', 'text/markdown')

    An unknown document is of type ``application/<format>``, as in Strands. The type is empty if *format_name* is.
    """
    if not format_name:
        return ""
    if kind == "document":
        return _DOCUMENTS.get(format_name, f"application/{format_name}")
    return f"{kind}/{format_name}"


def guessed_media_type(format_name: str) -> str:
    """Return the media type of a format in a block of unknown kind; see `media_type_of`.

    >>> guessed_media_type("webp"), guessed_media_type("pdf"), guessed_media_type("wav")
    ('image/webp', 'application/pdf', 'audio/wav')
    """
    known = {**KNOWN_FORMATS, "document": _DOCUMENTS}
    return media_type_of(next((kind for kind, names in known.items() if format_name in names), "audio"), format_name)


def format_named(media_type: str) -> str:
    """Return the short name of a media type, as Bedrock's blocks take it.

    >>> format_named("text/markdown"), format_named("image/png"), format_named("application/docx")
    ('md', 'png', 'docx')
    """
    essence = media_type.split(";", maxsplit=1)[0].strip().lower()
    known = next((name for name, kind in _DOCUMENTS.items() if kind == essence), None)
    return known or essence.rpartition("/")[2]


def is_text_type(media_type: str) -> bool:
    """Return whether content of this type is text, judged by the name of the type."""
    essence = media_type.split(";", maxsplit=1)[0].strip().lower()
    family, _, name = essence.partition("/")
    is_named = family == "application" and name in _TEXT_NAMES
    return is_named or family == "text" or name.endswith(("+json", "+xml", "+yaml"))


def base64_of(media: Media) -> str:
    """Return the payload in base64, spelled as the message spelled it; empty without a payload."""
    payload = media.payload or b""
    return payload.text[payload.start :] if isinstance(payload, Base64) else base64.b64encode(payload).decode("ascii")


def document_text(media: Media) -> str | None:
    """Return the text of a text document; None for other media, for a blank one, and if it is not UTF-8."""
    if media.kind != "document" or not is_text_type(media.media_type):
        return None
    try:
        text = (media.content() or b"").decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    return text if text.strip() else None
