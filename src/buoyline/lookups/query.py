"""`query`: values out of structured files, by JMESPath or SQL."""

import contextlib
import importlib.util
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from buoyline.errors import ConfigError, CorruptError, storage_error
from buoyline.lookups.answer import Answer, AnswerBudget, Counter, Spelling, as_arguments, shown_path
from buoyline.lookups.lines import count_lines, lines_from
from buoyline.lookups.paths import resolve_file
from buoyline.lookups.read import LinePage
from buoyline.lookups.sources import InMemoryContent, Texts, require_workspace
from buoyline.workspace import ReadableWorkspace, layout

MAX_DOCUMENT_BYTES = 64 << 20
MAX_RESULT_BYTES = 8 << 20
MAX_EXPRESSION_CHARS = 4_000
MAX_DOCUMENTS = 20
_SHOWN_EXPRESSION_CHARS = 80
_WRONG = 3
_NO_ARGUMENT = re.compile("[\0\ud800-\udfff]")
_STARTING_S = 25.0
_MAX_TIMEOUT_S = 1_000_000  # `poll` takes up to 24 days
_TOO_LONG = "took more than {:g} s; a join needs a condition, a recursive WITH an end; make it simpler, or use grep"
_UNREADABLE = "use grep and read, or SELECT n, text FROM lines"
_UNREAD = re.compile(r"document ([0-9]+): ")


def query(
    workspace: ReadableWorkspace,
    path: str | Sequence[str],
    expression: str,
    *,
    start: int = 1,
    column: int = 1,
    session: str | None = None,
    confined: bool = False,
    timeout_s: float = 5.0,
    max_tokens: int = 2_000,
    counter: Counter | None = None,
    spelling: Spelling = as_arguments,
) -> Answer:
    """Evaluate an expression on the content of files: SQL if it begins with SELECT or WITH, else JMESPath.

    Files hold JSON, one JSON value a line, a table with column names in the first line (CSV, TSV), or records:
    paragraphs of ``key: value`` lines, the first of which may be a heading. All but JSON are a list to the expression.
    In tables and records, a key whose values are all numbers holds numbers, and null for an empty value. A few lines
    of a table with more or fewer fields than the first are kept, and the result names them. Any other file is refused,
    so that no sum covers only a part of it.

    SQL can also read any text by lines: table ``lines`` has ``path``, ``n`` and ``text`` of all files. The operator
    ``text REGEXP 'pattern'`` and ``regexp_extract(text, 'pattern', group)`` take RE2 syntax.

    *expression* is JMESPath such as ``items[?state=='failed'].{id: id, error: error}`` or ``length(rows)``; of several
    files it sees an object with keys ``t1``, ``t2`` and so on, in the order of *path*. Or it is a reading statement of
    SQLite's SQL: each file is a table of that name, with nested values as JSON for ``json_extract`` and ``json_each``.
    Each list of a document that is an object is a table as well, such as ``t1_items``. A name in double quotes is a
    column or an error, never text. A process of its own evaluates it, without the interpreter lock.

    *path* is a file, or up to 20 files. The view of a tool result stands for the result itself. The result is shown
    from line *start* on, and that line from character *column* on, both from 1. *timeout_s* is processor time for
    *expression*, in whole seconds; the call may take 25 s longer by the clock. For the other arguments see
    `buoyline.lookups`.

    Returns:
        The result with line numbers of its own: indented JSON for JMESPath; column names and rows for SQL, a JSON
        array a line; then notes. Numbers are as Python reads them. An empty result says which keys or tables there are.
        `Answer.path` is the first file.

    Raises:
        ConfigError: *workspace* is no workspace; *expression* is invalid, takes too long, returns more than 8 MB, or is
            JMESPath without the extra ``query``; *start* or *column* is below 1; *timeout_s* is not above 0 and at
            most 1,000,000; there are no files, over 20, or over 64 MB in all; or *max_tokens* is too small.
        CorruptError: A file has none of these forms.
        InvalidNameError: *path* leads out of the workspace or to a hidden file.
        NotFoundError: There is no such file or session, or it is a directory.
        StorageError: It is not a regular file or cannot be read.

    Source: https://jmespath.org/specification.html, https://www.sqlite.org/lang_select.html
    """
    require_workspace(workspace)
    if not expression.strip() or len(expression) > MAX_EXPRESSION_CHARS or _NO_ARGUMENT.search(expression):
        raise ConfigError("expression", f"must have 1 to {MAX_EXPRESSION_CHARS:,} characters, e.g. keys(@)")
    if min(start, column) < 1:
        raise ConfigError("start" if start < 1 else "column", "counts from 1")
    if not 0 < timeout_s <= _MAX_TIMEOUT_S:
        raise ConfigError("timeout_s", f"{timeout_s} is not above 0 and at most {_MAX_TIMEOUT_S:,}")
    paths = [path] if isinstance(path, str) else [*path]
    if not 0 < len(paths) <= MAX_DOCUMENTS:
        raise ConfigError("path", f"{len(paths)} files at once; give 1 to {MAX_DOCUMENTS}")
    names = [_original(workspace, resolve_file(workspace, each, session, confined=confined).name) for each in paths]
    name = names[0]
    result = InMemoryContent(_evaluated(workspace, names, expression, timeout_s))
    total = count_lines(result.chunks(name))
    shown_expression = shown_path(expression[:_SHOWN_EXPRESSION_CHARS])
    dots = "..." if len(expression) > _SHOWN_EXPRESSION_CHARS else ""
    files = name if len(names) == 1 else f"{name} and {len(names) - 1} more"
    page = LinePage(f"{shown_expression}{dots} in {shown_path(files)}", start, total, total, spelling)
    budget = AnswerBudget(max_tokens, counter)
    shown = budget.fill(lines_from(result, name, [(start, total)], column, budget.max_line_chars), page)
    following = page.following(shown)
    repeated = {"path": path if isinstance(path, str) else paths, "expression": expression, "session": session}
    return Answer(
        text=page.text(shown),
        path=name,
        lines=tuple(shown),
        total=total,
        next={**repeated, **following} if following else {},
    )


def _original(workspace: ReadableWorkspace, name: str) -> str:
    """Return the result of which *name* is the view; *name* if it is no view, or the result is gone."""
    directory, _, file = name.rpartition("/")
    original = f"{directory}/{layout.result_behind(file)}" if layout.is_view_name(file) else name
    return original if workspace.files.size(original) is not None else name


def _evaluated(workspace: ReadableWorkspace, names: Sequence[str], expression: str, timeout_s: float) -> bytes:
    program = [sys.executable, "-I", str(Path(__file__).with_name("evaluation.py"))]
    limits = [_home_of("jmespath"), _home_of("re2"), str(MAX_RESULT_BYTES), str(timeout_s)]
    texts = Texts(workspace)
    size = sum(texts.size(name) or 0 for name in names)
    if size > MAX_DOCUMENT_BYTES:
        files = names[0] if len(names) == 1 else f"{len(names)} files"
        problem = f"{files} with {size:,} bytes, and {MAX_DOCUMENT_BYTES:,} can be queried; use grep and read"
        raise ConfigError("path", problem)
    documents = [texts.read(name) for name in names]
    arguments = [part for name, content in zip(names, documents, strict=True) for part in (str(len(content)), name)]
    try:
        status, output = _ran([*program, *limits, expression, *arguments], documents, timeout_s + _STARTING_S)
    except subprocess.TimeoutExpired:
        raise ConfigError("expression", _TOO_LONG.format(timeout_s + _STARTING_S)) from None
    except OSError as error:
        raise storage_error(error, sys.executable) from error
    if not status:
        return output
    if status == -signal.SIGXCPU:
        raise ConfigError("expression", _TOO_LONG.format(timeout_s))
    problem = output.decode("utf-8", "replace") if status == _WRONG else ""
    if unread := _UNREAD.match(problem):
        path = workspace.files.path(names[int(unread[1]) - 1])
        raise CorruptError(path, f"{problem[unread.end() :]}; {_UNREADABLE}")
    raise ConfigError("expression", problem or "its evaluation was ended by the system; make it simpler, or use grep")


def _ran(command: Sequence[str], documents: Sequence[bytes], timeout_s: float) -> tuple[int, bytes]:
    """Run *command* on *documents*, which it reads before it answers; return exit status and output."""
    with subprocess.Popen(  # noqa: S603 - our own program; the expression is only data to it
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            # Not by `communicate`, which writes 4 KiB at a time. An early end shows in the status.
            if process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.writelines(documents)
            output, _ = process.communicate(timeout=timeout_s)
        except BaseException:
            process.kill()
            raise
    return process.returncode, output


def _home_of(package: str) -> str:
    """Return the directory of *package*; empty if it is not installed."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return ""
    above = Path(spec.origin).parent
    return str(above.parent if spec.submodule_search_locations else above)
