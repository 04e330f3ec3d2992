"""What a review of the workspace's core has found: states in which a promise was broken, each made again by hand."""

import asyncio
import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from buoyline.errors import CorruptError, StorageError
from buoyline.maintenance.repair import repair
from buoyline.maintenance.verify import verify
from buoyline.messages import Text, ToolResult
from buoyline.workspace import LocalWorkspace
from buoyline.workspace.pool import WorkerPool


def message(number: int) -> dict[str, Any]:
    return {"role": "user", "content": f"message {number}"}


async def stored(workdir: Path) -> list[Any]:
    return [found for _, found in await LocalWorkspace(workdir).load_messages("s1", 0, 1 << 30)]


class FailingSync:
    """Fails the sync of file contents that it is told to fail, once."""

    def __init__(self) -> None:
        self.left = 0
        self.real = os.fdatasync

    def __call__(self, descriptor: int) -> None:
        self.left -= 1
        if not self.left:
            raise OSError(errno.EIO, "the device is gone")
        self.real(descriptor)


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> FailingSync:
    failing = FailingSync()
    monkeypatch.setattr(os, "fdatasync", failing)
    return failing


@pytest.mark.parametrize("failing", range(1, 9))
async def test_nothing_is_acknowledged_that_a_failed_sync_among_concurrent_calls_has_lost(
    tmp_path: Path, syncs: FailingSync, failing: int
) -> None:
    workspace = LocalWorkspace(tmp_path)
    await workspace.start_window("s1", {}, writer="w")
    syncs.left = failing
    outcomes = await asyncio.gather(
        workspace.archive("s1", [message(1)], batch_id="1"),
        workspace.archive("s1", [message(2)], batch_id="2"),
        workspace.replace_window("s1", [message(0)], (), 0, (), writer="w"),
        workspace.archive("s1", [message(3)], batch_id="3"),
        return_exceptions=True,
    )
    numbers = {0: 1, 1: 2, 3: 3}
    kept = [message(numbers[place]) for place in numbers if not isinstance(outcomes[place], BaseException)]
    assert any(isinstance(outcome, StorageError) for outcome in outcomes)
    assert await stored(tmp_path) == kept
    assert len((await workspace.load_window("s1")).messages) == (not isinstance(outcomes[2], BaseException))
    assert not verify(LocalWorkspace(tmp_path)).findings


async def test_a_stub_that_was_acknowledged_survives_a_sync_that_fails_behind_it(
    tmp_path: Path, syncs: FailingSync
) -> None:
    workspace = LocalWorkspace(tmp_path)
    result = await workspace.store_result("s1", ToolResult(call_id="c", name="", parts=(Text("out"),)))
    await workspace.record_stub("s1", "stub", result)
    syncs.left = 1
    with pytest.raises(StorageError):
        await workspace.archive("s1", [message(1)])
    assert "stub" in await workspace.load_stubs("s1", ["stub"])


async def test_calls_that_are_made_while_the_workspace_closes_come_behind_those_it_waits_for(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, lock_timeout_s=1.0)
    await workspace.archive("s1", [message(0)])
    for first in range(1, 400, 40):
        early = [asyncio.ensure_future(workspace.archive("s1", [message(first + n)])) for n in range(30)]
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(workspace.close())
        await asyncio.sleep(0.001)
        late = [asyncio.ensure_future(workspace.archive("s1", [message(first + 30 + n)])) for n in range(10)]
        await asyncio.gather(*early, *late, closing)
    assert await stored(tmp_path) == [message(number) for number in range(401)]


def test_one_call_that_is_told_to_end_does_not_keep_the_next_from_its_turn() -> None:
    pool = WorkerPool()

    def end() -> None:
        raise SystemExit(3)

    ended, other = pool.submit("s1", end), pool.submit("s1", lambda: 7)
    assert isinstance(ended.exception(10), SystemExit)
    assert other.result(10) == 7
    pool.close()


async def test_a_batch_that_is_damaged_and_a_transcript_that_is_lost_do_not_keep_others_from_writing(
    tmp_path: Path,
) -> None:
    workspace = LocalWorkspace(tmp_path)
    for number in range(3):
        await workspace.archive("s1", [message(number)])
    places = (await workspace.locate("s1", 2, 3)).lines
    context, transcript = (tmp_path / "sessions/s1" / name for name in ("context.jsonl", "transcript.md"))
    context.write_bytes(b"?" + context.read_bytes()[1:])
    rendered = transcript.read_text("utf-8").splitlines()
    transcript.write_bytes(b"")

    await LocalWorkspace(tmp_path).archive("s1", [message(3)])
    (start, end), *_ = places
    assert transcript.read_text("utf-8").splitlines()[start - 1 : end] == rendered[start - 1 : end]
    assert {finding.kind for finding in verify(LocalWorkspace(tmp_path)).findings} == {"changed-bytes"}


@pytest.mark.parametrize("is_there", [False, True])
async def test_a_journal_that_is_gone_or_emptied_is_no_empty_archive(tmp_path: Path, *, is_there: bool) -> None:
    await LocalWorkspace(tmp_path).archive("s1", [message(0)])
    journal = tmp_path / "sessions/s1/journal.jsonl"
    journal.unlink()
    if is_there:
        journal.touch(0o600)
    with pytest.raises(CorruptError):
        await stored(tmp_path)
    await LocalWorkspace(tmp_path).archive("s1", [message(1)])
    assert await stored(tmp_path) == [message(0), message(1)]


async def test_an_archive_that_lost_its_second_half_is_damaged_and_not_torn(tmp_path: Path) -> None:
    workdir, copy = tmp_path / "workspace", tmp_path / "copy"
    workspace = LocalWorkspace(workdir)
    for number in range(10):
        await workspace.archive("s1", [message(number)], batch_id=str(number))
    shutil.copytree(workdir, copy)
    context = workdir / "sessions/s1/context.jsonl"
    os.truncate(context, context.stat().st_size // 2)
    with pytest.raises(CorruptError):
        await stored(workdir)

    assert (await LocalWorkspace(workdir).archive("s1", [message(10)])).first == 9, "the newest may have been torn"
    with pytest.raises(CorruptError):
        await stored(workdir)
    assert "damage" in {finding.severity for finding in verify(LocalWorkspace(workdir)).findings}
    repair(LocalWorkspace(workdir), copy=copy)
    assert await stored(workdir) == [message(number) for number in (*range(9), 10)]
