"""The window: what is handed out, what leaves, and how another process goes on."""

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest
from estimates import Estimates
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thirds import STEP, each_third

from buoyline import ContextConfig, ContextWindow, LocalWorkspace
from buoyline.compression import Draft, SummaryRequest
from buoyline.compression.plan import pair_spans
from buoyline.compression.summary import FIELDS
from buoyline.errors import (
    ConfigError,
    ContextOverflowError,
    MessageError,
    NotFoundError,
    SessionExistsError,
    StaleWindowError,
    StorageError,
    SummaryError,
)
from buoyline.inspect.replay import Replay, replay
from buoyline.messages.registry import detect
from buoyline.tokens import default_counter
from buoyline.window import ContextCompressed, Event, ResultOffloaded

COUNTER = default_counter()


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def call(call_id: str, arguments: str = "{}") -> dict[str, Any]:
    function = {"name": "run", "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def words(count: int, word: str = "word") -> str:
    return " ".join(f"{word}{number}" for number in range(count))


def lines(count: int) -> str:
    return "".join(f"line {number} of the output\n" for number in range(1, count + 1))


def window(workdir: Path | None, **options: Any) -> ContextWindow:
    offloader = None if workdir is None else LocalWorkspace(workdir, durability="off")
    return ContextWindow(session_id="s1", offloader=offloader, **options)


async def test_messages_that_stay_are_the_very_same_objects(tmp_path: Path) -> None:
    given_messages = [user("a"), assistant("b"), call("c"), result("c", "small")]
    opened = window(tmp_path)
    for message in given_messages:
        await opened.add(message)
    prepared = await opened.prepare()

    assert all(found is message for found, message in zip(prepared, given_messages, strict=True))


async def test_a_large_result_becomes_a_stub_whose_file_holds_every_byte(tmp_path: Path) -> None:
    events: list[Event] = []
    opened = window(tmp_path, on_event=events.append)
    original = result("call_A", lines(2000))
    for message in (user("go"), call("call_A"), original):
        await opened.add(message)
    stub = (await opened.prepare())[-1]

    assert original["content"] == lines(2000), "the caller's message is not changed"
    assert stub["tool_call_id"] == "call_A"
    assert COUNTER.count(stub["content"]) <= 1000
    (event,) = events
    assert isinstance(event, ResultOffloaded)
    assert event.path in stub["content"].splitlines()[1]
    assert (event.message, event.tool) == (2, "run")
    assert Path(event.path).read_text(encoding="utf-8") == lines(2000)
    assert "1: line 1 of the output" in stub["content"]
    assert "2000: line 2000 of the output" in stub["content"]


async def test_what_was_handed_out_once_looks_the_same_until_a_compression(tmp_path: Path) -> None:
    opened = window(tmp_path)
    await opened.add(call("c"))
    await opened.add(result("c", lines(2000)))
    first = await opened.prepare()
    await opened.add(user("next"))
    second = await opened.prepare()

    assert [json.dumps(message) for message in second[:2]] == [json.dumps(message) for message in first]


async def test_without_an_offloader_results_are_cut_with_the_documented_marker_and_one_warning() -> None:
    opened = window(None, config=ContextConfig(tool_result_limit=200))
    for call_id in ("a", "b"):
        await opened.add(call(call_id))
        await opened.add(result(call_id, lines(500)))
    with pytest.warns(UserWarning, match="lost") as caught:
        prepared = await opened.prepare()

    assert len(caught) == 1
    assert prepared[1]["content"].startswith("line 1 of the output\n")
    assert prepared[1]["content"].endswith(
        "<<<TRUNCATED>>>\n"
        "<system-reminder>The remaining content has been omitted for limited context.</system-reminder>"
    )
    assert COUNTER.count(prepared[1]["content"]) <= 200


async def test_a_failed_write_raises_and_leaves_the_context_as_it_was(tmp_path: Path) -> None:
    opened = window(tmp_path / "w")
    await opened.add(user("go"))
    await opened.prepare()
    (tmp_path / "w/sessions").rename(tmp_path / "away")
    (tmp_path / "w/sessions").write_text("in the way", encoding="utf-8")
    original = result("c", lines(2000))
    await opened.add(call("c"))
    await opened.add(original)

    with pytest.raises((StorageError, NotFoundError)):
        await opened.prepare()
    assert opened.messages[-1] is original
    (tmp_path / "w/sessions").unlink()
    (tmp_path / "away").rename(tmp_path / "w/sessions")
    assert "offloaded" in (await opened.prepare())[-1]["content"]


async def test_compression_keeps_the_context_under_the_limit_and_archives_what_leaves(tmp_path: Path) -> None:
    opened = window(tmp_path, size=4000)
    sent = [user("Build the parser in src/parser.py, never touch vendor/.")]
    for number in range(60):
        sent += [assistant(f"Step {number}: {words(20)}"), user(f"go on {number} {words(20, 'detail')}")]
    for message in sent:
        await opened.add(message)
        await opened.prepare()
        assert opened.tokens <= 4000
    archived = [json.loads(line) for line in (tmp_path / "sessions/s1/context.jsonl").read_text("utf-8").splitlines()]
    held = opened.messages

    assert archived + held[1:] == sent
    assert held[0]["role"] == "user"
    assert "src/parser.py" in held[0]["content"]


async def test_a_summary_says_where_everything_is_and_its_pointers_resolve(tmp_path: Path) -> None:
    opened = window(tmp_path, size=4000)
    await opened.add(user("Fix the bug in lib/engine.py"))
    for number in range(30):
        await opened.add(call(f"c{number}", json.dumps({"path": f"lib/file_{number}.py"})))
        await opened.add(result(f"c{number}", f"ValueError: bad value {number}\n" + words(60)))
    summary = await opened.compress(force=True)

    assert summary is not None
    transcript = (tmp_path / "sessions/s1/transcript.md").read_text(encoding="utf-8").split("\n")
    assert str(tmp_path / "sessions/s1/transcript.md") in summary.text
    assert summary.draft.pointers
    assert all(1 <= p.start <= p.end < len(transcript) for p in summary.draft.pointers)
    assert all(str(p) in summary.text for p in summary.draft.pointers)
    assert summary.unverified == ()
    (line,) = (tmp_path / "sessions/s1/summaries.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["text"] == summary.text == opened.messages[0]["content"]
    assert json.loads(line)["messages"] == [0, summary.messages[1]]


async def test_compressing_twice_keeps_what_the_first_summary_held(tmp_path: Path) -> None:
    opened = window(tmp_path, size=16_000, config=ContextConfig(summary_tokens=1500))
    await opened.add(user("Rename the table to billing_events_v2 and keep ticket PAY-4711 in the commit message."))
    await opened.add(assistant("I will."))
    await opened.compress(before=2)
    await opened.add(call("c", '{"command": "pytest tests/test_billing.py"}'))
    await opened.add(result("c", "1 passed"))
    second = await opened.compress(before=4)

    assert second is not None
    assert "billing_events_v2" in second.text
    assert "PAY-4711" in second.text
    assert "tests/test_billing.py" in second.text
    assert second.messages == (2, 4)


async def test_system_messages_and_pins_stand_again_at_the_head_as_the_same_objects(tmp_path: Path) -> None:
    opened = window(tmp_path, size=4000)
    system, pin = {"role": "system", "content": "You are careful."}, user("The deadline is 2031-05-06.")
    await opened.add(system)
    await opened.add(user("hello"))
    await opened.add(pin, pinned=True)
    for number in range(5):
        await opened.add(assistant(f"{number} {words(50)}"))
    for _ in range(2):
        await opened.add(user(words(100)))
        await opened.compress(force=True)

    assert opened.messages[0] is system
    assert opened.messages[1] is pin
    assert "Summary of messages" in opened.messages[2]["content"]


async def test_compress_does_nothing_below_the_trigger_unless_forced(tmp_path: Path) -> None:
    opened = window(tmp_path, size=4000)
    for number in range(4):
        await opened.add(user(f"{number} {words(100)}"))

    assert await opened.compress() is None
    assert await opened.compress(config=ContextConfig(trigger_ratio=0.05, reserve_ratio=0.01)) is not None


async def test_compressing_before_a_message_moves_back_to_keep_a_pair_together(tmp_path: Path) -> None:
    opened = window(tmp_path)
    for message in (user("a"), call("c"), result("c", "r")):
        await opened.add(message)
    await opened.compress(before=2)

    assert opened.messages[1:] == [call("c"), result("c", "r")]


async def test_compressing_before_a_message_keeps_a_call_whose_result_is_still_to_come(tmp_path: Path) -> None:
    opened = window(tmp_path)
    for message in (user("a"), call("c")):
        await opened.add(message)
    await opened.compress(before=2)
    await opened.add(result("c", "r"))

    assert (await opened.prepare())[1:] == [call("c"), result("c", "r")]


async def test_compressing_before_a_message_that_has_left_does_nothing(tmp_path: Path) -> None:
    opened = window(tmp_path)
    for number in range(4):
        await opened.add(user(f"{number}"))
    await opened.compress(before=3)

    assert await opened.compress(before=1) is None
    assert opened.messages[1:] == [user("3")]


async def test_parallel_results_that_together_exceed_the_window_are_stubbed(tmp_path: Path) -> None:
    opened = window(tmp_path, size=6000)
    calls = [{"id": f"c{n}", "type": "function", "function": {"name": "run", "arguments": "{}"}} for n in range(5)]
    await opened.add(user("go"))
    await opened.add({"role": "assistant", "content": None, "tool_calls": calls})
    for n in range(5):
        await opened.add(result(f"c{n}", f"output {n}\n" + lines(300)))
    await opened.prepare()

    assert opened.tokens <= 6000
    assert len(opened.messages) >= 6
    assert [m["tool_call_id"] for m in opened.messages[-5:]] == [f"c{n}" for n in range(5)]


async def test_one_message_larger_than_the_window_is_handed_out_and_reported(tmp_path: Path) -> None:
    opened = window(tmp_path, size=500)
    await opened.add(user("first"))
    await opened.add(user(words(1000)))
    await opened.prepare()

    ((index, tokens),) = opened.exceeding()
    assert index == 1
    assert tokens > 500


async def test_a_window_smaller_than_its_system_prompt_is_a_clear_error_and_writes_nothing(tmp_path: Path) -> None:
    opened = window(tmp_path / "w", size=50, system=words(100))
    await opened.add(user("hello"))

    with pytest.raises(ContextOverflowError, match="larger window"):
        await opened.prepare()
    assert not (tmp_path / "w").exists()


async def test_tools_and_system_prompt_count(tmp_path: Path) -> None:
    plain, laden = (
        window(tmp_path),
        window(tmp_path, system=words(50), tools=[{"name": "run", "description": words(50)}]),
    )

    assert plain.tokens == window(tmp_path, tools=None).tokens == 0
    assert laden.tokens > 100


@pytest.mark.parametrize("size", [0, -1, 2.5, "8k", True])
def test_a_size_that_is_no_number_of_tokens_is_refused(size: Any) -> None:
    with pytest.raises(ConfigError, match="size"):
        ContextWindow(session_id="s1", size=size)


async def test_a_path_in_place_of_a_workspace_is_refused_with_what_to_write() -> None:
    with pytest.raises(ConfigError, match=r'give LocalWorkspace\("./workspace"\)'):
        ContextWindow(session_id="s1", offloader="./workspace")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r'give LocalWorkspace\("workspace"\)'):
        await ContextWindow.resume(Path("workspace"), "s1")  # type: ignore[arg-type]


async def test_something_that_is_no_message_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(MessageError, match="role"):
        await window(tmp_path).add({"content": "x"})


async def test_a_used_session_is_not_begun_again(tmp_path: Path) -> None:
    first = window(tmp_path)
    await first.add(user("a"))
    await first.prepare()
    second = window(tmp_path)
    await second.add(user("a"))

    with pytest.raises(SessionExistsError, match="resume"):
        await second.prepare()


async def test_resuming_a_session_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="s1"):
        await ContextWindow.resume(LocalWorkspace(tmp_path), "s1")


async def test_another_process_goes_on_exactly_where_this_one_stopped(tmp_path: Path) -> None:
    config = ContextConfig(tool_result_limit=500, preview_tokens=100)
    opened = window(tmp_path, size=4000, config=config, system="be good", tools=[{"name": "run"}])
    await opened.add({"role": "system", "content": "rules"})
    await opened.add(user("keep this"), pinned=True)
    for number in range(12):
        await opened.add(call(f"c{number}"))
        await opened.add(result(f"c{number}", lines(100)))
        await opened.prepare()
    resumed = await ContextWindow.resume(LocalWorkspace(tmp_path, durability="off"), "s1")

    assert resumed.messages == opened.messages
    assert (resumed.tokens, resumed.added, resumed.size, resumed.config) == (
        opened.tokens,
        opened.added,
        4000,
        config,
    )
    for both in (opened, resumed):
        await both.add(user(words(200)))
    await resumed.compress(force=True)
    assert "keep this" in json.dumps(resumed.messages[:2])


async def test_a_summary_depends_on_no_result_that_had_left_before_another_process_went_on(tmp_path: Path) -> None:
    texts: list[str] = []
    for is_stopped in (False, True):
        opened = window(tmp_path / "w", size=16_000)
        for message in (user("go"), call("c"), result("c", lines(2000)), assistant("done")):
            await opened.add(message)
        await opened.compress(before=4, config=ContextConfig(summary_tokens=1))  # nothing of the result is carried on
        if is_stopped:
            opened = await ContextWindow.resume(LocalWorkspace(tmp_path / "w", durability="off"), "s1")
        for number in range(200):
            await opened.add(assistant(f"Wrote out/file_{number}.py with id_{number} and value_{number}."))
        summary = await opened.compress(before=200)
        assert summary is not None
        texts.append(summary.text)
        (tmp_path / "w").rename(tmp_path / f"aside{is_stopped}")  # paths take tokens, too

    assert texts[0] == texts[1]


class Failing:
    """A summariser that fails as a provider does."""

    def __init__(self, failure: Exception | None = None, fields: dict[str, str] | None = None) -> None:
        self.failure, self.fields = failure, fields

    async def summarize(self, request: SummaryRequest) -> Draft:
        if self.failure is not None:
            raise self.failure
        return Draft("model", self.fields or dict.fromkeys(request.fields, "Said little about Q-77."))


async def fill(opened: ContextWindow, count: int = 10) -> list[Any]:
    sent = [user(f"{number}: {words(60)}") for number in range(count)]
    for message in sent:
        await opened.add(message)
    return sent


async def test_a_summariser_that_raises_loses_nothing_and_the_next_attempt_uses_what_was_archived(
    tmp_path: Path,
) -> None:
    failing = Failing(TimeoutError("no answer"))
    opened = window(tmp_path, size=4000, summarizer=failing)
    sent = await fill(opened)
    with pytest.raises(TimeoutError):
        await opened.compress(force=True)
    assert opened.messages == sent, "the context is as it was"

    failing.failure = None
    sent += [user("one more")]
    await opened.add(sent[-1])
    summary = await opened.compress(force=True)
    archived = [json.loads(line) for line in (tmp_path / "sessions/s1/context.jsonl").read_text("utf-8").splitlines()]
    assert summary is not None
    assert summary.messages[0] == 0
    assert archived + opened.messages[1:] == sent


@pytest.mark.parametrize(
    "summarizer",
    [
        Failing(SummaryError("model", "refused")),
        Failing(fields={"task_overview": "only one"}),
        Failing(fields=dict.fromkeys(ContextConfig().fields, words(5000))),
    ],
    ids=["refuses", "lacks fields", "inflates"],
)
async def test_an_unusable_summary_falls_back_to_extraction(tmp_path: Path, summarizer: Failing) -> None:
    opened = window(tmp_path, size=4000, summarizer=summarizer)
    await fill(opened)
    summary = await opened.compress(force=True)

    assert summary is not None
    assert summary.draft.summarizer == "extractive"


NONE: Any = None


@pytest.mark.parametrize(
    "answer",
    [
        *(None, "text", {}, Draft("m", {"task_overview": NONE}), Draft("m", {}, (NONE,))),
        *(Draft(NONE, {}), Draft("m", NONE), Draft("m", {NONE: "x"}), Draft("m", {}, NONE), Draft("m", {}, (), NONE)),
        Draft("m", dict.fromkeys(FIELDS, "x"), work=cast("Any", "x")),
    ],
    ids=repr,
)
async def test_a_summariser_that_answers_with_anything_else_is_passed_over(tmp_path: Path, answer: Any) -> None:
    class Odd:
        async def summarize(self, request: SummaryRequest) -> Any:
            return answer

    opened = window(tmp_path, size=4000, summarizer=Odd())
    await fill(opened)
    summary = await opened.compress(force=True)

    assert summary is not None
    assert summary.draft.summarizer == "extractive"


async def test_what_a_model_claims_without_backing_is_listed_and_marked(tmp_path: Path) -> None:
    opened = window(tmp_path, size=4000, summarizer=Failing())
    await fill(opened)
    summary = await opened.compress(force=True)

    assert summary is not None
    assert summary.draft.summarizer == "model"
    assert summary.unverified == ("Q-77",)
    assert "Q-77 (unverified)" in summary.text


async def test_after_an_overflow_the_context_shrinks_without_a_model(tmp_path: Path) -> None:
    opened = window(tmp_path, size=100_000, summarizer=Failing(TimeoutError("down")))
    await fill(opened, 20)
    before = opened.tokens
    await opened.recover_from_overflow()

    assert opened.tokens <= before * 0.9


async def test_an_overflow_that_nothing_can_mend_is_raised(tmp_path: Path) -> None:
    opened = window(tmp_path)
    await opened.add(user(words(500)))

    with pytest.raises(ContextOverflowError, match="newest"):
        await opened.recover_from_overflow()


class Killed(Exception):  # noqa: N818 - it stands for the end of the process
    """Ends a call where a process was killed."""


async def test_a_kill_between_any_two_steps_of_a_compression_resumes(tmp_path: Path) -> None:
    for stop_at in ("archive", "append_summary", "replace_window"):
        workspace = LocalWorkspace(tmp_path / stop_at, durability="off")
        opened = ContextWindow(session_id="s1", offloader=workspace, size=4000)
        sent = await fill(opened)
        await opened.prepare()
        real = getattr(workspace, stop_at)

        async def then_die(*args: Any, real: Any = real, **kwargs: Any) -> Any:
            await real(*args, **kwargs)
            raise Killed

        setattr(workspace, stop_at, then_die)
        with pytest.raises(Killed):
            await opened.compress(force=True)
        resumed = await ContextWindow.resume(LocalWorkspace(tmp_path / stop_at, durability="off"), "s1")
        await resumed.add(user("later"))
        await resumed.compress(force=True)
        path = tmp_path / stop_at / "sessions/s1/context.jsonl"
        archived = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        assert archived + resumed.messages[1:] == [*sent, user("later")]


async def test_a_cache_mark_that_was_set_on_what_was_handed_out_does_not_end_a_resume(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    opened = ContextWindow(session_id="s1", offloader=workspace, size=4000)
    for number in range(8):
        await opened.add({"role": "user", "content": [{"type": "text", "text": f"{number} {words(60)}"}]})
        messages = await opened.prepare()
        messages[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}

    async def die(*_: Any, **__: Any) -> Any:
        raise Killed

    setattr(workspace, "append_summary", die)  # noqa: B010 - a method is put in the place of another one
    with pytest.raises(Killed):
        await opened.compress(force=True)
    resumed = await ContextWindow.resume(LocalWorkspace(tmp_path, durability="off"), "s1")
    summary = await resumed.compress(force=True)

    assert summary is not None
    assert resumed.added == 8


class TenLines:
    """What a user writes for a store of their own, in the form that AgentScope documents."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    async def offload_context(self, session_id: str, msgs: list[Any], **kwargs: Any) -> str:
        key = f"s3://bucket/sessions/{session_id}/context-{len(self.kept)}.jsonl"
        self.kept[key] = "\n".join(json.dumps(message) for message in msgs)
        return key

    async def offload_tool_result(self, session_id: str, tool_result: Any, **kwargs: Any) -> str:
        key = f"s3://bucket/sessions/{session_id}/tool_result-{tool_result.id}.txt"
        self.kept[key] = tool_result.text
        return key


async def test_an_offloader_of_ten_lines_works_and_its_references_are_cited() -> None:
    offloader = TenLines()
    opened = ContextWindow(session_id="s1", offloader=offloader, size=6000)
    for message in (user("go"), call("c9"), result("c9", lines(2000))):
        await opened.add(message)
    stub = (await opened.prepare())[-1]["content"]
    summary = await opened.compress(before=3)

    assert "s3://bucket/sessions/s1/tool_result-c9.txt" in stub
    assert offloader.kept["s3://bucket/sessions/s1/tool_result-c9.txt"] == lines(2000)
    assert summary is not None
    assert "s3://bucket/sessions/s1/context-1.jsonl" in summary.text


ids = st.sampled_from(["", "a", "b", "c"])
texts = st.integers(0, 120).map(words)
messages = st.one_of(
    st.builds(user, texts),
    st.builds(assistant, texts),
    st.builds(call, ids),
    st.builds(result, ids, st.integers(0, 300).map(lines)),
    st.builds(
        lambda first, second: {**call(first), "tool_calls": call(first)["tool_calls"] + call(second)["tool_calls"]},
        ids,
        ids,
    ),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(conversation=st.lists(messages, max_size=40), size=st.sampled_from([700, 2000, 6000]))
def test_any_conversation_keeps_its_pairs_its_order_and_its_messages(
    tmp_path_factory: pytest.TempPathFactory, conversation: list[Any], size: int
) -> None:
    workdir = tmp_path_factory.mktemp("w")
    seen = Replay()
    config = ContextConfig(tool_result_limit=300, preview_tokens=200)
    cuts: list[tuple[int, int, int]] = []

    def record(event: Event) -> None:
        seen.record(event)
        if isinstance(event, ContextCompressed):
            cuts.append((*event.summary.messages, opened.added))

    opened = window(workdir, size=size, config=config, on_event=record)
    asyncio.run(replay(conversation, opened, seen, counter=COUNTER))
    archived = asyncio.run(LocalWorkspace(workdir).load_messages("s1", 0, 1 << 30)) if conversation else []
    kept = [entry.native for entry in opened._context.whole.messages]
    held = [message for _, message in archived] + kept

    assert len(held) == len(conversation)
    for found, message in zip(held, conversation, strict=True):
        assert found == message or "offloaded" in found["content"]
    for first, cut, known in cuts:
        spans = pair_spans([detect(message).view(message) for message in conversation[:known]])
        assert not any(first <= start < cut <= end for start, end in spans)
    for event in seen.offloaded:
        assert event.stub_tokens < event.tokens
        assert Path(event.path).read_text(encoding="utf-8") == conversation[event.message]["content"]


@each_third
async def test_a_call_cancelled_at_any_moment_leaves_a_window_that_goes_on_and_loses_nothing(
    tmp_path: Path, first: int
) -> None:
    for delay in range(first - 1, 60, STEP):
        workspace = LocalWorkspace(tmp_path / str(delay), durability="off")
        opened = ContextWindow(session_id="s1", offloader=workspace, size=3000)
        sent: list[Any] = []
        for number in range(12):
            sent.append(result("", lines(200)) if number % 5 == 3 else user(f"{number}: {words(60)}"))
            await opened.add(sent[-1])
            task = asyncio.ensure_future(opened.prepare() if number % 3 else opened.compress(force=True))
            for _ in range(delay * 2 % 37):
                await asyncio.sleep(0)
            await asyncio.sleep(delay % 7 * 0.0005)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await opened.prepare()
        archived = await stored_messages(workspace, opened)
        kept = [entry.native for entry in opened._context.whole.messages]
        summaries = [found["messages"] for found in await workspace.load_summaries("s1")]

        assert same_messages(archived + kept, sent)
        assert [first for first, _ in summaries] == [0, *(end for _, end in summaries[:-1])][: len(summaries)]
        resumed = await ContextWindow.resume(workspace, "s1")
        assert (resumed.messages, resumed.added) == (opened.messages, len(sent))
        await workspace.close()


async def stored_messages(workspace: LocalWorkspace, opened: ContextWindow) -> list[Any]:
    first = opened.added - len(opened._context.whole.messages)
    return [message for _, message in await workspace.load_messages("s1", 0, first)]


def same_messages(held: list[Any], sent: list[Any]) -> bool:
    return len(held) == len(sent) and all(
        found == message or "Tool result offloaded" in found["content"]
        for found, message in zip(held, sent, strict=True)
    )


@pytest.mark.parametrize("method", ["locate", "archive", "replace_window", "start_window"])
async def test_a_step_that_fails_after_its_effect_is_not_done_twice(tmp_path: Path, method: str) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    opened = ContextWindow(session_id="s1", offloader=workspace, size=4000)
    real = getattr(workspace, method)

    async def once_then_fail(*args: Any, **kwargs: Any) -> Any:
        await real(*args, **kwargs)
        setattr(workspace, method, real)
        raise StorageError(5, "broken", "somewhere")

    setattr(workspace, method, once_then_fail)
    sent = await fill(opened, 20)
    with pytest.raises(StorageError):
        await opened.compress(force=True)
    sent += [user("later")]
    await opened.add(sent[-1])
    await opened.compress(force=True)
    archived = await stored_messages(workspace, opened)

    assert archived + [entry.native for entry in opened._context.whole.messages] == sent
    assert len((tmp_path / "sessions/s1/context.jsonl").read_bytes().splitlines()) == len(archived)
    ends = [found["messages"] for found in await workspace.load_summaries("s1")]
    assert [first for first, _ in ends] == [0, *(end for _, end in ends)][: len(ends)]


@pytest.mark.parametrize("failing", [(0, 1, 2), (0, 2, 4), (0, 1, 3, 4)])
async def test_archiving_that_fails_again_and_again_is_gone_on_with(tmp_path: Path, failing: tuple[int, ...]) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    opened = ContextWindow(session_id="s1", offloader=workspace, size=4000)
    real, tries = workspace.archive, iter(range(100))

    async def fail_at_some(*args: Any, **kwargs: Any) -> Any:
        number = next(tries)
        if number not in failing or number % 2:
            await real(*args, **kwargs)
        if number in failing:
            raise StorageError(28, "no space left", "somewhere")

    setattr(workspace, "archive", fail_at_some)  # noqa: B010 - a method is put in the place of another one
    sent = await fill(opened, 20)
    failures = 0
    while True:
        try:
            await opened.compress(force=True)
            break
        except StorageError:
            failures += 1
            sent.append(user(f"{failures} {words(60)}"))
            await opened.add(sent[-1])
    archived = await stored_messages(workspace, opened)

    assert failures == len(failing)
    assert archived + opened.messages[1:] == sent


async def test_an_attempt_to_archive_is_remembered_only_until_it_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    opened = ContextWindow(session_id="s1", offloader=workspace, size=4000)

    async def refuse(*_: Any, **__: Any) -> None:
        raise StorageError(28, "no space left", "somewhere")

    remembered: list[int] = []
    for _ in range(3):
        await fill(opened, 20)
        with monkeypatch.context() as broken:
            broken.setattr(workspace, "archive", refuse)
            with pytest.raises(StorageError):
                await opened.compress(force=True)
        remembered.append(len(opened._context.state.attempts))
        await opened.compress(force=True)
        remembered.append(len(opened._context.state.attempts))

    assert remembered == [1, 0, 1, 0, 1, 0]


async def test_a_window_that_another_one_has_taken_over_is_refused_and_loses_nothing(tmp_path: Path) -> None:
    first = window(tmp_path, size=4000)
    sent = await fill(first, 8)
    await first.prepare()
    second = await ContextWindow.resume(LocalWorkspace(tmp_path, durability="off"), "s1")
    await first.add(user("from the first"))
    with pytest.raises(StaleWindowError, match="resume"):
        await first.prepare()
    await second.add(user("from the second"))
    await second.compress(force=True)
    archived = [json.loads(line) for line in (tmp_path / "sessions/s1/context.jsonl").read_text("utf-8").splitlines()]

    assert archived + second.messages[1:] == [*sent, user("from the second")]


async def test_messages_archived_behind_a_windows_back_are_noticed(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    opened = ContextWindow(session_id="s1", offloader=workspace, size=4000)
    sent = await fill(opened)
    await opened.prepare()
    await workspace.offload_context("s1", [user("direct")])

    with pytest.raises(StaleWindowError, match="1 messages where 0"):
        await opened.compress(force=True)
    with pytest.raises(StaleWindowError, match="did not come from its window"):
        await ContextWindow.resume(workspace, "s1")
    assert opened.messages == sent


async def test_an_archive_that_begins_with_the_windows_messages_and_has_more_is_noticed(tmp_path: Path) -> None:
    """Taken for its own, the next message would never be archived: another one has its number."""
    workspace = LocalWorkspace(tmp_path, durability="off")
    opened = ContextWindow(session_id="s1", offloader=workspace, size=4000)
    sent = await fill(opened, 2)
    await opened.save()
    await workspace.offload_context("s1", sent)
    assert (await ContextWindow.resume(workspace, "s1")).messages == sent
    await workspace.offload_context("s1", [user("direct")])
    with pytest.raises(StaleWindowError, match="did not come from its window"):
        await ContextWindow.resume(workspace, "s1")


@pytest.mark.parametrize(
    "poison",
    [{"n": float("inf")}, {"n": object()}, {"role": ["user"]}],
    ids=["infinity", "object", "role"],
)
async def test_a_message_that_could_never_be_written_is_refused_when_it_is_added(tmp_path: Path, poison: Any) -> None:
    opened = window(tmp_path)
    with pytest.raises(MessageError):
        await opened.add({"role": "user", "content": "x", **poison})
    await opened.add(user("fine"))

    assert await opened.prepare() == [user("fine")]


@pytest.mark.parametrize("when", ["before it is written", "afterwards"])
async def test_a_message_that_is_spoiled_after_it_was_added_is_not_written_down(tmp_path: Path, when: str) -> None:
    opened = window(tmp_path)
    spoiled = user("fine")
    await opened.add(user("first"))
    await opened.add(spoiled)
    if when == "afterwards":
        await opened.prepare()
    spoiled["role"] = "banana"
    with pytest.raises(MessageError, match=r"message 1: it was changed after it was added.*'banana'.*undo"):
        await (opened.compress(before=1) if when == "afterwards" else opened.prepare())
    spoiled["role"] = "user"
    await opened.add(user("last"))
    handed_out = await opened.prepare()

    assert handed_out[-2:] == [user("fine"), user("last")]
    assert (await ContextWindow.resume(LocalWorkspace(tmp_path), "s1")).messages == handed_out


async def test_a_message_that_is_spoiled_deep_inside_is_not_written_down(tmp_path: Path) -> None:
    blocks: list[Any] = [{"type": "tool_use", "id": "c1", "name": "run", "input": {}}]
    opened = window(tmp_path)
    await opened.add({"role": "assistant", "content": blocks})
    blocks[0]["input"] = float("nan")
    with pytest.raises(MessageError):
        await opened.prepare()
    blocks[0]["input"] = {}

    assert await opened.prepare() == [{"role": "assistant", "content": blocks}]


class Uncopied(dict[str, Any]):
    def __deepcopy__(self, _: object) -> "Uncopied":
        raise TypeError("not copied")


async def test_a_message_that_cannot_be_copied_is_checked_by_reading_it(tmp_path: Path) -> None:
    opened = window(tmp_path)
    message = Uncopied(role="user", content="fine")
    await opened.add(message)
    message["role"] = "banana"
    with pytest.raises(MessageError, match="it was changed after it was added"):
        await opened.prepare()
    message["role"] = "user"

    assert await opened.prepare() == [user("fine")]


async def test_a_call_id_of_any_length_names_a_file(tmp_path: Path) -> None:
    opened = window(tmp_path)
    await opened.add(call("c" * 5000))
    await opened.add(result("c" * 5000, lines(2000)))

    assert "offloaded" in (await opened.prepare())[-1]["content"]


@pytest.mark.parametrize(("count", "size"), [(36, 32_000), (20, 16_000), (10, 8_000)])
async def test_many_results_just_under_the_limit_do_not_pass_together(tmp_path: Path, count: int, size: int) -> None:
    calls = [call(f"c{number}")["tool_calls"][0] for number in range(count)]
    opened = window(tmp_path, size=size)
    await opened.add({"role": "assistant", "content": None, "tool_calls": calls})
    for number in range(count):
        await opened.add(result(f"c{number}", f"{number}\n" + words(450)))
    await opened.prepare()

    assert opened.tokens <= size
    assert opened.exceeding() == []


async def test_a_context_over_the_window_always_names_a_message(tmp_path: Path) -> None:
    opened = window(tmp_path, size=2000)
    await opened.add(user("first"))
    await opened.add(user(words(990)))
    await opened.prepare()

    assert (opened.tokens <= 2000) == (opened.exceeding() == [])


async def test_a_named_dialect_survives_a_failed_summary_and_a_resume(tmp_path: Path) -> None:
    opened = window(tmp_path, size=4000, dialect="anthropic", summarizer=Failing(TimeoutError("down")))
    sent = await fill(opened)
    with pytest.raises(TimeoutError):
        await opened.compress(force=True)
    resumed = await ContextWindow.resume(LocalWorkspace(tmp_path, durability="off"), "s1")
    await resumed.compress(force=True)
    archived = [json.loads(line) for line in (tmp_path / "sessions/s1/context.jsonl").read_text("utf-8").splitlines()]

    assert archived + resumed.messages[1:] == sent


async def test_without_an_offloader_a_compression_warns_of_the_loss_and_says_it_to_the_model() -> None:
    opened = window(None, size=4000)
    await fill(opened)
    with pytest.warns(UserWarning, match="lost"):
        summary = await opened.compress(force=True)

    assert summary is not None
    assert "not kept anywhere" in summary.text


async def test_the_second_summary_says_that_it_stands_for_all_that_left(tmp_path: Path) -> None:
    opened = window(tmp_path, size=4000)
    await fill(opened)
    await opened.compress(force=True)
    await fill(opened)
    second = await opened.compress(force=True)

    assert second is not None
    assert second.messages[0] > 0
    assert second.text.startswith(f"[Summary of messages 0-{second.messages[1] - 1},")


async def test_settings_of_a_newer_buoyline_do_not_end_a_resume(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    config = {"trigger_ratio": 0.5, "something_new": 1}
    settings = {"size": 4000, "config": config, "system": "", "tools": [], "more": True}
    await workspace.start_window("s1", settings, writer="w")
    resumed = await ContextWindow.resume(workspace, "s1")

    assert resumed.config.trigger_ratio == 0.5


@pytest.mark.parametrize(
    "options",
    [
        *(
            {"offloader": "./workspace"},
            {"offloader": object()},
            {"summarizer": len},
            {"config": {"trigger_ratio": 0.5}},
        ),
        *({"summarizer": Failing}, {"on_event": 5}, {"on_event": asyncio.sleep}, {"summarizers": 5}),
    ],
    ids=["path", "object", "function", "dict", "class", "number", "async function", "no mapping"],
)
def test_an_object_that_cannot_do_its_part_is_refused_when_the_window_is_built(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        ContextWindow(session_id="s1", **options)


GEMINI = {"role": "user", "parts": [{"text": "hello"}]}


@pytest.mark.parametrize("dialect", [None, "openai", "anthropic", "bedrock", "agentscope"])
async def test_a_message_whose_text_no_dialect_reads_is_refused(tmp_path: Path, dialect: str | None) -> None:
    opened = window(tmp_path, dialect=dialect)
    with pytest.raises(MessageError, match=r"'parts' without 'content' "):
        await opened.add(GEMINI)
    with pytest.raises(MessageError, match="'parts'"):
        await opened.follow([GEMINI])
    assert opened.messages == []


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user"},
        {"role": "user", "content": ""},
        {"role": "user", "content": "hello", "parts": [{"type": "text", "text": "hello"}]},
        {**call("c"), "content": None, "parts": []},
        {"role": "assistant", "refusal": "no", "parts": []},
    ],
)
async def test_odd_messages_are_not_refused(tmp_path: Path, message: dict[str, Any]) -> None:
    opened = window(tmp_path)
    await opened.add(message)
    assert await opened.prepare() == [message]


@pytest.mark.parametrize("tools", [5, 0, "read", b"", {"name": "read"}])
def test_tools_that_are_no_list_are_refused_when_the_window_is_built(tools: Any) -> None:
    with pytest.raises(ConfigError, match=r"tools: .*pass \[tool, ...\]"):
        ContextWindow(session_id="s1", tools=tools)


@pytest.mark.parametrize("counter", [5, "gpt-4o", Estimates])
def test_a_counter_that_cannot_count_is_refused_when_the_window_is_built(counter: Any) -> None:
    with pytest.raises(ConfigError, match=r"counter: .*pass an object with count\(text\)"):
        ContextWindow(session_id="s1", counter=counter)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("focus", 5, "a text that says what to keep"),
        ("focus", ["tests"], "a text that says what to keep"),
        *(("before", value, "of the first message to keep") for value in ("x", 1.5, True)),
    ],
)
async def test_an_argument_of_a_compaction_that_cannot_be_meant_is_refused_before_anything_is_archived(
    tmp_path: Path, name: str, value: Any, expected: str
) -> None:
    opened = window(tmp_path)
    await opened.add({"role": "user", "content": "hello"})
    held = await opened.prepare()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match=f"{name}: .*{expected}"):
        await opened.compress(force=True, **{name: value})
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert opened.messages == held


def test_a_focus_of_a_request_that_is_no_text_is_refused(tmp_path: Path) -> None:
    wrong: Any = 5
    with pytest.raises(ConfigError, match="focus"):
        window(tmp_path).request_compression(wrong)


async def test_a_configuration_of_one_call_is_refused_if_it_is_none(tmp_path: Path) -> None:
    wrong: Any = 5
    with pytest.raises(ConfigError, match="config"):
        await window(tmp_path).compress(config=wrong)


def test_an_unknown_argument_is_refused() -> None:
    options: Any = {"colour": "red"}
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        ContextWindow(session_id="s1", **options)
