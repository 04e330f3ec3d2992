"""``buoyline demo`` as a newcomer starts it, and the parts of it that have to hold on machines unlike this one."""

import dataclasses
import fcntl
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from page_blocks import ROOT, blocks_of, is_like
from rich.console import Console

from buoyline.cli.demo import Demo, Screen
from buoyline.cli.demo_script import TIMED_OUT, Machine, archived_detail, run_command, this_machine
from buoyline.errors import SessionExistsError, StorageError
from buoyline.lookups import read
from buoyline.workspace import LocalWorkspace

FAILURES = "".join(f"E  AssertionError: 'line {n}, column {n * 100}: Expecting value' != 'line\n" for n in range(2, 9))


def start(home: Path, *arguments: str) -> str:
    """Run the demo in an environment with nothing in it, without input; return what it prints.

    *home* gets the only directories that the demo might be tempted to write to.
    """
    for name in ("home", "here", "temporary"):
        (home / name).mkdir()
    environment = {
        "PATH": os.defpath,
        "HOME": str(home / "home"),
        "TMPDIR": str(home / "temporary"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-m", "buoyline", "demo", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=False,
        cwd=home / "here",
        env=environment,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


def started_once(factory: pytest.TempPathFactory, name: str, *arguments: str) -> tuple[Path, str]:
    """Return a directory and what `start` printed in it; one process of a test run starts the demo for all."""
    shared = factory.getbasetemp().parent if "PYTEST_XDIST_WORKER" in os.environ else factory.getbasetemp()
    home, printed = shared / name, shared / f"{name}.txt"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not printed.exists():
            home.mkdir()
            text = start(home, *(argument.format(home=home) for argument in arguments))
            printed.write_text(text, encoding="utf-8")
    return home, printed.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what the demo reports of a run into a directory that it is given."""
    home, printed = started_once(tmp_path_factory, "demo", "--json", "--workdir", "{home}/kept")
    found: dict[str, Any] = json.loads(printed)
    assert [path.name for path in home.iterdir() if path.name != "kept" and any(path.iterdir())] == []
    return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the directory that `start` was given, and what a demo without arguments prints."""
    return started_once(tmp_path_factory, "plain")


def test_the_demo_needs_no_input_no_home_and_no_argument_and_says_where_it_wrote(plain: tuple[Path, str]) -> None:
    """And a file or a pipe gets no colours."""
    home, printed = plain
    (workdir,) = (home / "temporary").iterdir()
    assert str(workdir) in printed
    assert list((home / "home").iterdir()) == list((home / "here").iterdir()) == []
    for expected in ("offloaded: ", "compacted: ", "transcript.md:", "context.jsonl", "without buoyline"):
        assert expected in printed
    assert "\x1b" not in printed


def test_the_excerpt_in_the_readme_is_from_the_demo(plain: tuple[Path, str]) -> None:
    (excerpt,) = (block for block in blocks_of(ROOT / "README.md") if block.notes.get("name") == "demo")
    printed = plain[1]
    assert is_like(*(re.sub(r"[█░]+|[\d,]+", "0", text) for text in (excerpt.text.partition("\n")[2], printed)))


def test_the_context_stays_within_its_window_where_it_would_not_have_without_buoyline(report: dict[str, Any]) -> None:
    assert report["peak_tokens"] <= report["context_size"] < report["peak_tokens_unmanaged"]
    assert report["total_tokens"] < report["total_tokens_unmanaged"]


def test_large_results_are_whole_on_disk_and_a_summary_stands_for_the_oldest_messages(report: dict[str, Any]) -> None:
    sizes = {file["path"]: file["size_bytes"] for file in report["files"]}
    assert len(report["offloaded"]) > 2
    for result in report["offloaded"]:
        assert result["stub_tokens"] < result["tokens"]
        assert Path(result["path"]).stat().st_size == sizes[f"sessions/demo/{Path(result['path']).name}"]
    assert report["compressions"]
    assert all(summary["pointers"] for summary in report["compressions"])


def test_the_agent_repairs_the_project(report: dict[str, Any]) -> None:
    assert report["tests"] == [1, 0]


def test_what_is_looked_up_stands_where_the_report_says(report: dict[str, Any]) -> None:
    found = report["lookup"]
    lines = read(LocalWorkspace(report["workdir"]), found["path"], found["line"], found["line"]).lines
    assert found["detail"] in found["text"] == lines[0].text


async def repair(workdir: Path, *, machine: Machine | None = None, screen: Screen | None = None) -> Demo:
    demo = Demo(machine or this_machine(), workdir, size=16_000, screen=screen or Screen(Console(quiet=True)))
    await demo.run()
    return demo


async def test_the_detail_is_in_no_message_of_the_context_when_it_is_asked_for(tmp_path: Path) -> None:
    windows: list[str] = []

    class Looking(Screen):
        def title(self, text: str) -> None:
            assert text == "A detail that is no longer in the context is found again"
            windows.append((tmp_path / "sessions" / "demo" / "window.jsonl").read_text(encoding="utf-8"))

    demo = await repair(tmp_path, screen=Looking(Console(quiet=True)))
    assert demo.detail is not None
    assert len(windows) == 1
    assert demo.detail.text not in windows[0]


async def test_neither_pip_nor_pytest_is_needed(tmp_path: Path) -> None:
    bare = dataclasses.replace(this_machine(), has_pip=False, has_pytest=False)
    demo = await repair(tmp_path, machine=bare)
    assert demo.tests == [1, 0]
    assert demo.offloaded
    assert demo.detail is not None


async def test_a_second_run_into_a_workdir_is_refused_and_changes_nothing(report: dict[str, Any]) -> None:
    workdir = Path(report["workdir"])
    before = {path: path.stat().st_mtime_ns for path in workdir.rglob("*")}
    with pytest.raises(SessionExistsError):
        await repair(workdir)
    assert {path: path.stat().st_mtime_ns for path in workdir.rglob("*")} == before


async def test_a_project_that_is_there_already_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "chart").mkdir()
    with pytest.raises(StorageError, match="exists already"):
        await repair(tmp_path)
    assert list(tmp_path.rglob("*")) == [tmp_path / "chart"]


async def test_a_command_that_takes_too_long_is_ended_with_all_that_it_has_started(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "held")
    reader = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    output = await run_command("sleep 600 > held & wait", tmp_path, timeout_s=0.5)
    assert output.status == TIMED_OUT
    assert "timed out after 0.5 seconds" in output.text
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b"", "the end of it comes when the last writer has ended"
    os.close(reader)


async def test_a_command_has_no_input_and_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    output = await run_command(r"cat; printf 'depth \377\n' >&2; exit 3", tmp_path)
    assert output.text == "depth \ufffd\n(exit status 3)\n"
    assert output.status == 3


async def test_a_directory_that_is_not_there_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        await run_command("true", tmp_path / "nowhere")


def test_the_detail_is_taken_from_the_middle() -> None:
    detail = archived_detail(FAILURES, [])
    assert detail is not None
    assert detail.text == "line 5, column 500: Expecting value"


def test_a_detail_that_the_context_holds_is_passed_over() -> None:
    detail = archived_detail(FAILURES, [{"role": "user", "content": "line 5, column 500: Expecting value"}])
    assert detail is not None
    assert detail.text != "line 5, column 500: Expecting value"


def test_there_is_no_detail_where_the_context_holds_everything() -> None:
    assert archived_detail(FAILURES, [{"role": "tool", "content": FAILURES}]) is None


@pytest.mark.parametrize(("encoding", "shown"), [("ascii", "-> 1"), ("utf-8", "⤷ 1")])
def test_signs_that_the_output_cannot_show_have_a_substitute(encoding: str, shown: str) -> None:
    written = io.BytesIO()
    screen = Screen(Console(file=io.TextIOWrapper(written, encoding=encoding, write_through=True)))
    screen.line(screen.glyph("⤷", "->"), " 1")
    assert written.getvalue().decode(encoding) == f"{shown}\n"


@pytest.mark.parametrize("width", [1, 80, 1000])
def test_a_terminal_of_any_width_will_do(width: int) -> None:
    written = io.StringIO()
    Screen(Console(file=written, width=width)).paragraph("one buoy after another " * 50, label="agent  ")
    lengths = [len(line) for line in written.getvalue().splitlines()]
    assert 20 < max(lengths) <= 110
