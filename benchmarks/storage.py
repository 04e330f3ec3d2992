"""Measures what durability costs: a workspace and a window against bare system calls with the same promise.

Usage: ``python benchmarks/storage.py [ROW ...] [--quick] [--workdir DIR]``

Both sides of a comparison take turns, call by call, in one process and on one file system, so that both have the same
noise. The figures are medians; the important figure is their ratio. Linux only, because of ``fdatasync``.
"""

import argparse
import asyncio
import itertools
import os
import random
import statistics
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Self

from buoyline import ContextWindow, LocalWorkspace

Operation = Callable[[], Awaitable[object]]

KILOBYTE, MEGABYTE = 1_000, 1_000_000
SIZE = 200_000_000
"""Tokens of the windows: nothing is compacted while it is measured."""

MIN_SESSIONS_SHARE = 0.45
MAX_STREAM_MB = 32
MAX_STOP_S = 0.05
WARM_UP = 2


class Row(NamedTuple):
    """One line of the table: two figures, and the third that the goal is about."""

    what: str
    ours: str
    other: str
    figure: str
    goal: str
    is_met: bool


class Setting(NamedTuple):
    """Where and how thoroughly to measure."""

    folder: Path
    is_quick: bool

    def times(self, full: int, quick: int) -> int:
        """Return *quick* in a quick run, else *full*."""
        return quick if self.is_quick else full

    def fresh(self) -> Path:
        """Return a new directory."""
        return Path(tempfile.mkdtemp(dir=self.folder))


def main() -> None:
    """Read the arguments and print the table, each row as soon as it is known."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"one or more of {', '.join(ROWS)}; default: all")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and smaller sessions: some seconds a row")
    parser.add_argument("--workdir", type=Path, help="measure on this directory's file system")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.rows if name not in ROWS]:
        parser.error(f"no row {', '.join(unknown)}; there are {', '.join(ROWS)}")
    print(f"{'':66} {'ours':>12} {'other':>12} {'figure':>10}  goal")
    with tempfile.TemporaryDirectory(dir=arguments.workdir) as folder:
        for name in arguments.rows or ROWS:
            asyncio.run(show(ROWS[name](Setting(Path(folder), arguments.quick))))


async def show(rows: AsyncIterator[Row]) -> None:
    """Print rows."""
    async for row in rows:
        verdict = "met" if row.is_met else "MISSED"
        print(f"{row.what:66} {row.ours:>12} {row.other:>12} {row.figure:>10}  {row.goal}: {verdict}", flush=True)


async def opened(folder: Path, session_id: str = "s") -> tuple[ContextWindow, Callable[[Any], Awaitable[object]]]:
    """Return a window, and a function that adds a message to it durably."""
    window = await ContextWindow.open(LocalWorkspace(folder), session_id, size=SIZE)
    save = getattr(window, "save", None)
    if save is None:
        return window, window.add

    async def add(message: Any) -> None:
        await window.add(message)
        await save()

    return window, add


async def alternate(rounds: int, operations: Sequence[Operation]) -> list[float]:
    """Return the median seconds of each operation; they take turns, in a different order each round."""
    taken: list[list[float]] = [[] for _ in operations]
    for number in range(rounds + WARM_UP):
        for turn in random.sample(range(len(operations)), len(operations)):
            began = time.perf_counter()
            await operations[turn]()
            if number >= WARM_UP:
                taken[turn].append(time.perf_counter() - began)
    return [statistics.median(times) for times in taken]


# One message.


async def message(setting: Setting) -> AsyncIterator[Row]:
    """One message of 1 KB, against two files that are each written and synced, as a log with an index would be."""
    drawn = texts(KILOBYTE)
    _, add = await opened(setting.fresh())
    workspace = LocalWorkspace(setting.fresh())
    bare = bare_append(setting.fresh(), [b"x" * 1_150, b"x" * 200])

    async def added() -> None:
        await add(user(next(drawn)))

    async def offloaded() -> None:
        await workspace.offload_context("s", [user(next(drawn))])

    for what, ours, goal in (("add", added, 1.6), ("offload_context", offloaded, 1.6)):
        our_s, other_s = await alternate(setting.times(300, 60), [ours, lambda: asyncio.to_thread(bare)])
        yield compared(f"{what} of 1 KB / two files in a worker thread", our_s, other_s, goal)


def bare_append(folder: Path, lines: Sequence[bytes]) -> Callable[[], None]:
    """Return a function that appends each line to a file of its own, and syncs the files."""
    files = [os.open(folder / str(n), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600) for n in range(len(lines))]

    def write() -> None:
        for file, line in zip(files, lines, strict=True):
            os.write(file, line)
            os.fdatasync(file)

    return write


async def sessions(setting: Setting) -> AsyncIterator[Row]:
    """Messages a second of 50 sessions at once, against four threads that append to a file each."""
    many, each = 50, setting.times(40, 10)
    folder, drawn = setting.fresh(), texts(KILOBYTE)
    adders = [(await opened(folder, f"s{number}"))[1] for number in range(many)]

    async def one(add: Callable[[Any], Awaitable[object]], count: int) -> None:
        for _ in range(count):
            await add(user(next(drawn)))

    await asyncio.gather(*(one(add, 1) for add in adders))
    began = time.perf_counter()
    await asyncio.gather(*(one(add, each) for add in adders))
    our_rate = many * each / (time.perf_counter() - began)
    with ThreadPoolExecutor(4) as pool:
        writers = [bare_append(setting.fresh(), [b"x" * 1_150]) for _ in range(4)]
        began = time.perf_counter()
        list(pool.map(lambda write: [write() for _ in range(many * each // 4)], writers))
        bare_rate = many * each / (time.perf_counter() - began)
    share = our_rate / bare_rate
    what = f"{many} sessions at once / four threads that write and sync"
    yield Row(
        what,
        f"{our_rate:,.0f} /s",
        f"{bare_rate:,.0f} /s",
        f"{share:.2f} x",
        "at least 0.45 x",
        share >= MIN_SESSIONS_SHARE,
    )


# Large results.


async def result(setting: Setting) -> AsyncIterator[Row]:
    """A tool result of 100 KB, against a bare durable file; 100 MB as one text and as a stream."""
    text = source_text(100 * KILOBYTE)
    workspace, numbers = LocalWorkspace(setting.fresh()), itertools.count()
    write = bare_publish(setting.fresh(), text.encode())

    async def stored() -> None:
        await workspace.offload_tool_result("s", tool(f"c{next(numbers)}", text))

    our_s, other_s = await alternate(setting.times(200, 40), [stored, lambda: asyncio.to_thread(write)])
    yield compared("result of 100 KB / file, fdatasync, rename, fsync", our_s, other_s, 1.6)
    size = setting.times(100, 20) * MEGABYTE
    chunk = source_text(MEGABYTE).encode()
    window, add = await opened(setting.fresh())
    await add(calling("c1", "c2"))
    began_mb = resident_mb()
    with MemoryPeak() as peak:
        await window.add_tool_output("c1", itertools.repeat(chunk, size // MEGABYTE))
    grown = peak.most_mb - began_mb
    what = f"memory of a stream of {size // MEGABYTE} MB"
    yield Row(what, f"{grown:.0f} MB", "", f"{grown:.0f} MB", "within 32 MB", grown <= MAX_STREAM_MB)
    large = source_text(size)
    began = time.perf_counter()
    await add(tool("c2", large))
    taken_s, limit_s = time.perf_counter() - began, 3 * size / (100 * MEGABYTE)
    what = f"add of a text of {size // MEGABYTE} MB"
    yield Row(what, f"{taken_s:.2f} s", "", f"{taken_s:.2f} s", f"under {limit_s:.1f} s", taken_s < limit_s)


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


def resident_mb() -> float:
    """Return the resident memory of this process now."""
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / MEGABYTE


class MemoryPeak:
    """Looks at the memory every few milliseconds."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.most_mb = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        """Begin to look."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.003):
            self.most_mb = max(self.most_mb, resident_mb())


# Long sessions, and other work of the process.


async def reopening(setting: Setting) -> AsyncIterator[Row]:
    """The opening of a long session, and the first message to it."""
    count, folder = setting.times(100_000, 10_000), setting.fresh()
    window = await ContextWindow.open(LocalWorkspace(folder, durability="off"), "s", size=128_000)
    for first in range(0, count, 100):
        batch = [user(f"message {first + n} of a long conversation about the release" * 4) for n in range(100)]
        if hasattr(window, "extend"):
            await window.extend(batch)
        else:
            for one in batch:
                await window.add(one)
        await window.prepare()
    await window.close()
    began = time.perf_counter()
    again = await ContextWindow.open(LocalWorkspace(folder), "s")
    await again.add(user("one more"))
    taken_s, limit_s = time.perf_counter() - began, count / 100_000
    what = f"open of a session of {count:,} messages, and an add"
    yield Row(what, f"{taken_s:.2f} s", "", f"{taken_s:.2f} s", f"under {limit_s:.1f} s", taken_s < limit_s)


async def loop(setting: Setting) -> AsyncIterator[Row]:
    """The longest time for which the event loop stood still while large results were added."""
    window, add = await opened(setting.fresh())
    gaps, is_over = [0.0], asyncio.Event()

    async def tick() -> None:
        while not is_over.is_set():
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            gaps.append(time.perf_counter() - began - 0.001)

    ticking = asyncio.create_task(tick())
    text = source_text(setting.times(10, 2) * MEGABYTE)
    for number in range(setting.times(20, 5)):
        await add(calling(f"c{number}"))
        await add(tool(f"c{number}", text[number * KILOBYTE :]))
        await window.prepare()
    is_over.set()
    await ticking
    longest = f"{max(gaps) * 1000:.0f} ms"
    what = f"longest stop of the event loop, results of {len(text) // MEGABYTE} MB"
    yield Row(what, longest, "", longest, "at most 50 ms", max(gaps) <= MAX_STOP_S)


# Messages, texts and figures.


def user(text: str) -> dict[str, Any]:
    """Return a message of the user."""
    return {"role": "user", "content": text}


def calling(*call_ids: str) -> dict[str, Any]:
    """Return a message of the model with calls."""
    calls = [{"id": one, "type": "function", "function": {"name": "run", "arguments": "{}"}} for one in call_ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def tool(call_id: str, text: str) -> dict[str, Any]:
    """Return the result of a call."""
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def source_text(chars: int) -> str:
    """Return *chars* characters of the standard library's own sources."""
    found = "".join(
        path.read_text(encoding="utf-8", errors="replace")
        for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    )
    return (found * (chars // len(found) + 1))[:chars]


def texts(chars: int) -> Iterator[str]:
    """Yield different texts of *chars* characters."""
    source = source_text(4 * MEGABYTE)
    for number in itertools.count():
        begin = number * 977 % (len(source) - chars)
        yield f"{number:08} {source[begin : begin + chars - 9]}"


def compared(what: str, our_s: float, other_s: float, most: float) -> Row:
    """Return a row with the ratio of two times."""
    ratio = our_s / other_s
    ours, other = f"{our_s * 1000:.3f} ms", f"{other_s * 1000:.3f} ms"
    return Row(what, ours, other, f"{ratio:.2f} x", f"at most {most} x", ratio <= most)


ROWS: Mapping[str, Callable[[Setting], AsyncIterator[Row]]] = {
    "message": message,
    "sessions": sessions,
    "result": result,
    "open": reopening,
    "loop": loop,
}


if __name__ == "__main__":
    if sys.platform != "linux":
        sys.exit("benchmarks/storage.py needs Linux: fdatasync and /proc")
    main()
