"""``buoyline verify`` and ``buoyline repair``."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from buoyline.cli.options import json_option, workdir_option
from buoyline.cli.output import counted, print_answer, progress
from buoyline.maintenance.repair import RepairReport, repair
from buoyline.maintenance.verify import IntegrityFinding, IntegrityReport, verify
from buoyline.maintenance.verify.findings import SEVERITIES
from buoyline.workspace import LocalWorkspace

_FOUND = 1
_COLOURS: Final = {"damage": "red", "warning": "yellow"}


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
    print_answer(fields, _findings_in_words(report), _COLOURS, as_json=as_json)
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
    print_answer(fields, _repairs_in_words(done), _COLOURS, as_json=as_json)
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
