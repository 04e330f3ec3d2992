"""Committing lines to an append-only file, and setting aside what a crash left.

A record in the journal whose hash matches the bytes in the file is the commit. Source: docs/format.md, "Commit
protocol".
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack

from buoyline.errors import StorageError
from buoyline.workspace import layout
from buoyline.workspace._files import Handle, Tree
from buoyline.workspace.journal import Extent, Record, encode
from buoyline.workspace.tip import Tip


class Appender:
    """The files of one session, opened for appending while the session's lock is held."""

    def __init__(self, tree: Tree, directory: str, tip: Tip, *, shares_sync: bool = False) -> None:
        """Work in *directory* of *tree*; the caller holds the session's lock and closes this.

        Args:
            tree: The workspace's files.
            directory: The session's.
            tip: What the journal says; every record that is written is folded into it.
            shares_sync: Leave syncing to `flush`, which then makes durable what several calls have written. Only
                then are these calls acknowledged.
        """
        self._tree = tree
        self._directory = directory
        self._tip = tip
        self._shares_sync = shares_sync
        self._stack = ExitStack()
        self._handles: dict[str, Handle] = {}
        self._flushed: dict[str, int] = {}
        self._dirty: set[str] = set()

    @property
    def is_dirty(self) -> bool:
        """Whether something was written that only `flush` makes durable."""
        return bool(self._dirty)

    def close(self) -> None:
        """Close the files."""
        self._handles.clear()
        self._stack.close()

    def file(self, name: str) -> Handle:
        """Return the session's file *name*, opened once and created empty if it is missing."""
        if name not in self._handles:
            opened = self._tree.open(f"{self._directory}/{name}", write=True, create=True)
            self._handles[name] = self._stack.enter_context(opened)
            self._flushed[name] = self._handles[name].size()
        return self._handles[name]

    def commit(
        self, name: str, lines: Sequence[bytes], record: Callable[[Extent], Record], derived: bytes = b""
    ) -> tuple[Record, int]:
        """Append *lines* to file *name* and the record of their extent to the journal; durable on return.

        Args:
            name: ``context.jsonl`` or ``summaries.jsonl``.
            lines: Whole lines, ends included.
            record: Makes the record from the extent.
            derived: Bytes for the transcript, which is written but not synced, since it can be rendered again.

        Returns:
            The record and its offset in the journal.

        Raises:
            StorageError: The file system refused. All files were cut back to where they were.
        """
        content = b"".join(lines)
        file, journal = self.file(name), self.file(layout.JOURNAL_FILE)
        offset, record_offset = file.size(), journal.size()
        before = [(file, offset), (journal, record_offset)]
        digest = hashlib.sha256(content).hexdigest()
        if not self._tree.is_durable:
            # Only the newest counts as perhaps lost, or every new process would have to hash the whole archive.
            self._tip.mark_synced()
        synced = min(self._tip.synced_of(name), offset)
        extent = Extent(offset, tuple(map(len, lines)), digest, synced, record_offset)
        made = {**record(extent), **self._tip.before()}
        encoded = encode(made)
        try:
            file.append(content)
            journal.append(encoded)
            if derived:
                transcript = self.file(layout.TRANSCRIPT_FILE)
                before.append((transcript, transcript.size()))
                transcript.append(derived)
            self._tip.fold(made, encoded[:-1], record_offset)
            self._settle(name, layout.JOURNAL_FILE)
        except StorageError:
            # A sync that failed has dropped the pages; syncing again would report success over nothing.
            _cut_back(before)
            raise
        return made, record_offset

    def note(self, record: Record, *, durable: bool = True) -> None:
        """Append one record to the journal; with *durable* off, the next commit makes it durable.

        Raises:
            StorageError: The file system refused. The journal was cut back to where it was.
        """
        encoded = encode({**record, **self._tip.before()})
        journal = self.file(layout.JOURNAL_FILE)
        before = journal.size()
        try:
            journal.append(encoded)
            self._tip.absorb(encoded)
            if durable:
                self._settle(layout.JOURNAL_FILE)
        except StorageError:
            _cut_back([(journal, before)])
            raise

    def take_back(self, end: int) -> None:
        """Cut the journal to *end*, for records whose effect failed; the caller then gives up its tip."""
        self.file(layout.JOURNAL_FILE).cut(end)

    def append_lines(self, name: str, lines: Sequence[bytes]) -> None:
        """Append *lines* to a file that needs no record, after a torn last line is set aside; durable.

        Raises:
            StorageError: The file system refused. The file was cut back to where it was.
        """
        file = self.file(name)
        size = file.size()
        if size and file.read(size - 1, 1) != b"\n":
            size = file.read(0, size).rfind(b"\n") + 1
            self._set_aside(name, file, size)
        try:
            file.append(b"".join(lines))
            self._settle(name)
        except StorageError:
            _cut_back([(file, size)])
            raise

    def sync(self, *names: str) -> None:
        """Make the named files durable, for a batch that was written but perhaps not synced.

        Raises:
            StorageError: The device refused.
        """
        self._settle(*names)

    def settle_committed(self) -> list[str]:
        """Make durable what the journal's records commit, whoever wrote them, and return the files that were synced.

        Raises:
            StorageError: The device refused.
        """
        unsynced = self._tip.unsynced_files()
        for name in unsynced:
            self.file(name).sync()
        if self._tree.is_durable:
            self._tip.mark_synced()
        return unsynced

    def flush(self) -> None:
        """Make everything durable that was written and not synced yet.

        Raises:
            StorageError: The device refused. All files were cut back to where they were at the last flush.
        """
        try:
            if self._dirty:
                self._sync(self._dirty)
        except StorageError:
            _cut_back([(self._handles[name], size) for name, size in self._flushed.items() if name in self._handles])
            raise
        finally:
            self._dirty.clear()
        self._flushed = {name: handle.size() for name, handle in self._handles.items()}

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

    def _settle(self, *names: str) -> None:
        if self._shares_sync:
            self._dirty.update(names)
        else:
            self._sync(names)

    def _sync(self, names: Iterable[str]) -> None:
        # A record that is durable must not follow one whose bytes are not: nobody could tell it from damage.
        settled = self.settle_committed() if layout.JOURNAL_FILE in names else []
        for name in names:
            if name not in settled:
                self.file(name).sync()

    def _set_aside(self, name: str, file: Handle, end: int) -> None:
        torn = file.read(end, file.size() - end)
        self._tree.make_directory(f"{self._directory}/{layout.TORN}")
        self._tree.publish(f"{self._directory}/{layout.torn_name(name, end, torn)}", (torn,))
        file.cut(end)
        self._flushed[name] = end


def _cut_back(files: Sequence[tuple[Handle, int]]) -> None:
    for handle, size in files:
        # What is shorter already must not grow: the end would be zeros.
        if handle.size() > size:
            handle.cut(size)
