"""A window whose provider says what its requests took."""

import asyncio
import logging
import math
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from buoyline import ContextConfig, ContextWindow, LocalWorkspace, MemoryWorkspace
from buoyline.errors import UsageError
from buoyline.maintenance.verify import verify
from buoyline.messages.registry import detect
from buoyline.offloader import ModelCall
from buoyline.tokens import default_counter
from buoyline.tokens.messages import count_message
from buoyline.tokens.usage import Usage
from buoyline.window import ContextCompressed, Event
from buoyline.window.budget import Request, UsageCalibration
from buoyline.window.context import ContextLog, Extend


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def words(count: int) -> str:
    return " ".join(f"word{number}" for number in range(count))


def counted(messages: Sequence[Any]) -> int:
    return sum(count_message(detect(message).view(message), default_counter()) for message in messages)


def window(**options: Any) -> ContextWindow:
    return ContextWindow(session_id="s1", **{"offloader": MemoryWorkspace(), "size": 10_000, **options})


async def test_without_usage_everything_is_counted() -> None:
    opened = window(system="Be brief.")
    conversation = [user("a"), assistant("b"), user(words(50))]
    for message in conversation:
        await opened.add(message)
    await opened.prepare()

    assert opened.tokens == counted(conversation) + default_counter().count("Be brief.")


async def test_known_usage_stands_for_what_was_sent_and_what_is_new_is_counted() -> None:
    opened = window()
    await opened.add(user("question"))
    await opened.prepare()

    assert opened.note_usage({"prompt_tokens": 2_000, "completion_tokens": 300})
    assert opened.tokens == 2_000
    await opened.add(assistant("the answer"))
    assert opened.tokens == 2_300
    await opened.add(user("and now?"))
    assert opened.tokens == 2_300 + counted([user("and now?")])


async def test_usage_may_come_before_or_after_the_answer_was_added() -> None:
    totals = []
    for usage_comes_first in (True, False):
        opened = window()
        await opened.add(user("question"))
        await opened.prepare()
        if usage_comes_first:
            opened.note_usage(Usage(2_000, 300))
        await opened.add(assistant("the answer"))
        await opened.add(user("and now?"))
        if not usage_comes_first:
            opened.note_usage(Usage(2_000, 300))
        totals.append(opened.tokens)

    assert totals[0] == totals[1] == 2_300 + counted([user("and now?")])


async def test_an_answer_that_was_thrown_away_takes_nothing() -> None:
    opened = window()
    await opened.add(user("question"))
    await opened.prepare()
    opened.note_usage(Usage(2_000, 300))
    await opened.add(user("never mind"))

    assert opened.tokens == 2_000 + counted([user("never mind")])


async def test_an_answer_whose_tokens_are_not_known_is_counted() -> None:
    opened = window()
    await opened.add(user("question"))
    await opened.prepare()
    opened.note_usage(Usage(2_000))
    await opened.add(assistant("the answer"))

    assert opened.tokens == 2_000 + counted([assistant("the answer")])


async def test_a_request_without_usage_goes_on_from_the_last_one_that_is_known() -> None:
    opened = window()
    await opened.add(user("question"))
    await opened.prepare()
    opened.note_usage(Usage(2_000, 300))
    for message in (assistant("answer"), user("next")):
        await opened.add(message)
    await opened.prepare()
    assert not opened.note_usage({"usage": None})
    await opened.add(assistant("second answer"))

    assert opened.tokens == 2_300 + counted([user("next"), assistant("second answer")])


async def test_a_context_that_only_the_provider_finds_too_large_is_compressed() -> None:
    opened = window()
    for number in range(10):
        await opened.add(user(words(100) + str(number)))
        await opened.add(assistant("noted"))
    await opened.prepare()
    assert opened.added == len(opened.messages) == 20
    opened.note_usage(Usage(8_500, 10))
    await opened.add(assistant("ok"))
    await opened.add(user("go on"))
    prepared = await opened.prepare()

    assert len(prepared) < 22
    assert opened.tokens < 5_000


async def test_stale_usage_does_not_compress_a_context_again() -> None:
    """One conversation of 30 pairs, whose last usage fills 80 % of the window, and four failing requests."""
    events: list[Event] = []
    opened = window(size=1_000, on_event=events.append, config=ContextConfig(reserve_ratio=0.3))
    for number in range(30):
        await opened.add(user(f"question {number}"))
        await opened.add(assistant(f"answer {number}"))
    usage = Usage(900, 10)
    await opened.prepare()
    opened.note_usage(usage)
    await opened.add(user("more"))
    after = await opened.prepare()
    (compressed,) = [event for event in events if isinstance(event, ContextCompressed)]
    told = len(events)
    assert compressed.tokens_before > 900
    for _ in range(4):  # each time the loop reads the usage of the last answer that it has
        opened.note_usage(usage)
        assert len(await opened.prepare()) == len(after)
    assert len(events) == told


async def test_usage_that_comes_after_a_compression_is_not_believed() -> None:
    opened = window()
    for number in range(10):
        await opened.add(user(words(50) + str(number)))
    await opened.prepare()
    await opened.compress(force=True, before=9)
    tokens = opened.tokens

    assert not opened.note_usage(Usage(9_000))
    assert opened.tokens == tokens
    await opened.prepare()
    assert opened.note_usage(Usage(tokens + 100))
    assert opened.tokens == tokens + 100


async def test_usage_before_anything_was_handed_out_is_not_believed() -> None:
    opened = window()
    await opened.add(user("question"))

    assert not opened.note_usage(Usage(9_000))
    assert opened.tokens == counted([user("question")])


async def test_the_usage_of_the_request_before_is_known_by_its_numbers() -> None:
    opened = window()
    await opened.add(user("question"))
    await opened.prepare()
    assert opened.note_usage(Usage(2_000, 300))
    for message in (assistant("answer"), user(words(500))):
        await opened.add(message)
    await opened.prepare()
    tokens = opened.tokens

    assert not opened.note_usage(Usage(2_000, 300))
    assert opened.tokens == tokens > 3_000


def test_two_requests_of_the_same_size_may_have_the_same_usage() -> None:
    calibration = UsageCalibration(10_000)
    accepted = []
    for end, tokens in enumerate((2_000, 2_000, 1_999, 2_001)):
        calibration.hand_out(Request(tokens, end))
        accepted.append(calibration.note(Usage(2_800, 30)))
        calibration.drop()  # as a compaction does

    assert accepted == [True, True, True, False]


async def test_zero_is_no_usage() -> None:
    opened = window()
    await opened.add(user("question"))
    await opened.prepare()

    assert not opened.note_usage(Usage(0, 0))
    assert opened.tokens == counted([user("question")])


async def test_a_usage_without_what_was_cached_is_not_believed(caplog: pytest.LogCaptureFixture) -> None:
    opened = window()
    await opened.add(user(words(500)))
    await opened.prepare()
    tokens = opened.tokens

    with caplog.at_level(logging.WARNING, "buoyline"):
        assert not opened.note_usage(Usage(12, 50))
    assert "read from the cache" in caplog.text
    assert opened.tokens == tokens


async def test_the_usage_of_a_whole_run_is_refused() -> None:
    opened = window()
    await opened.add(user("question"))
    await opened.prepare()

    for usage in (Usage(20_001), Usage(500, 20_001)):
        with pytest.raises(UsageError, match="cannot be those of one request to a window of 10,000; pass the last"):
            opened.note_usage(usage)
    with pytest.raises(UsageError, match="below 0"):
        opened.note_usage({"prompt_tokens": -5})
    assert opened.tokens == counted([user("question")])


async def test_pictures_that_take_less_than_was_estimated_do_not_shrink_the_text() -> None:
    opened = window(size=100_000)
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    await opened.add({"role": "user", "content": [picture] * 20})
    await opened.prepare()
    estimated = opened.tokens
    assert opened.note_usage(Usage(20_000))
    await opened.add(user(words(500)))

    assert estimated > 32_000
    assert opened.tokens == 20_000 + counted([user(words(500))])


async def test_recovering_from_an_overflow_makes_progress_by_our_own_count() -> None:
    opened = window(config=ContextConfig(tool_result_limit=500))
    for number in range(20):
        await opened.add(user(words(60) + str(number)))
    await opened.prepare()
    before = counted(opened.messages)
    opened.note_usage(Usage(10_500))
    recovered = await opened.recover_from_overflow()

    assert counted(recovered) <= 0.9 * before
    assert opened.tokens == counted(recovered)


async def test_a_resumed_window_counts_everything() -> None:
    workspace = MemoryWorkspace()
    opened = ContextWindow(session_id="s1", offloader=workspace, size=10_000)
    await opened.add(user("question"))
    await opened.prepare()
    opened.note_usage(Usage(2_000, 300))
    resumed = await ContextWindow.resume(workspace, "s1")

    assert resumed.tokens == counted([user("question")])


class Provider:
    """A model whose tokenizer makes more of the same text than ours, behind a prompt that nobody told us of."""

    def __init__(self, factor: float, hidden_tokens: int) -> None:
        self.factor, self.hidden_tokens = factor, hidden_tokens

    def tokens(self, messages: Sequence[Any]) -> int:
        return self.hidden_tokens + math.ceil(self.factor * counted(messages))


@settings(max_examples=40, deadline=None)
@given(
    factor=st.sampled_from([0.8, 1.0, 1.2, 1.4, 1.8]),
    hidden_tokens=st.sampled_from([0, 400]),
    sizes=st.lists(st.integers(1, 400), min_size=5, max_size=60),
    reserve_ratio=st.sampled_from([0.1, 0.5]),
)
# The second compaction leaves a request of just the size that the first one left, and so with the same usage.
@example(factor=1.8, hidden_tokens=400, sizes=[1, 152, 376, 378, 378], reserve_ratio=0.1)
async def test_no_request_exceeds_the_window_by_the_providers_own_count(
    factor: float, hidden_tokens: int, sizes: list[int], reserve_ratio: float
) -> None:
    provider = Provider(factor, hidden_tokens)
    config = ContextConfig(trigger_ratio=0.7, reserve_ratio=reserve_ratio)
    opened = window(size=6_000, config=config)
    for size in sizes:
        await opened.add(user(words(size)))
        sent = await opened.prepare()
        taken = provider.tokens(sent)
        assert taken <= 6_000
        answer = assistant(words(size // 4 + 1))
        opened.note_usage(Usage(taken, math.ceil(factor * counted([answer]))))
        await opened.add(answer)
        assert opened.tokens >= 0.98 * provider.tokens(opened.messages)


async def test_what_stays_after_a_compression_is_under_the_trigger_by_the_providers_count() -> None:
    events: list[Event] = []
    config = ContextConfig(trigger_ratio=0.6, reserve_ratio=0.5)
    opened, provider = window(size=20_000, config=config, on_event=events.append), Provider(1.4, 0)
    calls_between: list[int] = []
    for call in range(200):
        await opened.add(user(words(60) + str(call)))
        before = len(events)
        sent = await opened.prepare()
        if len(events) > before:
            calls_between.append(call)
            assert provider.tokens(sent) <= 0.6 * 20_000
        opened.note_usage(Usage(provider.tokens(sent), 7))
        await opened.add(assistant("ok"))

    assert len(calls_between) >= 2
    assert min(later - earlier for earlier, later in pairwise(calls_between)) > 3


@pytest.mark.parametrize(
    ("steps", "scale"),
    [
        ([(100, 800)], 1.0),  # a prompt that we were not told of, not a tokenizer
        ([(100, 800), (2_100, 3_400)], 1.3),
        ([(5_000, 6_500)], 1.3),
        ([(5_000, 4_000)], 1.0),
        ([(100, 100), (1_100, 9_000)], 2.0),  # a document of many pages
        ([(100, 100), (1_100, 1_200), (9_000, 11_670)], 1.3),
    ],
)
def test_the_scale_is_how_much_faster_the_providers_count_grows(steps: list[tuple[int, int]], scale: float) -> None:
    calibration = UsageCalibration(16_000)
    for end, (ours, theirs) in enumerate(steps):
        calibration.hand_out(Request(ours, end))
        assert calibration.note(Usage(theirs))

    assert calibration.scale == pytest.approx(scale, rel=0.01)
    assert calibration.total(steps[-1][0], 0) == steps[-1][1]
    calibration.drop()
    assert calibration.total(1_000, 0) == math.ceil(1_000 * calibration.scale)
    assert calibration.ours(calibration.scale * 1_000) in {999, 1_000}


async def test_each_call_is_recorded_with_its_tokens_usage_and_model(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    opened = ContextWindow(session_id="s1", offloader=workspace, size=10_000, system="Be brief.")
    totals = list[int]()
    for turn in range(3):
        await opened.add(user(words(40 * (turn + 1))))
        await opened.prepare()
        totals.append(opened.tokens)
        opened.note_usage({"model": "m-1", "usage": {"prompt_tokens": opened.tokens, "completion_tokens": 5}})
        await opened.add(assistant("yes"))
        await opened.save()
        opened = await ContextWindow.resume(workspace, "s1")

    calls = workspace.session("s1").model_calls()
    assert [call.end for call in calls] == [1, 3, 5]
    assert [sum(call.tokens.values()) for call in calls] == totals
    assert [call.tokens["fixed"] for call in calls] == [default_counter().count("Be brief.")] * 3
    assert [dict(call.usage) for call in calls] == [
        {"input_tokens": total, "output_tokens": 5, "cached_tokens": 0, "cache_write_tokens": 0} for total in totals
    ]
    assert {call.model for call in calls} == {"m-1"}
    assert sorted(call.time for call in calls) == [call.time for call in calls]
    assert verify(workspace).findings == ()


async def test_a_call_without_usage_is_recorded_once_the_next_one_is_made() -> None:
    workspace = MemoryWorkspace()
    opened = ContextWindow(session_id="s1", offloader=workspace)
    for _ in range(3):
        await opened.add(user("again"))
        await opened.prepare()
    assert len(workspace.session("s1").model_calls()) == 1
    await opened.add(user("and again"))
    await opened.save()
    calls = workspace.session("s1").model_calls()
    assert [(call.end, dict(call.usage), call.model) for call in calls] == [(1, {}, ""), (2, {}, "")]


async def test_a_compaction_records_calls_and_counts_the_summary_apart() -> None:
    workspace = MemoryWorkspace()
    opened = window(size=4_000, offloader=workspace)
    for turn in range(30):
        await opened.add(user(f"{turn} {words(60)}"))
        await opened.prepare()
        opened.note_usage(Usage(opened.tokens))
        await opened.add(assistant("yes"))
    await opened.save()
    calls = workspace.session("s1").model_calls()
    assert [call.end for call in calls] == list(range(1, 60, 2))
    assert calls[0].tokens["summary"] == 0 < calls[-1].tokens["summary"]


async def test_records_of_calls_cost_no_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = list[int]()
    real = os.fdatasync

    def counted_sync(descriptor: int) -> None:
        synced.append(descriptor)
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", counted_sync)
    counts = list[int]()
    for records_calls in (True, False):
        if not records_calls:
            monkeypatch.setattr(ContextLog, "note_call", lambda *_: None)
        opened = window(offloader=LocalWorkspace(tmp_path / str(records_calls)))
        synced.clear()
        for _ in range(5):
            await opened.add(user("again"))
            await opened.prepare()
            opened.note_usage(Usage(opened.tokens))
        counts.append(len(synced))
    assert counts[0] == counts[1] > 0


async def test_a_call_that_is_handed_out_while_another_is_recorded_waits_for_the_next_change() -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    class SlowWorkspace(MemoryWorkspace):
        async def extend_window(self, *args: Any, **options: Any) -> None:
            begun.set()
            await may_end.wait()
            await super().extend_window(*args, **options)

    workspace = SlowWorkspace()
    log = ContextLog(workspace, "s1")
    await log.start({})
    for end in (1, 2):
        log.note_call(ModelCall("2026-01-01T00:00:00.000Z", end, {"messages": 10}))
        log.note_usage(Usage(10), "m-1")
        if end == 1:
            recording = asyncio.create_task(log.apply(Extend((), frozenset())))
            await begun.wait()
    may_end.set()
    await recording
    assert [call.end for call in log.calls] == [2]
    await log.apply(Extend((), frozenset()))
    assert [call.end for call in workspace.session("s1").model_calls()] == [1, 2]
