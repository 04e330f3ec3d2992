"""Run ``buoyline`` as a shell does: its exit status, and what it writes to standard output and standard error."""

import subprocess
import sys
from contextlib import chdir, nullcontext
from pathlib import Path

from click.testing import CliRunner

from buoyline import ContextConfig, ContextWindow
from buoyline.cli import main

CONFIG = ContextConfig(tool_result_limit=400, preview_tokens=200)


def buoyline(*arguments: object, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """Run a command in this process: a new one takes half a second to start."""
    given = [str(argument) for argument in arguments]
    with chdir(cwd) if cwd is not None else nullcontext():
        done = CliRunner(catch_exceptions=False).invoke(main, given)
    return subprocess.CompletedProcess(given, done.exit_code, done.stdout, done.stderr)


def buoyline_process(*arguments: object, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """Run a command in a process of its own: one test for each command shows that it works there as well."""
    command = [sys.executable, "-m", "buoyline", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, encoding="utf-8", check=False, stdin=subprocess.DEVNULL, cwd=cwd
    )


async def written_session(workdir: Path, session_id: str = "s1") -> None:
    """Let a window write a session: a system message, 20 questions with a call, its large result and an answer."""
    async with await ContextWindow.open(workdir, session_id, size=6_000, config=CONFIG) as window:
        await window.add({"role": "system", "content": "Answer in one line."})
        for number in range(20):
            function = {"name": "read", "arguments": f'{{"chart": {number}}}'}
            call = {"id": f"c{number}", "type": "function", "function": function}
            rows = "".join(f"row {row} of chart {number}: {row * 7} m\n" for row in range(150))
            await window.add({"role": "user", "content": f"question {number}: which depth has row 3? {'x ' * 60}"})
            await window.prepare()
            await window.add({"role": "assistant", "content": None, "tool_calls": [call]})
            await window.add({"role": "tool", "tool_call_id": f"c{number}", "content": rows})
            await window.prepare()
            await window.add({"role": "assistant", "content": f"Row 3 of chart {number} has 21 m."})
        await window.add({"role": "assistant", "content": "done"})
