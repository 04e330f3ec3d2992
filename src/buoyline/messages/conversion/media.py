"""Payloads on their way from one dialect to another, and what stands where one has no place."""

import base64

from buoyline.messages.conversion.blocks import Medium, Said
from buoyline.messages.conversion.losses import Losses
from buoyline.messages.formats import is_text_type
from buoyline.messages.message import Base64


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


def text_of(medium: Medium) -> str | None:
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
