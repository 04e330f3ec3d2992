"""``buoyline tail``."""

import asyncio
import dataclasses
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import click

from buoyline.cli.output import existing_workspace, local_time, print_answer, print_notices, workdir_option
from buoyline.watching import (
    MessagesAdded,
    ResultStored,
    SessionCreated,
    SessionRemoved,
    SummaryWritten,
    WorkspaceEvent,
    past_events,
    watch,
)
from buoyline.workspace import LocalWorkspace, layout

_KINDS: Mapping[type[WorkspaceEvent], str] = MappingProxyType(
    {
        SessionCreated: "session_created",
        SessionRemoved: "session_removed",
        MessagesAdded: "messages_added",
        ResultStored: "result_stored",
        SummaryWritten: "summary_written",
    }
)


@click.command("tail")
@click.argument("session", required=False)
@click.option(
    "--lines", "-n", type=click.IntRange(min=0), default=10, show_default=True, help="Past events to print first."
)
@click.option("--follow/--no-follow", default=True, help="Wait for new events.  [default: --follow]")
@workdir_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def tail_command(session: str | None, workdir: Path, lines: int, *, follow: bool, as_json: bool) -> None:
    """Follow a running agent.

    Print a line for each thing that is written to a workspace, or to one SESSION of it: the time, the session, what
    happened, and the file for `buoyline read`. A workspace or session that does not exist yet is waited for. Nothing is
    written. Ctrl-C ends the command with status 0.

    Example: buoyline tail s1 --workdir ./workspace
    """
    workspace, wanted = LocalWorkspace(workdir) if follow else existing_workspace(workdir), session or ""
    if not follow and wanted:
        workspace.stored(wanted)
    with suppress(KeyboardInterrupt):
        if follow:
            asyncio.run(_follow(workspace, wanted, lines, as_json=as_json))
        else:
            for event in deque(past_events(workspace, wanted), maxlen=lines):
                _show(event, as_json=as_json)


async def _follow(workspace: LocalWorkspace, session_id: str, lines: int, *, as_json: bool) -> None:
    if workspace.disk.status(layout.session_directory(session_id) if session_id else layout.SESSIONS) is None:
        wanted = f"session {session_id!r}" if session_id else "a session"
        print_notices([f"waiting for {wanted} in {workspace.workdir}"])
    async for event in watch(workspace, session_id, last=lines):
        _show(event, as_json=as_json)


def _show(event: WorkspaceEvent, *, as_json: bool) -> None:
    fields = {"event": _KINDS[type(event)], **dataclasses.asdict(event)}
    line = f"{local_time(event.time) or '-':<19}  {event.session_id}  {_in_words(event)}"
    print_answer(fields, [line], as_json=as_json)


def _in_words(event: WorkspaceEvent) -> str:
    match event:
        case MessagesAdded(first=first, end=end):
            return f"added message {first}" if end == first + 1 else f"added messages {first}-{end - 1}"
        case ResultStored(name=name, size_bytes=size_bytes):
            return f"stored a result: {name} {size_bytes:,} bytes"
        case SummaryWritten(n=n, archived=archived):
            place = "" if n is None else f": {layout.SUMMARIES}:{n + 1}"
            return f"compacted; {archived:,} messages are archived{place}"
        case SessionCreated():
            return "created the session"
        case SessionRemoved():
            return "removed the session"
