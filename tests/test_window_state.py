"""The context of a window as a value, and the one way to change it."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buoyline import ContextWindow, LocalWorkspace, MemoryWorkspace
from buoyline.errors import StorageError
from buoyline.tokens import HeuristicCounter
from buoyline.window.context import Change, Extend
from buoyline.window.context import Replace as Rewrite
from buoyline.window.state import Entry, Messages, State, entry_of

COUNTER = HeuristicCounter()


def entry(number: int, role: str = "user", *, pinned: bool = False) -> Entry:
    return entry_of({"role": role, "content": "word " * number}, number, COUNTER, dialect="openai", pinned=pinned)


entries = st.builds(entry, st.integers(0, 9), st.sampled_from(["user", "assistant", "system"]), pinned=st.booleans())


@given(st.lists(entries, max_size=6), st.data())
def test_totals_that_are_carried_along_are_those_of_a_walk_over_all_messages(
    first: list[Entry], data: st.DataObject
) -> None:
    messages, expected = Messages.of(first, 7), list(first)
    start = 7
    for _ in range(data.draw(st.integers(0, 6))):
        match data.draw(st.sampled_from(["extend", "change", "drop", "take back"])):
            case "change" if expected:
                at, other = data.draw(st.integers(0, len(expected) - 1)), data.draw(entries)
                messages, expected[at] = messages.changed({at: other}), other
            case "drop":
                count = data.draw(st.integers(0, len(expected)))
                messages, expected, start = messages.without(count), expected[count:], start + count
            case "take back":
                count = data.draw(st.integers(0, len(expected) + 1))
                messages, expected = messages.until(count), expected[:count]
            case _:
                new = data.draw(st.lists(entries, max_size=3))
                messages, expected = messages.extended(new), [*expected, *new]

    assert list(messages) == expected
    assert messages.tokens == sum(one.tokens for one in expected)
    assert messages.staying_tokens == sum(one.tokens for one in expected if one.stays)
    assert messages.answers == sum(one.message.role == "assistant" for one in expected)
    assert messages.shown == [one.native for one in expected]
    assert messages.end == start + len(expected)


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from("epcdt"), st.lists(entries, max_size=3)), max_size=12))
def test_messages_of_an_earlier_time_never_see_later_ones(steps: list[tuple[int, str, list[Entry]]]) -> None:
    taken, expected = [Messages()], [list[Entry]()]
    pool = [entry(number) for number in range(3)]
    for origin, change, new in steps:
        base, known = taken[origin % len(taken)], expected[origin % len(taken)]
        match change:
            case "c" if known and new:
                taken.append(base.changed({0: new[0]}))
                expected.append([new[0], *known[1:]])
            case "d":
                taken.append(base.without(len(known) // 2))
                expected.append(known[len(known) // 2 :])
            case "t":
                taken.append(base.until(len(known) // 2))
                expected.append(known[: len(known) // 2])
            case "p":  # messages that another branch may have appended already
                taken.append(base.extended(pool[: len(new)]))
                expected.append([*known, *pool[: len(new)]])
            case _:
                taken.append(base.extended(new))
                expected.append([*known, *new])
    for messages, known in zip(taken, expected, strict=True):
        assert [id(one) for one in messages] == [id(one) for one in known]
        assert messages.shown == [one.native for one in known]
        assert messages.tokens == sum(one.tokens for one in known)
        assert messages[-2:] == known[-2:]


class Refusing(MemoryWorkspace):
    """Refuses to write windows while it is told to."""

    refuses = False

    async def extend_window(self, *args: Any, **options: Any) -> None:
        if self.refuses:
            raise StorageError("window.jsonl", "no space left on device")
        await super().extend_window(*args, **options)


async def test_a_change_that_cannot_be_written_leaves_the_very_same_state() -> None:
    workspace = Refusing()
    window = ContextWindow(session_id="s1", offloader=workspace)
    await window.add({"role": "user", "content": "one"})
    await window.prepare()
    await window.add({"role": "tool", "tool_call_id": "c1", "content": "row\n" * 20_000})
    context = window._context
    state, inbox = context.state, context.inbox
    workspace.refuses = True
    with pytest.raises(StorageError):
        await window.prepare()

    assert context.state is state
    assert context.inbox is inbox
    assert context.outbox == []
    workspace.refuses = False
    assert "[Tool result offloaded: " in str((await window.prepare())[-1])


def large_results(count: int) -> list[dict[str, Any]]:
    ids = [f"c{number}" for number in range(count)]
    calls = [{"id": name, "type": "function", "function": {"name": "list", "arguments": "{}"}} for name in ids]
    results = [{"role": "tool", "tool_call_id": name, "content": f"{name}\n" * 20_000} for name in ids]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


def journal_of(workspace: LocalWorkspace) -> list[str]:
    lines = (workspace.workdir / "sessions" / "s1" / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["op"] for line in lines]


async def test_the_journal_has_each_stub_behind_its_result(tmp_path: Path) -> None:
    async with LocalWorkspace(tmp_path) as workspace:
        window = ContextWindow(session_id="s1", offloader=workspace)
        await window.prepare()
        known = len(journal_of(workspace))
        for message in large_results(3):
            await window.add(message)
        await window.prepare()

        assert journal_of(workspace)[known:] == ["result", "stub"] * 3 + ["lines"]


async def test_a_stub_is_recorded_with_its_message_or_not_at_all(tmp_path: Path) -> None:
    class Refuses(LocalWorkspace):
        refuses = True

        async def extend_window(self, *args: Any, **options: Any) -> None:
            if self.refuses and args[1]:
                raise StorageError("window.jsonl", "no space left on device")
            await super().extend_window(*args, **options)

    async with Refuses(tmp_path) as workspace:
        window = ContextWindow(session_id="s1", offloader=workspace)
        for message in large_results(1):
            await window.add(message)
        with pytest.raises(StorageError):
            await window.prepare()
        assert journal_of(workspace)[-1] == "result"

        workspace.refuses = False
        (_, shown) = await window.prepare()
        assert journal_of(workspace)[-3:] == ["result", "stub", "lines"]
        assert await workspace.load_stubs("s1", [shown["content"]])

        resumed = await ContextWindow.resume(workspace, "s1")
        assert await resumed.prepare() == window.messages
        assert resumed._engine.results.stubs.keys() == {shown["content"]}


class Slow(MemoryWorkspace):
    """Waits before it writes to a window, for as long as it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.may_write = asyncio.Event()
        self.may_write.set()

    async def extend_window(self, *args: Any, **options: Any) -> None:
        await self.may_write.wait()
        await super().extend_window(*args, **options)


async def test_changes_that_come_at_once_are_built_on_each_other() -> None:
    workspace = Slow()
    window = ContextWindow(session_id="s1", offloader=workspace)
    await window.prepare()
    context = window._context
    workspace.may_write.clear()

    def grow(now: State) -> Change:
        new = [entry(len(now.messages))]
        state = now.extended(new)
        return Change(state, Extend(new, state.pins))

    first = asyncio.create_task(context.commit(grow))
    await asyncio.sleep(0)
    second = asyncio.create_task(context.commit(lambda now: Change(replace(now, archived_until=1))))
    third = asyncio.create_task(context.commit(grow))
    workspace.may_write.set()

    assert all(await asyncio.gather(first, second, third))
    assert [one.index for one in context.state.messages] == [0, 1]
    assert context.state.archived_until == 1


async def test_a_change_that_no_longer_applies_is_not_made() -> None:
    window = ContextWindow(session_id="s1", offloader=MemoryWorkspace())
    await window.prepare()
    state = window._context.state

    assert not await window._context.commit(lambda _: None)
    assert window._context.state is state


async def test_a_cancelled_change_is_made_on_disk_and_in_memory() -> None:
    workspace = Slow()
    window = ContextWindow(session_id="s1", offloader=workspace)
    await window.prepare()
    await window.add({"role": "user", "content": "one"})
    workspace.may_write.clear()
    saving = asyncio.create_task(window.save())
    while not window._context._lock.is_held:
        await asyncio.sleep(0)
    saving.cancel()
    await asyncio.sleep(0)
    await window.add({"role": "user", "content": "two"})
    workspace.may_write.set()
    with pytest.raises(asyncio.CancelledError):
        await saving

    assert len((await workspace.load_window("s1")).messages) == len(window._context.state.messages) == 1
    assert [one.native["content"] for one in window._context.inbox] == ["two"]


async def test_a_context_that_is_written_whole_is_what_resumes() -> None:
    workspace = MemoryWorkspace()
    window = ContextWindow(session_id="s1", offloader=workspace)
    for number in range(3):
        await window.add({"role": "user", "content": str(number)}, pinned=number == 1)
    await window.prepare()
    await window._context.commit(lambda now: Change(now, Rewrite(now)))
    resumed = await ContextWindow.resume(workspace, "s1")

    assert resumed.messages == window.messages
    assert resumed._context.state.pins == {1}
