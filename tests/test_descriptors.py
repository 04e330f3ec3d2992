"""Files stay open for the next call, a bounded number of them, and are closed in the end whatever failed on the way."""

import errno
import fcntl
import gc
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from buoyline.errors import BuoylineError, LockTimeout, StorageError
from buoyline.maintenance.gc import Retention, collect
from buoyline.testing import every_fault
from buoyline.workspace import LocalWorkspace, descriptors, layout
from buoyline.workspace.descriptors import KeptDescriptors
from buoyline.workspace.local_tree import LocalTree

OPEN_FILES = Path("/proc/self/fd")

pytestmark = pytest.mark.skipif(not OPEN_FILES.is_dir(), reason="needs /proc to see which files are open")


def files_open_in(workdir: Path) -> list[str]:
    found: list[str] = []
    for entry in OPEN_FILES.iterdir():
        try:
            found.append(str(entry.readlink()))
        except FileNotFoundError:
            continue
    return [path for path in found if path.startswith(str(workdir))]


async def write_everything(workdir: Path) -> None:
    async with LocalWorkspace(workdir) as workspace:
        await workspace.offload_context("s1", [{"role": "user", "content": "first"}])
        await workspace.offload_tool_result("s1", {"role": "tool", "tool_call_id": "c1", "content": "output"})
        await workspace.append_summary("s1", {"text": "summary"})
        assert len(await workspace.load_messages("s1", 0, 1)) == 1


async def test_no_file_stays_open_after_close(tmp_path: Path) -> None:
    await write_everything(tmp_path)
    assert files_open_in(tmp_path) == []


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EIO])
async def test_no_file_stays_open_whichever_call_fails(tmp_path: Path, code: int) -> None:
    for number, faults in enumerate(every_fault(code)):
        workdir = tmp_path / str(number)
        with faults:
            try:
                await write_everything(workdir)
            except BuoylineError:
                assert faults.has_struck
        assert files_open_in(workdir) == []


async def test_a_lock_that_cannot_be_unlocked_is_given_back_by_closing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock

    def flock(descriptor: int, operation: int) -> None:
        if operation == fcntl.LOCK_UN:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    await write_everything(tmp_path)
    assert files_open_in(tmp_path) == []
    monkeypatch.undo()
    await LocalWorkspace(tmp_path, lock_timeout_s=1).offload_context("s1", [{"role": "user", "content": "second"}])


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def stored(workdir: Path) -> list[str]:
    return [message["content"] for _, message in await LocalWorkspace(workdir).load_messages("s1", 0, 99)]


async def test_an_append_to_an_open_session_opens_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = LocalWorkspace(tmp_path)
    await workspace.archive("s1", [user("first")])
    opened: list[Any] = []
    monkeypatch.setattr(os, "open", lambda *arguments, **_: opened.append(arguments))
    await workspace.archive("s1", [user("second")])
    monkeypatch.undo()

    assert opened == []
    assert await stored(tmp_path) == ["first", "second"]
    names = sorted(Path(path).name for path in files_open_in(tmp_path))
    lock = Path(layout.lock_name("s1")).name
    assert names == sorted(["s1", lock, "sessions.lock", "context.jsonl", "journal.jsonl", "transcript.md"])


def test_a_workspace_that_is_no_longer_used_closes_its_files(tmp_path: Path) -> None:
    tree = LocalTree(tmp_path)  # without threads, which may hold the last call a little longer
    with tree.lock("lock", 1.0):
        pass
    assert files_open_in(tmp_path) == [str(tmp_path / "lock")]
    del tree
    gc.collect()
    assert files_open_in(tmp_path) == []


async def test_a_session_that_was_removed_takes_no_space_on_the_disk(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    await workspace.offload_context("s1", [user("first")])
    assert files_open_in(tmp_path / "sessions" / "s1") != []
    removed = collect(workspace, Retention(max_sessions=0), dry_run=False)
    assert len(removed.sessions) == 1
    assert [path for path in files_open_in(tmp_path) if path.endswith(" (deleted)")] == []


async def test_only_so_many_files_stay_open_however_many_sessions_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    KeptDescriptors.close_all()
    monkeypatch.setattr(KeptDescriptors, "_limit", 12)
    workspaces = [LocalWorkspace(tmp_path / str(number)) for number in range(3)]
    for number in range(30):
        await workspaces[number % 3].archive(f"s{number}", [user("first")])
        assert len(files_open_in(tmp_path)) <= 12
    assert len(files_open_in(tmp_path)) == 12
    for workspace in workspaces:
        await workspace.close()
    assert files_open_in(tmp_path) == []


EXHAUSTED = """
import asyncio, os, resource, sys
from buoyline.workspace import LocalWorkspace

async def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    workspace = LocalWorkspace(sys.argv[1])
    for number in range(4):
        await workspace.archive(f"s{number}", [{"role": "user", "content": "first"}])
    try:
        while True:
            os.open(os.devnull, os.O_RDONLY)
    except OSError:
        await workspace.archive("new", [{"role": "user", "content": "first"}])
        print("archived")

asyncio.run(main())
"""


def test_files_that_are_kept_open_are_given_up_before_a_call_fails_for_want_of_descriptors(tmp_path: Path) -> None:
    command = [sys.executable, "-c", EXHAUSTED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)

    assert done.stdout == "archived\n", done.stderr


def copied(path: Path) -> None:
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    copy.rename(path)


def moved_and_linked_to(path: Path) -> None:
    outside = path.with_name(f"moved-{path.name}")
    path.rename(outside)
    path.symlink_to(outside)


@pytest.mark.parametrize("name", ["context.jsonl", "journal.jsonl", "transcript.md"])
async def test_a_file_that_was_replaced_by_a_copy_is_not_written_to_any_more(tmp_path: Path, name: str) -> None:
    workspace = LocalWorkspace(tmp_path)
    await workspace.archive("s1", [user("first")])
    path = tmp_path / "sessions/s1" / name
    with path.open("rb") as old:
        copied(path)
        await workspace.archive("s1", [user("second")])
        assert b"second" not in old.read()
    assert await stored(tmp_path) == ["first", "second"]


@pytest.mark.parametrize("name", ["sessions", "sessions/s1", ".locks", "sessions/s1/context.jsonl"])
async def test_an_open_session_does_not_follow_a_link_to_where_it_was_moved(tmp_path: Path, name: str) -> None:
    workspace = LocalWorkspace(tmp_path)
    await workspace.archive("s1", [user("first")])
    moved_and_linked_to(tmp_path / name)

    with pytest.raises(StorageError):
        await workspace.archive("s1", [user("second")])


@pytest.mark.parametrize("change", [Path.unlink, copied], ids=["removed", "replaced"])
async def test_a_lock_file_that_is_another_one_now_is_the_one_that_is_locked(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    workspace = LocalWorkspace(tmp_path, lock_timeout_s=0.1)
    await workspace.archive("s1", [user("first")])
    change(tmp_path / layout.lock_name("s1"))
    with LocalWorkspace(tmp_path).tree.lock(layout.lock_name("s1"), 1.0), pytest.raises(LockTimeout):
        await workspace.archive("s1", [user("second")])


def test_two_threads_never_use_one_descriptor_of_a_lock(tmp_path: Path) -> None:
    tree = LocalWorkspace(tmp_path).tree

    def refused() -> bool:
        try:
            with tree.lock("lock", 0.01):
                return False
        except LockTimeout:
            return True

    with ThreadPoolExecutor(1) as other:
        for _ in range(3):
            with tree.lock("lock", 1.0):
                assert other.submit(refused).result()
            assert not other.submit(refused).result()


async def test_a_file_that_cannot_be_looked_at_is_opened_again(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    await workspace.archive("s1", [user("0")])
    count = 0
    for count, faults in enumerate(every_fault(errno.EIO, calls=["stat", "lstat"]), 1):
        with faults:
            await workspace.archive("s1", [user(str(count))])
    assert count > 8, "each step to each file is looked at"
    assert await stored(tmp_path) == [str(number) for number in range(count + 1)]


@pytest.mark.parametrize(("soft", "limit"), [(1024, 256), (256, 64), (1 << 20, 256), (resource.RLIM_INFINITY, 256)])
def test_at_most_a_quarter_of_the_processs_descriptors_are_kept(
    monkeypatch: pytest.MonkeyPatch, soft: int, limit: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, resource.RLIM_INFINITY))

    assert descriptors._kept_limit() == limit


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the system takes no such hint")
@pytest.mark.parametrize("durability", ["fsync", "off"])
async def test_the_device_begins_to_write_a_batch_before_the_first_sync_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: str
) -> None:
    workspace = LocalWorkspace(tmp_path, durability=durability)
    await workspace.archive("s1", [user("first")])
    calls: list[str] = []
    for name in ("write", "posix_fadvise", "fdatasync"):
        real = getattr(os, name)

        def noted(descriptor: int, *arguments: Any, name: str = name, real: Callable[..., Any] = real) -> Any:
            calls.append(f"{name} {(OPEN_FILES / str(descriptor)).readlink().name}")
            return real(descriptor, *arguments)

        monkeypatch.setattr(os, name, noted)
    await workspace.archive("s1", [user("second")])
    monkeypatch.undo()

    written = ["write context.jsonl", "write journal.jsonl", "write transcript.md"]
    if durability == "off":
        assert calls == written
    else:
        written.insert(1, "posix_fadvise context.jsonl")
        written.insert(3, "posix_fadvise journal.jsonl")
        assert calls == [*written, "fdatasync context.jsonl", "fdatasync journal.jsonl"]
