"""``buoyline view``."""

from pathlib import Path

import click

from buoyline.cli.options import existing_workspace, json_option, workdir_option
from buoyline.cli.output import print_answer
from buoyline.inspect.page import page_of


@click.command("view")
@click.argument("session")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="[default: SESSION.html]")
@workdir_option
@json_option
def view_command(session: str, output: Path | None, *, workdir: Path, as_json: bool) -> None:
    """Write SESSION as one HTML page.

    The page shows the tokens of each request, all messages, and each compaction with its summary. A click on a citation
    leads to its lines. The page works offline and loads nothing.

    Example: buoyline view s1 -o session.html --workdir ./workspace
    """
    path = output or Path(f"{session}.html")
    page = page_of(existing_workspace(workdir).stored(session))
    path.write_text(page, "utf-8")
    size = len(page.encode())
    print_answer({"path": str(path), "bytes": size}, [f"{path}: {size:,} bytes"], as_json=as_json)
