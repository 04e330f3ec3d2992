"""Compares counting in chunks with encoding the whole text at once, in one run on one machine.

Usage: ``python benchmarks/tokens.py [--large] [--huge] [--max-tokens N] [--rounds N]``

The text is 1 MB of the standard library's own sources, with ``--large`` also 100 MB of shuffled slices of these, and
with ``--huge`` 1 GB. Every row shows the best time of the rounds, the ratio to the full encode of the same run, and by
how much the peak memory of the process grew. Since that is a peak, the operations that need little run first, and each
row shows what it needs beyond all rows above it. The full encode of 1 GB would take some 11 GB. It is scaled up from
100 MB of the same text, and marked as such.

The last table is about an event loop: a task repeatedly sleeps for a millisecond while another thread counts. Its
longest pause beyond that is the stall; the first row has nothing in the other thread, for comparison.
"""

import argparse
import asyncio
import random
import resource
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

from buoyline.tokens import default_counter
from buoyline.tokens.o200k import o200k_base

MEGABYTE = 1_000_000
MOST_ENCODED_MB = 100
TICK_S = 0.001
SLICE_CHARS = 20_000
RSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024


def main() -> None:
    """Read the arguments and print a table for each size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--large", action="store_true", help="also measure 100 MB")
    parser.add_argument("--huge", action="store_true", help="also measure 1 GB")
    parser.add_argument("--max-tokens", type=int, default=10_000, help="limit for exceeds and head")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each operation")
    arguments = parser.parse_args()
    default_counter().count("load the vocabulary")
    source = library_sources()
    megabytes = [1, *([100] if arguments.large else []), *([1_000] if arguments.huge else [])]
    for size in megabytes:
        text = shuffled_slices(source, size * MEGABYTE)
        compare(text, arguments.max_tokens, arguments.rounds)
    stalls(shuffled_slices(source, 20 * MEGABYTE), arguments.max_tokens)


def library_sources() -> str:
    """Return about 8 MB of Python, or as much as this installation has."""
    paths = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return "".join(path.read_text(encoding="utf-8", errors="replace") for path in paths)


def shuffled_slices(source: str, chars: int) -> str:
    """Return *chars* characters of slices of *source*, in an order that is the same in every run."""
    slices = [source[start : start + SLICE_CHARS] for start in range(0, len(source), SLICE_CHARS)]
    drawn = random.Random(100).choices(slices, k=chars // SLICE_CHARS)  # noqa: S311 - no secret is drawn
    return "".join(drawn)[:chars]


def compare(text: str, max_tokens: int, rounds: int) -> None:
    """Print the figures of the counter and of the full encode for *text*."""
    counter, encoding = default_counter(), o200k_base()
    operations: dict[str, Callable[[], object]] = {
        f"exceeds {max_tokens:,}": lambda: counter.exceeds(text, max_tokens),
        f"head {max_tokens:,}": lambda: counter.head(text, max_tokens),
        "count": lambda: counter.count(text),
    }
    measured = {name: measure(operation, rounds) for name, operation in operations.items()}
    whole = text[: MOST_ENCODED_MB * MEGABYTE]
    full_s, full_bytes = measure(lambda: len(encoding.encode(whole, disallowed_special=())), rounds)
    full_s *= len(text) / len(whole)
    measured["full encode" if whole == text else "full, scaled"] = full_s, full_bytes
    print(f"\n{len(text) / MEGABYTE:,.0f} MB of text")
    print(f"{'':16} {'ms':>12} {'x full encode':>14} {'peak MB':>9}")
    for name, (best_s, grown_bytes) in measured.items():
        speed = f"{full_s / best_s:,.1f}"
        print(f"{name:16} {best_s * 1000:12,.3f} {speed:>14} {grown_bytes / MEGABYTE:+9,.0f}")


def stalls(text: str, max_tokens: int) -> None:
    """Print how long an event loop stalls while another thread counts."""
    counter, encoding = default_counter(), o200k_base()
    run = "a" * 5 * MEGABYTE
    operations: dict[str, Callable[[], object]] = {
        "nothing": lambda: time.sleep(0.5),
        "count": lambda: counter.count(text),
        "count a run": lambda: counter.count(run),
        f"exceeds {max_tokens:,}": lambda: [counter.exceeds(text, max_tokens) for _ in range(1_000)],
        f"head {max_tokens:,}": lambda: [counter.head(text, max_tokens) for _ in range(50)],
        "full encode": lambda: encoding.encode(text, disallowed_special=()),
    }
    print(f"\n{'event loop':16} {'longest stall, ms':>18} {'ms in the thread':>17}")
    for name, operation in operations.items():
        longest_s, took_s = asyncio.run(stall_during(operation))
        print(f"{name:16} {longest_s * 1000:18,.1f} {took_s * 1000:17,.0f}")


async def stall_during(operation: Callable[[], object]) -> tuple[float, float]:
    """Return the longest stall in seconds while *operation* runs in a thread, and how long it ran."""
    start = last = time.perf_counter()
    longest = 0.0
    running = asyncio.ensure_future(asyncio.to_thread(operation))
    while not running.done():
        await asyncio.sleep(TICK_S)
        now = time.perf_counter()
        longest, last = max(longest, now - last - TICK_S), now
    return longest, last - start


def measure(operation: Callable[[], object], rounds: int) -> tuple[float, int]:
    """Return the best time in seconds, and by how many bytes the peak memory of the process grew."""
    before = peak_bytes()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        operation()
        times.append(time.perf_counter() - start)
    return min(times), peak_bytes() - before


def peak_bytes() -> int:
    """Return the largest resident size that the process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT_BYTES


if __name__ == "__main__":
    main()
