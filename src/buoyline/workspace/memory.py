"""`MemoryWorkspace`: a workspace in this process, without files."""

import dataclasses
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final, TypeVar

from buoyline.errors import ConfigError, InvalidNameError, NotFoundError
from buoyline.messages import ToolResult
from buoyline.offloader.protocol import Abilities, StoredResult
from buoyline.previews.source import Source
from buoyline.workspace import layout
from buoyline.workspace.archive import Archive
from buoyline.workspace.blobs import Blobs
from buoyline.workspace.journal import Batch
from buoyline.workspace.memory_tree import FileNode, MemoryTree
from buoyline.workspace.redaction import Redaction, RedactPayload, RedactText
from buoyline.workspace.results import Results, StagedResult
from buoyline.workspace.session import Session
from buoyline.workspace.tree_workspace import TreeWorkspace

R = TypeVar("R")
T = TypeVar("T")

_ROOT: Final = "memory://"
_LOCK_TIMEOUT_S = 30.0
_NOTHING_STORED = "nothing was stored under it in this workspace"
_SHOWN = frozenset({layout.CONTEXT_FILE, layout.TRANSCRIPT_FILE, layout.SUMMARIES_FILE, layout.WINDOW_FILE})


class MemoryWorkspace(TreeWorkspace["EvictingTree"]):
    """A workspace in this process's memory, for tests and for places that have no disk.

    It is a `LocalWorkspace` over files in memory: the same abilities, transcript and errors. References look like
    ``memory:///sessions/s1/tool_result-c1.txt``; `read` returns what is behind one. Nothing is written to disk, and
    nothing survives the process: acknowledged means held until `clear`.

    **Eviction.** `next_turn` removes entries that were neither stored nor retrieved for more than *evict_after_turns*
    turns: whole tool results together with their views, and payloads of `offload_data_block` as long as no archived
    message has them, too. `ContextWindow.prepare` calls it, or you do; nothing else evicts. Storing or reading an entry
    starts its turns again. Reading an evicted one is a `NotFoundError` that says so; `missing` no longer finds its
    text; storing the same result again brings it back under the same reference. Archived messages with their payloads,
    the transcript, summaries and windows are never evicted, so `load_messages` is always complete.

    Threads and event loops may share an instance: one lock guards it. Calls run inline and wait for nothing but that
    lock, so a cancelled call has either not begun or is done. With eviction on, each agent should have a workspace of
    its own, since one agent's turns would age the entries of another.

    Source: Strands' ``InMemoryStorage`` for turns, their default and `clear`; `LocalWorkspace` for all else.
    """

    def __init__(
        self,
        *,
        evict_after_turns: int | None = 20,
        redact: RedactText | None = None,
        redact_payload: RedactPayload | None = None,
    ) -> None:
        """Begin with nothing.

        Args:
            evict_after_turns: For how many turns an entry is kept that nobody uses; None keeps everything.
            redact: Gets every string before it is kept; see `LocalWorkspace`.
            redact_payload: The same for decoded payloads.

        Raises:
            ConfigError: *evict_after_turns* is neither None nor a whole number above 0, or a hook cannot be called.
        """
        tree = EvictingTree(evict_after_turns)
        redaction = Redaction(redact, redact_payload)
        super().__init__(tree, redaction=redaction, lock_timeout_s=_LOCK_TIMEOUT_S)

    _hint: ClassVar[str] = _NOTHING_STORED

    def __repr__(self) -> str:
        """Return how much is held."""
        return f"<MemoryWorkspace: sessions={len(self._tree.names(layout.SESSIONS)):,}, blobs={len(self._tree.kept):,}>"

    async def close(self) -> None:
        """Do nothing: the content is nowhere else, so only `clear` removes it."""

    def abilities(self) -> Abilities:
        """Return what a workspace can do beyond the two methods of an offloader, and that it counts turns."""
        return dataclasses.replace(super().abilities(), turns=self)

    def renew_after_fork(self) -> None:
        """Forget in a forked child what a thread of the parent may have held or been changing."""
        super().renew_after_fork()
        self._tree.renew_after_fork()

    def next_turn(self) -> None:
        """Begin the next turn of the agent's loop, and evict entries that nobody used for too many turns.

        `ContextWindow.prepare` calls it, once for each model call; only loops without a window call it themselves.
        """
        with self._tree.mutex:
            self._tree.next_turn()

    def clear(self) -> None:
        """Remove everything that is held, of all sessions."""
        with self._tree.mutex:
            for above in (layout.SESSIONS, layout.DATA):
                for name in self._tree.names(above):
                    self._tree.remove(f"{above}/{name}")
            self._tree.forget()
            with self._guard:
                self._sessions.clear()

    def read(self, reference: str) -> str:
        """Return the text behind *reference*; see `retrieve`.

        Raises:
            NotFoundError: There is nothing behind it, or no longer.
            InvalidNameError: It stands for bytes that are no text; `retrieve` returns them.
        """
        content = self.retrieve(reference)
        try:
            return content.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise InvalidNameError(reference, "stands for bytes that are no text; use retrieve") from error

    def retrieve(self, reference: str) -> bytes:
        """Return the bytes behind *reference*, which counts as a use of them.

        Args:
            reference: Any that this workspace has given: of a tool result, a view, an archive, a transcript, or
                ``workspace:///data/…``, which replaces a payload.

        Raises:
            NotFoundError: There is nothing behind it; if it was evicted, the error says so.
        """
        name = layout.blob_behind(reference) or reference.removeprefix(f"{_ROOT}/")
        with self._tree.mutex:
            self._tree.require_held(name, reference)
            is_given = _is_evictable(name) or name.rpartition("/")[2] in _SHOWN
            if not is_given or self._tree.size(name) is None:
                raise NotFoundError("content behind", reference, _NOTHING_STORED)
            return self._tree.read(name)

    def is_evicted(self, name: str) -> bool:
        """Return whether the file *name* was there once and was removed because nobody used it."""
        return name in self._tree.evicted

    def result_source(self, session_id: str, stored: StoredResult) -> Source:
        """Return the text that the lines of *stored* count, which counts as its use.

        Raises:
            NotFoundError: It was evicted, or never was there.
        """
        name = self._session(session_id).name(stored.name)
        self._tree.require_held(name, stored.reference)
        self._tree.use(name)
        return super().result_source(session_id, stored)

    def session_ids(self, newest: int | None = None) -> list[str]:
        """Return the ids of all sessions, in the order in which they began.

        Args:
            newest: Return only so many, those that were last active first.
        """
        if newest is not None:
            return super().session_ids(newest)
        sessions = list(self.sessions())
        numbers = {session.session_id: self._tree.number(session.directory) for session in sessions}
        return sorted(numbers, key=numbers.__getitem__)

    @property
    def roots(self) -> tuple[str, ...]:
        """What absolute references begin with; the first is given out."""
        return (_ROOT,)

    def _results(self, session: Session) -> Results:
        return _GroupedResults(session, self._blobs, self._tree)

    def _archive(self, session: Session) -> Archive:
        return _KeptArchive(session, self._blobs, self._tree)

    def _in_session(self, session_id: str, work: Callable[[Session], T]) -> Callable[[], T]:
        def locked(session: Session) -> T:
            with self._tree.mutex:
                if not session.exists():
                    raise NotFoundError("session", session_id, _NOTHING_STORED)
                return work(session)

        return super()._in_session(session_id, locked)

    def _write(self, session_id: str, redacted: Callable[[], R], work: Callable[[Session, R], T]) -> Awaitable[T]:
        def locked(session: Session, given: R) -> T:
            with self._tree.mutex:
                return work(session, given)

        return super()._write(session_id, redacted, locked)

    async def _run_in_session(self, session_id: str, work: Callable[[], T]) -> T:  # noqa: ARG002
        return work()

    async def _run(self, key: str, work: Callable[[], T]) -> T:  # noqa: ARG002
        return work()


@dataclasses.dataclass(slots=True)
class _Group:
    """Files that come and go together, and the turn of their last use."""

    names: tuple[str, ...]
    used: int


class EvictingTree(MemoryTree):
    """A tree that removes tool results, views and payloads that nobody used for a number of turns.

    To store or read one is a use of it; a look at its name or size is not.

    Attributes:
        kept: Payloads of archived messages, which are never removed.
        evicted: Files that were removed and not stored again.
    """

    def __init__(self, evict_after_turns: int | None) -> None:
        """Keep what was used within *evict_after_turns* turns; None keeps everything.

        Raises:
            ConfigError: It is no whole number above 0.
        """
        super().__init__(_ROOT)
        _require_turns(evict_after_turns)
        self.kept: set[str] = set()
        self.evicted: set[str] = set()
        self._evict_after_turns = evict_after_turns
        self._turn = 0
        self._groups: dict[str, _Group] = {}
        self._counts_uses = True

    def next_turn(self) -> None:
        """Begin the next turn, and remove what was last used too many turns ago."""
        self._turn += 1
        if self._evict_after_turns is None:
            return
        oldest = self._turn - self._evict_after_turns
        for name in [name for name, group in self._groups.items() if group.used < oldest]:
            del self._groups[name]
            self.remove(name)
            self.evicted.add(name)

    def forget(self) -> None:
        """Forget all uses, and what was evicted."""
        self._groups.clear()
        self.kept.clear()
        self.evicted.clear()

    def group(self, names: Sequence[str]) -> None:
        """Let a use of one of *names*, which were just stored, be a use of all of them."""
        evictable = tuple(name for name in names if name not in self.kept)
        self._groups.update(dict.fromkeys(evictable, _Group(evictable, self._turn)))

    def keep(self, name: str) -> None:
        """Never remove the payload *name*."""
        self._groups.pop(name, None)
        self.kept.add(name)

    def use(self, name: str) -> None:
        """Count a use of the file *name* and its group."""
        group = self._groups.get(name)
        if group is not None and self._counts_uses:
            # One of them may since have been stored with others: a picture that two results have.
            for each in group.names:
                self._groups.get(each, group).used = self._turn

    @contextmanager
    def unused(self) -> Generator[None]:
        """Count no read during the block as a use."""
        with self.mutex:
            self._counts_uses = False
            try:
                yield
            finally:
                self._counts_uses = True

    def require_held(self, name: str, reference: str) -> None:
        """Refuse a file that was evicted.

        Raises:
            NotFoundError: It was.
        """
        if name in self.evicted:
            hint = (
                f"it was evicted, since nobody used it for more than {self._evict_after_turns} turns; run the tool "
                "again, or give MemoryWorkspace a higher evict_after_turns (None keeps everything)"
            )
            raise NotFoundError("content behind", reference, hint)

    def number(self, name: str) -> int:
        """Return a number that is higher for what was created later; 0 if nothing is there."""
        status = self.status(name)
        return 0 if status is None else status.st_ino

    def freshen(self, name: str) -> bool:
        """Note that the payload *name* was stored again; False if it is not there."""
        is_there = super().freshen(name)
        if is_there:
            self.group((name,))
        return is_there

    def publish(self, name: str, chunks: Iterable[bytes]) -> bool:
        """Create file *name*, which counts as a use of it; False if the name is taken."""
        is_new = super().publish(name, chunks)
        if _is_evictable(name):
            self.evicted.discard(name)
            self.group((name,))
        return is_new

    def _file(self, name: str) -> FileNode:
        self.require_held(name, self.path(name))
        self.use(name)
        return super()._file(name)


class _GroupedResults(Results):
    """Tool results that are evicted together with their views and media."""

    def __init__(self, session: Session, blobs: Blobs, tree: EvictingTree) -> None:
        super().__init__(session, blobs)
        self._evicting = tree

    def store(self, result: ToolResult) -> StoredResult:
        return self._grouped(super().store(result))

    def publish(self, call_id: str, staged: StagedResult, partial: str = "") -> StoredResult:
        return self._grouped(super().publish(call_id, staged, partial))

    def _grouped(self, stored: StoredResult) -> StoredResult:
        views = (self._session.name(layout.view_name(stored.name)),) if stored.view else ()
        media = (part.path for part in stored.parts if part.path)
        self._evicting.group((self._session.name(stored.name), *views, *media))
        return stored


class _KeptArchive(Archive):
    """Archived messages whose payloads are never evicted. To look for strings is no use of the results."""

    def __init__(self, session: Session, blobs: Blobs, tree: EvictingTree) -> None:
        super().__init__(session, blobs)
        self._evicting = tree

    def add(self, messages: Sequence[Any], **options: Any) -> tuple[Batch, ...]:
        batches = super().add(messages, **options)
        for _, reference in (found for batch in batches for found in batch.references):
            name = layout.blob_behind(reference.reference)
            if name is not None:
                self._evicting.keep(name)
        return batches

    def missing(self, strings: Sequence[str]) -> list[str]:
        with self._evicting.unused():
            return super().missing(strings)


def _is_evictable(name: str) -> bool:
    file = name.rpartition("/")[2]
    return layout.digest_in(name) is not None or layout.is_result_name(file) or layout.is_view_name(file)


def _require_turns(turns: object) -> None:
    if turns is not None and (isinstance(turns, bool) or not isinstance(turns, int) or turns < 1):
        reason = f"{turns!r} is not a whole number of turns above 0; None keeps everything"
        raise ConfigError("evict_after_turns", reason)
