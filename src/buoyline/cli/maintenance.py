"""``buoyline verify``, ``repair`` and ``gc``."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from buoyline.cli.options import existing_workspace, json_option, workdir_option
from buoyline.cli.output import Duration, Size, counted, duration_in_words, how_long_ago, print_answer, progress
from buoyline.maintenance.gc import FileUsage, GcReport, Retention, collect
from buoyline.maintenance.repair import RepairReport, repair
from buoyline.maintenance.verify import IntegrityFinding, IntegrityReport, verify
from buoyline.maintenance.verify.findings import SEVERITIES
from buoyline.workspace import LocalWorkspace

_FOUND = 1


@click.command("verify")
@click.argument("sessions", metavar="[SESSION]...", nargs=-1)
@click.option("--structure-only", is_flag=True, help="Do not read contents: no hashes, no citations, much faster.")
@workdir_option
@json_option
def verify_command(sessions: Sequence[str], workdir: Path, *, structure_only: bool, as_json: bool) -> int:
    """Check the integrity of a workspace.

    All sessions and blobs are checked, or the named sessions and the blobs that they refer to. Nothing is changed.
    Damage: committed data is missing or altered. Warning: needs attention. Note: harmless leftovers.

    Exit status: 0 neither damage nor warning, 1 findings.

    Example: buoyline verify s1 --workdir ./workspace
    """
    workspace = LocalWorkspace(workdir)
    with progress("verify") as advance:
        report = verify(workspace, sessions=sessions or None, hashes=not structure_only, on_progress=advance)
    fields: dict[str, Any] = {
        "sound": report.is_sound,
        **{severity: report.count(severity) for severity in SEVERITIES},
        "sessions": report.sessions,
        "blobs": report.blobs,
        "bytes_read": report.bytes_read,
        "findings": [dataclasses.asdict(found) for found in report.findings],
    }
    print_answer(fields, _findings_in_words(report), as_json=as_json)
    return 0 if report.is_sound else _FOUND


def _findings_in_words(report: IntegrityReport) -> Iterator[str]:
    width = max((len(found.kind) for found in report.findings), default=0)
    for found in report.findings:
        yield f"{found.severity:<7}  {found.kind:<{width}}  {_location_of(found)}: {found.message}"
    others = ", ".join(counted(report.count(severity), severity) for severity in SEVERITIES if severity != "damage")
    sessions, blobs = counted(report.sessions, "session"), counted(report.blobs, "blob")
    counts = f"{report.count('damage'):,} damage, {others} in {sessions} and {blobs}"
    yield f"{counts}; {report.bytes_read:,} bytes read"
    if not report.is_sound:
        yield "`buoyline repair --dry-run` lists what can be repaired; with --from DIR it restores from a copy"


def _location_of(found: IntegrityFinding) -> str:
    """Return the place of a finding; if it has a line, in the form that `buoyline read` takes."""
    if found.line is not None:
        return f"{found.path}:{found.line}"
    return found.path if found.offset is None else f"{found.path} from byte {found.offset:,}"


@click.command("repair")
@click.argument("sessions", metavar="[SESSION]...", nargs=-1)
@click.option(
    "--from",
    "copy",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="A copy of the workspace, of any age; damaged and missing files are restored from it.",
)
@click.option("--dry-run", is_flag=True, help="Only print what would be done.")
@workdir_option
@json_option
def repair_command(sessions: Sequence[str], copy: Path | None, workdir: Path, *, dry_run: bool, as_json: bool) -> int:
    """Repair what verify finds, as far as possible.

    All sessions and blobs are repaired, or the named sessions and the blobs that they refer to. Nothing is deleted, so
    there is no --yes as in gc: replaced bytes are moved to torn/ beside the file. Only bytes that match a hash or a
    checksum are restored. If the disk is failing, copy the workspace first.

    Exit status: 0 no damage is left, 1 some is.

    Example: buoyline repair --from /backup/workspace --workdir ./workspace
    """
    workspace = LocalWorkspace(workdir)
    with progress("repair") as advance:
        done = repair(workspace, sessions=sessions or None, copy=copy, dry_run=dry_run, on_progress=advance)
    fields = {
        "mended": done.is_repaired,
        "dry_run": done.is_dry_run,
        "actions": [dataclasses.asdict(action) for action in done.actions],
        "remaining": [dataclasses.asdict(found) for found in done.remaining],
    }
    print_answer(fields, _repairs_in_words(done), as_json=as_json)
    return 0 if done.is_repaired else _FOUND


def _repairs_in_words(done: RepairReport) -> Iterator[str]:
    for action in done.actions:
        yield f"{action.verb:<9}  {action.path}: {action.message}"
    for found in done.remaining:
        yield f"left       {found.severity}  {found.kind}  {_location_of(found)}: {found.message}"
    damage = sum(found.severity == "damage" for found in done.remaining)
    left = f"{damage:,} damage and {counted(len(done.remaining) - damage, 'warning')}"
    actions = counted(len(done.actions), "action")
    if done.is_dry_run:
        yield f"nothing was changed (--dry-run): {actions} to take, {left} would be left"
    else:
        yield f"{actions}, {left} left"


@click.command("gc")
@click.option(
    "--older-than", type=Duration(), metavar="TIME", help="Remove sessions that were last active longer ago, e.g. 30d."
)
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="Remove all but the N newest sessions.")
@click.option(
    "--max-bytes",
    type=Size(),
    metavar="SIZE",
    help="Remove the oldest sessions until the rest takes at most this, e.g. 10GB.",
)
@click.option(
    "--grace",
    type=Duration(),
    default="24h",
    show_default=True,
    metavar="TIME",
    help="Keep sessions, blobs and leftovers that were modified within this time.",
)
@click.option(
    "--yes/--dry-run",
    "is_confirmed",
    default=False,
    help="Remove, or only print what would be removed.  [default: dry-run]",
)
@workdir_option
@json_option
def gc_command(
    older_than: float | None,
    keep: int | None,
    max_bytes: int | None,
    grace: float,
    workdir: Path,
    *,
    is_confirmed: bool,
    as_json: bool,
) -> int:
    """Remove old sessions, crash leftovers and orphaned blobs.

    Without --yes, it only prints what would be removed: this cannot be undone. A session is removed if it exceeds any
    limit. Without limits, only crash leftovers and orphaned blobs are removed. A blob that a session refers to is
    always kept. If a session cannot be read, nothing is removed; a session in use is kept.

    Exit status: 0 done, 1 nothing could be removed safely, or a session in use was kept.

    Example: buoyline gc --older-than 30d --yes
    """
    workspace = existing_workspace(workdir)
    retention = Retention(max_age_s=older_than, max_sessions=keep, max_bytes=max_bytes)
    with progress("gc") as advance:
        found = collect(
            workspace,
            retention,
            grace_s=grace,
            dry_run=not is_confirmed,
            on_progress=None if advance is None else advance.more,
        )
    fields: dict[str, Any] = {
        "dry_run": found.is_dry_run,
        "freed_bytes": found.freed_bytes,
        "session_bytes": found.session_bytes,
        "sessions": [
            {
                "id": expired.session.session_id,
                "reason": expired.reason,
                "last_active": expired.session.last_active,
                "size_bytes": expired.session.size_bytes,
            }
            for expired in found.sessions
        ],
        **{
            name: [dataclasses.asdict(swept) for swept in getattr(found, name)]
            for name in ("blobs", "leftovers", "young", "unowned")
        },
        "recent": list(found.recent),
        "locked": list(found.locked),
    }
    print_answer(fields, _gc_in_words(found, retention), as_json=as_json)
    return _FOUND if found.locked else 0


def _gc_in_words(found: GcReport, retention: Retention) -> Iterator[str]:
    reasons = {
        "age": f"older than {duration_in_words(retention.max_age_s or 0)}",
        "count": f"not among the {counted(retention.max_sessions or 0, 'newest session')}",
        "bytes": f"the oldest of more than {retention.max_bytes or 0:,} bytes",
    }
    for expired in found.sessions:
        session, reason = expired.session, reasons[expired.reason]
        active = how_long_ago(session.last_active)
        yield f"session   {session.session_id}: {session.size_bytes:,} bytes, last active {active}, {reason}"
    for kind, swept in (("blob", found.blobs), ("leftover", found.leftovers)):
        yield from (f"{kind:<8}  {one.path}: {one.size_bytes:,} bytes" for one in swept)
    for session_id in found.locked:
        yield f"locked    {session_id}: a writer is at work, so it is kept; repeat later"
    if found.recent:
        yield f"{counted(len(found.recent), 'session')}, kept: over a limit, but active within --grace"
    if found.young:
        yield f"{_sum(found.young)}, kept for now: no session refers to them, but they were modified within --grace"
    if found.unowned:
        yield f"{_sum(found.unowned)}, kept: no session ever referred to them"
    if retention.max_bytes is not None and found.session_bytes > retention.max_bytes:
        yield f"the sessions that are kept take {found.session_bytes:,} bytes, more than {retention.max_bytes:,}"
    if found.sessions or found.blobs or found.leftovers:
        verb = "would be freed; --yes removes this" if found.is_dry_run else "freed"
        sessions, blobs = counted(len(found.sessions), "session"), counted(len(found.blobs), "blob")
        yield f"{sessions}, {blobs}, {counted(len(found.leftovers), 'leftover')}: {found.freed_bytes:,} bytes {verb}"
    else:
        yield "nothing was removed" if found.locked else "nothing to remove"


def _sum(swept: Sequence[FileUsage]) -> str:
    return f"{counted(len(swept), 'blob')} of {sum(one.size_bytes for one in swept):,} bytes"
