"""A place in a journal that somebody follows: what is new behind it, and whether what was before it still stands.

Under a writer's hands a journal grows, is cut back after a failed commit, or is replaced. A follower therefore
keeps the ends of the lines that it has passed with the bytes before them, the checksum among these, and looks
for them again. Source: docs/format.md, "Commit protocol".
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from buoyline.workspace._files import Handle
from buoyline.workspace.journal import Record, decode, lines_of, tail_of

# A failed commit takes back one record or two; more are kept for journals that people restore from a copy.
_MARKS = 64
_PIECE_BYTES = 1 << 20
_LONGEST_LINE_BYTES = 1 << 26
"""64 MiB, the record of some millions of messages; a longer line is none of ours and is passed in pieces."""
_END_BYTES = 1 << 16


class Entry(NamedTuple):
    """A line of the journal.

    Attributes:
        offset: Where it begins.
        end: Where the next one begins.
        mark: Its last bytes.
        record: What it says; None when it is damaged.
    """

    offset: int
    end: int
    mark: bytes
    record: Record | None


class Cursor:
    """A place in a journal: behind the lines that were passed."""

    def __init__(self, passed: Sequence[Entry] = (), offset: int = 0) -> None:
        """Stand behind *passed*; where that is empty, at *offset*."""
        marks = [(entry.end, entry.mark) for entry in passed] or [(offset, b"")]
        self._marks = deque(marks, maxlen=_MARKS)

    def find(self, journal: Handle) -> bool:
        """Go back to the last line passed that is still there.

        Returns:
            False when none of those that are remembered is: it is another journal, and the place its beginning.
        """
        while self._marks:
            end, mark = self._marks[-1]
            if end <= journal.size() and journal.read(end - len(mark), len(mark)) == mark:
                return True
            self._marks.pop()
        self._marks.append((0, b""))
        return False

    def ahead(self, journal: Handle) -> tuple[list[Entry], bool]:
        """Return lines behind the place, and whether the journal goes on behind them.

        Damaged lines at the journal's very end are left out: the next writer sets them aside. Some 1 MiB is read
        at once, however much there is.
        """
        place, size_bytes = self._marks[-1][0], _PIECE_BYTES
        content = journal.read(place, size_bytes)
        # A second line is wanted because the last one read is left for the next time: whether it is also the
        # journal's last one is not known.
        while content.count(b"\n") < 2 and size_bytes == len(content) < _LONGEST_LINE_BYTES:  # noqa: PLR2004
            size_bytes *= 4
            content = journal.read(place, size_bytes)
        found = list(_entries(content, place))
        if len(content) < size_bytes:
            return _up_to_last_record(found), False
        return found[:-1] or found or [Entry(place, place + len(content), tail_of(content)[:-1], None)], True

    def advance(self, entry: Entry) -> None:
        """Go behind *entry*."""
        self._marks.append((entry.end, entry.mark))


def last_entries(journal: Handle, is_enough: Callable[[Sequence[Entry]], bool]) -> list[Entry]:
    """Return lines at the journal's end up to its last record, at least so many that *is_enough* says so.

    All there are where it never does, or those of the last 64 MiB. Little is read of a long journal.
    """
    size, size_bytes = journal.size(), _END_BYTES
    while True:
        begin = max(size - size_bytes, 0)
        content = journal.read(begin, size - begin)
        start = content.find(b"\n") + 1 if begin else 0
        found = _up_to_last_record(list(_entries(content[start:], begin + start)))
        if not begin or size_bytes >= _LONGEST_LINE_BYTES or is_enough(found):
            return found
        size_bytes *= 4


def _entries(content: bytes, place: int) -> Iterator[Entry]:
    for offset, line in lines_of(content, place):
        yield Entry(offset, offset + len(line) + 1, tail_of(line), decode(line))


def _up_to_last_record(entries: list[Entry]) -> list[Entry]:
    while entries and entries[-1].record is None:
        entries.pop()
    return entries
