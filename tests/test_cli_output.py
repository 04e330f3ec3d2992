"""What the command line prints: no escape reaches a terminal, and each end has its exit status."""

import asyncio
import io
import json
import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from buoyline.cli import main
from buoyline.cli.output import broken, columns, how_long_ago, local_time
from buoyline.workspace import LocalWorkspace

HOSTILE = "\x1b]0;pwned\x07\x9b31m\u202e\u2066\u200e\u200f\u061c"
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace whose session, messages, results and own files carry escapes for terminals."""
    made = LocalWorkspace(tmp_path_factory.mktemp("hostile") / "workspace", durability="off")
    messages = [{"role": "user", "name": HOSTILE, "content": HOSTILE}]

    async def fill() -> None:
        async with made:
            await made.start_window("s1", {})
            await made.replace_window("s1", messages, [], 0, [])
            await made.offload_tool_result("s1", {"role": "tool", "tool_call_id": HOSTILE, "content": HOSTILE})

    asyncio.run(fill())
    (made.workdir / "head.csv").write_text(f"a{HOSTILE},b\n1,2\n", "utf-8")
    (made.workdir / "keys.json").write_text(json.dumps([{f"k{HOSTILE}": 1}]), "utf-8")
    return made.workdir


def _run(*args: str, workdir: Path | None = None, env: dict[str, str | None] | None = None) -> Result:
    """Run a command as on a terminal: with ``color=False`` click itself would take escapes out."""
    args = (*args, "--workdir", str(workdir)) if workdir else args
    return CliRunner(env=env).invoke(main, args, color=True)


@pytest.mark.parametrize(
    "args",
    [
        ("read", f"{HOSTILE}.txt"),
        ("show", HOSTILE),
        ("show", "s1"),
        ("grep", f"{HOSTILE}("),
        ("convert", "s1", "--to", "openai"),
        ("convert", "s1", "--to", "anthropic"),
        ("convert", "s1", "--to", "anthropic", "--json"),
        ("verify", HOSTILE),
        ("tail", "--no-follow"),
        ("tail", "--no-follow", "--json"),
        ("context", "get", HOSTILE),
        (HOSTILE,),
        ("sessions", f"--{HOSTILE}"),
    ],
    ids=lambda args: ascii(" ".join(args)),
)
def test_no_command_sends_an_escape_to_a_terminal(workdir: Path, args: tuple[str, ...]) -> None:
    done = _run(*args, workdir=None if len(args) == 1 else workdir, env={"NO_COLOR": "1"})
    printed = done.stdout + done.stderr
    assert printed
    assert RAW.findall(printed.replace("\n", "")) == []


def test_json_for_a_terminal_is_still_the_same_value(workdir: Path) -> None:
    assert json.loads(_run("convert", "s1", "--to", "openai", workdir=workdir).stdout)["content"] == HOSTILE


def test_an_error_about_a_workdir_shows_its_name_without_escapes(tmp_path: Path) -> None:
    done = _run("sessions", workdir=tmp_path / "\x1b[31m")
    assert "\\x1b[31m" in done.stderr
    assert RAW.findall(done.stderr.replace("\n", "")) == []


ROWS: Sequence[Sequence[str | int]] = [
    ("name", "size", "of what"),
    ("a", 1_234, "the first " * 6),
    ("b" * 40, 5, "漢字"),
]


@pytest.mark.parametrize("width", [60, 80])
def test_a_table_is_as_narrow_as_the_terminal_and_shows_all_of_its_last_column(width: int) -> None:
    lines = list(columns(ROWS, width))
    assert max(map(len, lines)) <= width
    assert lines[0].split() == ["name", "size", "of", "what"]
    assert "1,234" in lines[1]
    begin = lines[0].index("of what")
    assert " ".join(line[begin:].strip() for line in lines[1:-1]) == ("the first " * 6).strip()
    assert re.match("b{7,}… +5 ", lines[-1])


def test_a_table_for_a_pipe_is_as_wide_as_its_cells() -> None:
    assert [len(line) for line in columns(ROWS)] == [56, 108, 51]


def test_a_line_is_broken_between_words_below_its_text() -> None:
    line = "tool results    1,200, 123,456,789 bytes, the largest 1,234,567 of sessions/s1/tool_result-toolu_01.txt"
    assert broken(line, 60) == [
        "tool results    1,200, 123,456,789 bytes, the largest",
        "                1,234,567 of",
        "                sessions/s1/tool_result-toolu_01.txt",
    ]
    assert broken(line, None) == [line]
    assert broken("  by the x summarizer " + "y " * 30, 40)[1].startswith("  y y")


@pytest.mark.parametrize(
    "command", ["sessions", "stats", "show", "summaries", "verify", "gc", "repair", "context list", "context explain"]
)
@pytest.mark.parametrize("width", [60, 80])
def test_reports_fit_a_narrow_terminal(
    workdir: Path, monkeypatch: pytest.MonkeyPatch, command: str, width: int
) -> None:
    for module in ("output", "sessions", "context"):
        monkeypatch.setattr(f"buoyline.cli.{module}.terminal_width", lambda: width)
    args = {"show": ["s1"], "summaries": ["s1"], "context explain": ["coding-agent"]}.get(command, [])
    done = _run(*command.split(), *args, workdir=workdir)
    assert done.stdout
    unbreakable = re.compile(r"\S{20,}")
    assert [line for line in done.stdout.splitlines() if len(line) > width and not unbreakable.search(line)] == []


@pytest.mark.parametrize(("command", "coloured"), [(("verify",), "damage"), (("tail", "--no-follow"), "stored")])
def test_words_are_coloured_on_a_terminal_alone(tmp_path: Path, command: tuple[str, ...], coloured: str) -> None:
    made = LocalWorkspace(tmp_path / "w", durability="off")
    asyncio.run(made.offload_tool_result("s1", {"role": "tool", "tool_call_id": "c1", "content": "x"}))
    (tmp_path / "w/sessions/s1/tool_result-c1.txt").write_text("y", "utf-8")
    shown = _run(*command, workdir=made.workdir).stdout
    assert re.findall("\x1b\\[[0-9;]+m\x1b\\[1m([a-z]+)\x1b\\[0m", shown)[:1] == [coloured]
    assert "\x1b" not in CliRunner().invoke(main, [*command, "--workdir", str(made.workdir)]).stdout
    assert "\x1b" not in _run(*command, workdir=made.workdir, env={"NO_COLOR": "1"}).stdout


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
