"""`glob`: names of files in the workspace."""

import fnmatch
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from buoyline.errors import ConfigError
from buoyline.lookups.answer import DATA_LABEL, Answer, Budget, Counter, Spelling, as_arguments, shown_path
from buoyline.lookups.names import directory_of
from buoyline.lookups.paths import below
from buoyline.lookups.places import require_files
from buoyline.workspace import LocalWorkspace
from buoyline.workspace._files import Tree

MAX_PATTERN_CHARS = 1_000


def glob(
    workspace: LocalWorkspace,
    pattern: str,
    *,
    after: str = "",
    session: str | None = None,
    confined: bool = False,
    max_tokens: int = 2_000,
    counter: Counter | None = None,
    spelling: Spelling = as_arguments,
) -> Answer:
    """List files and directories whose path matches a pattern, with their sizes.

    Hidden names, links and pipes are left out. Blocking.

    Args:
        workspace: Where to look.
        pattern: Relative to the workdir or absolute below it, with ``*``, ``?`` and ``[...]`` within a name and
            ``**`` for any number of directories. A pattern without ``/`` matches names at any depth.
        after: Skip paths up to this one, as an earlier answer has spelled it.
        session: List only what is in this session's directory, to which *pattern* is then relative.
        confined: Accepted as by the other lookups; with *session* nothing else is listed anyway.
        max_tokens: For the whole text of the answer.
        counter: Counts them; the default counter where it is None.
        spelling: Says in the answer how to go on.

    Returns:
        Paths relative to the workdir in the order of names, each directory before what it holds.

    Raises:
        ConfigError: *workspace* is not on disk, *pattern* is empty, absolute or too long, or *max_tokens* is too few.
        NotFoundError: There is no such session.
        StorageError: A directory cannot be read.
    """
    require_files(workspace)
    wanted = pattern.removeprefix(f"{workspace.workdir}/")
    if not wanted or wanted.startswith("/") or len(pattern) > MAX_PATTERN_CHARS:
        raise ConfigError("pattern", f"must be relative to the workdir, of 1 to {MAX_PATTERN_CHARS:,} characters")
    del confined
    directory = "" if session is None else directory_of(workspace, session)
    entries = list(_entries(workspace.tree, directory, _within(directory, wanted)))
    left = [entry for entry in entries if entry.order > _order(after)] if after else entries
    page = _Page(len(entries), left, spelling)
    shown = Budget(max_tokens, counter).fill(left, page)
    following = page.following(shown)
    repeated = {"pattern": pattern, "session": session}
    return Answer(
        text=page.text(shown),
        paths=tuple(entry.path for entry in shown),
        total=len(entries),
        next={**repeated, **following} if following else {},
    )


def files_matching(
    workspace: LocalWorkspace, pattern: str, session: str | None, *, confined: bool = False
) -> list[str]:
    """Return the files that match *pattern* in the directory of *session*, or else, unless *confined*, in the workdir.

    Raises:
        NotFoundError: There is no such session.
    """
    own = [] if session is None else [directory_of(workspace, session)]
    if len(pattern) > MAX_PATTERN_CHARS:
        return []
    pattern = pattern.removeprefix(f"{workspace.workdir}/")
    for directory in own if confined else [*own, ""]:
        entries = _entries(workspace.tree, directory, _within(directory, pattern))
        if names := [entry.path for entry in entries if entry.size_bytes is not None]:
            return names
    return []


def _within(directory: str, pattern: str) -> str:
    """Return *pattern* relative to *directory*, also where it is spelled as the answers spell paths."""
    return pattern.removeprefix(f"{directory}/") if directory else pattern


@dataclass(frozen=True, slots=True)
class _Entry:
    """A file, or a directory, which has no size and a path that ends in ``/``."""

    path: str
    size_bytes: int | None = None
    content: str = ""

    @property
    def order(self) -> list[str]:
        return _order(self.path)

    def shortened(self, chars: int) -> Self:
        del chars  # half a path is none
        return self


def _order(path: str) -> list[str]:
    return path.rstrip("/").split("/")


def _entries(tree: Tree, directory: str, pattern: str) -> Iterator[_Entry]:
    parts = pattern.split("/") if "/" in pattern else ["**", pattern]
    outer = len(directory.split("/")) if directory else 0
    for name, is_directory in below(tree, directory):
        if _matches(name.split("/")[outer:], parts):
            yield _Entry(f"{name}/") if is_directory else _Entry(name, tree.size(name))


def _matches(names: Sequence[str], parts: Sequence[str]) -> bool:
    """Match in the product of both lengths: only the last ``**`` passed can still take in one name more."""
    name = part = 0
    retried: tuple[int, int] | None = None
    while name < len(names) or part < len(parts):
        if part < len(parts) and parts[part] == "**":
            retried = name, part
            part += 1
        elif part < len(parts) and name < len(names) and fnmatch.fnmatchcase(names[name], parts[part]):
            name, part = name + 1, part + 1
        elif retried is not None and retried[0] < len(names):
            retried = retried[0] + 1, retried[1]
            name, part = retried[0], retried[1] + 1
        else:
            return False
    return True


@dataclass(frozen=True, slots=True)
class _Page:
    """The text of an answer that lists some of the entries *left*, of *total*."""

    total: int
    left: Sequence[_Entry]
    spelling: Spelling

    def frame(self) -> str:
        longest = [max(self.left, key=lambda entry: len(entry.path))] if self.left else []
        return self._heading(self.left) + self._footer(longest)

    def row(self, entry: _Entry) -> str:
        size = "" if entry.size_bytes is None else f"  {entry.size_bytes:,} bytes"
        return f"{shown_path(entry.path)}{size}\n"

    def text(self, entries: Sequence[_Entry]) -> str:
        return self._heading(entries) + "".join(map(self.row, entries)) + self._footer(entries)

    def following(self, entries: Sequence[_Entry]) -> dict[str, Any]:
        """Return where to go on behind *entries*; empty when nothing is left."""
        return {"after": entries[-1].path} if entries and len(entries) < len(self.left) else {}

    def _heading(self, entries: Sequence[_Entry]) -> str:
        if not entries:
            return "[No further path matches.]\n" if self.total else "[No path matches.]\n"
        first = self.total - len(self.left) + 1
        return f"[Paths {first}-{first + len(entries) - 1} of {self.total}. {DATA_LABEL}]\n"

    def _footer(self, entries: Sequence[_Entry]) -> str:
        following = self.following(entries)
        return f"[Cut here. To go on, {self.spelling(following)}]\n" if following else ""
