"""``buoyline replay``."""

import asyncio
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from textwrap import wrap
from typing import Any, TypeVar

import click

from buoyline.cli.options import json_option
from buoyline.cli.output import counted, print_answer, progress
from buoyline.compression import ContextConfig, Summary
from buoyline.compression.config import AUTO
from buoyline.errors import SessionExistsError
from buoyline.inspect.costs import Prices, appended, cost_of
from buoyline.inspect.replay import Replay, replay
from buoyline.messages import spell
from buoyline.messages.recording import read_recording
from buoyline.tokens import default_counter
from buoyline.window import ContextWindow
from buoyline.workspace import LocalWorkspace, layout

F = TypeVar("F", bound=Callable[..., Any])

RETAINED_FILE = "retained.jsonl"
_DEFAULT_TRIGGER = 0.8
_STDIN = Path("-")
_WIDTH = 80
_LEAST_SHARE = 0.005
"""Smaller shares are shown as 0 %."""

_PRICES: Mapping[str, str] = {
    "input": "Price of a million tokens of input.",
    "cached": "The same, read from the provider's prompt cache.  [default: as any input]",
    "cache_write": "The same, kept in that cache.  [default: as any input]",
    "output": "Price of a million tokens of output.",
}


def _price_options(function: F) -> F:
    for name, words in reversed(list(_PRICES.items())):
        flag = f"--price-{name.replace('_', '-')}"
        function = click.option(flag, type=click.FloatRange(min=0), metavar="AMOUNT", help=words)(function)
    return function


def _trigger(_context: click.Context, _parameter: click.Parameter, value: str | None) -> Any:
    """Return the trigger that *value* means.

    Raises:
        BadParameter: *value* is neither a share nor ``auto``.
    """
    try:
        trigger: Any = value if value in {None, AUTO} else float(str(value))
        return trigger if trigger is None else ContextConfig(trigger_ratio=trigger).trigger_ratio
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is neither auto nor a share of the context; {error}") from error


@click.command("replay")
@click.argument(
    "recording", metavar="SESSION.jsonl", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
)
@click.option(
    "--workdir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of the workspace to write to.  [default: a new temporary one, which is kept]",
)
@click.option("--context-size", type=click.IntRange(min=1), default=128_000, show_default=True, help="Tokens.")
@click.option(
    "--trigger",
    metavar="RATIO",
    callback=_trigger,
    help="Share of the context above which it is compacted; auto: 12,000 tokens above what one leaves.  [default: 0.8]",
)
@click.option(
    "--compress-at",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="LINE",
    help="Compact just before this message, counted from 0 as in the transcript. May be repeated.",
)
@click.option("--summary-tokens", type=click.IntRange(min=1), help="Size of each summary.")
@click.option(
    "--management",
    metavar="NAME|FILE",
    help="A document that says what is done, and when, in place of the limits; see buoyline context.",
)
@_price_options
@json_option
def replay_command(recording: Path, workdir: Path | None, *, as_json: bool, **options: Any) -> None:
    """Feed a recorded conversation through the live code path.

    SESSION.jsonl is a session file of Claude Code (~/.claude/projects/*/*.jsonl), or messages of any known dialect: one
    a line, a JSON array, or an object with "messages". "-" reads what is piped in. Lines and records that are no
    messages are skipped and counted; a conversation that it compacted is replayed whole, its summaries included. The
    session in the workspace has the name of the file.

    Without --workdir a temporary workspace is created and its path printed; BUOYLINE_WORKDIR is ignored, so that a
    replay never writes beside a live agent. At the end, retained.jsonl in the workspace holds what is in the context.

    The report says how much of what was sent a provider's prompt cache could serve: all that a request has in common
    with the one before, from its beginning. With prices it also says what the session would have cost, with and without
    buoyline.

    Example: buoyline replay run.jsonl --workdir ./replayed --context-size 32000
    """
    prices = _prices_in(options)
    if options["management"] is not None and options["trigger"] is not None:
        raise click.UsageError("--trigger and --management exclude each other: the document decides")
    if options["management"] is not None and Path(options["management"]).is_file():
        options["management"] = Path(options["management"])
    try:
        content = sys.stdin.buffer.read() if recording == _STDIN else recording.read_bytes()
    except OSError as error:
        raise click.FileError(str(recording), error.strerror) from error
    # Every message is checked before anything is written.
    found = read_recording(content, "stdin" if recording == _STDIN else str(recording))
    beyond = [line for line in options["compress_at"] if line >= len(found.messages)]
    if beyond:
        problem = f"message {beyond[0]} is behind the last one, {len(found.messages) - 1}"
        raise click.BadParameter(problem, param_hint="--compress-at")
    session_id = "stdin" if recording == _STDIN else recording.stem
    directory = Path(tempfile.mkdtemp(prefix="buoyline-replay-")) if workdir is None else workdir
    seen, tokens = asyncio.run(_replayed(found.messages, session_id, directory, options))
    report = _report(session_id, directory, seen, prices, tokens=tokens, size=options["context_size"])
    report["recording"] = {"form": found.form, "skipped": found.skipped, "compactions": found.compactions}
    print_answer(report, _in_words(report), as_json=as_json)


def _prices_in(options: Mapping[str, Any]) -> Prices | None:
    """Return the prices among the command's *options*; None without prices.

    Raises:
        UsageError: Input or output has no price.
    """
    given = {name: options[f"price_{name}"] for name in _PRICES}
    if all(price is None for price in given.values()):
        return None
    if given["input"] is None or given["output"] is None:
        raise click.UsageError("costs need both --price-input and --price-output")
    return Prices(**given)


async def _replayed(
    conversation: Sequence[Any], session_id: str, workdir: Path, options: dict[str, Any]
) -> tuple[Replay, int]:
    """Replay a conversation, and write down what is in the context at its end; return its tokens, too."""
    seen, workspace = Replay(), LocalWorkspace(workdir)
    if workspace.session(session_id).load().exists:
        path = workspace.disk.path(layout.session_directory(session_id))
        raise SessionExistsError(session_id, path)
    window = await ContextWindow.open(
        workspace,
        session_id,
        size=options["context_size"],
        config=ContextConfig(
            trigger_ratio=options["trigger"] or _DEFAULT_TRIGGER, summary_tokens=options["summary_tokens"]
        ),
        on_event=seen.record,
        management=options["management"],
    )
    async with window:
        with progress("messages", of_bytes=False) as advance:
            await replay(
                conversation,
                window,
                seen,
                counter=default_counter(),
                compress_at=options["compress_at"],
                on_message=lambda position: advance(position + 1, len(conversation)) if advance else None,
            )
        lines = [spell(message).encode("utf-8") + b"\n" for message in window.messages]
        workspace.disk.replace(RETAINED_FILE, lines)
    return seen, window.tokens


def _report(
    session_id: str, workdir: Path, seen: Replay, prices: Prices | None, *, tokens: int, size: int
) -> dict[str, Any]:
    unmanaged = appended(seen.unmanaged_tokens)
    cost: dict[str, Any] | None = None
    if prices is not None:
        managed, otherwise = (cost_of(each, seen.output_tokens, prices) for each in (seen.requests, unmanaged))
        cost = {"prices": asdict(prices), "managed": asdict(managed), "unmanaged": asdict(otherwise)}
    return {
        "session": session_id,
        "workdir": str(workdir.absolute()),
        "context_size": size,
        "messages": seen.messages,
        "steps": len(seen.step_tokens),
        "tokens": tokens,
        "peak_tokens": max(seen.step_tokens),
        "peak_tokens_unmanaged": max(seen.unmanaged_tokens),
        "sent_tokens": sum(seen.step_tokens),
        "sent_tokens_unmanaged": sum(seen.unmanaged_tokens),
        "exceeding_steps_unmanaged": sum(each > size for each in seen.unmanaged_tokens),
        "output_tokens": seen.output_tokens,
        "reusable_tokens": sum(request.reused_tokens for request in seen.requests),
        "reusable_tokens_unmanaged": sum(request.reused_tokens for request in unmanaged),
        "cost": cost,
        "saved_tokens": seen.saved_tokens,
        "offloaded": [{k: v for k, v in asdict(event).items() if k != "stub"} for event in seen.offloaded],
        "exceeding": [{"message": index, "tokens": tokens} for index, tokens in sorted(seen.exceeding.items())],
        "compressions": [_without_facts(event.summary) for event in seen.compressions],
    }


def _without_facts(summary: Summary) -> dict[str, Any]:
    """Return a summary without what only the next one needs."""
    return {key: value for key, value in summary.to_json().items() if key != "facts"}


def compared(now: float, before: float, what: str = "") -> str:
    """Return by how many percent *now* is less or more than *before*.

    >>> compared(11, 100, "tokens"), compared(7, 5), compared(1, 1)
    ('89% fewer tokens', '40% more', 'as much')
    """
    share = abs(1 - now / before) if before else 0
    if share < _LEAST_SHARE:
        return f"as many {what}" if what else "as much"
    less = "fewer" if what else "less"
    return f"{share:.0%} {less if now < before else 'more'} {what}".strip()


def _in_words(report: dict[str, Any]) -> Iterator[str]:
    sent, without, cost = report["sent_tokens"], report["sent_tokens_unmanaged"], report["cost"]
    reusable, reusable_without = report["reusable_tokens"], report["reusable_tokens_unmanaged"]
    yield f"With buoyline this session sends {compared(sent, without, 'tokens')}: {sent:,}, not {without:,}."
    share, share_without = reusable / max(sent, 1), reusable_without / max(without, 1)
    yield f"A provider's prompt cache can serve {share:.0%} of these (without buoyline {share_without:.0%})."
    if cost is None:
        yield "For costs, give prices: --price-input and --price-output."
    else:
        now, before = cost["managed"]["amount"], cost["unmanaged"]["amount"]
        prices = ", ".join(f"{name} {price:g}" for name, price in cost["prices"].items() if price is not None)
        amounts = f"{now:,.4f}, not {before:,.4f} (a million tokens: {prices})"
        yield from wrap(f"It costs {compared(now, before)}: {amounts}.", _WIDTH)
    yield f"Details: {shlex.join(['buoyline', 'show', report['session'], '--workdir', report['workdir']])}"
    yield ""
    size = f"window {report['context_size']:,} tokens"
    yield f"{counted(report['messages'], 'message')}, {counted(report['steps'], 'model call')}, {size}"
    yield from _recording_in_words(report["recording"])
    yield f"largest request   {report['peak_tokens']:>11,} tokens, without buoyline {report['peak_tokens_unmanaged']:,}"
    yield f"prompt-cacheable  {reusable:>11,} tokens, without buoyline {reusable_without:,}"
    offloaded = counted(len(report["offloaded"]), "tool result")
    yield f"offloaded         {offloaded:>11}, {report['saved_tokens']:,} tokens less"
    for summary in report["compressions"]:
        first, end = summary["messages"]
        citations = counted(len(summary["pointers"]), "citation")
        tokens = f"{summary['source_tokens']:,} tokens in {summary['tokens']:,}"
        unverified = f"{len(summary['unverified'])} unverified"
        yield f"summary {summary['n'] + 1}: messages {first}-{end - 1}, {tokens}, {citations}, {unverified}"
    for found in report["exceeding"]:
        yield f"message {found['message']} alone takes {found['tokens']:,} tokens, more than the window"
    if cost is not None:
        assumed = (
            "Assumed for the costs: the cache is never too old or too small; the output is that of the recording, "
            f"{report['output_tokens']:,} tokens, with and without; a request over the window "
            f"({report['exceeding_steps_unmanaged']:,} without buoyline) costs what it takes, though it would be "
            "refused."
        )
        yield from wrap(assumed, _WIDTH)


def _recording_in_words(recording: dict[str, Any]) -> Iterator[str]:
    if skipped := recording["skipped"]:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in skipped.items())
        records = counted(sum(skipped.values()), "record that is no message", "records that are no messages")
        yield f"{recording['form']}, without {records}: {kinds}"
    if recording["compactions"]:
        times = counted(recording["compactions"], "time")
        yield f"compacted {times} when it was recorded; replayed whole, with those summaries"
