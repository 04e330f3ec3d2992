"""An agent of AgentScope's whose process is killed, and others that go on from its saved state and the workspace."""

import asyncio
import json
import multiprocessing
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("agentscope", reason="agentscope is an extra for tests")

from agentscope_life import ACKNOWLEDGED, Life, process
from agentscope_pilot import archived, assert_sound, blocks_in
from window_lives import KilledError, Mortality

from buoyline import LocalWorkspace, MemoryWorkspace
from buoyline.workspace import Workspace

TURNS, CALLS = 5, 4


def check_whole(directory: Path, workspace: Workspace, life: Life) -> None:
    """Check that all that was ever saved is in the archive or in the context, in order."""
    everything = blocks_in([*archived(workspace), *(m.model_dump(mode="json") for m in life.agent.state.context)])
    for line in (directory / ACKNOWLEDGED).read_text("utf-8").splitlines():
        left = iter(everything)
        assert all(tuple(block) in left for block in json.loads(line))
    turns = [name for name, _, _ in dict.fromkeys(everything) if name.startswith("turn-")]
    assert turns == [f"turn-{turn}" for turn in range(life.turns)]
    assert life.agent.state.summary
    assert_sound(workspace)


def lived(directory: Path, events: int, turns: int, calls: int) -> bool:
    """Let a process live for so many events, and kill it; tell whether it had not come to its end."""
    mine, other = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["agentscope_life"])
    alive = context.Process(target=process, args=(directory, other, turns, calls))
    alive.start()
    other.close()
    try:
        for _ in range(events):
            mine.recv_bytes()
    except EOFError:
        alive.join()
        assert alive.exitcode == 0
        return False
    alive.kill()
    alive.join()
    return True


@pytest.mark.parametrize(
    ("turns", "calls", "events"),
    [
        (TURNS, CALLS, (20, 45, 33, 10_000)),
        pytest.param(100, 4, (1_311, 777, 1_502, 1_003, 10_000), marks=pytest.mark.slow),
    ],
)
async def test_processes_that_are_killed_lose_nothing_and_send_no_malformed_request(
    tmp_path: Path, turns: int, calls: int, events: Sequence[int]
) -> None:
    """Of 100 replies, each has five model calls."""
    killed: list[bool] = []
    for count in events:
        killed.append(await asyncio.to_thread(lived, tmp_path, count, turns, calls))
        assert_sound(LocalWorkspace(tmp_path / "w"))
    assert killed == [True] * (len(events) - 1) + [False]
    workspace = LocalWorkspace(tmp_path / "w")
    check_whole(tmp_path, workspace, Life(tmp_path, workspace, turns, calls))


@pytest.mark.parametrize("every", [23, pytest.param(2, marks=pytest.mark.slow)])
async def test_another_process_goes_on_before_whichever_write_the_first_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    mortality, at, was_killed = Mortality(monkeypatch), 1, True
    while was_killed:
        directory, workspace, was_killed = tmp_path / str(at), MemoryWorkspace(), False
        directory.mkdir()
        mortality.left = at
        try:
            await Life(directory, workspace, TURNS, CALLS).live()
        except* KilledError:  # AgentScope gathers what its tools raise in a group
            was_killed = True
        mortality.left = None
        life = Life(directory, workspace, TURNS, CALLS)
        await life.live()
        check_whole(directory, workspace, life)
        at += every
    assert at > 75
