"""``buoyline replay``."""

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from buoyline.cli.options import json_option, workdir_option
from buoyline.cli.output import print_json, print_lines
from buoyline.cli.prices import costs, costs_in_words, price_options, prices_in
from buoyline.compression import ContextConfig
from buoyline.errors import MessageError
from buoyline.management import ContextManagement
from buoyline.messages import detect, dialect_named, dialect_names, parse, spell
from buoyline.tokens import default_counter
from buoyline.window import ContextWindow, ResultOffloaded
from buoyline.window.costs import Prices, appended
from buoyline.window.documents import document_of
from buoyline.window.replay import Replay, replay
from buoyline.workspace import LocalWorkspace

RETAINED_FILE = "retained.jsonl"
_DEFAULTS = ContextConfig()


@click.command("replay")
@click.argument("session", metavar="SESSION.jsonl", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@workdir_option
@click.option("--context-size", type=click.IntRange(min=1), default=128_000, show_default=True, help="Tokens.")
@click.option(
    "--tool-result-limit",
    type=click.IntRange(min=2),
    default=_DEFAULTS.tool_result_limit,
    show_default=True,
    help="Tokens above which a result is offloaded.",
)
@click.option(
    "--turn-results-limit",
    type=click.IntRange(min=2),
    help="Tokens of all results between two model calls, above which the largest are offloaded.  [default: four times "
    "the limit of one, at most 30 % of the context]",
)
@click.option(
    "--compress-at",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="LINE",
    help="Compress just before this message, counted from 0 as in the transcript. May be repeated.",
)
@click.option("--summary-tokens", type=click.IntRange(min=1), help="Size of each summary.")
@click.option("--dialect", type=click.Choice(list(dialect_names())), help="Form of the messages.  [default: detected]")
@click.option(
    "--management",
    metavar="NAME|FILE",
    help="A document that says what is done, and when, in place of the limits; see buoyline context.",
)
@click.option(
    "--allow", "allowed", metavar="NAME", multiple=True, help="A manager, by its dotted name, that may be imported."
)
@price_options
@json_option
def replay_command(session: Path, workdir: Path, *, as_json: bool, **options: Any) -> None:
    """Feed a recorded conversation through the live code path.

    SESSION.jsonl holds one message a line. The session in --workdir is named after the file, and must be new there. At
    the end, retained.jsonl in --workdir holds what is in the context.

    The report says how much of what was sent a provider's prompt cache could reuse: all that a request has in common
    with the one before, from its beginning. With prices it also says what the session would have cost, with and without
    buoyline.

    With --management a document manages the context: one in a file, of --workdir, or that comes with the package. The
    report then says what each of its managers did.

    Example: buoyline replay run.jsonl --workdir ./replayed --context-size 32000
    """
    prices = prices_in(options)
    _refuse_limits_beside_a_document(options)
    conversation = _read(session, options["dialect"])
    beyond = [line for line in options["compress_at"] if line >= len(conversation)]
    if beyond:
        raise click.BadParameter(f"message {beyond[0]} is behind the last one, {len(conversation) - 1}")
    seen, window = asyncio.run(_replayed(conversation, session.stem, workdir, options))
    report = _report(session.stem, workdir, seen, window, prices)
    if as_json:
        print_json(report)
    else:
        print_lines(_in_words(report))


def _refuse_limits_beside_a_document(options: dict[str, Any]) -> None:
    """Refuse what a document decides: it would be ignored."""
    context = click.get_current_context()
    for name in ("tool_result_limit", "turn_results_limit"):
        is_given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if options["management"] is not None and is_given:
            option = f"--{name.replace('_', '-')}"
            raise click.BadOptionUsage(option, f"{option} and --management exclude each other: the document decides")


def _read(path: Path, dialect: str | None) -> list[dict[str, Any]]:
    """Return the messages of a recording; every line is checked before anything is written."""
    conversation: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_bytes().rstrip().split(b"\n"), 1):
        try:
            conversation.append(_message(line, dialect))
        except MessageError as error:
            raise MessageError(f"{path}, line {number}: {error.reason}") from error
    return conversation


def _message(line: bytes, dialect: str | None) -> dict[str, Any]:
    if not line.strip():
        raise MessageError("is blank; each line holds one message")
    message: dict[str, Any] = parse(line)
    (dialect_named(dialect) if dialect else detect(message)).view(message)
    spell(message)
    return message


async def _replayed(
    conversation: Sequence[Any], session_id: str, workdir: Path, options: dict[str, Any]
) -> tuple[Replay, ContextWindow]:
    names = ("tool_result_limit", "turn_results_limit", "summary_tokens")
    config = ContextConfig(**{name: options[name] for name in names})
    seen = Replay()
    # Not entered: entering creates the directory, and a window that is too small shall leave none behind.
    workspace = LocalWorkspace(workdir)
    window = ContextWindow(
        session_id=session_id,
        offloader=workspace,
        size=options["context_size"],
        config=config,
        dialect=options["dialect"],
        on_event=seen.record,
        management=_document(options["management"], workspace, options["allowed"]),
    )
    try:
        with _progress(len(conversation)) as bar:
            await replay(
                conversation,
                window,
                seen,
                counter=default_counter(),
                compress_at=options["compress_at"],
                on_message=lambda position: bar.update(bar.task_ids[0], completed=position + 1) if bar else None,
            )
        lines = [spell(message).encode("utf-8") + b"\n" for message in window.messages]
        workspace.tree.replace(RETAINED_FILE, lines)
    finally:
        await workspace.close()
    return seen, window


def _document(source: str | None, workspace: LocalWorkspace, allowed: Sequence[str]) -> ContextManagement | None:
    """Return the document in the file *source*, or else under that name."""
    if source is None:
        return None
    file = Path(source)
    return document_of(file if file.is_file() else source, workspace, allowed=allowed)


def _progress(total: int) -> Any:
    console = Console(stderr=True)
    if not console.is_terminal:
        return nullcontext()
    bar = Progress(TextColumn("messages"), BarColumn(), MofNCompleteColumn(), console=console, transient=True)
    bar.add_task("messages", total=total)
    return bar


def _report(
    session_id: str, workdir: Path, seen: Replay, window: ContextWindow, prices: Prices | None
) -> dict[str, Any]:
    unmanaged = appended(seen.unmanaged_tokens)
    return {
        "session": session_id,
        "workdir": str(workdir.absolute()),
        "context_size": window.size,
        "messages": seen.messages,
        "steps": len(seen.step_tokens),
        "tokens": window.tokens,
        "peak_tokens": max(seen.step_tokens),
        "peak_tokens_unmanaged": max(seen.unmanaged_tokens),
        "sent_tokens": sum(seen.step_tokens),
        "sent_tokens_unmanaged": sum(seen.unmanaged_tokens),
        "exceeding_steps_unmanaged": sum(tokens > window.size for tokens in seen.unmanaged_tokens),
        "output_tokens": seen.output_tokens,
        "reusable_tokens": sum(request.reused_tokens for request in seen.requests),
        "reusable_tokens_unmanaged": sum(request.reused_tokens for request in unmanaged),
        "cost": costs(seen.requests, unmanaged, seen.output_tokens, prices),
        "turn_results_limit": window.config.turn_limit(window.size),
        "peak_turn_tokens": max(seen.turn_tokens),
        "saved_tokens": seen.saved_tokens,
        "offloaded": [_offloaded(event) for event in seen.offloaded],
        "exceeding": [{"message": index, "tokens": tokens} for index, tokens in sorted(seen.exceeding.items())],
        "requests": [asdict(request) for request in seen.requests],
        "compressions": [event.summary.to_json() for event in seen.compressions],
        "management": None if window.management is None else window.management.to_json(),
        "managers": [asdict(totals) for totals in seen.managers()],
    }


def _offloaded(event: ResultOffloaded) -> dict[str, Any]:
    return {name: value for name, value in asdict(event).items() if name != "stub"}


def _manager_in_words(totals: dict[str, Any]) -> str:
    asked, active, reduced = totals["asked"], totals["active"], totals["reduced"]
    done = f"reduced {reduced:,} times, {totals['messages']:,} messages and {totals['tokens']:,} tokens less"
    problems = "".join(f"; {problem}" for problem in totals["problems"])
    name = f"{totals['hook']}[{totals['number']}] {totals['type_name']}"
    return f"{name}: active {active:,} of {asked:,} times, {done}{problems}"


def _in_words(report: dict[str, Any]) -> list[str]:
    sent, unmanaged = report["sent_tokens"], report["sent_tokens_unmanaged"]
    limit = "" if report["management"] else f", limit {report['turn_results_limit']:,}"
    lines = [
        f"{report['messages']:,} messages, {report['steps']:,} model calls, window {report['context_size']:,} tokens",
        f"peak      {report['peak_tokens']:>12,} tokens, unmanaged {report['peak_tokens_unmanaged']:,}",
        f"sent      {sent:>12,} tokens, unmanaged {unmanaged:,} ({1 - sent / max(unmanaged, 1):.0%} less)",
        *costs_in_words(report),
        f"offloaded {len(report['offloaded']):>12,} tool results, {report['saved_tokens']:,} tokens less",
        f"one turn  {report['peak_turn_tokens']:>12,} tokens of results{limit}",
    ]
    for summary in report["compressions"]:
        first, end = summary["messages"]
        source, tokens, pointers = summary["source_tokens"], summary["tokens"], len(summary["pointers"])
        lines.append(
            f"summary {summary['n']}: messages {first}-{end - 1}, {source:,} tokens in {tokens:,}, "
            f"{pointers} pointers, {len(summary['unverified'])} unverified"
        )
    lines += [_manager_in_words(totals) for totals in report["managers"]]
    lines += [
        f"message {found['message']} alone takes {found['tokens']:,} tokens, more than the window"
        for found in report["exceeding"]
    ]
    lines.append(f"look around: buoyline show {report['session']} --workdir {report['workdir']}")
    return lines
