"""Binary data: its type and its longest strings, nothing else."""

import re
from typing import Final

from buoyline.previews.rows import Kind, listed

_STRANGE: Final = re.compile(
    "[\x00-\x07\x0b\x0e-\x1a\x1c-\x1f\x7f-\x9f\ufffd\udc80-\udcff]|\\\\x[01][0-9a-f]|\\\\u00[89][0-9a-f]"
)
_STRING: Final = re.compile(r"[ -\[\]-~]{8,200}")
_SIGNATURES: Final = {
    "PNG": "PNG image",
    "GIF8": "GIF image",
    "JFIF": "JPEG image",
    "%PDF-": "PDF document",
    "PK": "ZIP archive",
    "ELF": "ELF program",
    "SQLite": "SQLite database",
}
_HEAD_CHARS = 64_000
_LEAST_SHARE = 0.1


def read_binary(text: str) -> Kind | None:
    """Return two rows about binary data; None for a text."""
    head = text[:_HEAD_CHARS]
    strange = len(_STRANGE.findall(head))
    if not strange or strange < _LEAST_SHARE * (len(head) - 3 * head.count("\\x")):
        return None
    kind = next((name for sign, name in _SIGNATURES.items() if sign in head[:40]), "of unknown type")
    strings = {found.strip()[:60] for found in _STRING.findall(head) if re.search("[a-z]{4}", found)}
    longest = [f'"{string}"' for string in sorted(strings, key=lambda string: (-len(string), string))[:5]]
    return Kind([f"Binary data: {kind}", *listed("Longest strings", longest, most=1)], is_whole=True)
