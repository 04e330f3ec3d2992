"""``buoyline preview`` and ``context``: what would be done with a file, and by a document."""

import errno
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from buoyline.cli.output import (
    counted,
    json_option,
    print_answer,
    print_json,
    print_notices,
    print_text,
    workdir_option,
)
from buoyline.errors import DocumentError, StorageError
from buoyline.management.model import document_of
from buoyline.offloader import StoredResult
from buoyline.offloader.stub import stub_of, tokens_of
from buoyline.previews.source import BytesSource, Source
from buoyline.tokens import default_counter
from buoyline.workspace import LocalWorkspace

_STDIN = Path("-")
LIMIT = 3_000
"""The default of `ContextConfig.tool_result_limit`; importing that takes 0.1 s."""
_CHUNK_BYTES = 1 << 18


@click.command("preview")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--max-tokens", type=click.IntRange(min=1), default=1_000, show_default=True, help="Size of the stub.")
@json_option
def preview_command(file: Path, max_tokens: int, *, as_json: bool) -> None:
    """Show what an agent would see in place of FILE.

    FILE is taken for the output of a tool; with - it is read from a pipe. The preview has the kind of text, errors and
    odd lines, the beginning and the end, with line numbers. The notice with the path is printed even if it alone takes
    more than --max-tokens.

    Line numbers are those of FILE. If a result is an HTML page or has lines over 1,000 characters, a workspace also
    keeps a readable copy, and counts in that copy. Bytes that are not UTF-8 are shown as replacement characters.

    Example: make test 2>&1 | buoyline preview - --max-tokens 300
    """
    counter = default_counter()
    with _source(file) as (source, name):
        lines, tokens = _lines(source), tokens_of(source, counter)
        shown = stub_of(source, StoredResult(name, file.name, "", lines), max_tokens, counter)
    if as_json:
        print_json({"path": name, "tokens": counter.count(shown), "text": shown})
    else:
        about = f"{name}: {counted(lines, 'line')}, {tokens:,} tokens, shown in {counter.count(shown):,}"
        print_text(f"{about}\n\n{shown.partition(chr(10) * 2)[2]}")
    if tokens <= LIMIT:
        print_notices([f"an agent would see this file whole: it is not above the default limit of {LIMIT:,} tokens"])


@contextmanager
def _source(file: Path) -> Generator[tuple[Source, str]]:
    """Yield the text of *file* and its name; standard input is copied, since it is read more than once."""
    if file != _STDIN:
        yield _of_file(file), str(file.absolute())
        return
    with tempfile.NamedTemporaryFile(prefix="buoyline-") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.flush()
        yield _of_file(Path(copy.name)), "(standard input)"


def _of_file(path: Path) -> Source:
    """Return the text of a file, which must not grow while it is read."""
    if not path.is_file():
        raise StorageError(errno.EINVAL, "is no regular file, which could be read twice; give - and a pipe", str(path))

    def chunks() -> Iterator[bytes]:
        with path.open("rb") as file:
            yield from iter(lambda: file.read(_CHUNK_BYTES), b"")

    return BytesSource(chunks, path.stat().st_size)


def _lines(source: Source) -> int:
    """Count lines as ``grep -c ''`` does."""
    lines, last = 0, "\n"
    for block in source.blocks():
        lines += block.count("\n")
        last = block
    return lines + (not last.endswith("\n"))


@click.command("context")
@click.argument("source", metavar="NAME|FILE")
@workdir_option
@json_option
def context_command(source: str, workdir: Path, *, as_json: bool) -> int:
    """Check and explain a context-management document.

    Such a document says how a context is managed: which managers run, when, and in which order. If a file of that name
    exists, it is used; else the document of the workspace, in its context_management/, or of the package.

    Exit status: 0 done, 1 a document has problems, or does not exist.

    Example: buoyline context policy.json
    """
    workspace = LocalWorkspace(workdir)
    try:
        document = document_of(Path(source) if Path(source).is_file() else source, workspace)
    except DocumentError as error:
        problems = [{"path": path, "reason": reason} for path, reason in error.problems]
        lines = [f"{error.source}: {path}{': ' if path else ''}{reason}" for path, reason in error.problems]
        print_answer({"valid": False, "problems": problems}, lines, as_json=as_json)
        return 1
    lines = list(document.in_words())
    print_answer({"valid": True, "problems": [], "lines": lines}, lines, as_json=as_json)
    return 0
