"""What is done before a model call follows from what is new, not from how long the session is: told without a clock."""

import sys
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

import pytest

from buoyline import ContextConfig, ContextWindow, MemoryWorkspace

MORE_THAN_EVER = 10_000_000


def turn(number: int) -> list[dict[str, Any]]:
    call = {"id": f"c{number:05}", "type": "function", "function": {"name": "run", "arguments": '{"command": "make"}'}}
    return [
        {"role": "user", "content": "Build the next part."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number:05}", "content": "The part was built.\n"},
    ]


async def feed(window: ContextWindow, number: int) -> None:
    for message in turn(number):
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


@pytest.mark.parametrize("offloader", [MemoryWorkspace, lambda: None], ids=["memory", "none"])
async def test_a_turn_costs_the_same_however_many_were_before(offloader: Callable[[], MemoryWorkspace | None]) -> None:
    window = ContextWindow(session_id="s1", offloader=offloader(), size=MORE_THAN_EVER, config=ContextConfig())
    counts: list[int] = []
    for number in range(700):
        if number in {50, 690}:
            counts.append(await instructions(lambda number=number: feed(window, number)))  # type: ignore[misc]
        else:
            await feed(window, number)

    assert window.added == 2_100
    assert counts[1] <= counts[0] * 1.02
