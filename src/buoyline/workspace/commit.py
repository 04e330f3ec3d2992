"""Commit lines to an append-only file, and set aside torn bytes after a crash.

The commit is a record in the journal whose hash matches the bytes in the file. Source: docs/format.md, "Commit
protocol".
"""

import hashlib
from collections.abc import Callable, Sequence

from buoyline.errors import StorageError
from buoyline.workspace import layout
from buoyline.workspace.journal import ByteRange, Record, encode
from buoyline.workspace.journal_tail import JournalTail
from buoyline.workspace.tree import OpenFile, Tree

_MAX_UNSYNCED_BYTES = 1 << 20


class _OpenFiles(dict[str, OpenFile]):
    """The files of one session by name. A file is opened when it is asked for, and created empty if it is missing.

    A missing journal is an error: an empty one would count as lost.
    """

    def __init__(self, tree: Tree, directory: str) -> None:
        super().__init__()
        self._tree = tree
        self._directory = directory

    def __missing__(self, name: str) -> OpenFile:
        path, create = f"{self._directory}/{name}", name != layout.JOURNAL_FILE
        self[name] = self._tree.open(path, write=True, create=create)
        return self[name]


class Appender:
    """The files of one session, opened for appending while the session's lock is held.

    Attributes:
        tree: Holds the session's directory open.
        files: Those that are open; any other is opened, and created if it is missing. A missing journal raises
            `StorageError`.
    """

    def __init__(self, tree: Tree, directory: str, tail: JournalTail) -> None:
        """Work in *directory* of *tree*; the caller holds the session's lock and closes this."""
        self.tree = tree
        self.files = _OpenFiles(tree, directory)
        self._directory = directory
        self._tail = tail

    def close(self) -> None:
        """Close the files."""
        try:
            while self.files:
                self.files.popitem()[1].close()
        finally:
            if self.files:
                self.close()

    def has(self, name: str) -> bool:
        """Return whether the session has a file *name*."""
        return name in self.files or self.tree.size(f"{self._directory}/{name}") is not None

    def commit(
        self, name: str, lines: Sequence[bytes], record: Callable[[ByteRange], Record], derived: bytes = b""
    ) -> None:
        """Append *lines* to file *name* and their record to the journal; durable on return.

        *derived* is for the transcript, which is written but not synced, since it can be rendered again.

        Raises:
            StorageError: The file system refused. All files were cut back to where they were.
        """
        content = b"".join(lines)
        file, journal = self.files[name], self.files[layout.JOURNAL_FILE]
        offset, record_offset = file.size(), journal.size()
        before = [(file, offset), (journal, record_offset)]
        synced = min(self._tail.synced_of(name), offset)
        try:
            file.append(content)
            # The device writes while we do the rest, so that two syncs wait less. Only the page in which the bytes
            # begin: for whole pages, Linux would wait for all processors.
            file.write_back(offset, 1)
            digest = hashlib.sha256(content).hexdigest()
            byte_range = ByteRange(offset, tuple(map(len, lines)), digest, synced, record_offset)
            made = {**record(byte_range), **self._tail.before()}
            encoded = encode(made)
            journal.append(encoded)
            journal.write_back(record_offset, 1)
            if derived:
                transcript = self.files[layout.TRANSCRIPT_FILE]
                before.append((transcript, transcript.size()))
                transcript.append(derived)
            self._tail.fold(made, encoded[:-1], record_offset, is_ours=True)
            self._tail.mark_checked()
            self._sync(name, layout.JOURNAL_FILE)
        except StorageError:
            # A failed sync has dropped the pages; a second one would report success for nothing.
            _cut_back(before)
            raise

    def note(self, record: Record, *, durable: bool = True) -> None:
        """Append one record to the journal; with *durable* off, the next commit makes it durable.

        Raises:
            StorageError: The file system refused. The journal was cut back to where it was.
        """
        made = {**record, **self._tail.before()}
        encoded = encode(made)
        journal = self.files[layout.JOURNAL_FILE]
        before = journal.size()
        try:
            journal.append(encoded)
            self._tail.fold(made, encoded[:-1], before, is_ours=True)
            if durable:
                self._sync(layout.JOURNAL_FILE)
        except StorageError:
            _cut_back([(journal, before)])
            raise

    def append_lines(self, name: str, content: bytes) -> int:
        """Append whole lines to a file that needs no record, after setting aside a torn last line; durable on return.

        Records that the lines may depend on, such as those of stubs, become durable with them.

        Returns:
            The size of the file before.

        Raises:
            StorageError: The file system refused. The file was cut back to where it was.
        """
        file = self.files[name]
        size = file.size()
        if size and file.read(size - 1, 1) != b"\n":
            size = file.read(0, size).rfind(b"\n") + 1
            self._set_aside(name, file, size)
            # These lines have no hashes: after a power cut, old bytes in place of new ones would go unnoticed.
            file.sync()
        try:
            file.append(content)
            self._sync(name, *((layout.JOURNAL_FILE,) if self._tail.has_unsynced_records else ()))
        except StorageError:
            _cut_back([(file, size)])
            raise
        return size

    def replace(self, name: str, content: bytes) -> None:
        """Replace the content of file *name*; durable on return.

        Raises:
            StorageError: The file system refused; the file is as it was.
        """
        self.tree.replace(f"{self._directory}/{name}", (content,))
        # The open file is the one that was replaced.
        if name in self.files:
            self.files.pop(name).close()

    def sync_earlier(self) -> None:
        """Sync what earlier calls wrote, if their writers may have been killed before the sync.

        The next record then says that these bytes are durable, and nobody has to hash them again.

        Raises:
            StorageError: The device refused.
        """
        if self._tail.has_unsynced_records:
            self._sync(layout.JOURNAL_FILE)

    def set_aside_behind(self, name: str, end: int) -> None:
        """Copy the bytes of file *name* from *end* on, if there are any, to ``torn/``, and cut them off.

        A damaged file that is shorter is filled with line ends. Otherwise new bytes would take the place of the lost
        ones, which could then not be restored from a copy.
        """
        file = self.files[name]
        size = file.size()
        if size > end:
            self._set_aside(name, file, end)
        elif size < end:
            file.append(b"\n" * (end - size))

    def set_holes_aside(self, name: str) -> None:
        """If file *name* has a hole, copy the bytes from it on to ``torn/``, and cut them off.

        For a file whose lines have no hashes. After a power cut, unsynced bytes are zeros, which JSON never has. Synced
        bytes have no hole, and no acknowledged line follows one.
        """
        file = self.files[name]
        hole = file.read(0, file.size()).find(b"\0")
        if hole >= 0:
            self._set_aside(name, file, file.read(0, hole).rfind(b"\n") + 1)
            file.sync()

    def _sync(self, *names: str) -> None:
        if layout.JOURNAL_FILE not in names:
            for name in names:
                self.files[name].sync()
            return
        # A durable record must not follow one whose bytes are not durable: it would look like damage.
        for name in dict.fromkeys((*self._tail.unsynced_files(), *names)):
            self.files[name].sync()
        # From time to time, so that the next process has little of the transcript to check.
        is_long = self._tail.transcript_end - self._tail.synced.transcript >= _MAX_UNSYNCED_BYTES
        if is_long:
            self.files[layout.TRANSCRIPT_FILE].sync()
        self._tail.mark_synced(transcript=is_long)

    def _set_aside(self, name: str, file: OpenFile, end: int) -> None:
        torn = file.read(end, file.size() - end)
        self.tree.make_directory(f"{self._directory}/{layout.TORN}")
        self.tree.sync_directory(self._directory)
        self.tree.publish(f"{self._directory}/{layout.torn_name(name, end, torn)}", (torn,))
        file.cut(end)


def _cut_back(files: Sequence[tuple[OpenFile, int]]) -> None:
    for handle, size in files:
        handle.cut(size)
