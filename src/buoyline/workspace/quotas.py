"""Limits on the size of a workspace, checked before anything is decoded or written."""

import errno
import stat
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Final

from buoyline.errors import ConfigError, CorruptError, NotFoundError, QuotaExceededError, StorageError
from buoyline.messages import Media, ToolResult
from buoyline.messages.payloads import payload_sizes
from buoyline.workspace import layout, summary_facts
from buoyline.workspace.journal import Record, encode
from buoyline.workspace.journal_tail import JournalTail
from buoyline.workspace.session import Session
from buoyline.workspace.tree import Tree

_COUNTED_FILES = (
    layout.CONTEXT_FILE,
    layout.JOURNAL_FILE,
    layout.TRANSCRIPT_FILE,
    layout.SUMMARIES_FILE,
    layout.WINDOW_FILE,
)

_NEW_SESSION_BYTES = 256
_SHORTEST_VALIDITY_S = 1.0
# So that walking takes at most a twentieth of the time, however large the workspace is.
_VALIDITY_PER_WALK = 20
_COUNTED_DIRECTORIES = (layout.SESSIONS, layout.DATA, layout.ENTRIES, layout.SEARCH)
_DEEPEST_DIRECTORY = 3


@dataclass(frozen=True, slots=True)
class Quotas:
    """Limits in bytes; None for no limit.

    Attributes:
        blob_bytes: For one decoded payload under ``data/``. Checked by the length of its base64 text, before decoding.
        session_bytes: For one session: archive, journal, transcript, summaries and their facts, window, and tool
            results with their views. ``session.json`` and set-aside bytes are not counted, and a window can always be
            taken over. Exact for any number of writers, since it is checked under the session's lock.
        workspace_bytes: For everything under ``sessions/``, ``data/`` and ``storage/``, and for the index of words,
            which is removed before a write is refused. Counted by a walk at most every second (less often if the walk
            is slow), plus this instance's writes since. So several processes may together exceed it by their writes
            between two walks.
    """

    blob_bytes: int | None = None
    session_bytes: int | None = None
    workspace_bytes: int | None = None

    def __post_init__(self) -> None:
        """Check the limits.

        Raises:
            ConfigError: A limit is neither None nor a whole number of bytes above 0.
        """
        for field in fields(self):
            require_bytes(field.name, getattr(self, field.name))


class QuotaChecker:
    """Checks writes against `Quotas`; costs nothing if none is set.

    Threads may share it: an admitted write counts against the workspace's quota at once.
    """

    def __init__(self, quotas: Quotas) -> None:
        """Check against *quotas*.

        Raises:
            ConfigError: *quotas* is no `Quotas`.
        """
        if not isinstance(quotas, Quotas):
            raise ConfigError("quotas", f"{type(quotas).__name__} is no Quotas")
        self._quotas = quotas
        self._usage = _WorkspaceUsage()
        self.is_limited = quotas.session_bytes is not None or quotas.workspace_bytes is not None

    def renew_after_fork(self) -> None:
        """Count again in a forked child: a thread of its parent may have been counting."""
        self._usage = _WorkspaceUsage()

    def check_payloads(self, values: Iterable[object]) -> None:
        """Refuse payloads that are too large by the length of their base64 text.

        Raises:
            QuotaExceededError: One is larger than a blob may be.
        """
        limit = self._quotas.blob_bytes
        if limit is not None:
            for value in values:
                _check("blob", limit, max(payload_sizes(value), default=0))

    def check_result(self, tool_result: object) -> None:
        """Refuse a tool result in any form whose media are too large, before one is decoded.

        Raises:
            QuotaExceededError: One is larger than a blob may be.
        """
        if self._quotas.blob_bytes is None:
            return
        if isinstance(tool_result, ToolResult):
            media = (part for part in tool_result.parts if isinstance(part, Media) and part.payload is not None)
            self.check_blob(max((part.size_bytes for part in media), default=0))
        else:
            self.check_payloads([tool_result])

    def check_blob(self, size_bytes: int) -> None:
        """Refuse a decoded payload that is too large; a redaction may have made it so.

        Raises:
            QuotaExceededError: It is larger than a blob may be.
        """
        _check("blob", self._quotas.blob_bytes, size_bytes)

    def is_limited_for_new(self, session: Session) -> bool:
        """Return whether there is a limit, and *session* does not exist, so that `check_new` must come first."""
        return self.is_limited and not session.exists()

    def check_new(
        self,
        session: Session,
        size_bytes: int,
        records: Sequence[Record] = (),
        blob_bytes: int = 0,
        *,
        staged_bytes: int = 0,
    ) -> None:
        """Refuse a write that would not even fit into a new session, so that *session* is not created.

        The arguments and errors are those of `admit`, which follows under the session's lock.
        """
        needed = size_bytes + _encoded_bytes(records)
        _check("session", self._quotas.session_bytes, needed)
        self._check_workspace(session.tree, needed + blob_bytes - staged_bytes)
        # The first files of a session, which no caller admits.
        self._usage.add(_NEW_SESSION_BYTES)

    def admit(
        self,
        session: Session,
        tail: JournalTail,
        size_bytes: int,
        records: Sequence[Record] = (),
        blob_bytes: int = 0,
        *,
        staged_bytes: int = 0,
    ) -> None:
        """Admit a write to *session*, or refuse it before it begins; the caller holds the session's lock.

        *size_bytes* is the growth of its files other than the journal. `admit_staged` has admitted *staged_bytes* of
        it.

        Raises:
            QuotaExceededError: The session or the workspace would exceed its quota.
        """
        if not self.is_limited:
            return
        needed = size_bytes + _encoded_bytes(records, tail.before(), tail.end)
        limit = self._quotas.session_bytes
        if limit is not None and needed > 0:
            _check("session", limit, session_bytes(session, tail.result_bytes, tail.summaries) + needed)
        self.admit_blobs(session.tree, needed + blob_bytes - staged_bytes)

    def admit_staged(self, session: Session, staged_bytes: int, size_bytes: int) -> None:
        """Admit the next *size_bytes* of a streamed result, or refuse them; *staged_bytes* were admitted before.

        The check against the session's quota is not exact, since nobody holds its lock; `admit` at the end is. The
        session need not exist yet.

        Raises:
            QuotaExceededError: The session or the workspace would exceed its quota.
        """
        limit = self._quotas.session_bytes
        if limit is not None:
            _check("session", limit, _current_bytes(session) + staged_bytes + size_bytes)
        if self.is_limited:
            self.admit_blobs(session.tree, size_bytes)

    def admit_blobs(self, tree: Tree, size_bytes: int) -> None:
        """Admit *size_bytes* more in the workspace.

        Raises:
            QuotaExceededError: The workspace would exceed its quota.
        """
        self._check_workspace(tree, size_bytes)
        self._usage.add(size_bytes)

    def _check_workspace(self, tree: Tree, size_bytes: int) -> None:
        limit = self._quotas.workspace_bytes
        if limit is None or size_bytes <= 0:
            return
        if self._usage.bytes(tree) + size_bytes > limit and tree.exists(layout.SEARCH):
            tree.remove(layout.SEARCH)
            self._usage.count_again()
        _check("workspace", limit, self._usage.bytes(tree) + size_bytes)


def session_bytes(session: Session, results: int, summaries: int) -> int:
    """Return how many bytes of its quota *session* uses; *results* of them are its tool results and their views.

    The cost does not grow with the session. It has so many *summaries*; a crash may have left the facts of one more.
    """
    facts = map(layout.summary_facts_name, facts_numbers(session, summaries + 1))
    counted = (*_COUNTED_FILES, *facts)
    return results + sum(session.tree.size(session.name(file)) or 0 for file in counted)


def facts_numbers(session: Session, newest: int) -> list[int]:
    """Return the numbers of the summaries up to *newest* whose facts exist in files of their own, newest first.

    The search ends at a gap, but not before the last few numbers: an older version writes no such files.
    """
    found: list[int] = []
    for number in range(newest, 0, -1):
        if session.tree.exists(session.name(layout.summary_facts_name(number))):
            found.append(number)
        elif newest - number > summary_facts.KEPT:
            break
    return found


def _current_bytes(session: Session) -> int:
    """Return about how many bytes *session* uses; without a readable journal, its results do not count."""
    if not session.exists():
        return 0
    try:
        index = session.index()
    except (CorruptError, NotFoundError):
        return session_bytes(session, 0, 0)
    return session_bytes(session, index.result_bytes, len(index.summaries))


class _WorkspaceUsage:
    """The bytes that count against the workspace's quota, measured by walks and counted in between."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._walked_bytes = 0
        self._added_bytes = 0
        self._valid_until_s = float("-inf")

    def add(self, size_bytes: int) -> None:
        """Count bytes that are about to be written."""
        with self._guard:
            self._added_bytes += size_bytes

    def count_again(self) -> None:
        """Let the next call of `bytes` walk."""
        with self._guard:
            self._valid_until_s = float("-inf")

    def bytes(self, tree: Tree) -> int:
        """Return the measured bytes plus those added since."""
        with self._guard:
            if time.monotonic() >= self._valid_until_s:
                self._walk(tree)
            return self._walked_bytes + self._added_bytes

    def _walk(self, tree: Tree) -> None:
        begun_s = time.monotonic()
        self._walked_bytes = sum(_directory_bytes(tree, name, 1) for name in _COUNTED_DIRECTORIES)
        self._added_bytes = 0
        ended_s = time.monotonic()
        self._valid_until_s = ended_s + max(_SHORTEST_VALIDITY_S, _VALIDITY_PER_WALK * (ended_s - begun_s))


def _directory_bytes(tree: Tree, name: str, depth: int) -> int:
    """Sum the sizes of the regular files in directory *name* and below; one that vanishes meanwhile counts 0."""
    try:
        entries = tree.entries(name)
    except StorageError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
            return 0
        raise
    total = 0
    for entry, status in entries.items():
        if stat.S_ISREG(status.st_mode):
            total += status.st_size
        elif stat.S_ISDIR(status.st_mode) and depth < _DEEPEST_DIRECTORY:
            total += _directory_bytes(tree, f"{name}/{entry}", depth + 1)
    return total


def _encoded_bytes(records: Sequence[Record], before: Record = MappingProxyType({}), end: int = 0) -> int:
    """Return the size of *records* after *end* bytes of a journal whose next record holds *before*."""
    total = 0
    for record in records:
        offset = end + total
        total += len(encode({**record, **before}))
        if "before" in before:
            before = {**before, "before": {**before["before"], record["op"]: [offset]}}
    return total


def _check(quota: str, limit_bytes: int | None, needed_bytes: int) -> None:
    if limit_bytes is not None and needed_bytes > limit_bytes:
        raise QuotaExceededError(quota, limit_bytes, needed_bytes)


def require_bytes(setting: str, limit: object) -> None:
    """Check that *limit* is None or a whole number above 0. Raises `ConfigError`."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise ConfigError(setting, f"{limit!r} is not a whole number of bytes above 0; None sets no limit")


UNLIMITED: Final = QuotaChecker(Quotas())
"""Admits everything."""
