"""The command ``buoyline tail``."""

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from command_line import buoyline

from buoyline import ContextWindow

LONG_S = 50
HOSTILE = "other\n\x1b[31msession"


def write(workdir: Path, session_id: str, *contents: str) -> None:
    async def add() -> None:
        async with await ContextWindow.open(workdir, session_id) as window:
            await window.extend([{"role": "user", "content": content} for content in contents])

    asyncio.run(add())


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    write(tmp_path / "w", "s1", "one", "two")
    write(tmp_path / "w", HOSTILE, "three")
    return tmp_path / "w"


# A shell lets its background jobs ignore Ctrl-C, and they pass that on: a suite that runs in one would wait for ever.
_PROGRAM = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("buoyline", run_name="__main__", alter_sys=True)
"""


@contextmanager
def following(workdir: Path, *args: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", _PROGRAM, "tail", "--workdir", str(workdir), *args]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8") as process:
        try:
            yield process
        finally:
            process.kill()


def of(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def test_the_past_is_told_in_lines(workdir: Path) -> None:
    done = buoyline("tail", "--no-follow", "--workdir", workdir)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split("  ", maxsplit=2) for line in done.stdout.splitlines()]
    assert {tuple(line[1:]) for line in lines} == {
        ("s1", "created the session"),
        ("s1", "added messages 0-1"),
        (r"other\n\x1b[31msession", "created the session"),
        (r"other\n\x1b[31msession", "added message 0"),
    }
    assert all(re.fullmatch(r"[0-9]{4}(-[0-9]{2}){2} ([0-9]{2}:){2}[0-9]{2}", line[0]) for line in lines)
    newest = buoyline("tail", "s1", "-n", "1", "--no-follow", "--json", "--workdir", workdir).stdout
    assert json.loads(newest).items() >= {"event": "messages_added", "first": 0, "end": 2}.items()


def test_what_happens_is_told_as_it_happens_until_ctrl_c(workdir: Path) -> None:
    with following(workdir, "s1", "-n", "1") as process:
        assert "added messages 0-1" in of(process.stdout).readline()
        write(workdir, HOSTILE, "not told")
        write(workdir, "s1", "more")
        assert "  s1  added message 2\n" in of(process.stdout).readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LONG_S)
        assert (process.returncode, out, err) == (0, "", "")


def test_a_workspace_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    workdir = tmp_path / "work" / "space"
    with following(workdir, "--json") as process:
        assert of(process.stderr).readline() == f"buoyline: waiting for a session in {workdir}\n"
        assert list(tmp_path.iterdir()) == []
        write(workdir, "s1", "hello")
        told = [json.loads(of(process.stdout).readline())["event"] for _ in range(2)]
        assert told == ["session_created", "messages_added"]


def test_it_ends_quietly_when_nobody_reads_any_more(workdir: Path) -> None:
    with following(workdir, "-n", "1") as process:
        of(process.stdout).readline()
        of(process.stdout).close()
        write(workdir, "s1", "more")
        assert process.wait(LONG_S) == -signal.SIGPIPE
        assert of(process.stderr).read() == ""
