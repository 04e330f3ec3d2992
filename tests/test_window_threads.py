"""One window in several threads, each with an event loop of its own, and in tasks that a listener starts."""

import asyncio
import threading
from collections import Counter
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from buoyline import ContextWindow, MemoryWorkspace
from buoyline.errors import BuoylineError
from buoyline.window.tasks import SharedLock


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def contents_of(window: ContextWindow, workspace: MemoryWorkspace) -> list[str]:
    """Return the first words of all messages that the session has."""
    messages = window._context.whole.messages
    archived = await workspace.load_messages("s1", 0, messages.first) if messages.first else []
    natives = [*(message for _, message in archived), *(entry.native for entry in messages)]
    return [message["content"].partition(" ")[0] for message in natives]


async def test_no_message_that_threads_add_is_lost_and_none_is_there_twice() -> None:
    workspace, added, errors = MemoryWorkspace(), list[str](), list[Exception]()
    window, numbers = ContextWindow(offloader=workspace, session_id="s1", size=3_000), count()

    def work() -> None:
        for _ in range(15):
            name = f"m{next(numbers)}"
            try:
                asyncio.run(window.add(user(f"{name} {'word ' * 60}")))
                added.append(name)
                asyncio.run(window.prepare())
            except (BuoylineError, RuntimeError) as error:
                errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    await window.prepare()

    assert Counter(await contents_of(window, workspace)) == Counter(added)
    assert not errors


async def test_a_call_waits_for_one_of_another_event_loop() -> None:
    has_begun, may_end, at_once = threading.Event(), threading.Event(), Counter[str]()

    async def slow(_tool: str, _tokens: int, **_: Any) -> bool:
        at_once["now"] += 1
        at_once["most"] = max(at_once["most"], at_once["now"])
        has_begun.set()
        await asyncio.to_thread(may_end.wait, 2)
        at_once["now"] -= 1
        return True

    workspace = MemoryWorkspace()
    window = ContextWindow(offloader=workspace, session_id="s1", size=100_000, should_offload=slow)
    await window.add({"role": "tool", "tool_call_id": "c1", "content": "a row\n" * 9_000})
    first = threading.Thread(target=lambda: asyncio.run(window.prepare()))
    first.start()
    await asyncio.to_thread(has_begun.wait)
    second = threading.Thread(target=lambda: asyncio.run(window.prepare()))
    second.start()
    await asyncio.sleep(0.3)
    may_end.set()
    for thread in (first, second):
        await asyncio.to_thread(thread.join)

    assert at_once["most"] == 1
    assert window.added == 1


@dataclass
class Held:
    """A result about which the predicate is asked until it may answer: so long the window's call is at work."""

    has_begun: threading.Event = field(default_factory=threading.Event)
    may_end: threading.Event = field(default_factory=threading.Event)

    async def __call__(self, *_: Any, **__: Any) -> bool:
        self.has_begun.set()
        await asyncio.to_thread(self.may_end.wait, 5)
        return True


async def test_a_call_that_is_cancelled_while_it_waits_for_another_event_loop_leaves_the_window_usable() -> None:
    held, workspace = Held(), MemoryWorkspace()
    window = ContextWindow(offloader=workspace, session_id="s1", should_offload=held)
    await window.add({"role": "tool", "tool_call_id": "c1", "content": "a row\n" * 9_000})
    first = threading.Thread(target=lambda: asyncio.run(window.prepare()))
    first.start()
    await asyncio.to_thread(held.has_begun.wait)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(window.save(), 0.02)
    held.may_end.set()
    await asyncio.to_thread(first.join)
    await window.add(user("m1"))
    await asyncio.wait_for(window.save(), 5)
    assert len((await workspace.load_window("s1")).messages) == 2


def test_a_lock_whose_holder_is_in_a_closed_event_loop_is_free() -> None:
    lock, loop, holders = SharedLock(), asyncio.new_event_loop(), list[AbstractAsyncContextManager[None]]()

    async def begin() -> None:
        holders.append(lock.held())
        await holders[0].__aenter__()

    async def go_on() -> None:
        async with asyncio.timeout(5), lock.held():
            await holders[0].__aexit__(None, None, None)
            assert lock.is_held, "only its holder may release it"

    loop.run_until_complete(begin())
    assert lock.is_held
    loop.close()
    asyncio.run(go_on())
    assert not lock.is_held
