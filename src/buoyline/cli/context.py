"""``buoyline context``: context-management documents."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from buoyline.cli.options import json_option, workdir_option
from buoyline.cli.output import columns, print_answer
from buoyline.errors import DocumentError
from buoyline.management import Registry
from buoyline.management.settings import explained
from buoyline.window.settings import document_of
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
        return _list(Registry(workspace), as_json=as_json)
    try:
        document = document_of(Path(source) if Path(source).is_file() else source, workspace)
    except DocumentError as error:
        problems = [{"path": path, "reason": reason} for path, reason in error.problems]
        answer = {"valid": False, "problems": problems}
        print_answer(answer, _problems(error), as_json=as_json)
        return 1
    lines = list(explained(document))
    print_answer({"valid": True, "problems": [], "lines": lines}, lines, as_json=as_json)
    return 0


def _list(registry: Registry, *, as_json: bool) -> int:
    found = registry.listed()
    rows = [(one.name, "package" if one.is_built_in else "workspace", one.problem or one.description) for one in found]
    lines = columns([("name", "from", "description"), *rows])
    print_answer([asdict(one) for one in found], lines, as_json=as_json)
    return 1 if any(one.problem for one in found) else 0


def _problems(error: DocumentError) -> Iterator[str]:
    for path, reason in error.problems[:_SHOWN_PROBLEMS]:
        yield f"{error.source}: {path}{': ' if path else ''}{reason}"
    if (more := len(error.problems) - _SHOWN_PROBLEMS) > 0:
        yield f"{more:,} problems more; --json has all"
