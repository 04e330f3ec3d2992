"""``buoyline sessions``."""

import dataclasses
from pathlib import Path

import click

from buoyline.cli.inventory import inventory_of
from buoyline.cli.options import existing_workspace, json_option, workdir_option
from buoyline.cli.output import columns, print_json, print_lines

_HEADINGS = ("session", "messages", "tool results", "summaries", "bytes", "created")


@click.command("sessions")
@workdir_option
@json_option
def sessions_command(workdir: Path, *, as_json: bool) -> None:
    """List the sessions of a workspace.

    Example: buoyline sessions --workdir ./workspace
    """
    workspace = existing_workspace(workdir)
    found = [inventory_of(workspace.session(session_id)) for session_id in workspace.session_ids()]
    if as_json:
        print_json([{k: v for k, v in dataclasses.asdict(session).items() if k != "files"} for session in found])
        return
    rows = [(s.id, s.messages, s.tool_results, s.summaries, s.bytes, s.created) for s in found]
    print_lines(columns([_HEADINGS, *rows]) if rows else ["no sessions yet"])
