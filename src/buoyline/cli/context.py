"""``buoyline context``: context-management documents."""

from pathlib import Path

import click

from buoyline.cli.options import json_option, workdir_option
from buoyline.cli.output import print_answer
from buoyline.errors import DocumentError
from buoyline.management.registry import document_of
from buoyline.workspace import LocalWorkspace


@click.command("context")
@click.argument("source", metavar="NAME|FILE")
@workdir_option
@json_option
def context_command(source: str, workdir: Path, *, as_json: bool) -> int:
    """Check and explain a context-management document.

    Such a document says how a context is managed: which managers run, when, and in which order. If a file of that name
    exists, it is used; else the document of the workspace, in its context_management/, or of the package.

    Exit status: 0 done, 1 a document has problems, or there is none of that name.

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
