"""An agent of AgentScope's whose process is killed, and another that goes on from its saved state and the workspace."""

import asyncio
import json
import multiprocessing
import shutil
from pathlib import Path

import pytest

pytest.importorskip("agentscope", reason="agentscope is an extra for tests")

from agentscope_life import ACKNOWLEDGED, TURNS, Life, process
from agentscope_pilot import archived, assert_sound, blocks_in
from mortal_workspace import RESUMING_STEPS, WINDOW_STEPS, Killed, Mortal
from thirds import each_of

from buoyline import ContextWindow, LocalWorkspace
from buoyline.integrations.agentscope.context import behind_head
from buoyline.window.settings import Management

STEPS = (*WINDOW_STEPS, *RESUMING_STEPS)


async def check_left(directory: Path) -> None:
    """Check what a process has left that was killed."""
    if not (directory / "w/workspace.json").exists():
        return
    workspace = LocalWorkspace(directory / "w")
    assert_sound(workspace)
    held = blocks_in(archived(workspace))
    assert len(held) == len(set(held))
    if (directory / "w/sessions/s1/window.jsonl").exists():
        shutil.copytree(directory / "w", directory / "copy")
        window = await ContextWindow.resume(LocalWorkspace(directory / "copy"), "s1")
        await window.compress(force=True)
        assert_sound(LocalWorkspace(directory / "copy"))
        shutil.rmtree(directory / "copy")


def check_whole(directory: Path, life: Life) -> None:
    """Check that all that was ever saved is in the archive or in the context, once and in order."""
    workspace = LocalWorkspace(directory / "w")
    behind = behind_head(life.agent.state)  # what stands again before that is in the archive
    context = [message.model_dump(mode="json") for message in behind]
    everything = blocks_in([*archived(workspace), *context])
    assert len(everything) == len(set(everything))
    for line in (directory / ACKNOWLEDGED).read_text("utf-8").splitlines():
        acknowledged = [tuple(block) for block in json.loads(line)]
        assert [block for block in everything if block in set(acknowledged)] == acknowledged
    assert [name for name, kind, _ in everything if name.startswith("turn-")] == [
        f"turn-{turn}" for turn in range(TURNS)
    ]
    assert_sound(workspace)


async def end_at(directory: Path, at: int, *, after: bool, management: Management | None = None) -> int:
    """Live until step *at*, go on in another process, and check both; return how many steps there were."""
    directory.mkdir()
    workspace = Mortal(directory / "w", at, after=after, names=STEPS)
    try:
        await Life(directory, workspace, management).live()
    except* Killed:  # AgentScope gathers what its tools raise in a group
        await check_left(directory)
    finally:
        await workspace.close()
    async with LocalWorkspace(directory / "w", durability="off") as again:
        life = Life(directory, again, management)
        await life.live()
    check_whole(directory, life)
    return workspace.steps


EVERY = 50
"""One step of so many, and each of them in the slow tests."""


@each_of(EVERY)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_another_process_goes_on_wherever_the_first_was_killed(
    tmp_path: Path, first: int, *, after: bool
) -> None:
    steps = await end_at(tmp_path / "whole", 10_000, after=after)
    assert steps > 75
    for at in range((first + after * EVERY // 2 - 1) % EVERY + 1, steps + 1, EVERY):
        await end_at(tmp_path / str(at), at, after=after)


DOCUMENTS: dict[str, Management] = {
    "sliding": {"hooks": {"pre_llm": [{"type": "SlidingWindowManager", "config": {"max_messages": 7}}]}},
    "all": {
        "hooks": {
            "post_tool": [{"type": "ToolsOutputTruncateManager", "config": {"max_output_length": 1_000}}],
            "pre_llm": [
                {"type": "ToolResultMaskManager", "config": {"keep_recent_results": 2, "min_tokens": 50}},
                {"type": "SummarizationManager", "config": {"activation": {"tokens_exceed_ratio": 0.5}}},
            ],
        }
    },
}
RARELY = 151
"""One step of so many, since each takes a quarter of a second; in the slow tests, one of a few."""


@pytest.mark.parametrize("rarely", [RARELY, pytest.param(7, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_under_a_document_another_process_goes_on_as_well(
    tmp_path: Path, name: str, rarely: int, *, after: bool
) -> None:
    management = DOCUMENTS[name]
    steps = await end_at(tmp_path / "whole", 10_000, after=after, management=management)
    assert steps > 90
    for at in range(rarely // (2 + after), steps + 1, rarely):
        await end_at(tmp_path / str(at), at, after=after, management=management)


def lived(directory: Path, events: int) -> bool:
    """Let a process live for so many events, and kill it; tell whether it had not come to its end."""
    mine, other = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["agentscope_life"])
    alive = context.Process(target=process, args=(directory, other))
    alive.start()
    other.close()
    try:
        for _ in range(events):
            mine.recv_bytes()
    except EOFError:
        alive.join()
        return False
    alive.kill()
    alive.join()
    return True


async def test_processes_that_are_really_killed_lose_nothing_and_leave_nothing_twice(tmp_path: Path) -> None:
    killed: list[bool] = []
    for events in (20, 45, 33, 10_000):
        killed.append(await asyncio.to_thread(lived, tmp_path, events))
        await check_left(tmp_path)
    assert killed == [True, True, True, False]
    check_whole(tmp_path, Life(tmp_path, LocalWorkspace(tmp_path / "w")))
