"""An offloader with the two documented methods: a summary names each batch by its reference and its messages."""

import re
from collections.abc import Sequence
from typing import Any

import pytest

from buoyline import ContextWindow
from buoyline.compression import Draft, SummaryRequest
from buoyline.compression.summary import BatchReference, summary_from
from buoyline.compression.summary_text import ArchiveLocation
from buoyline.window import ContextCompressed, Event

_RANGE = re.compile(r"(\d+)-(\d+) in s3://bucket/s1/batch-(\d+)(?=[,;])")


class Batches:
    """Keeps each batch under a name of its own."""

    def __init__(self) -> None:
        self.kept: list[list[Any]] = []

    async def offload_context(self, session_id: str, msgs: Sequence[Any], **kwargs: Any) -> str:
        self.kept.append(list(msgs))
        return f"s3://bucket/{session_id}/batch-{len(self.kept) - 1}"

    async def offload_tool_result(self, session_id: str, tool_result: Any, **kwargs: Any) -> str:
        return "s3://bucket/result"


def ranges(text: str) -> list[tuple[int, int, int]]:
    """Return first and last message and number of each batch that *text* names."""
    return [(int(first), int(last), int(number)) for first, last, number in _RANGE.findall(text)]


def sizes(named: list[tuple[int, int, int]]) -> list[int]:
    """Return how many messages each batch has; they follow each other without a gap."""
    assert [first for first, _, _ in named] == [0, *(last + 1 for _, last, _ in named[:-1])]
    assert [number for _, _, number in named] == list(range(len(named)))
    return [last + 1 - first for first, last, _ in named]


async def talked(window: ContextWindow, turns: int) -> list[Any]:
    for turn in range(turns):
        await window.add({"role": "user", "content": f"question {turn} " + "word " * 40})
        await window.add({"role": "assistant", "content": f"answer {turn} " + "word " * 40})
        await window.prepare()
    return window.messages


async def test_a_summary_names_every_batch_with_its_messages() -> None:
    offloader = Batches()
    window = ContextWindow(offloader=offloader, session_id="s1", size=4_000)
    await talked(window, 40)
    assert len(offloader.kept) == 1
    assert "None is lost: s3://bucket/s1/batch-0 holds them" in window.messages[0]["content"]
    shown = await talked(window, 80)
    assert len(offloader.kept) >= 3
    assert sizes(ranges(shown[0]["content"])) == [len(batch) for batch in offloader.kept]


class Halting:
    """A summariser that raises what no summariser should, until it may write."""

    may_write = False

    async def summarize(self, request: SummaryRequest) -> Draft:
        if not self.may_write:
            raise LookupError("out of words")
        return Draft("a model", dict.fromkeys(request.fields, "The words were read."))


async def test_a_batch_whose_summary_failed_is_named_by_the_next_one() -> None:
    offloader, summarizer = Batches(), Halting()
    window = ContextWindow(offloader=offloader, session_id="s1", size=4_000, summarizer=summarizer)
    with pytest.raises(LookupError):
        await talked(window, 60)
    assert len(offloader.kept) == 1
    summarizer.may_write = True
    await talked(window, 1)
    shown = await talked(window, 40)
    assert len(offloader.kept) >= 2
    assert sizes(ranges(shown[0]["content"])) == [len(batch) for batch in offloader.kept]


async def test_a_notice_names_every_batch_that_left_without_a_summary() -> None:
    offloader = Batches()
    management = {"hooks": {"pre_llm": [{"type": "SlidingWindowManager", "config": {"max_messages": 6}}]}}
    window = ContextWindow(offloader=offloader, session_id="s1", size=4_000, management=management)
    shown = await talked(window, 12)
    assert len(offloader.kept) > 2
    assert sizes(ranges(shown[0]["content"])) == [len(batch) for batch in offloader.kept]


def test_of_very_many_batches_the_first_and_the_newest_are_named() -> None:
    batches = [BatchReference(10 * at, 10 * at + 10, f"s3://bucket/s1/batch-{at}") for at in range(40)]
    found = ArchiveLocation(390, 400, batches[-1].reference, batches=tuple(batches)).references
    named = ranges(f"{found};")
    assert [number for _, _, number in named] == [0, 1, 2, 3, *range(28, 40)]
    assert ", 24 more batches between, " in found


def test_batches_under_one_reference_are_named_by_it_alone() -> None:
    one = "s3://bucket/context.jsonl"
    assert ArchiveLocation(4, 8, one, batches=(BatchReference(0, 4, one), BatchReference(4, 8, one))).references == (
        f"{one} holds them"
    )


async def test_the_batches_of_a_summary_survive_json() -> None:
    events: list[Event] = []
    window = ContextWindow(offloader=Batches(), session_id="s1", size=4_000, on_event=events.append)
    await talked(window, 100)
    summary = [event.summary for event in events if isinstance(event, ContextCompressed)][-1]
    assert len(summary.draft.batches) > 1
    assert summary_from(summary.to_json()).draft.batches == summary.draft.batches
