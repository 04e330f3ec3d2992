"""Power cuts: a file system on a loop device is shut down under a writer, without what its log still holds.

What remains is what a disk holds when the power goes. Takes root, a free loop device and the programs that make and
mount a file system. Source of the request: ``FS_IOC_SHUTDOWN`` of the Linux kernel, flag 2 (no flush of the log).
"""

import asyncio
import fcntl
import hashlib
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from buoyline.maintenance.verify import verify
from buoyline.messages import ToolResult
from buoyline.offloader.view import view_of
from buoyline.workspace import LocalWorkspace
from buoyline.workspace.descriptors import KeptDescriptors

SHUTDOWN, WITHOUT_LOG = 0x8004587D, 2
CUTS = 15
IMAGE_BYTES = 320 << 20  # XFS takes no less than 300 MB

CONTENTS = """
import base64
from buoyline.messages import Text, ToolResult

def batch(cut, number):
    text = f"{cut} {number} " + "x" * (number * 97 % 4000)
    messages = [{"role": "user", "content": text}, {"role": "assistant", "content": f"{cut} {number} yes"}]
    if number % 7 == 3:
        payload = base64.b64encode(f"picture {cut} {number}".encode() * 300).decode()
        url = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{payload}"}}
        messages.append({"role": "user", "content": [{"type": "text", "text": f"{cut} {number} "}, url]})
    return messages

def result(cut, number):
    return ToolResult(f"call-{cut}-{number}", "tool", (Text(f"result {cut} {number} " * (1 + number * 53 % 400)),))
"""

WRITER = (
    CONTENTS
    + """
import asyncio, itertools, json, sys, time
from buoyline.errors import BuoylineError
from buoyline.workspace import LocalWorkspace

def told(what, number):
    print(json.dumps([what, number, time.monotonic()]), flush=True)

async def main():
    cut = int(sys.argv[3])
    workspace = LocalWorkspace(sys.argv[1], durability=sys.argv[2])
    for number in itertools.count():
        stored = await workspace.store_result("s", result(cut, number))
        told("result", number)
        await workspace.record_stub("s", f"stub {cut} {number}", stored)
        await workspace.archive("s", batch(cut, number), batch_id=f"{cut}-{number}")
        told("batch", number)
        if number % 3 == 0:
            await workspace.append_summary("s", {"text": f"{cut} {number}"})
            told("summary", number)
        if number % 4 == 0:
            message = {"role": "user", "content": f"{cut} {number}"}
            await workspace.replace_window("w", [message] * 3, [], 0, [], writer="w")
            told("window", number)

try:
    asyncio.run(main())
except BuoylineError:
    pass  # the power is off
"""
)

MADE: dict[str, Any] = {}
exec(CONTENTS, MADE)  # noqa: S102 - the same contents here as there
batch: Callable[[int, int], list[Any]] = MADE["batch"]
result: Callable[[int, int], ToolResult] = MADE["result"]


def program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


class Disk:
    """A file system in a file, which can be mounted again after its power was cut."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.image = folder / "image"
        self.mounted = folder / "disk"
        self.is_mounted = False
        self.mounted.mkdir()
        with self.image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        subprocess.run([program(f"mkfs.{kind}"), "-q", str(self.image)], check=True, capture_output=True)

    def mount(self) -> None:
        command = [program("mount"), "-o", "loop", str(self.image), str(self.mounted)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"no loop device can be mounted here: {done.stderr.strip()}")
        self.is_mounted = True

    def cut_the_power(self) -> None:
        descriptor = os.open(self.mounted, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", WITHOUT_LOG))
        finally:
            os.close(descriptor)

    def unmount(self) -> None:
        # Not asked of the system: XFS answers nothing any more when its power is cut.
        if self.is_mounted:
            KeptDescriptors.close_all()  # workspaces that were not closed keep their files open
            subprocess.run([program("umount"), str(self.mounted)], check=True, capture_output=True)
            self.is_mounted = False


@contextmanager
def disk(folder: Path, kind: str) -> Iterator[Disk]:
    if os.geteuid() != 0:
        pytest.skip("mounting takes root")
    made = Disk(folder, kind)
    made.mount()
    try:
        yield made
    finally:
        made.unmount()
        made.image.unlink()


class Acknowledged:
    """What the writer was told before the power went, the newest number for each thing that it does."""

    def __init__(self, lines: Sequence[str], cut_at: float) -> None:
        self.newest: dict[str, int] = {}
        self.count = 0
        for line in lines:
            what, number, time_s = json.loads(line)
            # ext4 lets a sync that is under way when it is shut down succeed. With real power nobody hears of it.
            if time_s < cut_at:
                self.newest[what] = number
                self.count += 1


def write_until_the_cut(target: Disk, workdir: Path, cut: int, durability: str, moment_s: float) -> Acknowledged:
    command = [sys.executable, "-c", WRITER, str(workdir), durability, str(cut)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        reading = threading.Thread(target=lines.extend, args=(process.stdout,))
        reading.start()
        time.sleep(moment_s)
        cut_at = time.monotonic()
        target.cut_the_power()
        assert process.wait(timeout=60) == 0
        reading.join()
    return Acknowledged(lines, cut_at)


async def numbers_of(workspace: LocalWorkspace, cut: int) -> list[int]:
    """Return the numbers of the batches of *cut* in the archive, after checking that each is whole and right."""
    found = [message for _, message in await workspace.load_messages("s", 0, 1 << 30)]
    mine = [message for message in found if _words(message)[0] == str(cut)]
    numbers: list[int] = []
    while mine:
        number = int(_words(mine[0])[1])
        expected = batch(cut, number)
        assert mine[: len(expected)] == expected
        del mine[: len(expected)]
        numbers.append(number)
    return numbers


def _words(message: dict[str, Any]) -> list[str]:
    content = message["content"]
    text: str = content if isinstance(content, str) else content[0]["text"]
    return text.split(" ")


def assert_no_final_name_holds_anything_wrong(workdir: Path) -> None:
    for path in (workdir / "data").iterdir():
        if not path.name.startswith(".tmp-"):
            assert hashlib.sha256(path.read_bytes()).hexdigest() == path.stem
    for path in (workdir / "sessions/s").glob("tool_result-call-*.txt"):
        _, cut, number = path.name.removesuffix(".txt").removesuffix(".view").split("-")[-3:]
        text = result(int(cut), int(number)).text
        assert path.read_text(encoding="utf-8") == (view_of(text) if path.name.endswith(".view.txt") else text)


async def check_what_was_acknowledged(workdir: Path, cut: int, newest: dict[str, int]) -> None:
    workspace = LocalWorkspace(workdir, durability="off")
    numbers = await numbers_of(workspace, cut)
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > newest.get("batch", -1)
    known = workspace.session("s").index()
    for number in range(newest.get("result", -1) + 1):
        assert f"tool_result-call-{cut}-{number}.txt" in set(known.results)
        stored = workdir / f"sessions/s/tool_result-call-{cut}-{number}.txt"
        assert stored.read_text(encoding="utf-8") == result(cut, number).text
    stubs = [f"stub {cut} {number}" for number in range(newest.get("batch", -1) + 1)]
    assert list(await workspace.load_stubs("s", stubs)) == stubs, "a stub is durable with the batch that follows it"
    summaries = [summary["text"] for summary in await workspace.load_summaries("s")]
    mine = [text for text in summaries if text.startswith(f"{cut} ")]
    assert mine == [f"{cut} {3 * number}" for number in range(len(mine))]
    assert 3 * (len(mine) - 1) >= newest.get("summary", -3)
    state = await workspace.load_window("w")
    (content,) = {message["content"] for _, message in state.messages} or {""}
    if "window" in newest:
        assert content.split(" ")[0] == str(cut)
        assert int(content.split(" ")[1]) >= newest["window"]


async def check_that_it_goes_on(workdir: Path, cut: int) -> None:
    """Repeat the batch that the cut may have taken, twice; it is there once, and at the end."""
    numbers = await numbers_of(LocalWorkspace(workdir, durability="off"), cut)
    number = len(numbers)
    for _ in range(2):
        workspace = LocalWorkspace(workdir)
        await workspace.store_result("s", result(cut, number))
        await workspace.archive("s", batch(cut, number), batch_id=f"{cut}-{number}")
    assert await numbers_of(LocalWorkspace(workdir, durability="off"), cut) == [*numbers, number]
    stored = workdir / f"sessions/s/tool_result-call-{cut}-{number}.txt"
    assert stored.read_text(encoding="utf-8") == result(cut, number).text


def findings(workdir: Path) -> list[object]:
    return [found for found in verify(LocalWorkspace(workdir)).findings if found.severity == "damage"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_what_was_acknowledged_outlives_a_power_cut(
    tmp_path: Path, record_property: Callable[[str, object], None], kind: str
) -> None:
    moments = random.Random(kind)  # noqa: S311 - any moment will do, and the same again is better
    total = 0
    with disk(tmp_path, kind) as target:
        workdir = target.mounted / "w"
        asyncio.run(LocalWorkspace(workdir).start_window("w", {}, writer="w"))
        for cut in range(CUTS):
            acknowledged = write_until_the_cut(target, workdir, cut, "fsync", moments.uniform(0, 0.6))
            target.unmount()
            target.mount()
            assert findings(workdir) == []
            assert_no_final_name_holds_anything_wrong(workdir)
            asyncio.run(check_what_was_acknowledged(workdir, cut, acknowledged.newest))
            asyncio.run(check_that_it_goes_on(workdir, cut))
            assert findings(workdir) == []
            total += acknowledged.count
    record_property("acknowledged", total)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_without_syncs_a_power_cut_takes_the_newest_and_nothing_that_was_durable(
    tmp_path: Path, record_property: Callable[[str, object], None], kind: str
) -> None:
    moments = random.Random(kind)  # noqa: S311 - as above
    total = lost = 0
    with disk(tmp_path, kind) as target:
        for cut in range(CUTS):
            # A workspace for each cut: what is durable when it begins is what stood in it then.
            workdir = target.mounted / f"w{cut}"
            asyncio.run(_begin(workdir))
            acknowledged = write_until_the_cut(target, workdir, cut, "off", moments.uniform(0, 0.6))
            target.unmount()
            target.mount()
            workspace = LocalWorkspace(workdir, durability="off")
            durable = [message for _, message in asyncio.run(workspace.load_messages("s", 0, 50))]
            assert durable == [_early(number) for number in range(50)]
            numbers = asyncio.run(numbers_of(workspace, cut))
            assert numbers == list(range(len(numbers)))
            asyncio.run(check_that_it_goes_on(workdir, cut))
            total += acknowledged.newest.get("batch", -1) + 1
            lost += acknowledged.newest.get("batch", -1) + 1 - len(numbers)
    record_property("acknowledged", total)
    record_property("lost", lost)


def _early(number: int) -> dict[str, Any]:
    return {"role": "user", "content": f"early {number}"}


async def _begin(workdir: Path) -> None:
    workspace = LocalWorkspace(workdir)
    await workspace.start_window("w", {}, writer="w")
    await workspace.archive("s", [_early(number) for number in range(50)])


@pytest.mark.parametrize("taken", [2, 3])
async def test_without_syncs_a_power_cut_may_take_the_bytes_of_several_batches(tmp_path: Path, taken: int) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    context = tmp_path / "sessions/s/context.jsonl"
    sizes = [0]
    for number in range(4):
        await workspace.archive("s", [_early(number)])
        sizes.append(context.stat().st_size)
    os.truncate(context, sizes[4 - taken])
    kept = [_early(number) for number in range(4 - taken)]
    assert [message for _, message in await LocalWorkspace(tmp_path).load_messages("s", 0, 99)] == kept
    await LocalWorkspace(tmp_path).archive("s", [_early(9)])

    assert [message for _, message in await LocalWorkspace(tmp_path).load_messages("s", 0, 99)] == [*kept, _early(9)]
    assert findings(tmp_path) == []
