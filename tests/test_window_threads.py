"""Calls of one window in several threads, in tasks that a listener starts, and by functions that a call awaits."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from buoyline import ContextWindow, MemoryWorkspace
from buoyline.compression import SummaryRequest
from buoyline.errors import BuoylineError
from buoyline.management import ContextManagement, register_manager
from buoyline.window import Event
from buoyline.window.call_lock import CallLock
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


async def test_a_task_that_a_listener_starts_waits_for_other_calls() -> None:
    tasks, has_begun, at_once = list[asyncio.Task[Any]](), asyncio.Event(), Counter[str]()

    async def slow(_tool: str, _tokens: int, *, candidate: Any) -> bool:
        at_once["now"] += 1
        at_once["most"] = max(at_once["most"], at_once["now"])
        if candidate.message:
            has_begun.set()
            await asyncio.sleep(0.05)
        at_once["now"] -= 1
        return True

    async def prepare_later() -> None:
        await has_begun.wait()
        await window.prepare()

    window = ContextWindow(
        offloader=MemoryWorkspace(),
        session_id="s1",
        should_offload=slow,
        on_event=lambda _: tasks.append(asyncio.create_task(prepare_later())),
    )
    for call_id in ("c1", "c2"):
        await window.add({"role": "tool", "tool_call_id": call_id, "content": "a row\n" * 9_000})
        await window.prepare()
    await asyncio.gather(*tasks)

    assert at_once["most"] == 1


async def test_no_message_is_lost_if_a_listener_starts_compactions() -> None:
    workspace, tasks, names = MemoryWorkspace(), list[asyncio.Task[Any]](), [f"m{number}" for number in range(180)]

    async def compress_later() -> None:
        await asyncio.sleep(0.002)
        await window.compress(force=True)

    def listen(_: Event) -> None:
        if len(tasks) < 30:
            tasks.append(asyncio.create_task(compress_later()))

    window = ContextWindow(offloader=workspace, session_id="s1", size=3_000, on_event=listen)
    for name in names:
        await window.add(user(f"{name} {'word ' * 60}"))
        await asyncio.sleep(0.001)
        await window.prepare()
    await asyncio.gather(*tasks)

    assert await contents_of(window, workspace) == names


async def once(window: ContextWindow, method: str) -> None:
    await (window.compress(force=True) if method == "compress" else getattr(window, method)())


async def in_a_task(window: ContextWindow, method: str) -> None:
    await asyncio.wait_for(once(window, method), 20)


async def at_once(window: ContextWindow, method: str) -> None:
    await asyncio.gather(*(once(window, method) for _ in range(3)))


async def in_another_loop(window: ContextWindow, method: str) -> None:
    await asyncio.to_thread(lambda: asyncio.run(once(window, method)))


@dataclass
class Caller:
    """Functions of a user that call the window while a call awaits them; those that their own call awaits do not."""

    window: ContextWindow | None = None
    call: Callable[[ContextWindow, str], Coroutine[Any, Any, None]] = once
    method: str = ""
    calls: int = 0
    is_calling: bool = False

    async def act(self) -> None:
        if self.window is not None and not self.is_calling:
            self.is_calling = True
            self.calls += 1
            try:
                await self.call(self.window, self.method)
            finally:
                self.is_calling = False

    async def should_offload(self, *_: Any, **__: Any) -> bool:
        await self.act()
        return True

    async def summarize(self, _: SummaryRequest) -> str:
        await self.act()
        return "The user talks."

    async def reduce(self, messages: list[Any]) -> bool:
        await self.act()
        before = len(messages)
        messages[:] = messages[-6:]
        return len(messages) < before


@pytest.mark.parametrize("method", ["save", "prepare", "compress"])
@pytest.mark.parametrize("call", [once, in_a_task, at_once, in_another_loop])
@pytest.mark.parametrize("role", ["should_offload", "summarizer", "manager"])
async def test_a_function_that_a_call_awaits_may_call_the_window_and_no_message_is_lost(
    role: str, call: Callable[..., Any], method: str
) -> None:
    workspace, names, caller = MemoryWorkspace(), [f"m{number}" for number in range(30)], Caller()
    options: dict[str, Any] = {"summarizer": caller.summarize}
    if role == "should_offload":
        options = {"should_offload": caller.should_offload}
    elif role == "manager":
        register_manager("Caller", lambda: caller)
        options = {"management": ContextManagement.read({"type": "Caller"})}
    window = ContextWindow(offloader=workspace, session_id="s1", size=3_000, **options)
    caller.window, caller.call, caller.method = window, call, method
    async with asyncio.timeout(50):
        for name in names:
            message = user(f"{name} {'word ' * 150}")
            if role == "should_offload":
                message = {"role": "tool", "tool_call_id": name, "content": f"{name} {'a row ' * 500}"}
            await window.add(message)
            await window.prepare()
            await asyncio.sleep(0)
    assert caller.calls
    assert window.added == len(names)
    messages = window._context.whole.messages
    if role == "should_offload":
        assert [entry.native["tool_call_id"] for entry in messages] == names[messages.first :]
        assert len(await workspace.load_messages("s1", 0, messages.first)) == messages.first
    else:
        assert await contents_of(window, workspace) == names


async def test_a_task_that_outlives_the_function_that_started_it_waits_like_any_other() -> None:
    tasks, may_save = list[asyncio.Task[Any]](), asyncio.Event()

    async def save_later() -> None:
        await may_save.wait()
        await window.save()

    async def ask(*_: Any, candidate: Any) -> bool:
        if candidate.message == 0:
            tasks.append(asyncio.create_task(save_later()))
        else:
            may_save.set()
            await asyncio.sleep(0.05)
            assert not tasks[0].done()
        return True

    window = ContextWindow(offloader=MemoryWorkspace(), session_id="s1", should_offload=ask)
    for name in ("c1", "c2"):
        await window.add({"role": "tool", "tool_call_id": name, "content": "a row\n" * 9_000})
        await window.prepare()
    await asyncio.wait_for(tasks[0], 5)


async def test_a_task_that_waits_for_a_loan_waits_for_the_call_once_the_loan_has_ended() -> None:
    calls, order = CallLock(), list[str]()

    async def called(name: str) -> None:
        async with calls.held():
            order.append(name)
            await asyncio.sleep(0.01)
            order.append(f"{name} ends")

    async with calls.held():
        async with calls.lent():
            tasks = [asyncio.create_task(called(name)) for name in ("first", "second")]
            while not order:
                await asyncio.sleep(0)
        order.append("the call ends")
    await asyncio.gather(*tasks)
    assert order == ["first", "first ends", "the call ends", "second", "second ends"]
