"""What stays word for word through compression after compression of recorded sessions: the user's words, and pins."""

import json
from pathlib import Path
from typing import Any

import pytest

from buoyline.compression import ContextConfig, Summary
from buoyline.messages.registry import detect
from buoyline.tokens import default_counter
from buoyline.window import ContextCompressed, ContextWindow, Event
from buoyline.workspace import MemoryWorkspace

SHORT_TOKENS = 60
MADE = ("<", "[", "/", "This session is being continued", "Base directory", "Caveat")
"""How messages begin that a program put into the user's mouth."""


def recorded(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def on_one_line(text: str) -> str:
    return " ".join(text.split())


def typed(conversation: list[Any]) -> list[tuple[int, str]]:
    """Return index and words of each message that a person typed."""
    said = ((number, detect(message).view(message)) for number, message in enumerate(conversation))
    users = ((number, on_one_line(view.text)) for number, view in said if view.role == "user")
    return [(number, text) for number, text in users if text and not text.startswith(MADE)]


async def summaries_of(conversation: list[Any], size: int) -> list[Summary]:
    """Return the summaries of a window of *size* tokens that a conversation goes through."""
    events: list[Event] = []
    window = ContextWindow(session_id="s", offloader=MemoryWorkspace(), size=size, on_event=events.append)
    for message in conversation:
        await window.add(message)
        await window.prepare()
    return [event.summary for event in events if isinstance(event, ContextCompressed)]


def kept_words(conversation: list[Any], summary: Summary) -> tuple[bool, list[bool]]:
    """Tell whether a summary begins to quote the first request, and which of the three newest short ones it quotes."""
    gone = [text for number, text in typed(conversation) if number < summary.messages[1]]
    quoted = on_one_line(summary.text)
    counter = default_counter()
    newest = [text for text in gone if counter.count(text) <= SHORT_TOKENS][-3:]
    return not gone or gone[0][:30] in quoted, [text in quoted for text in newest]


@pytest.mark.slow
@pytest.mark.parametrize("size", [32_000, 128_000])
async def test_the_users_first_and_newest_words_stay_in_windows_of_a_usual_size(shared_data: Path, size: int) -> None:
    newest: list[bool] = []
    for path in sorted((shared_data / "sessions").glob("*.jsonl")):
        conversation = recorded(path)
        for summary in await summaries_of(conversation, size):
            has_first, has_newest = kept_words(conversation, summary)
            assert has_first, f"{path.name}: summary {summary.number} does not say what the user asked for first"
            newest += has_newest
    assert sum(newest) >= 0.95 * len(newest)


async def test_the_users_first_words_stay_through_a_recorded_session(shared_data: Path) -> None:
    conversation = recorded(shared_data / "sessions" / "cc_entire_25-730c662552-0.jsonl")[:150]
    summaries = await summaries_of(conversation, 16_000)
    assert len(summaries) > 2
    assert all(kept_words(conversation, summary)[0] for summary in summaries)


async def test_a_pin_stays_the_same_object_through_every_compression_of_a_recorded_session(shared_data: Path) -> None:
    conversation = recorded(shared_data / "sessions" / "cc_entire_25-730c662552-0.jsonl")[:150]
    workspace, events = MemoryWorkspace(), list[Event]()
    config = ContextConfig(reserve_ratio=0.05)
    window = ContextWindow(session_id="s", offloader=workspace, size=16_000, config=config, on_event=events.append)
    pins = {0, 4, 66}
    for number, message in enumerate(conversation):
        await window.add(message, pinned=number in pins)
        sent = await window.prepare()
        for pin in pins:
            if pin <= number:
                assert sum(message is conversation[pin] for message in sent) == 1
    compressed = [event for event in events if isinstance(event, ContextCompressed)]
    assert len(compressed) > 2
    # Message 4 is a call, which keeps its result.
    calls = {call["id"] for call in conversation[4]["tool_calls"]}
    answers = [message for message in window.messages[:4] if message.get("tool_call_id") in calls]
    assert len(answers) == 1
    assert [m for m in window.messages[:4] if m not in answers] == [conversation[pin] for pin in sorted(pins)]
    archived = await workspace.load_messages("s", 0, compressed[-1].summary.messages[1])
    assert [value for _, value in archived[:1]] == conversation[:1]
