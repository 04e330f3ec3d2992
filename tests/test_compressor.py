"""The compressor by itself, for those who keep the messages themselves."""

import json
from pathlib import Path
from typing import Any

import pytest

from buoyline import Compressor, ContextConfig, LocalWorkspace
from buoyline.errors import MessageError
from buoyline.tokens import default_counter

SYSTEM = {"role": "system", "content": "Be exact."}


def conversation(count: int) -> list[dict[str, Any]]:
    return [
        SYSTEM,
        *({"role": "user", "content": f"{number}: ticket OPS-{number} {'word ' * 40}"} for number in range(count)),
    ]


async def test_a_whole_compression_gives_head_and_kept_objects(tmp_path: Path) -> None:
    messages = conversation(40)
    compressor = Compressor(LocalWorkspace(tmp_path, durability="off"))
    found = await compressor.compress("s1", messages, size=4000)

    assert found is not None
    cut = len(messages) - len(found.kept)
    assert all(kept is message for kept, message in zip(found.kept, messages[cut:], strict=True))
    assert found.head[0] is SYSTEM
    assert found.head[1]["content"] == found.summary.text
    archived = (tmp_path / "sessions/s1/context.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in archived] == messages[:cut]


async def test_a_second_compression_carries_on_what_the_first_held(tmp_path: Path) -> None:
    compressor = Compressor(LocalWorkspace(tmp_path, durability="off"))
    messages = conversation(20)
    first = await compressor.compress("s1", messages, size=4000)
    assert first is not None
    later = [*first.kept, *conversation(20)[1:]]
    index = first.summary.messages[1]
    second = await compressor.compress("s1", later, size=4000, first=index, previous=first.summary.draft)

    assert second is not None
    assert second.summary.messages[0] == index
    assert "OPS-0" in second.summary.text


async def test_nothing_is_written_when_nothing_may_leave(tmp_path: Path) -> None:
    compressor = Compressor(LocalWorkspace(tmp_path / "w"))

    assert await compressor.compress("s1", [SYSTEM], size=4000) is None
    assert not (tmp_path / "w").exists()


async def test_something_that_is_no_message_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(MessageError, match="role"):
        await Compressor(LocalWorkspace(tmp_path / "w")).compress("s1", [{"x": 1}, SYSTEM], size=100)
    assert not (tmp_path / "w").exists()


def test_a_plan_is_pure_and_takes_native_messages() -> None:
    messages = conversation(10)
    counts = [default_counter().count(message["content"]) for message in messages]
    compressor = Compressor(None, config=ContextConfig(reserve_ratio=0.05))
    plan = compressor.plan(messages, counts, size=2000)

    assert plan == compressor.plan(messages, counts, ContextConfig(reserve_ratio=0.05), size=2000)
    assert plan.kept_tokens <= 100
    assert plan.leaving_tokens + plan.kept_tokens == sum(counts)
    assert "fit" in plan.reason
