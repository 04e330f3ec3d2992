"""The conversation managers in Strands' own agent: what is documented of them, and what Strands' own lose."""

import asyncio
import copy
import json
import threading
from collections.abc import AsyncGenerator
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("strands", reason="strands-agents is an extra for tests")

from hypothesis import given, settings
from hypothesis import strategies as st
from strands import Agent, ModelRetryStrategy, tool
from strands.agent.conversation_manager import ConversationManager
from strands.agent.conversation_manager.compression.pin_message import pin_message
from strands.agent.conversation_manager.summarizing_conversation_manager import DEFAULT_SUMMARIZATION_PROMPT
from strands.session import FileSessionManager
from strands.types.exceptions import ContextWindowOverflowException, ModelThrottledException
from strands_model import ScriptedModel, call

from buoyline import ContextWindow, LocalWorkspace, MemoryWorkspace
from buoyline.compression.text import pointers_in
from buoyline.integrations.strands import (
    Archiving,
    NullConversationManager,
    SlidingWindowConversationManager,
    SummarizingConversationManager,
    WorkspaceOffloader,
)

Message = dict[str, Any]
SESSION = "s1"
NOTICE = "[The oldest messages of this conversation"


def said(role: str, text: str) -> Message:
    return {"role": role, "content": [{"text": text}]}


def talk(count: int, words: str = "about src/app.py and port 8080") -> list[Message]:
    return [said("assistant" if place % 2 else "user", f"message {place} {words}") for place in range(count)]


def called(*ids: str) -> Message:
    return {"role": "assistant", "content": [call("lookup", {"n": 1}, call_id) for call_id in ids]}


def answered(*ids: str, text: str = "found") -> Message:
    results = [{"toolUseId": call_id, "status": "success", "content": [{"text": text}]} for call_id in ids]
    return {"role": "user", "content": [{"toolResult": result} for result in results]}


def agent_with(
    manager: ConversationManager, *answers: Any, messages: list[Message] | None = None, **more: Any
) -> Agent:
    model = more.pop("model", None) or ScriptedModel(answers or ["ok"], **more.pop("config", {}))
    given = None if messages is None else cast("Any", list(messages))
    return Agent(model=model, conversation_manager=manager, messages=given, callback_handler=None, **more)


def model_of(agent: Agent) -> ScriptedModel:
    assert isinstance(agent.model, ScriptedModel)
    return agent.model


def history(agent: Agent) -> list[Message]:
    return cast("list[Message]", agent.messages)


def texts(messages: list[Message]) -> list[str]:
    return [block["text"] for message in messages for block in message["content"] if "text" in block]


def nearly_full(window: int, count: int = 40) -> list[Message]:
    """Return messages of which the last answer says that it has used 80 % of *window*."""
    messages = talk(count)
    used = int(0.8 * window)
    messages[-1]["metadata"] = {"usage": {"inputTokens": used - 10, "outputTokens": 10, "totalTokens": used}}
    return messages


def archived(workspace: LocalWorkspace | MemoryWorkspace, session_id: str = SESSION) -> list[Message]:
    """Return the messages that have left the context, as they are on disk."""
    session = workspace.session(session_id)
    return [cast("Message", line.value) for line in session.read(sorted(session.load().places))]


def overflow(_: list[Message]) -> Any:
    return ContextWindowOverflowException("too long")


def without_notice(messages: list[Message]) -> list[Message]:
    """Return role and content: the notice is no message of anybody's, and a session has it not."""
    return [
        {"role": message["role"], "content": [block for block in message["content"] if NOTICE not in str(block)]}
        for message in messages
    ]


def assert_turns(messages: list[Message]) -> None:
    """Assert what providers require: roles alternate, and each call has its result in the next message."""
    assert messages[0]["role"] == "user"
    for one, other in pairwise(messages):
        assert one["role"] != other["role"]
        calls = [block["toolUse"]["toolUseId"] for block in one["content"] if "toolUse" in block]
        answers = [block["toolResult"]["toolUseId"] for block in other["content"] if "toolResult" in block]
        assert sorted(calls) == sorted(answers)


def bare(messages: list[Message]) -> list[Message]:
    """Return role and content alone: Strands gives messages ids, and notes their usage."""
    return [{"role": message["role"], "content": message["content"]} for message in messages]


def summaries(tmp_path: Path, session_id: str = SESSION) -> list[dict[str, Any]]:
    path = tmp_path / "sessions" / session_id / "summaries.jsonl"
    return [json.loads(line) for line in path.read_bytes().splitlines()]


FIELDS = {
    "task_overview": "The user asks about src/app.py [transcript.md:2].",
    "current_state": "Message 1 was answered [transcript.md:5].",
    "important_discoveries": "The port is 8080 [transcript.md:2].",
    "next_steps": "Go on.",
    "context_to_preserve": "src/app.py [transcript.md:2]",
}


# What is documented: the three managers.


def test_the_null_manager_changes_nothing_and_lets_an_overflow_through(tmp_path: Path) -> None:
    manager = NullConversationManager(workspace=LocalWorkspace(tmp_path), proactive_compression=True)
    agent = agent_with(manager, "one", overflow, config={"context_window_limit": 20})
    agent("first question, longer than the window of twenty tokens could ever take, and then some more of it")
    with pytest.raises(ContextWindowOverflowException, match="too long"):
        agent("second")
    assert texts(history(agent))[-2:] == ["one", "second"]


def test_a_sliding_window_has_the_documented_defaults(tmp_path: Path) -> None:
    manager = SlidingWindowConversationManager(workspace=LocalWorkspace(tmp_path))
    assert (manager.window_size, manager.should_truncate_results, manager.per_turn) == (40, True, False)


def test_a_summarising_manager_has_the_documented_defaults_and_clamps_its_ratio(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    manager = SummarizingConversationManager(workspace=workspace)
    assert (manager.summary_ratio, manager.preserve_recent_messages) == (0.3, 10)
    assert SummarizingConversationManager(0.01, workspace=workspace).summary_ratio == 0.1
    assert SummarizingConversationManager(0.99, workspace=workspace).summary_ratio == 0.8


@pytest.mark.parametrize("has", ["plugin", "nothing"])
def test_a_manager_without_a_workspace_takes_the_agents_else_memory_with_a_warning(
    has: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    plugins: list[Any] = [WorkspaceOffloader("w")] if has == "plugin" else []
    manager = SlidingWindowConversationManager(2)
    agent = agent_with(manager, plugins=plugins)
    for number in range(3):
        agent(f"question {number}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ([] if has == "nothing" else ["w"])
    assert ("end with the process" in caplog.text) is (has == "nothing")
    shown = "".join(path.read_text("utf-8") for path in tmp_path.glob("w/sessions/*/transcript.md"))
    assert ("question 0" in shown) is (has != "nothing")
    assert len(history(agent)) == 2
    assert manager.removed_message_count > 0


def test_an_agent_and_a_prompt_for_summaries_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Cannot provide both summarization_agent and summarization_system_prompt"):
        SummarizingConversationManager(
            workspace=LocalWorkspace(tmp_path),
            summarization_agent=Agent(model=ScriptedModel(["no"])),
            summarization_system_prompt="Be short.",
        )


async def test_a_window_keeps_the_newest_messages_and_the_workspace_all_others(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    agent = agent_with(SlidingWindowConversationManager(6, workspace=workspace, session_id=SESSION))
    asked = [f"question {number}" for number in range(8)]
    for question in asked:
        await agent.invoke_async(question)
        assert len(history(agent)) <= 6
    notice, *kept = texts(history(agent))
    assert str(tmp_path / "sessions" / SESSION / "transcript.md") in notice
    left = texts(archived(workspace))
    assert [text for text in [*left, *kept] if text != "ok"] == asked
    assert agent.conversation_manager.removed_message_count == len(left)
    assert_turns(history(agent))


def test_a_window_is_managed_at_the_end_before_each_call_or_before_each_so_many_th(tmp_path: Path) -> None:
    @tool
    def lookup(n: int) -> str:
        """Look n up."""
        return f"found {n}"

    sent = {}
    for per_turn in (False, True, 3):
        answers = [[call("lookup", {"n": n}, f"call_{n}")] for n in range(8)]
        manager = SlidingWindowConversationManager(6, workspace=LocalWorkspace(tmp_path), per_turn=per_turn)
        agent = agent_with(manager, *answers, "done", tools=[lookup])
        agent("go")
        sent[per_turn] = max(len(request) for request in model_of(agent).requests)
    assert sent[False] == 17
    assert sent[True] <= 6 < sent[3] <= 6 + 2 * 3


def test_after_an_overflow_large_results_become_stubs_and_their_whole_text_stays_in_a_file(tmp_path: Path) -> None:
    output = "".join(f"line {number} of the log\n" for number in range(3_000))
    messages = [said("user", "run it"), called("a"), answered("a", text=output), said("assistant", "it ran")]
    manager = SlidingWindowConversationManager(workspace=LocalWorkspace(tmp_path), session_id=SESSION)
    agent = agent_with(manager, overflow, "fine", messages=messages)
    agent("and now?")
    assert len(history(agent)) == len(messages) + 2
    stub = history(agent)[2]["content"][0]["toolResult"]
    assert stub["status"] == "success"
    (stored,) = (tmp_path / "sessions" / SESSION).glob("tool_result-*.txt")
    assert str(stored) in stub["content"][0]["text"]
    assert stored.read_text("utf-8") == output
    assert manager.removed_message_count == 0


def test_results_that_may_not_be_truncated_stay_whole_and_messages_leave_instead(tmp_path: Path) -> None:
    output = "word " * 2_000
    messages = [*talk(4), said("user", "run it"), called("a"), answered("a", text=output), said("assistant", "it ran")]
    manager = SlidingWindowConversationManager(
        should_truncate_results=False, workspace=LocalWorkspace(tmp_path), session_id=SESSION
    )
    agent = agent_with(manager, overflow, "fine", messages=messages)
    agent("and now?")
    assert manager.removed_message_count > 0
    assert not list((tmp_path / "sessions" / SESSION).glob("tool_result-*"))


def test_after_an_overflow_not_only_the_oldest_result_is_shortened(tmp_path: Path) -> None:
    messages = [said("user", "run them")]
    for call_id in "abcd":
        messages += [called(call_id), answered(call_id, text=f"{call_id} word " * 900)]
    messages.append(said("assistant", "they ran"))
    manager = SlidingWindowConversationManager(workspace=LocalWorkspace(tmp_path))
    agent = agent_with(manager, overflow, overflow, overflow, "fine", messages=messages)
    agent("and now?")
    lengths = [
        len(block["toolResult"]["content"][0]["text"])
        for message in history(agent)
        for block in message["content"]
        if "toolResult" in block
    ]
    assert [length < 3_000 for length in lengths[:3]] == [True] * 3
    assert len(model_of(agent).requests) == 4


def test_a_summary_stands_for_the_oldest_messages_and_its_pointers_resolve(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    messages = talk(40)
    manager = SummarizingConversationManager(workspace=workspace, session_id=SESSION)
    agent = agent_with(manager, json.dumps(FIELDS), messages=copy.deepcopy(messages))
    manager.reduce_context(agent)
    summary, *kept = history(agent)
    left = manager.removed_message_count
    assert 12 <= left <= 13
    assert bare(kept) == messages[left:]
    assert bare(archived(workspace)) == messages[:left]
    lines = (tmp_path / "sessions" / SESSION / "transcript.md").read_text("utf-8").splitlines()
    pointers = list(pointers_in(texts([summary])[0]))
    assert pointers
    assert all(1 <= pointer.start <= pointer.end <= len(lines) for pointer in pointers)


def test_a_summary_and_what_follows_it_take_turns(tmp_path: Path) -> None:
    """Strands' own puts it before a message of the user's, which providers refuse."""
    for count in (12, 13, 20, 21, 33, 40, 47, 58):
        manager = SummarizingConversationManager(workspace=LocalWorkspace(tmp_path))
        agent = agent_with(manager, messages=talk(count))
        manager.reduce_context(agent)
        assert [message["role"] for message in history(agent)[:2]] == ["user", "assistant"]
        assert len(history(agent)) > 10


def test_too_few_messages_are_no_reason_to_fail_a_call_but_an_overflow_says_so(tmp_path: Path) -> None:
    manager = SummarizingConversationManager(workspace=LocalWorkspace(tmp_path))
    agent = agent_with(manager, messages=talk(8))
    before = list(history(agent))
    manager.reduce_context(agent)
    with pytest.raises(ContextWindowOverflowException, match="insufficient messages"):
        manager.reduce_context(agent, e=ContextWindowOverflowException("too long"))
    assert history(agent) == before


# Who writes a summary.


async def test_the_agents_own_model_writes_the_summary_and_is_checked(tmp_path: Path) -> None:
    answer = json.dumps(FIELDS | {"next_steps": "Open src/invented.py [transcript.md:2]."})
    manager = SummarizingConversationManager(
        workspace=LocalWorkspace(tmp_path), session_id=SESSION, proactive_compression=True
    )
    agent = agent_with(manager, answer, messages=nearly_full(20_000), config={"context_window_limit": 20_000})
    await agent.invoke_async("go on")
    assert "The port is 8080" in texts(history(agent))[0]
    assert summaries(tmp_path)[0]["summarizer"] == "ScriptedModel"
    assert any("src/invented.py" in claim for claim in summaries(tmp_path)[0]["unverified"])


@pytest.mark.parametrize("prompt", [None, "Focus on ports and paths."])
async def test_the_agents_model_is_instructed_by_ones_own_prompt_or_by_strands_default(
    prompt: str | None, tmp_path: Path
) -> None:
    """The page: without one, a default prompt that creates structured bullet points in the third person."""
    manager = SummarizingConversationManager(
        workspace=LocalWorkspace(tmp_path), summarization_system_prompt=prompt, proactive_compression=True
    )
    agent = agent_with(manager, messages=nearly_full(20_000), config={"context_window_limit": 20_000})
    await agent.invoke_async("go on")
    assert len(model_of(agent).requests) == 2
    assert (prompt or DEFAULT_SUMMARIZATION_PROMPT) in (model_of(agent).system_prompts[0] or "")
    assert "message 0" in texts(model_of(agent).requests[0])[0]


@pytest.mark.parametrize("answer", ["The port is 8080 [transcript.md:2].", json.dumps(FIELDS)])
async def test_an_agent_of_ones_own_writes_the_summary_and_keeps_its_own_history(answer: str, tmp_path: Path) -> None:
    writer_model = ScriptedModel([answer])
    writer = Agent(model=writer_model, messages=cast("Any", talk(2)), system_prompt="Be short.", callback_handler=None)
    manager = SummarizingConversationManager(
        workspace=LocalWorkspace(tmp_path), summarization_agent=writer, proactive_compression=True
    )
    agent = agent_with(manager, messages=nearly_full(20_000), config={"context_window_limit": 20_000})
    await agent.invoke_async("go on")
    assert "The port is 8080" in texts(history(agent))[0]
    assert bare(history(writer)) == talk(2)
    assert writer_model.system_prompts == ["Be short."]
    assert len(model_of(agent).requests) == 1


LATER = "LATER: the port is 8080 [transcript.md:2], and src/app.py is done."


@pytest.mark.parametrize("answer", [LATER, json.dumps(FIELDS | {"current_state": LATER})])
@pytest.mark.parametrize("writer", ["agent", "prompt", "model"])
def test_after_each_overflow_the_documented_writer_is_asked(writer: str, answer: str, tmp_path: Path) -> None:
    """The page: a summary by the agent's own model, by its prompt, or by an agent; and no compression before a call."""
    own = ScriptedModel([answer])
    named: dict[str, Any] = {
        "agent": {"summarization_agent": Agent(model=own, callback_handler=None)},
        "prompt": {"summarization_system_prompt": "Focus on ports."},
        "model": {},
    }
    asked = "agent" if writer == "agent" else "model"
    between = [] if asked == "agent" else [answer]
    manager = SummarizingConversationManager(
        summary_ratio=0.4, preserve_recent_messages=8, workspace=LocalWorkspace(tmp_path), **named[writer]
    )
    agent = agent_with(manager, overflow, *between, overflow, *between, "fine", messages=talk(60))
    agent("go on")
    summary = texts(history(agent))[0]
    assert LATER in summary
    if writer == "agent":
        assert len(own.requests) == 2
    else:
        prompts = [prompt or "" for prompt in model_of(agent).system_prompts]
        assert len(prompts) == 5
        assert ("Focus on ports." in prompts[1]) is (writer == "prompt")
    messages = history(agent)
    assert [message["role"] for message in messages[:2]] == ["user", "assistant"]
    assert messages[-2]["content"] == [{"text": "go on"}]


# Proactive compression.


@pytest.mark.parametrize(
    ("threshold", "usage", "compressed"),
    [
        (True, 689, False),
        (True, 700, True),
        ({"compression_threshold": 0.5}, 489, False),
        ({}, 689, False),
        ({}, 700, True),
        ({"compression_threshold": 0.5}, 500, True),
        ({"compression_threshold": 1.0}, 999, False),
    ],
)
@pytest.mark.parametrize("kind", [SlidingWindowConversationManager, SummarizingConversationManager])
def test_compression_begins_at_the_threshold(
    kind: Any,
    threshold: Any,
    usage: int,
    compressed: bool,  # noqa: FBT001 - a parameter
    tmp_path: Path,
) -> None:
    manager = kind(workspace=LocalWorkspace(tmp_path), proactive_compression=threshold)
    agent = agent_with(manager, messages=talk(30), config={"context_window_limit": 1_000})
    history(agent)[-1]["metadata"] = {
        "usage": {"inputTokens": usage - 11, "outputTokens": 10, "totalTokens": usage - 1}
    }
    agent("!!!!")
    assert (manager.removed_message_count > 0) is compressed


@pytest.mark.parametrize(("limit", "compressed"), [(450, True), (600, False)])
def test_without_a_usage_all_messages_are_counted(limit: int, compressed: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter
    manager = SummarizingConversationManager(workspace=LocalWorkspace(tmp_path), proactive_compression=True)
    messages = talk(60, "words " * 2)  # 6 tokens each, as Strands' heuristic counts
    agent = agent_with(manager, messages=messages, config={"context_window_limit": limit})
    agent("go on")
    assert (manager.removed_message_count > 0) is compressed


@pytest.mark.parametrize("kind", [SlidingWindowConversationManager, SummarizingConversationManager])
@pytest.mark.parametrize("usage", ["zero", "no input", "none", "no estimate"])
def test_compression_comes_in_time_where_a_provider_reports_no_usage(kind: Any, usage: str, tmp_path: Path) -> None:
    class Silent(ScriptedModel):
        async def stream(self, *given: Any, **options: Any) -> AsyncGenerator[Any, None]:
            async for event in super().stream(*given, **options):
                metadata = event.get("metadata")
                if metadata is None:
                    yield event
                elif usage != "none":
                    output = 10 if usage == "no input" else 0
                    yield {
                        "metadata": metadata
                        | {"usage": {"inputTokens": 0, "outputTokens": output, "totalTokens": output}}
                    }

        async def count_tokens(self, *given: Any, **options: Any) -> int:
            if usage == "no estimate":
                raise RuntimeError
            return await super().count_tokens(*given, **options)

    manager = kind(workspace=LocalWorkspace(tmp_path), proactive_compression=True)
    model = Silent(["word " * 40], context_window_limit=2_000, usage_tokens=0)
    agent = agent_with(manager, model=model)
    for turn in range(30):
        agent(f"turn {turn} " + "word " * 40)
        assert sum(len(text.split()) for text in texts(history(agent))) < 2_200
    assert manager.removed_message_count > 20


def test_without_proactive_compression_only_an_overflow_reduces(tmp_path: Path) -> None:
    manager = SummarizingConversationManager(workspace=LocalWorkspace(tmp_path))
    agent = agent_with(manager, messages=talk(60), config={"context_window_limit": 100})
    agent("go on")
    assert manager.removed_message_count == 0


def test_compression_comes_before_the_call_that_needs_it_also_within_a_turn(tmp_path: Path) -> None:
    @tool
    def lookup(n: int) -> str:
        """Look n up."""
        return f"found {n} " + "a word or two " * 30

    answers = [[call("lookup", {"n": n}, f"call_{n}")] for n in range(12)]
    workspace = LocalWorkspace(tmp_path)
    manager = SlidingWindowConversationManager(8, workspace=workspace, proactive_compression=True, session_id=SESSION)
    agent = agent_with(manager, *answers, "done", tools=[lookup], config={"context_window_limit": 1_500})
    agent("go")
    tokens = [len(json.dumps(request)) // 4 for request in model_of(agent).requests]
    assert max(tokens) < 1_500
    assert len(model_of(agent).requests) == 13
    assert manager.removed_message_count > 8


async def test_the_event_loop_goes_on_while_a_summary_is_written(tmp_path: Path) -> None:
    """Strands' own stands still for as long as the model takes: here that would be for ever."""
    begun, may_end = threading.Event(), threading.Event()

    def write(_: list[Message]) -> Any:
        begun.set()
        return json.dumps(FIELDS) if may_end.wait(60) else RuntimeError("the event loop stands still")

    manager = SummarizingConversationManager(workspace=LocalWorkspace(tmp_path), proactive_compression=True)
    config = {"context_window_limit": 20_000}
    agent = agent_with(manager, write, "fine", messages=nearly_full(20_000), config=config)
    running = asyncio.create_task(agent.invoke_async("go on"))
    while not begun.is_set():
        await asyncio.sleep(0)
    may_end.set()
    await running
    assert "The port is 8080" in texts(history(agent))[0]


def full_workspace(tmp_path: Path) -> LocalWorkspace:
    """Return a workspace that can store nothing: a file is in the place of its directory."""
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "full").touch()
    return LocalWorkspace(tmp_path / "full")


@pytest.mark.parametrize("kind", [SlidingWindowConversationManager, SummarizingConversationManager])
def test_a_workspace_that_refuses_stops_no_call_and_changes_nothing(kind: Any, tmp_path: Path) -> None:
    manager = kind(workspace=full_workspace(tmp_path), proactive_compression=True)
    messages = talk(60)
    agent = agent_with(manager, messages=copy.deepcopy(messages), config={"context_window_limit": 100})
    agent("go on")
    assert bare(history(agent)) == [*messages, said("user", "go on"), said("assistant", "ok")]
    assert manager.removed_message_count == 0


def test_an_overflow_that_the_workspace_cannot_relieve_is_raised_as_an_overflow(tmp_path: Path) -> None:
    manager = SummarizingConversationManager(workspace=full_workspace(tmp_path))
    messages = talk(60)
    agent = agent_with(manager, overflow, messages=copy.deepcopy(messages))
    with pytest.raises(ContextWindowOverflowException, match="Not a directory"):
        agent("go on")
    assert bare(history(agent))[:60] == messages
    assert manager.removed_message_count == 0


# What Strands' own managers are known to get wrong.


def test_a_provider_that_refuses_everything_ends_after_a_few_calls(tmp_path: Path) -> None:
    """Strands' own summarising manager made 1,916 of them, and then ran out of stack."""
    for kind in (SlidingWindowConversationManager, SummarizingConversationManager):
        manager = kind(workspace=LocalWorkspace(tmp_path))
        agent = agent_with(manager, overflow, messages=talk(100, "word " * 50))
        with pytest.raises(ContextWindowOverflowException):
            agent("go on")
        assert len(model_of(agent).requests) < 20


def test_a_giant_newest_result_is_no_dead_end(tmp_path: Path) -> None:
    giant = "".join(f"row {number}: value {number * 7}\n" for number in range(5_000))
    messages = [said("user", "dump it"), called("a"), answered("a", text=giant)]
    for manager in (
        SlidingWindowConversationManager(workspace=LocalWorkspace(tmp_path)),
        SummarizingConversationManager(workspace=LocalWorkspace(tmp_path)),
    ):
        agent = agent_with(manager, overflow, "fine", messages=copy.deepcopy(messages))
        agent("and?")
        assert len(str(history(agent)[2])) < 5_000
        assert len(model_of(agent).requests) == 2


def test_retries_of_one_call_compress_once(tmp_path: Path) -> None:
    """The usage at the last answer is of the context as it was: Strands' own wrote five summaries here."""
    manager = SummarizingConversationManager(
        workspace=LocalWorkspace(tmp_path), session_id=SESSION, proactive_compression=True
    )
    messages = talk(60)
    for message in messages[1::2]:
        message["metadata"] = {"usage": {"inputTokens": 800, "outputTokens": 10, "totalTokens": 810}}
    throttled = [ModelThrottledException("slow down") for _ in range(4)]
    agent = agent_with(
        manager,
        "a summary",
        *throttled,
        "fine",
        messages=messages,
        config={"context_window_limit": 1_000},
        retry_strategy=ModelRetryStrategy(max_attempts=6, initial_delay=0, max_delay=0),
    )
    agent("go on")
    assert len(model_of(agent).requests) == 6
    assert len(summaries(tmp_path)) == 1


def test_an_old_usage_does_not_compress_again_in_the_next_turn(tmp_path: Path) -> None:
    manager = SummarizingConversationManager(0.5, workspace=LocalWorkspace(tmp_path), proactive_compression=True)
    messages = talk(60, "word " * 50)
    messages[-1]["metadata"] = {"usage": {"inputTokens": 3_590, "outputTokens": 10, "totalTokens": 3_600}}
    agent = agent_with(manager, messages=messages, config={"context_window_limit": 4_500})
    manager.reduce_context(agent)
    removed = manager.removed_message_count
    agent("go on")
    assert manager.removed_message_count == removed > 20


# Sessions.


def restarted(tmp_path: Path, manager: ConversationManager, *answers: Any, **more: Any) -> Agent:
    sessions = FileSessionManager("release", storage_dir=str(tmp_path / "strands"))
    return agent_with(manager, *answers, session_manager=sessions, **more)


@pytest.mark.parametrize("kind", [SlidingWindowConversationManager, SummarizingConversationManager])
def test_a_restarted_agent_has_the_same_history_and_goes_on(kind: Any, tmp_path: Path) -> None:
    options = {"window_size": 8} if kind is SlidingWindowConversationManager else {"preserve_recent_messages": 4}
    workspace = LocalWorkspace(tmp_path / "workspace")
    asked: list[str] = []
    before: list[Message] = []
    for run in range(3):
        manager = kind(workspace=workspace, proactive_compression=True, **options)
        agent = restarted(tmp_path, manager, "noted " * 30, config={"context_window_limit": 1_200})
        assert without_notice(history(agent)) == without_notice(before)
        for number in range(7):
            asked.append(f"question {run}-{number}")
            agent(asked[-1])
        before = copy.deepcopy(history(agent))
        left = archived(workspace, "release") if manager.removed_message_count else []
        has_summary = kind is SummarizingConversationManager and bool(left)
        conversation = [*left, *history(agent)[has_summary:]]
        assert [text for text in texts(conversation) if text.startswith("question")] == asked
        assert manager.removed_message_count == len(left)
    assert left


def test_a_failed_compression_loses_nothing_on_restart(tmp_path: Path) -> None:
    """Strands' own counts messages as removed before its summary has failed: 13 of 28 came back."""
    manager = SummarizingConversationManager(
        0.3, 2, workspace=full_workspace(tmp_path / "w"), proactive_compression=True
    )
    agent = restarted(tmp_path, manager, "noted " * 30, config={"context_window_limit": 600})
    for number in range(14):
        agent(f"question {number}")
    again = restarted(tmp_path, SummarizingConversationManager(0.3, 2, workspace=LocalWorkspace(tmp_path / "w")))
    assert history(again) == history(agent)
    assert len(history(again)) == 28


def test_pinned_messages_come_back_with_the_session(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path / "w")
    manager = SlidingWindowConversationManager(6, workspace=workspace, pin_first=1)
    agent = restarted(tmp_path, manager)
    for number in range(9):
        agent(f"question {number}")
    assert texts(without_notice(history(agent)))[0] == "question 0"
    again = restarted(tmp_path, SlidingWindowConversationManager(6, workspace=workspace, pin_first=1))
    assert without_notice(history(again)) == without_notice(history(agent))
    for number in range(9, 14):
        again(f"question {number}")
    assert texts(without_notice(history(again)))[0] == "question 0"
    pin, *conversation = texts(
        [*without_notice(history(again))[:1], *archived(workspace, "release"), *history(again)[1:]]
    )
    asked = [text for text in (pin, *conversation) if text != "ok"]
    assert asked == [f"question {number}" for number in range(14)]


@pytest.mark.parametrize("place", [0, 2])
def test_a_deleted_message_moves_no_pin_to_another(place: int, tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    agent = agent_with(SlidingWindowConversationManager(6, workspace=workspace, session_id=SESSION))
    for text in ("hello", "remember the milk"):
        agent(text)
    pin_message(agent.messages, 2)
    del history(agent)[place]
    for number in range(8):
        agent(f"question {number}")
    kept = texts(model_of(agent).requests[-1])
    assert ("remember the milk" in kept) == (place == 0)
    assert "question 0" not in kept


def test_a_process_that_died_between_archive_and_session_archives_nothing_twice(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    messages = [{**message, "tracking_id": f"id-{place}"} for place, message in enumerate(talk(40))]
    first = SummarizingConversationManager(workspace=workspace, session_id=SESSION)
    behind = first.get_state()
    first.reduce_context(agent_with(first, messages=copy.deepcopy(messages)))
    again = SummarizingConversationManager(0.6, workspace=workspace, session_id=SESSION)
    again.restore_from_session(json.loads(json.dumps(behind)))
    agent = agent_with(again, messages=copy.deepcopy(messages))
    again.reduce_context(agent)
    assert again.removed_message_count > first.removed_message_count
    assert [*archived(workspace), *history(agent)[1:]] == messages


def test_an_agent_that_returned_to_an_older_state_still_loses_nothing(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    manager = SummarizingConversationManager(workspace=workspace, session_id=SESSION)
    manager.reduce_context(agent_with(manager, messages=talk(40)))
    other = SummarizingConversationManager(workspace=workspace, session_id=SESSION)
    messages = talk(40, "of another branch")
    agent = agent_with(other, messages=copy.deepcopy(messages))
    other.reduce_context(agent)
    lines = [line.value for line in workspace.stored(SESSION).lines()]
    assert bare(lines) == talk(40) + messages
    assert bare(archived(workspace))[-other.removed_message_count :] + bare(history(agent)[1:]) == messages


async def test_an_agent_whose_session_somebody_else_continued_goes_on_with_its_own_history(tmp_path: Path) -> None:
    manager = SlidingWindowConversationManager(4, workspace=tmp_path, session_id=SESSION)
    agent = agent_with(manager)
    await agent.invoke_async("begin")
    async with await ContextWindow.open(tmp_path, SESSION) as window:
        await window.add(said("user", "by somebody else"))
    for number in range(3):
        await agent.invoke_async(f"question {number}")
    left, kept = archived(LocalWorkspace(tmp_path)), without_notice(history(agent))
    said_here = ["begin", "question 0", "question 1", "question 2"]
    assert [text for text in texts([*left, *kept]) if text != "ok"] == said_here


async def test_what_a_guardrail_takes_out_of_a_message_is_in_no_later_context(tmp_path: Path) -> None:
    """The log is append-only: what must not reach the disk belongs to the `redact` hook."""
    agent = agent_with(NullConversationManager(workspace=tmp_path, session_id=SESSION))
    await agent.invoke_async("my password is hunter2")
    history(agent)[0]["content"] = [{"text": "[redacted]"}]
    await agent.invoke_async("go on")
    window = await ContextWindow.open(tmp_path, SESSION)
    assert bare(window.messages) == bare(history(agent))
    await window.compress(force=True, before=2)
    transcript = (tmp_path / "sessions" / SESSION / "transcript.md").read_text("utf-8")
    assert "[redacted]" in transcript
    assert "hunter2" not in transcript + str(window.messages)


# Properties.


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """Histories with parallel, repeated, empty, unanswered and orphaned calls."""
    ids = st.sampled_from(["a", "b", "c", ""])
    groups = draw(st.lists(st.sampled_from(["talk", "pair", "pairs", "orphan", "pending", "user"]), max_size=18))
    messages: list[Message] = [said("user", "begin")]
    for number, group in enumerate(groups):
        one = draw(ids)
        match group:
            case "talk":
                messages += [said("user", f"ask {number}"), said("assistant", f"say {number}")]
            case "pair":
                messages += [called(one), answered(one, text=f"found {number}")]
            case "pairs":
                messages += [called(one, f"p{number}"), answered(f"p{number}", one, text=f"found {number}")]
            case "orphan":
                messages.append(answered(one, text=f"orphan {number}"))
            case "pending":
                messages.append(called(one))
            case _:
                messages.append(said("user", f"more {number}"))
    messages.append(said("user", "now"))
    return messages


def _has(message: Message, kind: str) -> bool:
    return any(kind in block for block in message["content"])


@settings(max_examples=60, deadline=None)
@given(
    messages=histories(), size=st.integers(2, 12), kind=st.sampled_from(["window", "exact", "summary"]), e=st.booleans()
)
def test_whatever_the_history_it_stays_valid_and_nothing_is_lost(
    messages: list[Message],
    size: int,
    kind: str,
    e: bool,  # noqa: FBT001 - drawn
) -> None:
    workspace = MemoryWorkspace()
    manager: Archiving
    if kind == "summary":
        manager = SummarizingConversationManager(0.5, size, workspace=workspace, session_id=SESSION)
    else:
        manager = SlidingWindowConversationManager(
            size, workspace=workspace, session_id=SESSION, notice=kind == "window"
        )
    agent = agent_with(manager, messages=copy.deepcopy(messages))
    for _ in range(3):
        try:
            manager.reduce_context(agent, ContextWindowOverflowException("too long") if e else None)
        except ContextWindowOverflowException:
            break
    removed = manager.removed_message_count
    kept = without_notice(history(agent)) if kind == "window" else bare(history(agent))
    has_summary = kind == "summary" and removed > 0
    left = bare(archived(workspace))
    assert [*left[:removed], *kept[has_summary:]] == messages
    if has_summary:
        assert kept[0]["role"] == "user"
        assert len(kept) > size  # as many as are always preserved, and the summary
    if removed and len(kept) > has_summary:
        first = kept[has_summary]
        assert not _has(first, "toolResult")
        assert not _has(first, "toolUse") or len(kept) == 1 + has_summary or _has(kept[1 + has_summary], "toolResult")
