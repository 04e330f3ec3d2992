"""`collect`: removes old sessions, payloads that no session refers to, and what crashes left.

A payload goes once no session refers to it, at least one that did was removed, and nobody touched it for the grace.
Whoever stores it again touches it, so it needs no lock. Source: docs/format.md, "Retention".
"""

import errno
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from buoyline.errors import CorruptError, LockTimeout, StorageError
from buoyline.maintenance.verify import DIGEST, directories_of, named_by, session_in, walk
from buoyline.workspace import layout
from buoyline.workspace.disk import Disk
from buoyline.workspace.documents import check_workspace
from buoyline.workspace.session import session_id_in
from buoyline.workspace.workspace import Workspace

GRACE_S: Final = 86_400.0

_REMOVED = f"{layout.TEMPORARY}removed-"
_GONE = f"{layout.TEMPORARY}gone-"
_LONGEST_MATCH_BYTES = 70

OnProgress = Callable[[int], None]


@dataclass(slots=True)
class GcReport:
    """What `collect` removed, or would remove.

    Attributes:
        sessions: Ids of sessions (names of their directories if these are unreadable), each with the reason: ``"age"``,
            ``"count"`` or ``"bytes"``.
        blobs: Names of payloads.
        files: Leftovers of crashes, and results that no message names.
        in_use: Sessions that a writer held or used meanwhile; they stay.
        unowned: Payloads that no session refers to and no removed one did; they stay unless asked for.
    """

    sessions: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    blobs: list[str] = field(default_factory=list[str])
    files: list[str] = field(default_factory=list[str])
    in_use: list[str] = field(default_factory=list[str])
    unowned: list[str] = field(default_factory=list[str])
    freed_bytes: int = 0


class _Use(NamedTuple):
    directory: str
    newest_s: float
    size_bytes: int


def collect(
    workspace: Workspace,
    *,
    older_than_s: float | None = None,
    keep: int | None = None,
    max_bytes: int | None = None,
    unowned: bool = False,
    grace_s: float = GRACE_S,
    dry_run: bool = True,
    on_progress: OnProgress | None = None,
) -> GcReport:
    """Remove sessions by age, count or size, and what nothing refers to. After a kill the next run does the rest.

    Args:
        workspace: On disk, or in memory.
        older_than_s: Remove sessions that nobody has written to for so long.
        keep: Keep at most so many, the newest.
        max_bytes: Keep the newest sessions that fit into so many bytes.
        unowned: Remove payloads that no session refers to, too, although no removed one did.
        grace_s: Nothing that was touched within so many seconds goes.
        dry_run: Change nothing; the report says what would go.
        on_progress: Called with the bytes of each piece that was read.

    Raises:
        NotFoundError: There is no workspace.
        CorruptError: A session cannot be read, so nobody knows what it refers to; no payload was removed.
    """
    disk = workspace.disk
    check_workspace(disk)
    now_s = time.time()
    sweep = _Sweep(disk, now_s - grace_s, dry_run=dry_run, on_progress=on_progress or (lambda _: None))
    sweep.put_back()
    uses = sorted((_use(disk, name) for name in directories_of(disk)), key=lambda use: -use.newest_s)
    total = 0
    for place, use in enumerate(uses):
        total += use.size_bytes
        if older_than_s is not None and now_s - use.newest_s > older_than_s:
            sweep.session(use, "age")
        elif keep is not None and place >= keep:
            sweep.session(use, "count")
        elif max_bytes is not None and total > max_bytes:
            sweep.session(use, "bytes")
    sweep.payloads(unowned=unowned)
    sweep.leftovers()
    return sweep.report


class _Sweep:
    def __init__(self, disk: Disk, before_s: float, *, dry_run: bool, on_progress: OnProgress) -> None:
        self._disk, self._before_s, self._dry_run, self._on_progress = disk, before_s, dry_run, on_progress
        self._going: set[str] = set()
        self.report = GcReport()

    def session(self, use: _Use, reason: str) -> None:
        """Put a session aside unless it is in use or too young."""
        if use.newest_s >= self._before_s:
            return
        session_id = session_id_in(self._disk, use.directory) or use.directory.rpartition("/")[2]
        hidden = use.directory if self._dry_run else self._hide(use)
        if hidden:
            self._going.add(hidden)
            for index in () if self._dry_run else self._disk.entries(layout.SEARCH):
                self._disk.remove(f"{layout.SEARCH}/{index}")  # it holds words of the session
            self.report.sessions.append((session_id, reason))
            self.report.freed_bytes += use.size_bytes
        else:
            self.report.in_use.append(session_id)

    def payloads(self, *, unowned: bool) -> None:
        """Remove payloads that no session needs, then the sessions that were put aside."""
        for entry in self._disk.entries(layout.SESSIONS, unfinished=True):
            if entry.startswith(_REMOVED):  # of an earlier run, too
                self._going.add(f"{layout.SESSIONS}/{entry}")
        needed = self._references(name for name in directories_of(self._disk) if name not in self._going)
        released = {name: self._references([name]) for name in self._going}
        owned, young = set[str]().union(*released.values()), set[str]()
        for entry in self._disk.entries(layout.DATA):
            name, digest = f"{layout.DATA}/{entry}", entry.partition(".")[0]
            if digest in needed or not layout.blob_behind(layout.reference_to(name)):
                continue
            if digest not in owned and not unowned:
                self.report.unowned.append(name)
            elif not self._is_old(name):
                young.add(digest)
            else:
                self._remove_payload(name)
        if self._dry_run:
            return
        self._disk.sync_directory(layout.DATA)
        for name, digests in released.items():
            if not digests & young:  # a later run finds there which payloads were released
                self._disk.remove(name)

    def leftovers(self) -> None:
        """Remove unfinished files, and results that no message names."""
        directories = [name for name in directories_of(self._disk) if name not in self._going]
        for directory in ("", layout.SESSIONS, layout.DATA, *directories):
            for name in self._disk.entries(directory, unfinished=True):
                if name.startswith(layout.TEMPORARY) and not name.startswith((_REMOVED, _GONE)):
                    self._remove_old(f"{directory}/{name}".lstrip("/"))
        for directory in directories:
            stored = [name for name in self._disk.entries(directory) if layout.is_stored_name(name)]
            if not any(self._is_old(f"{directory}/{name}") for name in stored):
                continue
            with suppress(LockTimeout), self._disk.locked(f"{directory}/{layout.CONTEXT}", 0.0):
                session = session_in(self._disk, directory)
                session.load()
                for name in sorted(set(stored) - named_by(session).files.keys()):
                    self._remove_old(f"{directory}/{name}")

    def put_back(self) -> None:
        """Undo what a run that was killed has begun with a payload."""
        for entry in self._disk.entries(layout.DATA, unfinished=True):
            if entry.startswith(_GONE) and not self._dry_run:
                self._disk.publish(
                    f"{layout.DATA}/{entry.removeprefix(_GONE)}", self._disk.chunks(f"{layout.DATA}/{entry}")
                )
                self._disk.remove(f"{layout.DATA}/{entry}")

    def _hide(self, use: _Use) -> str:
        """Rename a session unless a writer holds it or has used it since; return its new name."""
        hidden = f"{layout.SESSIONS}/{_REMOVED}{time.time_ns()}"
        try:
            with self._disk.locked(f"{use.directory}/{layout.CONTEXT}", 0.0):
                if _use(self._disk, use.directory) != use:
                    return ""
                self._disk.rename(use.directory, hidden)
        except LockTimeout:
            return ""
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            self._disk.rename(use.directory, hidden)  # it has no log: a creation that was killed
        return hidden

    def _references(self, directories: Iterable[str]) -> set[str]:
        """Return the digests of all payloads that any file below *directories* names."""
        found: set[str] = set()
        for name in (name for directory in directories for name in walk(self._disk, directory)):
            rest = b""
            try:
                for chunk in self._disk.chunks(name):
                    found.update(digest.decode() for digest in DIGEST.findall(rest + chunk))
                    rest = chunk[-_LONGEST_MATCH_BYTES:]
                    self._on_progress(len(chunk))
            except StorageError as error:
                if error.errno != errno.ENOENT:  # a leftover that got its name meanwhile
                    reason = "cannot be read, so nobody knows which payloads it needs; run `buoyline verify`"
                    raise CorruptError(self._disk.path(name), reason) from error
        return found

    def _remove_payload(self, name: str) -> None:
        """Remove a payload unless it was touched since; a writer that stores it meanwhile publishes it again."""
        status = self._disk.status(name)
        aside = f"{layout.DATA}/{_GONE}{name.rpartition('/')[2]}"
        if not self._dry_run:
            self._disk.rename(name, aside)
            if not self._is_old(aside):
                self._disk.publish(name, self._disk.chunks(aside))
                status = None
            self._disk.remove(aside)
        if status is not None:
            self.report.blobs.append(name)
            self.report.freed_bytes += status.size

    def _remove_old(self, name: str) -> None:
        if self._is_old(name):
            self.report.files.append(name)
            if not self._dry_run:
                self._disk.remove(name)

    def _is_old(self, name: str) -> bool:
        status = self._disk.status(name)
        return status is not None and status.mtime_ns / 1e9 < self._before_s


def _use(disk: Disk, directory: str) -> _Use:
    found = [status for name in walk(disk, directory) if (status := disk.status(name))]
    own = disk.status(directory)
    newest_ns = max((status.mtime_ns for status in found), default=own.mtime_ns if own else 0)
    return _Use(directory, newest_ns / 1e9, sum(status.size for status in found))
