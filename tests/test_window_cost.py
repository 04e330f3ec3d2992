"""What is done before a model call follows from what is new, not from how long the session is: told without a clock."""

import sys
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

import pytest
from window_lives import calling, result, user

from buoyline.window import ContextWindow, turns
from buoyline.workspace.workspace import MemoryWorkspace


async def feed(window: ContextWindow, number: int) -> None:
    call_id = f"c{number:05}"
    for message in (user("Build the next part."), calling(call_id), result(call_id, "The part was built.\n")):
        await window.add(message)
    await window.prepare()


async def instructions(work: Callable[[], Awaitable[None]]) -> int:
    """Return how many instructions the interpreter executes in our own modules until *work* is done."""
    counted = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal counted
        if "buoyline" not in frame.f_globals.get("__name__", ""):
            return None
        frame.f_trace_opcodes = True
        counted += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        await work()
    finally:
        sys.settrace(before)
    return counted


class Here:
    """Does work in the thread that asks for it, where it can be traced."""

    def submit(self, work: Callable[[], None]) -> None:
        work()


async def test_a_turn_costs_the_same_however_many_were_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_pool_of", lambda _: Here())
    window = await ContextWindow.open(MemoryWorkspace(), "s1", size=10_000_000)
    counts: list[int] = []
    for number in range(700):
        if number in {50, 690}:
            counts.append(await instructions(lambda number=number: feed(window, number)))  # type: ignore[misc]
        else:
            await feed(window, number)
    assert window.added == 2_100
    assert counts[1] <= counts[0] * 1.02
