"""Where the journal has the records that are asked for by name. Pure: bytes in, offsets out.

Only the first bytes of a line are looked at, which takes a tenth of the time that reading the records does; the one
that is found is read and checked then. A long journal is not even gone through line by line before several names were
asked for: to look for one name in its bytes takes another tenth.
"""

import re
from itertools import islice

from buoyline.messages import spell
from buoyline.workspace.journal import Read, Record, chunks_of_lines, record_at

_TEXT = rb'"(?:[^"\\]|\\.)*"'
_KEYS = re.compile(
    rb'\{"op":"(?:batch","id":(?P<batch>'
    + _TEXT
    + rb')|result","call_id":(?P<call>'
    + _TEXT
    + rb'),"path":(?P<result>'
    + _TEXT
    + rb')|stub","sha256":(?P<stub>'
    + _TEXT
    + rb"))"
)
"""The beginning of the records that have a name, as `buoyline.workspace` spells them."""

_FIELDS = {"batch": b"id", "result": b"path", "call": b"call_id", "stub": b"sha256"}
"""What the name of each kind is called in its records: a result is found by its file, and by its call."""


class Catalogue:
    """Offsets of batches by their ids, of tool results by their files and calls, of stubs by their digests.

    Nothing is read before something is looked for. With each question as much of the journal is noted as was before,
    and a piece more, and the rest is searched for the one name. So who asks once in a process, as most do, waits 20 ms
    for 100,000 batches, where noting them all takes 140; and all questions together take twice that at most.
    """

    def __init__(self, read: Read) -> None:
        """Look into the journal that *read* reads."""
        self._read = read
        self.clear()

    def clear(self) -> None:
        """Give up what is known, since the journal may have become another."""
        self._offsets: dict[bytes, int] = {}
        self._end = 0
        self._pieces = 0

    def find(self, op: str, name: str, end: int) -> tuple[int, Record] | None:
        """Return the newest record of kind *op* for *name* among the first *end* bytes, with its offset.

        A ``"call"`` is a result that is looked for by its call id.
        """
        for position, content in islice(chunks_of_lines(self._read, self._end, end), self._pieces + 1):
            self._note(content, position)
        return self._searched(op, name, self._end, end) or self._noted(op, name)

    def _note(self, content: bytes, start: int) -> None:
        position = 0
        while (line_end := content.find(b"\n", position)) >= 0:
            for key in _keys(content, position, line_end):
                self._offsets[key] = start + position
            position = line_end + 1
        self._end = start + position
        self._pieces += 1

    def _noted(self, op: str, name: str) -> tuple[int, Record] | None:
        offset = self._offsets.get(op.encode() + _spelled(name))
        if offset is None:
            return None
        record = record_at(self._read, offset)
        # Behind a damaged one, which is passed over everywhere, there may be one that is whole.
        return self._searched(op, name, 0, self._end) if record is None else (offset, record)

    def _searched(self, op: str, name: str, start: int, end: int) -> tuple[int, Record] | None:
        spelled, found = _spelled(name), None
        # Within a text of JSON a backslash stands before every quotation mark, so this is a field of some object.
        needle = b'"%s":%s' % (_FIELDS[op], spelled)
        for position, content in chunks_of_lines(self._read, start, end):
            line = len(content)
            # From the end: that is faster by a third, since few bytes are as the needle's first.
            while (place := content.rfind(needle, 0, line)) >= 0:
                line = content.rfind(b"\n", 0, place) + 1
                is_named = op.encode() + spelled in _keys(content, line, len(content))
                record = record_at(self._read, position + line) if is_named else None
                if record is not None:
                    found = position + line, record
                    break
        return found


def _keys(content: bytes, start: int, end: int) -> list[bytes]:
    """Return kind and name of the record that begins at *start*, a result's twice; none where it has no name."""
    found = _KEYS.match(content, start, end)
    named = found.groupdict() if found is not None else {}
    return [kind.encode() + name for kind, name in named.items() if name is not None]


def _spelled(name: str) -> bytes:
    return spell(name).encode("utf-8")
