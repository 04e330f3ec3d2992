"""The script: what the agent says and calls, in the place of a model.

A script is a generator. It yields the next turn and is sent the outputs of its calls, so that what the agent
says of them is true on every machine. Its last turn has no calls.
"""

import re
import shlex
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from buoyline.cli.demo.detail import Detail
from buoyline.cli.demo.machine import Machine
from buoyline.cli.demo.project import CORRECTION, MISTAKE
from buoyline.cli.demo.tools import Call, Output

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
