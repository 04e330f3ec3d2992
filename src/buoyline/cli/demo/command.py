"""``buoyline demo``."""

import asyncio
import tempfile
from pathlib import Path

import click
from rich.console import Console

from buoyline.cli.demo.closing import show_outcome
from buoyline.cli.demo.display import Display
from buoyline.cli.demo.machine import this_machine
from buoyline.cli.demo.page import Page
from buoyline.cli.demo.report import report_of
from buoyline.cli.demo.run import Outcome, run_demo
from buoyline.cli.options import json_option
from buoyline.cli.output import print_json
from buoyline.errors import storage_error

_FAILED = 1


@click.command("demo")
@click.option(
    "--workdir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of the workspace; left out: a new one among the system's temporary files.",
)
@click.option(
    "--context-size",
    type=click.IntRange(min=4_000),
    default=16_000,
    show_default=True,
    help="Tokens that the agent's window holds.",
)
@json_option
def demo_command(workdir: Path | None, context_size: int, *, as_json: bool) -> int:
    """Run a whole session on this machine's own tool outputs.

    A scripted agent lists packages, reads Python's own sources, and repairs a small project whose tests fail. It needs
    no model, no key and no network. What it leaves can be looked at afterwards; it is all in the workdir.

    Example: buoyline demo --workdir ./demo
    """
    machine = this_machine()
    directory = _temporary_directory() if workdir is None else workdir
    if as_json:
        outcome = asyncio.run(run_demo(machine, directory, size=context_size, tell=lambda _: None))
        print_json(report_of(outcome))
        return _status_of(outcome)
    page = Page(Console(highlight=False, emoji=False))
    shorter = {machine.python: "python", str(machine.library): "...", f"{directory.absolute()}/": ""}
    display = Display(page, shorter)
    display.begin(context_size)
    outcome = asyncio.run(run_demo(machine, directory, size=context_size, tell=display.show))
    show_outcome(page, outcome)
    return _status_of(outcome)


def _temporary_directory() -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="buoyline-demo-"))
    except OSError as error:
        raise storage_error(error) from error


def _status_of(outcome: Outcome) -> int:
    """Return 0 when the repair has worked: its tests failed first and pass now."""
    return 0 if outcome.tests[0] != 0 and outcome.tests[-1] == 0 else _FAILED
