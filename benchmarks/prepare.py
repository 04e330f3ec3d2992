"""Measures the cost of a turn, from `add` to `prepare`, as a session grows to ten thousand of them.

Usage: ``python benchmarks/prepare.py [TURNS] [--durability sync]``. A turn has one call and its result. Each thousand
turns have a line: the median and the mean of processor time in microseconds (compactions are rare, a median does not
show them), the seconds by the clock, and the megabytes that the process handed to the system (``/proc/self/io``, so it
needs Linux). The windows are one that holds everything, one of 128,000 tokens, and one of 8,000, which archives all the
time. The ratio of the last thousand to the first is 1 if the cost follows from the new messages, and 10 if it follows
from the whole history.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from buoyline import ContextWindow, LocalWorkspace
from buoyline.tokens import default_counter

TURNS = 10_000
STEP = 1_000
SIZES = (1_000_000_000, 128_000, 8_000)


class Thousand(NamedTuple):
    """What a thousand turns cost."""

    median_us: float
    mean_us: float
    seconds: float
    megabytes: float


def bytes_written() -> int:
    """Return how many bytes this process has handed to the system."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines())
    return int(fields["wchar"])


async def turn(window: ContextWindow, number: int) -> float:
    """Take one turn; return its processor seconds."""
    function = {"name": "read", "arguments": f'{{"path": "src/module_{number:05}.py", "line": {number % 97}}}'}
    call = {"id": f"c{number}", "type": "function", "function": function}
    output = f"def function_{number}(x):\n    return x + {number}\n" * 8
    began = time.process_time()
    await window.add({"role": "assistant", "content": None, "tool_calls": [call]})
    await window.add({"role": "tool", "tool_call_id": f"c{number}", "content": output})
    await window.prepare()
    return time.process_time() - began


async def run(turns: int, size: int, durability: str) -> list[Thousand]:
    """Return the cost of each thousand turns in a window of *size* tokens."""
    found = list[Thousand]()
    with tempfile.TemporaryDirectory() as workdir:
        async with LocalWorkspace(workdir, durability=durability) as workspace:
            window = await ContextWindow.open(workspace, "s", size=size)
            for first in range(0, turns, STEP):
                written, began = bytes_written(), time.perf_counter()
                spent = [await turn(window, number) * 1e6 for number in range(first, min(first + STEP, turns))]
                seconds, megabytes = time.perf_counter() - began, (bytes_written() - written) / 1e6
                found.append(Thousand(statistics.median(spent), statistics.fmean(spent), seconds, megabytes))
    return found


def main() -> None:
    """Print a line for each thousand turns of each window, and the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("turns", type=int, nargs="?", default=TURNS, help=f"calls, each with a result ({TURNS:,})")
    parser.add_argument("--durability", choices=("sync", "off"), default="off", help="of the workspace (off)")
    given = parser.parse_args()
    default_counter().count("load the vocabulary")
    for size in SIZES:
        costs = asyncio.run(run(given.turns, size, given.durability))
        print(f"window {size:,}: median us, mean us, seconds, MB")
        for number, cost in enumerate(costs, 1):
            print(f"{number * STEP:>12,}" + "".join(f"{value:12,.1f}" for value in cost))
        ratios = [last / first for first, last in zip(costs[0], costs[-1], strict=True)]
        print(f"{'last / first':>12}" + "".join(f"{ratio:12.2f}" for ratio in ratios))


if __name__ == "__main__":
    main()
