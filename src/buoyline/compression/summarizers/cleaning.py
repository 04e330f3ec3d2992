"""Take out of an answer what would pass for words of buoyline in the context.

Pure. A model repeats what it reads, and a tool can make it read anything: the frame of a summary, the notice of a
stub or the heading of a field must come from us alone.
"""

import re
from typing import Final

from buoyline.compression.claims import MARK

_FENCES = re.compile(r"</?(?:conversation|previous-summary)(?:-[0-9a-f]{0,12})?>")
_CHAT_MARKS = re.compile(r"<\|[A-Za-z0-9_]{1,40}\|>|</?(?:system-reminder|persisted-output)>")
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
_OUR_FRAME = re.compile(r"^\s{0,9}\[(?:Summary of messages|Tool result offloaded|offloaded)\b[^\n]*$\n?", re.MULTILINE)
_TRUNCATED = "<<<TRUNCATED>>>"
_HEADING = re.compile(r"^(\s{0,3})#{1,6}[ \t]+")
_CODE_FENCE = re.compile(r"^\s{0,3}(?:```|~~~)")

DEMOTED: Final = "- "
"""Takes the place of a heading's signs: the fields stand under headings of the template, and under no others."""


def cleaned(text: str) -> str:
    """Return *text* of one field without marks, frames, notices and headings of ours; clean text as it is.

    Lines in a block of code keep their signs: there, ``#`` begins a comment.
    """
    plain = _INVISIBLE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    for pattern in (_FENCES, _CHAT_MARKS, _OUR_FRAME):
        plain = _gone(pattern, plain)
    plain = plain.replace(MARK, "").replace(_TRUNCATED, "")
    lines: list[str] = []
    in_code = False
    for line in plain.split("\n"):
        in_code ^= bool(_CODE_FENCE.match(line))
        lines.append(line if in_code else _HEADING.sub(rf"\1{DEMOTED}", line))
    return "\n".join(lines).strip()


def _gone(pattern: re.Pattern[str], text: str) -> str:
    """Take out every match, also those that arise when what stood between two halves is gone; a few times at most."""
    for _ in range(5):
        text, count = pattern.subn("", text)
        if not count:
            break
    return text
