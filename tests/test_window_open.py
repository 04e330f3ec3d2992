"""`ContextWindow.open`: the one way into a session, whether it is new or not."""

from pathlib import Path

import pytest

from buoyline import ContextConfig, ContextWindow, LocalWorkspace, MemoryWorkspace
from buoyline.errors import ConfigError, MessageError
from buoyline.window.follower import Followed


async def test_a_session_is_begun_and_continued_by_the_same_call(tmp_path: Path) -> None:
    async with await ContextWindow.open(
        tmp_path / "w", "s1", size=8_000, config=ContextConfig(trigger_ratio=0.5)
    ) as first:
        await first.add({"role": "user", "content": "Ahoy"})
    async with await ContextWindow.open(str(tmp_path / "w"), "s1") as second:
        assert second.messages == [{"role": "user", "content": "Ahoy"}]
        assert (second.size, second.config.trigger_ratio) == (8_000, 0.5)
    async with await ContextWindow.open(tmp_path / "w", "s1", model="gpt-4o") as third:
        assert third.size == 128_000


@pytest.mark.parametrize("kind", [LocalWorkspace, MemoryWorkspace])
async def test_a_workspace_that_was_passed_stays_open(kind: type, tmp_path: Path) -> None:
    workspace = kind(tmp_path) if kind is LocalWorkspace else kind()
    for number in range(3):
        async with await ContextWindow.open(workspace, "s1") as window:
            assert window.added == number
            await window.add({"role": "user", "content": f"message {number}"})


async def test_a_setting_that_cannot_work_is_refused_for_a_new_session_as_for_an_old_one(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(ConfigError, match="size"):
            await ContextWindow.open(tmp_path, "s1", size=-1)
        async with await ContextWindow.open(tmp_path, "s1") as window:
            await window.add({"role": "user", "content": "Ahoy"})


async def test_a_response_is_one_message_whose_items_are_handed_out_flat(tmp_path: Path) -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VhbGVk"}
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    done = {"type": "function_call_output", "call_id": "c1", "output": "a.py"}
    items = [{"role": "user", "content": "Look."}, thought, call, done]
    async with await ContextWindow.open(tmp_path, "s1", dialect="openai-responses") as window:
        for message in (items[0], {"output": [thought, call]}, done):
            await window.add(message)
        assert await window.prepare() == items
        with pytest.raises(MessageError, match="add the response"):
            await window.add(call)
    async with await ContextWindow.open(tmp_path, "s1") as window:
        assert window.messages == items
        items.append({"role": "assistant", "content": "One file."})
        assert (await window.follow(items)).added == 1
        assert await window.prepare() == items
        items += [{"role": "assistant", "content": "I read it."}, {**thought, "id": "rs_2"}, {**call, "call_id": "c2"}]
        assert await window.follow(items) == Followed(1)
        assert await window.prepare() == items
    async with await ContextWindow.open(tmp_path, "s1", dialect="openai-responses") as window:
        items += [{"type": "web_search_call", "id": "ws_1", "status": "completed"}]
        assert await window.follow(items) == Followed(1)
        assert await window.prepare() == items
