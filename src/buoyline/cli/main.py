"""The command ``buoyline``: the table of commands, and the handling of errors.

Exit status: 0 done; 1 findings, or a failure caused by the files; 2 a command line that would be wrong in any
workspace; 130 Ctrl-C. If the reader of the output has gone, the process ends by SIGPIPE, as any command before
``| head``: a shell shows 141.
"""

import importlib
import io
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import click

from buoyline.errors import FORBIDDEN_ERRNOS, BuoylineError, ConfigError, InvalidNameError, StorageError, WorkspaceFull

COMMANDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "demo": ("demo", "Play a recorded session, and look up a line that it archived."),
        "replay": ("replay", "Replay recordings, and compare their requests with and without it."),
        "preview": ("preview", "Show what an agent would see in place of FILE."),
        "sessions": ("show", "List the sessions of a workspace."),
        "show": ("show", "Show the messages, files and last summary of SESSION."),
        "view": ("show", "Write SESSION as one HTML page."),
        "diff": ("show", "Show what the model saw before and after compaction N."),
        "convert": ("show", "Print the messages of SESSION in another dialect, one a line."),
        "read": ("lookups", "Print lines of a file, with their numbers."),
        "grep": ("lookups", "Search files of the workspace for PATTERN."),
        "search": ("lookups", "Print the passages that best match QUERY."),
        "tail": ("tail", "Follow a running agent."),
        "verify": ("maintenance", "Check the integrity of a workspace."),
        "repair": ("maintenance", "Repair what verify finds, as far as possible."),
        "gc": ("maintenance", "Remove old sessions, leftovers and payloads that nothing needs."),
        "context": ("preview", "Check and explain a context-management document."),
    }
)
"""The commands in the order of the help, with their module in `buoyline.cli`, which defines ``<name>_command``, and
their short help. The short help is repeated here, since importing all commands takes 0.6 s."""

_FAILED = 1
_MISUSED = 2
_INTERRUPTED = 128 + signal.SIGINT


class LazyGroup(click.Group):
    """Imports a command when it is called, so that no command waits for the libraries of another.

    Every foreseen error ends here, as one line on stderr and an exit status.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is none of that name."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        import logging  # noqa: PLC0415 - as below

        from buoyline.cli.output import NoticeHandler  # noqa: PLC0415 - 0.1 s, not for `buoyline --help`

        logger = logging.getLogger("buoyline")
        if not logger.hasHandlers():
            logger.addHandler(NoticeHandler(logging.WARNING))
        module, _ = COMMANDS[cmd_name]
        command = getattr(importlib.import_module(f"buoyline.cli.{module}"), f"{cmd_name}_command")
        return command if isinstance(command, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing one."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, short_help) for name, (_, short_help) in COMMANDS.items()])

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
        if args is None:  # a process of our own
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # names of files may be no text
        try:
            status = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
            sys.stdout.flush()
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx is not None else "buoyline"
            _end(f"{error.format_message().rstrip('.?')}; try `{command} --help`", _MISUSED)
        except click.ClickException as error:
            _end(error.format_message(), error.exit_code)
        except click.Abort:
            _end("interrupted", _INTERRUPTED)
        except BuoylineError as error:
            _end(_in_words(error), _MISUSED if isinstance(error, ConfigError | InvalidNameError) else _FAILED)
        except OSError as error:
            # Python writes what is buffered once more at exit, and would report a second error.
            with Path(os.devnull).open("wb") as nowhere:
                os.dup2(nowhere.fileno(), sys.stdout.fileno())
            _end(str(error), _FAILED)
        sys.exit(status if isinstance(status, int) else 0)


def _end(problem: str, status: int) -> NoReturn:
    from buoyline.cli.output import print_notices  # noqa: PLC0415 - 0.1 s, not for `buoyline --help`

    print_notices([f"error: {problem}"])
    sys.exit(status)


def _in_words(error: BuoylineError) -> str:
    if isinstance(error, StorageError) and error.errno in FORBIDDEN_ERRNOS:
        return f"{error}; run this command as the owner of that file, or use another --workdir"
    if isinstance(error, WorkspaceFull):
        return f"{error}; free space, or use another --workdir"
    return str(error)


@click.group("buoyline", cls=LazyGroup, no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="buoyline", message="%(prog)s %(version)s")
def main() -> None:
    """Manage the context of LLM agents: nothing is lost, and everything can be found again.

    Exit status: 0 done, 1 findings or failure, 2 usage, 130 Ctrl-C.
    """
