"""``buoyline summaries``, and how a summary is shown in short."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from buoyline.cli.options import existing_workspace, json_option, workdir_option
from buoyline.cli.output import counted, print_json, print_lines, print_report
from buoyline.cli.units import local_time
from buoyline.errors import NotFoundError
from buoyline.workspace.logs import Summaries

_FIELD_CHARS = 200
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
    found = Summaries(existing_workspace(workdir).session(session)).load()
    if number is not None and number > len(found):
        raise NotFoundError("summary", str(number), f"session {session!r} has {len(found)}")
    if as_json:
        print_json(found if number is None else found[number - 1])
    elif number is not None:
        print_lines(str(found[number - 1].get("text", "")).split("\n"))
    else:
        print_report([line for summary in found for line in in_short(summary)] or ["no summaries yet"])


def in_short(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a summary covers, and the beginning of each of its fields."""
    first, end = summary.get("messages") or (0, 0)
    source, tokens = summary.get("source_tokens", 0), summary.get("tokens", 0)
    yield f"summary {summary.get('n')}: messages {first}-{end - 1}, {source:,} tokens in {tokens:,}"
    yield from _made(summary)
    fields: Mapping[str, Any] = summary.get("fields") or {}
    for name, value in fields.items():
        text = " ".join(str(value).split())
        yield f"  {name}: {text if len(text) <= _FIELD_CHARS else text[:_FIELD_CHARS] + '…'}"


def _made(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield who wrote a summary, when, and how well it is backed."""
    pointers: Sequence[Any] = summary.get("pointers") or ()
    unverified: Sequence[Any] = summary.get("unverified") or ()
    claims = ", ".join(map(str, unverified[:_SHOWN_CLAIMS])) + (", …" if len(unverified) > _SHOWN_CLAIMS else "")
    backed = f"{counted(len(pointers), 'citation')}, {len(unverified):,} unverified{': ' * bool(claims)}{claims}"
    created = local_time(str(summary.get("created_at") or "at an unknown time"))
    yield f"  by the {summary.get('summarizer')} summarizer, {created}: {backed}"
