"""``buoyline read``, ``grep`` and ``search``: an agent's lookups, for people."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from buoyline.cli.output import existing_workspace, json_option, print_json, print_text, workdir_option
from buoyline.lookups import Answer, grep, read, search
from buoyline.lookups.answer import DATA_LABEL

F = TypeVar("F", bound=Callable[..., Any])

_session_option = click.option("--session", metavar="ID", help="Look in this session alone.")
_max_tokens_option = click.option(
    "--max-tokens",
    type=click.IntRange(min=200),
    default=2_000,
    show_default=True,
    help="Size of the answer at most.",
)


def _lookup_options(function: F) -> F:
    return _session_option(_max_tokens_option(workdir_option(json_option(function))))


@click.command("read")
@click.argument("path", metavar="PATH[:START[-END]]")
@_lookup_options
def read_command(path: str, workdir: Path, **options: Any) -> None:
    """Print lines of a file, with their numbers.

    PATH is a path, a plain name, the id of a call, or a citation as a summary prints it. PATH:-60 prints the last 60
    lines, summaries.jsonl:3 the third summary of a session, and in_context the messages that are not archived. A
    directory such as . or sessions/s1 is listed.

    Example: buoyline read --session s1 transcript.md:120-135

    Example: buoyline read --session s1 transcript.md:-60
    """
    _look_up(read, workdir, path, **options)


@click.command("grep")
@click.argument("pattern")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("-C", "--context", type=click.IntRange(0, 100), default=0, help="Lines before and after each hit.")
@click.option("-F", "--literal", is_flag=True, help="PATTERN is the text itself, not a regular expression.")
@click.option("-i", "--ignore-case", is_flag=True, help="Upper and lower case are the same.")
@click.option("--last", is_flag=True, help="Print the newest hits first.")
@click.option("--start", type=click.IntRange(min=1), default=1, help="Number of the first hit to print.")
@_lookup_options
def grep_command(pattern: str, paths: Sequence[str], workdir: Path, **options: Any) -> None:
    """Search files of the workspace for PATTERN.

    PATTERN is in RE2 syntax and matches within a line. PATH is as for read, or quoted names such as
    "tool_result-*.txt"; without one, transcripts, tool results and messages in the context are searched. No hit is no
    failure.

    Example: buoyline grep -i -C 2 "error|failed" --session s1

    Example: buoyline grep --last "passed|failed" --session s1
    """
    _look_up(grep, workdir, pattern, list(paths) or None, **options)


@click.command("search")
@click.argument("query")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--start", type=click.IntRange(min=1), default=1, help="Rank of the first passage to print.")
@_lookup_options
def search_command(query: str, paths: Sequence[str], workdir: Path, **options: Any) -> None:
    """Print the passages that best match QUERY.

    QUERY is a question or some words, in any language. Rare words weigh most, identifiers and quoted words as a whole.
    PATH is as for grep. No match is no failure. The first search of over 4 MB makes an index, which later ones use.

    Example: buoyline search "which port did we choose for staging" --session s1
    """
    _look_up(search, workdir, query, list(paths) or None, **options)


def _look_up(lookup: Callable[..., Answer], workdir: Path, *asked: Any, as_json: bool, **options: Any) -> None:
    answer = lookup(existing_workspace(workdir), *asked, live=True, **options)
    if as_json:
        lines = [line._asdict() for line in answer.lines]
        print_json({"lines": lines, "total": answer.total, "next": dict(answer.next)})
    else:
        print_text(answer.text.replace(f" {DATA_LABEL}]", "]", 1))  # a sentence for models
