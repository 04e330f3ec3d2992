"""Run ``buoyline`` as a shell does: its exit status, and what it writes to standard output and standard error."""

import subprocess
import sys
from contextlib import chdir, nullcontext
from pathlib import Path

from click.testing import CliRunner

from buoyline.cli import main


def buoyline(*arguments: object, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """Run a command in this process: a new one takes half a second to start."""
    given = [str(argument) for argument in arguments]
    with chdir(cwd) if cwd is not None else nullcontext():
        done = CliRunner(catch_exceptions=False).invoke(main, given)
    return subprocess.CompletedProcess(given, done.exit_code, done.stdout, done.stderr)


def buoyline_process(*arguments: object, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """Run a command in a process of its own: one test for each command shows that it works there as well."""
    command = [sys.executable, "-m", "buoyline", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, encoding="utf-8", check=False, stdin=subprocess.DEVNULL, cwd=cwd
    )
