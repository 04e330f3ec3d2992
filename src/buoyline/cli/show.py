"""``buoyline sessions``, ``show``, ``diff``, ``view`` and ``convert``."""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from buoyline.cli.output import (
    columns,
    counted,
    cut,
    existing_workspace,
    how_long_ago,
    json_option,
    local_time,
    print_answer,
    print_json,
    print_lines,
    print_notices,
    print_problems,
    workdir_option,
)
from buoyline.errors import BuoylineError, NotFoundError
from buoyline.inspect.page import page_of
from buoyline.inspect.session import (
    Difference,
    Inventory,
    SeenMessage,
    Sentence,
    difference,
    inventory_of,
    messages_in_words,
    messages_of,
    request_in_words,
)
from buoyline.messages import Converted, convert
from buoyline.messages.jsonl import is_object
from buoyline.messages.registry import dialect_named, dialect_names
from buoyline.workspace.session import Session

_FIELD_CHARS = 201
_SHOWN_CLAIMS = 5
_SHOWN_RESULTS = 20


@click.command("sessions")
@workdir_option
@json_option
def sessions_command(workdir: Path, *, as_json: bool) -> int:
    """List the sessions of a workspace.

    Exit status: 0 done, 1 a session is damaged and left out.

    Example: buoyline sessions --workdir ./workspace
    """
    refused = dict[str, BuoylineError]()
    found = [inventory_of(session) for session in existing_workspace(workdir).sessions(refused=refused)]
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
    """Return the half-open range of ``A-B`` or ``A``; of all messages for an empty *value*."""
    if value is None:
        return None
    if not value:
        return 0, -1
    parts = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", value)
    if parts is None or int(parts[2] or parts[1]) < int(parts[1]):
        raise click.BadParameter(f"{value!r} is not a range of messages such as 0-9 or 7.")
    return int(parts[1]), int(parts[2] or parts[1]) + 1


@click.command("show")
@click.argument("session")
@click.option(
    "--messages",
    callback=_message_range,
    is_flag=False,
    flag_value="",
    metavar="[A-B]",
    help="Print these messages instead; without A-B, all.",
)
@click.option(
    "--at", "call", type=click.IntRange(min=1), metavar="N", help="Print what the model saw at call N instead."
)
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
    session: str,
    workdir: Path,
    messages: tuple[int, int] | None,
    call: int | None,
    number: int | None,
    *,
    full: bool,
    as_json: bool,
) -> None:
    """Show the messages, files and last summary of SESSION.

    --messages prints messages instead, archived or live, as the transcript shows them. Messages are numbered from 0
    over the whole session. --at prints the context of an earlier model call. --summary prints a summary as the model
    saw it; `buoyline diff` shows which messages it replaced, and the lines that each of its sentences cites.

    Example: buoyline show s1 --messages 0-9
    """
    found = existing_workspace(workdir).stored(session)
    if messages is not None:
        first, end = messages
        said = messages_in_words(found, first, found.state.end if end < 0 else end)
        value: Any = [{"message": message, "lines": lines} for message, lines in said]
        print_answer(value, (line for _, lines in said for line in lines), as_json=as_json)
        return
    if call is not None:
        lines = request_in_words(found, call)
        print_answer({"call": call, "lines": lines}, lines, as_json=as_json)
        return
    summaries = found.summaries()
    if number is not None:
        if not summaries or number > len(summaries):
            raise NotFoundError("summary", str(number or 1), f"session {session!r} has {len(summaries)}")
        summary = summaries[number - 1]
        print_answer(summary, str(summary.get("text", "")).split("\n"), as_json=as_json)
        return
    _print_overview(found, summaries[-1] if summaries else None, full=full, as_json=as_json)


def _print_overview(session: Session, last: Mapping[str, Any] | None, *, full: bool, as_json: bool) -> None:
    inventory = inventory_of(session)
    files = [{"name": name, "bytes": size} for name, size in inventory.files]
    value = {**dataclasses.asdict(inventory), "files": files, "summary": last}
    print_answer(value, _overview(inventory, last, full=full), as_json=as_json)


def _overview(inventory: Inventory, summary: Mapping[str, Any] | None, *, full: bool) -> Iterator[str]:
    created = f"{how_long_ago(inventory.created)} ({local_time(inventory.created)})"
    yield f"session {inventory.id}, created {created if inventory.created else 'at an unknown time'}"
    messages, live = counted(inventory.messages, "message"), inventory.messages - inventory.archived
    context = f"{'the summary + ' * inventory.has_summary}{counted(inventory.in_context, 'message')}"
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
    yield f"summary {summary['n'] + 1}: messages {first}-{end - 1}, {source:,} tokens in {tokens:,}"
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


_HEADINGS: Sequence[str | int] = ("", "role", "tool", "tokens", "transcript", "begins")


@click.command("diff")
@click.argument("session")
@click.argument("number", metavar="N", type=click.IntRange(min=1))
@workdir_option
@json_option
def diff_command(session: str, number: int, workdir: Path, *, as_json: bool) -> None:
    """Show what the model saw before and after compaction N.

    N counts the compactions of SESSION from 1. The answer lists the messages that were archived and those that were
    kept, the summary that replaced the archived ones, and the lines that each of its sentences cites. Messages are
    numbered from 0 over the whole session; `buoyline show SESSION --messages A-B` and `buoyline read` show all of them.
    Nothing is written.

    Example: buoyline diff s1 2 --workdir ./workspace
    """
    found = difference(existing_workspace(workdir), session, number)
    print_answer(asdict(found), _in_words(found), as_json=as_json)


def _in_words(found: Difference) -> Iterator[str]:
    summary = found.summary
    made = filter(None, (str(summary.get("summarizer", "")), local_time(str(summary.get("created_at", "")))))
    tokens = f"{summary.get('source_tokens', 0):,} tokens in {summary.get('tokens', 0):,}"
    yield ", ".join([f"compaction {found.number} of {found.session_id}", *made, tokens] if summary else [])
    yield from _messages("archived", found.left)
    yield from _messages("kept in the context", (*found.head, *found.stayed))
    yield ""
    if summary:
        number = summary["n"] + 1
        yield f"summary in their place; `buoyline show {found.session_id} --summary {number}` prints it whole"
        yield from _sentences(found.sentences)
        yield ""
        yield f"unverified claims: {', '.join(map(str, summary.get('unverified') or ['none']))}"
    else:
        yield "a notice is in their place"


def _messages(title: str, messages: Sequence[SeenMessage]) -> Iterator[str]:
    yield ""
    yield f"{title}: {counted(len(messages), 'message')}"
    if messages:
        yield from columns([_HEADINGS, *map(_row, messages)])


def _row(message: SeenMessage) -> Sequence[str | int]:
    lines = "in the context" if message.lines is None else f"{message.lines[0]}-{message.lines[1]}"
    # The stub of an offloaded result would only repeat its path.
    said = f"offloaded to {', '.join(message.offloaded)}" if message.offloaded else message.begins
    return f"{message.message}", message.role, message.tool, message.tokens, lines, said


def _sentences(sentences: Sequence[Sentence]) -> Iterator[str]:
    field = ""
    for sentence in sentences:
        if sentence.field != field:
            field = sentence.field
            yield field
        yield f"  {sentence.text}"
        if not sentence.citations:
            yield "    (no citation)"
        for cited in sentence.citations:
            lines = f"{cited.start}" if cited.start == cited.end else f"{cited.start}-{cited.end}"
            yield f"    {cited.path}:{lines}  {cited.begins if cited.is_there else '(these lines are not there)'}"


@click.command("view")
@click.argument("session")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="[default: SESSION.html]")
@workdir_option
@json_option
def view_command(session: str, output: Path | None, *, workdir: Path, as_json: bool) -> None:
    """Write SESSION as one HTML page.

    The page shows the tokens of each request, all messages, and each compaction with its summary. A click on a citation
    leads to its lines. The page works offline and loads nothing.

    Example: buoyline view s1 -o session.html --workdir ./workspace
    """
    path = output or Path(f"{session}.html")
    page = page_of(existing_workspace(workdir).stored(session))
    path.write_text(page, "utf-8")
    size = len(page.encode())
    print_answer({"path": str(path), "bytes": size}, [f"{path}: {size:,} bytes"], as_json=as_json)


@click.command("convert")
@click.argument("session")
@click.option("--to", "dialect", type=click.Choice(list(dialect_names())), required=True, help="Form of the messages.")
@click.option("--all", "is_whole", is_flag=True, help="The whole history instead of the messages in the context.")
@workdir_option
@json_option
def convert_command(session: str, dialect: str, *, workdir: Any, is_whole: bool, as_json: bool) -> None:
    """Print the messages of SESSION in another dialect, one a line.

    Without --all, these are the messages in the context, including the summary. Anything that the dialect cannot
    express is reported on stderr, as is a system prompt that it sends separately. Nothing on disk changes.

    Example: buoyline convert s1 --to bedrock > s1.jsonl
    """
    values = messages_of(existing_workspace(workdir).stored(session), is_whole=is_whole)
    converted = convert([value for _, value in values], to=dialect, from_=[name for name, _ in values])
    made = converted.messages
    lines = [message if is_object(message) else dialect_named(dialect).to_json(message) for message in made]
    if as_json:
        losses = [{"message": loss.message, "what": loss.what, "why": loss.why} for loss in converted.losses]
        print_json({"dialect": dialect, "messages": lines, "system": converted.system, "losses": losses})
        return
    for line in lines:
        print_json(line)
    print_notices(_notices(converted))


def _notices(converted: Converted) -> Iterator[str]:
    if converted.system:
        yield f"system prompt: {converted.system}"
    kinds = dict[tuple[str, str], dict[int, None]]()
    for loss in converted.losses:
        kinds.setdefault((loss.what, loss.why), {})[loss.message] = None
    for (what, why), messages in kinds.items():
        first = next(iter(messages))
        where = f"message {first}" if len(messages) == 1 else f"{len(messages):,} messages from {first} on"
        yield f"{where}: {what}: {why}"
