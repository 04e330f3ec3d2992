"""`Log`: an append-only file of JSON objects, one a line, in which each line proves itself.

A line is the JSON of a value with one more key at its end, ``buoyline``: the line's number ``n``, its place ``at`` in a
batch ``of`` lines, facts, and the CRC-32 of all before it. A batch counts as a whole or not at all. Bytes after the
last whole batch are a torn tail; a bad line before one is damage. Source: docs/format.md.
"""

import json
import re
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from buoyline.errors import CorruptError
from buoyline.messages import spell
from buoyline.workspace.disk import Disk, OpenFile

_MARK = b',"buoyline":{'
_CRC = b',"crc":"%08x"}}\n'
_CRC_BYTES = len(_CRC % 0)
_ANY_CRC = re.compile(rb',"crc":"([0-9a-f]{8})"\}\}')
_LONE_SURROGATE = re.compile(r"\\\\|\\ud[89a-f][0-9a-f]{2}")
_PIECE_BYTES = 1 << 16
_SCANNED_BYTES = 1 << 20

Facts = dict[str, Any]


def encode(value: Mapping[str, Any], facts: Facts) -> bytes:
    """Return the line of *value* with *facts*; valid UTF-8, so a lone surrogate is written as U+FFFD.

    Raises:
        MessageError: *value* has no JSON form.
    """
    body = body_of(value) + _MARK + _spelled(facts)[1:-1]
    return body + _CRC % zlib.crc32(body)


def body_of(value: Mapping[str, Any]) -> bytes:
    """Return the part of a line that is *value*, which differs for each other value."""
    return _spelled(value)[:-1]


def _spelled(value: Mapping[str, Any]) -> bytes:
    text = spell(value)
    if "\\ud" in text:  # all other characters beyond ASCII are written as they are
        text = _LONE_SURROGATE.sub(lambda found: found[0] if found[0] == "\\\\" else "\ufffd", text)
    return text.encode("utf-8")


def facts_in(line: bytes) -> Facts | None:
    """Return the facts of a *line* with its end; None if it is not what was written."""
    body = line[:-_CRC_BYTES]
    mark = body.rfind(_MARK)
    if mark < 0 or line[-_CRC_BYTES:] != _CRC % zlib.crc32(body):
        return None
    found: Facts = json.loads(b"{" + body[mark + len(_MARK) :] + b"}")
    return found


def value_in(line: bytes) -> dict[str, Any]:
    """Return the value of a *line* that has facts."""
    found: dict[str, Any] = json.loads(line[: line.rfind(_MARK)] + b"}")
    return found


@dataclass(frozen=True)
class LogLine:
    """A whole line of a log."""

    offset: int
    raw: bytes = field(repr=False)
    facts: Facts

    @property
    def number(self) -> int:
        """Its number."""
        return int(self.facts["n"])

    @property
    def body(self) -> bytes:
        """The part that is the value; see `body_of`."""
        return self.raw[: self.raw.rfind(_MARK)]

    @cached_property
    def value(self) -> dict[str, Any]:
        """What was written."""
        return value_in(self.raw)


@dataclass(frozen=True)
class Damage:
    """Bytes of a log that are not what was written.

    Attributes:
        file: Its name, relative to the workdir.
        number: Of the first line that is missing there.
        count: How many are missing; 0 if nobody knows.
        is_torn: They are after the last whole batch, as a crash leaves them; the next writer sets them aside.
    """

    file: str
    offset: int
    size: int
    number: int
    count: int
    is_torn: bool = False


Read = Callable[[int, int], bytes]


@dataclass(frozen=True)
class Tail:
    """The end of a log.

    Attributes:
        end: Where its last whole batch ends.
        facts: Of the last line of that batch; empty if there is none.
        size: Of the file.
    """

    end: int
    facts: Facts
    size: int

    @property
    def count(self) -> int:
        """The number of the next line."""
        return int(self.facts["n"]) + 1 if self.facts else 0


def tail_of(read: Read, size: int, known: Tail | None = None) -> Tail:
    """Find the last whole batch of a log of *size* bytes; only after *known*, if that is given."""
    floor, length = known.end if known else 0, _PIECE_BYTES
    while True:
        start = max(size - length, floor)
        content = read(start, size - start)
        skipped = content.find(b"\n") + 1 if start > floor else 0
        lines = content[skipped:].split(b"\n")
        end = size - len(lines.pop())
        while lines:
            facts = facts_in(lines[-1] + b"\n")
            if facts and facts["at"] == facts["of"] - 1:
                if facts["of"] > len(lines) and start > floor:
                    break  # the batch begins before the piece
                if _is_whole([facts_in(line + b"\n") for line in lines[-facts["of"] :]], facts):
                    return Tail(end, facts, size)
            end -= len(lines.pop()) + 1
        if start == floor:
            return Tail(known.end, known.facts, size) if known else Tail(0, {}, size)
        length *= 4


def _is_whole(batch: Sequence[Facts | None], last: Facts) -> bool:
    first = last["n"] - last["at"]
    return len(batch) == last["of"] and all(
        facts is not None and facts["n"] == first + at and facts["at"] == at for at, facts in enumerate(batch)
    )


def has_lost_line_ends(content: bytes, number: int) -> bool:
    """Return whether *content*, after the last whole batch, begins with line *number* of one whose line ends are bad.

    A write that was torn never leaves that with more after it: a flipped bit does.
    """
    start = position = 0
    crc, batch = 0, list[Facts]()
    for found in _ANY_CRC.finditer(content):
        crc = zlib.crc32(content[position : found.start()], crc)
        position = found.start()
        if b"%08x" % crc != found[1]:
            continue
        facts = facts_in(content[start : found.end()] + b"\n")
        if facts is None or (facts["n"], facts["at"]) != (number + len(batch), len(batch)):
            return False
        batch.append(facts)
        start = position = found.end() + 1
        crc = 0
        if len(batch) == facts["of"]:
            return start < len(content)
    return False


class Log:
    """One of the three logs of a session.

    Attributes:
        tail: What this handle knows of its end.
        is_synced: All up to there is durable.
    """

    def __init__(self, disk: Disk, name: str) -> None:
        """Use the file *name*, which need not exist yet."""
        self._disk, self.name = disk, name
        self._inode = 0
        self.tail = Tail(0, {}, 0)
        self.is_synced = False

    @property
    def count(self) -> int:
        """The number of the next line."""
        return self.tail.count

    def knows(self, file: OpenFile) -> bool:
        """Return whether *file* is as this handle left it, all of it durable."""
        return self.is_synced and file.inode == self._inode and file.size == self.tail.end

    def is_replaced(self, file: OpenFile, tail: Tail) -> bool:
        """Return whether *file*, which ends in *tail*, is another one than this handle knows, or is shorter."""
        return self._inode not in {0, file.inode} or tail.end < self.tail.end

    def look(self, file: OpenFile) -> Tail:
        """Return the tail of *file* as it is now; `accept` takes it over."""
        is_grown = file.inode == self._inode and file.size >= self.tail.end
        return tail_of(file.read, file.size, self.tail if is_grown else None)

    def accept(self, file: OpenFile, tail: Tail, *, is_synced: bool) -> None:
        """Take *tail* of *file* over."""
        self._inode, self.tail, self.is_synced = file.inode, tail, is_synced

    def append(self, file: OpenFile, values: Sequence[Mapping[str, Any]], facts: Sequence[Facts]) -> list[LogLine]:
        """Append a batch in one write and one sync; return its lines.

        Raises:
            MessageError: A value has no JSON form; nothing was written.
            StorageError: The file system refused; the file was cut back.
        """
        first, of, offset = self.count, len(values), file.size
        lines: list[LogLine] = []
        for at, (value, more) in enumerate(zip(values, facts, strict=True)):
            written = {"n": first + at, "at": at, "of": of, **more}
            raw = encode(value, written)
            lines.append(LogLine(offset, raw, written))
            offset += len(raw)
        file.append(b"".join(line.raw for line in lines))
        self.tail = Tail(file.size, lines[-1].facts, file.size)
        return lines

    def lines(self, first: int = 0, end: int | None = None) -> Generator[LogLine]:
        """Yield the whole lines from number *first* up to *end*; a damaged one is left out."""
        last = self.count if end is None else min(end, self.count)
        if first >= last:
            return
        with self._disk.opened(self.name) as file:
            start = _offset_of(file.read, self.tail.end, first) if first else 0
            for line in _whole_lines(file.read, start, self.tail.end):
                if line.number >= last:
                    return
                if line.number >= first:
                    yield line

    def first_lines(self) -> Generator[LogLine]:
        """Yield the whole lines without a look at the end: what is there, acknowledged or not."""
        with self._disk.opened(self.name) as file:
            yield from _whole_lines(file.read, 0, file.size)

    def damage(self) -> list[Damage]:
        """Return all bytes of the file that are not what was written; reads all of it."""
        found: list[Damage] = []
        with self._disk.opened(self.name) as file:
            tail = tail_of(file.read, file.size)
            expected = bad = 0
            for offset, raw in _raw_lines(file.read, 0, tail.end):
                facts = facts_in(raw)
                if facts is None:
                    bad = bad or offset + 1
                elif bad or facts["n"] != expected:
                    start = bad - 1 if bad else offset
                    found.append(Damage(self.name, start, offset - start, expected, facts["n"] - expected))
                if facts is not None:
                    expected, bad = facts["n"] + 1, 0
            if tail.end < tail.size:
                is_torn = not has_lost_line_ends(file.read(tail.end, tail.size - tail.end), tail.count)
                found.append(Damage(self.name, tail.end, tail.size - tail.end, tail.count, 0, is_torn=is_torn))
        return found

    def corrupt(self, reason: str) -> CorruptError:
        """Return the error of this log for *reason*."""
        return CorruptError(self._disk.path(self.name), f"{reason}; run `buoyline verify`, then `buoyline repair`")


def _whole_lines(read: Read, start: int, end: int) -> Iterator[LogLine]:
    for offset, raw in _raw_lines(read, start, end):
        facts = facts_in(raw)
        if facts is not None:
            yield LogLine(offset, raw, facts)


def _raw_lines(read: Read, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that begin from *start* on, with their offsets. *start* is the beginning of a line."""
    pieces: list[bytes] = []
    offset = position = start
    size = _PIECE_BYTES
    while position < end and (chunk := read(position, min(size, end - position))):
        position += len(chunk)
        size = _SCANNED_BYTES
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            raw = b"".join((*pieces, line, b"\n"))
            yield offset, raw
            offset += len(raw)
            pieces.clear()
        if rest:
            pieces.append(rest)


def _offset_of(read: Read, end: int, number: int) -> int:
    """Return the offset of a line at or before that of line *number*, by halving."""
    low, high = 0, end
    while high - low > _PIECE_BYTES:
        middle = (low + high) // 2
        found = _line_behind(read, middle, end)
        if found is not None and found.offset < high and found.number <= number:
            low = found.offset
        else:
            high = middle + 1
    return low


def _line_behind(read: Read, offset: int, end: int) -> LogLine | None:
    """Return the first whole line that begins after *offset*."""
    while offset < end:
        content = read(offset, min(_PIECE_BYTES, end - offset))
        skipped = content.find(b"\n") + 1
        if skipped:
            return next(_whole_lines(read, offset + skipped, end), None)
        offset += len(content)
    return None
