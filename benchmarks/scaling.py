"""Ten thousand messages against one thousand: time and bytes written, through the whole live path.

Usage: ``python benchmarks/scaling.py [--rounds N]``. It prints the ratio for each window size; a linear cost gives 10.
Messages that are still in the context are not archived yet and have cost less. So if a window holds a good part of the
thousand, the ratio is larger although nothing grows faster. Bytes are those that the process handed to the system
(``/proc/self/io``), so it needs Linux.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from buoyline import ContextConfig, ContextWindow, LocalWorkspace
from buoyline.tokens import default_counter

ROUNDS = 3


def conversation(count: int) -> list[dict[str, Any]]:
    """Return *count* messages of one size: a question, a call, its result, an answer, again and again."""
    messages: list[dict[str, Any]] = []
    while len(messages) < count:
        n = f"{len(messages):06}"
        function = {"name": "read", "arguments": f'{{"path": "src/module_{n}.py", "line": {n[-2:]}}}'}
        call = {"id": f"c{n}", "type": "function", "function": function}
        messages += [
            {"role": "user", "content": f"Question {n}: what does function_{n} in module_{n} return for {n}?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": f"def function_{n}(x):\n    return x + {n}\n" * 5},
            {"role": "assistant", "content": f"It returns twice {n}, since function_{n} adds {n}."},
        ]
    return messages[:count]


def bytes_written() -> int:
    """Return how many bytes this process has handed to the system."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines())
    return int(fields["wchar"])


async def run(count: int, size: int, durability: str) -> tuple[float, int]:
    """Feed *count* messages and return seconds and bytes written."""
    messages = conversation(count)
    with tempfile.TemporaryDirectory() as workdir:
        written, started = bytes_written(), time.perf_counter()
        async with LocalWorkspace(workdir, durability=durability) as workspace:
            window = ContextWindow(session_id="s1", offloader=workspace, size=size, config=ContextConfig())
            for message in messages:
                if message["role"] == "assistant":
                    await window.prepare()
                await window.add(message)
            await window.prepare()
        return time.perf_counter() - started, bytes_written() - written


def main() -> None:
    """Print a line for each window size and durability."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"runs of each size ({ROUNDS})")
    rounds: int = parser.parse_args().rounds
    default_counter().count("load the vocabulary")
    for size in (2_000, 8_000, 32_000):
        for durability in ("off", "fsync"):
            small = [asyncio.run(run(1_000, size, durability)) for _ in range(rounds)]
            large = [asyncio.run(run(10_000, size, durability)) for _ in range(1 if durability == "fsync" else rounds)]
            seconds = [statistics.median(cost[0] for cost in costs) for costs in (small, large)]
            written = [statistics.median(cost[1] for cost in costs) for costs in (small, large)]
            print(
                f"window {size:>7,} {durability:>5}: 1,000 messages {seconds[0]:6.2f} s {written[0] / 1e6:7.1f} MB, "
                f"10,000 messages {seconds[1]:6.2f} s {written[1] / 1e6:7.1f} MB, "
                f"ratio time {seconds[1] / seconds[0]:5.1f}, bytes {written[1] / written[0]:5.1f}"
            )


if __name__ == "__main__":
    main()
