"""Removes sessions by a retention policy, and blobs that no session refers to.

The order makes an interrupted run repeatable: a session is renamed to a name that no reader looks for, then the blobs
that only it referred to are removed, then the session itself. The next run completes it. Source: docs/format.md,
"Retention".
"""

import stat
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace

from buoyline.errors import ConfigError, CorruptError, LockTimeout, MessageError, StorageError
from buoyline.maintenance.verify import verify
from buoyline.messages.jsonl import is_object, parse
from buoyline.workspace import Files, Status, layout
from buoyline.workspace.blobs import DirectoryScan, ReferenceScanner
from buoyline.workspace.local import LocalWorkspace
from buoyline.workspace.stored_session import found_directory, is_directory_of

_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class SessionUsage:
    """What a retention policy knows about a session.

    *last_active_ns* is the newest modification time of its files. The times in its records are not enough, because
    ``window.jsonl`` grows without a record. A copy of the workspace that was made without the times is kept longer.
    """

    session_id: str
    last_active_ns: int
    size_bytes: int
    blobs: frozenset[str] = frozenset()

    @property
    def last_active(self) -> str:
        """The time of the last activity: ISO 8601 in UTC, to the second."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.last_active_ns // _NS))


@dataclass(frozen=True, slots=True)
class ExpiredSession:
    """A session to remove, and the first limit that it exceeds: ``age``, ``count`` or ``bytes``."""

    session: SessionUsage
    reason: str


@dataclass(frozen=True, slots=True)
class Retention:
    """Limits for sessions. A session that exceeds any limit is removed; without limits, all sessions are kept.

    Attributes:
        max_age_s: Sessions that were last active longer ago are removed.
        max_sessions: Only so many of the newest sessions are kept.
        max_bytes: The oldest sessions are removed until the rest takes no more: their files, and the blobs that they
            refer to, each once. Other blobs do not count, or they could expire every session.
    """

    max_age_s: float | None = None
    max_sessions: int | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        """Check the limits.

        Raises:
            ConfigError: A limit is below 0, or not a number.
        """
        limits = {"max_age_s": self.max_age_s, "max_sessions": self.max_sessions, "max_bytes": self.max_bytes}
        for name, limit in limits.items():
            if limit is not None and not limit >= 0:
                raise ConfigError(name, f"{limit!r} is not 0 or more; None sets no limit")

    def exceeding(
        self, sessions: Sequence[SessionUsage], blob_bytes: Mapping[str, int], now_ns: int
    ) -> tuple[ExpiredSession, ...]:
        """Return the sessions that exceed a limit, the least recently active first; of the same age, by id.

        *blob_bytes* has the size of each blob, by its hash.
        """
        newest_first = sorted(sessions, key=lambda s: (-s.last_active_ns, s.session_id))
        going: dict[str, str] = {}
        for place, session in enumerate(newest_first):
            if self.max_age_s is not None and now_ns - session.last_active_ns > self.max_age_s * _NS:
                going[session.session_id] = "age"
            elif self.max_sessions is not None and place >= self.max_sessions:
                going[session.session_id] = "count"
        staying = [session for session in newest_first if session.session_id not in going]
        going.update((session_id, "bytes") for session_id in self._over_bytes(staying, blob_bytes))
        return tuple(ExpiredSession(s, going[s.session_id]) for s in reversed(newest_first) if s.session_id in going)

    def _over_bytes(self, newest_first: Sequence[SessionUsage], blob_bytes: Mapping[str, int]) -> list[str]:
        if self.max_bytes is None:
            return []
        users = Counter(blob for session in newest_first for blob in session.blobs)
        total = taken_bytes(newest_first, blob_bytes)
        going: list[str] = []
        for session in reversed(newest_first):
            if total <= self.max_bytes:
                break
            users.subtract(session.blobs)
            freed = sum(blob_bytes.get(blob, 0) for blob in session.blobs if not users[blob])
            total -= session.size_bytes + freed
            going.append(session.session_id)
        return going


def taken_bytes(sessions: Sequence[SessionUsage], blob_bytes: Mapping[str, int]) -> int:
    """Return the size of *sessions* together: their files, and the blobs that they refer to, each once."""
    blobs = frozenset[str]().union(*(session.blobs for session in sessions))
    return sum(session.size_bytes for session in sessions) + sum(blob_bytes.get(blob, 0) for blob in blobs)


GRACE_S = 24 * 60 * 60
"""Younger sessions are kept, and younger blobs, since their writer may be about to refer to them."""

_LOCK_TIMEOUT_S = 30.0
# There is no lock that shows whether the writer of a new session, or of workspace.json, is still at work.
_UNLOCKED_GRACE_S = 60 * 60
_LONGEST_S = 1e9
_BLOCKING = frozenset({"format", "owner", "file-type", "unreadable", "missing-file", "short-file", "bad-record", "gap"})
"""After such damage it is not known which blobs a session refers to, now or once it is restored from a copy."""
_WITHOUT_REFERENCES = (f"{layout.DATA}/", f"{layout.LOCKS}/")

Progress = Callable[[int], None]
"""Called with the number of bytes read since the last call."""


@dataclass(frozen=True, slots=True)
class FileUsage:
    """A file or directory of the workspace, and the size of all that is in it."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class GcReport:
    """What gc removed, or would remove in a dry run.

    Attributes:
        sessions: The least recently active first.
        blobs: By name.
        leftovers: Unfinished files, and removals of sessions that were interrupted and are now complete, by path.
        recent: Ids of sessions that exceed a limit, and were active within the grace period: they were kept.
        young: Blobs without references that are too young to remove.
        unowned: Blobs that no session is known to have referred to since they were stored; kept unless asked for.
        locked: Ids of sessions whose lock was not free in time: they and their blobs were kept.
        session_bytes: The size of the remaining sessions, with the blobs that they refer to.
    """

    is_dry_run: bool
    sessions: tuple[ExpiredSession, ...]
    blobs: tuple[FileUsage, ...]
    leftovers: tuple[FileUsage, ...]
    recent: tuple[str, ...]
    young: tuple[FileUsage, ...]
    unowned: tuple[FileUsage, ...]
    locked: tuple[str, ...]
    session_bytes: int

    @property
    def freed_bytes(self) -> int:
        """The size of all that is removed."""
        sessions = sum(gone.session.size_bytes for gone in self.sessions)
        return sessions + sum(swept.size_bytes for swept in (*self.blobs, *self.leftovers))


def collect(
    workspace: LocalWorkspace,
    retention: Retention | None = None,
    *,
    grace_s: float = GRACE_S,
    unowned: bool = False,
    dry_run: bool = True,
    lock_timeout_s: float = _LOCK_TIMEOUT_S,
    on_progress: Progress | None = None,
) -> GcReport:
    """Remove old sessions, crash leftovers and orphaned blobs; with *dry_run*, only report them. Blocks.

    *retention* decides about sessions. A blob is removed if no session refers to it, a session once did, and it is
    older than *grace_s*. Other processes may write meanwhile: those that store blobs wait while gc removes blobs, and a
    session that was used since gc read it, or that is in use, is kept.

    Args:
        workspace: The workspace to clean up.
        retention: None keeps all sessions.
        grace_s: Sessions, blobs and leftovers that are younger than this are kept.
        unowned: Also remove blobs that no session has referred to since they were stored. Blobs of
            `LocalWorkspace.offload_data_block` are such blobs, and only its caller knows whether they are in use.
        dry_run: Change nothing.
        lock_timeout_s: How long to wait for writers of blobs, and then for the writers of all sessions together.
        on_progress: Called often while files are read.

    Raises:
        ConfigError: *grace_s* is below 0.
        NotFoundError: There is no workspace.
        FormatVersionError: A newer buoyline wrote it.
        CorruptError: It cannot be known which blobs some session refers to; nothing was removed.
        LockTimeout: Writers stored blobs for the whole waiting time; nothing was removed.
        StorageError: The file system refused; the next call completes the work.
    """
    if not grace_s >= 0:
        raise ConfigError("grace_s", f"{grace_s!r} is not 0 or more")
    workspace.check()
    for found in verify(workspace, hashes=False).findings:
        if found.kind in _BLOCKING and not found.path.startswith(_WITHOUT_REFERENCES):
            reason = (
                f"{found.message.partition(';')[0]}, so it is not known which blobs the session refers to; nothing is "
                "removed until it is repaired: try `buoyline repair`, or move the session's directory out of the "
                "workspace"
            )
            raise CorruptError(workspace.files.path(found.path), reason)
    run = _Collector(
        workspace,
        retention or Retention(),
        grace_s=grace_s,
        lock_timeout_s=lock_timeout_s,
        unowned=unowned,
        on_progress=on_progress,
    )
    run.look()
    if dry_run:
        return run.report(run.expired(), is_dry_run=True)
    return run.delete()


class _Collector:
    """One run of gc: what it read last, and what follows from that."""

    def __init__(
        self,
        workspace: LocalWorkspace,
        retention: Retention,
        *,
        grace_s: float,
        lock_timeout_s: float,
        unowned: bool,
        on_progress: Progress | None,
    ) -> None:
        self._files: Files = workspace.files
        self._upkeep = workspace.upkeep
        self._retention = retention
        self._grace_ns = int(min(grace_s, _LONGEST_S) * _NS)
        self._lock_timeout_s = lock_timeout_s
        self._unowned = unowned
        self._now_ns = time.time_ns()
        self._deadline_s = 0.0
        self._locked: set[str] = set()
        # Blobs that are stored from now on are kept: the scan does not look for their hashes.
        self._digests = frozenset(layout.digest_in(path) or "" for path in self._blobs())
        self._scanner = ReferenceScanner(self._files, self._digests, on_progress)
        self._sessions: dict[str, tuple[str, DirectoryScan]] = {}
        self._interrupted: dict[str, DirectoryScan] = {}
        self._others: set[str] = set()

    def look(self) -> None:
        """Collect all references of sessions; a file that has not changed since the last time is not read again."""
        self._sessions, self._interrupted, self._others = {}, {}, set()
        entries = _entries(self._files, layout.SESSIONS)
        with self._files.held(layout.SESSIONS) if entries else nullcontext(self._files) as sessions:
            for name, status in entries.items():
                with _unreadable_stops():
                    try:
                        self._look_at(f"{layout.SESSIONS}/{name}", status, sessions)
                    except StorageError:
                        if sessions.exists(f"{layout.SESSIONS}/{name}"):  # else another gc removed it meanwhile
                            raise

    def expired(self) -> tuple[ExpiredSession, ...]:
        """Return the sessions to remove: those that exceed a limit and were not active within the grace period."""
        return tuple(gone for gone in self._exceeding() if not self._is_recent(gone.session))

    def _exceeding(self) -> tuple[ExpiredSession, ...]:
        sizes = {layout.digest_in(path) or "": status.st_size for path, status in self._blobs().items()}
        return self._retention.exceeding(self._uses(), sizes, self._now_ns)

    def _is_recent(self, session: SessionUsage) -> bool:
        return self._now_ns - session.last_active_ns < self._grace_ns

    def report(self, expired: Sequence[ExpiredSession], *, is_dry_run: bool) -> GcReport:
        """Report what is removed together with *expired*."""
        gone = {gone.session.session_id for gone in expired}
        staying = [use for use in self._uses() if use.session_id not in gone]
        referred = self._others.union(*(use.blobs for use in staying))
        owned = self._owned(expired)
        blobs: dict[str, list[FileUsage]] = {"going": [], "young": [], "unowned": [], "referred": []}
        for path, status in self._blobs().items():
            blobs[self._class_of_blob(path, status, referred, owned)].append(FileUsage(path, status.st_size))
        sizes = {layout.digest_in(swept.path) or "": swept.size_bytes for swept in blobs["referred"]}
        return GcReport(
            is_dry_run=is_dry_run,
            sessions=tuple(expired),
            blobs=tuple(blobs["going"]),
            leftovers=tuple(sorted(self._leftovers(gone), key=lambda swept: swept.path)),
            recent=tuple(over.session.session_id for over in self._exceeding() if self._is_recent(over.session)),
            young=tuple(blobs["young"]),
            unowned=tuple(blobs["unowned"]),
            locked=(),
            session_bytes=taken_bytes(staying, sizes),
        )

    def delete(self) -> GcReport:
        """Remove all that the report names."""
        with self._upkeep.blobs_locked(self._lock_timeout_s):
            # No blob can be stored meanwhile, so gc must not wait long for one writer that hangs.
            self._deadline_s = time.monotonic() + self._lock_timeout_s
            self.look()
            interrupted = self._interrupted
            set_off = [self._hide(gone) for gone in self.expired()]
            expired = [gone for gone in set_off if gone is not None]
            # The remaining sessions may have new references: only writers of blobs were kept waiting.
            self.look()
            removed, self._interrupted = self._interrupted, interrupted
            report = self.report(expired, is_dry_run=False)
            for blob in report.blobs:
                self._upkeep.remove(blob.path)
            leftovers = tuple(leftover for leftover in report.leftovers if self._remove_leftover(leftover.path))
            if report.blobs:
                # The removal of blobs must be durable before that of the sessions that referred to them.
                self._upkeep.sync_blobs()
            report = replace(report, leftovers=leftovers, locked=tuple(sorted(self._locked)))
        for path in removed:
            self._upkeep.remove(path)
        return report

    def _look_at(self, path: str, status: Status, sessions: Files) -> None:
        name = path.removeprefix(f"{layout.SESSIONS}/")
        if stat.S_ISREG(status.st_mode):
            self._others |= self._scanner.scan_file(path, status)
        elif stat.S_ISDIR(status.st_mode):
            scan = self._scanner.scan(path, sessions)
            if layout.is_removed_name(name):
                self._interrupted[path] = scan
            elif name.startswith(layout.TEMPORARY_PREFIX) or sessions.size(f"{path}/{layout.SESSION_FILE}") is None:
                self._others |= scan.digests
            else:
                self._sessions[path] = _session_id(sessions, path), scan

    def _hide(self, gone: ExpiredSession) -> ExpiredSession | None:
        """Rename a session so that no reader finds it; None if it was used since gc read it, or is in use."""
        session_id = gone.session.session_id
        with self._session_locked(session_id) as is_ours:
            path = found_directory(self._files, session_id)
            if not is_ours or path not in self._sessions:
                return None
            with _unreadable_stops():
                if self._scanner.scan(path) != self._sessions[path][1]:
                    return None
                # It will be removed, with its references to blobs that were stored since gc began.
                digests = frozenset(layout.digest_in(blob) or "" for blob in self._blobs())
                scanner = self._scanner if digests <= self._digests else ReferenceScanner(self._files, digests)
                blobs = scanner.scan(path).digests
            self._upkeep.hide(path)
        return replace(gone, session=replace(gone.session, blobs=blobs))

    def _remove_leftover(self, path: str) -> bool:
        """Remove an unfinished file; False if it is in a session whose writer may be at work on it."""
        if path in self._interrupted:
            return True
        session_id, _ = self._sessions.get("/".join(path.split("/")[:2]), ("", None))
        with self._session_locked(session_id) as is_ours:
            if is_ours:
                self._upkeep.remove(path)
            return is_ours

    @contextmanager
    def _session_locked(self, session_id: str) -> Generator[bool]:
        """Lock a session if *session_id* is an id; yield False if another writer held it for too long, now or before.

        Such a session was read like all others, and it gets no new reference to a blob: a writer that adds one shares
        gc's lock.
        """
        with ExitStack() as lock:
            if session_id and session_id not in self._locked:
                left_s = max(0.0, self._deadline_s - time.monotonic())
                try:
                    lock.enter_context(self._upkeep.session_locked(session_id, left_s))
                except LockTimeout:
                    self._locked.add(session_id)
            yield session_id not in self._locked

    def _owned(self, expired: Sequence[ExpiredSession]) -> dict[str, int]:
        """Return until when removed sessions referred to each blob, those of this run included, by its hash."""
        owned: dict[str, int] = {}
        ends = [(gone.session.blobs, gone.session.last_active_ns) for gone in expired]
        ends += [(scan.digests, scan.changed_ns) for scan in self._interrupted.values()]
        for digests, end_ns in ends:
            owned.update((digest, max(end_ns, owned.get(digest, 0))) for digest in digests)
        return owned

    def _class_of_blob(self, path: str, status: Status, referred: AbstractSet[str], owned: Mapping[str, int]) -> str:
        digest = layout.digest_in(path) or ""
        if digest not in self._digests:
            return "young" if digest in owned else "referred"
        if digest in referred:
            return "referred"
        # If it was stored after all of its sessions were last active, somebody else stored it.
        if not self._unowned and owned.get(digest, -1) < status.st_mtime_ns:
            return "unowned"
        return "young" if self._now_ns - status.st_mtime_ns < self._grace_ns else "going"

    def _leftovers(self, gone: AbstractSet[str]) -> Iterator[FileUsage]:
        yield from (FileUsage(path, scan.size_bytes) for path, scan in self._interrupted.items())
        unlocked_ns = max(self._grace_ns, _UNLOCKED_GRACE_S * _NS)
        yield from self._unfinished("", unlocked_ns, self._files)
        yield from self._unfinished(layout.SESSIONS, unlocked_ns, self._files)
        for inner in (layout.DATA, layout.DATA_TORN):
            yield from self._unfinished(inner, self._grace_ns, self._files)
        staying = [path for path, (session_id, _) in self._sessions.items() if session_id not in gone]
        with self._files.held(layout.SESSIONS) if staying else nullcontext(self._files) as sessions:
            for directory in staying:
                for inner in (directory, f"{directory}/{layout.TORN}"):
                    yield from self._unfinished(inner, self._grace_ns, sessions)

    def _unfinished(self, directory: str, grace_ns: int, files: Files) -> Iterator[FileUsage]:
        """Yield what was made under a temporary name in *directory*, and not changed for *grace_ns*."""
        for name, status in _entries(files, directory).items():
            path = f"{directory}/{name}" if directory else name
            if not name.startswith(layout.TEMPORARY_PREFIX) or layout.is_removed_name(name):
                continue
            size_bytes, changed_ns = status.st_size, status.st_mtime_ns
            if stat.S_ISDIR(status.st_mode):
                if not directory:  # buoyline makes no directories under such a name in the root; the agent may
                    continue
                scan = self._scanner.scan(path)
                size_bytes, changed_ns = scan.size_bytes, max(changed_ns, scan.changed_ns)
            if self._now_ns - changed_ns >= grace_ns:
                yield FileUsage(path, size_bytes)

    def _uses(self) -> list[SessionUsage]:
        return [
            SessionUsage(session_id, scan.changed_ns, scan.size_bytes, scan.digests)
            for session_id, scan in self._sessions.values()
        ]

    def _blobs(self) -> dict[str, Status]:
        found = {f"{layout.DATA}/{name}": status for name, status in _entries(self._files, layout.DATA).items()}
        return {
            path: status
            for path, status in found.items()
            if layout.digest_in(path) is not None and stat.S_ISREG(status.st_mode)
        }


def _entries(files: Files, directory: str) -> Mapping[str, Status]:
    """Return the entries of a directory; none if there is no such directory."""
    return files.entries(directory) if not directory or files.is_directory(directory) else {}


def _session_id(files: Files, directory: str) -> str:
    path = f"{directory}/{layout.SESSION_FILE}"
    try:
        found = parse(files.read(path))
    except MessageError:
        found = None
    session_id = found.get("id") if is_object(found) else None
    if not isinstance(session_id, str) or not is_directory_of(files, session_id, directory):
        raise CorruptError(files.path(path), "is not that of its directory; restore it from a copy")
    return session_id


@contextmanager
def _unreadable_stops() -> Generator[None]:
    """Turn a refusal of the file system into the reason why nothing is removed."""
    try:
        yield
    except StorageError as error:
        if isinstance(error, LockTimeout):
            raise
        reason = (
            f"cannot be read ({error.strerror}), so it is not known which blobs the session refers to; until it can,"
        )
        raise CorruptError(str(error.filename), f"{reason} gc removes nothing") from error
