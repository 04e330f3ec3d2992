"""What stands in a context for a picture, a document or another medium that has left it.

Pure; it counts no tokens, so that whoever keeps files may know it, too.
"""

import re

from buoyline.offloader.lines import escaped
from buoyline.offloader.protocol import StoredPart

_FORMAT = re.compile(r"[a-z0-9][a-z0-9.+-]{0,39}")
_MAX_NAME_CHARS = 80


def placeholder_for(part: StoredPart) -> str:
    """Write the line that stands in place of a medium: kind, format, name, size, dimensions or pages, and its file.

    What a tool gave as type or name may be anything; the line stays one line all the same.
    Source: Strands' context offloader, which documents how these lines begin.

    >>> placeholder_for(
    ...     StoredPart("image", 12_345, media_type="image/png", reference="/w/data/a.png", width=8, height=6)
    ... )
    '[image: png, 12,345 bytes, 8x6, /w/data/a.png]'
    """
    facts = [_format_of(part.media_type), _shortened(part.name), f"{part.size_bytes:,} bytes"]
    if part.width and part.height:
        facts.append(f"{part.width}x{part.height}")
    if part.pages:
        facts.append("1 page" if part.pages == 1 else f"{part.pages:,} pages")
    return f"[{_shortened(part.kind)}: {', '.join(fact for fact in (*facts, part.reference) if fact)}]"


def is_placeholder(text: str) -> bool:
    """Tell a placeholder from a stub; asked only of texts that are recorded as one of them."""
    return text.startswith("[") and text.endswith("]") and "\n" not in text


def _format_of(media_type: str) -> str:
    subtype = media_type.split(";", maxsplit=1)[0].strip().lower().rpartition("/")[2]
    return subtype if _FORMAT.fullmatch(subtype) else "unknown format"


def _shortened(name: str) -> str:
    shown = escaped(" ".join(name[: 4 * _MAX_NAME_CHARS].split())).replace("[", "(").replace("]", ")")
    return shown if len(shown) <= _MAX_NAME_CHARS else f"{shown[:_MAX_NAME_CHARS]}..."
