"""Bytes of a content type as a part of a tool result, and back. Pure."""

from typing import Final

from buoyline.messages import Media, Text, ToolResult

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


def payload_of(result: ToolResult) -> tuple[bytes, str]:
    """Return the bytes and the content type of a *result* that holds one such part."""
    (part,) = result.parts
    if isinstance(part, Media):
        return part.content() or b"", part.media_type
    return result.text.encode("utf-8", "surrogatepass"), PLAIN_TEXT
