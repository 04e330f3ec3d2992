"""What is called from outside may raise at any time: what was done stays done, and all else is as it was."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from thirds import STEP, each_third
from window_forms import FORMS, picture, words

from buoyline import ContextConfig, ContextWindow, LocalWorkspace
from buoyline.window import Event, ResultOffloaded, WindowResumed

FORM = FORMS[0]


class Hook:
    """Raises when told of the n-th event, and takes note of all the others."""

    def __init__(self, at: int) -> None:
        self.at, self.events, self.raised = at, list[Event](), 0

    def __call__(self, event: Event) -> None:
        if len(self.events) + self.raised == self.at:
            self.raised += 1
            raise RuntimeError(type(event).__name__)
        self.events.append(event)


async def session(workdir: Path, hook: Callable[[Event], None]) -> tuple[ContextWindow, list[str]]:
    """Run a whole session, each call again where the hook raises; return the window and what it raised."""
    config = ContextConfig(tool_result_limit=300, preview_tokens=200, max_images=2)
    workspace = LocalWorkspace(workdir, durability="off")
    window = ContextWindow(session_id="s1", offloader=workspace, size=5_000, config=config, on_event=hook)
    raised: list[str] = []

    async def twice(call: Callable[[], Any]) -> None:
        try:
            await call()
        except RuntimeError as error:
            raised.append(f"{error}: {error.__notes__[0]}")
            await call()

    for number in range(8):
        await window.add(FORM.user(f"{number}: {words(120)}", picture(number)))
        await window.add(FORM.calling(f"c{number}", f"d{number}"))
        try:
            await window.add_tool_output(f"c{number}", [words(400)])
        except RuntimeError as error:
            raised.append(f"{error}: {error.__notes__[0]}")
        for message in FORM.answering({f"d{number}": [words(200)]}):
            await window.add(message)
        await twice(window.prepare)
    try:
        await window.recover_from_overflow()
    except RuntimeError as error:
        raised.append(f"{error}: {error.__notes__[0]}")
        await window.prepare()
    return window, raised


@each_third
async def test_whichever_event_a_hook_raises_at_nothing_is_lost_doubled_or_half_done(
    tmp_path: Path, first: int
) -> None:
    told = Hook(-1)
    whole, _ = await session(tmp_path / "whole", told)
    assert {type(event).__name__ for event in told.events} == {
        "ResultOffloaded",
        "MessagesArchived",
        "ContextCompressed",
        "OverflowRecovered",
    }
    for at in range(first - 1, len(told.events), STEP):
        hook = Hook(at)
        window, raised = await session(tmp_path / str(at), hook)
        assert len(raised) == 1
        assert f"raised by on_event when told of {type(told.events[at]).__name__}" in raised[0]
        assert window.added == whole.added
        stubs = [event.stub for event in hook.events if isinstance(event, ResultOffloaded)]
        assert len(stubs) == len(set(stubs)), "each once"
        resumed = await ContextWindow.resume(LocalWorkspace(tmp_path / str(at), durability="off"), "s1")
        assert resumed.messages == window.messages
        stored = await LocalWorkspace(tmp_path / str(at)).load_messages("s1", 0, window._context.whole.messages.first)
        assert len(stored) + len(window._context.whole.messages) == whole.added


async def test_results_that_were_offloaded_together_are_all_told_of_though_the_hook_raises_at_the_first(
    tmp_path: Path,
) -> None:
    hook = Hook(0)
    window = ContextWindow(
        session_id="s1", offloader=LocalWorkspace(tmp_path), on_event=hook, config=ContextConfig(tool_result_limit=100)
    )
    await window.add(FORM.calling("a", "b", "c"))
    for message in FORM.answering({name: [words(300)] for name in "abc"}):
        await window.add(message)
    with pytest.raises(RuntimeError, match="ResultOffloaded"):
        await window.prepare()
    await window.prepare()
    assert [event.call_id for event in hook.events if isinstance(event, ResultOffloaded)] == ["b", "c"]


async def test_a_hook_that_raises_when_a_window_is_resumed_can_be_passed_by_resuming_again(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    window = ContextWindow(session_id="s1", offloader=workspace)
    await window.add(FORM.user("hello"))
    await window.save()
    hook = Hook(0)
    with pytest.raises(RuntimeError, match="WindowResumed"):
        await ContextWindow.resume(workspace, "s1", on_event=hook)
    again = await ContextWindow.resume(workspace, "s1", on_event=hook)
    assert [type(event) for event in hook.events] == [WindowResumed]
    assert again.messages == window.messages


async def test_a_notice_of_what_was_read_back_is_known_after_a_resume(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    config = ContextConfig(tool_result_limit=400, preview_tokens=200)
    window = ContextWindow(session_id="s1", offloader=workspace, size=2_000, config=config)
    text = "".join(f"line {number} of the output\n" for number in range(400))
    await window.add(FORM.calling("c1"))
    for message in FORM.answering({"c1": [text]}):
        await window.add(message)
    await window.prepare()
    path = str(tmp_path / "sessions/s1/tool_result-c1.txt")
    reading = FORM.calling("c2")
    reading["tool_calls"][0]["function"] = {"name": "cat", "arguments": f'{{"path": "{path}"}}'}
    await window.add(reading)
    for message in FORM.answering({"c2": [text]}):
        await window.add(message)
    prepared = await window.prepare()
    notice = prepared[-1]["content"]
    assert "read back at once" in notice
    resumed = await ContextWindow.resume(workspace, "s1")
    assert resumed._engine.results.stubs[notice] == window._engine.results.stubs[notice]
