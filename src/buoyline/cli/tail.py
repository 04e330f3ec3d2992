"""``buoyline tail``."""

import dataclasses
import errno
import os
import select
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from buoyline.cli.options import existing_workspace, workdir_option
from buoyline.cli.output import print_json, print_lines
from buoyline.workspace import LocalWorkspace, layout
from buoyline.workspace.events import (
    FileRemoved,
    MessagesArchived,
    ResultStored,
    SessionCreated,
    SessionRemoved,
    SummaryWritten,
    WorkspaceEvent,
)
from buoyline.workspace.watching import Watch

_KINDS: Mapping[type[WorkspaceEvent], str] = MappingProxyType(
    {
        SessionCreated: "session_created",
        SessionRemoved: "session_removed",
        MessagesArchived: "messages_archived",
        ResultStored: "result_stored",
        SummaryWritten: "summary_written",
        FileRemoved: "file_removed",
    }
)
# Not POLLNVAL, which some systems answer for any terminal.
_CLOSED = select.POLLERR | select.POLLHUP


@click.command("tail")
@click.argument("session", required=False)
@click.option(
    "--lines", "-n", type=click.IntRange(min=0), default=10, show_default=True, help="Events of the past to begin with."
)
@click.option("--follow/--no-follow", default=True, help="Go on with what happens next.  [default: --follow]")
@workdir_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def tail_command(session: str | None, workdir: Path, lines: int, *, follow: bool, as_json: bool) -> None:
    """Follow a running agent.

    It shows what a workspace, or one SESSION of it, takes in. A line says when, whose session, what happened and where
    it is, ready for `buoyline read`. Nothing is written, and what is not there yet is waited for. Ctrl-C ends it with
    status 0, since following has no other end.

    Example: buoyline tail s1 --workdir ./workspace
    """
    workspace = LocalWorkspace(workdir) if follow else existing_workspace(workdir)
    if not follow and session is not None:
        workspace.session(session)
    watch = Watch(workspace.tree, workspace.check, session, last=lines)
    with suppress(KeyboardInterrupt):
        _show(_past(watch, lines), as_json=as_json)
        if follow:
            _follow(watch, session, workspace.workdir, as_json=as_json)


def _past(watch: Watch, count: int) -> list[WorkspaceEvent]:
    """Return the newest events of all sessions together, in the order of time, and of each session in its own."""
    found: list[tuple[str, WorkspaceEvent]] = []
    newest: dict[str, str] = {}
    for event in (event for events in watch.rounds(follow=False) for event in events):
        # A summary bears the time that its maker gave it, or none.
        newest[event.session_id] = max(newest.get(event.session_id, ""), event.time)
        found.append((newest[event.session_id], event))
    found.sort(key=itemgetter(0))
    return [event for _, event in found[max(len(found) - count, 0) :]]


def _follow(watch: Watch, session: str | None, workdir: Path, *, as_json: bool) -> None:
    if not watch.session_ids:
        wanted = "a session" if session is None else f"session {session!r}"
        click.echo(f"buoyline: waiting for {wanted} in {workdir}", err=True)
    for events in watch.rounds():
        _show(events, as_json=as_json)
        if not events:
            _check_reader()


def _show(events: Sequence[WorkspaceEvent], *, as_json: bool) -> None:
    for event in events:
        print_json(_fields(event)) if as_json else print_lines([_in_words(event)])


def _check_reader() -> None:
    """Make sure that our output is still read: else only writing the next event would show it, if one ever came.

    Raises:
        OSError: It is not, as if it had been written to.
    """
    if sys.stdout is None:  # what a shell's >&- leaves
        raise OSError(errno.EBADF, "standard output is closed")
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    if any(events & _CLOSED for _, events in poll.poll(0)):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def _fields(event: WorkspaceEvent) -> dict[str, Any]:
    return {"event": _KINDS[type(event)], **dataclasses.asdict(event)}


def _in_words(event: WorkspaceEvent) -> str:
    return f"{event.time or '-':<24}  {event.session_id}  {_deed(event)}"


def _deed(event: WorkspaceEvent) -> str:
    match event:
        case MessagesArchived(first=first, end=end, lines=(start, last)):
            return f"archived messages {first}-{end - 1}: {layout.TRANSCRIPT_FILE}:{start}-{last}"
        case ResultStored(call_id=call_id, name=name, view=view, lines=lines, size_bytes=size_bytes):
            return f"stored the result of {call_id or 'a call'}: {view or name} {_lines(lines)}, {size_bytes:,} bytes"
        case SummaryWritten(n=n, first=first, end=end, source_tokens=source, tokens=tokens):
            place = f"{layout.SUMMARIES_FILE}:{n}"
            return f"summarised messages {first}-{end - 1}: {place} {source:,} tokens in {tokens:,}"
        case FileRemoved(name=name):
            return f"removed {name}"
        case SessionCreated():
            return "created the session"
        case SessionRemoved():
            return "removed the session"


def _lines(count: int) -> str:
    return f"{count:,} line" if count == 1 else f"{count:,} lines"
