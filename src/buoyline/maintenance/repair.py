"""Repairs a workspace as far as possible: from its own files, and from a copy.

Repair never deletes: replaced bytes are moved to a ``torn/`` directory. Source: docs/format.md, "Repair".
"""

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from buoyline.errors import BuoylineError, CorruptError, FormatVersionError, MessageError, NotFoundError
from buoyline.maintenance.restore import (
    better_journal,
    better_window,
    index_of,
    is_foldable,
    with_adopted,
    with_extents,
)
from buoyline.maintenance.verify import IntegrityFinding, IntegrityReport, verify
from buoyline.maintenance.verify.workspace import Progress
from buoyline.messages.jsonl import is_object, parse
from buoyline.messages.times import now
from buoyline.offloader.transcript import blank_lines
from buoyline.offloader.view import view_of
from buoyline.previews.source import decoded
from buoyline.workspace import Files, StoredSession, layout, summary_facts
from buoyline.workspace.batches import messages_of, rendered, transcript_bytes
from buoyline.workspace.index import Index
from buoyline.workspace.journal import Batch, ByteRange
from buoyline.workspace.local import LocalWorkspace
from buoyline.workspace.root_files import new_workspace_file
from buoyline.workspace.stored_session import is_directory_of

Verb: TypeAlias = Literal["restored", "rebuilt", "recovered", "set-aside", "failed"]

_LOCK_TIMEOUT_S = 30.0
# A restored file shows what else is missing: a result its view, a journal the blobs.
_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class RepairAction:
    """One thing that repair did, or would do.

    Attributes:
        verb: ``restored``: from a copy. ``rebuilt``: derived again. ``recovered``: as the next writer would have.
            ``set-aside``: moved to a ``torn/``, since the copy does not have the true bytes. ``failed``: could not be
            done.
        path: Relative to the workspace.
        message: For people.
    """

    verb: Verb
    path: str
    message: str


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What a repair did, in order, and the damage and warnings that remain; in a dry run, those without an action."""

    is_dry_run: bool
    actions: tuple[RepairAction, ...]
    remaining: tuple[IntegrityFinding, ...]

    @property
    def is_repaired(self) -> bool:
        """Whether no damage is left."""
        return all(found.severity != "damage" for found in self.remaining)


def repair(
    workspace: LocalWorkspace,
    *,
    sessions: Sequence[str] | None = None,
    copy: str | Path | None = None,
    dry_run: bool = False,
    lock_timeout_s: float = _LOCK_TIMEOUT_S,
    on_progress: Progress | None = None,
) -> RepairReport:
    """Repair what `verify` finds, as far as possible. Blocks; it is safe to repeat.

    Repair runs a writer's recovery, and derives transcripts and views again. Damaged blobs and tool results
    whose true bytes nobody has are set aside, so that they can be stored again. From a copy of the workspace it also
    restores blobs, results, archived messages, summaries, journals, windows and ``session.json``: all bytes of the copy
    that match a hash or a checksum here.

    Args:
        workspace: The workspace to repair.
        sessions: Ids of the sessions to repair, with the blobs that they refer to; None for all.
        copy: The directory of a copy of the workspace, of any age. It is only read.
        dry_run: Change nothing, and report what would be done.
        lock_timeout_s: How long to wait for a writer.
        on_progress: Called often while files are read; starts again with each pass.

    Returns:
        What was done, and what is left. Failures are among the actions.

    Raises:
        NotFoundError: There is no workspace, or it lacks one of *sessions*, or *copy* is not a workspace.
        FormatVersionError: A newer buoyline wrote *copy*.
        CorruptError: *copy* does not say which format it has.
        StorageError: The directory of the workspace cannot be listed.
    """
    source = None if copy is None else LocalWorkspace(copy)
    if source is not None:
        try:
            source.check()
        except NotFoundError as error:
            raise NotFoundError("copy of a workspace", error.name, "name its directory") from error
    repairer = Repairer(workspace, None if source is None else source.files, is_dry_run=dry_run)
    try:
        workspace.check()
    except FormatVersionError:  # a newer buoyline wrote it, and this one does not know what is right
        return _outcome(repairer, verify(workspace, hashes=False))
    except BuoylineError:
        pass  # verify reports it

    def look() -> IntegrityReport:
        return verify(workspace, sessions=sessions, on_progress=on_progress)

    _repair_format(repairer, verify(workspace, sessions=(), hashes=False))
    report = look()
    for _ in range(_ROUNDS):
        known = set(repairer.actions)
        if any(found.path == layout.WORKSPACE_FILE and found.kind == "format" for found in report.findings):
            break
        _repair_sessions(repairer, report, lock_timeout_s)
        _repair_blobs(repairer, report, lock_timeout_s)
        if dry_run or set(repairer.actions) == known:
            break
        report = look()
    return _outcome(repairer, report)


def _outcome(repairer: "Repairer", report: IntegrityReport) -> RepairReport:
    remaining = [found for found in report.findings if found.severity != "note"]
    if repairer.is_dry_run:
        done = {action.path for action in repairer.actions if action.verb not in {"failed", "set-aside"}}
        recovered = {"unfinished-batch", "bad-last-record", "stale-transcript"}
        remaining = [
            found
            for found in remaining
            if found.path not in done and not (found.kind in recovered and found.path.rpartition("/")[0] in done)
        ]
        # A stub is no longer dangling once its result is restored.
        lacking = {found.path.rpartition("/")[0] for found in remaining if found.kind == "missing-result"}
        remaining = [
            found for found in remaining if found.kind != "dangling-stub" or found.path.rpartition("/")[0] in lacking
        ]
    return RepairReport(repairer.is_dry_run, tuple(dict.fromkeys(repairer.actions)), tuple(remaining))


def _repair_format(repairer: "Repairer", report: IntegrityReport) -> None:
    name = layout.WORKSPACE_FILE
    kinds = {found.kind for found in report.findings if found.path == name}
    with repairer.failures(name):
        if repairer.copy is not None and kinds & {"missing-file", "format"}:
            repairer.put(name, repairer.copy.chunks(name), "restored", "from a copy: it says which format this is")
        elif "missing-file" in kinds:
            repairer.put(name, (new_workspace_file(),), "rebuilt", "as the next writer would have made it")


def _repair_sessions(repairer: "Repairer", report: IntegrityReport, lock_timeout_s: float) -> None:
    by_session: dict[str, list[IntegrityFinding]] = {}
    for finding in report.findings:
        parts = finding.path.split("/")
        is_left = finding.kind in {"leftover", "torn-bytes", "unchecked-lines"}
        if parts[0] == layout.SESSIONS and len(parts) > 1 and not is_left:
            by_session.setdefault("/".join(parts[:2]), []).append(finding)
    for directory, findings in by_session.items():
        with repairer.failures(directory):
            if repairer.files.is_directory(directory):
                SessionRepair(repairer, directory, findings, lock_timeout_s=lock_timeout_s).run()


def _repair_blobs(repairer: "Repairer", report: IntegrityReport, lock_timeout_s: float) -> None:
    kinds = {"missing-blob", "changed-bytes"}
    paths = [found.path for found in report.findings if found.kind in kinds and layout.digest_in(found.path)]
    if not paths:
        return
    # A writer uses an existing blob without reading it, which must not happen while the blob is replaced.
    lock = nullcontext() if repairer.is_dry_run else repairer.upkeep.blobs_locked(lock_timeout_s)
    with repairer.failures(layout.DATA), lock:
        for path in dict.fromkeys(paths):
            with repairer.failures(path):
                _repair_blob(repairer, path)


def _repair_blob(repairer: "Repairer", path: str) -> None:
    digest = layout.digest_in(path) or ""
    found = digest_of(repairer.files, path)
    if found == digest:
        return
    if not repairer.put_from_copy(path, digest) and found is not None:
        repairer.set_aside(path)


class Repairer:
    """Changes files of a workspace, and records each change in `actions`; in a dry run it only records them.

    A file is replaced as a whole, after its old bytes were set aside.
    """

    def __init__(self, workspace: LocalWorkspace, copy: Files | None, *, is_dry_run: bool) -> None:
        """Change files in *workspace*; *copy* has those of a copy, if there is one."""
        self.files: Files = workspace.files
        self.upkeep = workspace.upkeep
        self.copy = copy
        self.is_dry_run = is_dry_run
        self.actions: list[RepairAction] = []

    def note(self, verb: Verb, path: str, message: str) -> None:
        """Record an action."""
        self.actions.append(RepairAction(verb, path, message))

    @contextmanager
    def failures(self, path: str) -> Generator[None]:
        """Record an error within the block as a failed action, and go on behind the block."""
        try:
            yield
        except BuoylineError as error:
            self.note("failed", path, str(error))

    def put(self, path: str, chunks: Iterable[bytes], verb: Verb, message: str) -> None:
        """Write *chunks* as file *path*; an existing file is set aside.

        Raises:
            StorageError: The file system refused; the old file is in its place.
        """
        if not self.is_dry_run:
            self.keep(path)
            self.upkeep.replace(path, chunks)
        self.note(verb, path, message)

    def put_from_copy(self, path: str, digest: str) -> bool:
        """Write file *path* of the copy; False if there is no copy, or its SHA-256 there is not *digest*.

        Raises:
            StorageError: The file system refused; the old file is in its place.
            CorruptError: The copy changed meanwhile.
        """
        copy = self.copy
        if copy is None or digest_of(copy, path) != digest:
            return False

        def verified() -> Iterator[bytes]:
            copied = hashlib.sha256()
            for chunk in copy.chunks(path):
                copied.update(chunk)
                yield chunk
            if copied.hexdigest() != digest:
                raise CorruptError(copy.path(path), "has changed while it was copied; repeat the repair")

        self.put(path, verified(), "restored", "from a copy: its bytes have the recorded hash")
        return True

    def set_aside(self, path: str) -> None:
        """Move a damaged file to ``torn/``, so that a writer that stores the true bytes finds the name free.

        Raises:
            StorageError: The file system refused; the file is in its place.
        """
        if not self.is_dry_run:
            self.keep(path)
            self.upkeep.remove(path)
        self.note("set-aside", path, f"its bytes are damaged; they are in {layout.TORN}/ beside it")

    def keep(self, path: str) -> None:
        """Copy file *path* to ``torn/`` before it is changed.

        Raises:
            StorageError: The file system refused.
        """
        digest = None if self.is_dry_run else digest_of(self.files, path)
        if digest is not None:
            self.upkeep.set_aside(path, digest)


def digest_of(files: Files, path: str) -> str | None:
    """Return the SHA-256 of file *path*; None if there is no such file.

    Raises:
        StorageError: It cannot be read.
    """
    if files.size(path) is None:
        return None
    digest = hashlib.sha256()
    for chunk in files.chunks(path):
        digest.update(chunk)
    return digest.hexdigest()


_RECOVERED = frozenset(
    {"torn-tail", "torn-transcript", "unfinished-batch", "bad-last-record", "bad-record", "stale-transcript"}
)
"""Findings that the recovery of the next writer handles."""

_UNREMARKABLE = frozenset({"torn-tail", "torn-transcript", "stale-view", "orphan-view", "unrecorded-result"})
"""Findings after which the transcript needs no copy in ``torn/``."""


class SessionRepair:
    """Repairs one session under its lock: first what only a copy has, then what can be derived."""

    def __init__(
        self,
        repairer: Repairer,
        directory: str,
        findings: Sequence[IntegrityFinding],
        *,
        lock_timeout_s: float,
    ) -> None:
        """Repair *findings* of the session in *directory*."""
        self._repairer = repairer
        self._files = repairer.files
        self._directory = directory
        self._kinds = {(found.path.removeprefix(f"{directory}/"), found.kind) for found in findings}
        self._lock_timeout_s = lock_timeout_s
        self._journal: bytes | None = None
        self._index = Index()

    def run(self) -> None:
        """Repair all that can be repaired; a failure is recorded, and the next step follows.

        Raises:
            BuoylineError: It is not known whose session this is, or it cannot be locked.
        """
        repairer, session_id = self._repairer, self._session_id()
        lock = repairer.upkeep.session_locked(session_id, self._lock_timeout_s)
        with nullcontext() if repairer.is_dry_run else lock:
            copy, owner = repairer.copy, self._path(layout.SESSION_FILE)
            if _id_in(self._files, self._directory) is None and copy is not None:
                repairer.put(owner, copy.chunks(owner), "restored", "from a copy: it names this session")
            before = len(repairer.actions)
            with repairer.failures(self._directory):
                self._restore_journal()
            self._index = index_of(self._journal or b"")
            for step in (self._restore_archive, self._restore_window, self._restore_results):
                with repairer.failures(self._directory):
                    step()
            has_restored = len(repairer.actions) > before
        with repairer.failures(self._directory):
            self._derive(session_id, has_restored=has_restored)

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _session_id(self) -> str:
        path = self._files.path(self._path(layout.SESSION_FILE))
        document = _document(self._files, self._directory)
        if (layout.SESSION_FILE, "format") in self._kinds and is_object(document):
            version = document.get("format")
            if isinstance(version, int) and version > layout.FORMAT:
                raise FormatVersionError(path, version, layout.FORMAT)
        for files in (self._files, self._repairer.copy):
            found = None if files is None else _id_in(files, self._directory)
            if found is not None:
                return found
        raise CorruptError(path, "does not say whose session this is; name a copy that does")

    def _of_copy(self, name: str) -> bytes | None:
        """Return a file of the same session in the copy; None if the copy's session was created at another time."""
        copy, owner = self._repairer.copy, self._path(layout.SESSION_FILE)
        if copy is None or _id_in(copy, self._directory) is None:
            return None
        if _id_in(self._files, self._directory) is not None and _content(copy, owner) != _content(self._files, owner):
            return None
        return _content(copy, self._path(name))

    def _restore_journal(self) -> None:
        name = self._path(layout.JOURNAL_FILE)
        here = self._journal = _content(self._files, name)
        there = self._of_copy(layout.JOURNAL_FILE)
        found = None if there is None else better_journal(here, there)
        if found is None:
            return
        if here is None or len(found) != len(here):
            # Of the messages that are younger than the copy, only their lines are known.
            context = _content(self._files, self._path(layout.CONTEXT_FILE)) or b""
            with suppress(MessageError):
                found = with_adopted(found, context[index_of(found).context_end :], now())
        if found != here:
            self._repairer.put(name, (found,), "restored", "from a copy: its records have their checksums")
            self._journal = found

    def _restore_archive(self) -> None:
        summaries = self._index.summaries
        self._restore_ranges(layout.CONTEXT_FILE, [batch.byte_range for batch in self._index.batches])
        self._restore_ranges(layout.SUMMARIES_FILE, summaries)
        for byte_range in summaries[-summary_facts.KEPT :]:  # of those before, nobody needs the facts
            self._restore_facts(byte_range)

    def _restore_ranges(self, name: str, byte_ranges: Sequence[ByteRange]) -> None:
        copy, path = self._repairer.copy, self._path(name)
        if copy is None or copy.size(path) is None:
            return
        here, there = _reader(self._files, path), _reader(copy, path)
        lost = [one for one in byte_ranges if not one.holds(here(one.offset, sum(one.sizes)))]
        found = [one for one in lost if one.holds(there(one.offset, sum(one.sizes)))]
        if found:
            message = f"from a copy: {len(found)} of {len(lost)} damaged parts, which have the recorded hashes there"
            self._repairer.put(path, with_extents(found, here, there, self._files.size(path) or 0), "restored", message)

    def _restore_facts(self, summary: ByteRange) -> None:
        copy, path = self._repairer.copy, self._path(layout.SUMMARIES_FILE)
        if copy is None:
            return
        # In a dry run, the line may still be damaged here.
        for files in (self._files, copy):
            line = _reader(files, path)(summary.offset, sum(summary.sizes))
            reference = summary_facts.reference_in(parse(line)) if summary.holds(line) else None
            if reference is not None:
                facts = self._path(reference.path)
                if digest_of(self._files, facts) != reference.sha256:
                    self._repairer.put_from_copy(facts, reference.sha256)
                return

    def _restore_window(self) -> None:
        there = self._of_copy(layout.WINDOW_FILE)
        if there is None or not self._index.windows:
            return
        path = self._path(layout.WINDOW_FILE)
        found = better_window(self._index, _content(self._files, path), there)
        if found is not None:
            self._repairer.put(path, (found,), "restored", "from a copy: it begins with what is recorded")

    def _restore_results(self) -> None:
        for name, record in self._index.results.items():
            path, digest = self._path(name), record["sha256"]
            # Without the true bytes, the changed result is kept: it can still be read, and `verify` reports it.
            if digest_of(self._files, path) != digest:
                self._repairer.put_from_copy(path, digest)

    def _derive(self, session_id: str, *, has_restored: bool) -> None:
        """Let a writer's recovery run, then derive the transcript and the stale views again."""
        repairer = self._repairer
        if self._journal is not None and not is_foldable(self._journal):
            raise CorruptError(
                self._files.path(self._path(layout.JOURNAL_FILE)),
                "has records of an unknown form, so nothing is derived from it; restore it from a copy",
            )
        if not repairer.is_dry_run and self._files.size(self._path(layout.CONTEXT_FILE)) is None:
            # A writer would begin an empty one, and the loss would no longer show.
            raise CorruptError(self._files.path(self._path(layout.CONTEXT_FILE)), "is gone; restore it from a copy")
        kinds = {kind for _, kind in self._kinds}
        is_lost = self._journal is None or (layout.TRANSCRIPT_FILE, "missing-file") in self._kinds
        is_needed = has_restored or is_lost or bool(kinds & _RECOVERED)
        views = [path for path, kind in self._kinds if kind == "stale-view"]
        if repairer.is_dry_run:
            if is_needed:
                repairer.note("recovered", self._directory, "the writer's recovery, and the rest of the transcript")
            for view in views:
                repairer.note("rebuilt", self._path(view), "from its result")
            return
        if not is_needed and not views:
            return
        transcript = StoredSession(self._files, session_id).name(layout.TRANSCRIPT_FILE)
        if has_restored or kinds - _UNREMARKABLE:
            # Recovery cuts the transcript without setting it aside, and it may be the only text of a damaged message.
            repairer.keep(transcript)
        old = _content(self._files, transcript) or b""
        with repairer.upkeep.recovered(session_id, self._lock_timeout_s) as session:
            index = session.index()
            done = "as the next writer would do it: all data in its journal is in place"
            repairer.note("recovered", self._directory, done)
            new = b"".join(_transcript(session, index, old))
            if new != _content(self._files, transcript):
                repairer.put(transcript, (new,), "rebuilt", "from the archive")
            for view in views:
                self._rebuild_view(session, index, view)

    def _rebuild_view(self, session: StoredSession, index: Index, name: str) -> None:
        record = index.results.get(layout.result_behind(name))
        if record is None or "view" not in record:
            return
        result = session.name(record["path"])
        view = (view_of(decoded(_content(self._files, result) or b"")) or "").encode("utf-8")
        # Stubs and citations count on these lines.
        if digest_of(self._files, result) == record["sha256"] and view.count(b"\n") == record["lines"]:
            self._repairer.put(session.name(record["view"]), (view,), "rebuilt", "from its result")


def _transcript(session: StoredSession, index: Index, old: bytes) -> Iterator[bytes]:
    """Yield the lines of each batch: rendered again, or else those of the *old* transcript, or else blank ones."""
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
        return transcript_bytes(rendered(messages_of(batch, content), batch.first, batch.times, index))
    except BuoylineError:
        return None


def _document(files: Files, directory: str) -> object:
    try:
        return parse(_content(files, f"{directory}/{layout.SESSION_FILE}") or b"null")
    except MessageError:
        return None


def _id_in(files: Files, directory: str) -> str | None:
    """Return the session id in a directory; None if the directory belongs to another session or does not say."""
    match _document(files, directory):
        case {"id": str(session_id), "format": int(version)} if session_id and 1 <= version <= layout.FORMAT:
            return session_id if is_directory_of(files, session_id, directory) else None
        case _:
            return None


def _content(files: Files, path: str) -> bytes | None:
    return None if files.size(path) is None else files.read(path)


def _reader(files: Files, path: str) -> Callable[[int, int], bytes]:
    def read(offset: int, size_bytes: int) -> bytes:
        return b"" if files.size(path) is None or size_bytes <= 0 else files.read(path, offset, size_bytes)

    return read
