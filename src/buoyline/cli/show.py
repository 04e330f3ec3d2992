"""``buoyline show``."""

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from buoyline.cli.inventory import Inventory, inventory_of
from buoyline.cli.options import existing_workspace, json_option, workdir_option
from buoyline.cli.output import branches, print_json, print_lines
from buoyline.cli.summaries import in_short
from buoyline.errors import NotFoundError
from buoyline.lookups.answer import Line
from buoyline.lookups.reading import lines_of
from buoyline.workspace import LocalWorkspace, layout
from buoyline.workspace.archive import Archive
from buoyline.workspace.logs import Summaries

_SHOWN_RESULTS = 20


def _message_range(_: click.Context, __: click.Parameter, value: str | None) -> tuple[int, int] | None:
    """Return the first message of ``A-B`` or ``A`` and the one behind the last."""
    if value is None:
        return None
    parts = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", value)
    if parts is None or int(parts[2] or parts[1]) < int(parts[1]):
        raise click.BadParameter(f"{value!r} is no range of messages such as 0-9 or 7.")
    return int(parts[1]), int(parts[2] or parts[1]) + 1


@click.command("show")
@click.argument("session")
@click.option("--full", is_flag=True, help="All files, and the whole text of the last summary.")
@click.option(
    "--messages", callback=_message_range, metavar="A-B", help="Print the transcript of these messages instead."
)
@workdir_option
@json_option
def show_command(session: str, workdir: Path, messages: tuple[int, int] | None, *, full: bool, as_json: bool) -> None:
    """Show what there is of SESSION on disk.

    With --messages, show what they say instead. Messages are numbered as in the transcript: from 0, over the
    whole session.

    Example: buoyline show s1 --messages 0-9
    """
    workspace = existing_workspace(workdir)
    if messages is not None:
        _print_messages(list(_transcript(workspace, session, messages)), as_json=as_json)
        return
    found = workspace.session(session)
    inventory, summaries = inventory_of(found), Summaries(found).load()
    summary = summaries[-1] if summaries else None
    if as_json:
        files = [{"name": name, "bytes": size} for name, size in inventory.files]
        print_json({**dataclasses.asdict(inventory), "files": files, "summary": summary})
    else:
        print_lines(_overview(inventory, summary, full=full))


def _transcript(workspace: LocalWorkspace, session_id: str, messages: tuple[int, int]) -> Iterator[Line]:
    session = workspace.session(session_id)
    archived = session.index().messages
    if messages[1] > archived:
        wanted = f"{messages[0]}-{messages[1] - 1}"
        raise NotFoundError("archived messages", wanted, f"{archived:,} of {session_id!r} have left the context")
    ranges = Archive(session, workspace.blobs).line_ranges(*messages)
    yield from lines_of(session.tree, session.name(layout.TRANSCRIPT_FILE), ranges[0][0], ranges[-1][1])


def _print_messages(lines: Sequence[Line], *, as_json: bool) -> None:
    if as_json:
        print_json([{"path": line.path, "number": line.number, "text": line.text} for line in lines])
    else:
        print_lines(f"{line.number}\t{line.text}" for line in lines)


def _overview(inventory: Inventory, summary: dict[str, Any] | None, *, full: bool) -> Iterator[str]:
    yield f"session {inventory.id}, created {inventory.created or 'at an unknown time'}"
    yield (
        f"{inventory.messages:,} messages: {inventory.archived:,} archived, "
        f"{inventory.messages - inventory.archived:,} not; {inventory.in_context:,} stand in the context; "
        f"tool results: {inventory.tool_results:,}, summaries: {inventory.summaries:,}"
    )
    yield ""
    yield f"{inventory.directory}/  {inventory.bytes:,} bytes"
    yield from branches(list(_entries(inventory, full=full)))
    if summary is not None:
        yield ""
        yield from str(summary.get("text", "")).split("\n") if full else in_short(summary)


def _entries(inventory: Inventory, *, full: bool) -> Iterator[str]:
    results = [name for name, _ in inventory.files if name.startswith("tool_result-")]
    left_out = set[str]() if full else set(results[_SHOWN_RESULTS:])
    for name, size in inventory.files:
        if name not in left_out:
            yield f"{name}  {size:,}"
    if left_out:
        yield f"… and {len(left_out):,} more files of tool results; --full lists them"
