"""Where the journal has the records that are asked for by name. Pure: bytes in, offsets out.

Only the first bytes of a line are looked at, which takes a tenth of the time that reading the records does; the one
that is found is read and checked then.
"""

import re

from buoyline.messages import spell
from buoyline.workspace.journal import Read, Record, chunks_of_lines, record_at

_TEXT = rb'("(?:[^"\\]|\\.)*")'
_KEYS = re.compile(
    rb'\{"op":"(?:(batch)","id":' + _TEXT + rb'|(result)","call_id":"(?:[^"\\]|\\.)*","path":' + _TEXT + rb'|(stub)",'
    rb'"sha256":' + _TEXT + rb")"
)
"""The beginning of the records that have a name, as `buoyline.workspace` spells them."""


class Catalogue:
    """Offsets of batches by their ids, of tool results by their files, of stubs by their digests.

    Nothing is read before something is looked for; then every line once.
    """

    def __init__(self, read: Read) -> None:
        """Look into the journal that *read* reads."""
        self._read = read
        self.clear()

    def clear(self) -> None:
        """Give up what is known, since the journal may have become another."""
        self._offsets: dict[bytes, int] = {}
        self._end = 0

    def find(self, op: str, name: str, end: int) -> tuple[int, Record] | None:
        """Return the newest record of kind *op* for *name* among the first *end* bytes, with its offset."""
        for position, content in chunks_of_lines(self._read, self._end, end):
            self._note(content, position)
            self._end = position + len(content)
        offset = self._offsets.get(op.encode() + spell(name).encode("utf-8"))
        record = None if offset is None else record_at(self._read, offset)
        return None if offset is None or record is None else (offset, record)

    def _note(self, content: bytes, start: int) -> None:
        position = 0
        while (line_end := content.find(b"\n", position)) >= 0:
            key = _KEYS.match(content, position, line_end)
            if key is not None and key.lastindex:
                group = key.lastindex
                self._offsets[key[group - 1] + key[group]] = start + position
            position = line_end + 1
