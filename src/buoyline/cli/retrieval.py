"""``buoyline retrieve``: what an agent gets from ``retrieve_offloaded_content``, for people and for shells."""

import dataclasses
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from buoyline.cli.lookups import below, told_where
from buoyline.cli.options import existing_workspace, json_option, session_option, workdir_option
from buoyline.cli.output import print_json, print_text
from buoyline.lookups import Retrieved, retrieve
from buoyline.lookups.retrieval import DEFAULT_MAX_TOKENS
from buoyline.lookups.retrieved import Content, JsonContent, MediaContent


def _line_range(ctx: click.Context, param: click.Parameter, value: str | None) -> dict[str, int] | None:
    """Read ``A-B``, or ``A`` for a single line; whether there are such lines is for `retrieve` to say."""
    if value is None:
        return None
    spelled = re.fullmatch(r"([0-9]{1,15})(?:-([0-9]{1,15}))?", value)
    if spelled is None:
        raise click.BadParameter(f"{value!r} is not of the form A-B", ctx, param)
    return {"start": int(spelled[1]), "end": int(spelled[2] or spelled[1])}


@click.command("retrieve")
@click.argument("reference")
@click.option("--pattern", help="Show the lines that match, a regular expression in RE2 syntax or the text itself.")
@click.option("--lines", "line_range", callback=_line_range, metavar="A-B", help="Show or search these lines only.")
@click.option(
    "-C",
    "--context",
    "context_lines",
    type=click.INT,
    help="Context lines around each match; without --pattern, show the first N lines.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    default=DEFAULT_MAX_TOKENS,
    show_default=True,
    help="Size of the answer at most.",
)
@click.option("--whole", is_flag=True, help="No size limit.")
@session_option
@workdir_option
@json_option
def retrieve_command(
    reference: str, workdir: Path, *, max_tokens: int, whole: bool, as_json: bool, **options: Any
) -> None:
    """Print offloaded content: all of it, lines, or matches.

    REFERENCE is what a stub names: a path, a workspace:///data/ reference, or the id of a call. With --session, nothing
    of another session is printed. Images and documents are named, not printed.

    Example: buoyline retrieve toolu_01A --session s1 --pattern "error|failed" -C 2
    """
    workspace = existing_workspace(workdir)
    with told_where(workspace):
        found = retrieve(
            workspace,
            below(workdir, reference),
            **options,
            max_tokens=None if whole else max_tokens,
            spelling=_as_options,
        )
    if not as_json:
        print_text(found.text)
        return
    print_json(_fields(found))


def _fields(found: Retrieved) -> dict[str, Any]:
    lines = [{**dataclasses.asdict(line), "content": line.text} for line in found.lines]
    return {
        "parts": [_part(part) for part in found.parts],
        "lines": lines,
        "total": found.total,
        "next": dict(found.next),
    }


def _part(part: Content) -> dict[str, Any]:
    if isinstance(part, MediaContent):
        fields = dataclasses.asdict(part)
        del fields["content"]
        return fields
    return (
        {"kind": "json", "json": part.value} if isinstance(part, JsonContent) else {"kind": "text", "text": part.text}
    )


def _as_options(position: Mapping[str, Any]) -> str:
    return "repeat the command " + ", ".join(_as_option(name, value) for name, value in position.items())


def _as_option(name: str, value: Any) -> str:
    if name == "line_range":
        return f"with --lines {value['start']}-{value['end']}"
    return f"without --{name}" if value is None else f"with {name.upper()} {shlex.quote(value)}"
