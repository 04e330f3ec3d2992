"""The changes that gc and repair make to a workspace. They read it through `ReadableWorkspace`."""

import secrets
from collections.abc import Generator, Iterable
from contextlib import contextmanager

from buoyline.workspace import layout
from buoyline.workspace.local_tree import LocalTree
from buoyline.workspace.session import Session
from buoyline.workspace.stored_session import StoredSession


class Upkeep:
    """The part of a workspace that only gc and repair use.

    A store without locks and renames would have leases in the place of the locks, and a mark on a hidden session.
    """

    def __init__(self, tree: LocalTree) -> None:
        """Change files in *tree*."""
        self._tree = tree

    @contextmanager
    def blobs_locked(self, timeout_s: float, *, shared: bool = False) -> Generator[None]:
        """Let nobody store or remove blobs during the block; with *shared*, others may store them.

        Raises:
            LockTimeout: Others stored blobs for *timeout_s* seconds.
        """
        self._tree.make_directory(layout.LOCKS)  # a copy may lack it: nothing in it is needed again
        with self._tree.lock(layout.GC_LOCK, timeout_s, shared=shared):
            yield

    @contextmanager
    def session_locked(self, session_id: str, timeout_s: float) -> Generator[None]:
        """Let nobody write to the session during the block.

        Raises:
            LockTimeout: A writer held it for *timeout_s* seconds.
        """
        self._tree.make_directory(layout.LOCKS)
        with self._tree.lock(layout.lock_name(session_id), timeout_s):
            yield

    @contextmanager
    def recovered(self, session_id: str, timeout_s: float) -> Generator[StoredSession]:
        """Let the recovery of the next writer run, and hold the session's lock during the block.

        Raises:
            LockTimeout: A writer held the session for *timeout_s* seconds.
            CorruptError: The directory belongs to another session.
        """
        session = Session(self._tree, session_id, lock_timeout_s=timeout_s)
        with session.writing():
            yield session

    def hide(self, directory: str) -> str:
        """Give a session's *directory* a name that no reader looks for, durably; return it.

        The index of words is removed, since it holds those of the session: before, so that no crash keeps it, and
        after, since a search in between makes it again.
        """
        hidden = layout.removed_name(secrets.token_hex(8))
        self._tree.remove(layout.SEARCH)
        self._tree.rename(directory, hidden)
        self._tree.remove(layout.SEARCH)
        return hidden

    def show(self, hidden: str, directory: str) -> None:
        """Give a *hidden* session its *directory* back."""
        self._tree.rename(hidden, directory)

    def remove(self, name: str) -> None:
        """Remove a file, or a directory with all that is in it; do nothing if it does not exist."""
        self._tree.remove(name)

    def sync_blobs(self) -> None:
        """Make the removal of blobs durable."""
        self._tree.sync_directory(layout.DATA)

    def replace(self, name: str, chunks: Iterable[bytes]) -> None:
        """Replace the content of a file, all of it or none, durably."""
        self._tree.replace(name, chunks)

    def set_aside(self, name: str, digest: str) -> None:
        """Copy the file *name*, whose SHA-256 is *digest*, to the ``torn/`` beside it."""
        aside = layout.set_aside_name(name, digest)
        self._tree.make_directory(aside.rpartition("/")[0])
        self._tree.publish(aside, self._tree.chunks(name))

    def set_mode(self, name: str) -> None:
        """Give a file mode 0600, or a directory 0700; every link is refused."""
        self._tree.set_mode(name)
