"""``buoyline read``, ``grep``, ``search``, ``glob``, ``query`` and ``retrieve``: an agent's lookups, for people."""

import contextlib
import dataclasses
import itertools
import re
import shlex
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from buoyline.cli.options import existing_workspace, json_option, workdir_option
from buoyline.cli.output import print_json, print_problems, print_text
from buoyline.errors import BuoylineError, ConfigError, MessageError, NotFoundError
from buoyline.lookups import Answer, glob, grep, query, read, retrieve, search
from buoyline.lookups.paths import resolve_path
from buoyline.lookups.references import Content, JsonContent, MediaContent
from buoyline.lookups.retrieve import DEFAULT_MAX_TOKENS
from buoyline.workspace import LocalWorkspace

_MAX_SESSIONS = 1_000
_MAX_HINTS = 3
_TOOL_WORDS = {
    "[With ignore_case ": "[With --ignore-case ",
    "read with start=line, column=column shows": "`buoyline read PATH --start LINE --column COLUMN` shows",
    "with literal the text": "with --literal the text",
    "begin again without after": "begin again without --after",
    "give start and end,": "give --start and --end,",
    "give a pattern or a line_range": "give --pattern or --lines",
    "leave out pattern, line_range and context_lines": "leave out --pattern, --lines and --context",
}
"""Names of a tool's arguments in answers and errors, and the options that a person types."""

F = TypeVar("F", bound=Callable[..., Any])

_session_option = click.option("--session", metavar="ID", help="Look in the directory of this session.")


def _max_tokens_option(default: int) -> Callable[[F], F]:
    return click.option(
        "--max-tokens",
        type=click.IntRange(min=1),
        default=default,
        show_default=True,
        help="Size of the answer at most.",
    )


def _lookup_options(function: F) -> F:
    return _session_option(_max_tokens_option(2_000)(workdir_option(json_option(function))))


@click.command("read")
@click.argument("path", metavar="PATH[:START[-END]]")
@click.option("--start", type=click.INT, default=1, help="First line, or -60; narrows the lines of PATH.")
@click.option("--end", type=click.IntRange(min=1), help="Last line, inclusive.")
@click.option("--column", type=click.IntRange(min=1), default=1, help="Character of the first line to begin with.")
@click.option("--whole", is_flag=True, help="Print every line in full, whatever --max-tokens says.")
@_lookup_options
def read_command(path: str, workdir: Path, **options: Any) -> int:
    """Print lines of a file, with their numbers.

    PATH is relative to the workdir, or with --session to the directory of the session. It may also be the plain name
    of a file, the id of a call or its beginning, or a citation as a summary prints it. PATH:-60 prints the last 60
    lines, and "summary 3" the third summary of a session. Lines over 1,000 characters are cut; --column goes on in
    them.

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

    PATTERN is in RE2 syntax and matches within a line. PATH is as for read, a directory, or a quoted glob such
    as "tool_result-*.txt"; without one, transcripts and tool results are searched. No hit is no failure.

    Exit status: 0 done, 1 a file cannot be read; the answer is about the others.

    Example: buoyline grep -i -C 2 "error|failed" --session s1

    Example: buoyline grep --last "passed|failed" --session s1
    """
    return _look_up(grep, workdir, pattern, [path_from_here(workdir, path) for path in paths] or None, **options)


@click.command("search")
@click.argument("query")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--start", type=click.IntRange(min=1), default=1, help="Rank of the first passage to print.")
@click.option("--all", "is_all", is_flag=True, help="Search every session, as without --session and PATH.")
@_lookup_options
def search_command(query: str, paths: Sequence[str], workdir: Path, *, is_all: bool, **options: Any) -> int:
    """Print the passages that best match QUERY.

    QUERY is a question or some words, in any language. Rare words weigh most, identifiers and quoted words as a whole.
    PATH is as for grep; without one, transcripts and tool results are searched. No match is no failure. In a large
    workspace the first search makes an index, which later ones use.

    Exit status: 0 done, 1 a file cannot be read; the answer is about the others.

    Example: buoyline search "which port did we choose for staging" --session s1

    Example: buoyline search --all "what did we decide about the cache"
    """
    if is_all and (paths or options["session"]):
        raise click.UsageError("--all searches every session: give no PATH and no --session with it")
    return _look_up(search, workdir, query, [path_from_here(workdir, path) for path in paths] or None, **options)


@click.command("glob")
@click.argument("pattern")
@click.option("--after", default="", metavar="PATH", help="Skip the paths up to this one.")
@_lookup_options
def glob_command(pattern: str, workdir: Path, **options: Any) -> int:
    """List files and directories whose path matches PATTERN.

    ** matches any number of directories, and a PATTERN without / matches at any depth. Quote PATTERN, or the shell
    expands it.

    Exit status: 0 done, 1 a directory cannot be read; the answer is about the others.

    Example: buoyline glob "sessions/*/summaries.jsonl"
    """
    return _look_up(glob, workdir, pattern, **options)


@click.command("query")
@click.argument("expression")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--start", type=click.IntRange(min=1), default=1, help="First line of the result.")
@click.option("--column", type=click.IntRange(min=1), default=1, help="Character of the first line to begin with.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=1),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="Processor time for EXPRESSION.",
)
@_lookup_options
def query_command(expression: str, paths: tuple[str, ...], workdir: Path, **options: Any) -> int:
    """Run SQL or JMESPath on files of the workspace.

    EXPRESSION is a JMESPath expression (https://jmespath.org), or an SQL statement that begins with SELECT or WITH: the
    first file is table t1, the second t2. The files hold JSON, JSON lines, CSV, or paragraphs of "key: value" lines;
    all but JSON are a list of rows. Table lines has path, n and text of each line of any text. The result is JSON, with
    line numbers.

    Example: buoyline query "SELECT state, count(*) FROM t1 GROUP BY state" tool_result-c1.txt --session s1

    Example: buoyline query "SELECT regexp_extract(text, 'E[0-9]+') AS code, count(*) FROM lines GROUP BY code" app.log
    """
    return _look_up(query, workdir, [path_from_here(workdir, path) for path in paths], expression, **options)


def _look_up(lookup: Callable[..., Answer], workdir: Path, *asked: Any, as_json: bool, **options: Any) -> int:
    workspace = existing_workspace(workdir)

    def as_options(position: Mapping[str, Any]) -> str:
        return "repeat the command with " + " ".join(
            f"--{name} {shlex.quote(str(value))}" for name, value in position.items()
        )

    with _errors_for_people(workspace):
        answer = lookup(workspace, *asked, spelling=as_options, **options)
    if as_json:
        lines = [{**dataclasses.asdict(line), "text": line.text} for line in answer.lines]
        for fields in lines:
            del fields["content"]
        found = {"path": answer.path, "lines": lines, "paths": answer.paths, "total": answer.total}
        print_json({**found, "next": dict(answer.next)})
    else:
        rows = answer.text.split("\n")
        print_text("\n".join(_in_options(row) if row.startswith("[") else row for row in rows))
    return print_problems([f"{workspace.files.path(path)}: {reason}" for path, reason in answer.unread.items()])


def path_from_here(workdir: Path, path: str) -> str:
    """Return the absolute path if *path* is below the workdir as seen from here, as a shell completes it."""
    given, root = Path(path), workdir.absolute()
    if given.is_absolute() or ".." in given.parts or root == Path.cwd() or not given.absolute().is_relative_to(root):
        return path
    first = Path(path.partition(":")[0]).parts[:1]
    is_here = bool(first) and ("*" in first[0] or Path(first[0]).exists())
    return str(given.absolute()) if is_here else path


@contextlib.contextmanager
def _errors_for_people(workspace: LocalWorkspace) -> Generator[None]:
    """Spell an error of a lookup, whose own words are also for models, with the options of the command.

    Raises:
        ConfigError: The error of the block, with the option instead of the argument.
        NotFoundError: The error of the block, with the option that finds what was meant.
    """
    try:
        yield
    except ConfigError as error:
        raise ConfigError(_option_of(error.setting), _in_options(error.problem)) from error
    except NotFoundError as error:
        if error.kind == "session":
            raise NotFoundError(error.kind, error.name, "`buoyline sessions` lists those there are") from error
        meant = " or ".join(f"--session {shlex.quote(session)}" for session in _sessions_with(workspace, error.name))
        hint = re.sub(r"\bglob\((.+)\) lists it", r"`buoyline glob \1` lists it", error.hint)
        raise NotFoundError(error.kind, error.name, f"did you mean {meant}? {hint}" if meant else hint) from error


def _option_of(setting: str) -> str:
    """Return the option or argument of the running command for *setting* of a lookup."""
    context, name = click.get_current_context(), setting.partition(".")[0]
    if name == "end" and context.get_parameter_source(name) is ParameterSource.DEFAULT:
        return "PATH"  # which names lines, too
    options = (param for param in context.command.params if isinstance(param, click.Option) and param.name == name)
    return next((max(option.opts, key=len) for option in options), name.upper())


def _in_options(text: str) -> str:
    for words, options in _TOOL_WORDS.items():
        text = text.replace(words, options)
    return text


def _sessions_with(workspace: LocalWorkspace, name: str) -> list[str]:
    """Return the ids of up to three sessions that have *name*."""
    found: list[str] = []
    for session in itertools.islice(workspace.session_ids(), _MAX_SESSIONS):
        with contextlib.suppress(BuoylineError):  # one that cannot be read is not meant
            if not workspace.files.is_directory(resolve_path(workspace, name, session, confined=True).name):
                found.append(session)
        if len(found) == _MAX_HINTS:
            break
    return found


def _line_range(ctx: click.Context, param: click.Parameter, value: str | None) -> dict[str, int] | None:
    """Read ``A-B``, or ``A`` for a single line; `retrieve` checks whether there are such lines."""
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
@_max_tokens_option(DEFAULT_MAX_TOKENS)
@click.option("--whole", is_flag=True, help="No size limit.")
@_session_option
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
    with _errors_for_people(workspace):
        found = retrieve(
            workspace,
            path_from_here(workdir, reference),
            **options,
            max_tokens=None if whole else max_tokens,
            spelling=_as_retrieve_options,
        )
    if not as_json:
        print_text(found.text)
        return
    lines = [{**dataclasses.asdict(line), "content": line.text} for line in found.lines]
    parts = list(map(_part, found.parts))
    print_json({"parts": parts, "lines": lines, "total": found.total, "next": dict(found.next)})


def _part(part: Content) -> dict[str, Any]:
    if isinstance(part, MediaContent):
        fields = dataclasses.asdict(part)
        del fields["content"]
        return fields
    if isinstance(part, JsonContent):
        with contextlib.suppress(MessageError):  # a tool may call anything JSON, such as NaN
            return {"kind": "json", "json": part.value}
    return {"kind": "text", "text": part.text}


def _as_retrieve_options(position: Mapping[str, Any]) -> str:
    options: list[str] = []
    for name, value in position.items():
        if name == "line_range":
            options.append(f"with --lines {value['start']}-{value['end']}")
        else:
            options.append(f"without --{name}" if value is None else f"with {name.upper()} {shlex.quote(value)}")
    return "repeat the command " + ", ".join(options)
