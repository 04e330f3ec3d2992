"""``buoyline demo`` as a newcomer starts it, on any machine and under any path."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import buoyline

from buoyline.cli.demo import RECORDING, WINDOW_TOKENS
from buoyline.lookups import read
from buoyline.window import ContextWindow
from buoyline.workspace import LocalWorkspace


def test_the_demo_needs_no_input_no_home_and_no_argument_and_says_where_it_wrote(tmp_path: Path) -> None:
    """And a file or a pipe gets no colours."""
    for name in ("home", "here", "temporary"):
        (tmp_path / name).mkdir()
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-m", "buoyline", "demo"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=False,
        cwd=tmp_path / "here",
        env={
            "PATH": os.defpath,
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "HOME": str(tmp_path / "home"),
            "TMPDIR": str(tmp_path / "temporary"),
            "PYTHONUTF8": "1",
        },
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    (workdir,) = (tmp_path / "temporary").iterdir()
    assert f"On disk, in {workdir}" in ran.stdout
    assert list((tmp_path / "home").iterdir()) == list((tmp_path / "here").iterdir()) == []
    for expected in ("offloaded: ", "compacted: ", "transcript.md", "context.jsonl", "without buoyline"):
        assert expected in ran.stdout
    assert "\x1b" not in ran.stdout


@pytest.mark.parametrize("length", [1, 80])
def test_it_shows_the_same_under_every_path(length: int, tmp_path: Path) -> None:
    workdir, usual = tmp_path / ("w" * length), tmp_path / "usual"
    shown = [buoyline("demo", "--workdir", each).stdout.partition("\nOn disk") for each in (workdir, usual)]
    assert shown[0][0] == shown[1][0]


def test_the_agent_finds_a_line_that_its_context_does_not_have(tmp_path: Path) -> None:
    printed = buoyline("demo", "--workdir", tmp_path).stdout
    question = printed.partition("The answer is no longer in the context.")[2]
    assert "request 4231 GET /tides/holmen" in question
    (line,) = read(LocalWorkspace(tmp_path), "tool_result-call_04.txt", 132, 132, session="demo").lines
    assert "request 4231 GET /tides/holmen" in line.text


async def test_the_line_is_not_in_the_context_when_it_is_asked_for(tmp_path: Path) -> None:
    async with LocalWorkspace(tmp_path) as workspace:
        window = await ContextWindow.open(workspace, "demo", size=WINDOW_TOKENS)
        for line in RECORDING.read_text(encoding="utf-8").splitlines():
            await window.prepare()
            await window.add(json.loads(line))
        assert "4231" not in json.dumps(await window.prepare())


def test_a_second_run_into_a_workdir_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    assert buoyline("demo", "--workdir", tmp_path).returncode == 0
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    again = buoyline("demo", "--workdir", tmp_path)
    assert again.returncode == 1
    assert "already exists" in again.stderr
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
