"""The command ``buoyline tail``."""

import asyncio
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from unittest.mock import Mock

import pytest
from click.testing import CliRunner, Result

from buoyline.cli import main
from buoyline.workspace import LocalWorkspace, layout

HOSTILE = "other\n\x1b[31msession"
LONG_S = 50


@pytest.fixture
def workspace(tmp_path: Path) -> LocalWorkspace:
    """A workspace with two sessions, written in turns."""
    made = LocalWorkspace(tmp_path / "workspace", durability="off")

    async def fill() -> None:
        async with made:
            await made.archive("s1", [{"role": "user", "content": f"question {number}"} for number in range(20)])
            await asyncio.sleep(0.002)
            await made.archive(HOSTILE, [{"role": "user", "content": "hello"}])
            await _store(made, "s1", "c1", "x\n" * 1_234)
            await asyncio.sleep(0.002)  # records bear milliseconds, and those of two sessions are told in their order
            await _store(made, HOSTILE, "\x1b[2Jc2", "x" * 2_000)
            summary = {
                "messages": [0, 20],
                "source_tokens": 1_500,
                "tokens": 100,
                "created_at": "2001-01-01T00:00:00.000Z",
            }
            await made.append_summary("s1", summary)

    asyncio.run(fill())
    return made


async def _store(workspace: LocalWorkspace, session: str, call_id: str, content: str) -> None:
    await workspace.offload_tool_result(session, {"role": "tool", "tool_call_id": call_id, "content": content})


def _write(workspace: LocalWorkspace, session: str, *contents: str) -> None:
    async def write() -> None:
        async with workspace:
            await workspace.archive(session, [{"role": "user", "content": content} for content in contents])

    asyncio.run(write())


def _run(workdir: Path, *args: str) -> Result:
    return CliRunner().invoke(main, ["tail", *args, "--no-follow", "--workdir", str(workdir)])


# A shell lets its background jobs ignore Ctrl-C, and they pass that on: a suite that runs in one would wait for ever.
_PROGRAM = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("buoyline", run_name="__main__", alter_sys=True)
"""


@contextmanager
def _following(workdir: Path, *args: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", _PROGRAM, "tail", "--workdir", str(workdir), *args]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, encoding="utf-8") as process:
        try:
            yield process
        finally:
            process.kill()


def _of(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def _rest(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=LONG_S)
    return process.returncode, out, err


def test_the_past_is_told_in_lines_in_the_order_of_time(workspace: LocalWorkspace) -> None:
    result = _run(workspace.workdir)
    assert (result.exit_code, result.stderr) == (0, "")
    view = layout.view_name(layout.numbered_result_name("\x1b[2Jc2", "", 1, hashlib.sha256(b"x" * 2_000).hexdigest()))
    lines = [line.split("  ", maxsplit=2) for line in result.stdout.splitlines()]
    assert [line[1:] for line in lines] == [
        ["s1", "archived messages 0-19: transcript.md:1-60"],
        ["other\\n\\x1b[31msession", "archived messages 0-0: transcript.md:1-3"],
        ["s1", "stored the result of c1: tool_result-c1.txt 1,234 lines, 2,468 bytes"],
        ["s1", "summarised messages 0-19: summaries.jsonl:1 1,500 tokens in 100"],
        ["other\\n\\x1b[31msession", f"stored the result of \\x1b[2Jc2: {view} 3 lines, 2,000 bytes"],
    ]
    assert all(re.fullmatch(r"[0-9]{4}(-[0-9]{2}){2} ([0-9]{2}:){2}[0-9]{2}", line[0]) for line in lines)


def test_only_so_much_of_the_past_is_told_as_is_asked_for(workspace: LocalWorkspace) -> None:
    everything = _run(workspace.workdir).stdout.splitlines()
    for count in (0, 1, 3, 5, 100):
        assert _run(workspace.workdir, "-n", str(count)).stdout.splitlines() == everything[max(5 - count, 0) :]
    assert len(_run(workspace.workdir, "s1", "--lines", "2").stdout.splitlines()) == 2


def test_each_event_is_one_json_object_a_line_on_demand(workspace: LocalWorkspace) -> None:
    found: list[dict[str, Any]] = [json.loads(line) for line in _run(workspace.workdir, "--json").stdout.splitlines()]
    assert [event["event"] for event in found] == [
        "messages_archived",
        "messages_archived",
        "result_stored",
        "summary_written",
        "result_stored",
    ]
    expected = {"session_id": HOSTILE, "call_id": "\x1b[2Jc2", "size_bytes": 2_000, "lines": 3}
    assert found[4].items() >= expected.items()
    assert found[0]["lines"] == [1, 60]


@pytest.mark.parametrize("args", [(), ("s9",)])
def test_what_is_not_there_is_an_error_where_it_is_not_waited_for(tmp_path: Path, args: tuple[str, ...]) -> None:
    result = _run(tmp_path / "nowhere", *args)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("buoyline: error: no workspace ")
    assert list(tmp_path.iterdir()) == []


def test_a_session_that_is_not_there_is_an_error_where_it_is_not_waited_for(workspace: LocalWorkspace) -> None:
    result = _run(workspace.workdir, "s9")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "buoyline: error: no session 's9'; `buoyline sessions` lists those there are\n"


@pytest.mark.parametrize("args", [("",), ("--lines", "-1"), ("s1", "s2")])
def test_a_wrong_command_line_is_status_2(workspace: LocalWorkspace, args: tuple[str, ...]) -> None:
    assert _run(workspace.workdir, *args).exit_code == 2


def test_what_happens_is_told_as_it_happens_until_ctrl_c(workspace: LocalWorkspace) -> None:
    with _following(workspace.workdir, "s1", "-n", "1") as process:
        assert "summarised" in _of(process.stdout).readline()
        _write(workspace, HOSTILE, "not told")
        _write(workspace, "s1", "more")
        assert "  s1  archived messages 20-20: transcript.md:61-63\n" in _of(process.stdout).readline()
        process.send_signal(signal.SIGINT)
        assert _rest(process) == (0, "", "")


def test_a_workspace_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    workdir = tmp_path / "work" / "space"
    with _following(workdir, "--json") as process:
        assert _of(process.stderr).readline() == f"buoyline: waiting for a session in {workdir}\n"
        assert list(tmp_path.iterdir()) == []
        _write(LocalWorkspace(workdir, durability="off"), "s1", "hello")
        told = [json.loads(_of(process.stdout).readline()) for _ in range(2)]
        assert [event["event"] for event in told] == ["session_created", "messages_archived"]
        process.send_signal(signal.SIGINT)
        assert _rest(process) == (0, "", "")


def test_a_session_that_is_not_there_yet_is_waited_for(workspace: LocalWorkspace) -> None:
    with _following(workspace.workdir, "s9") as process:
        assert "waiting for session 's9' in " in _of(process.stderr).readline()
        _write(workspace, "s9", "hello")
        assert "  s9  created the session\n" in _of(process.stdout).readline()


def test_it_ends_quietly_when_nobody_reads_any_more(workspace: LocalWorkspace) -> None:
    with _following(workspace.workdir, "-n", "1") as process:
        _of(process.stdout).readline()
        _of(process.stdout).close()
        _write(workspace, "s1", "more")
        assert process.wait(LONG_S) == -signal.SIGPIPE
        assert _of(process.stderr).read() == ""


def test_without_following_no_session_is_read_that_is_older_than_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    for n in range(12):
        asyncio.run(workspace.archive(f"s{n}", [{"role": "user", "content": "hello"}]))
    for n in (*range(5), *range(6, 12)):
        os.utime(tmp_path / f"sessions/s{n}/journal.jsonl", (1_000_000 + n, 1_000_000 + n))
    opens = Mock(side_effect=os.open)
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", opens)
        command = ["tail", "--no-follow", "-n", "1", "--json", "--workdir", str(tmp_path)]
        printed = CliRunner().invoke(main, command).stdout
    assert json.loads(printed)["session_id"] == "s5"
    assert [call.args[0] for call in opens.call_args_list].count("journal.jsonl") <= 2
