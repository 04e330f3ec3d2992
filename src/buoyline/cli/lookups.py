"""``buoyline read``, ``grep`` and ``search``: an agent's lookups, for people."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from buoyline.cli.options import existing_workspace, json_option, workdir_option
from buoyline.cli.output import print_json, print_problems, print_text
from buoyline.lookups import Answer, grep, read, search

F = TypeVar("F", bound=Callable[..., Any])

_session_option = click.option("--session", metavar="ID", help="Look in this session alone.")
_max_tokens_option = click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    default=2_000,
    show_default=True,
    help="Size of the answer at most.",
)


def _lookup_options(function: F) -> F:
    return _session_option(_max_tokens_option(workdir_option(json_option(function))))


@click.command("read")
@click.argument("path", metavar="PATH[:START[-END]]")
@click.option("--start", type=click.INT, default=1, help="First line, or -60; narrows the lines of PATH.")
@click.option("--end", type=click.IntRange(min=1), help="Last line, inclusive.")
@_lookup_options
def read_command(path: str, workdir: Path, **options: Any) -> int:
    """Print lines of a file, with their numbers.

    PATH is relative to the workdir, or with --session to the directory of the session. It may also be the plain name
    of a file, the id of a call, or a citation as a summary prints it. PATH:-60 prints the last 60 lines, and
    "summary 3" the third summary of a session. Lines over 1,000 characters are cut.

    Example: buoyline read --session s1 transcript.md:120-135

    Example: buoyline read --session s1 transcript.md:-60
    """
    return _look_up(read, workdir, path_from_here(workdir, path), **options)


@click.command("grep")
@click.argument("pattern")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("-C", "--context", type=click.IntRange(0, 100), default=0, help="Lines before and after each hit.")
@click.option("-F", "--literal", is_flag=True, help="PATTERN is the text itself, not a regular expression.")
@click.option("-i", "--ignore-case", is_flag=True, help="Upper and lower case are the same.")
@click.option("--last", is_flag=True, help="Print the newest hits first.")
@click.option("--after", default="", metavar="PATH:LINE:COLUMN", help="Skip the hits up to this one.")
@_lookup_options
def grep_command(pattern: str, paths: Sequence[str], workdir: Path, **options: Any) -> int:
    """Search files of the workspace for PATTERN.

    PATTERN is in RE2 syntax and matches within a line. PATH is as for read, a directory, or quoted names such as
    "tool_result-*.txt"; without one, transcripts and tool results are searched. No hit is no failure.

    Exit status: 0 done, 1 a file cannot be read; the answer is about the others.

    Example: buoyline grep -i -C 2 "error|failed" --session s1

    Example: buoyline grep --last "passed|failed" --session s1
    """
    return _look_up(grep, workdir, pattern, [path_from_here(workdir, path) for path in paths] or None, **options)


@click.command("search")
@click.argument("query")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--start", type=click.IntRange(min=1), default=1, help="Rank of the first passage to print.")
@_lookup_options
def search_command(query: str, paths: Sequence[str], workdir: Path, **options: Any) -> int:
    """Print the passages that best match QUERY.

    QUERY is a question or some words, in any language. Rare words weigh most, identifiers and quoted words as a whole.
    PATH is as for grep; without one, transcripts and tool results are searched. No match is no failure. In a large
    workspace the first search makes an index, which later ones use.

    Exit status: 0 done, 1 a file cannot be read; the answer is about the others.

    Example: buoyline search "which port did we choose for staging" --session s1
    """
    return _look_up(search, workdir, query, [path_from_here(workdir, path) for path in paths] or None, **options)


def _look_up(lookup: Callable[..., Answer], workdir: Path, *asked: Any, as_json: bool, **options: Any) -> int:
    workspace = existing_workspace(workdir)
    answer = lookup(workspace, *asked, **options)
    if as_json:
        lines = [{**dataclasses.asdict(line), "text": line.text} for line in answer.lines]
        for fields in lines:
            del fields["content"]
        print_json({"path": answer.path, "lines": lines, "total": answer.total, "next": dict(answer.next)})
    else:
        print_text(answer.text)
    return print_problems([f"{workspace.files.path(path)}: {reason}" for path, reason in answer.unread.items()])


def path_from_here(workdir: Path, path: str) -> str:
    """Return the absolute path if *path* is below the workdir as seen from here, as a shell completes it."""
    given, root = Path(path), workdir.absolute()
    if given.is_absolute() or ".." in given.parts or root == Path.cwd() or not given.absolute().is_relative_to(root):
        return path
    first = Path(path.partition(":")[0]).parts[:1]
    is_here = bool(first) and ("*" in first[0] or Path(first[0]).exists())
    return str(given.absolute()) if is_here else path
