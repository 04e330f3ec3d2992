"""``buoyline replay``."""

import asyncio
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import click

from buoyline.cli.output import columns, counted, json_option, print_answer, print_problems, progress
from buoyline.compression import ContextConfig
from buoyline.compression.config import AUTO
from buoyline.errors import BuoylineError, SessionExistsError
from buoyline.inspect.replay import Prices, Replay, appended, cost_of, replay
from buoyline.messages import spell
from buoyline.messages.recording import Recording, read_recording
from buoyline.tokens import default_counter
from buoyline.window import ContextWindow
from buoyline.workspace import LocalWorkspace, layout

F = TypeVar("F", bound=Callable[..., Any])

RETAINED_FILE = "retained.jsonl"
_DEFAULT_TRIGGER = 0.8
_STDIN = Path("-")

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
    "recordings",
    metavar="RECORDING...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, allow_dash=True, path_type=Path),
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
def replay_command(recordings: Sequence[Path], workdir: Path | None, *, as_json: bool, **options: Any) -> int:
    """Replay recordings, and compare their requests with and without it.

    RECORDING is a session file of Claude Code, or messages of any known dialect: one a line, a JSON array, or an object
    with "messages". "-" reads what is piped in. A folder stands for all .jsonl and .json files in it, such as
    ~/.claude/projects. Lines and records that are no messages are skipped and counted. A conversation that was
    compacted when it was recorded is replayed whole, its summaries included. Recorded times are kept. The session in
    the workspace has the name of the file.

    Without --workdir a temporary workspace is created and its path printed; BUOYLINE_WORKDIR is ignored, so that a
    replay never writes beside a live agent. At the end, retained.jsonl in the workspace holds the messages in the last
    context.

    Exit status: 0 done, 1 a recording holds no messages or was replayed before, and was left out.

    Example: buoyline replay ~/.claude/projects --price-input 3 --price-output 15 --price-cached 0.3
    """
    prices = _prices_in(options)
    if options["management"] is not None and options["trigger"] is not None:
        raise click.UsageError("--trigger and --management exclude each other: the document decides")
    if options["management"] is not None and Path(options["management"]).is_file():
        options["management"] = Path(options["management"])
    paths = [*chain.from_iterable(map(_files_in, recordings))]
    if not paths:
        raise click.UsageError(f"no .jsonl or .json file in {', '.join(map(str, recordings))}")
    reports, problems = list[dict[str, Any]](), list[str]()
    for path, session_id in zip(paths, _names_of(paths), strict=True):
        try:
            recording = _read(path, options)
            workdir = workdir or Path(tempfile.mkdtemp(prefix="buoyline-replay-"))
            seen, tokens = asyncio.run(_replayed(recording, session_id, workdir, options))
        except BuoylineError as error:
            if len(paths) == 1:
                raise
            problems.append(f"left out: {error}")
            continue
        report = _report(session_id, workdir, seen, prices, tokens=tokens, size=options["context_size"])
        recorded = {"form": recording.form, "skipped": recording.skipped, "compactions": recording.compactions}
        reports.append({**report, "recording": recorded})
    value: Any = reports[0] if len(paths) == 1 else {"recordings": reports}
    print_answer(value, _in_words(reports, prices) if reports else [], as_json=as_json)
    return print_problems(problems)


def _files_in(path: Path) -> list[Path]:
    """Return the recordings in a folder, the oldest first; a file stands for itself."""
    if not path.is_dir():
        return [path]
    found = (one for one in path.rglob("*.json*") if one.suffix in {".jsonl", ".json"} and one.is_file())
    return sorted(found, key=lambda one: (one.stat().st_mtime, one))


def _names_of(paths: Sequence[Path]) -> Iterator[str]:
    """Yield the name of each recording's session: that of its file, with a number if another one has it."""
    seen = Counter[str]()
    for path in paths:
        name = "stdin" if path == _STDIN else path.stem
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name}-{seen[name]}"


def _read(path: Path, options: Mapping[str, Any]) -> Recording:
    """Read a recording. Raises `MessageError` if it holds no message."""
    try:
        content = sys.stdin.buffer.read() if path == _STDIN else path.read_bytes()
    except OSError as error:
        raise click.FileError(str(path), error.strerror) from error
    found = read_recording(content, "stdin" if path == _STDIN else str(path))
    if beyond := [line for line in options["compress_at"] if line >= len(found.messages)]:
        problem = f"message {beyond[0]} is behind the last one, {len(found.messages) - 1}"
        raise click.BadParameter(problem, param_hint="--compress-at")
    return found


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
    recording: Recording, session_id: str, workdir: Path, options: Mapping[str, Any]
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
                recording.messages,
                window,
                seen,
                counter=default_counter(),
                times=recording.times,
                compress_at=options["compress_at"],
                on_message=lambda position: advance(position + 1, len(recording.messages)) if advance else None,
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
        "compressions": [
            # The facts are for the next summary alone.
            {key: value for key, value in event.summary.to_json().items() if key != "facts"}
            for event in seen.compressions
        ],
    }


def change(now: float, before: float) -> str:
    """Return by how many percent *now* is less or more than *before*.

    >>> change(11, 100), change(7, 5), change(1, 1)
    ('-89%', '+40%', '+0%')
    """
    return f"{now / before - 1:+.0%}" if before else ""


def _in_words(reports: Sequence[dict[str, Any]], prices: Prices | None) -> Iterator[str]:
    """Yield a table with a row for each recording, and what it takes to understand it."""
    rows = [_row(report["session"], [report], prices) for report in reports]
    rows += [_row(counted(len(reports), "recording"), reports, prices)] if len(reports) > 1 else []
    money = ["cost", "without buoyline"] if prices else []
    heading = ["session", "requests", "tokens sent", "without buoyline", "", "compactions", "when recorded", *money]
    yield from columns([heading, *rows])
    yield ""
    sent, without = (sum(one[key] for one in reports) for key in ("sent_tokens", "sent_tokens_unmanaged"))
    reusable = [sum(one[key] for one in reports) for key in ("reusable_tokens", "reusable_tokens_unmanaged")]
    shares = f"{reusable[0] / max(sent, 1):.0%} of these tokens (without buoyline {reusable[1] / max(without, 1):.0%})"
    yield f"A provider's prompt cache can serve {shares}."
    if over := sum(one["exceeding_steps_unmanaged"] for one in reports):
        yield f"Without buoyline, {counted(over, 'request')} would not fit the window and be refused."
    assumed = "Costs: a cache that keeps everything, and the recorded answers in both cases."
    yield assumed if prices else "For costs, give prices: --price-input and --price-output."
    skipped = Counter[str]()
    for report in reports:
        skipped.update(report["recording"]["skipped"])
    yield from (f"Skipped: {count:,} {kind}." for kind, count in skipped.most_common())
    yield f"Details: {shlex.join(['buoyline', 'show', reports[0]['session'], '--workdir', reports[0]['workdir']])}"


def _row(name: str, reports: Sequence[dict[str, Any]], prices: Prices | None) -> Sequence[str | int]:
    sent, without = (sum(one[key] for one in reports) for key in ("sent_tokens", "sent_tokens_unmanaged"))
    requests, ours = (sum(one["steps"] for one in reports), sum(len(one["compressions"]) for one in reports))
    recorded = sum(one["recording"]["compactions"] for one in reports)
    row = [name, requests, sent, without, change(sent, without), ours, recorded]
    if prices is None:
        return row
    costs = (sum(one["cost"][key]["amount"] for one in reports) for key in ("managed", "unmanaged"))
    return [*row, *(f"{cost:,.2f}" for cost in costs)]
