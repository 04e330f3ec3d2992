"""``buoyline sessions``."""

import dataclasses
from pathlib import Path

import click

from buoyline.cli.inventory import inventory_of, of_each
from buoyline.cli.options import existing_workspace, json_option, workdir_option
from buoyline.cli.output import columns, counted, print_json, print_problems, print_report, terminal_width
from buoyline.cli.units import how_long_ago
from buoyline.workspace import layout

_SHOWN_ON_A_TERMINAL = 50
_HEADINGS = ("session", "messages", "results", "bytes", "created")


@click.command("sessions")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="List only the N sessions that were last active.  [default: 50 on a terminal, else all]",
)
@workdir_option
@json_option
def sessions_command(limit: int | None, workdir: Path, *, as_json: bool) -> int:
    """List the sessions of a workspace.

    Exit status: 0 done, 1 a session is damaged and left out.

    Example: buoyline sessions --workdir ./workspace
    """
    workspace, width = existing_workspace(workdir), terminal_width()
    newest = _SHOWN_ON_A_TERMINAL if limit is None and width is not None and not as_json else limit
    sessions, refusals = of_each(workspace, inventory_of, newest)
    found = sessions.values()
    if as_json:
        print_json([{k: v for k, v in dataclasses.asdict(session).items() if k != "files"} for session in found])
    else:
        rows = [(s.id, s.messages, s.tool_results, s.bytes, how_long_ago(s.created)) for s in found]
        print_report(columns([_HEADINGS, *rows], width) if rows else ["no sessions yet"])
        others = len(workspace.tree.names(layout.SESSIONS)) - len(rows) - len(refusals)
        if newest is not None and others > 0:
            print_report([f"… {counted(others, 'older session')}; --limit {others + len(rows)} lists all"])
    return print_problems(refusals)
