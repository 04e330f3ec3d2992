"""The examples run as a newcomer runs them, and print what they say they print."""

import runpy
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from frameworks import skip_without_frameworks_of

EXAMPLES = Path(__file__).parents[1] / "examples"
NAMES = sorted(path.name for path in EXAMPLES.glob("*.py"))

Run: TypeAlias = Callable[..., str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return what runs an example with its temporary files in a directory, and returns what it prints."""

    def run_here(name: str, *arguments: str, temporary: Path) -> str:
        skip_without_frameworks_of(EXAMPLES / name)
        temporary.mkdir()
        monkeypatch.chdir(temporary)
        monkeypatch.setattr(tempfile, "tempdir", str(temporary))
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run_here


@pytest.mark.parametrize("name", NAMES)
def test_an_example_leaves_nothing_behind_unless_it_is_given_a_directory(name: str, tmp_path: Path, run: Run) -> None:
    run(name, temporary=tmp_path / "temporary")
    assert list((tmp_path / "temporary").iterdir()) == []


def test_the_agent_loop_offloads_compresses_and_is_resumed_in_the_directory_it_is_given(
    tmp_path: Path, run: Run
) -> None:
    printed = run("agent_loop.py", str(tmp_path / "kept"), temporary=tmp_path / "temporary")
    kinds = [line.split(":")[0] for line in printed.splitlines()]
    assert {"offloaded", "compacted", "agent", "resumed"} == set(kinds)
    assert "resumed: the same " in printed
    assert (tmp_path / "kept" / "sessions" / "reader" / "state.jsonl").is_file()


def test_inspecting_a_session_shows_its_files_and_the_lines_that_the_pointers_lead_to(tmp_path: Path, run: Run) -> None:
    printed = run("inspect_session.py", str(tmp_path / "kept"), temporary=tmp_path / "temporary")
    parts = [line.split(":")[0] for line in printed.splitlines() if not line.startswith(" ")]
    assert parts == ["context.jsonl", "state.jsonl", "transcript.md", "summaries.jsonl"]
    followed = printed.partition("summaries.jsonl")[2]
    assert "transcript.md:2-" in followed
    assert "Which buoy is deepest? Never round a depth." in followed


def test_the_agent_of_agentscope_offloads_and_compresses_in_the_directory_it_is_given(tmp_path: Path, run: Run) -> None:
    printed = run("agentscope_agent.py", str(tmp_path / "kept"), temporary=tmp_path / "temporary")
    assert "ResultOffloaded" in printed
    assert "ContextCompressed" in printed
    assert printed.splitlines()[-1] == "agent: They all raise ValueError."
    assert (tmp_path / "kept" / "sessions" / "reader" / "summaries.jsonl").is_file()


def test_the_strands_agent_offloads_compresses_and_goes_on_in_the_directory_it_is_given(
    tmp_path: Path, run: Run
) -> None:
    printed = run("strands_agent.py", str(tmp_path / "kept"), temporary=tmp_path / "temporary")
    sent = [int(line.split()[3].replace(",", "")) for line in printed.splitlines() if line.startswith("sent:")]
    assert len(sent) == 9
    assert max(sent) < 8_000
    assert "first message: [Summary of messages 0-" in printed
    assert "resumed: the same " in printed
    session = tmp_path / "kept" / "workspace" / "sessions" / "reader"
    (stored,) = session.glob("tool_result-call_argparse*.txt")
    assert "class ArgumentParser" in stored.read_text("utf-8")
    assert (session / "summaries.jsonl").is_file()
