"""A process that ends between any two steps of a window, and another one that goes on exactly there."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mortal_workspace import WINDOW_STEPS, Killed, Mortal
from thirds import each_of
from window_forms import FORMS, NAMES, Form, picture, spelled, words

from buoyline import ContextConfig, ContextWindow, LocalWorkspace
from buoyline.maintenance.verify import verify
from buoyline.window import ContextCompressed, Event, ResultOffloaded

FEW = 9
"""One step of so many, and each of them in the slow tests: to live once takes a third of a second."""

CONFIG = ContextConfig(tool_result_limit=300, preview_tokens=200, max_images=1)


def conversation(form: Form, turns: int) -> list[tuple[Any, bool]]:
    """Return messages, and which of them are pinned."""
    said: list[tuple[Any, bool]] = [(form.user("Find the deepest buoy."), True)]
    for turn in range(turns):
        calls = [f"c{turn}", f"d{turn}"]
        pictures = [picture(turn), picture(turn + 50)] if turn % 2 else []
        said += [
            (form.user(f"{turn}: {words(150)}", *pictures), False),
            (form.calling(*calls, thinking="Both."), False),
            *((message, False) for message in form.answering({calls[0]: [words(250)], calls[1]: ["ok"]})),
        ]
    return said


class Run:
    """Feeds a conversation to a window, and knows what it has handed out."""

    def __init__(self, window: ContextWindow, said: list[tuple[Any, bool]], form: Form) -> None:
        self.window, self.said, self.form = window, said, form
        self.shown: list[str] = []
        self.added, self.first = 0, 0

    async def go_on(self) -> None:
        for message, is_pinned in self.said[self.window.added :]:
            await self.window.add(message, pinned=is_pinned)
            if self.window.added % 2:
                await self._prepare()
            if self.window.added == 9:
                self.window.request_compression("the depth")
        await self._prepare()
        await self.window.save()

    async def _prepare(self) -> None:
        self.shown = spelled(await self.window.prepare())
        self.added, self.first = self.window.added, self.window._context.whole.messages.first
        await asyncio.sleep(0.001)


def opened(workspace: LocalWorkspace, form: Form, on_event: Callable[[Event], None] | None = None) -> ContextWindow:
    return ContextWindow(
        session_id="s1", offloader=workspace, size=5_000, config=CONFIG, dialect=form.name, on_event=on_event
    )


def alike(found: Any, message: Any) -> bool:
    """Tell whether *found* is *message*, or what stands for it where parts of it have left."""
    return spelled([found]) == spelled([message]) or any(mark in str(found) for mark in ("offloaded", "[image: "))


async def end_at(workdir: Path, form: Form, at: int, *, after: bool) -> int:
    """Run until step *at*, go on in another process, and check both; return how many steps there were."""
    said = conversation(form, 7)
    workspace = Mortal(workdir, at, after=after, names=WINDOW_STEPS)
    run = Run(opened(workspace, form), said, form)
    try:
        await run.go_on()
    except Killed:
        pass
    finally:
        await workspace.close()
    async with LocalWorkspace(workdir, durability="off") as again:
        if (workdir / "sessions/s1/window.jsonl").exists():
            window = await ContextWindow.resume(again, "s1")
            check_resumed(window, run)
        else:
            assert run.added == 0
            window = opened(again, form)
        other = Run(window, said, form)
        await other.go_on()
        await check_whole(again, window, said)
    return workspace.steps


def check_resumed(window: ContextWindow, run: Run) -> None:
    """What was handed out is there again and looks the same, until a compression or pictures that are too many."""
    assert run.added <= window.added <= len(run.said)
    first, shown = window._context.whole.messages.first, spelled(window.messages)
    assert first >= run.first
    if first == run.first and "".join(shown).count("[image: ") == "".join(run.shown).count("[image: "):
        assert shown[: len(run.shown)] == run.shown


async def check_whole(workspace: LocalWorkspace, window: ContextWindow, said: list[tuple[Any, bool]]) -> None:
    first = window._context.whole.messages.first
    stored = [message for _, message in await workspace.load_messages("s1", 0, first)] if first else []
    kept = [entry.native for entry in window._context.whole.messages]
    assert len(stored) + len(kept) == len(said)
    assert all(alike(found, message) for found, (message, _) in zip([*stored, *kept], said, strict=True))
    assert window._context.whole.prefix.images + window._context.whole.messages.images <= 1
    summaries = [line["messages"] for line in await workspace.load_summaries("s1")]
    assert [start for start, _ in summaries] == [0, *(end for _, end in summaries[:-1])][: len(summaries)]
    assert [found for found in verify(workspace).findings if found.severity != "note"] == []
    resumed = await ContextWindow.resume(workspace, "s1")
    assert spelled(resumed.messages) == spelled(window.messages)


@pytest.mark.parametrize("form", FORMS, ids=NAMES)
async def test_the_session_that_is_killed_does_all_that_a_window_can_do(tmp_path: Path, form: Form) -> None:
    events: list[Event] = []
    async with LocalWorkspace(tmp_path, durability="off") as workspace:
        run = Run(opened(workspace, form, events.append), conversation(form, 7), form)
        await run.go_on()
    assert any(isinstance(event, ContextCompressed) for event in events)
    offloaded = [event for event in events if isinstance(event, ResultOffloaded)]
    assert {event.stub.startswith("[image: ") for event in offloaded} == {True, False}


@each_of(FEW)
@pytest.mark.parametrize("form", FORMS, ids=NAMES)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_another_process_goes_on_wherever_the_first_was_killed(
    tmp_path: Path, form: Form, first: int, *, after: bool
) -> None:
    steps = await end_at(tmp_path / "whole", form, 10_000, after=after)
    assert steps > 35
    # What happens after a step is what happens before the next: together the four cases end at each of them.
    for at in range(1 + 2 * after + FORMS.index(form), steps + 1, 4)[first - 1 :: FEW]:
        await end_at(tmp_path / str(at), form, at, after=after)


LIVED = """
import asyncio, json, sys
sys.path.insert(0, {tests!r})
from test_window_kills import CONFIG, FORMS, LocalWorkspace, ContextWindow, Run, conversation, opened

async def main():
    form = FORMS[{form}]
    workspace = LocalWorkspace(sys.argv[1], durability="off")
    try:
        window = await ContextWindow.resume(workspace, "s1")
    except LookupError:
        window = opened(workspace, form)
    said = conversation(form, 8)
    for message, pinned in said[window.added:]:
        await window.add(message, pinned=pinned)
        prepared = await window.prepare()
        print(json.dumps([window.added, window._context.whole.messages.first, len(prepared)]), flush=True)
        await asyncio.sleep(0)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    "number",
    [pytest.param(number, id=name, marks=[pytest.mark.slow] * bool(number)) for number, name in enumerate(NAMES)],
)
async def test_processes_that_are_really_killed_lose_nothing_that_was_handed_out(tmp_path: Path, number: int) -> None:
    script = LIVED.format(tests=str(Path(__file__).parent), form=number)
    form, acknowledged = FORMS[number], 0
    said = conversation(form, 8)
    for lines in (5, 40):
        command = [sys.executable, "-c", script, str(tmp_path / "w")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _, line in zip(range(lines), process.stdout, strict=False):
                acknowledged, first, _ = json.loads(line)
            process.send_signal(signal.SIGKILL)
        async with LocalWorkspace(tmp_path / "w") as workspace:
            state = await workspace.load_window("s1")
            assert state.first >= first
            assert state.first + len(state.messages) - len(state.head) >= acknowledged
            assert [found for found in verify(workspace).findings if found.severity == "damage"] == []
    async with LocalWorkspace(tmp_path / "w", durability="off") as workspace:
        window = await ContextWindow.resume(workspace, "s1")
        assert window.added == len(said)
        await check_whole(workspace, window, said)
