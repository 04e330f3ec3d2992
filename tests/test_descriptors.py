"""Files that were opened are closed again, whatever failed on the way."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from buoyline.errors import BuoylineError
from buoyline.testing import every_fault
from buoyline.workspace import LocalWorkspace

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


async def test_no_file_stays_open_after_a_call(tmp_path: Path) -> None:
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
