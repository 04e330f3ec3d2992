"""``buoyline verify``."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from buoyline.cli.options import json_option, workdir_option
from buoyline.cli.output import counted, print_json, print_report, progress
from buoyline.maintenance.verify import IntegrityFinding, IntegrityReport, verify
from buoyline.maintenance.verify.findings import SEVERITIES, Severity
from buoyline.workspace import LocalWorkspace

_FOUND = 1
COLOURS: Final = {"damage": "red", "warning": "yellow"}


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
        report = verify(
            workspace,
            sessions=sessions or None,
            hashes=not structure_only,
            on_progress=advance,
        )
    if as_json:
        print_json(_fields(report))
    else:
        print_report(_in_words(report), COLOURS)
    return 0 if report.is_sound else _FOUND


def _fields(report: IntegrityReport) -> dict[str, Any]:
    return {
        "sound": report.is_sound,
        **{severity: report.count(severity) for severity in SEVERITIES},
        "sessions": report.sessions,
        "blobs": report.blobs,
        "bytes_read": report.bytes_read,
        "findings": [dataclasses.asdict(found) for found in report.findings],
    }


def _in_words(report: IntegrityReport) -> Iterator[str]:
    width = max((len(found.kind) for found in report.findings), default=0)
    for found in report.findings:
        yield f"{found.severity:<7}  {found.kind:<{width}}  {location_of(found)}: {found.message}"
    counts = ", ".join(_count(report, severity) for severity in SEVERITIES)
    sessions, blobs = counted(report.sessions, "session"), counted(report.blobs, "blob")
    yield f"{counts} in {sessions} and {blobs}; {report.bytes_read:,} bytes read"
    if not report.is_sound:
        yield "`buoyline repair --dry-run` lists what can be repaired; with --from DIR it restores from a copy"


def location_of(found: IntegrityFinding) -> str:
    """Return the place of a finding; if it has a line, in the form that `buoyline read` takes."""
    if found.line is not None:
        return f"{found.path}:{found.line}"
    return found.path if found.offset is None else f"{found.path} from byte {found.offset:,}"


def _count(report: IntegrityReport, severity: Severity) -> str:
    count = report.count(severity)
    return f"{count:,} damage" if severity == "damage" else counted(count, severity)
