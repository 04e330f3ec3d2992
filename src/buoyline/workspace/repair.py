"""What can be mended in a workspace is mended: from what is there, and from a copy.

Copies and sets aside, and never deletes: what stood in the place of what was mended is in a ``torn/``. Source:
docs/format.md, "Repair".
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from buoyline.errors import BuoylineError, FormatVersionError
from buoyline.workspace import layout
from buoyline.workspace.document import new_document
from buoyline.workspace.local import LocalWorkspace
from buoyline.workspace.mending import Action, Mender, digest_of
from buoyline.workspace.restoring import index_of
from buoyline.workspace.session_repair import SessionRepair
from buoyline.workspace.verification import Finding, Report, verify

_LOCK_TIMEOUT_S = 30.0
# Behind a directory that cannot be entered there may be another one.
_MODE_ROUNDS = 4
# Only what is restored shows what rests on it: a result its view, a journal the blobs.
_ROUNDS = 4

Progress = Callable[[int, int], None]
"""Is told how many bytes were read so far, and how many there are to read."""


@dataclass(frozen=True, slots=True)
class Repair:
    """What a repair has done, and what it has left.

    Attributes:
        is_dry_run: Nothing was changed.
        actions: In the order in which they were done.
        remaining: Damage and warnings that are still there; in a dry run, those that no action is about.
    """

    is_dry_run: bool
    actions: tuple[Action, ...]
    remaining: tuple[Finding, ...]

    @property
    def is_mended(self) -> bool:
        """Tell whether no damage is left."""
        return all(found.severity != "damage" for found in self.remaining)


def repair(
    workspace: LocalWorkspace,
    *,
    sessions: Sequence[str] | None = None,
    copy: str | Path | None = None,
    dry_run: bool = False,
    lock_timeout_s: float = _LOCK_TIMEOUT_S,
    on_progress: Progress | None = None,
) -> Repair:
    """Mend what `verify` finds, as far as that is possible. Blocks; repeating it does no harm.

    Modes are set right, what a crash left is recovered, transcripts and views are derived again, and damaged blobs and
    tool results whose true bytes nobody has are set aside, so that they can be stored again. With a copy of the
    workspace, also blobs, results, archived messages, summaries, journals, windows and ``session.json`` are restored,
    wherever the copy has what a hash or a checksum here vouches for.

    Args:
        workspace: The one to mend.
        sessions: Ids of the sessions to mend, with the blobs that they refer to; None for all there is.
        copy: The directory of a copy of the workspace, of any age. It is only read.
        dry_run: Change nothing, and say what would be done.
        lock_timeout_s: How long to wait for a writer.
        on_progress: Called often while files are read; begins anew with each pass.

    Returns:
        What was done, and what is left. What could not be done is among the actions, too.

    Raises:
        NotFoundError: There is no workspace, or not one of *sessions*, or *copy* is none.
        FormatVersionError: A newer buoyline wrote *copy*.
        CorruptError: *copy* does not say which format it has.
        StorageError: The directory of the workspace cannot be listed.
    """
    source = None if copy is None else LocalWorkspace(copy)
    if source is not None:
        source.check()
    mender = Mender(workspace.tree, None if source is None else source.tree, is_dry_run=dry_run)
    if _is_newer(workspace):
        return _outcome(mender, verify(workspace, hashes=False))

    def look(*, hashes: bool = True) -> Report:
        return verify(workspace, sessions=sessions, hashes=hashes, on_progress=on_progress)

    _mend_format(mender, verify(workspace, sessions=(), hashes=False))
    _set_modes(mender, lambda: look(hashes=False))
    report = look()
    for _ in range(_ROUNDS):
        known = set(mender.actions)
        if any(found.path == layout.WORKSPACE_FILE and found.kind == "format" for found in report.findings):
            break
        _mend_all(mender, report, lock_timeout_s)
        if dry_run or set(mender.actions) == known:
            break
        report = look()
    return _outcome(mender, report)


def _is_newer(workspace: LocalWorkspace) -> bool:
    """Tell whether a newer buoyline wrote the workspace: then nobody here knows what is right."""
    try:
        workspace.check()
    except FormatVersionError:
        return True
    except BuoylineError:
        return False  # what it is, verify says
    return False


def _mend_format(mender: Mender, report: Report) -> None:
    name = layout.WORKSPACE_FILE
    kinds = {found.kind for found in report.findings if found.path == name}
    try:
        if mender.copy is not None and kinds & {"missing-file", "format"}:
            mender.put(name, mender.copy.chunks(name), "restored", "from a copy: it says which format this is")
        elif "missing-file" in kinds:
            mender.put(name, (new_document(),), "rebuilt", "as the next writer would have made it")
    except BuoylineError as error:
        mender.fail(name, error)


def _mend_all(mender: Mender, report: Report, lock_timeout_s: float) -> None:
    sources = _sources(mender)
    for directory, findings in _by_session(report).items():
        _mend_session(mender, directory, findings, sources, lock_timeout_s)
    _mend_blobs(mender, report, lock_timeout_s)


def _outcome(mender: Mender, report: Report) -> Repair:
    done = {action.path for action in mender.actions if action.verb not in {"failed", "set-aside"}}
    open_ones = [found for found in report.findings if found.severity != "note"]
    if mender.is_dry_run:
        open_ones = [found for found in open_ones if not _is_covered(found, done)]
        # A stub leads somewhere again once its result is back.
        lacking = {found.path.rpartition("/")[0] for found in open_ones if found.kind == "missing-result"}
        open_ones = [
            found for found in open_ones if found.kind != "dangling-stub" or found.path.rpartition("/")[0] in lacking
        ]
    return Repair(mender.is_dry_run, tuple(dict.fromkeys(mender.actions)), tuple(open_ones))


def _is_covered(found: Finding, done: set[str]) -> bool:
    recovered = {"unfinished-batch", "bad-last-record", "stale-transcript"}
    return found.path in done or (found.kind in recovered and found.path.rpartition("/")[0] in done)


def _set_modes(mender: Mender, look: Callable[[], Report]) -> None:
    tried: set[str] = set()
    for _ in range(_MODE_ROUNDS):
        wrong = [found.path for found in look().findings if found.kind == "wrong-mode" and found.path not in tried]
        for path in wrong:
            try:
                if not mender.is_dry_run:
                    mender.tree.set_mode(path)
                mender.say("mode", path, "is for its owner alone now")
            except BuoylineError as error:
                mender.fail(path, error)
        tried.update(wrong)
        if not wrong or mender.is_dry_run:
            return


def _by_session(report: Report) -> Mapping[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for finding in report.findings:
        parts = finding.path.split("/")
        is_foreign = finding.kind in {"foreign-entry", "leftover", "torn-bytes", "unchecked-lines"}
        if parts[0] == layout.SESSIONS and len(parts) > 1 and not is_foreign:
            found.setdefault("/".join(parts[:2]), []).append(finding)
    return found


def _mend_session(
    mender: Mender,
    directory: str,
    findings: Sequence[Finding],
    sources: Callable[[str], Sequence[str]],
    lock_timeout_s: float,
) -> None:
    try:
        if mender.tree.is_directory(directory):
            SessionRepair(mender, directory, findings, sources, lock_timeout_s=lock_timeout_s).run()
    except BuoylineError as error:
        mender.fail(directory, error)


def _sources(mender: Mender) -> Callable[[str], Sequence[str]]:
    """Return a look-up of all tool results by their recorded hash, made when it is first needed."""
    known: dict[str, list[str]] = {}

    def look_up(digest: str) -> Sequence[str]:
        if not known:
            known[""] = []
            for path, recorded in _recorded(mender):
                known.setdefault(recorded, []).append(path)
        return known.get(digest, ())

    return look_up


def _recorded(mender: Mender) -> Iterator[tuple[str, str]]:
    tree = mender.tree
    for name in tree.names(layout.SESSIONS):
        journal = f"{layout.SESSIONS}/{name}/{layout.JOURNAL_FILE}"
        if tree.size(journal) is not None:
            for result, record in index_of(tree.read(journal)).results.items():
                yield f"{layout.SESSIONS}/{name}/{result}", record["sha256"]


def _mend_blobs(mender: Mender, report: Report, lock_timeout_s: float) -> None:
    kinds = {"missing-blob", "changed-bytes"}
    paths = [found.path for found in report.findings if found.kind in kinds and layout.digest_in(found.path)]
    if not paths:
        return
    try:
        if mender.is_dry_run:
            _mend_each(mender, paths)
            return
        mender.tree.make_directory(layout.LOCKS)
        # Who stores a blob takes one that is there for whole: nobody may do so while it is exchanged.
        with mender.tree.lock(layout.GC_LOCK, lock_timeout_s):
            _mend_each(mender, paths)
    except BuoylineError as error:
        mender.fail(layout.DATA, error)


def _mend_each(mender: Mender, paths: Sequence[str]) -> None:
    for path in dict.fromkeys(paths):
        try:
            _mend_blob(mender, path)
        except BuoylineError as error:
            mender.fail(path, error)


def _mend_blob(mender: Mender, path: str) -> None:
    digest = layout.digest_in(path) or ""
    found = digest_of(mender.tree, path)
    if found == digest:
        return
    for tree in (mender.copy, mender.tree):
        names = tree.names(layout.DATA) if tree is not None else []
        for name in (f"{layout.DATA}/{name}" for name in names if name.startswith(digest)):
            if tree is not None and (tree, name) != (mender.tree, path) and mender.put_from(path, tree, name, digest):
                return
    if found is not None:
        mender.set_aside(path)
