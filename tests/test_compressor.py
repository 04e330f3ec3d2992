"""The compressor by itself, for those who keep the messages themselves."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from estimates import Estimates

from buoyline import Compressor, ContextConfig, LocalWorkspace, Summary, SummaryRequest
from buoyline.errors import ConfigError, MessageError
from buoyline.tokens import TextCounter, as_text_counter, default_counter

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
    assert found.prefix[0] is SYSTEM
    assert found.prefix[1]["content"] == found.summary.text
    archived = (tmp_path / "sessions/s1/context.jsonl").read_text(encoding="utf-8").splitlines()
    assert [{**json.loads(line), "buoyline": 0} for line in archived] == [
        {**message, "buoyline": 0} for message in messages[:cut]
    ]


async def test_a_second_compression_carries_on_what_the_first_held(tmp_path: Path) -> None:
    compressor = Compressor(LocalWorkspace(tmp_path, durability="off"))
    messages = conversation(20)
    first = await compressor.compress("s1", messages, size=4000)
    assert first is not None
    later = [*first.kept, *conversation(20)[1:]]
    index = first.summary.messages[1]
    second = await compressor.compress("s1", later, size=4000, first=index, previous=first.summary)

    assert second is not None
    assert second.summary.messages[0] == index
    assert "OPS-0" in second.summary.text


def quarters(text: str) -> int:
    """Count as many do: characters by four, rounded down, so that a short string takes nothing."""
    return len(text) // 4


async def test_a_compressor_takes_any_counter_and_refuses_what_cannot_count() -> None:
    found = await Compressor(None, counter=quarters).compress("s1", conversation(40), size=4000)
    assert found is not None
    assert found.summary.tokens == quarters(found.summary.text)
    for wrong in (5, "gpt-4o", 0):
        with pytest.raises(ConfigError, match=r"counter: .* cannot count tokens; pass an object with count\(text\)"):
            Compressor(None, counter=cast("Any", wrong))


@pytest.mark.parametrize("counter", [default_counter(), Estimates(), quarters])
@pytest.mark.parametrize("summary_tokens", [300, 600, 1200])
async def test_a_summary_keeps_to_its_tokens_whatever_counts_them(
    tmp_path: Path, counter: TextCounter | Callable[[str], int], summary_tokens: int
) -> None:
    said = [
        {
            "role": role,
            "content": f"We fixed src/part_{number}/main_{number}.py: test_{number} failed with code {number}.",
        }
        for number in range(60)
        for role in ("user", "assistant")
    ]
    config = ContextConfig(summary_tokens=summary_tokens)
    compressor = Compressor(LocalWorkspace(tmp_path, durability="off"), config=config, counter=as_text_counter(counter))
    found = await compressor.compress("s1", [*said, *conversation(40)], size=4000)

    assert found is not None
    assert found.summary.tokens == as_text_counter(counter).count(found.summary.text)
    assert 0.6 * summary_tokens < found.summary.tokens <= summary_tokens


@pytest.mark.parametrize("place", ["workspace", "plain offloader"])
async def test_what_was_unverified_stays_so_until_the_archive_holds_it(tmp_path: Path, place: str) -> None:
    offloader = LocalWorkspace(tmp_path, durability="off") if place == "workspace" else Plain()
    compressor = Compressor(offloader, summarizer=claiming)
    previous: Summary | None = None
    first, found = 0, list[bool]()
    for said in ("", "", "It is 48151 after all. ", ""):
        messages = conversation(30)[1:]
        messages[0] = {"role": "user", "content": said + messages[0]["content"]}
        compression = await compressor.compress("s1", messages, size=2000, first=first, previous=previous)
        assert compression is not None
        summary = compression.summary
        first, previous = summary.messages[1], summary
        found.append("The port is 48151 (unverified)" in summary.text)
        assert ("48151" in summary.unverified) is found[-1]
    assert found == [True, True, False, False]


async def claiming(_: SummaryRequest) -> str:
    """Repeat itself without marks, as a model does that brings the last summary up to date."""
    return "The port is 48151."


class Plain:
    """An offloader with the two documented methods and nothing else."""

    async def offload_context(self, session_id: str, msgs: list[Any], **kwargs: Any) -> str:
        return "s3://bucket/context.jsonl"

    async def offload_tool_result(self, session_id: str, tool_result: Any, **kwargs: Any) -> str:
        return "s3://bucket/tool_result.txt"


async def test_nothing_is_written_when_nothing_may_leave(tmp_path: Path) -> None:
    compressor = Compressor(LocalWorkspace(tmp_path / "w"))

    assert await compressor.compress("s1", [SYSTEM], size=4000) is None
    assert not (tmp_path / "w").exists()


async def test_something_that_is_no_message_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(MessageError, match="role"):
        await Compressor(LocalWorkspace(tmp_path / "w")).compress("s1", [{"x": 1}, SYSTEM], size=100)
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize("size", [0, -1, True, 1.5, "4000", None], ids=repr)
async def test_a_size_that_is_no_number_of_tokens_is_refused_before_anything_is_written(
    tmp_path: Path, size: Any
) -> None:
    compressor = Compressor(LocalWorkspace(tmp_path / "w"))
    with pytest.raises(ConfigError, match="size"):
        await compressor.compress("s1", conversation(10), size=size)
    assert not (tmp_path / "w").exists()
