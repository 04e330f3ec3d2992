"""What a window promises: what `add` returned for is kept, what is handed out fits, nothing is cut without a file."""

import asyncio
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from window_forms import FORMS, NAMES, Form, picture, spelled, view
from window_lives import KilledError, Mortality, calling, check_valid, result, said, user

from buoyline import ContextConfig
from buoyline.compression import SummaryRequest
from buoyline.errors import (
    BusyError,
    ConfigError,
    ContextOverflowError,
    MessageError,
    NotFoundError,
    StaleWindowError,
    UsageError,
)
from buoyline.messages.registry import detect, dialect_named
from buoyline.offloader import ToolRule
from buoyline.offloader.stub import previewed_lines
from buoyline.tokens import default_counter
from buoyline.tokens.counter import count_message
from buoyline.tokens.usage import Usage
from buoyline.window import ContextCompressed, ContextWindow, Event, ResultOffloaded
from buoyline.window.tools import compress_tool
from buoyline.workspace.memory import MemoryDisk
from buoyline.workspace.workspace import LocalWorkspace, MemoryWorkspace, Workspace

LOG = "".join(f"step {number}: fine\n" for number in range(6_000))
FORM = pytest.mark.parametrize("form", FORMS, ids=NAMES)


async def opened(workspace: Workspace | None = None, size: int = 100_000, **settings: Any) -> ContextWindow:
    return await ContextWindow.open(workspace or MemoryWorkspace(), "s1", size=size, **settings)


def turns(first: int, end: int, words: int = 40) -> list[dict[str, Any]]:
    talk = (
        [
            user(f"question {number} " + "why " * words),
            calling(f"c{number}"),
            result(f"c{number}", f"found {number} " + "so " * words),
            said(f"answer {number} " + "well " * words),
        ]
        for number in range(first, end)
    )
    return [message for turn in talk for message in turn]


def stored(window: ContextWindow, name: str) -> str:
    return window._session.disk.read(f"{window._session.name}/{name}").decode("utf-8", "surrogatepass")


# Adding.


async def test_what_add_returned_for_is_there_for_another_process(tmp_path: Path) -> None:
    window = await opened(LocalWorkspace(tmp_path))
    assert await window.add(user("go")) == 0
    assert await window.add(calling("c1")) == 1  # durable before the tool runs
    other = await opened(LocalWorkspace(tmp_path))
    assert other.messages == window.messages == [user("go"), calling("c1")]
    lines = (tmp_path / "sessions/s1/context.jsonl").read_text().splitlines()
    values = [json.loads(line) for line in lines]
    assert [{key: line[key] for key in line if key != "buoyline"} for line in values] == window.messages


async def test_equal_messages_are_as_many_as_were_added() -> None:
    """A user says "yes" twice; two parallel calls without ids of their own both answer "ok"."""
    workspace = MemoryWorkspace()
    window = await opened(workspace)
    for message in (user("yes"), user("yes"), calling("call_0"), result("call_0", "ok")):
        await window.add(message)
    await window.extend([calling("call_0"), result("call_0", "ok")])
    assert window.added == 6
    assert (await opened(workspace)).messages == window.messages
    assert len(window.messages) == 6


async def test_messages_have_the_order_in_which_add_was_called() -> None:
    window = await opened()
    calls = [window.add(user(f"{number}")) for number in range(30)]
    assert await asyncio.gather(*reversed(calls)) == [*reversed(range(30))]
    assert [message["content"] for message in window.messages] == [str(number) for number in range(30)]


async def test_a_call_that_is_cancelled_after_its_write_has_happened() -> None:
    window = await opened()
    adding = asyncio.ensure_future(window.add(user("once")))
    await asyncio.sleep(0)
    adding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await adding
    assert window.messages == [user("once")]
    assert await window.add(said("next")) == 1


async def test_a_listener_that_raises_undoes_nothing() -> None:
    def refuse(event: Event) -> None:
        raise RuntimeError(type(event).__name__)

    window = await opened(on_event=refuse)
    await window.add(calling("c1"))
    with pytest.raises(RuntimeError, match="ResultOffloaded") as raised:
        await window.add(result("c1", LOG))
    assert "stays done" in raised.value.__notes__[0]
    assert window.added == len(window.messages) == 2


async def test_a_call_that_failed_has_not_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    mortality, workspace = Mortality(monkeypatch), MemoryWorkspace()
    window = await opened(workspace)
    await window.add(user("go"))
    mortality.left = 0
    with pytest.raises(KilledError):
        await window.add(user("lost"))
    mortality.left = None
    assert await window.add(user("kept")) == 1
    assert [message["content"] for message in window.messages] == ["go", "kept"]
    assert (await opened(workspace)).messages == window.messages


@pytest.mark.parametrize("odd", [3, {}, {"role": "nobody", "content": "x"}, {"role": "user", "content": object()}])
async def test_what_is_no_message_is_refused_and_nothing_is_written(odd: Any) -> None:
    window = await opened()
    with pytest.raises(MessageError):
        await window.extend([user("fine"), odd])
    assert (window.added, window.messages) == (0, [])


# Results.


async def test_a_large_result_is_a_stub_from_add_on_and_its_file_holds_every_byte(tmp_path: Path) -> None:
    events: list[Event] = []
    window = await opened(LocalWorkspace(tmp_path), on_event=events.append)
    text = LOG + "\ud800 odd \x1b[31m\n" + LOG + "ERROR: half a character \ud800, \x00\x07\x9b\n" + LOG
    await window.extend([calling("c1"), result("c1", text)])
    (event,) = events
    assert isinstance(event, ResultOffloaded)
    assert Path(event.path).read_bytes().decode("utf-8", "surrogatepass") == text
    shown = window.messages[1]["content"]
    assert event.path in shown
    assert shown == event.stub
    assert event.stub_tokens <= 1_000 < event.tokens
    assert "ERROR: half a character" in shown
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", shown), "no provider takes it"
    assert (await opened(LocalWorkspace(tmp_path))).messages == await window.prepare()


@pytest.mark.parametrize("count", [5, 20])
async def test_many_results_below_the_limit_do_not_pass_together(count: int) -> None:
    window = await opened(size=32_000)
    ids = [f"c{number}" for number in range(count)]
    await window.add(calling(*ids))
    for call_id in ids:
        await window.add(result(call_id, "a row of words\n" * 500))
    assert window.tokens < 0.4 * 32_000
    assert window.messages[1]["content"].startswith("a row")
    assert window.messages[-1]["content"].startswith("[Tool result offloaded")


async def test_rules_of_a_tool_hold() -> None:
    rules = {"keep": ToolRule(offload="never"), "send_*": ToolRule(offload="always"), "few": ToolRule(limit=200)}
    window = await opened(config=ContextConfig(tool_rules=rules))
    outputs = {"keep": LOG, "send_mail": "sent\n" * 400, "few": "row\n" * 300, "other": "row\n" * 300}
    for name, text in outputs.items():
        await window.extend([calling(name, name=name), result(name, text)])
    shown = [message["content"].startswith("[Tool") for message in window.messages if message["role"] == "tool"]
    assert shown == [False, True, True, False]


async def test_what_the_agent_reads_back_is_not_offloaded_to_another_file() -> None:
    window = await opened()
    reading = calling("c2", arguments='{"path": "tool_result-c1.txt"}')
    await window.extend([calling("c1"), result("c1", LOG), reading, result("c2", LOG[:40_000])])
    assert window.messages[3] == result("c2", LOG[:40_000])


async def test_content_that_a_caller_wants_offloaded_leaves_whoever_said_it() -> None:
    window = await opened()
    await window.add(user(f"Look at this:\n{LOG}"), offload=True)
    assert window.tokens < 1_500
    assert stored(window, "tool_result-message-0.txt") == f"Look at this:\n{LOG}"


async def test_a_result_that_is_shown_with_a_stub_is_an_event() -> None:
    events = list[Any]()
    window = await opened(on_event=events.append)
    await window.add(calling("c1", name="run"))
    shown = await window.shown(result("c1", LOG))
    assert [(event.tool, event.stub) for event in events] == [("run", shown["content"])]


async def test_a_pin_right_behind_a_compaction_is_one_for_another_process_too() -> None:
    workspace = MemoryWorkspace()
    window = await opened(workspace)
    await window.extend(turns(0, 8))
    assert await window.compress(before=-4) is not None
    pin = await window.add(user("Never touch main."), pinned=True)
    other = await opened(workspace)
    await other.extend(turns(8, 16))
    assert await other.compress(before=-4) is not None
    assert f"[Pinned message {pin} of the user:]\nNever touch main." in other.messages[0]["content"]


async def test_a_message_is_shown_with_stubs_without_being_added() -> None:
    workspace = MemoryWorkspace()
    window = await opened(workspace)
    await window.add(calling("c1"))
    shown = await window.shown(result("c1", LOG))
    assert shown["content"].startswith("[Tool result offloaded")
    assert window.added == 1
    await window.add(shown)
    assert window.messages[1] == shown
    assert stored(window, "tool_result-c1.txt") == LOG
    (line,) = workspace.stored("s1").read([1])
    assert [file.name for file in line.stored[0]] == ["tool_result-c1.txt"]


async def test_a_cut_counted_from_the_end_keeps_so_many_also_after_a_fork() -> None:
    window = await opened()
    talk = [user(f"question {number} " * 50) for number in range(12)]
    await window.follow(talk)
    await window.follow(talk := [*talk[:8], user("another"), user("more")])
    await window.compress(before=-4)
    assert window.messages[1:] == talk[-4:]


@pytest.mark.parametrize("is_large", [False, True])
async def test_output_is_added_while_it_comes(*, is_large: bool) -> None:
    window = await opened()
    text = LOG * (12 if is_large else 1)

    def pieces() -> Any:
        yield from (text[at : at + 10_000] for at in range(0, len(text), 10_000))

    await window.add(calling("c1"))
    assert await window.add_tool_output("c1", pieces()) == 1
    assert window.messages[1]["content"].startswith("[Tool result offloaded")
    assert stored(window, "tool_result-c1.txt") == text


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_of_lines_that_a_program_overwrites_a_stub_shows_the_last_state(*, is_streamed: bool) -> None:
    sounded, charted = (
        [f"{name} {n // 30:3}% [{'=' * (n // 150):20}] {n}/3000 m" for n in range(0, 3_001, 2)]
        for name in ("sounding", "charting")
    )
    text = "\n".join(["cast off", "\r".join(sounded), "no wreck", "\r" + "\r".join(charted), "moored", ""])
    window = await opened(size=64_000)
    await window.add(calling("c1"))
    if is_streamed:
        await window.add_tool_output("c1", (text[at : at + 7_000] for at in range(0, len(text), 7_000)))
    else:
        await window.add(result("c1", text))
    shown = [line.text for line in previewed_lines((await window.prepare())[-1]["content"]) if line.text]
    assert shown == ["cast off", sounded[-1], "no wreck", charted[-1], "moored"]
    assert stored(window, "tool_result-c1.txt") == text


async def test_output_of_a_tool_that_fails_is_kept_if_wanted_and_the_error_is_raised() -> None:
    def pieces() -> Any:
        yield "the first half\n"
        raise OSError("gone")

    window = await opened()
    await window.add(calling("c1", "c2"))
    with pytest.raises(OSError, match="gone"):
        await window.add_tool_output("c1", pieces())
    assert window.added == 1
    with pytest.raises(OSError, match="gone"):
        await window.add_tool_output("c2", pieces(), keep_partial=True)
    assert window.messages[1]["content"].startswith("the first half")
    assert "did not come to its end" in window.messages[1]["content"]


# Compaction.


async def test_a_long_session_stays_in_its_window_and_what_left_is_in_the_transcript(tmp_path: Path) -> None:
    events: list[Event] = []
    window = await opened(LocalWorkspace(tmp_path), size=4_000, on_event=events.append)
    for message in turns(0, 40):
        if message["role"] == "assistant":
            handed = await window.prepare()
            check_valid(handed)
            assert window.tokens <= 4_000
        await window.add(message)
    compactions = [event for event in events if isinstance(event, ContextCompressed)]
    assert len(compactions) > 1
    assert all(event.tokens_after < event.tokens_before for event in compactions)
    summary = window.summary
    assert summary is not None
    assert window.messages[0]["content"] == summary.text
    transcript = (tmp_path / "sessions/s1/transcript.md").read_text().split("\n")
    pointers = summary.draft.pointers
    assert pointers
    assert all(1 <= one.start <= one.end <= len(transcript) for one in pointers)
    gone = window._context.head.until
    headings = [line for line in transcript if re.match(r"## \d+ ", line)]
    assert [line.split()[1] for line in headings] == [str(number) for number in range(gone)]
    other = await opened(LocalWorkspace(tmp_path))
    assert other.messages == window.messages
    assert other.tokens == window.tokens


@FORM
async def test_what_was_handed_out_keeps_its_form_until_a_compaction(form: Form) -> None:
    workspace = MemoryWorkspace()
    window = await opened(workspace, dialect=form.name)
    last: list[str] = []
    for number in range(6):
        call_id = f"c{number}"
        answers = form.answering({call_id: [f"row {row}\n" * 300 for row in range(number)] or ["fine"]})
        for message in (form.user(f"question {number}"), form.calling(call_id, thinking="hm"), *answers):
            await window.add(message)
        handed = spelled(await window.prepare())
        assert handed[: len(last)] == last
        last = handed
        if number == 3:
            window = await opened(workspace)


async def test_compress_does_nothing_below_the_trigger_unless_it_must() -> None:
    window = await opened()
    await window.extend(turns(0, 10))
    assert await window.compress() is None
    assert await window.compress(force=True) is not None
    assert await window.compress(before=10) is not None
    assert await window.compress(before=10) is None  # all before it left


async def test_a_cut_parts_no_call_from_its_result() -> None:
    window = await opened()
    await window.extend(turns(0, 3))
    summary = await window.compress(before=6)
    assert summary is not None
    assert summary.messages == (0, 5)  # 5 is the call whose result is 6
    check_valid(window.messages)


async def test_messages_added_while_a_model_writes_stay_and_a_result_that_comes_keeps_its_call() -> None:
    async def slow(request: SummaryRequest) -> str:
        del request
        await window.add(result("late", "the answer that was awaited"))
        await window.add(user("added meanwhile"))
        return "They talked."

    window = await opened(size=100_000, summarizer=slow)
    await window.extend([*turns(0, 3), calling("late"), user("do not wait"), *turns(4, 6)])
    plan = window._plan(window._settings.config)
    assert plan.cut
    summary = await window._compact(window._settings.config, cut=14)
    assert summary is not None
    assert summary.messages == (0, 12)
    assert summary.draft.summarizer == "extractive"
    check_valid(window.messages)
    assert window.messages[-1] == user("added meanwhile")


async def test_a_summarizer_that_raises_changes_nothing_and_one_that_answers_badly_is_replaced() -> None:
    class Writer:
        async def summarize(self, request: SummaryRequest) -> Any:
            del request
            if not events:
                events.append("asked")
                raise OSError("no route")
            return 3

    events: list[Any] = []
    window = await opened(summarizer=Writer(), on_event=events.append)
    await window.extend(turns(0, 12))
    before = window.messages
    with pytest.raises(OSError, match="no route"):
        await window.compress(force=True)
    assert window.messages == before
    assert events == ["asked"]
    summary = await window.compress(force=True)
    assert summary is not None
    assert summary.fell_back
    event = events[-1]
    assert isinstance(event, ContextCompressed)
    assert event.fell_back == summary.fell_back
    transcript = stored(window, "transcript.md")
    assert transcript.count("question 0 why") == 1


async def test_system_messages_stay_and_pins_are_quoted_until_they_are_unpinned() -> None:
    workspace = MemoryWorkspace()
    window = await opened(workspace)
    system = {"role": "system", "content": "Be brief."}
    await window.add(system)
    pin = await window.add(user("Never touch main."), pinned=True)
    live = await window.extend(turns(0, 12))
    await window.add(user("And test it."), pinned=True)
    await window.compress(before=live + 8)
    for one in (window, await opened(workspace)):
        assert one.messages[0] == system
        assert "[Pinned message 1 of the user:]\nNever touch main." in one.messages[1]["content"]
    window = await opened(workspace)
    with pytest.raises(NotFoundError, match=f"messages {pin}, {window.added - 1} are pinned"):
        await window.unpin(pin, live + 9)
    await window.unpin(pin, window.added - 1)
    assert "Pinned" not in str(window.messages)
    await window.add(said("done"))
    window = await opened(workspace)
    await window.compress(before=window.added)
    assert "Pinned" not in str(window.messages)


async def test_pins_that_leave_no_room_are_named_and_nothing_is_written() -> None:
    window = await opened(size=2_000, system="You test.")
    await window.add(user("small"), pinned=True)
    await window.add(user("large " * 3_000), pinned=True)
    await window.add(calling("c1"))
    with pytest.raises(ContextOverflowError, match=r"unpin.*message 1 \(3,0"):
        await window.prepare()
    assert window.added == 3
    await window.unpin(1)
    assert window.exceeding()[0][0] == 1


async def test_after_an_overflow_the_context_is_a_tenth_smaller_without_a_model_or_an_error_says_why() -> None:
    async def never(request: SummaryRequest) -> str:
        raise AssertionError(request)

    window = await opened(size=50_000, summarizer=never)
    await window.extend(turns(0, 20))
    await window.prepare()
    before = window.tokens
    while window.tokens > 2_000:
        check_valid(await window.recover_from_overflow(OSError("too long")))
        assert window.tokens <= 0.9 * before
        before = window.tokens
    with pytest.raises(ContextOverflowError) as refused:
        await asyncio.gather(*(window.recover_from_overflow(OSError("too long")) for _ in range(1)))
    assert isinstance(refused.value.__cause__, OSError)
    assert window.tokens < 2_500


async def test_huge_arguments_are_a_line_that_names_their_file_when_the_window_needs_the_room() -> None:
    body = "".join(f"def part_{number}(row): return {number}\n" for number in range(1_500))
    workspace = MemoryWorkspace()
    window = await opened(workspace, size=12_000)
    given = json.dumps({"path": "part.py", "content": body})
    await window.extend([user("write it"), calling("w1", name="write", arguments=given), result("w1", "written")])
    handed = await window.prepare()
    assert window.tokens <= 12_000
    shown = json.loads(handed[1]["tool_calls"][0]["function"]["arguments"])
    assert shown["path"] == "part.py"
    (name,) = re.findall(r"tool_call-w1~[0-9a-f]+\.txt", shown["content"])
    assert stored(window, name) == given
    assert (await opened(workspace)).messages == handed


async def test_huge_arguments_that_fitted_are_a_line_that_names_their_file_after_a_compaction() -> None:
    window = await opened()
    given = json.dumps({"path": "chart.txt", "content": "".join(f"sound {n}: {n % 31} m\n" for n in range(2_200))})
    talk = [user("write it"), calling("w1", name="write", arguments=given), result("w1", "written"), *turns(4, 34)]
    await window.extend([*turns(0, 4), *talk])
    assert (await window.prepare())[-len(talk) :] == talk
    await window.compress(before=-len(talk))
    handed = (await window.prepare())[-len(talk) :]
    assert [*handed[:1], *handed[2:]] == [*talk[:1], *talk[2:]]
    (name,) = re.findall(r"tool_call-w1~[0-9a-f]+\.txt", handed[1]["tool_calls"][0]["function"]["arguments"])
    assert stored(window, name) == given


async def test_an_offloaded_result_is_one_event_whatever_a_compaction_writes_after_it() -> None:
    events = list[Any]()
    window = await opened(config=ContextConfig(tool_result_limit=300), on_event=events.append)
    written = json.dumps({"content": "line of a file\n" * 400})
    await window.extend([*turns(0, 4), calling("w1", name="write", arguments=written), result("w1", "so it is " * 500)])
    assert await window.compress(before=8) is not None
    kinds = [type(event).__name__ for event in events]
    assert kinds == ["ResultOffloaded", "ContextCompressed"]
    *_, call = (message for message in window.messages if message.get("tool_calls"))
    assert "offloaded" in call["tool_calls"][0]["function"]["arguments"]


@FORM
async def test_images_above_the_limit_become_lines_that_name_their_files(form: Form) -> None:
    workspace = MemoryWorkspace()
    window = await opened(workspace, dialect=form.name, config=ContextConfig(max_images=8))
    for number in range(10):
        await window.add(form.user(f"look at {number}", picture(number)))
    handed = await window.prepare()
    texts = [part.text for message in handed for part in view(form, message).parts if hasattr(part, "text")]
    lines = [text for text in texts if text.startswith("[image: png")]
    assert len(lines) == 2
    path = lines[0].rpartition(", ")[2].rstrip("]")
    assert workspace.disk.read(path[path.index("data/") :]) == picture(0)
    assert spelled((await opened(workspace)).messages) == spelled(handed)


# What a provider says.


async def test_a_usage_stands_for_what_was_sent_and_scales_what_is_new(tmp_path: Path) -> None:
    window = await opened(LocalWorkspace(tmp_path), size=4_000)
    await window.extend(turns(0, 10))
    await window.prepare()
    ours = window.tokens
    assert not window.note_usage(Usage(0))
    assert not window.note_usage(Usage(ours // 3))
    with pytest.raises(UsageError):
        window.note_usage(Usage(100_000))
    assert window.note_usage(Usage(int(ours * 1.3), 5))
    assert window.tokens == int(ours * 1.3)
    await window.add(user("more words " * 500))
    assert window.tokens > int(ours * 1.3) + 1.25 * 1_000
    lines = (tmp_path / "sessions/s1/context.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["buoyline"]["usage"]["input_tokens"] == int(ours * 1.3)
    await window.prepare()
    assert window.summary is not None, "only the provider finds it above the trigger"
    assert not window.note_usage(Usage(int(ours * 1.3), 5)), "it is that of the request before"


@settings(max_examples=40, deadline=None)
@given(
    factor=st.sampled_from([0.8, 1.2, 1.8]),
    hidden=st.sampled_from([0, 400]),
    sizes=st.lists(st.integers(1, 400), min_size=5, max_size=60),
    reserve=st.sampled_from([0.1, 0.5]),
)
@example(factor=1.8, hidden=400, sizes=[1, 152, 376, 378, 378], reserve=0.1)
async def test_no_request_is_above_the_window_by_the_providers_own_count(
    factor: float, hidden: int, sizes: list[int], reserve: float
) -> None:
    window = await opened(size=6_000, config=ContextConfig(trigger_ratio=0.7, reserve_ratio=reserve))
    for size in sizes:
        await window.add(user(" ".join(f"word{number}" for number in range(size))))
        sent = await window.prepare()
        taken = hidden + int(factor * sum(count_message(detect(one).view(one), default_counter()) for one in sent))
        assert taken <= 6_000
        window.note_usage(Usage(taken, 7))
        await window.add(said("well " * (size // 2)))


async def test_system_prompt_and_tools_count_and_may_change_with_a_request() -> None:
    workspace = MemoryWorkspace()
    window = await opened(workspace, system="word " * 100)
    await window.add(user("hello"))
    few = window.tokens
    beside: Any = {"system": "word " * 300, "tools": [{"name": "t", "description": "word " * 200}]}
    await window.prepare(**beside)
    assert window.tokens > few + 390
    await window.add(user("again"))
    await window.compress(before=1)
    again = await opened(workspace)  # a request that brings them brings them each time, so they are not on disk
    assert again.tokens < window.tokens
    await again.prepare(**beside)
    assert again.tokens == window.tokens


async def test_the_trigger_auto_is_a_number_of_tokens_above_what_a_compaction_leaves() -> None:
    config = ContextConfig(trigger_ratio="auto")
    window = await opened(size=1_000_000, config=config)
    limit = 4_000 + 100_000 + 12_000
    await window.extend(turns(0, 400, 80))
    assert not window._exceeds(config) or window.tokens > limit
    while not window._exceeds(config):
        await window.extend(turns(0, 20, 80))
    assert limit < window.tokens < limit + 10_000


# One window at a time.


async def test_a_second_call_is_refused_until_the_first_has_returned_and_add_waits() -> None:
    async def asks(request: SummaryRequest) -> str:
        del request
        with pytest.raises(BusyError, match=r"at work in compress\(\); call prepare\(\) after it"):
            await window.prepare()
        await window.add(user("meanwhile"))
        return "They talked."

    window = await opened(summarizer=asks)
    await window.extend(turns(0, 12))
    await window.compress(force=True)
    assert window.messages[-1] == user("meanwhile")
    assert await window.prepare() == window.messages


async def test_a_window_that_another_one_has_taken_over_writes_nothing_more() -> None:
    workspace = MemoryWorkspace()
    first = await opened(workspace)
    await first.add(user("one"))
    second = await opened(workspace)
    await second.add(user("two"))
    for _ in range(2):
        with pytest.raises(StaleWindowError):
            await first.add(user("lost"))
    assert (await opened(workspace)).messages == [user("one"), user("two")]


async def test_workers_that_follow_one_list_take_the_session_over_in_turn() -> None:
    workspace = MemoryWorkspace()
    tools = iter([{"name": "look", "input_schema": {}}])
    workers = [await opened(workspace, tools=tools if number == 0 else None) for number in range(3)]
    listed = list[Any]()
    for number, worker in enumerate([*workers, *workers, *workers]):
        listed.append(user(f"question {number}"))
        assert await worker.request(listed) == listed
    assert (await opened(workspace)).added == 9
    assert workers[0]._settings.tools
    listed.append(calling("c1"))
    await workers[0].follow(listed)
    handed = await workers[1].request(listed)
    assert "interrupted" in handed[-1]["content"]
    assert await workers[0].request(listed) == handed  # its own write would have been the first of a window gone stale
    assert (await opened(workspace)).added == 11


async def test_a_session_of_archived_messages_gets_no_window() -> None:
    workspace = MemoryWorkspace()
    await workspace.offload_context("s1", [user("old")])
    with pytest.raises(ConfigError, match="use a new one"):
        await opened(workspace)


def test_a_window_that_was_forked_is_refused_in_the_child(tmp_path: Path) -> None:
    async def begun() -> ContextWindow:
        window = await opened(LocalWorkspace(tmp_path))
        await window.add(user("parent"))
        return window

    window = asyncio.run(begun())
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(window.add(user("child")))
        except StaleWindowError:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert asyncio.run(window.add(user("parent again"))) == 1


# Opening.


async def test_settings_are_as_they_were_unless_they_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    config = ContextConfig(tool_result_limit=500, tool_rules={"a*": ToolRule(limit=9)}, trigger_ratio=0.5)
    async with await ContextWindow.open(
        "~/w", "s1", model="claude-sonnet-4-5", system=[{"text": "x"}], tools=[{"name": "t"}], config=config
    ) as window:
        await window.add(user("hello"))
        given = window._settings
        assert (given.size, given.max_output_tokens) == (200_000, 20_000)
    assert (tmp_path / "w/sessions/s1/context.jsonl").exists()
    again = await ContextWindow.open(tmp_path / "w", "s1")
    assert again._settings == given
    changed = await ContextWindow.open(tmp_path / "w", "s1", size=9_000, max_output_tokens=100, tools=[])
    assert (changed._settings.size, changed._settings.max_output_tokens, changed._settings.tools) == (9_000, 100, ())
    assert changed._settings.config == config


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"max_tokens": 8_000}, TypeError, "write size=… for the tokens of the window, or max_output_tokens=…"),
        ({"sise": 8_000}, TypeError, "did you mean 'size'|did you mean size=…"),
        ({"summarizer": "gpt-5"}, ConfigError, r"name of a model; pass ModelSummarizer\('gpt-5'\)"),
        ({"size": "8000"}, ConfigError, "size"),
        ({"size": 8_000, "max_output_tokens": 8_000}, ConfigError, "from 0 to below trigger_ratio x size"),
        ({"tools": {"name": "t"}}, ConfigError, r"pass \[tool, ...\]"),
        ({"dialect": "opnai"}, ConfigError, "choose one of"),
        ({"on_event": asyncio.sleep}, ConfigError, "pass a plain function"),
        ({"counter": "cl100k"}, ConfigError, "count"),
        ({"management": 3}, ConfigError, "no document"),
    ],
)
async def test_first_tries_are_told_what_to_write(settings: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        await ContextWindow.open(MemoryWorkspace(), "s1", **settings)


async def test_the_one_way_in_is_open() -> None:
    with pytest.raises(TypeError, match=r"await ContextWindow.open\(workspace, session_id"):
        ContextWindow("./workspace", session_id="s1", size=8_000)
    with pytest.raises(ConfigError, match="give a path or a LocalWorkspace"):
        await ContextWindow.open(MemoryDisk("x"), "s1")  # type: ignore[arg-type]
    assert (await ContextWindow.open(workspace=MemoryWorkspace(), session_id="s1")).added == 0


# Dialects.


async def test_neighbors_that_bedrock_wants_as_one_are_followed_in_each_process() -> None:
    def said_by(role: str, text: str) -> dict[str, Any]:
        return {"role": role, "content": [{"text": text}]}

    workspace = MemoryWorkspace()
    window = await opened(workspace, dialect="bedrock")
    talk = [said_by("user", f"m{number} " + "word " * 50) for number in range(6)]
    await window.follow(talk)
    await window.compress(before=3)
    handed = await window.prepare()
    assert [message["role"] for message in handed].count("user") == 3
    assert len(handed[0]["content"]) == 2
    for one in (window, await opened(workspace)):
        followed = await one.follow(handed)
        assert (followed.added, followed.removed) == (0, 0)
        assert one.messages == handed


async def test_a_response_is_one_message_whose_items_are_handed_out_flat() -> None:
    workspace = MemoryWorkspace()
    window = await opened(workspace, dialect="openai-responses")
    items = [
        {"type": "reasoning", "id": "r1", "summary": []},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "fine"},
    ]
    await window.add(user("go"))
    await window.extend(items)
    assert await window.prepare() == [user("go"), *items]
    assert window.added == 3
    with pytest.raises(MessageError, match="add the response, extend with all of its items"):
        await window.add(items[1])
    grown = [user("go"), *items]
    for text in ("One.", "Two.", "Three."):  # a known response keeps its items, also in another process
        grown.append({"role": "assistant", "content": text})
        other = await opened(workspace)
        followed = await other.follow(grown)
        assert (followed.added, followed.fork) == (1, None)
        assert await other.prepare() == grown
    assert (await other.follow([*grown, user("next")])).added == 1


async def test_what_is_redacted_is_nowhere_on_disk_and_the_list_is_known_again(tmp_path: Path) -> None:
    def redact(text: str) -> str:
        return re.sub(r"key-\d+", "[key]", text)

    workspace = LocalWorkspace(tmp_path, redact=redact)
    window = await opened(workspace)
    listed = [
        user("use key-123"),
        calling("c1", arguments='{"key": "key-456"}'),
        result("c1", f"{LOG}key-789\n"),
        said("used key-123"),
    ]
    assert (await window.follow(listed)).added == 4
    await window.compress(before=3)
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(re.search(rb"key-\d", content) for content in files)
    assert (await (await opened(workspace)).follow([*listed, user("next")])).added == 1


# The agent's own tools.


async def test_the_agent_may_ask_for_a_compaction_before_its_next_step() -> None:
    window = await opened(size=8_000)
    await window.extend(turns(0, 12))
    tool = compress_tool(window._ask, lambda: "It takes much", "")
    await window.add(calling("c9", name="compress_context"))
    answer = await tool.call(focus="the newest question")
    assert "the oldest" in answer
    assert window.summary is None
    await window.add(result("c9", answer))
    await window.prepare()
    assert window.summary is not None
    assert "would save nothing" in await tool.call(focus=None)


@pytest.mark.parametrize(
    ("dialect", "call"),
    [
        ("openai", {"id": "c1", "type": "function", "function": {"name": "my_grep", "arguments": '{"pattern": "x"}'}}),
        ("anthropic", {"type": "tool_use", "id": "c1", "name": "my_grep", "input": {"pattern": "x"}}),
        ("bedrock", {"toolUse": {"toolUseId": "c1", "name": "my_grep", "input": {"pattern": "x"}}}),
        (
            "openai-responses",
            {"type": "function_call", "call_id": "c1", "name": "my_grep", "arguments": '{"pattern": "x"}'},
        ),
    ],
)
async def test_a_call_of_the_model_is_run_and_answered_in_its_own_form(dialect: str, call: dict[str, Any]) -> None:
    window = await opened(dialect=dialect)
    assert "my_compress_context" in str(window.tools(dialect, prefix="my_")[3])
    answer = dialect_named(dialect).view(await window.call(call))
    assert answer.results[0].call_id == "c1"
    with pytest.raises(NotFoundError, match="my_grep"):
        await window.call({"name": "other", "input": {}})
    with pytest.raises(ConfigError, match="has no form for tools"):
        window.tools("agentscope")
