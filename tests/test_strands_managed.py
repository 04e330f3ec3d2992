"""Strands' own agent under documents: every hook, and what holds whatever the document says."""

import asyncio
import copy
import errno
import json
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("strands", reason="strands-agents is an extra for tests")

from hypothesis import example, given, settings
from hypothesis import strategies as st
from strands import Agent, ModelRetryStrategy, tool
from strands.agent.conversation_manager import ConversationManager
from strands.hooks import MessageAddedEvent
from strands.session import FileSessionManager, SnapshotSessionManager
from strands.storage import LocalFileStorage
from strands.types.exceptions import ContextWindowOverflowException, ModelThrottledException
from strands_model import ScriptedModel, call
from test_strands_conversation import (
    FIELDS,
    SESSION,
    Message,
    StructuredModel,
    agent_with,
    archived,
    bare,
    full_workspace,
    histories,
    history,
    model_of,
    nearly_full,
    overflow,
    restarted,
    said,
    talk,
    texts,
)
from thirds import examples, third_of

from buoyline import ContextWindow, LocalWorkspace, MemoryWorkspace, SummaryRequest
from buoyline.errors import ConfigError, DocumentError, NotFoundError, StorageError
from buoyline.integrations.strands import (
    DocumentConversationManager,
    SummarizingConversationManager,
    WorkspaceOffloader,
    conversation_manager_of,
)
from buoyline.management import Registry
from buoyline.management.registry import BUILT_IN
from buoyline.window import ContextManaged

WINDOW = 8_000


def unsynced(directory: Path) -> LocalWorkspace:
    """Return a workspace that does not wait for the disk: nothing here is about power cuts."""
    return LocalWorkspace(directory, durability="off")


def doc(**hooks: Any) -> dict[str, Any]:
    return {"hooks": {hook: entries if isinstance(entries, list) else [entries] for hook, entries in hooks.items()}}


def entry(type_name: str, **config: Any) -> dict[str, Any]:
    return {"type": type_name, "config": config}


SLIDING = doc(pre_llm=entry("SlidingWindowManager", max_messages=6))


@tool
def build(target: int) -> str:
    """Build one target."""
    return "".join(f"step {number} of target {target}: compiled, no warning\n" for number in range(300))


def working(calls: int = 3) -> Any:
    """Return what a model answers that calls two tools at once, so many times a turn, and then says something."""
    said_so_far = 0

    def answer(_: list[Message]) -> Any:
        nonlocal said_so_far
        said_so_far += 1
        if said_so_far % (calls + 1) == 0:
            return f"Built {said_so_far}."
        return [call("build", {"target": said_so_far * 10 + side}, f"call_{said_so_far}_{side}") for side in (1, 2)]

    return answer


def fits(agent: Agent, request: list[Message]) -> bool:
    """Tell whether *request* fits the window by the provider's own count."""
    return asyncio.run(agent.model.count_tokens(cast("Any", request))) <= WINDOW


def results_in(messages: list[Message]) -> dict[str, Any]:
    results = [block["toolResult"] for message in messages for block in message["content"] if "toolResult" in block]
    return {result["toolUseId"]: result["content"][0]["text"] for result in results}


def ids_of(messages: list[Message], kind: str, key: str = "toolUseId") -> list[str]:
    return [block[kind][key] for message in messages for block in message["content"] if kind in block]


def check_request(request: list[Message]) -> None:
    """Roles take turns, beginning with the user's, and each call is answered by the next message."""
    assert request[0]["role"] == "user"
    assert all(one["role"] != other["role"] for one, other in pairwise(request))
    for before, message in pairwise([said("user", ""), *request]):
        assert ids_of([message], "toolResult") == ids_of([before], "toolUse")


async def conversation(workspace: Any, session_id: str = SESSION) -> list[Message]:
    """Return all messages of a session: those of the archive, and those of the window that are not archived."""
    state = await workspace.load_window(session_id)
    standing = [message for _, message in state.messages[len(state.head) :]]
    left = await archived(workspace, session_id) if state.archived else []
    ahead = len(left) - state.first  # after a failure in the middle
    assert known_as(left[state.first :]) == known_as(standing[:ahead])
    return [*left, *standing[ahead:]]


def noted(agent: Agent) -> list[Message]:
    """Return the list to which a copy of each message goes that the agent has from now on, as sessions keep them."""
    added: list[Message] = []
    agent.hooks.add_callback(MessageAddedEvent, lambda event: added.append(cast("Any", copy.deepcopy(event.message))))
    return added


def known_as(messages: list[Message]) -> list[str]:
    return [message.get("tracking_id", "") for message in messages]


# What holds, whatever the document says.


@pytest.mark.parametrize("name", third_of(list(BUILT_IN)))
def test_each_preset_keeps_requests_valid_and_small_and_the_workspace_has_all(name: str, tmp_path: Path) -> None:
    workspace = unsynced(tmp_path)
    manager = conversation_manager_of(name, workspace=workspace, session_id=SESSION)
    agent = agent_with(manager, working(), tools=[build], config={"context_window_limit": WINDOW})
    added = noted(agent)
    for number in range(6):
        agent(f"question {number}")
        for request in model_of(agent).requests[-4:]:
            check_request(request)
            assert fits(agent, request)
            assert f"question {number}" in texts(request)
    found = asyncio.run(conversation(workspace))
    assert known_as(found) == known_as(added)
    count = len(added) - manager.removed_message_count
    assert known_as(history(agent))[len(history(agent)) - count :] == known_as(added)[manager.removed_message_count :]
    outputs = {path.read_text("utf-8") for path in (tmp_path / "sessions" / SESSION).glob("tool_result-*.txt")}
    for call_id, text in results_in(found).items():
        output = build(int(call_id[5:].replace("_", "")))
        assert text == output or output in outputs


@pytest.mark.parametrize("name", third_of(["coding-agent", "long-conversations", "small-local-model"]))
def test_a_restarted_agent_has_the_same_history_and_goes_on(name: str, tmp_path: Path) -> None:
    workspace = unsynced(tmp_path / "w")
    answer, before, ids = working(), list[Message](), list[str]()
    for run in range(3):
        manager = conversation_manager_of(name, workspace=workspace)
        agent = restarted(tmp_path, manager, answer, tools=[build], config={"context_window_limit": WINDOW})
        added = noted(agent)
        for number in range(3):
            agent(f"question {run}-{number}")
            for request in model_of(agent).requests[-4:]:
                check_request(request)
                assert fits(agent, request)
            if number == 0 and name == "coding-agent":
                # Results that became stubs are whole in Strands' session: they stand as stubs again all the same.
                assert _same_stubs(before, model_of(agent).requests[0])
        ids += known_as(added)
        before = copy.deepcopy(history(agent))
        assert known_as(asyncio.run(conversation(workspace, "release"))) == ids


def _same_stubs(before: list[Message], request: list[Message]) -> bool:
    known, again = results_in(before), results_in(request)
    return all(known[key] == again[key] for key in known.keys() & again.keys())


def test_a_snapshot_brings_the_history_back(tmp_path: Path) -> None:
    workspace = unsynced(tmp_path / "w")

    def agent_of_today() -> Agent:
        sessions = SnapshotSessionManager("release", storage=LocalFileStorage(str(tmp_path / "strands")))
        manager = conversation_manager_of(SLIDING, workspace=workspace)
        return agent_with(manager, "noted", session_manager=sessions)

    agent = agent_of_today()
    for number in range(9):
        agent(f"question {number}")
    again = agent_of_today()
    assert history(again) == history(agent)
    for number in range(9, 15):
        again(f"question {number}")
        check_request(model_of(again).requests[-1])
    asked = [text for text in texts(asyncio.run(conversation(workspace, "release"))) if "question" in text]
    assert asked == [f"question {number}" for number in range(15)]


def test_a_process_that_died_between_archive_and_session_archives_nothing_twice(tmp_path: Path) -> None:
    workspace = unsynced(tmp_path)
    messages = [{**message, "tracking_id": f"id-{place}"} for place, message in enumerate(talk(20))]
    first = conversation_manager_of(SLIDING, workspace=workspace, session_id=SESSION)
    behind = first.get_state()
    agent_with(first, messages=copy.deepcopy(messages))("go on")
    assert first.removed_message_count
    again = conversation_manager_of(SLIDING, workspace=workspace, session_id=SESSION)
    again.restore_from_session(json.loads(json.dumps(behind)))
    agent = agent_with(again, messages=copy.deepcopy(messages))
    agent("go on")
    agent("and on")
    found = asyncio.run(conversation(workspace))
    assert bare(found)[:20] == talk(20)
    assert [text for text in texts(found) if "on" in text.split()] == ["go on", "and on"]


def test_an_agent_that_returned_to_an_older_state_still_loses_nothing(tmp_path: Path) -> None:
    workspace = unsynced(tmp_path)
    agent_with(conversation_manager_of(SLIDING, workspace=workspace, session_id=SESSION), messages=talk(20))("one way")
    left = len(asyncio.run(archived(workspace)))
    other = conversation_manager_of(SLIDING, workspace=workspace, session_id=SESSION)
    messages = talk(20, "of another branch")
    agent_with(other, messages=copy.deepcopy(messages))("another way")
    found = asyncio.run(conversation(workspace))
    assert bare(found)[left : left + 20] == messages
    assert texts(found)[-2:] == ["another way", "ok"]


async def test_a_window_goes_on_with_the_session_and_its_document(tmp_path: Path) -> None:
    workspace = unsynced(tmp_path)
    manager = conversation_manager_of("coding-agent", workspace=workspace, session_id=SESSION)
    agent = agent_with(manager, working(), tools=[build], config={"context_window_limit": WINDOW})
    for number in range(6):
        await agent.invoke_async(f"question {number}")
    window = await ContextWindow.resume(workspace, SESSION)
    assert window.management is not None
    assert window.management.entries("pre_llm")
    assert sorted(texts(window.messages)) == sorted(texts(history(agent)))
    assert window.added == 6 * 8


async def test_what_a_window_has_begun_an_agent_goes_on_with(tmp_path: Path) -> None:
    workspace = unsynced(tmp_path)
    document = doc(
        pre_llm=[
            entry("PinManager", first=1),
            entry("SummarizationManager", preserve_recent_messages=2, activation={"message_count_exceed": 12}),
            entry("SlidingWindowManager", max_messages=6),
        ]
    )
    window = ContextWindow(offloader=workspace, session_id=SESSION, management=document)
    for number in range(12):
        await window.add({"role": "user", "content": f"question {number}"})
        await window.add({"role": "assistant", "content": f"answer {number}"})
        await window.prepare()
    manager = DocumentConversationManager(document, workspace=workspace, session_id=SESSION)
    agent = agent_with(manager, messages=cast("Any", manager.take_over()))
    assert "question 0" in texts(history(agent))
    assert "answer 11" in texts(history(agent))
    await agent.invoke_async("question 12")
    check_request(model_of(agent).requests[0])
    asked = [text for message in await conversation(workspace) for text in _texts_of(message)]
    assert [text for text in asked if "question" in text] == [f"question {number}" for number in range(13)]


async def test_another_manager_goes_on_with_what_stood_for_now(tmp_path: Path) -> None:
    workspace = unsynced(tmp_path)
    agent = agent_with(
        conversation_manager_of(
            doc(pre_llm=entry("SlidingWindowManager", max_messages=3)), workspace=workspace, session_id=SESSION
        ),
        working(6),
        tools=[build],
    )
    await agent.invoke_async("build them all")
    manager = SummarizingConversationManager(workspace=workspace, session_id=SESSION)
    again = agent_with(manager, messages=cast("Any", manager.take_over()))
    assert "build them all" in texts(history(again))


def _texts_of(message: Message) -> list[str]:
    content = message["content"]
    return [content] if isinstance(content, str) else texts([message])


def test_a_history_that_was_emptied_carries_nothing_on(tmp_path: Path) -> None:
    manager = conversation_manager_of(SLIDING, workspace=unsynced(tmp_path), session_id=SESSION)
    agent = agent_with(manager, messages=talk(20, "about the harbour of Kiel"))
    agent("and now?")
    history(agent)[:] = talk(4, "about the weather in Bergen")
    agent("and now?")
    assert bare(history(agent)) == [*talk(4, "about the weather in Bergen"), said("user", "and now?"), OK]


OK = said("assistant", "ok")


@pytest.mark.parametrize("place", [0, -2])
async def test_what_a_guardrail_takes_out_of_a_message_leaves_the_workspace_as_well(place: int, tmp_path: Path) -> None:
    workspace = unsynced(tmp_path)
    document = doc(pre_llm=entry("ToolsOutputTruncateManager"))
    agent = agent_with(conversation_manager_of(document, workspace=workspace, session_id=SESSION))
    await agent.invoke_async("my password is hunter2")
    history(agent)[place]["content"] = [{"text": "[redacted]"}]
    await agent.invoke_async("go on")
    assert "hunter2" not in (tmp_path / "sessions" / SESSION / "window.jsonl").read_text("utf-8")
    assert texts(model_of(agent).requests[-1]) == ["[redacted]", "ok", "go on"]


def test_pinned_messages_stand_again_and_come_back_with_the_session(tmp_path: Path) -> None:
    document = doc(pre_llm=[entry("PinManager", first=2), entry("SlidingWindowManager", max_messages=4)])
    for run in range(2):
        manager = conversation_manager_of(document, workspace=unsynced(tmp_path / "w"))
        agent = restarted(tmp_path, manager, "noted")
        for number in range(8):
            agent(f"question {run}-{number}")
            request = model_of(agent).requests[-1]
            check_request(request)
            assert texts(request)[:2] == ["question 0-0", "noted"][: len(texts(request))]
    assert manager.removed_message_count > 10


# The page's documents.


def test_the_last_six_messages_stay(tmp_path: Path) -> None:
    page = {
        "description": "sliding",
        "hooks": {"pre_llm": [{"type": "SlidingWindowManager", "config": {"max_messages": 6}}]},
    }
    agent = agent_with(conversation_manager_of(page, workspace=unsynced(tmp_path)))
    for number in range(12):
        agent(f"question {number}")
        request = model_of(agent).requests[-1]
        check_request(request)
        words = [text for text in texts(request) if not text.startswith("[")]
        assert len(words) <= 6
        assert words[-1] == f"question {number}"
    assert words[0] == "question 9" or words[0] == "ok"


def test_outputs_are_truncated_to_a_hundred_thousand_characters(tmp_path: Path) -> None:
    page = doc(post_tool=entry("ToolsOutputTruncateManager", max_output_length=100_000))

    @tool
    def dump() -> str:
        """Dump all."""
        return "row of a table\n" * 20_000

    manager = conversation_manager_of(page, workspace=unsynced(tmp_path), session_id=SESSION)
    agent = agent_with(manager, [call("dump")], "done", tools=[dump])
    agent("dump it")
    (text,) = results_in(model_of(agent).requests[1]).values()
    assert 99_000 < len(text) <= 100_000
    (stored,) = (tmp_path / "sessions" / SESSION).glob("tool_result-*.txt")
    assert str(stored) in text[-400:]
    assert stored.read_text("utf-8") == "row of a table\n" * 20_000


def test_the_named_summariser_writes_the_summary(tmp_path: Path) -> None:
    page = doc(
        pre_llm=entry(
            "SummarizationManager",
            summary_ratio=0.3,
            preserve_recent_messages=10,
            summarization_model_id="small",
            activation={"message_count_exceed": 20},
        )
    )
    asked: list[SummaryRequest] = []

    async def small(request: SummaryRequest) -> dict[str, str]:
        asked.append(request)
        return FIELDS

    workspace = unsynced(tmp_path)
    manager = conversation_manager_of(page, workspace=workspace, session_id=SESSION, summarizers={"small": small})
    assert isinstance(manager, DocumentConversationManager)
    agent = agent_with(manager, messages=talk(24, "about src/app.py and port 8080 " * 40))
    agent("go on")
    assert len(asked) == 1
    assert "The port is 8080" in texts(model_of(agent).requests[0])[0]
    assert any("summary of" in line for line in manager.report.in_words())


async def test_the_agents_own_model_writes_where_it_shall(tmp_path: Path) -> None:
    page = doc(pre_llm=entry("SummarizationManager", activation={"message_count_exceed": 20}))
    manager = DocumentConversationManager(page, workspace=unsynced(tmp_path), use_model=True)
    model = StructuredModel(FIELDS)
    agent = agent_with(manager, model=model, messages=talk(24, "about src/app.py and port 8080 " * 40))
    await agent.invoke_async("go on")
    assert len(model.prompts) == 1, "after a request that begins like the agent's own, and was not answered with fields"
    assert "The port is 8080" in texts(model.requests[-1])[0]


async def test_a_request_of_a_document_for_a_summary_begins_like_the_agents_own(tmp_path: Path) -> None:
    page = doc(pre_llm=entry("SummarizationManager", activation={"message_count_exceed": 20}))
    manager = DocumentConversationManager(page, workspace=unsynced(tmp_path), use_model=True)
    messages = talk(24, "about src/app.py and port 8080 " * 40)
    agent = agent_with(manager, json.dumps(FIELDS), "fine", messages=copy.deepcopy(messages), system_prompt="Be short.")
    await agent.invoke_async("go on")
    model = model_of(agent)
    asked, answered = model.requests
    count = len(asked) - 1
    assert bare(asked[:count]) == messages[:count]
    assert model.system_prompts == ["Be short.", "Be short."]
    assert "The port is 8080" in texts(answered)[0]


async def test_such_requests_have_the_messages_of_the_agents_own_after_a_summary_too(tmp_path: Path) -> None:
    page = doc(pre_llm=entry("SummarizationManager", activation={"message_count_exceed": 16}))
    manager = DocumentConversationManager(page, workspace=unsynced(tmp_path), use_model=True)

    def answer(messages: list[Any]) -> str:
        return json.dumps(FIELDS) if "Answer with one JSON object" in texts(messages)[-1] else "fine"

    agent = agent_with(manager, answer, messages=talk(24, "about src/app.py and port 8080 " * 40))
    for number in range(24):
        await agent.invoke_async(f"Turn {number}: about src/app.py. " * 20)
    before: list[Any] = []
    shared = 0
    for request in model_of(agent).requests:
        roles = [message["role"] for message in request]
        assert all(one != other for one, other in pairwise(roles)), "Bedrock refuses two of one role in a row"
        if "Answer with one JSON object" in texts(request)[-1]:
            assert not before or before[: len(request) - 1] == request[:-1]
            shared += bool(before)
        else:
            before = request
    assert shared > 3


# Hooks, and one call's own document.


def test_each_hook_fires_when_it_is_due_and_tells_so(tmp_path: Path) -> None:
    hooks = ("post_memory", "post_tool", "pre_llm")
    document = doc(**{hook: entry("SlidingWindowManager", max_messages=50) for hook in hooks})
    told: list[Any] = []
    manager = conversation_manager_of(document, workspace=unsynced(tmp_path), on_event=told.append)
    agent = agent_with(manager, working(2), tools=[build])
    agent("build them")
    fired = [event.hook for event in told if isinstance(event, ContextManaged)]
    assert fired == ["post_memory", "pre_llm", "post_tool", "pre_llm", "post_tool", "pre_llm"]
    assert isinstance(manager, DocumentConversationManager)
    assert [ran.hook for ran in manager.report.entries] == ["post_tool", "pre_llm"]
    assert any("SlidingWindowManager" in line for line in manager.explain())


def test_retries_of_one_call_ask_the_managers_once(tmp_path: Path) -> None:
    told: list[Any] = []
    document = doc(pre_llm=entry("SlidingWindowManager", max_messages=50, at_least=2))
    manager = conversation_manager_of(document, workspace=unsynced(tmp_path), on_event=told.append)
    throttled = ModelThrottledException("slow down")
    retrying = ModelRetryStrategy(max_attempts=4, initial_delay=0, max_delay=0)
    agent = agent_with(manager, throttled, throttled, "ok", messages=talk(20), retry_strategy=retrying)
    agent("go on")
    assert [event.hook for event in told if isinstance(event, ContextManaged)] == ["pre_llm"]
    assert len(model_of(agent).requests) == 3


def test_one_call_may_name_its_own_document(tmp_path: Path) -> None:
    workspace = unsynced(tmp_path)
    Registry(workspace).put(SLIDING, "six")
    manager = conversation_manager_of("coding-agent", workspace=workspace)
    agent = agent_with(manager, messages=talk(30))
    agent("first")
    agent("second", invocation_state={"context_management": "six"})
    agent("third", invocation_state={"context_management": {"context_management_name": "chat"}})
    assert [len(request) for request in model_of(agent).requests] == [31, 7, 9]


def test_a_document_that_is_not_there_ends_the_call_that_names_it(tmp_path: Path) -> None:
    agent = agent_with(conversation_manager_of("chat", workspace=unsynced(tmp_path)))
    with pytest.raises(Exception, match="long-conversations"):
        agent("go on", invocation_state={"context_management": "long-conversation"})
    assert model_of(agent).requests == []


def test_what_cannot_be_a_manager_is_refused_at_once(tmp_path: Path) -> None:
    workspace = unsynced(tmp_path)
    with pytest.raises(NotFoundError):
        conversation_manager_of("nowhere", workspace=workspace)
    with pytest.raises(DocumentError):
        conversation_manager_of({"hooks": {"pre_lm": []}}, workspace=workspace)
    with pytest.raises(ConfigError, match="use_model"):
        DocumentConversationManager("chat", workspace=workspace, use_model=True, summarizer=_never)


async def _never(_: SummaryRequest) -> str:
    raise AssertionError


def test_the_system_prompt_of_now_counts(tmp_path: Path) -> None:
    document = doc(pre_llm=entry("SlidingWindowManager", max_messages=4, activation={"tokens_exceed": 1_000}))
    agent = agent_with(conversation_manager_of(document, workspace=unsynced(tmp_path)), messages=talk(20))
    agent("first")
    agent.system_prompt = "Be brief. " * 1_000
    agent("second")
    assert [len(request) for request in model_of(agent).requests] == [21, 5]


def test_what_the_plugin_has_offloaded_is_masked_with_the_path_of_the_whole(tmp_path: Path) -> None:
    workspace = unsynced(tmp_path)
    document = doc(pre_llm=entry("ToolResultMaskManager", keep_recent_results=1, min_tokens=50))
    manager = conversation_manager_of(document, workspace=workspace, session_id=SESSION)
    plugin = WorkspaceOffloader(workspace, session_id=SESSION)
    agent = agent_with(manager, working(2), tools=[build], plugins=[plugin])
    agent("build them")
    masked = results_in(model_of(agent).requests[-1])["call_1_1"]
    whole = tmp_path / "sessions" / SESSION / "tool_result-call_1_1.txt"
    assert str(whole) in masked
    assert whole.read_text("utf-8") == build(11)
    assert len(list(whole.parent.glob("tool_result-*"))) == 4


def test_a_picture_among_what_stands_again_comes_back_with_the_session(tmp_path: Path) -> None:
    picture = {"image": {"format": "png", "source": {"bytes": b"\x89PNG\r\n\x1a\n" + bytes(range(200))}}}
    document = doc(pre_llm=[entry("PinManager", first=1), entry("SlidingWindowManager", max_messages=2)])
    for run in range(2):
        manager = conversation_manager_of(document, workspace=unsynced(tmp_path / "w"))
        agent = restarted(tmp_path, manager, "noted")
        if run == 0:
            agent(cast("Any", [{"text": "what is this?"}, picture]))
        for number in range(3):
            agent(f"question {number}")
        assert picture in model_of(agent).requests[-1][0]["content"]
        check_request(model_of(agent).requests[-1])


# Overflows, and failures.


def test_after_an_overflow_the_managers_for_it_make_the_history_smaller(tmp_path: Path) -> None:
    document = doc(on_overflow=entry("SlidingWindowManager", max_messages=4))
    manager = conversation_manager_of(document, workspace=unsynced(tmp_path), session_id=SESSION)
    agent = agent_with(manager, overflow, "fine", messages=talk(30))
    agent("go on")
    first, second = model_of(agent).requests
    assert (len(first), len(second)) == (31, 5)
    check_request(second)
    assert manager.removed_message_count == 27
    assert isinstance(manager, DocumentConversationManager)
    assert [ran.hook for ran in manager.report.entries] == ["on_overflow"]


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_provider_that_refuses_everything_ends_after_a_few_calls(name: str, tmp_path: Path) -> None:
    manager = conversation_manager_of(name, workspace=unsynced(tmp_path), session_id=SESSION)
    agent = agent_with(manager, overflow, messages=talk(100, "word " * 50))
    with pytest.raises(ContextWindowOverflowException):
        agent("go on")
    assert len(model_of(agent).requests) < 20
    assert "go on" in texts(history(agent))
    left = bare(asyncio.run(archived(unsynced(tmp_path))))
    assert left == [*talk(100, "word " * 50), said("user", "go on")][: len(left)]


def test_an_overflow_asks_no_model_for_a_summary(tmp_path: Path) -> None:
    document = doc(on_overflow=entry("SummarizationManager", preserve_recent_messages=4))
    model = StructuredModel(FIELDS, overflow, "fine")
    manager = conversation_manager_of(document, workspace=unsynced(tmp_path), use_model=True, on_event=_ignore)
    agent = agent_with(manager, model=model, messages=talk(40, "word " * 30))
    agent("go on")
    assert model.prompts == []
    assert texts(model.requests[1])[0].startswith("[Summary of messages 0-")


def _ignore(_: object) -> None:
    """Listen."""


@pytest.mark.parametrize("name", ["long-conversations", "chat"])
def test_a_workspace_that_refuses_stops_no_call_and_changes_nothing(name: str, tmp_path: Path) -> None:
    manager = conversation_manager_of(name, workspace=full_workspace(tmp_path))
    messages = talk(60)
    agent = agent_with(manager, messages=copy.deepcopy(messages), config={"context_window_limit": 600})
    agent("go on")
    assert bare(history(agent)) == [*messages, said("user", "go on"), OK]
    assert manager.removed_message_count == 0
    model_of(agent).answers = [overflow]
    with pytest.raises(ContextWindowOverflowException, match="Not a directory"):
        agent("and on")
    assert bare(history(agent))[:60] == messages


class _Shelf:
    """The smallest offloader there is; refuses as long as it shall."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self.is_broken = True

    async def offload_context(self, session_id: str, msgs: list[Any], **kwargs: Any) -> str:
        if self.is_broken:
            raise RuntimeError("the shelf is broken")
        self.kept += msgs
        return "shelf://1"

    async def offload_tool_result(self, session_id: str, tool_result: Any, **kwargs: Any) -> str:
        if self.is_broken:
            raise RuntimeError("the shelf is broken")
        return "shelf://2"


def test_any_offloader_will_do_and_what_it_raises_leaves_the_history_as_it_is() -> None:
    shelf = _Shelf()
    document = doc(post_tool=entry("OffloadManager"), pre_llm=entry("SlidingWindowManager", max_messages=6))
    manager = conversation_manager_of(document, workspace=shelf)
    messages = talk(20)
    agent = agent_with(manager, working(1), messages=copy.deepcopy(messages), tools=[build])
    agent("go on")
    assert bare(history(agent))[:20] == messages
    assert manager.removed_message_count == 0
    assert results_in(history(agent))["call_1_1"] == build(11)
    shelf.is_broken = False
    agent("and on")
    assert "shelf://1" in texts(history(agent))[0]
    kept = [message for message in history(agent) if message["tracking_id"] in {m["tracking_id"] for m in shelf.kept}]
    assert kept == []
    assert bare(shelf.kept)[:20] == messages


class Failing:
    """Takes messages out, and fails then."""

    def reduce(self, messages: list[Any], *, error: BaseException | None = None) -> bool:
        del messages[:]
        raise LookupError("out of ideas")


def test_a_manager_of_ones_own_that_fails_stops_no_call_but_an_overflow_says_so(tmp_path: Path) -> None:
    own = {"type": f"{__name__}.Failing"}
    document = doc(pre_llm=own, on_overflow=own)
    manager = conversation_manager_of(document, workspace=unsynced(tmp_path), allowed=[f"{__name__}.*"])
    agent = agent_with(manager, "fine", overflow, messages=talk(4))
    agent("go on")
    with pytest.raises(ContextWindowOverflowException, match="out of ideas"):
        agent("and on")
    assert bare(history(agent))[:4] == talk(4)


def test_a_listener_or_a_counter_that_fails_stops_no_call(tmp_path: Path) -> None:
    def listen(_: object) -> None:
        raise LookupError

    def count(text: str) -> int:
        if "<|endoftext|>" in text:
            raise ValueError("a special token")
        return len(text)

    for broken in ({"on_event": listen}, {"counter": count}):
        manager = conversation_manager_of(SLIDING, workspace=unsynced(tmp_path / next(iter(broken))), **broken)
        agent = agent_with(manager, "fine", messages=[*talk(20), said("user", "what is <|endoftext|>?"), OK])
        agent("go on")
        assert texts(history(agent))[-2:] == ["go on", "fine"]


def test_a_history_begins_with_the_user_also_where_the_document_wants_no_notice(tmp_path: Path) -> None:
    document = doc(pre_llm=entry("SlidingWindowManager", max_messages=3, notice=False))
    manager = conversation_manager_of(document, workspace=unsynced(tmp_path))
    agent = agent_with(manager, working(5), tools=[build])
    for number in range(3):
        agent(f"question {number}")
    for request in model_of(agent).requests:
        check_request(request)


def test_making_smaller_by_hand_writes_a_summary(tmp_path: Path) -> None:
    manager = conversation_manager_of("chat", workspace=unsynced(tmp_path))
    agent = agent_with(manager, messages=talk(40, "word " * 20), config={"context_window_limit": 2_000})
    manager.reduce_context(agent)
    assert texts(history(agent))[0].startswith("[Summary of messages 0-")
    manager.reduce_context(agent_with(manager, messages=[]))


def test_the_state_of_another_manager_is_refused(tmp_path: Path) -> None:
    manager = conversation_manager_of("chat", workspace=unsynced(tmp_path))
    other = conversation_manager_of({"hooks": {}}, workspace=unsynced(tmp_path))
    with pytest.raises(ValueError, match="Invalid conversation manager state"):
        manager.restore_from_session(other.get_state())


def test_a_usage_at_an_answer_counts_for_the_next_call(tmp_path: Path) -> None:
    document = doc(pre_llm=entry("SlidingWindowManager", max_messages=4, activation={"tokens_exceed_ratio": 0.7}))
    manager = conversation_manager_of(document, workspace=unsynced(tmp_path))
    model = ScriptedModel(["one", "two"], context_window_limit=2_000, usage_tokens=1_500)
    agent = agent_with(manager, model=model, messages=nearly_full(2_000, 40))
    agent("first")
    agent("second")
    assert [len(request) for request in model.requests] == [41, 5]


# Properties.

ENTRIES = st.one_of(
    st.builds(
        lambda n, a, w: entry("SlidingWindowManager", max_messages=n, at_least=a, notice=w),
        st.integers(1, 8),
        st.integers(0, 3),
        st.booleans(),
    ),
    st.builds(
        lambda r, n: entry("SummarizationManager", summary_ratio=r, preserve_recent_messages=n),
        st.sampled_from([0.1, 0.5, 0.8]),
        st.integers(0, 6),
    ),
    st.builds(lambda n: entry("ToolsOutputTruncateManager", max_output_length=n), st.integers(1, 60)),
    st.builds(lambda n: entry("ToolResultMaskManager", keep_recent_results=n, min_tokens=1), st.integers(0, 3)),
    st.builds(lambda n: entry("PinManager", first=n, contains=["more 3"]), st.integers(0, 3)),
    st.builds(lambda n: entry("CompressionManager", reserve_ratio=n), st.sampled_from([0.0, 0.1, 0.4])),
    st.just(entry("OffloadManager", tool_result_limit=20, preview_tokens=10)),
)
DOCUMENTS = st.dictionaries(
    st.sampled_from(["post_memory", "post_tool", "pre_llm", "pre_compress", "on_overflow"]),
    st.lists(ENTRIES, min_size=1, max_size=3),
    min_size=1,
)


TWO_REQUESTS_IN_A_ROW: list[Message] = [
    {"role": "user", "content": [{"text": "begin"}]},
    {"role": "user", "content": [{"text": "ask 0"}]},
    {"role": "assistant", "content": [{"text": "say 0"}]},
    {"role": "user", "content": [{"text": "now"}]},
]


@settings(examples(14, 40), deadline=None)
@given(messages=histories(), document=DOCUMENTS, overflows=st.booleans())
@example(
    messages=TWO_REQUESTS_IN_A_ROW,
    document={"post_memory": [entry("SlidingWindowManager", max_messages=4, at_least=0, notice=False)]},
    overflows=False,
)
@example(
    messages=TWO_REQUESTS_IN_A_ROW,
    document={
        "pre_compress": [entry("SlidingWindowManager", max_messages=2, notice=False)],
        "pre_llm": [entry("SummarizationManager", summary_ratio=0.1, preserve_recent_messages=4)],
    },
    overflows=False,
)
def test_whatever_the_document_the_history_stays_valid_and_nothing_is_lost(
    messages: list[Message],
    document: dict[str, Any],
    overflows: bool,  # noqa: FBT001 - drawn
) -> None:
    workspace = MemoryWorkspace()
    kept = [{**message, "tracking_id": f"id-{place}"} for place, message in enumerate(messages)]
    state: dict[str, Any] | None = None
    for words in (["first of all", "and then"], ["in another process"]):
        manager = conversation_manager_of(doc(**document), workspace=workspace, session_id=SESSION, on_event=_ignore)
        head = cast("list[Message]", (state and manager.restore_from_session(state)) or [])
        # As Strands restores a session: the messages as they came, behind what the manager puts before them.
        before = [*head, *copy.deepcopy(kept[manager.removed_message_count :])]
        agent = agent_with(manager, *[overflow] * overflows, "one", "two", messages=before)
        added = noted(agent)
        for said_now in words:
            with suppress(ContextWindowOverflowException):
                agent(said_now)
            assert said_now in texts(model_of(agent).requests[-1])
        kept += added
        check_kept(workspace, manager, agent, kept)
        state = json.loads(json.dumps(manager.get_state()))


class Refusing(MemoryWorkspace):
    """A workspace that refuses some of what it is asked to keep, by the number of the request."""

    def __init__(self, refused: set[int]) -> None:
        super().__init__()
        self.refused, self.asked = refused, 0

    def _ask(self) -> None:
        self.asked += 1
        if self.asked in self.refused:
            raise StorageError(errno.EIO, "Input/output error")

    async def archive(self, *args: Any, **options: Any) -> Any:
        self._ask()
        return await super().archive(*args, **options)

    async def store_result(self, *args: Any, **options: Any) -> Any:
        self._ask()
        return await super().store_result(*args, **options)

    async def replace_window(self, *args: Any, **options: Any) -> None:
        self._ask()
        await super().replace_window(*args, **options)

    async def extend_window(self, *args: Any, **options: Any) -> None:
        self._ask()
        await super().extend_window(*args, **options)


@settings(examples(7, 20), deadline=None)
@given(
    messages=histories(),
    document=DOCUMENTS,
    refused=st.sets(st.integers(1, 25), max_size=8),
    is_killed=st.booleans(),
)
def test_whatever_fails_and_whenever_it_is_killed_nothing_is_lost_or_kept_twice(
    messages: list[Message],
    document: dict[str, Any],
    refused: set[int],
    is_killed: bool,  # noqa: FBT001 - drawn
) -> None:
    workspace = Refusing(refused)
    kept = [{**message, "tracking_id": f"id-{place}"} for place, message in enumerate(messages)]
    state: dict[str, Any] | None = None
    for turn in range(3):
        manager = conversation_manager_of(doc(**document), workspace=workspace, session_id=SESSION, on_event=_ignore)
        head = cast("list[Message]", (state and manager.restore_from_session(state)) or [])
        before = [*head, *copy.deepcopy(kept[manager.removed_message_count :])]
        agent = agent_with(manager, working(1), messages=before, tools=[build], config={"context_window_limit": 600})
        added = noted(agent)
        agent(f"question {turn}")
        assert f"question {turn}" in texts(model_of(agent).requests[-1])
        kept += added
        if not is_killed or turn:  # what a killed process has made of its session is not in its manager's state
            state = json.loads(json.dumps(manager.get_state()))
    workspace.refused.clear()
    added.clear()
    agent("last of all")
    check_kept(workspace, manager, agent, [*kept, *added])


def check_kept(workspace: Any, manager: ConversationManager, agent: Agent, kept: list[Message]) -> None:
    """All that was said is there once, whole but for results, and the history is what Strands will make of it."""
    found = asyncio.run(conversation(workspace))
    assert known_as(found) == known_as(kept)
    pairs = zip(found, kept, strict=True)
    unlike = [message for message, before in pairs if bare([message]) != bare([before])]
    assert all(ids_of([message], "toolResult") for message in unlike)
    count = len(kept) - manager.removed_message_count
    assert known_as(history(agent))[len(history(agent)) - count :] == known_as(kept)[manager.removed_message_count :]
    if manager.removed_message_count:
        assert history(agent)[0]["role"] == "user"
        has_head = len(history(agent)) > count  # else the first two are neighbours that the agent had itself
        seam = [message["role"] for message in kept[manager.removed_message_count - 1 :][:2]]
        if has_head and seam != ["user", "user"]:  # as the agent had them itself
            assert [message["role"] for message in history(agent)[:2]] != ["user", "user"]


@pytest.mark.parametrize("document", ["chat", "coding-agent"])
async def test_a_session_whose_messages_are_all_in_the_head_overwrites_none_after_a_restart(
    document: str, tmp_path: Path
) -> None:
    is_down = False

    def answer(messages: list[Message]) -> Any:
        if not is_down:
            return "fine " * 300
        return ContextWindowOverflowException("too long") if len(messages) > 1 else ConnectionError("down")

    def started() -> Agent:
        manager = DocumentConversationManager(document, workspace=unsynced(tmp_path / "w"), session_id=SESSION)
        sessions = FileSessionManager(session_id=SESSION, storage_dir=str(tmp_path / "strands"))
        return agent_with(manager, answer, config={"context_window_limit": 4_000}, session_manager=sessions)

    asked = [f"request {number} {'about the build ' * 40}" for number in range(3)]
    agent = started()
    for text in asked:
        await agent.invoke_async(text)
    is_down = True
    with pytest.raises(ConnectionError):
        await agent.invoke_async("the failed request")
    assert len(agent.messages) == 1
    is_down = False
    for text in ("the next request", "the last request"):
        agent = started()
        await agent.invoke_async(text)
    stored = [json.loads(path.read_text("utf-8"))["message"] for path in tmp_path.rglob("message_*.json")]
    kept = {text for text in texts(stored) if "request" in text}
    assert kept == {*asked, "the failed request", "the next request", "the last request"}
    seen = "\n".join(texts([*await archived(unsynced(tmp_path / "w")), *history(agent)]))
    assert all(text in seen for text in kept)
