"""Committing lines to an append-only file, and setting aside what a crash left.

A record in the journal whose hash matches the bytes in the file is the commit. Source: docs/format.md, "Commit
protocol".
"""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from buoyline.errors import StorageError
from buoyline.workspace import layout
from buoyline.workspace._files import Handle, Tree
from buoyline.workspace.journal import Extent, Index, Record, encode


class Appender:
    """The files of one session, opened for appending while the session's lock is held."""

    def __init__(self, tree: Tree, directory: str) -> None:
        """Work in *directory* of *tree*; the caller holds the session's lock and closes this."""
        self._tree = tree
        self._directory = directory
        self._stack = ExitStack()
        self._handles: dict[str, Handle] = {}

    def close(self) -> None:
        """Close the files."""
        self._handles.clear()
        self._stack.close()

    def file(self, name: str) -> Handle:
        """Return the session's file *name*, opened once and created empty if it is missing."""
        if name not in self._handles:
            opened = self._tree.open(f"{self._directory}/{name}", write=True, create=True)
            self._handles[name] = self._stack.enter_context(opened)
        return self._handles[name]

    def commit(
        self,
        name: str,
        lines: Sequence[bytes],
        index: Index,
        record: Callable[[Extent], Record],
        derived: bytes = b"",
    ) -> None:
        """Append *lines* to file *name* and the record of their extent to the journal; durable on return.

        Args:
            name: ``context.jsonl`` or ``summaries.jsonl``.
            lines: Whole lines, ends included.
            index: What the journal says; the new record is folded into it.
            record: Makes the record from the extent.
            derived: Bytes for the transcript, which is written but not synced, since it can be rendered again.

        Raises:
            StorageError: The file system refused. All files were cut back to where they were.
        """
        content = b"".join(lines)
        file, journal = self.file(name), self.file(layout.JOURNAL_FILE)
        before = [(handle, handle.size()) for handle in (file, journal)]
        offset = before[0][1]
        digest = hashlib.sha256(content).hexdigest()
        extent = Extent(offset, tuple(map(len, lines)), digest, offset, before[1][1])
        encoded = encode(record(extent))
        try:
            file.append(content)
            journal.append(encoded)
            if derived:
                transcript = self.file(layout.TRANSCRIPT_FILE)
                before.append((transcript, transcript.size()))
                transcript.append(derived)
            file.sync()
            journal.sync()
        except StorageError:
            # A sync that failed has dropped the pages; syncing again would report success over nothing.
            _cut_back(before)
            raise
        index.absorb(encoded)

    def note(self, record: Record, index: Index, *, durable: bool = True) -> None:
        """Append one record to the journal; with *durable* off, the next commit makes it durable."""
        encoded = encode(record)
        journal = self.file(layout.JOURNAL_FILE)
        before = journal.size()
        try:
            journal.append(encoded)
            if durable:
                journal.sync()
        except StorageError:
            _cut_back([(journal, before)])
            raise
        index.absorb(encoded)

    def take_back(self, end: int) -> None:
        """Cut the journal to *end*, for records whose effect failed; the caller then gives up its index."""
        self.file(layout.JOURNAL_FILE).cut(end)

    def append_lines(self, name: str, lines: Sequence[bytes]) -> None:
        """Append *lines* to a file that needs no record, after a torn last line is set aside; durable."""
        file = self.file(name)
        size = file.size()
        if size and file.read(size - 1, 1) != b"\n":
            size = file.read(0, size).rfind(b"\n") + 1
            self._set_aside(name, file, size)
        try:
            file.append(b"".join(lines))
            file.sync()
        except StorageError:
            _cut_back([(file, size)])
            raise

    def sync(self, *names: str) -> None:
        """Make the named files durable, for a batch that was written but perhaps not synced."""
        for name in names:
            self.file(name).sync()

    def set_aside_behind(self, name: str, end: int) -> None:
        """Copy what stands behind byte *end* of file *name*, if anything, to ``torn/`` and cut it off."""
        file = self.file(name)
        if file.size() > end:
            self._set_aside(name, file, end)
            file.sync()

    def cut_transcript(self, end: int) -> None:
        """Cut the transcript to *end*; nothing is set aside, since it is derived."""
        self.file(layout.TRANSCRIPT_FILE).cut(end)

    def extend_transcript(self, content: bytes) -> None:
        """Append rendered bytes to the transcript, unsynced."""
        self.file(layout.TRANSCRIPT_FILE).append(content)

    def _set_aside(self, name: str, file: Handle, end: int) -> None:
        torn = file.read(end, file.size() - end)
        self._tree.make_directory(f"{self._directory}/{layout.TORN}")
        self._tree.publish(f"{self._directory}/{layout.torn_name(name, end, torn)}", (torn,))
        file.cut(end)


def _cut_back(files: Sequence[tuple[Handle, int]]) -> None:
    for handle, size in files:
        handle.cut(size)
