"""A real process, killed or refused at every k-th system call of every kind.

strace does it to a program that has been started, has loaded everything, and waits: so the calls that count are
those of the workspace alone. All calls on the workspace are made by one thread, since one lane serves its session
and the payloads; what was acknowledged is noted in shared memory, without a system call that could be hit.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from buoyline.errors import NotFoundError
from buoyline.maintenance.verify import verify
from buoyline.workspace import LocalWorkspace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_600)]

CHANGING = ("write", "fsync", "fdatasync", "link", "rename", "unlink", "mkdir", "ftruncate", "flock", "chmod")
SYSTEM_CALLS = {
    "open": "openat",
    "link": "link,linkat",
    "rename": "rename,renameat,renameat2",
    "unlink": "unlink,unlinkat,rmdir",
    "mkdir": "mkdir,mkdirat",
    "chmod": "chmod,fchmod,fchmodat",
    "pread": "pread64",
    "stat": "stat,lstat,newfstatat,fstat,statx",
    "getdents": "getdents64",
}
"""What a kind of call may be named; else it is named as its kind."""

FAULTS = ("KILL", "ENOSPC", "EIO", "EIO and the end", "EMFILE", "EACCES", "EINTR")
"""After an error the process repeats the call, unless that is its end: then another one goes on."""

PROGRAM = """
import asyncio, base64, itertools, json, mmap, os, signal, sys
from buoyline.errors import BuoylineError
from buoyline.messages import Text, ToolResult
from buoyline.workspace import LocalWorkspace

URL = "data:image/png;base64," + base64.b64encode(b"picture" * 500).decode()
IMAGE = {"type": "image_url", "image_url": {"url": URL}}
BLOCK = {"type": "image_url", "image_url": {"url": URL.replace("cGlj", "cGlq")}}
FIRST = [{"role": "user", "content": "first " * 300}, {"role": "assistant", "content": "second"}]
SECOND = [{"role": "user", "content": [{"type": "text", "text": "third"}, IMAGE]}]
RESULT = ToolResult("call", "tool", (Text("line " * 400),))

def user(text):
    return {"role": "user", "content": text}

def steps(workspace):
    async def stub():
        stored = await workspace.store_result("s1", RESULT)
        await workspace.record_stub("s1", "the stub", stored)

    return [
        lambda: workspace.start_window("s1", {"size": 9}, writer="w"),
        lambda: workspace.extend_window("s1", [*FIRST, *SECOND], [0], writer="w"),
        lambda: workspace.archive("s1", FIRST, batch_id="one"),
        lambda: workspace.store_result("s1", RESULT),
        stub,
        lambda: workspace.archive("s1", SECOND, batch_id="two"),
        lambda: workspace.append_summary("s1", {"text": "summary", "items": [{"text": "a fact"}]}),
        lambda: workspace.replace_window("s1", [user("summary"), user("kept")], ["summary"], 3, [1], writer="w"),
        lambda: workspace.offload_data_block(BLOCK),
    ]

async def run(workdir, noted, goes_on):
    async with Opened(workdir) as workspace:
        await take(workspace, noted, goes_on)

class Opened(LocalWorkspace):
    async def __aenter__(self):
        return self  # the first call makes everything

async def take(workspace, noted, goes_on):
    for number, step in enumerate(steps(workspace)):
        for attempt in (1, 2):
            try:
                await step()
            except BuoylineError:
                noted[number] += 16
                if attempt == 2 or not goes_on:
                    return
            else:
                noted[number] += 1
                break

def serve():
    noted = mmap.mmap(-1, 64)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    asyncio.run(run(sys.argv[1], noted, True))  # loads what is loaded late
    for line in sys.stdin:
        workdir, goes_on = json.loads(line)
        noted[:] = bytes(64)
        child = os.fork()
        if not child:
            signal.sigwait({signal.SIGUSR1})
            asyncio.run(run(workdir, noted, goes_on))
            os._exit(0)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(json.dumps([os.waitstatus_to_exitcode(status), list(noted[:9])]), flush=True)

if __name__ == "__main__":
    serve()
"""

STEPS: dict[str, Any] = {"__name__": "steps"}
exec(PROGRAM, STEPS)  # noqa: S102 - the same calls and contents here as there
FIRST, SECOND = STEPS["FIRST"], STEPS["SECOND"]
LAST_WINDOW = [STEPS["user"]("summary"), STEPS["user"]("kept")]
START, EXTEND, ARCHIVE_FIRST, STORE, STUB, ARCHIVE_SECOND, SUMMARY, REPLACE, PAYLOAD = range(9)


class Outcome(NamedTuple):
    """How a run ended: its exit code, and for each step whether it was acknowledged and whether it was refused."""

    exit_code: int
    acknowledged: list[bool]
    refused: list[bool]


class Server:
    """A process that has loaded everything, and forks one for each run."""

    def __init__(self, folder: Path, strace: str) -> None:
        self.strace = strace
        self.folder = folder
        command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(folder / "warm")]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, workdir: Path, *options: str, goes_on: bool = True) -> Outcome:
        """Run all steps in a new process under strace with *options*."""
        pid = int(self._answer(json.dumps([str(workdir), goes_on])))
        command = [self.strace, "-f", "-o", str(self.log), "-p", str(pid), *options]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
            assert tracer.stderr is not None
            is_attached = "attached" in tracer.stderr.readline()
            os.kill(pid, signal.SIGUSR1)
            exit_code, noted = json.loads(self._read())
        if not is_attached:
            pytest.skip("strace may not attach to a process here")
        return Outcome(exit_code, [note % 16 > 0 for note in noted], [note >= 16 for note in noted])

    @property
    def log(self) -> Path:
        return self.folder / "strace.log"

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _answer(self, line: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


@contextmanager
def server(folder: Path) -> Iterator[Server]:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    started = Server(folder, strace)
    try:
        yield started
    finally:
        started.close()


def names_of(kind: str) -> str:
    """Return the system calls of *kind* for strace; a question mark lets it pass over those it does not know."""
    return ",".join(f"?{name}" for name in SYSTEM_CALLS.get(kind, kind).split(","))


def counted(log: Path) -> dict[str, int]:
    """Return how often each call was made, by the thread that made it most often: strace counts so, too."""
    made = Counter(re.findall(r"^(\d+) +(\w+)\(", log.read_text("utf-8", "replace"), re.MULTILINE))
    most: dict[str, int] = {}
    for (_, name), count in made.items():
        most[name] = max(count, most.get(name, 0))
    return most


class Kept(NamedTuple):
    """All that a run has kept."""

    messages: list[Any]
    window: list[Any] | None
    head: tuple[str, ...]
    summaries: list[str]
    stubs: list[str]


async def kept_in(workdir: Path) -> Kept:
    workspace = LocalWorkspace(workdir, durability="off")
    try:
        messages = [message for _, message in await workspace.load_messages("s1", 0, 99)]
        summaries = [summary["text"] for summary in await workspace.load_summaries("s1")]
        stubs = list(await workspace.load_stubs("s1", ["the stub"]))
    except NotFoundError:
        return Kept([], None, (), [], [])
    try:
        state = await workspace.load_window("s1")
    except NotFoundError:
        return Kept(messages, None, (), summaries, stubs)
    return Kept(messages, [message for _, message in state.messages], state.head, summaries, stubs)


def is_kept(step: int, kept: Kept, workdir: Path) -> bool:
    """Tell whether what *step* did is there, or what a later step has put in its place."""
    result = workdir / "sessions/s1/tool_result-call.txt"
    found = {
        START: kept.window is not None,
        EXTEND: kept.window in (FIRST + SECOND, LAST_WINDOW),
        ARCHIVE_FIRST: kept.messages[:2] == FIRST,
        STORE: result.exists() and result.read_text("utf-8") == STEPS["RESULT"].text,
        STUB: kept.stubs == ["the stub"],
        ARCHIVE_SECOND: kept.messages == FIRST + SECOND,
        SUMMARY: kept.summaries == ["summary"],
        REPLACE: kept.window == LAST_WINDOW and kept.head == ("summary",),
        PAYLOAD: workdir.joinpath("data").is_dir() and len(list(workdir.glob("data/[0-9a-f]*"))) == 2,
    }
    return bool(found[step])


async def go_on(workdir: Path, outcome: Outcome, kept: Kept) -> None:
    """Take the steps that were not acknowledged, as another process would."""
    workspace = LocalWorkspace(workdir, durability="off")
    for number, step in enumerate(STEPS["steps"](workspace)):
        if outcome.acknowledged[number]:
            continue
        if number in {EXTEND, SUMMARY} and outcome.exit_code:
            # These add every time. Who was killed does not know whether they did, and looks.
            if number == SUMMARY and kept.summaries:
                continue
            if number == EXTEND and kept.window:
                await workspace.extend_window("s1", (FIRST + SECOND)[len(kept.window) :], [0])
                continue
        await step()


def assert_nothing_is_damaged(workdir: Path, *severities: str) -> None:
    if (workdir / "workspace.json").exists():
        findings = verify(LocalWorkspace(workdir)).findings
        assert [found for found in findings if found.severity in severities] == []


def check(workdir: Path, outcome: Outcome) -> None:
    kept = asyncio.run(kept_in(workdir))
    for step, is_acknowledged in enumerate(outcome.acknowledged):
        assert is_kept(step, kept, workdir) or not is_acknowledged, f"step {step} was acknowledged"
    assert kept.messages in ([], FIRST, FIRST + SECOND)
    assert kept.window in (None, LAST_WINDOW) or kept.window == (FIRST + SECOND)[: len(kept.window)]
    assert_nothing_is_damaged(workdir, "damage")

    asyncio.run(go_on(workdir, outcome, kept))
    kept = asyncio.run(kept_in(workdir))
    assert kept == Kept(FIRST + SECOND, LAST_WINDOW, ("summary",), ["summary"], ["the stub"])
    assert all(is_kept(step, kept, workdir) for step in range(9))
    assert_nothing_is_damaged(workdir, "damage", "warning")


async def leave_torn(workdir: Path) -> None:
    """Begin as a crash leaves it: half a line behind the last commit of each file."""
    await LocalWorkspace(workdir, durability="off").start_window("s1", {"size": 9}, writer="w")
    for name in ("context.jsonl", "journal.jsonl", "window.jsonl"):
        with (workdir / "sessions/s1" / name).open("ab") as file:
            file.write(b'{"role":"us')


POINTS = [
    *((kind, fault, begin) for kind in CHANGING for fault in FAULTS for begin in ("new", "torn")),
    *((kind, fault, "new") for kind in ("open", "pread", "getdents") for fault in FAULTS),
    *(("stat", fault, "new") for fault in ("EIO", "EACCES")),
]


@pytest.mark.parametrize(("kind", "fault", "begin"), POINTS, ids=[" ".join(point) for point in POINTS])
def test_a_fault_at_any_system_call_loses_nothing_and_a_repetition_stores_once(
    tmp_path: Path, record_property: Callable[[str, object], None], kind: str, fault: str, begin: str
) -> None:
    def beginning(name: str) -> Path:
        if begin == "torn":
            asyncio.run(leave_torn(tmp_path / name))
        return tmp_path / name

    with server(tmp_path) as runs:
        outcome = runs.run(beginning("whole"), "-e", f"trace={names_of(kind)}")
        assert outcome == Outcome(0, [True] * 9, [False] * 9)
        check(tmp_path / "whole", outcome)
        effect = "signal=KILL" if fault == "KILL" else f"error={fault.split(' ', maxsplit=1)[0]}"
        goes_on = fault not in {"KILL", "EIO and the end"}
        points = [(name, k) for name, count in counted(runs.log).items() for k in range(1, count + 1)]
        for name, k in points:
            workdir = beginning(f"{name}-{k}")
            inject = f"inject={name}:{effect}:when={k}"
            outcome = runs.run(workdir, "-e", f"trace={name}", "-e", inject, goes_on=goes_on)
            assert (outcome.exit_code == -signal.SIGKILL) == (fault == "KILL"), (name, k)
            assert not goes_on or all(outcome.acknowledged), (name, k)
            check(workdir, outcome)
            shutil.rmtree(workdir)
        record_property("points", len(points))
