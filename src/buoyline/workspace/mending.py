"""How repair puts a file into the place of another one: beside it, complete, and with the old one set aside."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from buoyline.errors import BuoylineError, CorruptError
from buoyline.workspace import layout
from buoyline.workspace._files import Tree

Verb: TypeAlias = Literal["mode", "restored", "rebuilt", "recovered", "set-aside", "failed"]


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that repair has done, or would.

    Attributes:
        verb: ``mode``: set the right one. ``restored``: from a copy, or another file with the same bytes. ``rebuilt``:
            derived again. ``recovered``: as the next writer would have. ``set-aside``: moved to a ``torn/``, since
            nobody has the true bytes. ``failed``: could not be done.
        path: Relative to the workspace.
        message: In words.
    """

    verb: Verb
    path: str
    message: str


class Mender:
    """Changes files of a workspace; in a dry run only says so.

    Attributes:
        tree: The workspace.
        copy: A copy of the workspace; None where there is none.
        is_dry_run: Nothing is changed.
        actions: What was done so far.
    """

    def __init__(self, tree: Tree, copy: Tree | None, *, is_dry_run: bool) -> None:
        """Change files in *tree*, with what *copy* has."""
        self.tree = tree
        self.copy = copy
        self.is_dry_run = is_dry_run
        self.actions: list[Action] = []

    def say(self, verb: Verb, path: str, message: str) -> None:
        """Note that something was done."""
        self.actions.append(Action(verb, path, message))

    def fail(self, path: str, error: BuoylineError) -> None:
        """Note that something could not be done."""
        self.say("failed", path, str(error))

    def put(self, path: str, chunks: Iterable[bytes], verb: Verb, message: str) -> None:
        """Put new content in the place of file *path*, which is set aside if it is there.

        Raises:
            StorageError: The file system refused; the old file is in its place.
        """
        if not self.is_dry_run:
            self._copy_aside(path)
            self.tree.replace(path, chunks)
        self.say(verb, path, message)

    def put_from(self, path: str, source: Tree, name: str, digest: str) -> bool:
        """Put file *name* of *source* in the place of file *path*; False if it has not the SHA-256 *digest*.

        Raises:
            StorageError: The file system refused; the old file is in its place.
        """
        if digest_of(source, name) != digest:
            return False
        whose = "a copy" if source is self.copy else name
        self.put(path, _verified(source, name, digest), "restored", f"from {whose}: its bytes have the recorded hash")
        return True

    def keep(self, path: str) -> None:
        """Set a copy of file *path* aside, which is about to be changed in its place.

        Raises:
            StorageError: The file system refused.
        """
        if not self.is_dry_run:
            self._copy_aside(path)

    def set_aside(self, path: str) -> None:
        """Move a damaged file away, so that whoever stores the true bytes finds the name free.

        Raises:
            StorageError: The file system refused; the file is in its place.
        """
        if not self.is_dry_run:
            self._copy_aside(path)
            self.tree.remove(path)
        self.say("set-aside", path, f"its bytes are damaged, and no other has them; it is in {layout.TORN}/ beside it")

    def _copy_aside(self, path: str) -> None:
        digest = digest_of(self.tree, path)
        if digest is not None:
            name = layout.set_aside_name(path, digest)
            self.tree.make_directory(name.rpartition("/")[0])
            self.tree.publish(name, self.tree.chunks(path))


def digest_of(tree: Tree, path: str) -> str | None:
    """Return the SHA-256 of file *path*; None where there is no such file.

    Raises:
        StorageError: It cannot be read.
    """
    if tree.size(path) is None:
        return None
    digest = hashlib.sha256()
    for chunk in tree.chunks(path):
        digest.update(chunk)
    return digest.hexdigest()


def _verified(tree: Tree, path: str, expected: str) -> Iterator[bytes]:
    digest = hashlib.sha256()
    for chunk in tree.chunks(path):
        digest.update(chunk)
        yield chunk
    if digest.hexdigest() != expected:
        raise CorruptError(tree.path(path), "has changed while it was copied; repeat the repair")
