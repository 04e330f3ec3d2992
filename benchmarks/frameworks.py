"""One scripted agent with verbose tools, side by side: in the frameworks alone, and with buoyline.

Usage: ``python benchmarks/frameworks.py [--turns 500] [--size 64000] [--kills 3] [--only NAME …]``. Linux only.

Each side runs in a process of its own, with the same calls, the same outputs, the same replacement for a model's
summary (the newest details, as many as fit), and a model that refuses requests that exceed its window. It prints for
each side:

- model calls, those for summaries, and refusals;
- input tokens of the largest request and of all together, counted exactly for ``o200k_base``;
- seconds without those of the scripted model, the seconds of processor time among them, bytes written, and bytes on
  disk at the end;
- three shares of the details that are planted in the session: in the last context; still reached by the agent, from
  there or with its own search; in some file, where a shell finds them;
- for runs that are killed at a random turn, the share of the details from finished turns that no file holds.
"""

import argparse
import asyncio
import importlib
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from side_by_side.measuring import Meter, Side, disk_bytes, lost, reached, written_bytes
from side_by_side.script import Script

from buoyline.tokens import default_counter

SIDES = {
    "AgentScope": "side_by_side.in_agentscope:AgentScopeSide",
    "AgentScope + buoyline": "side_by_side.in_agentscope_with_buoyline:AgentScopeWithBuoyline",
    "Strands": "side_by_side.in_strands:StrandsSide",
    "Strands, session": "side_by_side.in_strands:StrandsSessionSide",
    "Strands + buoyline": "side_by_side.in_strands_with_buoyline:StrandsWithBuoyline",
}
"""The class of each side. A side with buoyline is a subclass of the side without it."""

ROWS = {
    "model calls": lambda found: f"{found['calls']:,}",
    "of these summaries": lambda found: f"{found['summaries']:,}",
    "refused requests": lambda found: f"{found['refused']:,}",
    "peak input tokens": lambda found: f"{found['peak_tokens']:,}",
    "total input tokens": lambda found: f"{found['input_tokens']:,}",
    "seconds": lambda found: f"{found['seconds']:.1f}",
    "of these processor": lambda found: f"{found['busy_seconds']:.1f}",
    "MB written": lambda found: f"{found['written'] / 1e6:.1f}",
    "MB on disk": lambda found: f"{found['disk'] / 1e6:.1f}",
    "details in context": lambda found: f"{found['shown']:.1%}",
    "details reached": lambda found: f"{found['reached']:.1%}",
    "details on disk": lambda found: f"{found['on_disk']:.1%}",
    "lost at a kill": lambda found: " ".join(f"{share:.0%}" for share in found["lost"]) or "-",
}


def made(name: str, script: Script, meter: Meter, workdir: Path, die_at: int | None) -> Side:
    """Return the side *name*."""
    module, _, kind = SIDES[name].partition(":")
    side: Side = getattr(importlib.import_module(module), kind)(script, meter, workdir, die_at)
    return side


async def measured(name: str, turns: int, size: int, workdir: Path, die_at: int | None) -> dict[str, Any]:
    """Run one side in this process, and return its figures."""
    default_counter().count("load the vocabulary")
    script, meter = Script(turns), Meter(size)
    side = made(name, script, meter, workdir, die_at)
    written, began, busy = written_bytes(), time.perf_counter(), time.process_time()
    await side.run()
    seconds, busy, written = time.perf_counter() - began, time.process_time() - busy, written_bytes() - written
    shown, found = await reached(side, script)
    return {
        **{key: value for key, value in asdict(meter).items() if not key.startswith("_")},
        "seconds": seconds - meter.model_seconds,
        "busy_seconds": busy - meter.model_seconds,
        "written": written,
        "disk": disk_bytes(workdir),
        "shown": shown,
        "reached": found,
        "on_disk": 1 - lost(workdir, script.details),
    }


def in_process(name: str, options: argparse.Namespace, workdir: Path, die_at: int | None) -> dict[str, Any] | None:
    """Run one side in a process of its own; None if that process was killed at *die_at*."""
    command = [sys.executable, __file__, "--turns", options.turns, "--size", options.size, "--side", name]
    command += ["--workdir", workdir, *(() if die_at is None else ("--die-at", die_at))]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)  # noqa: S603 - itself
    if done.returncode == 0:
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found
    if done.returncode == -signal.SIGKILL and die_at is not None:
        return None
    raise RuntimeError(f"{name} ended with {done.returncode}: {done.stderr[-4_000:]}")


def compared(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return all figures of one side."""
    script = Script(options.turns)
    with tempfile.TemporaryDirectory() as workdir:
        found = in_process(name, options, Path(workdir), None)
    if found is None:
        raise RuntimeError(f"{name} was killed, but not by this script")
    found["lost"] = []
    chance = random.Random("kills")  # noqa: S311 - must be the same in each run
    for _ in range(options.kills):
        die_at = chance.randrange(options.turns // 10, options.turns)
        with tempfile.TemporaryDirectory() as workdir:
            in_process(name, options, Path(workdir), die_at)
            finished = [detail for detail in script.details if detail.turn < die_at]
            found["lost"].append(lost(Path(workdir), finished))
    return found


def main() -> None:
    """Print a column for each side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=500, help="tool calls of the session")
    parser.add_argument("--size", type=int, default=64_000, help="tokens of the window")
    parser.add_argument("--kills", type=int, default=3, help="runs of each side that are killed")
    parser.add_argument("--only", nargs="*", choices=list(SIDES), default=list(SIDES), help="sides to run")
    parser.add_argument("--side", choices=list(SIDES), help=argparse.SUPPRESS)
    parser.add_argument("--workdir", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--die-at", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        found = asyncio.run(measured(options.side, options.turns, options.size, options.workdir, options.die_at))
        print(json.dumps(found))
        return
    script = Script(options.turns)
    sizes = [len(script.output(script.command(turn))) for turn in range(options.turns)]
    print(
        f"{options.turns:,} turns, {len(script.details):,} details, window {options.size:,} tokens; outputs of "
        f"{statistics.median(sizes):,.0f} characters (median), {max(sizes):,} (largest), {sum(sizes):,} (all)"
    )
    columns = {name: compared(name, options) for name in options.only}
    print(f"{'':20}" + "".join(f"{name:>22}" for name in columns))
    for title, spelled in ROWS.items():
        print(f"{title:20}" + "".join(f"{spelled(found):>22}" for found in columns.values()))


if __name__ == "__main__":
    main()
