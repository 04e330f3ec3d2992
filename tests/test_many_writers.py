"""Many writers on one folder: processes, threads, tasks, and several workspaces in one process.

Nothing is lost, nothing is there twice, each writer's order is kept, and who reads meanwhile sees whole batches,
never fewer than were acknowledged.
"""

import asyncio
import contextlib
import errno
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from buoyline.errors import LockTimeout, StorageError
from buoyline.maintenance.verify import verify
from buoyline.workspace import LocalWorkspace


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def at(workdir: Path, **options: Any) -> LocalWorkspace:
    return LocalWorkspace(workdir, durability="off", **options)


async def stored(workspace: LocalWorkspace, session: str = "s") -> list[Any]:
    return [message for _, message in await workspace.load_messages(session, 0, 1 << 30)]


def texts_below(workdir: Path, session: str = "s") -> list[str]:
    return [message["content"] for message in asyncio.run(stored(at(workdir), session))]


def assert_it_is_sound(workdir: Path, *, may_be_torn: bool = False) -> None:
    """Check a workspace; where one writer was killed, bytes of its last append may have been set aside, once."""
    findings = [found for found in verify(LocalWorkspace(workdir)).findings if found.kind != "unreferenced-blob"]
    torn = [found for found in findings if found.kind == "torn-bytes"] if may_be_torn else []
    assert len(torn) <= 1
    assert [found for found in findings if found not in torn] == []


def assert_all_are_there_once_in_order(texts: Sequence[str], writers: Sequence[str], count: int) -> None:
    found = [text.split(" ") for text in texts]
    for writer in writers:
        assert [int(words[1]) for words in found if words[0] == writer] == list(range(count))
    assert len(found) == len(writers) * count


WRITER = """
import asyncio, base64, itertools, json, sys
from buoyline.messages import Text, ToolResult
from buoyline.workspace import LocalWorkspace

workdir, what, name, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])

async def main():
    workspace = LocalWorkspace(workdir, durability="off")
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(count) if count else itertools.count():
        if what == "messages":
            text = f"{name} {number} " + "x" * (number * 37 % 5000)
            await workspace.archive("s", [{"role": "user", "content": text}])
        elif what == "batches":
            batch = [{"role": "user", "content": f"{name} {number} {part} of 3 " + "y" * 3000} for part in range(3)]
            await workspace.archive("s", batch)
        elif what == "results":
            text = f"{name} {number}\\n" + "z" * (number * 500 % 7000)
            stored = await workspace.store_result("s", ToolResult("same", "t", (Text(text),)))
            print(json.dumps([stored.reference, text]), flush=True)
        elif what == "payload":
            url = "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 8192).decode()
            message = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
            await workspace.archive(name, [message])
        elif what == "window":
            messages = [{"role": "user", "content": f"{name} {number} {part} " + "w" * 2000} for part in range(4)]
            await workspace.replace_window("s", messages, ["summary"], number, [])
        if what != "results":
            print(number, flush=True)

asyncio.run(main())
"""


@contextlib.contextmanager
def writers(workdir: Path, what: str, names: Sequence[str], count: int = 0) -> "Iterator[list[subprocess.Popen[str]]]":
    """Start one process for each name, let them begin at the same time, and end whatever is still running."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(workdir), what, name, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    with contextlib.ExitStack() as stack:
        for process in processes:
            stack.enter_context(process)
            stack.callback(process.kill)
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        yield processes


def lines_from(process: "subprocess.Popen[str]") -> list[str]:
    assert process.stdout is not None
    lines = process.stdout.read().splitlines()
    assert process.wait() == 0
    return lines


@pytest.mark.parametrize("count", [60, pytest.param(500, marks=pytest.mark.slow)])
def test_four_processes_lose_nothing_and_each_keeps_its_order(tmp_path: Path, count: int) -> None:
    names = ["a", "b", "c", "d"]
    with writers(tmp_path, "messages", names, count) as processes:
        for process in processes:
            assert len(lines_from(process)) == count

    assert_all_are_there_once_in_order(texts_below(tmp_path), names, count)
    lines = (tmp_path / "sessions/s/context.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["content"] for line in lines] == texts_below(tmp_path)
    assert_it_is_sound(tmp_path)


def test_two_workspaces_on_one_root_see_each_others_writes_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        one, two = at(tmp_path), at(tmp_path)
        for number in range(40):
            await (one, two)[number % 2].archive("s", [user(str(number))], first=number)
            assert len(await stored((two, one)[number % 2])) == number + 1
        await one.start_window("t", {})
        await two.extend_window("t", [user("a")], [])
        await two.archive("t", [user("a")])
        await one.replace_window("t", [user("b")], ["summary"], 1, [])
        await two.extend_window("t", [user("c")], [0])
        state = await one.load_window("t")
        assert [message for _, message in state.messages] == [user("b"), user("c")]

    asyncio.run(main())
    assert_it_is_sound(tmp_path)


def test_processes_that_store_one_id_with_different_content_keep_all(tmp_path: Path) -> None:
    with writers(tmp_path, "results", ["a", "b", "c", "d"], 20) as processes:
        found = [json.loads(line) for process in processes for line in lines_from(process)]

    assert len({reference for reference, _ in found}) == len({text for _, text in found}) == 80
    for reference, text in found:
        assert Path(reference).read_text(encoding="utf-8") == text
    assert_it_is_sound(tmp_path)


def test_a_hundred_and_twenty_eight_tasks_over_eight_sessions_all_come_through(tmp_path: Path) -> None:
    sessions = [f"session-{number}" for number in range(8)]

    async def main() -> None:
        workspaces = [at(tmp_path) for _ in range(4)]
        calls = [
            workspaces[number % 4].archive(sessions[number % 8], [user(f"{sessions[number % 8]} {number // 8}")])
            for number in range(128)
        ]
        await asyncio.gather(*calls)

    asyncio.run(main())
    for session in sessions:
        # Two workspaces share a session, so the order between them is anybody's.
        assert sorted(texts_below(tmp_path, session)) == sorted(f"{session} {number}" for number in range(16))
    assert_it_is_sound(tmp_path)


def test_a_reader_never_sees_part_of_a_batch_nor_less_than_was_acknowledged(tmp_path: Path) -> None:
    asyncio.run(at(tmp_path).archive("s", [user("first")]))
    reader = at(tmp_path)
    with writers(tmp_path, "batches", ["a", "b"], 60) as processes:
        acknowledged = [0, 0]

        def count(position: int) -> None:
            for line in processes[position].stdout or ():
                acknowledged[position] = int(line) + 1

        threads = [threading.Thread(target=count, args=(position,)) for position in range(2)]
        for thread in threads:
            thread.start()
        seen = 0
        for look in itertools.count():
            before = list(acknowledged)
            fresh = reader if look % 2 else at(tmp_path)
            found = [message["content"].split(" ")[:3] for message in asyncio.run(stored(fresh))][1:]
            for name, sure in zip("ab", before, strict=True):
                mine = [(int(number), int(part)) for writer, number, part in found if writer == name]
                assert mine == [(number, part) for number in range(len(mine) // 3) for part in range(3)]
                assert len(mine) >= 3 * sure
            assert len(found) >= seen
            seen = len(found)
            assert len(asyncio.run(fresh.locate("s", 0, 1 + seen)).lines) == 1 + seen
            if before == [60, 60]:
                break
        for thread in threads:
            thread.join()
    assert seen == 2 * 60 * 3
    assert_it_is_sound(tmp_path)


def test_a_reader_of_the_window_sees_it_before_or_after_a_replacement(tmp_path: Path) -> None:
    asyncio.run(at(tmp_path).start_window("s", {}))
    with writers(tmp_path, "window", ["a", "b"]) as processes:
        last = dict.fromkeys("ab", -1)
        for _ in range(150):
            state = asyncio.run(at(tmp_path).load_window("s"))
            words = [message["content"].split(" ")[:3] for _, message in state.messages]
            if words:
                name, number, _ = words[0]
                assert words == [[name, number, str(part)] for part in range(4)]
                assert state.first == int(number) >= last[name]
                last[name] = int(number)
        for process in processes:
            process.kill()


async def _acknowledged(process: "subprocess.Popen[str]", at_least: int) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) + 1 >= at_least:
            return


async def test_after_the_holder_of_the_lock_is_killed_the_next_writer_goes_on(tmp_path: Path) -> None:
    for attempt in range(4):
        with writers(tmp_path, "messages", [f"w{attempt}"]) as (process,):
            await _acknowledged(process, 10)
            process.send_signal(signal.SIGKILL)
            process.wait()
            # A lock that needed a rule for stale ones would be held now, one time or another.
            await at(tmp_path, lock_timeout_s=5).archive("s", [user(f"after {attempt}")])
    found = [message["content"].split(" ")[:2] for message in await stored(at(tmp_path))]

    assert [number for name, number in found if name == "after"] == ["0", "1", "2", "3"]
    for attempt in range(4):
        numbers = [int(number) for name, number in found if name == f"w{attempt}"]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= 10


async def test_a_holder_that_is_stopped_keeps_its_lock_and_goes_on_when_it_is_continued(tmp_path: Path) -> None:
    impatient = at(tmp_path, lock_timeout_s=0.05)
    refused = 0
    with writers(tmp_path, "messages", ["w"]) as (process,):
        await _acknowledged(process, 5)
        while not refused:
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            try:
                await impatient.archive("s", [user("between")])
            except LockTimeout:
                refused += 1
                await stored(impatient)  # readers need no lock
            process.send_signal(signal.SIGCONT)
            time.sleep(0.003)
        sure = len(await stored(at(tmp_path)))
        await _acknowledged(process, sure)
        process.send_signal(signal.SIGKILL)
    await at(tmp_path).archive("s", [user("last")])
    found = [message["content"] for message in await stored(at(tmp_path))]

    mine = [int(text.split(" ")[1]) for text in found if text.startswith("w ")]
    assert mine == list(range(len(mine)))
    assert found[-1] == "last"
    assert_it_is_sound(tmp_path, may_be_torn=True)


@pytest.mark.parametrize("does", ["reads", "writes"])
async def test_who_saw_a_batch_that_was_then_taken_back_forgets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str
) -> None:
    writer, other = LocalWorkspace(tmp_path), LocalWorkspace(tmp_path)
    await writer.archive("s", [user("first")])
    assert await stored(other) == [user("first")]
    real = os.fdatasync

    def failing(_: int) -> None:
        monkeypatch.setattr(os, "fdatasync", real)
        asyncio.run(stored(other))
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", failing)
    with pytest.raises(StorageError):
        await writer.archive("s", [user("taken back")])
    await writer.archive("s", [user("a second one, longer than what was taken back"), user("third")])
    expected = [user("first"), user("a second one, longer than what was taken back"), user("third")]
    if does == "writes":
        await other.archive("s", [user("fourth")])
        expected.append(user("fourth"))

    assert await stored(other) == expected
    assert await stored(LocalWorkspace(tmp_path)) == expected
    assert_it_is_sound(tmp_path)
