"""``buoyline show`` and ``buoyline summaries``."""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from buoyline.cli.options import existing_workspace, json_option, workdir_option
from buoyline.cli.output import counted, cut, how_long_ago, local_time, print_json, print_lines, print_report
from buoyline.cli.sessions import Inventory, inventory_of
from buoyline.errors import CorruptError, NotFoundError
from buoyline.lookups.answer import Line
from buoyline.lookups.lines import lines_of
from buoyline.messages.registry import dialect_named
from buoyline.offloader.protocol import WindowState
from buoyline.offloader.transcript import render
from buoyline.workspace import LocalWorkspace, StoredSession, layout

_FIELD_CHARS = 201
_SHOWN_CLAIMS = 5


@click.command("summaries")
@click.argument("session")
@click.argument("number", metavar="[N]", type=click.IntRange(min=1), required=False)
@workdir_option
@json_option
def summaries_command(session: str, number: int | None, workdir: Path, *, as_json: bool) -> None:
    """List the summaries of SESSION, or print one.

    N counts from 1 and prints the text as the model saw it. `buoyline diff` shows which messages the summary replaced,
    and the lines that each of its sentences cites.

    Example: buoyline summaries s1 2
    """
    found = existing_workspace(workdir).session(session).summaries()
    if number is not None and number > len(found):
        raise NotFoundError("summary", str(number), f"session {session!r} has {len(found)}")
    if as_json:
        print_json(found if number is None else found[number - 1])
    elif number is not None:
        print_lines(str(found[number - 1].get("text", "")).split("\n"))
    else:
        print_report([line for summary in found for line in in_short(summary)] or ["no summaries yet"])


def in_short(summary: Mapping[str, Any]) -> Iterator[str]:
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


_SHOWN_RESULTS = 20


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
@click.option("--full", is_flag=True, help="All files, and the whole text of the last summary.")
@click.option("--messages", callback=_message_range, metavar="A-B", help="Print these messages instead.")
@workdir_option
@json_option
def show_command(session: str, workdir: Path, messages: tuple[int, int] | None, *, full: bool, as_json: bool) -> None:
    """Show the messages, files and last summary of SESSION.

    --messages prints messages instead: archived ones as in the transcript, and those in the context. Messages are
    numbered from 0 over the whole session, as in the transcript.

    Example: buoyline show s1 --messages 0-9
    """
    workspace = existing_workspace(workdir)
    if messages is not None:
        lines = list(_lines(workspace, session, messages))
        if as_json:
            print_json([{"path": line.path, "number": line.number, "text": line.text} for line in lines])
        else:
            # Only lines of the transcript have a number that `buoyline read` takes.
            archived = layout.TRANSCRIPT_FILE
            print_lines(f"{line.number if line.path.endswith(archived) else '-'}\t{line.text}" for line in lines)
        return
    found = workspace.session(session)
    inventory, summaries = inventory_of(found), found.summaries()
    summary = summaries[-1] if summaries else None
    if as_json:
        files = [{"name": name, "bytes": size} for name, size in inventory.files]
        print_json({**dataclasses.asdict(inventory), "files": files, "summary": summary})
    else:
        print_report(_overview(inventory, summary, full=full))


def _lines(workspace: LocalWorkspace, session_id: str, messages: tuple[int, int]) -> Iterator[Line]:
    """Yield the lines of messages: of archived ones from the transcript, of the others in the same form.

    Raises:
        NotFoundError: The session has fewer messages.
        CorruptError: The transcript is gone, or too short.
    """
    session = workspace.session(session_id)
    inventory = inventory_of(session)
    (first, end), archived = messages, inventory.archived
    if end > inventory.messages:
        numbers = f"its messages are 0-{inventory.messages - 1}" if inventory.messages else "it has no messages"
        raise NotFoundError("messages", f"{first}-{end - 1}", f"session {session_id!r}: {numbers}")
    if first < archived:
        ranges, name = session.line_ranges(first, min(end, archived)), session.name(layout.TRANSCRIPT_FILE)
        is_there = session.files.exists(name)
        lines = list(lines_of(session.files, name, [(ranges[0][0], ranges[-1][1])])) if is_there else []
        if len(lines) <= ranges[-1][1] - ranges[0][0]:
            raise CorruptError(session.files.path(name), "lacks lines of these messages; `buoyline repair` renders it")
        yield from lines
    if end > archived:
        yield from _live(session.window(), session, max(first, archived), end)


def _live(window: WindowState, session: StoredSession, first: int, end: int) -> Iterator[Line]:
    """Yield the lines of messages in the context, each with the number of its message's line in ``window.jsonl``."""
    begin = len(window.head) + first - window.first
    natives = window.messages[begin : begin + end - first]
    views = [dialect_named(name).view(dialect_named(name).from_json(value)) for name, value in natives]
    rendered = render(views, first, ["in the context"] * len(views), lambda _: None)
    for number, lines in enumerate(rendered, begin + 1):
        yield from (Line(session.name(layout.WINDOW_FILE), number, 1, line) for line in lines)


def _overview(inventory: Inventory, summary: dict[str, Any] | None, *, full: bool) -> Iterator[str]:
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
    entries = [f"{name}  {size:,}" for name, size in inventory.files if name not in left_out]
    if left_out:
        entries.append(f"… and {len(left_out):,} more files of tool results; --full lists them")
    for place, entry in enumerate(entries, 1):
        yield f"{'└──' if place == len(entries) else '├──'} {entry}"
    if summary is not None:
        yield ""
        yield from str(summary.get("text", "")).split("\n") if full else in_short(summary)
