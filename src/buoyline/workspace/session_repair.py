"""One session, mended under its lock: first what only a copy can give, then what can be derived again."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

from buoyline.errors import BuoylineError, CorruptError, FormatVersionError, MessageError
from buoyline.messages import parse
from buoyline.messages.times import now
from buoyline.offloader.source import decoded
from buoyline.offloader.transcript import blank_lines
from buoyline.offloader.view import view_of
from buoyline.workspace import layout
from buoyline.workspace._files import Tree
from buoyline.workspace.archived import messages_of, rendered, transcript_bytes
from buoyline.workspace.index import Index
from buoyline.workspace.journal import Batch, Extent, Record
from buoyline.workspace.mending import Mender, digest_of
from buoyline.workspace.restoring import (
    better_journal,
    better_window,
    held_extents,
    index_of,
    is_foldable,
    lost_extents,
    with_adopted,
    with_extents,
)
from buoyline.workspace.session import Session, is_directory_of
from buoyline.workspace.verification import Finding

Sources = Callable[[str], Sequence[str]]
"""Returns the workspace-relative names of files that are recorded to have the bytes of a SHA-256."""

_RECOVERED = frozenset(
    {"torn-tail", "torn-transcript", "unfinished-batch", "bad-last-record", "bad-record", "stale-transcript"}
)
"""What the next writer does something about, or would if it looked."""

_UNREMARKABLE = frozenset({"torn-tail", "torn-transcript", "stale-view", "orphan-view", "unrecorded-result"})
"""What concerns no transcript, or leaves in it what any crash does."""


class SessionRepair:
    """Mends one session."""

    def __init__(
        self, mender: Mender, directory: str, findings: Sequence[Finding], sources: Sources, *, lock_timeout_s: float
    ) -> None:
        """Mend what *findings* say of the session in *directory*."""
        self._mender = mender
        self._tree = mender.tree
        self._directory = directory
        self._kinds = {(found.path.removeprefix(f"{directory}/"), found.kind) for found in findings}
        self._sources = sources
        self._lock_timeout_s = lock_timeout_s
        self._journal: bytes | None = None
        self._has_restored = False

    def run(self) -> None:
        """Do all that can be done; what fails is noted, and the rest goes on.

        Raises:
            BuoylineError: Nobody knows whose session it is, or it cannot be locked.
        """
        session_id = self._session_id()
        with self._locked(session_id):
            self._restore_owner()
            before = len(self._mender.actions)
            for step in (self._restore_journal, self._restore_archive, self._restore_window, self._restore_results):
                self._attempt(step)
            self._has_restored = len(self._mender.actions) > before
        self._attempt(lambda: self._derive(session_id))

    def _attempt(self, step: Callable[[], None]) -> None:
        try:
            step()
        except BuoylineError as error:
            self._mender.fail(self._directory, error)

    def _locked(self, session_id: str) -> AbstractContextManager[object]:
        if self._mender.is_dry_run:
            return nullcontext()
        # A copy may come without it: nothing in it is needed again.
        self._tree.make_directory(layout.LOCKS)
        return self._tree.lock(layout.lock_name(session_id), self._lock_timeout_s)

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _has(self, name: str, *kinds: str) -> bool:
        return any((name, kind) in self._kinds for kind in kinds)

    def _session_id(self) -> str:
        if self._has(layout.SESSION_FILE, "format") and (version := _version_in(self._tree, self._directory)):
            raise FormatVersionError(self._tree.path(self._path(layout.SESSION_FILE)), version, layout.FORMAT)
        for tree in (self._tree, self._mender.copy):
            found = None if tree is None else _id_in(tree, self._directory)
            if found is not None:
                return found
        raise CorruptError(
            self._tree.path(self._path(layout.SESSION_FILE)),
            "does not say whose session this is; name a copy that does",
        )

    def _restore_owner(self) -> None:
        copy, name = self._mender.copy, self._path(layout.SESSION_FILE)
        if _id_in(self._tree, self._directory) is None and copy is not None:
            self._mender.put(name, copy.chunks(name), "restored", "from a copy: it names this session")

    def _restore_journal(self) -> None:
        name = self._path(layout.JOURNAL_FILE)
        here = self._journal = _content(self._tree, name)
        there = self._of_copy(layout.JOURNAL_FILE)
        found = None if there is None else better_journal(here, there)
        if found is None:
            return
        if here is None or len(found) != len(here):
            found = self._with_younger_messages(found)
        if found != here:
            self._mender.put(name, (found,), "restored", "from a copy: its records have their checksums")
            self._journal = found

    def _with_younger_messages(self, journal: bytes) -> bytes:
        """Add records of the messages that are younger than the copy: their lines are all that is known of them."""
        context = _content(self._tree, self._path(layout.CONTEXT_FILE)) or b""
        try:
            return with_adopted(journal, context[index_of(journal).context_end :], now())
        except MessageError:
            return journal

    def _restore_archive(self) -> None:
        index = index_of(self._journal or b"")
        extents = [batch.extent for batch in index.batches]
        self._restore_extents(layout.CONTEXT_FILE, extents)
        self._restore_extents(layout.SUMMARIES_FILE, index.summaries)

    def _restore_extents(self, name: str, extents: Sequence[Extent]) -> None:
        copy, path = self._mender.copy, self._path(name)
        if copy is None or copy.size(path) is None:
            return
        here, there = _reader(self._tree, path), _reader(copy, path)
        lost = lost_extents(extents, here)
        found = held_extents(lost, there)
        if found:
            message = f"from a copy: {len(found)} of {len(lost)} damaged parts, which have the recorded hashes there"
            self._mender.put(path, with_extents(found, here, there, self._tree.size(path) or 0), "restored", message)

    def _restore_window(self) -> None:
        there = self._of_copy(layout.WINDOW_FILE)
        index = index_of(self._journal or b"")
        if there is None or not index.windows:
            return
        path = self._path(layout.WINDOW_FILE)
        found = better_window(index, _content(self._tree, path), there)
        if found is not None:
            self._mender.put(path, (found,), "restored", "from a copy: it begins with what is recorded")

    def _restore_results(self) -> None:
        for name, record in index_of(self._journal or b"").results.items():
            path = self._path(name)
            # A changed result that nobody has the true bytes of stays: it can still be read, and `verify` reports it.
            if digest_of(self._tree, path) != record["sha256"]:
                self._is_restored(path, record)

    def _is_restored(self, path: str, record: Record) -> bool:
        copy, digest = self._mender.copy, record["sha256"]
        if copy is not None and self._mender.put_from(path, copy, path, digest):
            return True
        others = [name for name in self._sources(digest) if name != path]
        return any(self._mender.put_from(path, self._tree, name, digest) for name in others)

    def _derive(self, session_id: str) -> None:
        """Let the writer's recovery do its work, then render and view again what is not what it should be."""
        if self._journal is not None and not is_foldable(self._journal):
            raise CorruptError(
                self._tree.path(self._path(layout.JOURNAL_FILE)),
                "has records of another form, so nothing is derived from it; restore it from a copy",
            )
        if not self._mender.is_dry_run and self._tree.size(self._path(layout.CONTEXT_FILE)) is None:
            # A writer would begin an empty one, and nobody would see any more that something is missing.
            raise CorruptError(self._tree.path(self._path(layout.CONTEXT_FILE)), "is gone; restore it from a copy")
        is_needed = self._has_restored or any(kind in _RECOVERED for _, kind in self._kinds)
        is_lost = self._journal is None or self._has(layout.TRANSCRIPT_FILE, "missing-file")
        views = [path for path, kind in self._kinds if kind == "stale-view"]
        if self._mender.is_dry_run:
            self._foretell(views, is_recovered=is_needed or is_lost)
        elif is_needed or is_lost or views:
            self._derive_in(Session(self._tree, session_id, lock_timeout_s=self._lock_timeout_s), views)

    def _foretell(self, views: Sequence[str], *, is_recovered: bool) -> None:
        if is_recovered:
            self._mender.say(
                "recovered", self._directory, "the writer's recovery, and what it leaves of the transcript"
            )
        for view in views:
            self._mender.say("rebuilt", self._path(view), "from its result")

    def _derive_in(self, session: Session, views: Sequence[str]) -> None:
        transcript = session.name(layout.TRANSCRIPT_FILE)
        if self._has_restored or {kind for _, kind in self._kinds} - _UNREMARKABLE:
            # Recovery cuts it without setting it aside; of a damaged message it may be all there is.
            self._mender.keep(transcript)
        old = _content(self._tree, transcript) or b""
        with session.writing():
            index = session.index()
            self._mender.say(
                "recovered", self._directory, "as the next writer would have: all in its journal is in place"
            )
            new = b"".join(_transcript(session, index, old))
            if new != _content(self._tree, transcript):
                self._mender.put(transcript, (new,), "rebuilt", "from the archive")
            for view in views:
                self._rebuild_view(session, index.results.get(layout.result_behind(view)))

    def _rebuild_view(self, session: Session, record: Record | None) -> None:
        if record is None or "view" not in record:
            return
        content = _content(self._tree, session.name(record["path"])) or b""
        view = (view_of(decoded(content)) or "").encode("utf-8")
        # Stubs and pointers count on these lines.
        if digest_of(self._tree, session.name(record["path"])) == record["sha256"] and (
            view.count(b"\n") == record["lines"]
        ):
            self._mender.put(session.name(record["view"]), (view,), "rebuilt", "from its result")

    def _of_copy(self, name: str) -> bytes | None:
        """Return a file of the same session in the copy; an earlier one of this name was created at another time."""
        copy, owner = self._mender.copy, self._path(layout.SESSION_FILE)
        if copy is None or _id_in(copy, self._directory) is None:
            return None
        if _id_in(self._tree, self._directory) is not None and _content(copy, owner) != _content(self._tree, owner):
            return None
        return _content(copy, self._path(name))


def _transcript(session: Session, index: Index, old: bytes) -> Iterator[bytes]:
    for batch in index.batches:
        content = session.content(batch)
        new = None if content is None else _rendered(batch, content, index)
        before = old[batch.transcript_offset : batch.transcript_end]
        if new is not None and len(new) == batch.transcript_bytes:
            yield new
        elif len(before) == batch.transcript_bytes and before.count(b"\n") == sum(batch.lines):
            yield before
        else:
            yield blank_lines(batch.transcript_bytes, sum(batch.lines))


def _rendered(batch: Batch, content: bytes, index: Index) -> bytes | None:
    try:
        return transcript_bytes(rendered(messages_of(batch, content), batch.first, batch.heading_times, index))
    except BuoylineError:
        return None


def _id_in(tree: Tree, directory: str) -> str | None:
    """Return whose session a directory says that it is; None where that is not the one that it should be."""
    found = _content(tree, f"{directory}/{layout.SESSION_FILE}")
    try:
        value: object = None if found is None else parse(found)
    except MessageError:
        return None
    match value:
        case {"id": str(session_id), "format": int(version)} if 1 <= version <= layout.FORMAT:
            is_its_own = bool(session_id) and is_directory_of(tree, session_id, directory)
            return session_id if is_its_own else None
        case _:
            return None


def _version_in(tree: Tree, directory: str) -> int | None:
    """Return which newer format a directory says that it has; None where it says nothing of the kind."""
    try:
        value: object = parse(_content(tree, f"{directory}/{layout.SESSION_FILE}") or b"null")
    except MessageError:
        return None
    match value:
        case {"format": int(version)} if version > layout.FORMAT:
            return version
        case _:
            return None


def _content(tree: Tree, path: str) -> bytes | None:
    return None if tree.size(path) is None else tree.read(path)


def _reader(tree: Tree, path: str) -> Callable[[int, int], bytes]:
    def read(offset: int, size_bytes: int) -> bytes:
        return b"" if tree.size(path) is None or size_bytes <= 0 else tree.read(path, offset, size_bytes)

    return read
