"""``buoyline context``: context-management documents."""

from collections.abc import Iterator
from pathlib import Path

import click

from buoyline.cli.options import json_option, workdir_option
from buoyline.cli.output import columns, print_answer
from buoyline.errors import DocumentError
from buoyline.management.registry import BUILT_IN, document_of, names
from buoyline.workspace import LocalWorkspace

_SHOWN_PROBLEMS = 50


@click.command("context")
@click.argument("source", metavar="[NAME|FILE]", required=False)
@workdir_option
@json_option
def context_command(source: str | None, workdir: Path, *, as_json: bool) -> int:
    """List, check and explain context-management documents.

    Such a document says how a context is managed. Without an argument, the documents of the workspace, in its
    context_management/, and those of the package are listed. A document is checked and explained: which managers run,
    when, and in which order. If a file of that name exists, it is used.

    Exit status: 0 done, 1 a document has problems, or there is none of that name.

    Example: buoyline context policy.json
    """
    workspace = LocalWorkspace(workdir)
    if source is None:
        rows = [{"name": name, "from": "package" if name in BUILT_IN else "workspace"} for name in names(workspace)]
        print_answer(rows, columns([("name", "from"), *((row["name"], row["from"]) for row in rows)]), as_json=as_json)
        return 0
    try:
        document = document_of(Path(source) if Path(source).is_file() else source, workspace)
    except DocumentError as error:
        problems = [{"path": path, "reason": reason} for path, reason in error.problems]
        print_answer({"valid": False, "problems": problems}, _problems(error), as_json=as_json)
        return 1
    lines = list(document.in_words())
    print_answer({"valid": True, "problems": [], "lines": lines}, lines, as_json=as_json)
    return 0


def _problems(error: DocumentError) -> Iterator[str]:
    for path, reason in error.problems[:_SHOWN_PROBLEMS]:
        yield f"{error.source}: {path}{': ' if path else ''}{reason}"
    if (more := len(error.problems) - _SHOWN_PROBLEMS) > 0:
        yield f"{more:,} problems more; --json has all"
