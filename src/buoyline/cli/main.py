"""The command ``buoyline``: which commands there are, and what becomes of errors.

Exit status: 0 done; 1 findings, or a failure that lies in what is on disk; 2 a command line that would be wrong
in any workspace.
"""

import errno
import importlib
import io
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import click

from buoyline.errors import BuoylineError, ConfigError, InvalidNameError

COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "demo": "demo.command",
        "replay": "replay",
        "preview": "preview",
        "sessions": "sessions",
        "show": "show",
        "summaries": "summaries",
        "diff": "diff",
        "convert": "convert",
        "read": "lookups",
        "grep": "lookups",
        "search": "lookups",
        "glob": "lookups",
        "query": "lookups",
        "retrieve": "retrieval",
        "stats": "stats",
        "tail": "tail",
        "verify": "verify",
        "repair": "repair",
        "gc": "gc",
        "context": "context",
    }
)
"""The module of `buoyline.cli` that holds each command, as ``<name>_command``, in the order of the help."""

_FAILED = 1
_MISUSED = 2


class LazyGroup(click.Group):
    """Commands that are imported when they are called, so that none pays for the libraries of another.

    Whatever goes wrong in a foreseen way ends here, in one line on stderr and an exit status.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None when there is none of that name."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(f"buoyline.cli.{COMMANDS[cmd_name]}"), f"{cmd_name}_command")
        return command if isinstance(command, click.Command) else None

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002 - click's signature
        **extra: Any,
    ) -> Any:
        """Run the command line; see `click.Command.main`."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # a terminal that is not UTF-8 ends no command
        try:
            status = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
            _flush_answer()
        except click.UsageError as error:
            _end(f"{error.format_message().rstrip('.')}; try `{_help_of(error)} --help`", _MISUSED)
        except click.ClickException as error:
            _end(error.format_message(), error.exit_code)
        except click.Abort:
            _end("interrupted", _FAILED)
        except (ConfigError, InvalidNameError) as error:
            _end(str(error), _MISUSED)
        except BuoylineError as error:
            _end(str(error), _FAILED)
        except OSError as error:
            _discard_answer()
            _end(f"cannot write the answer: {error.strerror or error}", _FAILED)
        sys.exit(status if isinstance(status, int) else 0)


def _flush_answer() -> None:
    """Write out what was printed, so that a full device or a closed one is an error and no silence.

    Raises:
        OSError: It cannot be written.
    """
    if sys.stdout is None:  # what a shell's >&- leaves
        raise OSError(errno.EBADF, "standard output is closed")
    sys.stdout.flush()


def _discard_answer() -> None:
    """Send what is still buffered nowhere: Python writes it when it ends, and would complain a second time."""
    if sys.stdout is not None:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _end(problem: str, status: int) -> NoReturn:
    click.echo(f"buoyline: error: {' '.join(problem.split())}", err=True)
    sys.exit(status)


def _help_of(error: click.UsageError) -> str:
    return error.ctx.command_path if error.ctx is not None else "buoyline"


@click.group("buoyline", cls=LazyGroup, no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="buoyline", message="%(prog)s %(version)s")
def main() -> None:
    """Look after the context of LLM agents: nothing is lost, everything can be found again.

    Exit status: 0 done, 1 findings or failure, 2 usage.
    """
