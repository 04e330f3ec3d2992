"""``buoyline sessions`` and ``buoyline show``."""

import dataclasses
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from buoyline.cli.options import existing_workspace, json_option, workdir_option
from buoyline.cli.output import (
    columns,
    counted,
    cut,
    how_long_ago,
    local_time,
    print_answer,
    print_json,
    print_lines,
    print_problems,
)
from buoyline.errors import BuoylineError, CorruptError, NotFoundError, StorageError
from buoyline.lookups import Line
from buoyline.lookups.text import numbered, whole_lines
from buoyline.messages.registry import dialect_named
from buoyline.offloader.protocol import WindowState
from buoyline.offloader.transcript import render
from buoyline.workspace import Status, StoredSession, layout

_FIELD_CHARS = 201
_SHOWN_CLAIMS = 5
_SHOWN_RESULTS = 20


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
    entries = session.files.entries(session.directory)
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


@click.command("sessions")
@workdir_option
@json_option
def sessions_command(workdir: Path, *, as_json: bool) -> int:
    """List the sessions of a workspace.

    Exit status: 0 done, 1 a session is damaged and left out.

    Example: buoyline sessions --workdir ./workspace
    """
    found = list[Inventory]()
    refused = dict[str, BuoylineError]()
    for session in existing_workspace(workdir).sessions(refused=refused):
        try:
            found.append(inventory_of(session))
        except (CorruptError, StorageError) as error:
            refused[f"session {session.session_id!r}"] = error
    if as_json:
        print_json([{k: v for k, v in dataclasses.asdict(session).items() if k != "files"} for session in found])
    elif found or not refused:
        print_lines(_sessions_in_words(found))
    return print_problems(
        [f"{name} is left out: {error}; `buoyline verify` says more" for name, error in refused.items()]
    )


def _sessions_in_words(found: Sequence[Inventory]) -> Iterator[str]:
    if not found:
        yield "no sessions yet"
        return
    rows = [(one.id, one.messages, one.tool_results, one.bytes, how_long_ago(one.created)) for one in found]
    total = (
        counted(len(found), "session"),
        sum(one.messages for one in found),
        sum(one.tool_results for one in found),
        sum(one.bytes for one in found),
        "",
    )
    yield from columns([("session", "messages", "results", "bytes", "created"), *rows, total])


def _message_range(_: click.Context, __: click.Parameter, value: str | None) -> tuple[int, int] | None:
    """Return the half-open range of ``A-B`` or ``A``."""
    if value is None:
        return None
    parts = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", value)
    if parts is None or int(parts[2] or parts[1]) < int(parts[1]):
        raise click.BadParameter(f"{value!r} is not a range of messages such as 0-9 or 7.")
    return int(parts[1]), int(parts[2] or parts[1]) + 1


@click.command("show")
@click.argument("session")
@click.option("--messages", callback=_message_range, metavar="A-B", help="Print these messages instead.")
@click.option(
    "--summary",
    "number",
    type=click.IntRange(min=0),
    is_flag=False,
    flag_value=0,
    metavar="[N]",
    help="Print the text of summary N instead, counted from 1; without N, of the last one.",
)
@click.option("--full", is_flag=True, help="All files, and the whole text of the last summary.")
@workdir_option
@json_option
def show_command(
    session: str, workdir: Path, messages: tuple[int, int] | None, number: int | None, *, full: bool, as_json: bool
) -> None:
    """Show the messages, files and last summary of SESSION.

    --messages prints messages instead: archived ones as in the transcript, and those in the context. Messages are
    numbered from 0 over the whole session, as in the transcript. --summary prints a summary as the model saw it;
    `buoyline diff` shows which messages it replaced, and the lines that each of its sentences cites.

    Example: buoyline show s1 --messages 0-9
    """
    workspace = existing_workspace(workdir)
    found = workspace.session(session)
    if messages is not None:
        lines = list(_lines(found, messages))
        if as_json:
            print_json([{"path": line.path, "number": line.number, "text": line.text} for line in lines])
        else:
            # Only lines of the transcript have a number that `buoyline read` takes.
            archived = layout.TRANSCRIPT_FILE
            print_lines(f"{line.number if line.path.endswith(archived) else '-'}\t{line.text}" for line in lines)
        return
    summaries = found.summaries()
    if number is not None:
        if not summaries or number > len(summaries):
            raise NotFoundError("summary", str(number or 1), f"session {session!r} has {len(summaries)}")
        summary = summaries[number - 1]
        print_answer(summary, str(summary.get("text", "")).split("\n"), as_json=as_json)
        return
    inventory, last = inventory_of(found), summaries[-1] if summaries else None
    files = [{"name": name, "bytes": size} for name, size in inventory.files]
    value = {**dataclasses.asdict(inventory), "files": files, "summary": last}
    print_answer(value, _overview(inventory, last, full=full), as_json=as_json)


def _lines(session: StoredSession, messages: tuple[int, int]) -> Iterator[Line]:
    """Yield the lines of messages: of archived ones from the transcript, of the others in the same form.

    Raises:
        NotFoundError: The session has fewer messages.
        CorruptError: The transcript is gone, or too short.
    """
    inventory = inventory_of(session)
    (first, end), archived = messages, inventory.archived
    if end > inventory.messages:
        numbers = f"its messages are 0-{inventory.messages - 1}" if inventory.messages else "it has no messages"
        raise NotFoundError("messages", f"{first}-{end - 1}", f"session {session.session_id!r}: {numbers}")
    if first < archived:
        ranges, name = session.line_ranges(first, min(end, archived)), session.name(layout.TRANSCRIPT_FILE)
        is_there = session.files.exists(name)
        blocks = whole_lines(session.files.chunks(name) if is_there else [])
        lines = list(numbered(blocks, ((ranges[0][0], ranges[-1][1]),)))
        if len(lines) <= ranges[-1][1] - ranges[0][0]:
            raise CorruptError(session.files.path(name), "lacks lines of these messages; `buoyline repair` renders it")
        yield from (Line(name, at, line) for at, line in lines)
    if end > archived:
        yield from _live(session.window(), session, max(first, archived), end)


def _live(window: WindowState, session: StoredSession, first: int, end: int) -> Iterator[Line]:
    """Yield the lines of messages in the context, each with the number of its message's line in ``window.jsonl``."""
    begin = len(window.head) + first - window.first
    natives = window.messages[begin : begin + end - first]
    views = [dialect_named(name).view(dialect_named(name).from_json(value)) for name, value in natives]
    rendered = render(views, first, ["in the context"] * len(views), lambda _: None)
    for number, lines in enumerate(rendered, begin + 1):
        yield from (Line(session.name(layout.WINDOW_FILE), number, line) for line in lines)


def _overview(inventory: Inventory, summary: Mapping[str, Any] | None, *, full: bool) -> Iterator[str]:
    created = (
        f"{how_long_ago(inventory.created)} ({local_time(inventory.created)})"
        if inventory.created
        else "at an unknown time"
    )
    yield f"session {inventory.id}, created {created}"
    messages, live = counted(inventory.messages, "message"), inventory.messages - inventory.archived
    in_context = inventory.in_context - inventory.has_summary
    context = f"{'the summary + ' * inventory.has_summary}{counted(in_context, 'message')}"
    yield f"{messages}: {inventory.archived:,} archived, {live:,} live. In context: {context}"
    yield f"{counted(inventory.tool_results, 'tool result')}, {counted(inventory.summaries, 'summary', 'summaries')}"
    yield ""
    yield f"{inventory.directory}/  {inventory.bytes:,} bytes"
    results = [name for name, _ in inventory.files if name.startswith("tool_result-")]
    left_out = set[str]() if full else set(results[_SHOWN_RESULTS:])
    yield from (f"  {name}  {size:,}" for name, size in inventory.files if name not in left_out)
    if left_out:
        yield f"  … and {len(left_out):,} more files of tool results; --full lists them"
    if summary is not None:
        yield ""
        yield from str(summary.get("text", "")).split("\n") if full else _in_short(summary)


def _in_short(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield the messages that a summary covers, its author and citations, and the beginning of each field."""
    first, end = summary.get("messages") or (0, 0)
    source, tokens = summary.get("source_tokens", 0), summary.get("tokens", 0)
    yield f"summary {summary.get('n')}: messages {first}-{end - 1}, {source:,} tokens in {tokens:,}"
    pointers: Sequence[Any] = summary.get("pointers") or ()
    unverified: Sequence[Any] = summary.get("unverified") or ()
    claims = ", ".join(map(str, unverified[:_SHOWN_CLAIMS])) + (", …" if len(unverified) > _SHOWN_CLAIMS else "")
    verified = f"{counted(len(pointers), 'citation')}, {len(unverified):,} unverified{': ' * bool(claims)}{claims}"
    created = local_time(str(summary.get("created_at") or "at an unknown time"))
    yield f"  by the {summary.get('summarizer')} summarizer, {created}: {verified}"
    fields: Mapping[str, Any] = summary.get("fields") or {}
    for name, value in fields.items():
        text = " ".join(str(value).split())
        yield f"  {name}: {cut(text, _FIELD_CHARS)}"
