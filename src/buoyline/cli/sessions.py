"""``buoyline sessions`` and ``buoyline stats``."""

import dataclasses
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from buoyline.cli.options import existing_workspace, json_option, workdir_option
from buoyline.cli.output import (
    columns,
    counted,
    how_long_ago,
    local_time,
    print_json,
    print_problems,
    print_report,
    terminal_width,
)
from buoyline.errors import BuoylineError, CorruptError, NotFoundError, StorageError
from buoyline.offloader import ModelCall
from buoyline.tokens.usage import USAGE_FIELDS
from buoyline.workspace import LocalWorkspace, Status, StoredSession, layout
from buoyline.workspace.content import data_names
from buoyline.workspace.records import call_from

if TYPE_CHECKING:
    from buoyline.offloader.protocol import WindowState

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Inventory:
    """The numbers of a session, under the keys of ``buoyline show --json``.

    *created* is ISO 8601 in UTC, or empty. *in_context* counts the summary and the prefix messages, too. *files* have
    their names within *directory* and their sizes, with those in ``torn/``.
    """

    id: str
    directory: str
    created: str
    messages: int
    archived: int
    in_context: int
    has_summary: bool
    tool_results: int
    summaries: int
    bytes: int
    files: tuple[tuple[str, int], ...]


def of_each(
    workspace: LocalWorkspace, count: Callable[[StoredSession], T], newest: int | None = None
) -> tuple[dict[str, T], list[str]]:
    """Count the content of each session; one that cannot be counted does not hide the others.

    It counts the *newest* sessions, the most recently active first, or all, in the order of their names. It returns the
    counts by session id, and for each other session a sentence that says why it is left out.
    """
    counted: dict[str, T] = {}
    refusals: list[str] = []
    refused: dict[str, BuoylineError] = {}
    for session in workspace.sessions(newest, refused=refused):
        try:
            counted[session.session_id] = count(session)
        except (CorruptError, StorageError) as error:
            refusals.append(f"session {session.session_id!r} is left out: {error}; `buoyline verify` says more")
    refusals += (f"{path} is left out: {error}; `buoyline verify` says more" for path, error in refused.items())
    return counted, refusals


def inventory_of(session: StoredSession) -> Inventory:
    """Count the content of *session*.

    Raises:
        NotFoundError: There is no such session.
        CorruptError: Its window is damaged, or its directory belongs to another session.
    """
    index = session.index()
    window: WindowState | None = None
    with suppress(NotFoundError):
        window = session.window()
    behind = 0 if window is None else window.first + len(window.messages) - len(window.head)
    entries = session.files.entries(session.directory)  # one listing costs a quarter of a request for each name
    files = list(_sizes(entries))
    if layout.TORN in entries and stat.S_ISDIR(entries[layout.TORN].st_mode):
        torn = session.files.entries(session.name(layout.TORN))
        files += [(f"{layout.TORN}/{name}", size) for name, size in _sizes(torn)]
    return Inventory(
        id=session.session_id,
        directory=session.directory,
        created=session.created_at(),
        messages=max(index.messages, behind),
        archived=index.messages,
        in_context=0 if window is None else len(window.messages),
        has_summary=window is not None and "summary" in window.head,
        tool_results=len(index.results),
        summaries=len(index.summaries),
        bytes=sum(size for _, size in files),
        files=tuple(files),
    )


def _sizes(entries: Mapping[str, Status]) -> Iterator[tuple[str, int]]:
    for name, status in entries.items():
        if stat.S_ISREG(status.st_mode) and not name.startswith(layout.TEMPORARY_PREFIX):
            yield name, status.st_size


_SHOWN_ON_A_TERMINAL = 50
_HEADINGS = ("session", "messages", "results", "bytes", "created")


@click.command("sessions")
@click.option(
    "--limit",
    type=click.IntRange(1, sys.maxsize),
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
        empty = [] if refusals else ["no sessions yet"]
        print_report(columns([_HEADINGS, *rows], width) if rows else empty)
        others = len(workspace.files.names(layout.SESSIONS)) - len(rows) - len(refusals)
        if newest is not None and others > 0 and len(rows) + len(refusals) >= newest:
            print_report([f"… {counted(others, 'older session')}; --limit {others + len(rows)} lists all"])
    return print_problems(refusals)


_KINDS = {
    layout.CONTEXT_FILE: "archive",
    layout.JOURNAL_FILE: "journal",
    layout.TRANSCRIPT_FILE: "transcript",
    layout.SUMMARIES_FILE: "summaries",
    layout.WINDOW_FILE: "window",
}
_STATS_HEADINGS = {"archived": "archived", "tool_results": "results", "summaries": "summaries", "bytes": "bytes"}


@dataclass(frozen=True, slots=True)
class Stats:
    """The numbers of a session, or of several together.

    Attributes:
        tool_results: Bytes of each whole tool result.
        blobs: Bytes of each blob that archived messages and tool results refer to, by name; 0 if it is missing.
        files: Bytes by the kind of file that `_kind` names.
        times: Of the session's creation, and of each archiving and storing; ISO 8601 in UTC.
    """

    archived: int
    tool_results: Sequence[int]
    blobs: Mapping[str, int]
    summaries: int
    source_tokens: int
    summary_tokens: int
    files: Counter[str]
    calls: Sequence[ModelCall]
    times: Sequence[str]


@click.command("stats")
@click.argument("session", required=False)
@workdir_option
@json_option
def stats_command(session: str | None, workdir: Path, *, as_json: bool) -> int:
    """Count what a workspace holds, or one SESSION of it.

    It counts messages, tool results, blobs and summaries, with their bytes and tokens, and the model calls of windows,
    with the share of their input that the provider read from its prompt cache.

    Exit status: 0 done, 1 a session is damaged and left out.

    Example: buoyline stats --workdir ./workspace
    """
    workspace = existing_workspace(workdir)
    if session is not None:
        found = stats_of(workspace.session(session))
        print_json({"id": session, **_fields(found)}) if as_json else print_report(_in_words(found))
        return 0
    sessions, refusals = of_each(workspace, stats_of)
    total = together(sessions.values())
    sizes = {
        name: workspace.files.size(name) or 0
        for name in (f"{layout.DATA}/{entry}" for entry in workspace.files.names(layout.DATA))
        if layout.blob_behind(layout.reference_to(name)) is not None
    }
    users = Counter(name for found in sessions.values() for name in found.blobs)
    shared = sum(count > 1 for count in users.values())
    data = {"count": len(sizes), "bytes": sum(sizes.values()), "shared": shared}
    if as_json:
        listed = [{"id": session_id, **_fields(found)} for session_id, found in sessions.items()]
        print_json({"sessions": listed, "total": _fields(total), "data": data})
    else:
        print_report(_stats_overview(sessions, total, data))
    return print_problems(refusals)


def stats_of(session: StoredSession) -> Stats:
    """Count what *session* holds.

    Raises:
        CorruptError: A file is not as it was written; `buoyline verify` says more.
    """
    index, inventory = session.index(), inventory_of(session)
    summaries = session.summaries()
    times = [
        inventory.created,
        *(batch.time for batch in index.batches),
        *(record["time"] for record in index.results.values()),
    ]
    references = (reference.reference for batch in index.batches for _, reference in batch.references)
    archived = {name for name in map(layout.blob_behind, references) if name is not None}
    blobs = archived.union(*map(data_names, index.results.values()))
    files = Counter[str]()
    for name, size in inventory.files:
        files[_kind(name)] += size
    return Stats(
        archived=index.messages,
        tool_results=[record["bytes"] for record in index.results.values()],
        blobs={name: session.files.size(name) or 0 for name in blobs},
        summaries=len(summaries),
        source_tokens=sum(summary.get("source_tokens", 0) for summary in summaries),
        summary_tokens=sum(summary.get("tokens", 0) for summary in summaries),
        files=files,
        calls=list(map(call_from, index.model_calls)),
        times=[time for time in times if time],
    )


def together(parts: Iterable[Stats]) -> Stats:
    """Add *parts* up; a blob that several share counts once."""
    found = list(parts)
    return Stats(
        archived=sum(part.archived for part in found),
        tool_results=[size for part in found for size in part.tool_results],
        blobs={name: size for part in found for name, size in part.blobs.items()},
        summaries=sum(part.summaries for part in found),
        source_tokens=sum(part.source_tokens for part in found),
        summary_tokens=sum(part.summary_tokens for part in found),
        files=sum((part.files for part in found), Counter[str]()),
        calls=[call for part in found for call in part.calls],
        times=[time for part in found for time in part.times],
    )


def _kind(name: str) -> str:
    if layout.is_result_name(name):
        return "tool results"
    if layout.is_view_name(name):
        return "views"
    if layout.summary_number(name) is not None:
        return "summaries"
    return "torn" if name.startswith(f"{layout.TORN}/") else _KINDS.get(name, "other")


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
        "model_calls": len(stats.calls),
        "model_calls_with_usage": sum(bool(call.usage) for call in stats.calls),
        **{name: sum(call.usage.get(name, 0) for call in stats.calls) for name in USAGE_FIELDS},
        "oldest": min(stats.times, default=""),
        "newest": max(stats.times, default=""),
    }


def _stats_overview(sessions: Mapping[str, Stats], total: Stats, data: Mapping[str, int]) -> Iterator[str]:
    if not sessions:
        yield "no sessions yet"
    else:
        fields = {session_id: _fields(stats) for session_id, stats in sessions.items()}
        rows = [(session_id, *(found[name] for name in _STATS_HEADINGS)) for session_id, found in fields.items()]
        yield from columns([("session", *_STATS_HEADINGS.values()), *rows], terminal_width())
        yield ""
        yield from _in_words(total)
    yield f"in data/        {data['count']:,}, {data['bytes']:,} bytes, shared between sessions: {data['shared']:,}"


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
    if found["model_calls"]:
        yield f"model calls     {found['model_calls']:,}, {_usage_in_words(found)}"
    oldest, newest = (local_time(found[name]) or "an unknown time" for name in ("oldest", "newest"))
    yield f"from            {oldest} to {newest}"


def _usage_in_words(found: Mapping[str, Any]) -> str:
    if not found["model_calls_with_usage"]:
        return "without the provider's count; pass it to `note_usage`"
    share = found["cached_tokens"] / max(found["input_tokens"], 1)
    return (
        f"{found['input_tokens']:,} tokens of input, {share:.0%} of them from the prompt cache, "
        f"{found['output_tokens']:,} of output, in the {found['model_calls_with_usage']:,} with the provider's count"
    )
