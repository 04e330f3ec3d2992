"""``buoyline verify``, ``repair`` and ``gc``."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from buoyline.cli.output import (
    Duration,
    Size,
    counted,
    duration_in_words,
    existing_workspace,
    json_option,
    print_answer,
    progress,
    workdir_option,
)
from buoyline.maintenance.gc import GcReport, collect
from buoyline.maintenance.repair import RepairReport, repair
from buoyline.maintenance.verify import IntegrityReport, verify
from buoyline.workspace import LocalWorkspace

_FOUND = 1


@click.command("verify")
@click.argument("sessions", metavar="[SESSION]...", nargs=-1)
@workdir_option
@json_option
def verify_command(sessions: Sequence[str], workdir: Path, *, as_json: bool) -> int:
    """Check the integrity of a workspace.

    All sessions and payloads are checked, or the named sessions and the payloads that they refer to. Nothing is
    changed. Damage: what was acknowledged is missing or altered. Note: what crashes and time leave.

    Exit status: 0 no damage, 1 damage.

    Example: buoyline verify s1 --workdir ./workspace
    """
    workspace = existing_workspace(workdir)
    with progress("verify") as advance:
        report = verify(workspace, sessions or None, on_progress=None if advance is None else advance.more)
    fields = {
        "sound": report.is_sound,
        "damage": _count(report, "damage"),
        "note": _count(report, "note"),
        "sessions": report.sessions,
        "blobs": report.blobs,
        "bytes_read": report.bytes_read,
        "findings": [{"severity": found.severity, **dataclasses.asdict(found)} for found in report.findings],
    }
    print_answer(fields, _findings_in_words(report), as_json=as_json)
    return 0 if report.is_sound else _FOUND


def _count(report: IntegrityReport, severity: str) -> int:
    return sum(found.severity == severity for found in report.findings)


def _findings_in_words(report: IntegrityReport) -> Iterator[str]:
    yield from map(str, report.findings)
    notes = counted(_count(report, "note"), "note")
    place = f"{counted(report.sessions, 'session')} and {counted(report.blobs, 'blob')}"
    yield f"{_count(report, 'damage'):,} damage, {notes} in {place}; {report.bytes_read:,} bytes read"
    if not report.is_sound:
        yield "`buoyline repair --dry-run` lists what can be repaired; with --from DIR it restores from a copy"


@click.command("repair")
@click.option(
    "--from",
    "copy",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIR",
    help="A copy of the workspace, of any age; damaged and missing files are restored from it.",
)
@click.option("--dry-run", is_flag=True, help="Only print what would be done.")
@workdir_option
@json_option
def repair_command(copy: Path | None, workdir: Path, *, dry_run: bool, as_json: bool) -> int:
    """Repair what verify finds, as far as possible.

    Nothing is deleted: replaced bytes are moved to torn/ beside the file. Only bytes that match a hash or a checksum
    are restored. A message that is lost leaves a placeholder. If the disk is failing, copy the workspace first.

    Exit status: 0 no damage is left, 1 some is.

    Example: buoyline repair --from /backup/workspace --workdir ./workspace
    """
    workspace = LocalWorkspace(workdir)
    done = repair(workspace, None if copy is None else LocalWorkspace(copy), dry_run=dry_run)
    fields = {
        "repaired": done.remaining.is_sound,
        "dry_run": dry_run,
        "actions": [dataclasses.asdict(action) for action in done.actions],
        "remaining": [{"severity": found.severity, **dataclasses.asdict(found)} for found in done.remaining.findings],
    }
    print_answer(fields, _repairs_in_words(done, dry_run=dry_run), as_json=as_json)
    return 0 if done.remaining.is_sound else _FOUND


def _repairs_in_words(done: RepairReport, *, dry_run: bool) -> Iterator[str]:
    yield from (f"{action.path}: {action.what}" for action in done.actions)
    actions = counted(len(done.actions), "action")
    if dry_run:
        yield f"nothing was changed (--dry-run): {actions} to take"
        return
    yield from (f"left  {found}" for found in done.remaining.findings)
    yield f"{actions}, {_count(done.remaining, 'damage'):,} damage left"


@click.command("gc")
@click.option(
    "--older-than", type=Duration(), metavar="TIME", help="Remove sessions that were last written to longer ago: 30d."
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
    help="Keep what was written or touched within this time.",
)
@click.option("--unowned", is_flag=True, help="Also remove payloads that no session ever referred to.")
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
    unowned: bool,
    is_confirmed: bool,
    as_json: bool,
) -> int:
    """Remove old sessions, leftovers and payloads that nothing needs.

    Without --yes, it only prints what would be removed: this cannot be undone. A session is removed if it exceeds any
    limit. Without limits, only leftovers and payloads of removed sessions go. A session in use is kept. If a session
    cannot be read, no payload is removed.

    Exit status: 0 done, 1 a session in use was kept.

    Example: buoyline gc --older-than 30d --yes
    """
    workspace = existing_workspace(workdir)
    with progress("gc") as advance:
        found = collect(
            workspace,
            older_than_s=older_than,
            keep=keep,
            max_bytes=max_bytes,
            unowned=unowned,
            grace_s=grace,
            dry_run=not is_confirmed,
            on_progress=None if advance is None else advance.more,
        )
    reasons = {
        "age": f"older than {duration_in_words(older_than or 0)}",
        "count": f"not among the {counted(keep or 0, 'newest session')}",
        "bytes": f"the oldest of more than {max_bytes or 0:,} bytes",
    }
    fields = {"dry_run": not is_confirmed, **dataclasses.asdict(found)}
    print_answer(fields, _gc_in_words(found, reasons, is_done=is_confirmed), as_json=as_json)
    return _FOUND if found.in_use else 0


def _gc_in_words(found: GcReport, reasons: dict[str, str], *, is_done: bool) -> Iterator[str]:
    yield from (f"session   {session_id}: {reasons[reason]}" for session_id, reason in found.sessions)
    yield from (f"blob      {name}" for name in found.blobs)
    yield from (f"leftover  {name}" for name in found.files)
    yield from (
        f"in use    {session_id}: a writer is at work, so it is kept; repeat later" for session_id in found.in_use
    )
    if found.unowned:
        yield f"{counted(len(found.unowned), 'blob')}, kept: no session ever referred to them; --unowned removes them"
    if found.sessions or found.blobs or found.files:
        verb = "freed" if is_done else "would be freed; --yes removes this"
        sessions, blobs = counted(len(found.sessions), "session"), counted(len(found.blobs), "blob")
        yield f"{sessions}, {blobs}, {counted(len(found.files), 'leftover')}: {found.freed_bytes:,} bytes {verb}"
    else:
        yield "nothing to remove; sessions and files that were used within --grace stay"
