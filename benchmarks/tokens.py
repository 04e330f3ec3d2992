"""Compare counting in chunks with encoding the whole text at once, in one run on one machine.

Usage: ``python benchmarks/tokens.py [--large] [--max-tokens N] [--rounds N]``

The text is the standard library's own sources, 1 MB of them, and with ``--large`` also 100 MB made of
shuffled slices of those. Every row gives the best time of the rounds, the ratio to the full encode of the
same run, and by how much the peak memory of the process grew. Since that is a peak, the frugal operations run
first, and a row shows what it needs beyond all rows above it.
"""

import argparse
import random
import resource
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

from buoyline.tokens import default_counter
from buoyline.tokens.vocabulary import o200k_base

MEGABYTE = 1_000_000
SLICE_CHARS = 20_000
RSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024


def main() -> None:
    """Read the arguments and print a table for each size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--large", action="store_true", help="also measure 100 MB")
    parser.add_argument("--max-tokens", type=int, default=10_000, help="limit for exceeds, head and tail")
    parser.add_argument("--rounds", type=int, default=3, help="times that each operation is run")
    arguments = parser.parse_args()
    default_counter().count("load the vocabulary")
    source = library_sources()
    compare(source[:MEGABYTE], arguments.max_tokens, arguments.rounds)
    if arguments.large:
        compare(shuffled_slices(source, 100 * MEGABYTE), arguments.max_tokens, arguments.rounds)


def library_sources() -> str:
    """Return about 8 MB of Python, or as much as this installation has."""
    paths = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return "".join(path.read_text(encoding="utf-8", errors="replace") for path in paths)


def shuffled_slices(source: str, chars: int) -> str:
    """Return *chars* characters, made of slices of *source* in an order that is the same in every run."""
    slices = [source[start : start + SLICE_CHARS] for start in range(0, len(source), SLICE_CHARS)]
    drawn = random.Random(100).choices(slices, k=chars // SLICE_CHARS)  # noqa: S311 - no secret is drawn
    return "".join(drawn)[:chars]


def compare(text: str, max_tokens: int, rounds: int) -> None:
    """Print how the counter and the full encode do on *text*."""
    counter, encoding = default_counter(), o200k_base()
    operations: dict[str, Callable[[], object]] = {
        f"exceeds {max_tokens:,}": lambda: counter.exceeds(text, max_tokens),
        f"head {max_tokens:,}": lambda: counter.head(text, max_tokens),
        f"tail {max_tokens:,}": lambda: counter.tail(text, max_tokens),
        "count": lambda: counter.count(text),
        "full encode": lambda: len(encoding.encode(text, disallowed_special=())),
    }
    measured = {name: measure(operation, rounds) for name, operation in operations.items()}
    full_s, _ = measured["full encode"]
    print(f"\n{len(text) / MEGABYTE:,.0f} MB of text, {counter.count(text):,} tokens")
    print(f"{'':16} {'ms':>12} {'x full encode':>14} {'peak MB':>9}")
    for name, (best_s, grown_bytes) in measured.items():
        speed = f"{full_s / best_s:,.1f}"
        print(f"{name:16} {best_s * 1000:12,.3f} {speed:>14} {grown_bytes / MEGABYTE:+9,.0f}")


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
