"""``buoyline stats``."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import Any

import click

from buoyline.cli.inventory import inventory_of, of_each
from buoyline.cli.options import existing_workspace, json_option, workdir_option
from buoyline.cli.output import columns, counted, print_json, print_problems, print_report, terminal_width
from buoyline.cli.units import local_time
from buoyline.workspace import LocalWorkspace, layout
from buoyline.workspace.index import Index
from buoyline.workspace.logs import Summaries
from buoyline.workspace.parts import data_names
from buoyline.workspace.session import Session

_KINDS = {
    layout.CONTEXT_FILE: "archive",
    layout.JOURNAL_FILE: "journal",
    layout.TRANSCRIPT_FILE: "transcript",
    layout.SUMMARIES_FILE: "summaries",
    layout.WINDOW_FILE: "window",
}
_HEADINGS = ("session", "archived", "results", "summaries", "bytes")


@dataclass(frozen=True, slots=True)
class Stats:
    """The numbers of a session, or of several together.

    Attributes:
        archived: Messages that left the context.
        tool_results: Bytes of each tool result that is stored whole.
        blobs: By name, bytes of each blob that archived messages and tool results refer to; 0 for one that is gone.
        summaries: One for each compression.
        source_tokens: What the summarised messages took.
        summary_tokens: What the summaries take.
        files: Bytes by kind of file: ``archive``, ``journal``, ``transcript``, ``tool results``, ``views``,
            ``summaries``, ``window``, ``torn`` and ``other``.
        times: When the session was created, and when something was archived or stored; ISO 8601 in UTC.
    """

    archived: int
    tool_results: Sequence[int]
    blobs: Mapping[str, int]
    summaries: int
    source_tokens: int
    summary_tokens: int
    files: Counter[str]
    times: Sequence[str]


@click.command("stats")
@click.argument("session", required=False)
@workdir_option
@json_option
def stats_command(session: str | None, workdir: Path, *, as_json: bool) -> int:
    """Count what a workspace holds, or one SESSION of it.

    It counts messages, tool results, blobs and summaries, with their bytes and tokens.

    Exit status: 0 done, 1 a session is damaged and left out.

    Example: buoyline stats --workdir ./workspace
    """
    workspace = existing_workspace(workdir)
    if session is not None:
        found = stats_of(workspace.session(session))
        print_json({"id": session, **_fields(found)}) if as_json else print_report(_in_words(found))
        return 0
    sessions, refusals = of_each(workspace, stats_of)
    total, data = together(sessions.values()), _data(workspace, sessions.values())
    if as_json:
        listed = [{"id": session_id, **_fields(found)} for session_id, found in sessions.items()]
        print_json({"sessions": listed, "total": _fields(total), "data": data})
    else:
        print_report(_overview(sessions, total, data))
    return print_problems(refusals)


def stats_of(session: Session) -> Stats:
    """Count what *session* holds.

    Raises:
        CorruptError: Something in it is not what was written; `buoyline verify` says more.
    """
    index, inventory = session.index(), inventory_of(session)
    summaries = Summaries(session).load()
    files = Counter[str]()
    for name, size in inventory.files:
        files[_kind(name)] += size
    return Stats(
        archived=index.messages,
        tool_results=[record["bytes"] for record in index.results.values()],
        blobs={name: session.tree.size(name) or 0 for name in _blobs(index)},
        summaries=len(summaries),
        source_tokens=sum(summary.get("source_tokens", 0) for summary in summaries),
        summary_tokens=sum(summary.get("tokens", 0) for summary in summaries),
        files=files,
        times=[time for time in (inventory.created, *_times(index)) if time],
    )


def together(parts: Iterable[Stats]) -> Stats:
    """Add up *parts*; a blob that several share counts once."""
    found = list(parts)
    return Stats(
        archived=sum(part.archived for part in found),
        tool_results=[size for part in found for size in part.tool_results],
        blobs={name: size for part in found for name, size in part.blobs.items()},
        summaries=sum(part.summaries for part in found),
        source_tokens=sum(part.source_tokens for part in found),
        summary_tokens=sum(part.summary_tokens for part in found),
        files=sum((part.files for part in found), Counter[str]()),
        times=[time for part in found for time in part.times],
    )


def _kind(name: str) -> str:
    if layout.is_result_name(name):
        return "tool results"
    if layout.is_view_name(name):
        return "views"
    return "torn" if name.startswith(f"{layout.TORN}/") else _KINDS.get(name, "other")


def _blobs(index: Index) -> set[str]:
    references = (reference.reference for batch in index.batches for _, reference in batch.references)
    archived = {name for name in map(layout.blob_behind, references) if name is not None}
    return archived.union(*map(data_names, index.results.values()))


def _times(index: Index) -> Iterator[str]:
    yield from (batch.time for batch in index.batches)
    yield from (record["time"] for record in index.results.values())


def _data(workspace: LocalWorkspace, sessions: Iterable[Stats]) -> dict[str, int]:
    """Count the files under ``data/``, and those of them that more than one session refers to."""
    sizes = {
        name: workspace.tree.size(name) or 0
        for name in (f"{layout.DATA}/{entry}" for entry in workspace.tree.names(layout.DATA))
        if layout.blob_behind(layout.reference_to(name)) is not None
    }
    users = Counter(name for session in sessions for name in session.blobs)
    shared = [name for name, count in users.items() if count > 1]
    return {"count": len(sizes), "bytes": sum(sizes.values()), "shared": len(shared)}


def _fields(stats: Stats) -> dict[str, Any]:
    return {
        "archived": stats.archived,
        "tool_results": len(stats.tool_results),
        "tool_result_bytes": sum(stats.tool_results),
        "largest_tool_result_bytes": max(stats.tool_results, default=0),
        "blobs": len(stats.blobs),
        "blob_bytes": sum(stats.blobs.values()),
        "summaries": stats.summaries,
        "source_tokens": stats.source_tokens,
        "summary_tokens": stats.summary_tokens,
        "bytes": sum(stats.files.values()),
        "bytes_by_kind": dict(stats.files.most_common()),
        "oldest": min(stats.times, default=""),
        "newest": max(stats.times, default=""),
    }


def _overview(sessions: Mapping[str, Stats], total: Stats, data: Mapping[str, int]) -> Iterator[str]:
    if not sessions:
        yield "no sessions yet"
    else:
        yield from columns([_HEADINGS, *starmap(_row, sessions.items())], terminal_width())
        yield ""
        yield from _in_words(total)
    yield f"in data/        {data['count']:,}, {data['bytes']:,} bytes, shared between sessions: {data['shared']:,}"


def _row(session_id: str, stats: Stats) -> tuple[str | int, ...]:
    found = _fields(stats)
    names = ("archived", "tool_results", "summaries", "bytes")
    return session_id, *(found[name] for name in names)


def _in_words(stats: Stats) -> Iterator[str]:
    found = _fields(stats)
    yield f"archived        {counted(found['archived'], 'message')}"
    yield (
        f"tool results    {found['tool_results']:,}, {found['tool_result_bytes']:,} bytes, "
        f"the largest {found['largest_tool_result_bytes']:,}"
    )
    yield f"blobs           {found['blobs']:,}, {found['blob_bytes']:,} bytes"
    yield (
        f"summaries       {found['summaries']:,}, {found['source_tokens']:,} tokens of messages in "
        f"{found['summary_tokens']:,}"
    )
    kinds = ", ".join(f"{kind} {size:,}" for kind, size in found["bytes_by_kind"].items())
    yield f"bytes           {found['bytes']:,}: {kinds}"
    oldest, newest = (local_time(found[name]) or "an unknown time" for name in ("oldest", "newest"))
    yield f"from            {oldest} to {newest}"
