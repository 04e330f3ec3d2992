"""Bytes of a content type as a part of a tool result, and back. Pure."""

from typing import Final

from buoyline.messages import Json, Media, Text, ToolResult
from buoyline.workspace import layout

PLAIN_TEXT: Final = "text/plain"
_KINDS: Final = frozenset({"audio", "image", "video"})


def part_of(content: bytes, content_type: str) -> Text | Media:
    """Return the part that *content* is stored as: plain text as text, all else as a payload of its type."""
    if content_type == PLAIN_TEXT:
        try:
            return Text(content.decode("utf-8"))
        except UnicodeDecodeError:
            pass
    kind = content_type.partition("/")[0]
    return Media(kind if kind in _KINDS else "document", content_type, len(content), payload=content or None)


def payload_of(result: ToolResult, blob: str = "") -> tuple[bytes, str]:
    """Return the bytes and the content type of a stored *result*, or of the medium in it whose file is *blob*.

    A result of several blocks is its text; of one that is all JSON, the JSON.

    Raises:
        KeyError: No part of *result* is in *blob*.
    """
    if blob:
        for part in result.parts:
            content = part.content() if isinstance(part, Media) else None
            if isinstance(part, Media) and content and layout.blob_name(content, part.media_type) == blob:
                return content, part.media_type
        raise KeyError(blob)
    match result.parts:
        case (Media() as part,):
            return part.content() or b"", part.media_type
        case (Json() as part,):
            return part.json.encode("utf-8", "surrogatepass"), "application/json"
        case _:
            return result.text.encode("utf-8", "surrogatepass"), PLAIN_TEXT
