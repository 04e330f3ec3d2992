"""``buoyline sessions``."""

import dataclasses
from pathlib import Path

import click

from buoyline.cli.inventory import inventory_of, of_each
from buoyline.cli.options import existing_workspace, json_option, workdir_option
from buoyline.cli.output import columns, print_json, print_lines, print_problems

_HEADINGS = ("session", "messages", "tool results", "summaries", "bytes", "created")


@click.command("sessions")
@workdir_option
@json_option
def sessions_command(workdir: Path, *, as_json: bool) -> int:
    """List the sessions of a workspace.

    Exit status: 0 done, 1 some session is damaged and left out.

    Example: buoyline sessions --workdir ./workspace
    """
    sessions, refusals = of_each(existing_workspace(workdir), inventory_of)
    found = sessions.values()
    if as_json:
        print_json([{k: v for k, v in dataclasses.asdict(session).items() if k != "files"} for session in found])
    else:
        rows = [(s.id, s.messages, s.tool_results, s.summaries, s.bytes, s.created) for s in found]
        print_lines(columns([_HEADINGS, *rows]) if rows else ["no sessions yet"])
    return print_problems(refusals)
