"""Processes that are killed while a window works, and others that go on: nothing acknowledged is lost or hidden."""

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from window_lives import calling, check_valid, result, said, user

from buoyline import ContextConfig
from buoyline.window import ContextWindow
from buoyline.workspace.workspace import LocalWorkspace

CONFIG = ContextConfig(tool_result_limit=200)
KILLS = 25


def message_of(number: int) -> dict[str, Any]:
    """Return the message of a number; every process makes the same."""
    turn, kind = divmod(number, 4)
    texts = (user(f"question {turn} " + "why " * 20), calling(f"c{turn}"))
    return (*texts, result(f"c{turn}", f"found {turn}\n" * (1 + turn % 7 * 60)), said(f"answer {turn}"))[kind]


async def live(workdir: Path) -> None:
    """Go on where another process stopped, and say what was acknowledged."""
    window = await ContextWindow.open(LocalWorkspace(workdir), "s1", size=3_000, config=CONFIG)
    own = len([entry for entry in window._records.read(range(window.added)) if not entry.ours])
    while True:
        await window.add(message_of(own))
        own += 1
        sys.stdout.write(f"{own}\n")
        sys.stdout.flush()
        if own % 4 != 2:
            await window.prepare()


@pytest.mark.slow
def test_processes_that_are_killed_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    r, acknowledged = random.Random(1), 0  # noqa: S311 - no secret is drawn
    for _ in range(KILLS):
        process = subprocess.Popen([sys.executable, __file__, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(r.random() * 0.4)
        process.send_signal(signal.SIGKILL)
        lines = process.communicate()[0].split("\n")[:-1]
        acknowledged = max([acknowledged, *map(int, lines)])
        asyncio.run(check(tmp_path, acknowledged))
    assert acknowledged > 4 * KILLS


async def check(workdir: Path, acknowledged: int) -> None:
    window = await ContextWindow.open(LocalWorkspace(workdir), "s1")
    log = window._records.read(range(window.added))
    own = [entry for entry in log if not entry.ours]
    assert len(own) >= acknowledged
    for number, entry in enumerate(own):
        expected = message_of(number)
        if entry.native != expected:
            (files,) = entry.stored.values()
            whole = (workdir / "sessions/s1" / files[0].name).read_text()
            assert {**entry.native, "content": whole} == expected
    assert window._order == [*range(window.added)]
    check_valid(await window.prepare())
    transcript = (workdir / "sessions/s1/transcript.md").read_text()[: window._session.state.transcript.length]
    headings = [line for line in transcript.split("\n") if line.startswith("## ")]
    assert [int(line.split()[1]) for line in headings] == [*range(window._context.head.until)]
    for line in (workdir / "sessions/s1/context.jsonl").read_text().splitlines():
        json.loads(line)


if __name__ == "__main__":
    asyncio.run(live(Path(sys.argv[1])))
