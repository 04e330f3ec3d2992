"""An agent's history that other code changes, in Strands' own agent."""

import asyncio
import contextvars
import copy
import json
from collections.abc import AsyncIterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("strands", reason="strands-agents is an extra for tests")

from strands import Agent
from strands.agent.conversation_manager.compression.pin_message import pin_message
from strands.types.agent import ConcurrentInvocationMode
from strands.types.exceptions import ContextWindowOverflowException
from strands_model import ScriptedModel
from test_strands_conversation import (
    SESSION,
    Message,
    agent_with,
    bare,
    history,
    model_of,
    nearly_full,
    overflow,
    restarted,
    said,
    texts,
)
from test_strands_managed import check_request, conversation, doc, entry, known_as, noted, unsynced

from buoyline.integrations.strands import (
    DocumentConversationManager,
    SlidingWindowConversationManager,
    SummarizingConversationManager,
)

SLIDING = doc(pre_llm=entry("SlidingWindowManager", max_messages=5))


def sliding_by(kind: str, directory: Path) -> Any:
    """Return a manager that keeps a few messages in the context; the workspace at *directory* has the others."""
    if kind == "document":
        return DocumentConversationManager(SLIDING, workspace=unsynced(directory), session_id=SESSION)
    return SlidingWindowConversationManager(6, workspace=unsynced(directory), session_id=SESSION)


def redact(messages: list[Message]) -> None:
    """Edit the blocks of *messages* themselves, as a hook may do."""
    for message in messages:
        for block in message["content"]:
            block["text"] = block["text"].replace("hunter2", "[redacted]")


def files_of(directory: Path) -> str:
    return "".join(path.read_text("utf-8") for path in (directory / "sessions" / SESSION).glob("*") if path.is_file())


# Roles alternate.


def test_a_giant_question_after_an_overflow_shares_one_message_with_the_notice(tmp_path: Path) -> None:
    manager = SlidingWindowConversationManager(workspace=unsynced(tmp_path), session_id=SESSION)
    agent = agent_with(manager, overflow, "fine", messages=[said("user", "hello"), said("assistant", "hi")])
    agent("a giant question " * 500)
    for request in model_of(agent).requests:
        check_request(request)
    assert texts(history(agent))[1:] == ["a giant question " * 500, "fine"]
    agent("and now?")
    check_request(model_of(agent).requests[-1])
    assert texts(asyncio.run(conversation(unsynced(tmp_path)))) == [
        *("hello", "hi", "a giant question " * 500, "fine", "and now?", "fine")
    ]


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_window_that_slides_before_each_call_sends_alternating_roles(size: int, tmp_path: Path) -> None:
    ids: list[str] = []
    for run in range(2):
        manager = SlidingWindowConversationManager(size, per_turn=True, workspace=unsynced(tmp_path / "w"))
        agent = restarted(tmp_path, manager)
        added = noted(agent)
        for number in range(5):
            agent(f"question {run}-{number}")
            check_request(model_of(agent).requests[-1])
            assert len(history(agent)) <= size
        ids += known_as(added)
    assert known_as(asyncio.run(conversation(unsynced(tmp_path / "w"), "release"))) == ids


@pytest.mark.parametrize("kind", [SlidingWindowConversationManager, SummarizingConversationManager])
@pytest.mark.parametrize("pin_first", [1, 2, 3])
def test_a_pinned_question_and_what_replaces_the_next_messages_share_one(
    kind: Any, pin_first: int, tmp_path: Path
) -> None:
    ids, before = list[str](), list[Message]()
    for run in range(3):
        options = {"window_size": 6} if kind is SlidingWindowConversationManager else {"preserve_recent_messages": 2}
        manager = kind(workspace=unsynced(tmp_path / "w"), pin_first=pin_first, **options)
        agent = restarted(tmp_path, manager, "fine")
        assert bare(history(agent)) == before
        added = noted(agent)
        for number in range(4):
            if number == 3:
                manager.reduce_context(agent)
            agent(f"question {run}-{number}")
            check_request(model_of(agent).requests[-1])
        ids, before = [*ids, *known_as(added)], copy.deepcopy(bare(history(agent)))
        assert texts(history(agent))[:pin_first] == ["question 0-0", "fine", "question 0-1"][:pin_first]
    assert known_as(asyncio.run(conversation(unsynced(tmp_path / "w"), "release"))) == ids


def test_a_question_that_shares_one_message_with_the_notice_can_be_pinned(tmp_path: Path) -> None:
    manager = SlidingWindowConversationManager(2, per_turn=True, workspace=unsynced(tmp_path), session_id=SESSION)
    agent = agent_with(manager)
    for number in range(9):
        agent(f"question {number}")
        if number == 2:
            pin_message(agent.messages, 0)
        check_request(model_of(agent).requests[-1])
    assert "question 2" in texts(model_of(agent).requests[-1])
    assert "question 3" not in texts(model_of(agent).requests[-1])


# Edits in place.


@pytest.mark.parametrize("kind", ["document", "manager"])
def test_a_block_that_is_edited_in_place_is_edited_in_window_and_archive(kind: str, tmp_path: Path) -> None:
    agent = agent_with(sliding_by(kind, tmp_path))
    agent("my password is hunter2")
    agent("it was hunter2")
    redact(history(agent))
    agent("go on")
    assert "hunter2" not in files_of(tmp_path)
    for number in range(6):
        agent(f"question {number}")
    assert "hunter2" not in files_of(tmp_path)
    assert texts(asyncio.run(conversation(unsynced(tmp_path))))[:6:2] == [
        "my password is [redacted]",
        "it was [redacted]",
        "go on",
    ]


@pytest.mark.parametrize("is_same_block", [True, False])
def test_a_message_that_shares_one_with_the_notice_may_be_edited(is_same_block: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter
    agent = agent_with(sliding_by("document", tmp_path))
    for number in range(4):
        agent(f"question {number} about hunter2")
    shared = history(agent)[0]
    assert len(shared["content"]) == 2
    if is_same_block:
        redact([shared])
    else:
        shared["content"][1] = {"text": "question [redacted]"}
    for number in range(6):
        agent(f"another question {number}")
        check_request(model_of(agent).requests[-1])
    (edited,) = (text for text in texts(asyncio.run(conversation(unsynced(tmp_path)))) if "[redacted]" in text)
    assert "hunter2" not in edited
    assert "question 1 about hunter2" not in files_of(tmp_path)


# Numbers in Strands' own sessions.


def keeping_nothing(kind: str, directory: Path) -> Any:
    """Return a manager that may evict all messages of a session."""
    workspace = unsynced(directory)
    if kind == "window":
        return SlidingWindowConversationManager(0, workspace=workspace, session_id=SESSION)
    if kind == "summary":
        return SummarizingConversationManager(0.8, 0, workspace=workspace, session_id=SESSION, summarizer="extractive")
    return DocumentConversationManager("chat", workspace=workspace, session_id=SESSION)


def questions_in(messages: list[Message]) -> list[str]:
    return [text.partition(":")[0] for text in texts(messages) if text.startswith("question")]


@pytest.mark.parametrize("kind", ["window", "summary", "document"])
def test_a_session_whose_messages_were_all_evicted_is_numbered_on(kind: str, tmp_path: Path) -> None:
    to_come, asked, kept = list[Exception](), list[str](), list[str]()

    def answer(_: list[Message]) -> Any:
        return to_come.pop() if to_come else "noted " * 300

    for run in range(4):
        agent = restarted(tmp_path, keeping_nothing(kind, tmp_path / "w"), answer)
        for number in range(3):
            asked.append(f"question {run}-{number}")
            if number < 2:
                agent(f"{asked[-1]}: {'about the build ' * 200}")
                continue
            to_come += [ConnectionError("down"), ContextWindowOverflowException("too long")]
            with pytest.raises(ConnectionError):
                agent(f"{asked[-1]}: {'about the build ' * 200}")
        assert questions_in(model_of(agent).requests[0]) == [*kept, asked[-3]]
        kept = questions_in(history(agent))
    assert questions_in(asyncio.run(conversation(unsynced(tmp_path / "w")))) == asked
    paths = sorted(tmp_path.rglob("message_*.json"), key=lambda path: int(path.stem.rpartition("_")[2]))
    assert questions_in([json.loads(path.read_text("utf-8"))["message"] for path in paths]) == asked


# Pins that the user deletes.


def pinning(kind: str, directory: Path) -> Any:
    """Return a manager that pins the first two messages."""
    workspace = unsynced(directory)
    if kind == "document":
        pins = [entry("PinManager", first=2), entry("SlidingWindowManager", max_messages=5)]
        return DocumentConversationManager(doc(pre_llm=pins), workspace=workspace, session_id=SESSION)
    if kind == "window":
        return SlidingWindowConversationManager(6, workspace=workspace, session_id=SESSION, pin_first=2)
    return SummarizingConversationManager(
        preserve_recent_messages=2, workspace=workspace, session_id=SESSION, pin_first=2, summarizer="extractive"
    )


@pytest.mark.parametrize("kind", ["document", "window", "summary"])
@pytest.mark.parametrize("turn", [1, 6])
@pytest.mark.parametrize("place", [0, 1])
def test_a_deleted_pin_comes_back_nowhere_and_no_notice_is_archived(
    kind: str, turn: int, place: int, tmp_path: Path
) -> None:
    manager = pinning(kind, tmp_path)
    agent = agent_with(manager, lambda messages: f"answer to {texts(messages[-1:])[-1]}")
    for number in range(12):
        agent(f"question {number}")
        if kind == "summary" and number % 3 == 2:
            manager.reduce_context(agent)
        if number == turn:
            (deleted,) = texts([history(agent).pop(place)])
        elif number > turn:
            assert deleted not in texts(model_of(agent).requests[-1])
    (kept,) = {"question 0", "answer to question 0"} - {deleted}
    assert kept in texts(history(agent))
    assert sum(text.startswith("[") for text in texts(history(agent))) == 1
    found = texts(asyncio.run(conversation(unsynced(tmp_path))))
    assert not [text for text in found if text.startswith("[")]
    asked = {f"{words}question {number}" for number in range(12) for words in ("", "answer to ")}
    assert asked - {deleted} <= set(found)


@pytest.mark.parametrize("place", [0, 2])
def test_a_deleted_message_moves_no_pin_to_another(place: int, tmp_path: Path) -> None:
    pins = [entry("PinManager", contains=["remember"]), entry("SlidingWindowManager", max_messages=5)]
    workspace = unsynced(tmp_path)
    agent = agent_with(DocumentConversationManager(doc(pre_llm=pins), workspace=workspace, session_id=SESSION))
    for text in ("hello", "remember the milk"):
        agent(text)
    del history(agent)[place]
    for number in range(8):
        agent(f"question {number}")
    kept = texts(model_of(agent).requests[-1])
    assert ("remember the milk" in kept) == (place == 0)
    assert "question 0" not in kept
    assert len(asyncio.run(workspace.load_window(SESSION)).pins) == (place == 0)


# Several invocations at once.


class SlowModel(ScriptedModel):
    """Answers after other invocations had their turn."""

    async def stream(self, *given: Any, **settings: Any) -> AsyncIterable[Any]:
        await asyncio.sleep(0.002)
        async for event in super().stream(*given, **settings):
            yield event


def shared_agent(kind: str, directory: Path) -> Agent:
    """Return an agent that several threads or tasks may invoke at once, with a small context."""
    workspace = unsynced(directory)
    manager: Any
    if kind == "summary":
        manager = SummarizingConversationManager(
            preserve_recent_messages=4,
            workspace=workspace,
            session_id=SESSION,
            summarizer="extractive",
            proactive_compression={"compression_threshold": 0.01},
        )
    elif kind == "window":
        manager = SlidingWindowConversationManager(6, per_turn=True, workspace=workspace, session_id=SESSION)
    else:
        manager = sliding_by("document", directory)
    mode = ConcurrentInvocationMode.UNSAFE_REENTRANT
    model = SlowModel(["fine"], context_window_limit=4_000)
    return agent_with(manager, model=model, concurrent_invocation_mode=mode)


async def invoke_all(agent: Agent, asked: list[str]) -> None:
    await asyncio.gather(*(agent.invoke_async(text) for text in asked))


@pytest.mark.parametrize("kind", ["document", "window", "summary"])
@pytest.mark.parametrize("runs_in", ["threads", "tasks"])
def test_invocations_at_once_lose_no_message_and_archive_none_twice(kind: str, runs_in: str, tmp_path: Path) -> None:
    agent = shared_agent(kind, tmp_path)
    added, asked = noted(agent), [f"question {number}" for number in range(24)]
    if runs_in == "threads":
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(agent, asked))
    else:
        asyncio.run(invoke_all(agent, asked))
    agent("the last one")
    found = asyncio.run(conversation(unsynced(tmp_path)))
    assert sorted(known_as(found)) == sorted(known_as(added))
    assert agent.conversation_manager.removed_message_count > 20


async def test_an_overflow_says_so_if_a_task_of_the_same_loop_is_at_work_on_the_history(tmp_path: Path) -> None:
    refused: list[str] = []

    async def summarize(_: Any) -> str:
        with pytest.raises(ContextWindowOverflowException) as caught:
            await asyncio.create_task(overflowing(), context=contextvars.Context())
        refused.append(str(caught.value))
        return "The user talks."

    manager = SummarizingConversationManager(
        workspace=unsynced(tmp_path), session_id=SESSION, summarizer=summarize, proactive_compression=True
    )
    agent = agent_with(manager, messages=nearly_full(1_000), config={"context_window_limit": 1_000})

    async def overflowing() -> None:
        manager.reduce_context(agent, ContextWindowOverflowException("too long"))

    await agent.invoke_async("and now?")
    assert refused == ["too long; another invocation is at work on the history"]


@pytest.mark.parametrize("starts_it", ["on_event", "summarizer"])
async def test_an_invocation_that_a_task_of_a_hook_makes_later_is_written_down_like_any_other(
    starts_it: str, tmp_path: Path
) -> None:
    tasks, may_invoke = list[asyncio.Task[Any]](), asyncio.Event()

    async def invoke_later() -> None:
        await may_invoke.wait()
        await agent.invoke_async("the later one")

    def start(_: Any) -> None:
        if not tasks:
            tasks.append(asyncio.create_task(invoke_later()))

    async def summarize(_: Any) -> str:
        start(None)
        return "The user talks."

    manager: Any
    if starts_it == "on_event":
        workspace = unsynced(tmp_path)
        manager = DocumentConversationManager(SLIDING, workspace=workspace, session_id=SESSION, on_event=start)
    else:
        manager = SummarizingConversationManager(
            workspace=unsynced(tmp_path), session_id=SESSION, summarizer=summarize, proactive_compression=True
        )
    agent = agent_with(manager, messages=nearly_full(1_000), config={"context_window_limit": 1_000})
    await agent.invoke_async("and now?")
    may_invoke.set()
    await tasks[0]
    assert "the later one" in str((await unsynced(tmp_path).load_window(SESSION)).messages)
