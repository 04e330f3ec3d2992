"""Sizes of images and page counts of PDFs, read from untrusted bytes.

Pure. Nothing is decoded; no input raises or loops, and the scan of each format is bounded.
Source: the PNG, GIF89a, JPEG (ITU T.81, B.1.1.3) and WebP container specifications; ISO 32000, 7.7.3.
"""

import re
from typing import Literal, NamedTuple

# Cameras write a preview and a color profile before the frame, about 64 KiB a segment.
_SCANNED_JPEG_BYTES = 1 << 20
_SCANNED_PDF_BYTES = 1 << 23

_PNG = b"\x89PNG\r\n\x1a\n"
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_BARE = frozenset({0x01, *range(0xD0, 0xD9)})
_PAGE = re.compile(rb"/Type\s{0,8}/Page(?![A-Za-z])")
_COUNT = re.compile(rb"/Count\s{1,8}(\d{1,9})(?!\d)")


class Dimensions(NamedTuple):
    """Width and height in pixels, both above 0."""

    width: int
    height: int


def dimensions(content: bytes) -> Dimensions | None:
    """Return the size of a PNG, JPEG, GIF or WebP image, by its bytes and not by its declared type.

    None for any other content, and for a header that is cut off or has no size.
    """
    if content.startswith(_PNG) and content[12:16] == b"IHDR":
        found = _sides(content[16:20], content[20:24], "big")
    elif content[:6] in {b"GIF87a", b"GIF89a"}:
        found = _sides(content[6:8], content[8:10], "little")
    elif content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        found = _of_webp(content)
    elif content[:2] == b"\xff\xd8":
        found = _of_jpeg(content[:_SCANNED_JPEG_BYTES])
    else:
        return None
    return found if found is not None and min(found) > 0 else None


def pages(content: bytes) -> int | None:
    """Return the number of pages of a PDF, or None if that is not certain.

    Many files compress their page tree, and an edited file keeps deleted pages. So the number counts only if the file
    contains as many pages as its tree says.
    """
    if not content.startswith(b"%PDF-") or len(content) > _SCANNED_PDF_BYTES:
        return None
    counts = [int(match[1]) for match in _COUNT.finditer(content)]
    found = sum(1 for _ in _PAGE.finditer(content))
    return found if found and max(counts, default=0) == found else None


def _sides(width: bytes, height: bytes, order: Literal["big", "little"]) -> Dimensions | None:
    if not height:
        return None
    return Dimensions(int.from_bytes(width, order), int.from_bytes(height, order))


def _of_webp(content: bytes) -> Dimensions | None:
    kind, body = content[12:16], content[20:30]
    if len(body) < 10:  # noqa: PLR2004 - what the longest of the three headers takes
        return None
    if kind == b"VP8X":
        return Dimensions(int.from_bytes(body[4:7], "little") + 1, int.from_bytes(body[7:10], "little") + 1)
    if kind == b"VP8L" and body[0] == 0x2F:  # noqa: PLR2004 - its signature
        packed = int.from_bytes(body[1:5], "little")
        return Dimensions((packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1)
    if kind == b"VP8 " and body[3:6] == b"\x9d\x01\x2a":
        packed = int.from_bytes(body[6:10], "little")
        return Dimensions(packed & 0x3FFF, packed >> 16 & 0x3FFF)
    return None


def _of_jpeg(content: bytes) -> Dimensions | None:
    position = 2
    # Each step advances by at least two bytes, so the loop ends.
    while position + 9 <= len(content) and content[position] == 0xFF:  # noqa: PLR2004 - begins a marker
        marker = content[position + 1]
        if marker in _FRAMES:
            return _sides(content[position + 7 : position + 9], content[position + 5 : position + 7], "big")
        if marker == 0xFF:  # noqa: PLR2004 - a fill byte
            position += 1
        elif marker in _BARE:
            position += 2
        else:
            position += 2 + max(int.from_bytes(content[position + 2 : position + 4], "big"), 2)
    return None
