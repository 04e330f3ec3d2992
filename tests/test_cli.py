"""Promises of all commands: help, JSON, errors, what is sent to a terminal, and the exit status."""

import asyncio
import io
import json
import re
import shlex
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from command_line import buoyline

from buoyline import ContextWindow
from buoyline.cli import main
from buoyline.cli.main import COMMANDS
from buoyline.cli.output import columns, how_long_ago, local_time
from buoyline.workspace import LocalWorkspace

LONG_S = 60
HOSTILE = "\x1b]0;pwned\x07\x9b31m\u202e\u2066\u200e\u200f\u061c"
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
READING = {
    "sessions": [],
    "show": ["s1"],
    "diff": ["s1", "1"],
    "convert": ["s1", "--to", "openai"],
    "read": ["x"],
    "grep": ["x"],
    "search": ["x"],
    "tail": ["--no-follow"],
    "verify": [],
    "repair": [],
    "gc": [],
}
"""The commands that read a workspace, with arguments."""


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace whose session, messages, results and own files carry escapes for terminals."""
    made = LocalWorkspace(tmp_path_factory.mktemp("hostile") / "workspace", durability="off")
    messages = [{"role": "user", "name": HOSTILE, "content": HOSTILE}]

    async def fill() -> None:
        async with await ContextWindow.open(made, "s1") as window:
            await window.extend(messages)
            await made.offload_tool_result("s1", {"role": "tool", "tool_call_id": HOSTILE, "content": HOSTILE})

    asyncio.run(fill())
    return made.workdir


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example_and_json(name: str) -> None:
    shown = CliRunner().invoke(main, [name, "--help"]).stdout
    assert "Example: " in shown
    assert f"buoyline {name}" in shown.partition("Example: ")[2]
    assert ("--json" in shown) == (name != "demo")
    assert f"\n  {name} " in CliRunner().invoke(main, ["--help"]).stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_the_short_help_of_a_command_is_its_own_and_takes_one_line(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert COMMANDS[name][1] == command.get_short_help_str(200)
    assert len(f"  {'sessions'}  {COMMANDS[name][1]}") <= 78


@pytest.mark.parametrize("name", READING)
def test_reading_creates_no_workspace(tmp_path: Path, name: str) -> None:
    done = buoyline(name, *READING[name], "--workdir", "nowhere", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"no workspace '{tmp_path / 'nowhere'}'; name its directory with --workdir" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("as_json", [[], ["--json"]])
@pytest.mark.parametrize(
    "args",
    [
        ("sessions",),
        ("show", HOSTILE),
        ("show", "s1"),
        ("show", "s1", "--messages", "0"),
        ("read", f"{HOSTILE}.txt"),
        ("grep", f"{HOSTILE}("),
        ("grep", "."),
        ("search", HOSTILE),
        ("convert", "s1", "--to", "openai"),
        ("convert", "s1", "--to", "anthropic"),
        ("diff", HOSTILE, "1"),
        ("verify", HOSTILE),
        ("verify",),
        ("gc", "--keep", "0"),
        ("tail", "--no-follow"),
        ("context", HOSTILE),
        ("replay", HOSTILE),
        (HOSTILE,),
        ("sessions", f"--{HOSTILE}"),
    ],
    ids=lambda args: ascii(" ".join(args)),
)
def test_no_command_sends_an_escape_to_a_terminal(workdir: Path, args: tuple[str, ...], as_json: list[str]) -> None:
    given = [*args, *as_json, *(["--workdir", str(workdir)] if len(args) > 1 or args[0] in COMMANDS else [])]
    done = CliRunner().invoke(main, given, color=True)  # with ``color=False`` click itself would take escapes out
    printed = done.stdout + done.stderr
    assert printed
    assert RAW.findall(printed.replace("\n", "")) == []


def test_json_for_a_terminal_is_still_the_same_value(workdir: Path) -> None:
    done = buoyline("convert", "s1", "--to", "openai", "--workdir", workdir)
    assert json.loads(done.stdout)["content"] == HOSTILE


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (("show", "s2"), 1, "no session 's2'; `buoyline sessions` lists those there are"),
        (("verify", "s2"), 1, "no session 's2'; `buoyline sessions` lists those there are"),
        (("read", "nothing.txt"), 1, "no file 'nothing.txt'"),
        (("read", "../../etc/passwd"), 1, "no file '../../etc/passwd'"),
        (("grep", "(?<!a)b"), 2, "RE2 syntax"),
        (("search", "?!"), 2, "query: has no word"),
        (("read", "workspace.json", "--max-tokens", "0"), 2, "try `buoyline read --help`"),
        (("show", "s1", "--messages", "9-3"), 2, "not a range of messages"),
        (("show", "s1", "--summary"), 1, "no summary '1'; session 's1' has 0"),
        (("repair", "--from", "/nowhere"), 2, "'/nowhere' does not exist"),
        (("context", "nowhere"), 1, "no context management document 'nowhere'"),
        (("nonsense",), 2, "No such command 'nonsense'"),
    ],
)
def test_an_error_is_one_line_that_says_what_to_do(
    workdir: Path, args: tuple[str, ...], status: int, words: str
) -> None:
    done = buoyline(*args, *(["--workdir", str(workdir)] if args[0] in COMMANDS else []))
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith("buoyline: error: ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_workdir_may_come_from_the_environment(workdir: Path) -> None:
    result = CliRunner().invoke(main, ["sessions"], env={"BUOYLINE_WORKDIR": str(workdir)})
    assert result.exit_code == 0
    assert "s1" in result.stdout


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"format": 99}', "format 99"),
        ("not JSON", "is damaged: write"),
        ("[]", "is damaged"),
    ],
)
def test_a_workspace_of_another_format_is_refused_untouched(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "workspace.json").write_text(content, "utf-8")
    done = buoyline("sessions", "--workdir", tmp_path)
    assert done.returncode == 1
    assert words in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["workspace.json"]


@pytest.mark.parametrize("command", [["read", "transcript.md", "--max-tokens", "300000"], ["demo"]])
def test_a_reader_that_stops_listening_is_no_error(tmp_path: Path, command: list[str]) -> None:
    if command != ["demo"]:
        message = {"role": "user", "content": "some words on a line\n" * 50_000}
        asyncio.run(LocalWorkspace(tmp_path).offload_context("s1", [message]))
    given = [sys.executable, "-m", "buoyline", *command, "--workdir", str(tmp_path)]
    with subprocess.Popen(given, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(LONG_S) == -signal.SIGPIPE, "a shell shows 141, as for other commands"


def test_an_answer_that_cannot_be_written_is_one_clear_line(workdir: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    command = f'"{sys.executable}" -m buoyline sessions --workdir {shlex.quote(str(workdir))} > /dev/full'
    done = subprocess.run(["/bin/sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "No space left on device" in done.stderr


class _Interrupted(io.BytesIO):
    """A terminal at which Ctrl-C is pressed while a command reads from it."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Raise what Python raises for SIGINT."""
        if size == 0:  # whether it is binary is asked in this way
            return b""
        raise KeyboardInterrupt


def test_ctrl_c_is_one_line_and_status_130() -> None:
    done = CliRunner().invoke(main, ["preview", "-"], input=_Interrupted())
    assert done.exit_code == 130
    assert done.stderr.strip() == "buoyline: error: interrupted"


def test_help_imports_no_command_and_nothing_that_is_slow_to_import() -> None:
    program = (
        "import sys; from buoyline.cli import main; main(['--help'], standalone_mode=False); "
        "sys.exit(' '.join({*sys.modules} & {'asyncio', 'pydantic', 're2', 'rich', 'tiktoken', 'buoyline.messages', "
        "'buoyline.offloader', 'buoyline.workspace', 'buoyline.window', 'buoyline.cli.show'}) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, encoding="utf-8")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_version_is_that_of_the_package() -> None:
    assert CliRunner().invoke(main, ["--version"]).stdout.startswith("buoyline ")


def test_columns_are_aligned_and_numbers_stand_at_the_right() -> None:
    assert list(columns([("name", "size"), ("a", 1_234), ("long one", 5)])) == [
        "name       size",
        "a         1,234",
        "long one      5",
    ]


@pytest.mark.parametrize(
    ("moment", "shown"),
    [
        ("2026-11-22T05:59:58.500Z", "1 s ago"),
        ("2026-11-22T05:55:00Z", "5 min ago"),
        ("2026-11-22T01:00:00Z", "5 h ago"),
        ("2026-11-21T05:00:00Z", "1 day ago"),
        ("2025-11-22T06:00:00Z", "365 days ago"),
        ("yesterday", "yesterday"),
        ("", ""),
    ],
)
def test_times_are_shown_as_people_say_them(moment: str, shown: str) -> None:
    assert how_long_ago(moment, datetime(2026, 11, 22, 6, 0, 0, tzinfo=UTC)) == shown


def test_a_time_is_shown_as_that_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert local_time("2026-11-22T05:00:09.723Z") == "2026-11-22 14:00:09"
        assert how_long_ago("2999-01-01T00:00:00Z") == "2999-01-01 09:00:00"
    finally:
        monkeypatch.undo()
        time.tzset()
