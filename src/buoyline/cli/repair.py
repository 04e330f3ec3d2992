"""``buoyline repair``."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from buoyline.cli.options import json_option, workdir_option
from buoyline.cli.output import counted, print_json, print_report, progress
from buoyline.cli.verify import COLOURS, location_of
from buoyline.maintenance.repair import RepairReport, repair
from buoyline.workspace import LocalWorkspace

_REMAINING = 1


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
    with progress("repair") as advance:
        done = repair(
            LocalWorkspace(workdir),
            sessions=sessions or None,
            copy=copy,
            dry_run=dry_run,
            on_progress=advance,
        )
    if as_json:
        print_json(_fields(done))
    else:
        print_report(_in_words(done), COLOURS)
    return 0 if done.is_repaired else _REMAINING


def _fields(done: RepairReport) -> dict[str, Any]:
    return {
        "mended": done.is_repaired,
        "dry_run": done.is_dry_run,
        "actions": [dataclasses.asdict(action) for action in done.actions],
        "remaining": [dataclasses.asdict(found) for found in done.remaining],
    }


def _in_words(done: RepairReport) -> Iterator[str]:
    for action in done.actions:
        yield f"{action.verb:<9}  {action.path}: {action.message}"
    for found in done.remaining:
        yield f"left       {found.severity}  {found.kind}  {location_of(found)}: {found.message}"
    damage = sum(found.severity == "damage" for found in done.remaining)
    left = f"{damage:,} damage and {counted(len(done.remaining) - damage, 'warning')}"
    actions = counted(len(done.actions), "action")
    if done.is_dry_run:
        yield f"nothing was changed (--dry-run): {actions} to take, {left} would be left"
    else:
        yield f"{actions}, {left} left"
