"""Compares lookups in 100 MB with plain `re`, and measures how long the event loop waits.

Usage: ``python benchmarks/lookups.py [--megabytes N] [--rounds N]``

The files are generated from a fixed seed, in a directory that is removed at the end: a log with some hits, one line
without an end, random bytes, and a JSON document. Every figure is the median of the rounds of one run. A task wakes up
every millisecond; the stall is the longest time between two wake-ups, less that millisecond. The figure for an idle
loop shows how much of it comes from the machine.
"""

import argparse
import asyncio
import json
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from buoyline.lookups import Tool, grep, lookup_tools, search, search_index
from buoyline.workspace import LocalWorkspace, layout

MEGABYTE = 1_000_000
PATTERNS = {
    "text": "ERROR timeout",
    "expression": r"ERR\w+ timeout \d+",
    "any case": "(?i)error timeout",
    "nothing": "no such words",
    "inner text": r"\d{4}-\d\d-\d\d .* ERROR",
    "no text": r"[0-9a-f]{8}-[0-9]",
    "each line": "INFO",
}
QUERIES = ("which worker timed out with error 4711", "INFO worker", "timeout", "worker-3 INFO 12:00:07", "nothing such")
HOSTILE = ("(a+)+$", "(a|aa)+$", "(.*a){12}$", r"(\w+\s?)+$", r"(?i)\pL{400}", r"(x{1000}){1000}", "x" * MEGABYTE)


def main() -> None:
    """Read the arguments and print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=100, help="size of each file")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each lookup")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        workspace = LocalWorkspace(directory, durability="off")
        asyncio.run(workspace.initialize())
        make_files(Path(directory), arguments.megabytes * MEGABYTE)
        compare(workspace, arguments.rounds)
        compare_searches(workspace, arguments.rounds)
        asyncio.run(measure_stalls(workspace, arguments.rounds))


def make_files(directory: Path, size_bytes: int) -> None:
    """Write the files to search."""
    drawn = random.Random(100)  # noqa: S311 - no secret is drawn
    words = ["".join(drawn.choices("abcdefghijklmnopqrstuvwxyz", k=drawn.randint(2, 10))) for _ in range(3_000)]
    lines = [
        f"2024-05-01 12:00:{n % 60:02} INFO worker-{n % 7} {' '.join(drawn.choices(words, k=10))}\n"
        for n in range(9_999)
    ]
    log = bytearray("".join(lines * (size_bytes // len("".join(lines)) + 1)).encode()[:size_bytes])
    for place in range(size_bytes // 20, size_bytes, size_bytes // 10):
        log[place : place + 18] = b"ERROR timeout 4711"
    (directory / "log.txt").write_bytes(log)
    (directory / "line.txt").write_bytes(log.replace(b"\n", b" "))
    (directory / "bytes.txt").write_bytes(drawn.randbytes(MEGABYTE) * (size_bytes // MEGABYTE))
    rows = [
        {"id": n, "state": "ok", "note": lines[n % len(lines)]} for n in range(min(size_bytes, 60 * MEGABYTE) // 150)
    ]
    (directory / "rows.json").write_text(json.dumps(rows), encoding="utf-8")


def compare(workspace: LocalWorkspace, rounds: int) -> None:
    """Print how long each pattern takes in the log."""
    path = workspace.workdir / "log.txt"
    print(f"\ngrep of {path.stat().st_size / MEGABYTE:,.0f} MB, ms")
    print(f"{'':12} {'grep':>9} {'re':>9}")
    for name, pattern in PATTERNS.items():
        grep_s = measure(lambda pattern=pattern: grep(workspace, pattern, "log.txt"), rounds)
        plain_s = measure(lambda pattern=pattern: plain(pattern, path), 1)
        print(f"{name:12} {grep_s * 1000:9,.0f} {plain_s * 1000:9,.0f}")


def plain(pattern: str, path: Path) -> int:
    """Count the lines that `re` finds, line by line."""
    search = re.compile(pattern.encode()).search
    with path.open("rb") as file:
        return sum(search(line) is not None for line in file)


def compare_searches(workspace: LocalWorkspace, rounds: int) -> None:
    """Print how long searches of the log take without the index of words, when they make it, and with it."""
    print(f"\n{'search, ms':44} {'no index':>9} {'with it':>9} {'ratio':>6}")
    search_index.LEAST_BYTES = sys.maxsize
    plain_s = {query: measure(lambda query=query: search(workspace, query, "log.txt"), rounds) for query in QUERIES}
    search_index.LEAST_BYTES = 0
    first: list[float] = []
    for _ in range(rounds):
        workspace.tree.remove(layout.SEARCH)
        first.append(measure(lambda: search(workspace, QUERIES[0], "log.txt"), 1))
    first_s = statistics.median(first)
    rows = [(f"{QUERIES[0]} (makes the index)", plain_s[QUERIES[0]], first_s)]
    rows += [
        (query, plain_s[query], measure(lambda query=query: search(workspace, query, "log.txt"), rounds))
        for query in QUERIES
    ]
    for name, without_s, with_s in rows:
        print(f"{name:44} {without_s * 1000:9,.0f} {with_s * 1000:9,.0f} {with_s / without_s:6.3f}")
    size_bytes = (workspace.workdir / layout.SEARCH_INDEX).stat().st_size
    print(f"{'the index, MB':44} {size_bytes / MEGABYTE:9,.0f}")


def measure(operation: Callable[[], object], rounds: int) -> float:
    """Return the median time in seconds."""
    times: list[float] = []
    for _ in range(rounds):
        start = time.perf_counter()
        operation()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


async def measure_stalls(workspace: LocalWorkspace, rounds: int) -> None:
    """Print how long the event loop waited during each lookup."""
    tools = {tool.name: tool for tool in lookup_tools(workspace, timeout_s=10.0)}
    await tools["grep"].call(pattern="warm up")
    print(f"\n{'event loop':44} {'stall, ms':>10} {'largest':>9} {'lookup, ms':>11}")
    for name, call in calls(tools):
        stalls, times = zip(*[await stall(call) for _ in range(rounds)], strict=True)
        figures = statistics.median(stalls) * 1000, max(stalls) * 1000, statistics.median(times) * 1000
        print(f"{name:44} {figures[0]:10.1f} {figures[1]:9.1f} {figures[2]:11,.0f}")


def calls(tools: dict[str, Tool]) -> Iterator[tuple[str, Callable[[], Awaitable[object]]]]:
    """Yield each lookup with its name."""
    yield "idle", lambda: asyncio.sleep(0.3)
    for path in ("log.txt", "line.txt", "bytes.txt"):
        yield f"read {path}, end", lambda path=path: tools["read"].call(path=path, start=10**9)
        yield f"read {path}, column", lambda path=path: tools["read"].call(path=path, column=10**7)
        yield f"grep {path}, text", lambda path=path: tools["grep"].call(pattern="ERROR", path=path, context=5)
        yield f"search {path}", lambda path=path: tools["search"].call(query="what timed out, ERROR 4711?", path=path)
    yield "glob", lambda: tools["glob"].call(pattern="**")
    for pattern in HOSTILE:
        shown = pattern if len(pattern) < MEGABYTE else "1 MB of pattern"
        yield f"grep log.txt, {shown}", lambda pattern=pattern: tools["grep"].call(pattern=pattern, path="log.txt")
    yield "query rows.json, length(@)", lambda: tools["query"].call(path="rows.json", expression="length(@)")
    yield "query log.txt, no JSON", lambda: tools["query"].call(path="log.txt", expression="@")


async def stall(call: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """Return the longest wait of the loop beyond a millisecond, and the duration of the call, in seconds."""
    longest, is_done = 0.0, False

    async def tick() -> None:
        nonlocal longest
        before = time.perf_counter()
        while not is_done:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            longest = max(longest, now - before - 0.001)
            before = now

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0.01)
    start = time.perf_counter()
    await call()
    took_s = time.perf_counter() - start
    is_done = True
    await ticking
    return longest, took_s


if __name__ == "__main__":
    main()
