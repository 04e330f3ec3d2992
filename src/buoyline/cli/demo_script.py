"""The script of ``buoyline demo``: a small broken project, the tools of an agent, and what the agent does with them.

The tools really run. The agent quotes their output, so that what it says is true on every machine.
"""

import asyncio
import importlib.util
import os
import re
import shlex
import signal
import sys
import sysconfig
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from buoyline.errors import NotFoundError, storage_error
from buoyline.lookups import Answer, grep, read
from buoyline.messages import spell
from buoyline.workspace import LocalWorkspace

MISTAKE: Final = "error.pos"
CORRECTION: Final = "error.colno"
_BUOYS: Final = 40
"""A chart has so many buoys, so as many tests fail before the correction."""

_PROJECT: Final = {
    "chart.py": f'''\
"""Depths along a chain of buoys, read from JSON text."""

import json
import sys


def load(text: str) -> dict[str, float]:
    """Return the depth in metres of each buoy; a mistake in the text is named with its line and column."""
    try:
        return dict(json.loads(text))
    except json.JSONDecodeError as error:
        raise ValueError(f"line {{error.lineno}}, column {{{MISTAKE}}}: {{error.msg}}") from error


if __name__ == "__main__":
    try:
        print(len(load(sys.stdin.read())), "buoys")
    except ValueError as error:
        sys.exit(f"chart: {{error}}")
''',
    "test_chart.py": f'''\
"""Tests of chart.py in plain unittest, so that pytest runs them as well."""

import unittest

import chart

BUOYS = range(1, {_BUOYS} + 1)


def text(unreadable: int = 0) -> str:
    """Return a chart with a line for each buoy; the depth of buoy number *unreadable* is a question mark."""
    depths = ("?" if number == unreadable else str(number * 1.5) for number in BUOYS)
    lines = (f'  "buoy-{{number:02}}": {{depth}}' for number, depth in zip(BUOYS, depths))
    return "{{\\n" + ",\\n".join(lines) + "\\n}}"


class TestDepth(unittest.TestCase):
    """Every buoy has its depth."""


class TestMistake(unittest.TestCase):
    """A mistake is found where it is: on the line behind the opening brace, in the column of the depth."""


def depth_test(number):
    def test(self):
        self.assertEqual(chart.load(text())[f"buoy-{{number:02}}"], number * 1.5)

    return test


def mistake_test(number):
    def test(self):
        with self.assertRaises(ValueError) as caught:
            chart.load(text(unreadable=number))
        self.assertEqual(str(caught.exception), f"line {{number + 1}}, column 14: Expecting value")

    return test


for number in BUOYS:
    setattr(TestDepth, f"test_depth_of_buoy_{{number:02}}", depth_test(number))
    setattr(TestMistake, f"test_mistake_at_buoy_{{number:02}}", mistake_test(number))
''',
    # Without it, pytest would take its settings and its root from any project around the workdir.
    "pytest.ini": "[pytest]\naddopts = -p no:cacheprovider\n",
}


def create_project(directory: Path) -> None:
    """Write the project into *directory*, which must not exist, so that no file of the user is overwritten.

    Raises:
        StorageError: It exists, or cannot be written.
    """
    try:
        directory.mkdir(parents=True)
        for name, content in _PROJECT.items():
            (directory / name).write_text(content, encoding="utf-8")
    except OSError as error:
        raise storage_error(error, str(directory)) from error


_SOURCES: Final = (
    *("argparse.py", "getopt.py", "json/decoder.py", "json/scanner.py", "json/tool.py", "netrc.py", "optparse.py"),
    *("shlex.py", "tomllib/_parser.py"),
)
"""The files of the standard library that the script reads."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The interpreter that runs the demo; *library* is the directory of the standard library's sources."""

    python: str
    version: str
    library: Path
    has_pip: bool
    has_pytest: bool

    def call(self, *arguments: str) -> str:
        """Return a shell command that calls this Python."""
        return shlex.join((self.python, *arguments))


def this_machine() -> Machine:
    """Describe the interpreter that runs this.

    Raises:
        NotFoundError: There is no interpreter to start, or no source of the standard library to read.
    """
    if not sys.executable:
        raise NotFoundError("interpreter", "sys.executable", "run the demo with an installed Python")
    library = Path(sysconfig.get_path("stdlib"))
    for name in _SOURCES:
        if not (library / name).is_file():
            hint = "the demo reads Python's own sources; run it with a Python that has them"
            raise NotFoundError("file", str(library / name), hint)
    return Machine(
        python=sys.executable,
        version=sysconfig.get_python_version(),
        library=library,
        has_pip=importlib.util.find_spec("pip") is not None,  # environments made by other tools have none
        has_pytest=importlib.util.find_spec("pytest") is not None,
    )


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
        ("grep", "Search the archive and the offloaded results, with a regular expression.", {"pattern": "string"}),
        ("read", "Read lines of a file of the workspace.", {"path": "string", "start": "integer", "end": "integer"}),
    )
)
"""The agent's tools in OpenAI's form; the last two are buoyline's own lookups."""

TIMED_OUT: Final = 124
"""Exit status of a command that took too long, as ``timeout`` of the GNU core utilities has it."""

_SHELL: Final = "/bin/sh"


@dataclass(frozen=True, slots=True)
class Call:
    """A call of one of the tools in `DEFINITIONS`."""

    tool: str
    arguments: Mapping[str, Any]

    def to_json(self, call_id: str) -> dict[str, Any]:
        """Return the call as an assistant message of OpenAI's dialect has it."""
        function = {"name": self.tool, "arguments": spell(dict(self.arguments))}
        return {"id": call_id, "type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a tool; *answer* is set for a lookup only."""

    text: str
    status: int = 0
    answer: Answer | None = None


async def use_tool(call: Call, project: Path, workspace: LocalWorkspace, session_id: str) -> Output:
    """Run one call to its end.

    Raises:
        StorageError: A file to edit cannot be read or written, or there is no shell.
        NotFoundError: A file to look up is not there.
    """
    arguments = call.arguments
    match call.tool:
        case "bash":
            return await run_command(arguments["command"], project)
        case "edit_file":
            return _edit(Path(arguments["path"]), arguments["old_string"], arguments["new_string"])
        case "grep":
            answer = grep(workspace, arguments["pattern"], session=session_id)
        case _:
            answer = read(workspace, arguments["path"], arguments["start"], arguments["end"])
    return Output(answer.text, answer=answer)


async def run_command(command: str, directory: Path, *, timeout_s: float = 30.0) -> Output:
    """Run a shell command without input; its standard output and errors are one text.

    If the command takes too long or the caller is cancelled, the command and all its children are killed.

    Raises:
        StorageError: There is no shell, or no such directory.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *(_SHELL, "-c", command),
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
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    text, status = output.decode("utf-8", errors="replace"), process.returncode or 0
    return Output(f"{text}(exit status {status})\n" if status else text, status)


def _environment() -> dict[str, str]:
    """Return the environment without the settings that change the output of Python, pip or pytest."""
    foreign, needed = ("COLUMNS", "FORCE_COLOR", "PIP_", "PYTEST_", "PYTHON", "PY_COLORS"), ("PYTHONHOME", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if name in needed or not name.startswith(foreign)}
    switches = ("NO_COLOR", "PIP_DISABLE_PIP_VERSION_CHECK", "PIP_NO_INPUT", "PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    return {**kept, **dict.fromkeys((*switches, "PYTHONDONTWRITEBYTECODE", "PYTHONUTF8"), "1")}


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


_FAILURE: Final = re.compile(r"'(line (\d+), column \d+: [^']+)' !=")


@dataclass(frozen=True, slots=True)
class Detail:
    """A line of an earlier tool result; *question* asks for it without giving it away, *pattern* finds it."""

    question: str
    pattern: str
    text: str


def archived_detail(output: str, context: Sequence[Any]) -> Detail | None:
    """Choose a message of a failing test in *output* that no message of *context* holds; None if there is none.

    The tests in the middle come first, since a preview shows the beginning and the end.
    """
    seen = "\n".join(spell(message) for message in context)
    matches = list(_FAILURE.finditer(output))
    for number in sorted(range(len(matches)), key=lambda number: abs(number - len(matches) // 2)):
        text, line = matches[number].groups()
        if text not in seen:
            buoy = f"{int(line) - 1:02}"
            question = (
                f"One more thing for the report: what did chart.py say of buoy {buoy} in the very first test run?"
            )
            return Detail(question, rf"line {line}, column \d+: .* !=", text)
    return None


SYSTEM: Final = (
    "You are a careful software engineer. You work in a small project through your tools. Earlier messages and "
    "large tool results may have been archived; the stubs and the summary say where they are: use grep and read."
)

_LIST_PACKAGES: Final = (
    "from importlib.metadata import distributions as d; "
    "print(*sorted({(p.name + ' ' + p.version) for p in d() if p.name}, key=str.lower), sep=chr(10))"
)
_SHOW_BUILD: Final = "import json, sysconfig; print(json.dumps(sysconfig.get_config_vars()))"

Act: TypeAlias = Callable[..., Awaitable[tuple[Output, ...]]]
"""One turn of the agent: takes what it says and its calls, and returns their outputs. No calls end its work."""


def task(project: Path) -> str:
    """Return what the user asks for."""
    return (
        f"The tests of the project in {project} fail. Find out why and make them pass. Do not change the "
        "tests, and do not install anything. For the report, first write down which Python and which packages "
        "this machine has, and see how Python's own parsers say where a mistake is: ours should say it in the same way."
    )


def test_command(machine: Machine) -> str:
    """Return the command that runs the project's tests."""
    return machine.call("-m", "pytest" if machine.has_pytest else "unittest", "-v")


async def repair(act: Act, machine: Machine, project: Path) -> None:
    """Do the task: list the packages, see the tests fail, read, decide, correct the module, see the tests pass."""
    packages = ("-m", "pip", "list") if machine.has_pip else ("-c", _LIST_PACKAGES)
    listed, _ = await act(
        "I begin with what this machine has: its packages, and how its Python was built.",
        *(_bash(machine.call(*packages)), _bash(machine.call("-c", _SHOW_BUILD))),
    )
    count = sum(1 for line in listed.text.splitlines() if re.match(r"\S+\s+v?\d", line))
    await act(
        f"{count} packages with Python {machine.version} at {machine.python}. Now the project itself.",
        *(_bash("ls -l"), _bash("cat chart.py test_chart.py")),
    )
    (tests,) = await act("I run the tests before I change anything.", _bash(test_command(machine)))
    failed = re.search(r"(\d+) failed|failures=(\d+)", tests.text)
    count_of_failures = "Some" if failed is None else failed[1] or failed[2]
    decoder = machine.library / "json/decoder.py"
    await act(
        f"{count_of_failures} tests fail, each with a wrong column. chart.py takes it from {MISTAKE}. I have to see "
        f"what JSONDecodeError offers, so I read {decoder}.",
        _cat(decoder),
    )
    await _read_parsers(act, machine, decoder)
    await _read_command_lines(act, machine)
    await _correct(act, machine, project / "chart.py")


async def _read_parsers(act: Act, machine: Machine, decoder: Path) -> None:
    (found,) = await act(
        "Where it raises that error, and with what; I need the lines exactly.",
        _bash(f"grep -n -A 110 'class JSONDecodeError' {shlex.quote(str(decoder))}"),
    )
    await act(
        f"Decision D-1: {_place(decoder, found.text, 'colno = ')} computes colno from pos. So pos counts from the "
        f"start of the document, and colno is the column: chart.py must use {CORRECTION}. I make sure that the scanner "
        "raises nothing else.",
        _cat(machine.library / "json/scanner.py"),
    )
    (raised,) = await act(
        "How do the other parsers of the standard library word such errors? First all places that raise one.",
        _bash(f"cd {shlex.quote(str(machine.library))} && grep -n 'raise .*Error(' *.py"),
    )
    await act(
        f"{len(raised.text.splitlines()):,} places. Three of these modules parse text that people write by hand: "
        "shlex, netrc and tomllib. I read the two short ones.",
        *(_cat(machine.library / "shlex.py"), _cat(machine.library / "netrc.py")),
    )
    parser = machine.library / "tomllib/_parser.py"
    (toml,) = await act("shlex and netrc name the line alone. tomllib is said to name the column, too.", _cat(parser))
    await act(
        f"Decision D-2: {_place(parser, toml.text, 'column {')} says 'line N, column N' as chart.py does. The wording "
        "stays, the number alone is wrong. I look at the lines around it, since the stub shows only the ends of the "
        "file.",
        _bash(f"grep -n -B 90 -A 8 'column {{' {shlex.quote(str(parser))}"),
    )


async def _read_command_lines(act: Act, machine: Machine) -> None:
    await act(
        "chart.py ends with sys.exit(text), so with status 1. How do Python's own command lines end when their "
        "input cannot be read? json.tool is the closest relative.",
        *(_cat(machine.library / "json/tool.py"), _cat(machine.library / "getopt.py")),
    )
    argparse = machine.library / "argparse.py"
    source, _ = await act(
        f"json.tool raises SystemExit with the error, so it ends with 1 as well. Wrong usage is for {argparse} "
        "there, and for optparse in older programs.",
        *(_cat(argparse), _cat(machine.library / "optparse.py")),
    )
    await act(
        f"Decision D-3: argparse exits with 2 for wrong usage only ({_place(argparse, source.text, 'self.exit(2')}); "
        "chart.py keeps status 1 for text that cannot be read. The methods around that line, to be sure:",
        _bash(f"grep -n -B 120 -A 4 'self.exit(2' {shlex.quote(str(argparse))}"),
    )


async def _correct(act: Act, machine: Machine, chart: Path) -> None:
    await act("Before I change chart.py, I read it once more.", _bash("cat chart.py test_chart.py"))
    arguments = {"path": str(chart), "old_string": f"{{{MISTAKE}}}", "new_string": f"{{{CORRECTION}}}"}
    await act(f"As decided in D-1, I put {CORRECTION} into {chart}.", Call("edit_file", arguments))
    (tests,) = await act("The same tests again.", _bash(test_command(machine)))
    outcome = "All tests pass" if tests.status == 0 else "Tests still fail"
    await act(
        f"{outcome} (exit status {tests.status}). Once more with nothing but Python, and warnings as errors.",
        _bash(machine.call("-W", "error", "-m", "unittest", "-v")),
    )
    broken = """printf '{\\n  "buoy-01": 1.5,\\n  "buoy-02": ?\\n}'"""
    (tried,) = await act(
        "And by hand, with a mistake on line 3 in column 14.", _bash(f"{broken} | {machine.call('chart.py')}")
    )
    said = tried.text.splitlines()[0] if tried.text else ""
    await act(
        f"Done. {chart} used {MISTAKE}, the position in the whole text, for the column; it uses {CORRECTION} now "
        f"(D-1), with the wording of tomllib (D-2) and status 1 (D-3). {outcome}; by hand it answers {said!r}. The "
        "tests are unchanged, and nothing was installed."
    )


async def recall(act: Act, detail: Detail) -> None:
    """Find *detail* again with buoyline's own lookups."""
    (hits,) = await act(
        "That is no longer in my context. I search the workspace.", Call("grep", {"pattern": detail.pattern})
    )
    lines = hits.answer.lines if hits.answer is not None else ()
    if not lines:
        await act("It is not there.")
        return
    path, number = lines[0].path, lines[0].number
    arguments = {"path": path, "start": max(number - 3, 1), "end": number + 1}
    await act("There it is. I read the lines around it.", Call("read", arguments))
    await act(f"It said {detail.text!r} ({path}:{number}).")


def _bash(command: str) -> Call:
    return Call("bash", {"command": command})


def _cat(path: Path) -> Call:
    return _bash(f"cat {shlex.quote(str(path))}")


def _place(path: Path, text: str, needle: str) -> str:
    """Return *path* with the number of the line in *text*, a file or the output of ``grep -n``, that holds *needle*."""
    for number, line in enumerate(text.splitlines(), start=1):
        if needle in line:
            numbered = re.match(r"(\d+)[:-]", line)
            return f"{path}:{numbered[1] if numbered else number}"
    return str(path)
