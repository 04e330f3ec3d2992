"""The small project that the scripted agent repairs: a module, its mistake, and tests that find it."""

import asyncio
import importlib.util
import os
import re
import shlex
import signal
import sys
import sysconfig
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from buoyline.errors import NotFoundError, storage_error
from buoyline.lookups import Answer, grep, read
from buoyline.messages import spell
from buoyline.workspace import LocalWorkspace

BUOYS = 40
"""So many buoys are in a chart; so many tests fail before the mistake is corrected."""

MISTAKE = "error.pos"
CORRECTION = "error.colno"

_CHART = f'''\
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
'''

_TESTS = f'''\
"""Tests of chart.py in plain unittest, so that pytest runs them as well."""

import unittest

import chart

BUOYS = range(1, {BUOYS} + 1)


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
'''

# Without it, pytest would take its settings and its root from whatever project the workdir happens to lie in.
_SETTINGS = "[pytest]\naddopts = -p no:cacheprovider\n"


def create_project(directory: Path) -> None:
    """Write the project into *directory*, which must not exist, so that nobody's files are overwritten.

    Raises:
        OSError: It exists, or cannot be written.
    """
    directory.mkdir(parents=True)
    for name, content in (("chart.py", _CHART), ("test_chart.py", _TESTS), ("pytest.ini", _SETTINGS)):
        (directory / name).write_text(content, encoding="utf-8")


# The tools of the scripted agent. They really run: nothing in their results is made up.


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


# The machine that the demo runs on, as far as its script needs to know it.


SOURCES = (
    "argparse.py",
    "getopt.py",
    "json/decoder.py",
    "json/scanner.py",
    "json/tool.py",
    "netrc.py",
    "optparse.py",
    "shlex.py",
    "tomllib/_parser.py",
)
"""What the script reads of the standard library, relative to it."""


@dataclass(frozen=True, slots=True)
class Machine:
    """An interpreter and what comes with it.

    Attributes:
        python: The interpreter that we run in.
        version: Its version.
        library: Directory of the standard library's sources.
        has_pip: Whether it can import pip; environments made by other tools have none.
        has_pytest: Whether it can import pytest; only those who develop with it have it.
    """

    python: str
    version: str
    library: Path
    has_pip: bool
    has_pytest: bool


def this_machine() -> Machine:
    """Return what there is here.

    Raises:
        NotFoundError: There is no interpreter to start, or no source of the standard library to read.
    """
    if not sys.executable:
        raise NotFoundError("interpreter", "sys.executable", "run the demo with an installed Python")
    library = Path(sysconfig.get_path("stdlib"))
    for name in SOURCES:
        if not (library / name).is_file():
            hint = "the demo reads Python's own sources; run it with a Python that has them"
            raise NotFoundError("file", str(library / name), hint)
    return Machine(
        python=sys.executable,
        version=sysconfig.get_python_version(),
        library=library,
        has_pip=importlib.util.find_spec("pip") is not None,
        has_pytest=importlib.util.find_spec("pytest") is not None,
    )


# A detail of an earlier tool result that is provably no longer in the context.


_WRONG = re.compile(r"'(line (\d+), column \d+: [^']+)' !=")


@dataclass(frozen=True, slots=True)
class Detail:
    """Something that was in the context once.

    Attributes:
        question: What the user asks about it, without giving it away.
        pattern: Regular expression that finds it.
        text: The detail itself.
    """

    question: str
    pattern: str
    text: str


def dropped_detail(output: str, context: Sequence[Any]) -> Detail | None:
    """Choose what one of the failing tests in *output* said, such that no message of *context* holds it.

    The tests in the middle come first, since a preview shows the beginning and the end.

    Args:
        output: Of the project's tests, before the repair.
        context: Native messages, as the model sees them now.

    Returns:
        None when the context holds all of it still, as in a window that is large enough.
    """
    seen = "\n".join(spell(message) for message in context)
    for match in _from_the_middle(list(_WRONG.finditer(output))):
        if match[1] not in seen:
            buoy = f"{int(match[2]) - 1:02}"
            question = (
                f"One more thing for the report: what did chart.py say of buoy {buoy} in the very first test run?"
            )
            return Detail(question, rf"line {match[2]}, column \d+: .* !=", match[1])
    return None


def _from_the_middle(matches: Sequence[re.Match[str]]) -> Iterator[re.Match[str]]:
    middle = len(matches) // 2
    yield from sorted(matches, key=lambda match: abs(matches.index(match) - middle))


# The script: what the agent says and calls, in the place of a model.
#
# A script is a generator. It yields the next turn and is sent the outputs of its calls, so that what the agent
# says of them is true on every machine. Its last turn has no calls.


SYSTEM = (
    "You are a careful software engineer. You work in a small project through your tools. Earlier messages and "
    "large tool results may have left your context; the stubs and the summary say where they are: use grep and read."
)

_LIST_PACKAGES = (
    "from importlib.metadata import distributions as d; "
    "print(*sorted({(p.name + ' ' + p.version) for p in d() if p.name}, key=str.lower), sep=chr(10))"
)
_SHOW_BUILD = "import json, sysconfig; print(json.dumps(sysconfig.get_config_vars()))"


@dataclass(frozen=True, slots=True)
class Turn:
    """An assistant message.

    Attributes:
        text: What the agent says.
        calls: What it calls, in parallel; none in its final answer.
    """

    text: str
    calls: tuple[Call, ...] = ()


Script: TypeAlias = Generator[Turn, tuple[Output, ...], None]


@dataclass(frozen=True, slots=True)
class Repair:
    """The task of the demo, on one machine.

    Attributes:
        machine: Whose packages and sources are read.
        project: Directory of the project to repair.
    """

    machine: Machine
    project: Path

    @property
    def task(self) -> str:
        """What the user asks for."""
        return (
            f"The tests of the project in {self.project} fail. Find out why and make them pass. Do not change the "
            "tests, and do not install anything. For the report, first write down which Python and which packages "
            "this machine has, and see how Python's own parsers say where a mistake is: ours shall say it alike."
        )

    @property
    def test_command(self) -> str:
        """The command that runs the project's tests."""
        return self._python("-m", "pytest" if self.machine.has_pytest else "unittest", "-v")

    def work(self) -> Script:
        """Do the task: take stock, see the tests fail, read, decide, repair, see them pass."""
        yield from self._take_stock()
        yield from self._see_tests_fail()
        yield from self._read_decoder()
        yield from self._compare_parsers()
        yield from self._read_ends()
        yield from self._repair()

    def _take_stock(self) -> Script:
        packages = ("-m", "pip", "list") if self.machine.has_pip else ("-c", _LIST_PACKAGES)
        listed, _ = yield Turn(
            "I begin with what this machine has: its packages, and how its Python was built.",
            (_bash(self._python(*packages)), _bash(self._python("-c", _SHOW_BUILD))),
        )
        count = sum(1 for line in listed.text.splitlines() if re.match(r"\S+\s+v?\d", line))
        yield Turn(
            f"{count} packages with Python {self.machine.version} at {self.machine.python}. Now the project itself.",
            (_bash("ls -l"), _bash("cat chart.py test_chart.py")),
        )

    def _see_tests_fail(self) -> Script:
        (tests,) = yield Turn("I run the tests before I change anything.", (_bash(self.test_command),))
        failed = re.search(r"(\d+) failed|failures=(\d+)", tests.text)
        count = "Some" if failed is None else failed[1] or failed[2]
        path = self._in_library("json/decoder.py")
        yield Turn(
            f"{count} tests fail, each with a wrong column. chart.py takes it from {MISTAKE}. I have to see what "
            f"JSONDecodeError offers, so I read {path}.",
            (_bash(f"cat {_quoted(path)}"),),
        )

    def _read_decoder(self) -> Script:
        path = self._in_library("json/decoder.py")
        (found,) = yield Turn(
            "Where it raises that error, and with what; I need the lines exactly.",
            (_bash(f"grep -n -A 110 'class JSONDecodeError' {_quoted(path)}"),),
        )
        place = _place(path, found.text, "colno = ")
        scanner = self._in_library("json/scanner.py")
        yield Turn(
            f"Decision D-1: {place} computes colno from pos. So pos counts from the start of the document, and "
            f"colno is the column: chart.py must use {CORRECTION}. I make sure that the scanner raises nothing else.",
            (_bash(f"cat {_quoted(scanner)}"),),
        )

    def _compare_parsers(self) -> Script:
        (raised,) = yield Turn(
            "How do the other parsers of the standard library word such errors? First all places that raise one.",
            (_bash(f"cd {_quoted(self.machine.library)} && grep -n 'raise .*Error(' *.py"),),
        )
        shlex_path, netrc_path, toml_path = (
            self._in_library(name) for name in ("shlex.py", "netrc.py", "tomllib/_parser.py")
        )
        yield Turn(
            f"{len(raised.text.splitlines()):,} places. Three of these modules parse text that people write by hand: "
            "shlex, netrc and tomllib. I read the two short ones.",
            (_bash(f"cat {_quoted(shlex_path)}"), _bash(f"cat {_quoted(netrc_path)}")),
        )
        (toml,) = yield Turn(
            "shlex and netrc name the line alone. tomllib is said to name the column, too.",
            (_bash(f"cat {_quoted(toml_path)}"),),
        )
        place = _place(toml_path, toml.text, "column {")
        yield Turn(
            f"Decision D-2: {place} says 'line N, column N' as chart.py does. The wording stays, the number alone "
            "is wrong. I look at the lines around it, since the stub shows only the ends of the file.",
            (_bash(f"grep -n -B 90 -A 8 'column {{' {_quoted(toml_path)}"),),
        )

    def _read_ends(self) -> Script:
        tool_path, getopt_path = self._in_library("json/tool.py"), self._in_library("getopt.py")
        yield Turn(
            "chart.py ends with sys.exit(text), so with status 1. How do Python's own command lines end when their "
            "input cannot be read? json.tool is the closest relative.",
            (_bash(f"cat {_quoted(tool_path)}"), _bash(f"cat {_quoted(getopt_path)}")),
        )
        path, older_path = self._in_library("argparse.py"), self._in_library("optparse.py")
        source, _ = yield Turn(
            f"json.tool raises SystemExit with the error, so it ends with 1 as well. Wrong usage is left to {path} "
            "there, and to optparse in older programs.",
            (_bash(f"cat {_quoted(path)}"), _bash(f"cat {_quoted(older_path)}")),
        )
        place = _place(path, source.text, "self.exit(2")
        yield Turn(
            f"Decision D-3: argparse exits with 2 for wrong usage only ({place}); chart.py keeps status 1 for text "
            "that cannot be read. The methods around that line, to be sure:",
            (_bash(f"grep -n -B 120 -A 4 'self.exit(2' {_quoted(path)}"),),
        )

    def _repair(self) -> Script:
        chart = self.project / "chart.py"
        yield Turn("Before I change chart.py, I read it once more.", (_bash("cat chart.py test_chart.py"),))
        arguments = {"path": str(chart), "old_string": f"{{{MISTAKE}}}", "new_string": f"{{{CORRECTION}}}"}
        yield Turn(f"As decided in D-1, I put {CORRECTION} into {chart}.", (Call("edit_file", arguments),))
        (tests,) = yield Turn("The same tests again.", (_bash(self.test_command),))
        outcome = "All tests pass" if tests.status == 0 else "Tests still fail"
        yield Turn(
            f"{outcome} (exit status {tests.status}). Once more with nothing but Python, and warnings as errors.",
            (_bash(self._python("-W", "error", "-m", "unittest", "-v")),),
        )
        broken = """printf '{\\n  "buoy-01": 1.5,\\n  "buoy-02": ?\\n}'"""
        (tried,) = yield Turn(
            "And by hand, with a mistake on line 3 in column 14.", (_bash(f"{broken} | {self._python('chart.py')}"),)
        )
        said = tried.text.splitlines()[0] if tried.text else ""
        yield Turn(
            f"Done. {chart} said {MISTAKE}, the position in the whole text, where a column was meant; it says "
            f"{CORRECTION} now (D-1), with the wording of tomllib (D-2) and status 1 (D-3). {outcome}; by hand it "
            f"answers {said!r}. The tests are unchanged, and nothing was installed."
        )

    def _python(self, *arguments: str) -> str:
        return shlex.join((self.machine.python, *arguments))

    def _in_library(self, name: str) -> Path:
        return self.machine.library / name


def recall(detail: Detail) -> Script:
    """Find *detail* again with buoyline's own lookups."""
    (hits,) = yield Turn(
        "That is no longer in my context. I search what left it.", (Call("grep", {"pattern": detail.pattern}),)
    )
    lines = hits.answer.lines if hits.answer is not None else ()
    if not lines:
        yield Turn("It is not there.")
        return
    path, number = lines[0].path, lines[0].number
    arguments = {"path": path, "start": max(number - 3, 1), "end": number + 1}
    yield Turn("There it is. I read the lines around it.", (Call("read", arguments),))
    yield Turn(f"It said {detail.text!r} ({path}:{number}).")


def _bash(command: str) -> Call:
    return Call("bash", {"command": command})


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def _place(path: Path, text: str, needle: str) -> str:
    """Return *path* with the number of the line in *text*, of a file or of ``grep -n``, that holds *needle*."""
    for number, line in enumerate(text.splitlines(), start=1):
        if needle in line:
            numbered = re.match(r"(\d+)[:-]", line)
            return f"{path}:{numbered[1] if numbered else number}"
    return str(path)
