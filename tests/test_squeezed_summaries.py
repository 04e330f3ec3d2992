"""A summary that has little room: it says what it can, reports what it cannot, and forgets nothing."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from buoyline.cli import main
from buoyline.compression.summary import summary_from
from buoyline.tokens import default_counter
from buoyline.window import ContextCompressed, ContextWindow, Event, SummarySqueezed
from buoyline.workspace import LocalWorkspace

SIZE = 16_000
TASK = "Move the gateway to port 8443. Never touch anything under legacy/."
CHANGED = "app/gateway.py"


def turn(number: int, name: str = "Bash", **arguments: object) -> list[dict[str, Any]]:
    """Return a call and a result of about 150 tokens."""
    call = {"id": f"c{number}", "type": "function"}
    function = {"name": name, "arguments": json.dumps(arguments or {"command": f"cat part_{number}.py"})}
    result = "\n".join(f"{number}: row {row} of part_{number} is as it was" for row in range(12))
    return [
        {"role": "assistant", "content": f"Looking at part {number}.", "tool_calls": [{**call, "function": function}]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": result},
    ]


def work(turns: int) -> list[dict[str, Any]]:
    """Return a task, a change, and so many calls."""
    edit = turn(0, "Edit", file_path=CHANGED, old_string="80", new_string="8443")
    return [{"role": "user", "content": TASK}, *edit, *(message for at in range(1, turns) for message in turn(at))]


def paste(tokens: int) -> dict[str, Any]:
    """Return a message of just so many tokens or a few less."""
    line = "the harbour log repeats itself in plain words\n"
    return {"role": "user", "content": line * ((tokens - 8) // default_counter().count(line))}


async def fed(window: ContextWindow, messages: list[dict[str, Any]]) -> None:
    for message in messages:
        await window.add(message)
        await window.prepare()


def opened(workdir: Path, events: list[Event], **options: Any) -> ContextWindow:
    workspace = LocalWorkspace(workdir, durability="off")
    return ContextWindow(session_id="s1", offloader=workspace, size=SIZE, on_event=events.append, **options)


def texts(events: list[Event]) -> list[str]:
    return [event.summary.text for event in events if isinstance(event, ContextCompressed)]


@pytest.mark.parametrize("share", [0.75, 0.82, 0.9, 0.94])
@pytest.mark.parametrize("max_output_tokens", [0, 500])
async def test_beside_a_large_message_a_summary_still_says_task_rule_and_change(
    tmp_path: Path, share: float, max_output_tokens: int
) -> None:
    events: list[Event] = []
    window = opened(tmp_path, events, max_output_tokens=max_output_tokens)
    await fed(window, [*work(80), paste(int(share * SIZE))])
    newest = texts(events)[-1]
    assert "8443" in newest
    assert "legacy/" in newest
    assert f"Changed: {CHANGED}" in newest
    assert window.tokens + max_output_tokens <= SIZE
    assert not [event for event in events if isinstance(event, SummarySqueezed) and share < 0.9]


@pytest.mark.parametrize("max_output_tokens", [4_000, 6_000, 8_000])
async def test_a_summary_never_takes_the_room_of_a_large_answer(tmp_path: Path, max_output_tokens: int) -> None:
    window = opened(tmp_path, [], max_output_tokens=max_output_tokens)
    # Context and summary without the answer are below the trigger here.
    await fed(window, [*work(80), paste(int(0.95 * (SIZE - max_output_tokens)))])
    assert window.tokens < 0.8 * SIZE
    assert window.tokens + max_output_tokens <= SIZE


async def test_half_of_what_a_large_message_leaves_stays_for_the_answer(tmp_path: Path) -> None:
    window = opened(tmp_path, [])
    await fed(window, [*work(80), paste(int(0.94 * SIZE))])
    assert 0.025 * SIZE < SIZE - window.tokens < 0.04 * SIZE


async def test_what_a_squeezed_summary_cannot_say_is_reported_and_said_by_the_next_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[Event] = []
    window = opened(tmp_path, events)
    await fed(window, work(80))
    assert f"Changed: {CHANGED}" in texts(events)[-1]
    assert not [event for event in events if isinstance(event, SummarySqueezed)]

    with caplog.at_level(logging.WARNING, logger="buoyline"):
        await fed(window, [paste(int(0.996 * SIZE))])
    squeezed = texts(events)[-1]
    assert CHANGED not in squeezed
    (event,) = [event for event in events if isinstance(event, SummarySqueezed)]
    compressed = next(event for event in reversed(events) if isinstance(event, ContextCompressed))
    assert event.messages == compressed.summary.messages
    assert 0 < event.unsaid <= event.facts
    assert f"{event.unsaid} of its {event.facts} facts are not in it" in caplog.text

    resumed = await ContextWindow.resume(LocalWorkspace(tmp_path, durability="off"), "s1", on_event=events.append)
    await fed(resumed, [message for at in range(100, 140) for message in turn(at)])
    newest = texts(events)[-1]
    assert newest != squeezed
    assert f"Changed: {CHANGED}" in newest
    assert "8443" in newest
    assert "legacy/" in newest


async def test_a_summary_of_few_messages_has_room_for_what_it_replaces(tmp_path: Path) -> None:
    events: list[Event] = []
    window = opened(tmp_path, events)
    await fed(window, work(60))
    await window.compress(force=True)
    before = next(event.summary for event in reversed(events) if isinstance(event, ContextCompressed))
    await fed(window, turn(200))
    summary = await window.compress(force=True)
    assert summary is not None
    assert summary.source_tokens < 400 < before.tokens
    assert summary.tokens > 0.9 * before.tokens
    assert f"Changed: {CHANGED}" in summary.text
    assert not [event for event in events if isinstance(event, SummarySqueezed)]


async def test_after_an_overflow_a_summary_takes_no_more_than_the_refused_context_leaves(tmp_path: Path) -> None:
    window = opened(tmp_path, [])
    rules = [f"Rule {at}: never touch app/part_{at}/store_{at}.py, its port is {8443 + at}." for at in range(80)]
    await fed(window, [{"role": "user", "content": rule} for rule in rules])
    await window.add(newest := paste(int(0.87 * SIZE)))
    before = window.tokens
    await window.recover_from_overflow()
    assert window.tokens <= 0.9 * before
    assert newest in await window.prepare()


def test_only_a_fact_that_is_not_shown_says_so_on_disk(tmp_path: Path) -> None:
    recording, workdir = tmp_path / "run.jsonl", tmp_path / "w"
    messages = [*work(80), paste(int(0.996 * SIZE)), *turn(300)]
    recording.write_text("\n".join(map(json.dumps, messages)), encoding="utf-8")
    options = ["--workdir", str(workdir), "--context-size", str(SIZE)]
    CliRunner().invoke(main, ["replay", str(recording), *options], catch_exceptions=False)

    session = LocalWorkspace(workdir).session("run")
    whole = session.summaries_with_facts()[-2:]
    items = [item for summary in whole for item in summary["items"]]
    assert {item.get("shown", "left out") for item in items} == {False, "left out"}
    assert json.loads(json.dumps([summary_from(summary).to_json() for summary in whole])) == whole
    assert not [line for line in session.summaries() if {"items", "work"} & line.keys()]


async def test_a_recorded_session_names_the_page_it_wrote_in_each_of_its_summaries(
    tmp_path: Path, shared_data: Path
) -> None:
    recording = shared_data / "sessions/deerflow_thread_5aa47db1.jsonl"
    events: list[Event] = []
    await fed(opened(tmp_path, events), [json.loads(line) for line in recording.read_text("utf-8").splitlines()])
    assert len(texts(events)) > 2
    assert all("index.html" in text for text in texts(events))
