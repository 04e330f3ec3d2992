"""``buoyline read``, ``grep``, ``search``, ``glob``, ``query``: what an agent looks things up with, for people, too."""

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from buoyline.cli.options import (
    existing_workspace,
    json_option,
    max_tokens_option,
    session_option,
    workdir_option,
)
from buoyline.cli.output import print_json, print_text
from buoyline.lookups import Answer, Line, glob, grep, query, read, search


@click.command("read")
@click.argument("path", metavar="PATH[:START[-END]]")
@click.option("--start", type=click.IntRange(min=1), default=1, help="First line; narrows the lines of PATH.")
@click.option("--end", type=click.IntRange(min=1), help="Last line, inclusive.")
@click.option("--column", type=click.IntRange(min=1), default=1, help="Character of the first line to begin with.")
@session_option
@max_tokens_option
@workdir_option
@json_option
def read_command(path: str, workdir: Path, *, as_json: bool, **options: Any) -> None:
    """Print lines of a file, with their numbers.

    PATH is relative to the workdir, or with --session to the directory of the session, as in the pointers of
    summaries. Lines over 1,000 characters are cut; --column goes on in them.

    Example: buoyline read --session s1 transcript.md:120-135
    """
    workspace = existing_workspace(workdir)
    _print(read(workspace, _below(workdir, path), spelling=_as_options, **options), as_json=as_json)


@click.command("grep")
@click.argument("pattern")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("-C", "--context", type=click.IntRange(0, 100), default=0, help="Lines before and after each hit.")
@click.option("-F", "--literal", is_flag=True, help="PATTERN is the text itself, no regular expression.")
@click.option("-i", "--ignore-case", is_flag=True, help="Upper and lower case are the same.")
@click.option("--after", default="", metavar="PATH:LINE:COLUMN", help="Skip the hits up to this one.")
@session_option
@max_tokens_option
@workdir_option
@json_option
def grep_command(pattern: str, paths: Sequence[str], workdir: Path, *, as_json: bool, **options: Any) -> None:
    """Search files of the workspace for PATTERN.

    PATTERN is in RE2 syntax and matches within a line. PATH is a file, a directory, or a quoted glob such as
    "tool_result-*.txt"; without one, transcripts and tool results are searched. No hit is no failure: the exit
    status is 0. Where rg is installed, it makes the search of large files faster, with the same answer.

    Example: buoyline grep -i -C 2 "error|failed" --session s1
    """
    workspace = existing_workspace(workdir)
    places = [_below(workdir, path) for path in paths] or None
    _print(grep(workspace, pattern, places, spelling=_as_options, **options), as_json=as_json)


@click.command("search")
@click.argument("query")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--start", type=click.IntRange(min=1), default=1, help="Rank of the first passage to print.")
@session_option
@max_tokens_option
@workdir_option
@json_option
def search_command(query: str, paths: Sequence[str], workdir: Path, *, as_json: bool, **options: Any) -> None:
    """Print the passages that have most to do with QUERY, a question or some words of any language.

    Rare words weigh most, identifiers and quoted words as a whole. PATH is as for grep; without one, transcripts and
    tool results are searched. No passage is no failure: the exit status is 0.

    Example: buoyline search "which port did we choose for staging" --session s1
    """
    workspace = existing_workspace(workdir)
    places = [_below(workdir, path) for path in paths] or None
    _print(search(workspace, query, places, spelling=_as_options, **options), as_json=as_json)


@click.command("glob")
@click.argument("pattern")
@click.option("--after", default="", metavar="PATH", help="Skip the paths up to this one.")
@session_option
@max_tokens_option
@workdir_option
@json_option
def glob_command(pattern: str, workdir: Path, *, as_json: bool, **options: Any) -> None:
    """List files and directories whose path matches PATTERN.

    ``**`` stands for any number of directories; a PATTERN without ``/`` matches at any depth. Quote it, or the
    shell takes it for its own.

    Example: buoyline glob "sessions/*/summaries.jsonl"
    """
    _print(glob(existing_workspace(workdir), pattern, spelling=_as_options, **options), as_json=as_json)


@click.command("query")
@click.argument("expression")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--start", type=click.IntRange(min=1), default=1, help="First line of the result.")
@click.option("--column", type=click.IntRange(min=1), default=1, help="Character of the first line to begin with.")
@session_option
@max_tokens_option
@workdir_option
@json_option
def query_command(expression: str, paths: tuple[str, ...], workdir: Path, *, as_json: bool, **options: Any) -> None:
    """Evaluate EXPRESSION on files that hold JSON, JSON lines, CSV, or paragraphs of "key: value" lines.

    EXPRESSION is JMESPath (https://jmespath.org), or where it begins with SELECT or WITH, a statement of SQLite's that
    reads: the first file is table t1, the second t2. Of all but JSON it sees the list of rows. The result is printed
    as JSON, with the numbers of its lines.

    Example: buoyline query "SELECT state, count(*) FROM t1 GROUP BY state" tool_result-c1.txt --session s1
    """
    workspace = existing_workspace(workdir)
    files = [_below(workdir, path) for path in paths]
    _print(query(workspace, files, expression, spelling=_as_options, **options), as_json=as_json)


def _print(answer: Answer, *, as_json: bool) -> None:
    if not as_json:
        print_text(answer.text)
        return
    print_json(
        {
            "path": answer.path,
            "lines": [_fields(line) for line in answer.lines],
            "paths": answer.paths,
            "total": answer.total,
            "next": dict(answer.next),
        }
    )


def _fields(line: Line) -> dict[str, Any]:
    fields = dataclasses.asdict(line)
    del fields["content"]
    return {**fields, "text": line.text}


def _as_options(position: Mapping[str, Any]) -> str:
    return "repeat the command with " + " ".join(
        f"--{name} {shlex.quote(str(value))}" for name, value in position.items()
    )


def _below(workdir: Path, path: str) -> str:
    """Return *path* in full where it leads into the workdir from here, as completion by a shell spells it."""
    given, root = Path(path), workdir.absolute()
    is_typed_from_here = ".." not in given.parts and not given.is_absolute() and given.absolute().is_relative_to(root)
    return str(given.absolute()) if is_typed_from_here and root != Path.cwd() else path
