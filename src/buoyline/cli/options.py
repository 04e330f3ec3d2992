"""Options that several commands share, and the workspace that they name."""

from pathlib import Path

import click

from buoyline.workspace import LocalWorkspace

workdir_option = click.option(
    "--workdir",
    type=click.Path(path_type=Path, file_okay=False),
    default="./workspace",
    envvar="BUOYLINE_WORKDIR",
    show_default=True,
    # Not show_envvar: click would name the variable in every error about --workdir, even if it is not set.
    help="Directory of the workspace; BUOYLINE_WORKDIR is used if it is set.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")


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
