"""The tools of the scripted agent. They really run: nothing in their results is made up."""

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from buoyline.errors import storage_error
from buoyline.lookups import Answer, grep, read
from buoyline.messages import spell
from buoyline.workspace import LocalWorkspace

DEFINITIONS: Final[tuple[Mapping[str, Any], ...]] = tuple(
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {key: {"type": kind} for key, kind in parameters.items()},
                "required": list(parameters),
            },
        },
    }
    for name, description, parameters in (
        ("bash", "Run a shell command in the project.", {"command": "string"}),
        ("edit_file", "Replace a text in a file.", {"path": "string", "old_string": "string", "new_string": "string"}),
        ("grep", "Search what left the context, with a regular expression.", {"pattern": "string"}),
        ("read", "Read lines of a file of the workspace.", {"path": "string", "start": "integer", "end": "integer"}),
    )
)
"""The tools as OpenAI's chat completions take them; the last two are buoyline's own lookups."""

TIMED_OUT: Final = 124
"""Exit status of a command that took too long, as ``timeout`` of the GNU core utilities has it."""

_SHELL = "/bin/sh"


@dataclass(frozen=True, slots=True)
class Call:
    """What the agent asks of a tool.

    Attributes:
        tool: Name of one of `DEFINITIONS`.
        arguments: By parameter.
    """

    tool: str
    arguments: Mapping[str, Any]

    def to_json(self, call_id: str) -> dict[str, Any]:
        """Return the call as it stands in an assistant message of OpenAI's dialect."""
        function = {"name": self.tool, "arguments": spell(dict(self.arguments))}
        return {"id": call_id, "type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class Output:
    """What a tool gave back.

    Attributes:
        text: All of it, undecodable bytes replaced.
        status: Exit status; 0 for what is no command.
        answer: Of a lookup, else None.
    """

    text: str
    status: int = 0
    answer: Answer | None = None


class Toolbox:
    """Runs calls in a project, and lookups in the workspace that keeps the agent's session."""

    def __init__(self, project: Path, workspace: LocalWorkspace, session_id: str) -> None:
        """Work in the directory *project*; look up in session *session_id* of *workspace*."""
        self._project = project
        self._workspace = workspace
        self._session_id = session_id

    async def use(self, call: Call) -> Output:
        """Run one call to its end.

        Raises:
            StorageError: A file to edit cannot be read or written, or there is no shell.
            NotFoundError: A file to look up is not there.
        """
        arguments = call.arguments
        match call.tool:
            case "bash":
                return await run_command(arguments["command"], self._project)
            case "edit_file":
                return _edit(Path(arguments["path"]), arguments["old_string"], arguments["new_string"])
            case "grep":
                return _looked_up(grep(self._workspace, arguments["pattern"], session=self._session_id))
            case "read":
                return _looked_up(read(self._workspace, arguments["path"], arguments["start"], arguments["end"]))
            case _:
                return Output(f"there is no tool {call.tool!r}", status=1)


async def run_command(command: str, directory: Path, *, timeout_s: float = 30.0) -> Output:
    """Run a shell command without input; what it writes to both of its outputs comes back as one text.

    A command that takes too long, and one whose caller is cancelled, is ended with all that it has started.

    Raises:
        StorageError: There is no shell, or no such directory.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            _SHELL,
            "-c",
            command,
            cwd=directory,
            env=_environment(),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise storage_error(error, _SHELL) from error
    try:
        output, _ = await asyncio.wait_for(process.communicate(), timeout_s)
    except TimeoutError:
        return Output(f"timed out after {timeout_s:g} seconds (exit status {TIMED_OUT})\n", TIMED_OUT)
    finally:
        await _end(process)
    return _ended(output.decode("utf-8", errors="replace"), process.returncode or 0)


def _ended(text: str, status: int) -> Output:
    return Output(f"{text}(exit status {status})\n" if status else text, status)


async def _end(process: Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _environment() -> dict[str, str]:
    """Return the environment without what makes Python, pip or pytest behave otherwise than they do at first."""
    foreign = ("COLUMNS", "FORCE_COLOR", "PIP_", "PYTEST_", "PYTHON", "PY_COLORS")
    where = ("PYTHONHOME", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if name in where or not name.startswith(foreign)}
    return kept | {
        "NO_COLOR": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUTF8": "1",
    }


def _edit(path: Path, old: str, new: str) -> Output:
    try:
        content = path.read_text(encoding="utf-8")
        count = content.count(old)
        if count != 1:
            return Output(f"{path}: {old!r} occurs {count} times, not once; nothing was changed", status=1)
        path.write_text(content.replace(old, new), encoding="utf-8")
    except OSError as error:
        raise storage_error(error, str(path)) from error
    return Output(f"{path}: replaced {old!r} by {new!r}")


def _looked_up(answer: Answer) -> Output:
    return Output(answer.text, answer=answer)
