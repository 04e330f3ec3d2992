"""Calls of many tasks for one session: each is whole or absent, and they keep their order."""

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from buoyline.errors import ConflictError, NotFoundError, StorageError
from buoyline.maintenance.verify import verify
from buoyline.messages import Text, ToolResult
from buoyline.workspace import LocalWorkspace


def message(number: int) -> dict[str, Any]:
    return {"role": "user", "content": f"message {number}"}


async def stored(workdir: Path) -> list[Any]:
    return [found for _, found in await LocalWorkspace(workdir).load_messages("s1", 0, 1 << 30)]


class Syncs:
    """Counts the syncs of file contents, and fails those it is told to fail."""

    def __init__(self) -> None:
        self.count = 0
        self.failing: set[int] = set()
        self.real = os.fdatasync

    def __call__(self, descriptor: int) -> None:
        self.count += 1
        if self.count in self.failing:
            raise OSError(errno.EIO, "the device is gone")
        self.real(descriptor)


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    counted = Syncs()
    monkeypatch.setattr(os, "fdatasync", counted)
    return counted


async def test_many_tasks_keep_their_order(tmp_path: Path) -> None:
    async with LocalWorkspace(tmp_path) as workspace:
        await asyncio.gather(*(workspace.offload_context("s1", [message(number)]) for number in range(101)))
    assert await stored(tmp_path) == [message(number) for number in range(101)]
    assert not verify(LocalWorkspace(tmp_path)).findings


async def test_a_call_returns_only_when_its_bytes_are_synced(tmp_path: Path, syncs: Syncs) -> None:
    async with LocalWorkspace(tmp_path) as workspace:
        for number in range(5):
            before = syncs.count
            await workspace.offload_context("s1", [message(number)])
            assert syncs.count - before >= 2


async def test_one_refused_call_does_not_harm_the_others(tmp_path: Path) -> None:
    async with LocalWorkspace(tmp_path) as workspace:
        await workspace.archive("s1", [message(0)], batch_id="zero")
        calls = [workspace.archive("s1", [message(number)], batch_id=str(number)) for number in range(1, 20)]
        calls.insert(7, workspace.archive("s1", [message(99)], batch_id="zero"))
        calls.insert(11, workspace.archive("s1", [{"no": "message"}]))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(outcomes[7], ConflictError)
    assert isinstance(outcomes[11], ValueError)
    assert sum(isinstance(outcome, BaseException) for outcome in outcomes) == 2
    assert await stored(tmp_path) == [message(number) for number in range(20)]
    assert not verify(LocalWorkspace(tmp_path)).findings


@pytest.mark.parametrize("failing", range(1, 9))
async def test_a_sync_that_fails_fails_its_call_and_a_repetition_stores_each_once(
    tmp_path: Path, syncs: Syncs, failing: int
) -> None:
    async with LocalWorkspace(tmp_path) as workspace:
        await workspace.archive("s1", [message(0)], batch_id="0")
        syncs.failing = {syncs.count + failing}
        missing = list(range(1, 30))
        rounds = 0
        while missing:
            calls = (workspace.archive("s1", [message(number)], batch_id=str(number)) for number in missing)
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            failed = [number for number, outcome in zip(missing, outcomes, strict=True) if isinstance(outcome, OSError)]
            assert all(
                not isinstance(outcome, BaseException) or isinstance(outcome, StorageError) for outcome in outcomes
            )
            seen = await stored(tmp_path)
            assert all(message(number) in seen for number in missing if number not in failed)
            assert not any(message(number) in seen for number in failed)
            missing, rounds = failed, rounds + 1
        assert rounds == 2
    seen = await stored(tmp_path)
    assert sorted(seen, key=str) == sorted((message(number) for number in range(30)), key=str)
    assert not verify(LocalWorkspace(tmp_path)).findings


async def test_results_summaries_and_windows_of_many_tasks_are_whole(tmp_path: Path) -> None:
    async with LocalWorkspace(tmp_path) as workspace:
        await workspace.start_window("s1", {}, writer="w")

        async def turn(number: int) -> None:
            await asyncio.gather(
                workspace.archive("s1", [message(number)], batch_id=str(number), first=None),
                workspace.store_result("s1", ToolResult(call_id=f"c{number}", name="", parts=(Text("out " * number),))),
                workspace.append_summary("s1", {"text": str(number)}),
                workspace.extend_window("s1", [message(number)], (), writer="w"),
                workspace.replace_window("s1", [message(number)], (), number, (), writer="w"),
            )

        await asyncio.gather(*map(turn, range(12)))
        assert len(await workspace.load_summaries("s1")) == 12
        assert len((await workspace.load_window("s1")).messages) == 1
    assert sorted(await stored(tmp_path), key=str) == sorted(map(message, range(12)), key=str)
    assert len(list((tmp_path / "sessions/s1").glob("tool_result-*.txt"))) == 12
    assert not verify(LocalWorkspace(tmp_path)).findings


async def test_reading_what_is_not_there_creates_nothing(tmp_path: Path) -> None:
    async with LocalWorkspace(tmp_path) as workspace:
        with pytest.raises(NotFoundError):
            await workspace.load_messages("s1", 0, 1)
        assert not (tmp_path / "sessions/s1").exists()


async def test_cancelled_calls_are_whole_or_absent(tmp_path: Path) -> None:
    async with LocalWorkspace(tmp_path) as workspace:
        await workspace.archive("s1", [message(0)], batch_id="0")
        tasks = [
            asyncio.create_task(workspace.archive("s1", [message(number)], batch_id=str(number)))
            for number in range(1, 60)
        ]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes[::2])
        await asyncio.gather(
            *(workspace.archive("s1", [message(number)], batch_id=str(number)) for number in range(1, 60))
        )
    assert sorted(await stored(tmp_path), key=str) == sorted(map(message, range(60)), key=str)
