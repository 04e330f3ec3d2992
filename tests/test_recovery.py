"""What kills, failing calls, full disks and damage leave; what a power cut leaves: tests/test_crash_states.py."""

import asyncio
import errno
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from faults import every_fault
from thirds import STEP, each_third

from buoyline.errors import StorageError, WorkspaceFull
from buoyline.maintenance.verify import verify
from buoyline.messages import Text, ToolResult
from buoyline.workspace import LocalWorkspace

A = [{"role": "user", "content": "a1"}, {"role": "assistant", "content": "a2 " * 300}]
B = [{"role": "user", "content": "b1 " * 400}, {"role": "user", "content": "b2"}]
C = [{"role": "user", "content": "c1"}]


def at(workdir: Path) -> LocalWorkspace:
    return LocalWorkspace(workdir, durability="off")


async def stored(workdir: Path) -> list[Any]:
    return [message for _, message in await at(workdir).load_messages("s1", 0, 1 << 30)]


async def assert_the_transcript_is_whole(workdir: Path) -> None:
    messages = await stored(workdir)
    located = await at(workdir).locate("s1", 0, len(messages))
    text = (workdir / "sessions/s1/transcript.md").read_text(encoding="utf-8")
    lines = text.split("\n")
    for message, (start, end) in zip(messages, located.lines, strict=True):
        shown = "\n".join(lines[start : end - 1]).replace("\n… ", "")
        assert shown == message["content"].rstrip("\n")
    assert text.count("\n") == located.lines[-1][1]


async def test_torn_bytes_are_set_aside_and_not_lost(tmp_path: Path) -> None:
    await at(tmp_path).archive("s1", A)
    context = tmp_path / "sessions/s1/context.jsonl"
    with context.open("ab") as file:
        file.write(b'{"role":"user","conte')
    await at(tmp_path).archive("s1", C)
    (torn,) = (tmp_path / "sessions/s1/torn").iterdir()

    assert torn.read_bytes() == b'{"role":"user","conte'
    assert await stored(tmp_path) == A + C


@pytest.mark.parametrize("size", [0, 1, 57])
async def test_a_transcript_that_a_crash_cut_is_rendered_again(tmp_path: Path, size: int) -> None:
    for batch in (A, B):
        await at(tmp_path).archive("s1", batch)
    os.truncate(tmp_path / "sessions/s1/transcript.md", size)
    await at(tmp_path).archive("s1", C)

    await assert_the_transcript_is_whole(tmp_path)


async def test_damage_in_the_middle_is_reported_and_not_cut_and_appending_goes_on(tmp_path: Path) -> None:
    for batch in (A, B):
        await at(tmp_path).archive("s1", batch)
    context = tmp_path / "sessions/s1/context.jsonl"
    content = bytearray(context.read_bytes())
    content[30] ^= 1
    context.write_bytes(content)
    await at(tmp_path).archive("s1", C)

    with pytest.raises(ValueError, match="messages 0 to 1"):
        await stored(tmp_path)
    assert [m for _, m in await at(tmp_path).load_messages("s1", 2, 99)] == B + C
    assert not (tmp_path / "sessions/s1/torn").exists()


@each_third
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_failure_at_any_call_raises_keeps_what_was_there_and_a_repetition_succeeds(
    tmp_path: Path, code: int, first: int, *, after: bool
) -> None:
    for k, faults in enumerate(every_fault(code, after=after, first=first, step=STEP), 1):
        workdir = tmp_path / str(k)
        workspace = LocalWorkspace(workdir)
        await workspace.archive("s1", A, batch_id="a")
        await workspace.close()
        result = ToolResult("c", "t", (Text("x" * 3000),))
        raised = None
        with faults:
            try:
                await workspace.store_result("s1", result)
                await workspace.archive("s1", B, batch_id="b")
            except StorageError as error:
                raised = error
        assert (raised is not None) == faults.has_struck, "no failure is silent"
        if raised is not None:
            assert isinstance(raised, WorkspaceFull) == (code == errno.ENOSPC)
            assert await stored(workdir) in (A, A + B)
            kept = await workspace.store_result("s1", result)
            await workspace.archive("s1", B, batch_id="b")
            await workspace.archive("s1", C, batch_id="c")
            assert await stored(workdir) == A + B + C
            assert Path(kept.reference).read_text(encoding="utf-8") == "x" * 3000
            await assert_the_transcript_is_whole(workdir)
    assert k * STEP > 25, "the sweep went through every call"


WRITER = """
import asyncio, sys
from buoyline.workspace import LocalWorkspace

async def main():
    workspace = LocalWorkspace(sys.argv[1])
    for number in range(10_000):
        text = f"{sys.argv[2]} {number} " + "x" * (number * 37 % 5000)
        await workspace.offload_context("s1", [{"role": "user", "content": text}])
        print(number, flush=True)

asyncio.run(main())
"""


async def test_what_was_acknowledged_survives_a_kill_at_any_moment(tmp_path: Path) -> None:
    for attempt in range(5):
        command = [sys.executable, "-c", WRITER, str(tmp_path), f"w{attempt}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.02 + 0.03 * attempt)
        process.send_signal(signal.SIGKILL)
        acknowledged = 1 + len(process.stdout.read().splitlines())
        process.wait()
        process.stdout.close()
        found = [m["content"].split(" ")[:2] for m in await stored(tmp_path)]
        mine = [int(number) for name, number in found if name == f"w{attempt}"]
        assert mine[:acknowledged] == list(range(acknowledged))
        assert len(mine) <= acknowledged + 1


FULL = """
import asyncio, resource, signal, sys
from buoyline.errors import WorkspaceFull
from buoyline.workspace import LocalWorkspace

async def main():
    workspace = LocalWorkspace(sys.argv[1])
    await workspace.offload_context("s1", [{"role": "user", "content": "first"}])
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
    for call in (
        lambda: workspace.offload_context("s1", [{"role": "user", "content": "x" * 5000}]),
        lambda: workspace.offload_tool_result("s1", {"role": "tool", "tool_call_id": "c", "content": "x" * 5000}),
    ):
        try:
            await call()
        except WorkspaceFull:
            print("full")
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await workspace.offload_context("s1", [{"role": "user", "content": "last"}])

asyncio.run(main())
"""


async def test_a_write_that_the_system_cuts_short_is_taken_back(tmp_path: Path) -> None:
    if resource.getrlimit(resource.RLIMIT_FSIZE)[1] != resource.RLIM_INFINITY:
        pytest.skip("the limit on file sizes cannot be raised again here")
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["full", "full"]
    assert [m["content"] for m in await stored(tmp_path)] == ["first", "last"]
    assert [p.name for p in (tmp_path / "sessions/s1").glob("*tool_result*")] == []


def message(number: int) -> dict[str, Any]:
    return {"role": "user", "content": f"message {number}"}


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
