"""What Strands' context offloader puts around content that it hands to a unified storage, taken off and put back.

Pure. Source: ``_frame_content`` of `strands.vended_plugins.context_offloader.plugin`: two bytes with the length of the
content type, big-endian, the content type in UTF-8, the content.
"""

import re
from typing import Final, NamedTuple

_LENGTH_BYTES: Final = 2
_CONTENT_TYPE = re.compile(rb"[A-Za-z0-9!#$&^_.+-]{1,120}/[A-Za-z0-9!#$&^_.+-]{1,120}")


class Framed(NamedTuple):
    """Content without its frame.

    Attributes:
        content_type: What the frame says; empty where there was none.
        content: What was in it; all of the bytes where there was none.
    """

    content_type: str
    content: bytes


def framed(content: bytes, content_type: str) -> bytes:
    """Return *content* in the frame of the context offloader."""
    spelled = content_type.encode("utf-8")
    return len(spelled).to_bytes(_LENGTH_BYTES, "big") + spelled + content


def unframed(data: bytes) -> Framed:
    r"""Take the frame off *data*; what has none is content of no type.

    >>> unframed(b"\x00\x0atext/plainhi")
    Framed(content_type='text/plain', content=b'hi')
    """
    end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "big")
    content_type = data[_LENGTH_BYTES:end]
    if len(data) < end or _CONTENT_TYPE.fullmatch(content_type) is None:
        return Framed("", data)
    return Framed(content_type.decode("ascii"), data[end:])
