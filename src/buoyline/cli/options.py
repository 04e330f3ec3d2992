"""Options that several commands share, and the workspace that they name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from buoyline.workspace import LocalWorkspace

F = TypeVar("F", bound=Callable[..., Any])


def workdir_option(function: F) -> F:
    """Add ``--workdir``."""
    return click.option(
        "--workdir",
        type=click.Path(path_type=Path, file_okay=False),
        default="./workspace",
        envvar="BUOYLINE_WORKDIR",
        show_default=True,
        # Not show_envvar: click would name the variable in every error about --workdir, even if it is not set.
        help="Directory of the workspace; BUOYLINE_WORKDIR is used if it is set.",
    )(function)


def json_option(function: F) -> F:
    """Add ``--json``."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON value; a range [A, B] of messages ends before B."
    )(function)


def session_option(function: F) -> F:
    """Add ``--session``."""
    return click.option("--session", metavar="ID", help="Look in the directory of this session.")(function)


def max_tokens_option(function: F) -> F:
    """Add ``--max-tokens``."""
    return click.option(
        "--max-tokens",
        type=click.IntRange(min=1),
        default=2_000,
        show_default=True,
        help="Size of the answer at most.",
    )(function)


def existing_workspace(workdir: Path) -> LocalWorkspace:
    """Return the workspace in *workdir* for reading; nothing is created.

    Raises:
        NotFoundError: There is none.
        FormatVersionError: A newer buoyline wrote it.
        CorruptError: It does not say which format it has.
    """
    workspace = LocalWorkspace(workdir)
    workspace.check()
    return workspace
