"""`query`: values out of a JSON document, by a path expression."""

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from buoyline.errors import ConfigError, CorruptError, NotFoundError, storage_error
from buoyline.lookups.answer import Answer, Budget, Counter, Spelling, as_arguments, shown_path
from buoyline.lookups.lines import count_lines
from buoyline.lookups.paths import file_of
from buoyline.lookups.reading import LinePage, lines_from
from buoyline.offloader.lines import MAX_LINE_CHARS
from buoyline.workspace import LocalWorkspace, layout

MAX_DOCUMENT_BYTES = 64 << 20
MAX_RESULT_BYTES = 8 << 20
MAX_EXPRESSION_CHARS = 1_000
_SHOWN_EXPRESSION_CHARS = 80
_HELD_CHARS_PER_TOKEN = 16
_WRONG = 3


def query(
    workspace: LocalWorkspace,
    path: str,
    expression: str,
    *,
    start: int = 1,
    column: int = 1,
    session: str | None = None,
    confined: bool = False,
    timeout_s: float = 20.0,
    max_tokens: int = 2_000,
    counter: Counter | None = None,
    spelling: Spelling = as_arguments,
) -> Answer:
    """Evaluate a JMESPath expression on a file that holds JSON, or one JSON value a line.

    The original is asked where a view of a tool result is named. The work is done by a process of its own, which
    neither holds the interpreter lock nor outlives *timeout_s*, whatever the expression. Blocking.

    Args:
        workspace: Where the file is.
        path: Absolute below the workdir, or relative to it.
        expression: Such as ``items[?state=='failed'].{id: id, error: error}`` or ``length(rows)``; of lines of JSON
            it sees the list.
        start: First line of the result to show, 1-based.
        column: Character of line *start* to begin with, 1-based.
        session: Whose directory a relative *path* is looked for in first.
        confined: Whether nothing else is reached but that directory, and payloads in ``data/`` by their whole name.
        timeout_s: How long to try.
        max_tokens: For the whole text of the answer.
        counter: Counts them; the default counter where it is None.
        spelling: Says in the answer how to go on.

    Returns:
        The result as indented JSON, with the numbers of its own lines. Numbers stand as Python reads them.

    Raises:
        ConfigError: *expression* is none, takes too long or gives more than 8 MB; *start* or *column* cannot be; the
            file is over 64 MB; or *max_tokens* is too few.
        CorruptError: The file holds no JSON.
        InvalidNameError: *path* leads out of the workspace, or to a hidden file.
        NotFoundError: There is no such file or session, or it is a directory.
        StorageError: It is no regular file, or cannot be read.

    Source: https://jmespath.org/specification.html
    """
    if not expression.strip() or "\0" in expression or len(expression) > MAX_EXPRESSION_CHARS:
        raise ConfigError("expression", f"must be JMESPath of 1 to {MAX_EXPRESSION_CHARS:,} characters, e.g. keys(@)")
    if min(start, column) < 1:
        raise ConfigError("start" if start < 1 else "column", "counts from 1")
    name = _original(workspace, file_of(workspace, path, session, confined=confined).name)
    result = _Result(_evaluated(workspace, name, expression, timeout_s))
    total = count_lines(result.chunks(name))
    page = LinePage(_about(expression, name), start, total, total, spelling)
    held = max(max_tokens * _HELD_CHARS_PER_TOKEN, MAX_LINE_CHARS)
    lines = lines_from(result, name, (start, total), column, held)
    shown = Budget(max_tokens, counter).fill(lines, page)
    following = page.following(shown)
    repeated = {"path": path, "expression": expression, "session": session}
    return Answer(
        text=page.text(shown),
        path=name,
        lines=tuple(shown),
        total=total,
        next={**repeated, **following} if following else {},
    )


@dataclass(frozen=True, slots=True)
class _Result:
    """What an expression has given, read like a file."""

    content: bytes

    def chunks(self, name: str) -> Iterator[bytes]:
        del name
        yield from [self.content] if self.content else []


def _original(workspace: LocalWorkspace, name: str) -> str:
    directory, _, file = name.rpartition("/")
    if not layout.is_view_name(file):
        return name
    original = f"{directory}/{layout.result_behind(file)}"
    return original if workspace.tree.size(original) is not None else name


def _evaluated(workspace: LocalWorkspace, name: str, expression: str, timeout_s: float) -> bytes:
    command = [sys.executable, "-I", str(Path(__file__).with_name("evaluation.py")), _home_of_jmespath()]
    with workspace.tree.open(name) as handle:
        if handle.size() > MAX_DOCUMENT_BYTES:
            problem = (
                f"{name} has {handle.size():,} bytes, and {MAX_DOCUMENT_BYTES:,} can be queried; use grep and read"
            )
            raise ConfigError("path", problem)
        try:
            ran = subprocess.run(  # noqa: S603 - our own program; the expression is only data to it
                [*command, expression, str(MAX_RESULT_BYTES)],
                stdin=handle.descriptor_at(0),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            problem = f"took more than {timeout_s:g} s; make it simpler, or use grep"
            raise ConfigError("expression", problem) from None
        except OSError as error:
            raise storage_error(error, sys.executable) from error
    if not ran.returncode:
        return ran.stdout
    problem = ran.stdout.decode("utf-8", "replace") if ran.returncode == _WRONG else ""
    if problem.startswith("the file"):
        raise CorruptError(workspace.tree.path(name), f"{problem}; use grep and read")
    raise ConfigError("expression", problem or "its evaluation was ended by the system; make it simpler, or use grep")


def _home_of_jmespath() -> str:
    """Return the directory that the package jmespath lies in."""
    spec = importlib.util.find_spec("jmespath")
    if spec is None or spec.origin is None:
        raise NotFoundError("package", "jmespath", "pip install jmespath")
    return str(Path(spec.origin).parent.parent)


def _about(expression: str, name: str) -> str:
    shown = expression[:_SHOWN_EXPRESSION_CHARS]
    return f"{shown_path(shown)}{'...' if shown != expression else ''} in {shown_path(name)}"
