"""Measures the cost of durability: `LocalWorkspace` against bare system calls with the same promise, and against peers.

Usage: ``python benchmarks/storage.py [ROW ...] [--quick] [--workdir DIR]``

Both sides of a comparison take turns, call by call, in one process and on one file system, so that both have the same
noise. The figures are medians; the important figure is their ratio.

The table says whether each goal is met. Linux only, because of ``fdatasync``.
"""

import argparse
import asyncio
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from buoyline import LocalWorkspace

Message = dict[str, Any]
Operation = Callable[[], Awaitable[object]]

KILOBYTE, MEGABYTE = 1_000, 1_000_000
MAX_BARE_RATIO = 1.5
MAX_SMALL_RESULT_RATIO = 1.6
MAX_GROWTH = 1.2
MAX_START_S = 0.005
MAX_MESSAGE_S = 40e-6
WARM_UP = 2
BATCH = 100


class Row(NamedTuple):
    """One line of the table.

    Attributes:
        what: The measurement.
        ours: Our figure.
        other: The figure to compare with, or what is needed to get it.
        ratio: Ours to the other, or the figure that the goal is about.
        goal: The project's goal; empty if there is none.
        is_met: None without a goal.
    """

    what: str
    ours: str
    other: str
    ratio: str
    goal: str = ""
    is_met: bool | None = None


class Setting(NamedTuple):
    """Where and how thoroughly to measure."""

    folder: Path
    is_quick: bool

    def count(self, full: int, quick: int) -> int:
        """Return *quick* in a quick run, else *full*."""
        return quick if self.is_quick else full

    def fresh(self) -> Path:
        """Return a new directory."""
        return Path(tempfile.mkdtemp(dir=self.folder))


def main() -> None:
    """Read the arguments and print the table, each row as soon as it is known."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"one or more of {', '.join(ROWS)}; default: all")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and smaller archives: some seconds a row")
    parser.add_argument("--workdir", type=Path, help="measure on this directory's file system")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.rows if name not in ROWS]:
        parser.error(f"no row {', '.join(unknown)}; there are {', '.join(ROWS)}")
    print(f"{'':68} {'ours':>12} {'other':>12} {'ratio':>12}  goal")
    with tempfile.TemporaryDirectory(dir=arguments.workdir) as folder:
        for name in arguments.rows or ROWS:
            asyncio.run(show(ROWS[name](Setting(Path(folder), arguments.quick))))


async def show(rows: AsyncIterator[Row]) -> None:
    """Print rows."""
    async for row in rows:
        verdict = "" if row.is_met is None else "  met" if row.is_met else "  MISSED"
        print(f"{row.what:68} {row.ours:>12} {row.other:>12} {row.ratio:>12}  {row.goal}{verdict}", flush=True)


async def alternate(rounds: int, operations: Sequence[Operation]) -> list[float]:
    """Return the median seconds of each operation; they take turns, in a different order each round."""
    times: list[list[float]] = [[] for _ in operations]
    for number in range(rounds + WARM_UP):
        for turn in random.sample(range(len(operations)), len(operations)):
            started = time.perf_counter()
            await operations[turn]()
            if number >= WARM_UP:
                times[turn].append(time.perf_counter() - started)
    return [statistics.median(taken) for taken in times]


# One append.


async def append(setting: Setting) -> AsyncIterator[Row]:
    """One message of 1 KB to an existing session, against two files written and synced."""
    ours = appending(LocalWorkspace(setting.fresh()), "s1")
    await ours()
    await ours()
    session = next(setting.folder.glob("*/sessions/s1"))
    lines = [(session / name).read_bytes().splitlines(keepends=True)[-1] for name in ("context.jsonl", "journal.jsonl")]
    others: dict[str, Operation] = {
        "write + fdatasync of two files": inline(bare_append(setting.fresh(), lines)),
        "the same two files in asyncio.to_thread": threaded(bare_append(setting.fresh(), lines)),
    }
    for name, other in others.items():
        our_s, other_s = await alternate(setting.count(300, 40), [ours, other])
        yield compared("append 1 KB", name, our_s, other_s, MAX_BARE_RATIO if name.startswith("write") else 0.0)
    yield await processor(setting, "append 1 KB", ours, next(iter(others.values())))


async def processor(setting: Setting, what: str, ours: Operation, bare: Operation) -> Row:
    """Return a row with the processor time of both, which other work on the disk does not change much."""
    taken_s: list[float] = []
    for operation in (ours, bare):
        rounds, started = setting.count(1_000, 100), time.process_time()
        for _ in range(rounds):
            await operation()
        taken_s.append((time.process_time() - started) / rounds)
    return compared(what, "bare, processor time of both", *taken_s)


def appending(workspace: LocalWorkspace, session: str) -> Operation:
    """Return a function that archives one more message of 1 KB."""
    messages = texts(KILOBYTE)
    return lambda: workspace.offload_context(session, [{"role": "user", "content": next(messages)}])


def inline(function: Callable[[], None]) -> Operation:
    """Return a coroutine function that calls *function* directly, so that nothing else can run meanwhile."""

    async def call() -> None:
        function()

    return call


def threaded(function: Callable[[], None]) -> Operation:
    """Return a function that calls *function* in a thread, as an asynchronous program has to."""
    return lambda: asyncio.to_thread(function)


def bare_append(folder: Path, lines: Sequence[bytes]) -> Callable[[], None]:
    """Return a function that appends each line to a file of its own, and syncs the files."""
    files = [os.open(folder / str(n), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600) for n in range(len(lines))]

    def write() -> None:
        for file, line in zip(files, lines, strict=True):
            os.write(file, line)
        for file in files:
            os.fdatasync(file)

    return write


# One tool result.


async def result(setting: Setting) -> AsyncIterator[Row]:
    """A tool result of 100 KB, and of 10 MB, against a bare durable write."""
    for what, chars, rounds, goal in (
        ("result 100 KB", 100 * KILOBYTE, setting.count(300, 40), MAX_SMALL_RESULT_RATIO),
        ("result 10 MB", 10 * MEGABYTE, setting.count(25, 4), MAX_BARE_RATIO),
    ):
        text = source_text(chars)
        write = bare_publish(setting.fresh(), text.encode())
        bare, recorded = inline(write), threaded(bare_result(setting.fresh(), write))
        ours = storing(LocalWorkspace(setting.fresh()), "s1", text)
        our_s, other_s, recorded_s = await alternate(rounds, [ours, bare, recorded])
        yield compared(what, "temporary file, fdatasync, rename, fsync directory", our_s, other_s, goal)
        yield compared(what, "the same and a synced record, in asyncio.to_thread", our_s, recorded_s)
        if chars == 100 * KILOBYTE:
            yield await processor(setting, what, ours, bare)


def storing(workspace: LocalWorkspace, session: str, text: str) -> Operation:
    """Return a function that stores *text* as one more tool result."""
    messages = ({"role": "tool", "tool_call_id": f"c{n}", "content": text} for n in itertools.count())
    return lambda: workspace.offload_tool_result(session, next(messages))


def bare_result(folder: Path, write: Callable[[], None]) -> Callable[[], None]:
    """Return a function that calls *write*, and then appends a record to a file, and syncs it."""
    record = bare_append(folder, [b"x" * (KILOBYTE // 2)])

    def write_and_record() -> None:
        write()
        record()

    return write_and_record


def bare_publish(folder: Path, content: bytes) -> Callable[[], None]:
    """Return a function that writes *content* to a new file as durably as the system allows."""
    directory, numbers = os.open(folder, os.O_RDONLY | os.O_DIRECTORY), itertools.count()

    def write() -> None:
        file = os.open("temporary", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=directory)
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(file, rest) :]
        os.fdatasync(file)
        os.close(file)
        os.rename("temporary", str(next(numbers)), src_dir_fd=directory, dst_dir_fd=directory)
        os.fsync(directory)

    return write


# An append to a long session.


async def growth(setting: Setting) -> AsyncIterator[Row]:
    """One append at 200 and at 200,000 archived messages."""
    many, folder = setting.count(200_000, 20_000), setting.fresh()
    unsynced = LocalWorkspace(folder, durability="off")
    await fill(unsynced, "few", 200, 1)
    for size in (1_000, 1):
        await fill(unsynced, f"many{size}", many, size, chars=200)
        for durability in ("fsync", "off"):
            workspace = LocalWorkspace(folder, durability=durability)
            operations = [appending(workspace, session) for session in ("few", f"many{size}")]
            few_s, many_s = await alternate(setting.count(300, 60), operations)
            what = f"append 1 KB at {many:,} messages (batches of {size:,}) / at 200, {durability}"
            is_met = 1 / MAX_GROWTH <= many_s / few_s <= MAX_GROWTH
            yield Row(what, milliseconds(many_s), milliseconds(few_s), times(many_s / few_s), "within 20 %", is_met)


async def fill(workspace: LocalWorkspace, session: str, count: int, size: int, *, chars: int = KILOBYTE) -> None:
    """Archive *count* messages in batches of *size*."""
    drawn = texts(chars)
    for _ in range(0, count, size):
        await workspace.archive(session, [{"role": "user", "content": next(drawn)} for _ in range(size)])
    os.sync()  # otherwise the system would write during the measurement


# The first append of a new process.

FIRST_APPEND = """
import asyncio, sys, time
from buoyline import LocalWorkspace

async def first(workdir, session):
    message = {"role": "user", "content": "the first message of a new process"}
    started = time.perf_counter()
    workspace = LocalWorkspace(workdir)
    await workspace.archive(session, [message])
    print(time.perf_counter() - started)

asyncio.run(first(*sys.argv[1:]))
"""


async def start(setting: Setting) -> AsyncIterator[Row]:
    """The first append of a new process to 100 MB, against the same with one message archived."""
    count, folder = setting.count(100_000, 10_000), setting.fresh()
    async with LocalWorkspace(folder, durability="off") as workspace:
        for size in (BATCH, 1):
            await fill(workspace, f"large{size}", count, size)
        await fill(workspace, "small", 1, 1)
    for size in (BATCH, 1):
        times_s = first_appends(folder, ("small", f"large{size}"), setting.count(25, 5))
        small_s, large_s = map(statistics.median, times_s)
        what = f"first append, {count // 1000:,} MB in batches of {size} / 1 message"
        beyond_s = large_s - small_s
        goal = f"under +{MAX_START_S * 1000:.0f} ms"
        beyond = f"{beyond_s * 1000:+.2f} ms"
        yield Row(what, milliseconds(large_s), milliseconds(small_s), beyond, goal, beyond_s < MAX_START_S)


def first_appends(folder: Path, sessions: Sequence[str], rounds: int) -> list[list[float]]:
    """Return the seconds of the first append of new processes, for each session in turn."""
    found: list[list[float]] = [[] for _ in sessions]
    for _ in range(rounds):
        for session, times_s in zip(sessions, found, strict=True):
            command = [sys.executable, "-c", FIRST_APPEND, str(folder), session]
            times_s.append(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    return found


# A batch.


async def batch(setting: Setting) -> AsyncIterator[Row]:
    """100 messages in a batch: the cost of each beyond the sync of the same bytes."""
    workspace, unsynced = LocalWorkspace(setting.fresh()), LocalWorkspace(setting.fresh(), durability="off")
    conversations = (mixed(start) for start in itertools.count(0, BATCH))
    messages = next(conversations)
    await workspace.archive("s1", messages)
    session = Path(workspace.workdir, "sessions", "s1")
    written = [(session / name).read_bytes() for name in ("context.jsonl", "journal.jsonl")]
    prepared = iter(list(itertools.islice(conversations, 2 * setting.count(102, 22))))
    our_s, bare_s, unsynced_s = await alternate(
        setting.count(100, 20),
        [
            lambda: workspace.archive("s1", next(prepared)),
            inline(bare_append(setting.fresh(), written)),
            lambda: unsynced.archive("s1", next(prepared)),
        ],
    )
    size_bytes = len(written[0]) // BATCH
    goal = f"under {MAX_MESSAGE_S * 1e6:.0f} us"
    for name, ours, other in (("their bare sync", our_s, bare_s), ("nothing, durability off", unsynced_s, 0.0)):
        each_s = (ours - other) / BATCH
        each = f"{each_s * 1e6:.1f} us each"
        what = f"batch of {BATCH} messages of {size_bytes:,} bytes / {name}"
        yield Row(what, milliseconds(ours), milliseconds(other), each, goal, each_s < MAX_MESSAGE_S)


def mixed(start: int) -> list[Message]:
    """Return 100 messages of about 1 KB: questions, calls, results and answers, not only in English."""
    drawn = texts(900, start)
    messages: list[Message] = []
    for number in range(start, start + BATCH, 4):
        arguments = json.dumps({"path": f"src/module_{number}.py", "old": next(drawn)[:400]})
        call = {"id": f"c{number}", "type": "function", "function": {"name": "edit", "arguments": arguments}}
        messages += [
            {"role": "user", "content": f"{number}: 为什么这个测试失败了? Почему? {next(drawn)[:800]}"},
            {"role": "assistant", "content": next(drawn)[:300], "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": next(drawn)},
            {"role": "assistant", "content": next(drawn)},
        ]
    return messages


# Texts and figures.


def source_text(chars: int) -> str:
    """Return *chars* characters of the standard library's own sources."""
    found = "".join(
        path.read_text(encoding="utf-8", errors="replace")
        for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    )
    return (found * (chars // len(found) + 1))[:chars]


def texts(chars: int, start: int = 0) -> Iterator[str]:
    """Yield different texts of *chars* characters."""
    source = source_text(4 * MEGABYTE)
    for number in itertools.count(start):
        begin = number * 977 % (len(source) - chars)
        yield f"{number:08} {source[begin : begin + chars - 9]}"


def compared(what: str, name: str, our_s: float, other_s: float, goal_ratio: float = 0.0) -> Row:
    """Return a row with the ratio of two times, and the goal for it unless that is 0."""
    ratio = our_s / other_s
    goal = (f"at most {goal_ratio} x", ratio <= goal_ratio) if goal_ratio else ("", None)
    return Row(f"{what} / {name}", milliseconds(our_s), milliseconds(other_s), times(ratio), *goal)


def milliseconds(seconds: float) -> str:
    """Return *seconds* for the table."""
    return f"{seconds * 1000:.3f} ms"


def times(ratio: float) -> str:
    """Return *ratio* for the table."""
    return f"{ratio:.2f} x"


ROWS: Mapping[str, Callable[[Setting], AsyncIterator[Row]]] = {
    "append": append,
    "result": result,
    "growth": growth,
    "start": start,
    "batch": batch,
}


if __name__ == "__main__":
    main()
