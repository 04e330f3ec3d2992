"""``buoyline tail``."""

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType

import click

from buoyline.cli.options import existing_workspace, workdir_option
from buoyline.cli.output import counted, local_time, print_answer, print_notices
from buoyline.watching.events import (
    BatchArchived,
    ResultStored,
    SessionCreated,
    SessionRemoved,
    SummaryWritten,
    WorkspaceEvent,
)
from buoyline.watching.watch import Watch
from buoyline.workspace import LocalWorkspace, layout

_KINDS: Mapping[type[WorkspaceEvent], str] = MappingProxyType(
    {
        SessionCreated: "session_created",
        SessionRemoved: "session_removed",
        BatchArchived: "messages_archived",
        ResultStored: "result_stored",
        SummaryWritten: "summary_written",
    }
)
# A file's time may be earlier than that of an event in it: it comes from another, coarser clock.
_CLOCK_S = 2.0
_LATEST_S = 2.0**37  # later years have no date in Python


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
    happened, and the path and lines for `buoyline read`. A workspace or session that does not exist yet is waited for.
    Nothing is written. Ctrl-C ends the command with status 0.

    Example: buoyline tail s1 --workdir ./workspace
    """
    workspace = LocalWorkspace(workdir) if follow else existing_workspace(workdir)
    if not follow and session is not None:
        workspace.session(session)
    watch = Watch(workspace, session, last=lines)
    with suppress(KeyboardInterrupt):
        _show(_history(watch, lines, reads_all=follow), as_json=as_json)
        if follow and not watch.session_ids:
            wanted = "a session" if session is None else f"session {session!r}"
            print_notices([f"waiting for {wanted} in {workspace.workdir}"])
        for events in watch.rounds() if follow else ():
            _show(events, as_json=as_json)


def _history(watch: Watch, count: int, *, reads_all: bool) -> list[WorkspaceEvent]:
    """Return the newest *count* events of all sessions together by time, those of each session in their own order.

    If the sessions will be followed, *reads_all* also reads those whose last write was before all these events.
    """
    found: list[tuple[str, str, WorkspaceEvent]] = []
    newest: dict[str, str] = {}

    def is_enough(last_write_s: float) -> bool:
        latest = datetime.fromtimestamp(min(max(last_write_s, 0.0), _LATEST_S) + _CLOCK_S, UTC).isoformat()
        return not reads_all and len(found) >= count and (not found or found[0][0] > latest)

    for events in watch.history(is_enough):
        for event in events:
            # A summary has the time that its author gave it, or none.
            newest[event.session_id] = max(newest.get(event.session_id, ""), event.time)
            found.append((newest[event.session_id], event.session_id, event))
        found.sort(key=itemgetter(0, 1))
        del found[: max(len(found) - count, 0)]
    return [event for *_, event in found]


def _show(events: Sequence[WorkspaceEvent], *, as_json: bool) -> None:
    for event in events:
        fields = {"event": _KINDS[type(event)], **dataclasses.asdict(event)}
        line = f"{local_time(event.time) or '-':<19}  {event.session_id}  {_in_words(event)}"
        print_answer(fields, [line], as_json=as_json)


def _in_words(event: WorkspaceEvent) -> str:
    match event:
        case BatchArchived(first=first, end=end, lines=(start, last)):
            return f"archived messages {first}-{end - 1}: {layout.TRANSCRIPT_FILE}:{start}-{last}"
        case ResultStored(call_id=call_id, name=name, view=view, lines=lines, size_bytes=size_bytes):
            size = f"{counted(lines, 'line')}, {size_bytes:,} bytes"
            return f"stored the result of {call_id or 'a call'}: {view or name} {size}"
        case SummaryWritten(n=n, first=first, end=end, source_tokens=source, tokens=tokens):
            place = f"{layout.SUMMARIES_FILE}:{n}"
            return f"summarised messages {first}-{end - 1}: {place} {source:,} tokens in {tokens:,}"
        case SessionCreated():
            return "created the session"
        case SessionRemoved():
            return "removed the session"
