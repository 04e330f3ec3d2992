r"""Text of any size in chunks that are long enough to mean something and short enough to be shown whole.

Chunks end where a text has its own joints: before a heading (of the transcript, too), behind a blank line, else
behind a line; inside a line only where that line is longer than a chunk. No line is looked at by itself: on 100 MB
of log lines that would take longer than all the rest.
"""

import codecs
from collections.abc import Iterable, Iterator
from typing import NamedTuple

MAX_CHUNK_CHARS = 800
"""About 200 tokens: ten of them in an answer of 2,000."""

# A record with a heading is a chunk of its own; a comment in code, which looks like one, seldom begins another.
_BEFORE_HEADING_CHARS = 100
_BEFORE_BLANK_CHARS = 400
_BREAK_WITHIN_CHARS = 80


class Chunk(NamedTuple):
    r"""A piece of a file.

    Attributes:
        number: The line that it begins in, 1-based.
        column: Of its first character in that line, 1-based; over 1 where it begins inside the line.
        text: Its characters, at most 800; lines end in ``\n``. Invalid UTF-8 stands as U+FFFD.
    """

    number: int
    column: int
    text: str

    @property
    def last(self) -> int:
        """The line that it ends in."""
        return self.number + self.text.count("\n", 0, -1)


def chunks_of(content: Iterable[bytes]) -> Iterator[Chunk]:
    """Yield a file in chunks that together are the whole of it, those without a visible character left out.

    They do not depend on the pieces of *content*, which are never held but for a few.
    """
    number, column = 1, 1
    for text in _texts(content):
        if text.strip():
            yield Chunk(number, column, text)
        lines = text.count("\n")
        number += lines
        column = len(text) - text.rfind("\n") if lines else column + len(text)


def _texts(content: Iterable[bytes]) -> Iterator[str]:
    held = ""
    for text in _decoded(content):
        held += text
        position = 0
        # One character more than a chunk has to be there, so that each is cut with the same knowledge.
        while len(held) - position > MAX_CHUNK_CHARS + 1:
            end = _end(held, position)
            yield held[position:end]
            position = end
        held = held[position:]
    position = 0
    while position < len(held):
        end = _end(held, position)
        yield held[position:end]
        position = end


def _end(text: str, start: int) -> int:
    """Return where the chunk ends that begins at *start*."""
    most = start + MAX_CHUNK_CHARS
    heading = text.find("\n#", start + _BEFORE_HEADING_CHARS, most + 1) + 1
    blank = text.find("\n\n", start + _BEFORE_BLANK_CHARS, most) + 2
    joints = [joint for joint, least in ((heading, 1), (blank, 2)) if joint >= least]
    if joints:
        return min(joints)
    if len(text) <= most:
        return len(text)
    line = text.rfind("\n", start, most) + 1
    return line or text.rfind(" ", most - _BREAK_WITHIN_CHARS, most) + 1 or most


def _decoded(content: Iterable[bytes]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for piece in content:
        yield decoder.decode(piece)
    yield decoder.decode(b"", final=True)
