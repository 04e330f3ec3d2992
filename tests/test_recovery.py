"""What a crash may leave, what a reader then sees, and what the next writer does.

The states are built by hand: whatever of the unsynced writes of one batch reached the disk, in any combination.
"""

import errno
import itertools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faults import Faults, every_fault
from thirds import STEP, each_third

from buoyline.errors import NotFoundError, StorageError, WorkspaceFull
from buoyline.maintenance.verify import verify
from buoyline.messages import Text, ToolResult
from buoyline.workspace import LocalWorkspace

A = [{"role": "user", "content": "a1"}, {"role": "assistant", "content": "a2 " * 300}]
B = [{"role": "user", "content": "b1 " * 400}, {"role": "user", "content": "b2"}]
C = [{"role": "user", "content": "c1"}]

FILES = ("context.jsonl", "journal.jsonl", "transcript.md")


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


def pieces(content: bytes, before: int) -> Iterator[bytes]:
    """Yield what may be there of a file that grew from *before* bytes to *content*."""
    after, middle = len(content), (before + len(content)) // 2
    for cut in (before, before + 1, middle, after - 1, after):
        yield content[:cut]
    yield content[:before] + b"\0" * (after - before)
    yield content[:middle] + b"\0" * (after - middle)
    yield content[:before] + b"\0" * (middle - before) + content[middle:]


@each_third
async def test_every_state_that_a_crash_leaves_reads_as_whole_batches_and_is_continued(
    tmp_path: Path, first: int
) -> None:
    base = tmp_path / "base"
    await at(base).archive("s1", A, batch_id="a")
    before = [(base / "sessions/s1" / name).stat().st_size for name in FILES]
    await at(base).archive("s1", B, batch_id="b")
    after = [(base / "sessions/s1" / name).read_bytes() for name in FILES]
    states = itertools.product(*(list(pieces(content, size)) for size, content in zip(before, after, strict=True)))

    for number, state in enumerate(itertools.islice(states, first - 1, None, STEP)):
        workdir = tmp_path / str(number)
        shutil.copytree(base, workdir)
        for name, content in zip(FILES, state, strict=True):
            (workdir / "sessions/s1" / name).write_bytes(content)
        seen = await stored(workdir)
        assert seen in (A, A + B), "a reader sees whole batches only"

        await at(workdir).archive("s1", B, batch_id="b")
        await at(workdir).archive("s1", C, batch_id="c")
        assert await stored(workdir) == A + B + C, "a retry and the next batch find their place"
        lines = (workdir / "sessions/s1/context.jsonl").read_bytes().splitlines()
        assert [json.loads(line) for line in lines] == A + B + C
        shutil.rmtree(workdir)


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


async def test_a_transcript_with_too_much_in_it_is_cut(tmp_path: Path) -> None:
    await at(tmp_path).archive("s1", A)
    with (tmp_path / "sessions/s1/transcript.md").open("ab") as file:
        file.write(b"half a batch\n")
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


async def test_a_damaged_journal_line_hides_its_batch_but_not_the_later_ones(tmp_path: Path) -> None:
    for batch in (A, B):
        await at(tmp_path).archive("s1", batch)
    journal = tmp_path / "sessions/s1/journal.jsonl"
    content = bytearray(journal.read_bytes())
    content[20] ^= 1
    journal.write_bytes(content)
    await at(tmp_path).archive("s1", C)

    assert at(tmp_path).session("s1").index().damaged == [0]
    assert [m for _, m in await at(tmp_path).load_messages("s1", 2, 99)] == B + C


async def test_a_lost_journal_is_rebuilt_with_one_batch_per_line(tmp_path: Path) -> None:
    for batch in (A, B):
        await at(tmp_path).archive("s1", batch)
    (tmp_path / "sessions/s1/journal.jsonl").unlink()
    await at(tmp_path).archive("s1", C)

    assert await stored(tmp_path) == A + B + C
    assert [batch.first for batch in at(tmp_path).session("s1").index().batches] == [0, 1, 2, 3, 4]
    await assert_the_transcript_is_whole(tmp_path)


async def test_a_crash_between_note_and_replacement_leaves_the_old_window(tmp_path: Path) -> None:
    workspace = at(tmp_path)
    await workspace.start_window("s1", {})
    await workspace.extend_window("s1", A, [])
    before = (tmp_path / "sessions/s1/window.jsonl").read_bytes()
    await workspace.replace_window("s1", C, ["summary"], 2, [])
    (tmp_path / "sessions/s1/window.jsonl").write_bytes(before)
    state = await at(tmp_path).load_window("s1")

    assert ([m for _, m in state.messages], state.head, state.first) == (A, (), 0)


async def test_half_a_line_at_the_end_of_a_window_is_set_aside(tmp_path: Path) -> None:
    workspace = at(tmp_path)
    await workspace.start_window("s1", {})
    await workspace.extend_window("s1", A, [])
    with (tmp_path / "sessions/s1/window.jsonl").open("ab") as file:
        file.write(b'{"role"')
    await at(tmp_path).extend_window("s1", C, [])

    assert [m for _, m in (await at(tmp_path).load_window("s1")).messages] == A + C


@each_third
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("is_open", [False, True], ids=["opening", "open"])
async def test_a_failure_at_any_call_raises_keeps_what_was_there_and_a_repetition_succeeds(
    tmp_path: Path, code: int, first: int, *, after: bool, is_open: bool
) -> None:
    for k, faults in enumerate(every_fault(code, after=after, first=first, step=STEP), 1):
        workdir = tmp_path / str(k)
        workspace = LocalWorkspace(workdir)
        await workspace.archive("s1", A, batch_id="a")
        if not is_open:
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
    assert k * STEP > (20 if is_open else 25), "the sweep went through every call"


WRITER = """
import asyncio, sys
from buoyline.workspace import LocalWorkspace
from buoyline.maintenance.verify import verify

async def main():
    workspace = LocalWorkspace(sys.argv[1])
    for number in range(int(sys.argv[3])):
        text = f"{sys.argv[2]} {number} " + "x" * (number * 37 % 5000)
        await workspace.offload_context("s1", [{"role": "user", "content": text}])
        print(number, flush=True)

asyncio.run(main())
"""


def writer(workdir: Path, name: str, count: int) -> "subprocess.Popen[str]":
    arguments = [sys.executable, "-c", WRITER, str(workdir), name, str(count)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


async def test_what_was_acknowledged_survives_a_kill_at_any_moment(tmp_path: Path) -> None:
    for attempt in range(5):
        process = writer(tmp_path, f"w{attempt}", 10_000)
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


async def test_several_processes_lose_nothing_and_each_keeps_its_order(tmp_path: Path) -> None:
    processes = [writer(tmp_path, f"w{number}", 25) for number in range(4)]
    for process in processes:
        process.communicate()
    found = [m["content"].split(" ")[:2] for m in await stored(tmp_path)]

    for number in range(4):
        assert [int(n) for name, n in found if name == f"w{number}"] == list(range(25))
    assert len(found) == 100


FULL = """
import asyncio, resource, signal, sys
from buoyline.errors import WorkspaceFull
from buoyline.workspace import LocalWorkspace
from buoyline.maintenance.verify import verify

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


async def test_a_batch_whose_record_is_damaged_keeps_its_messages_when_other_records_follow(tmp_path: Path) -> None:
    await at(tmp_path).archive("s1", A)
    journal = tmp_path / "sessions/s1/journal.jsonl"
    before = journal.stat().st_size
    await at(tmp_path).archive("s1", B)
    await at(tmp_path).store_result("s1", ToolResult("c", "t", (Text("x"),)))
    content = bytearray(journal.read_bytes())
    content[before + 20] ^= 1
    journal.write_bytes(content)
    await at(tmp_path).archive("s1", C)

    assert await stored(tmp_path) == A + B + C
    assert not (tmp_path / "sessions/s1/torn").exists()
    await assert_the_transcript_is_whole(tmp_path)


async def test_a_summary_whose_bytes_a_power_cut_took_makes_room_for_the_next(tmp_path: Path) -> None:
    workspace = at(tmp_path)
    await workspace.append_summary("s1", {"text": "first"})
    size = (tmp_path / "sessions/s1/summaries.jsonl").stat().st_size
    await workspace.append_summary("s1", {"text": "second " * 100})
    os.truncate(tmp_path / "sessions/s1/summaries.jsonl", size + 30)
    assert await at(tmp_path).append_summary("s1", {"text": "third"}) == 2

    assert [found["text"] for found in await at(tmp_path).load_summaries("s1")] == ["first", "third"]


async def test_a_transcript_of_the_right_size_but_without_its_bytes_is_rendered_again(tmp_path: Path) -> None:
    for batch in (A, B):
        await at(tmp_path).archive("s1", batch)
    transcript = tmp_path / "sessions/s1/transcript.md"
    transcript.write_bytes(b"\0" * transcript.stat().st_size)
    await at(tmp_path).archive("s1", C)

    await assert_the_transcript_is_whole(tmp_path)


async def test_a_start_that_a_crash_cut_short_can_be_made_again(tmp_path: Path) -> None:
    await at(tmp_path).start_window("s1", {}, writer="a")
    (tmp_path / "sessions/s1/window.jsonl").unlink()
    with pytest.raises(NotFoundError):
        await at(tmp_path).load_window("s1")
    await at(tmp_path).start_window("s1", {}, writer="b")

    assert (await at(tmp_path).load_window("s1")).messages == ()


@pytest.mark.parametrize("content", [b"", b"\0" * 300, b"no record\n"])
async def test_a_journal_that_was_emptied_is_rebuilt_like_a_lost_one(tmp_path: Path, content: bytes) -> None:
    await at(tmp_path).archive("s1", A, batch_id="a")
    await at(tmp_path).archive("s1", B, batch_id="b")
    (tmp_path / "sessions/s1/journal.jsonl").write_bytes(content)
    await at(tmp_path).archive("s1", C)

    assert await stored(tmp_path) == A + B + C
    await assert_the_transcript_is_whole(tmp_path)
    kept = [path.read_bytes() for path in (tmp_path / "sessions/s1").glob("torn/*")]
    assert kept == ([content] if content else [])


@pytest.mark.parametrize("after", [False, True])
async def test_a_session_whose_rename_is_said_to_have_failed_is_there_whole_or_not_at_all(
    tmp_path: Path, *, after: bool
) -> None:
    """The clean-up once emptied the directory that had its final name already."""
    workspace = LocalWorkspace(tmp_path)
    result = ToolResult("c", "", (Text("given"),))
    with Faults(1, errno.ENOSPC, after=after, calls=["rename"]) as faults, pytest.raises(StorageError):
        await workspace.store_result("s", result)

    assert faults.has_struck
    assert workspace.session_ids() == (["s"] if after else [])
    assert [path.name for path in (tmp_path / "sessions").iterdir()] == (["s"] if after else [])
    stored = await workspace.store_result("s", result)
    assert await workspace.load_result("s", stored) == result
    assert verify(workspace).findings == ()
