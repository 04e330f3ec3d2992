"""What `read` says of a picture, a document or another file that has no lines."""

import codecs

from buoyline.lookups.answer import DATA_LABEL, shown_path
from buoyline.offloader.dimensions import dimensions
from buoyline.workspace import layout
from buoyline.workspace._files import Tree

_SNIFFED_BYTES = 1 << 13

# How files begin, as their formats' specifications have it.
_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF87a", "GIF image"),
    (b"GIF89a", "GIF image"),
    (b"II*\x00", "TIFF image"),
    (b"MM\x00*", "TIFF image"),
    (b"%PDF-", "PDF document"),
    (b"PK\x03\x04", "ZIP archive, which many office documents are, too"),
    (b"\x1f\x8b\x08", "gzip archive"),
    (b"ID3", "MP3 audio"),
    (b"OggS", "Ogg audio"),
    (b"fLaC", "FLAC audio"),
    (b"\x1a\x45\xdf\xa3", "Matroska or WebM video"),
)
_TEXT_SUFFIXES = (".txt", ".md", ".log", ".json", ".jsonl", ".csv")
_CONTAINERS = {b"WEBP": "WebP image", b"WAVE": "WAV audio", b"AVI ": "AVI video"}


def description_of(tree: Tree, name: str) -> str | None:
    """Describe the file *name* by type, sides and size; None when it is text to be read.

    Files that begin as UTF-8 without NUL are text. Outside of ``data/`` so is whatever is called so, or is none of
    the known formats: a log with a few bad bytes is worth reading.
    """
    head = tree.read(name, 0, _SNIFFED_BYTES)
    is_payload = layout.digest_in(name) is not None
    if _is_text(head) or (not is_payload and name.endswith(_TEXT_SUFFIXES)):
        return None
    kind = _kind(head)
    if kind is None and not is_payload:
        return None
    sides = dimensions(head)
    shape = f"{sides.width}x{sides.height}, " if sides else ""
    about = f"[{shown_path(name)}: {kind or 'binary content'}, {shape}{tree.size(name) or 0:,} bytes. {DATA_LABEL}]\n"
    return f"{about}[It has no lines to read. grep finds text in it; its path is all that other tools need.]\n"


def _is_text(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return b"\0" not in head


def _kind(head: bytes) -> str | None:
    if head.startswith(b"RIFF"):
        return _CONTAINERS.get(head[8:12])
    if head[4:8] == b"ftyp":
        return "MP4 video or HEIF image"
    return next((kind for beginning, kind in _BEGINNINGS if head.startswith(beginning)), None)
