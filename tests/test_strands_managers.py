"""Managers of a user's own, `WorkspaceConversationManager`, and agents that are killed again and again."""

import json
import random
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("strands", reason="strands-agents is an extra for tests")

from strands import Agent, tool
from strands.agent.conversation_manager import ConversationManager
from strands.agent.conversation_manager import SlidingWindowConversationManager as TheirSlidingWindow
from strands.agent.conversation_manager import SummarizingConversationManager as TheirSummarizing
from strands.hooks import BeforeModelCallEvent
from strands.types.exceptions import ContextWindowOverflowException
from strands_model import ScriptedModel, call
from test_strands_conversation import (
    SESSION,
    agent_with,
    answered,
    archived,
    assert_turns,
    bare,
    called,
    history,
    model_of,
    overflow,
    restarted,
    said,
    summaries,
    talk,
    texts,
)

from buoyline import ContextConfig, ContextWindow, LocalWorkspace
from buoyline.errors import ConfigError, NotFoundError
from buoyline.integrations.strands import (
    Archiving,
    NullConversationManager,
    StrandsModelSummarizer,
    SummarizingConversationManager,
    WorkspaceConversationManager,
    WorkspaceOffloader,
)
from buoyline.management.model import put
from buoyline.window import ContextManaged


@tool
def build(target: int) -> str:
    """Build a target."""
    return f"built {target} " + "a word or two " * 60


# A manager of a user's own.


class LastTen(ConversationManager):
    """The example of Strands' page."""

    def apply_management(self, agent: Any, **kwargs: Any) -> None:
        self.reduce_context(agent)

    def reduce_context(self, agent: Any, e: Exception | None = None, **kwargs: Any) -> None:
        removed = max(len(agent.messages) - 10, 0)
        self.removed_message_count += removed
        del agent.messages[:removed]

    def register_hooks(self, registry: Any, **kwargs: Any) -> None:
        super().register_hooks(registry, **kwargs)
        registry.add_callback(BeforeModelCallEvent, lambda event: self.apply_management(event.agent))


class LastTenArchived(Archiving, LastTen):
    pass


async def test_a_manager_of_a_users_own_archives_what_it_removes(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    manager = LastTenArchived(workspace=workspace, session_id=SESSION)
    agent = agent_with(manager)
    for number in range(12):
        await agent.invoke_async(f"question {number}")
    assert len(history(agent)) == 10
    assert manager.removed_message_count == 14
    left = archived(workspace)
    assert [text for text in texts([*left, *history(agent)]) if text != "ok"] == [f"question {n}" for n in range(12)]
    resumed = await ContextWindow.open(workspace, SESSION)
    assert bare(resumed.messages) == bare(history(agent))


def test_an_overflow_that_a_users_manager_does_nothing_about_is_raised(tmp_path: Path) -> None:
    """Strands' own loop would call the model again and again."""
    agent = agent_with(LastTenArchived(workspace=tmp_path), overflow)
    with pytest.raises(ContextWindowOverflowException, match="too long"):
        agent("go")
    assert len(model_of(agent).requests) == 1


def test_a_manager_that_does_not_call_super_is_refused_at_once() -> None:
    class Alone(LastTen):
        def __init__(self) -> None:
            pass

    class AloneArchived(Archiving, Alone):
        pass

    with pytest.raises(ConfigError, match=r"must call super\(\)"):
        AloneArchived()
    with pytest.raises(ConfigError, match=r"class Behind\(Archiving, YourManager\)"):
        type("Behind", (LastTen, Archiving), {})
    with pytest.raises(ConfigError, match="register_hooks hides"):
        type("Within", (Archiving,), {"register_hooks": LastTen.register_hooks})


def test_strands_calls_the_methods_that_our_managers_replace() -> None:
    """They are private: if one is renamed, its feature is gone, such as stubs, and nothing else says so."""
    theirs = {
        TheirSlidingWindow: ["_truncate_tool_results", "_on_before_model_call", "_on_before_model_call_threshold"],
        TheirSummarizing: ["_generate_summary", "_adjust_split_point_for_tool_pairs", "_generate_summary_with_agent"],
    }
    for kind, names in theirs.items():
        assert all(callable(getattr(kind, name)) for name in names)


def test_a_call_is_on_disk_before_its_tool_runs(tmp_path: Path) -> None:
    seen = []

    @tool
    def look() -> str:
        """Look."""
        logs = tmp_path.glob(f"sessions/{SESSION}/*.jsonl")
        seen.append(any('"call_7"' in log.read_text("utf-8") for log in logs))
        return "found"

    manager = NullConversationManager(workspace=tmp_path, session_id=SESSION)
    agent_with(manager, [call("look", {}, "call_7")], "done", tools=[look])("go")
    assert seen == [True]


# The page: at least ten recent messages are always kept.


@pytest.mark.parametrize(("before", "removed"), [(11, 1), (12, 1), (13, 3)])
def test_ten_recent_messages_are_preserved_with_a_pair_at_the_cut(before: int, removed: int, tmp_path: Path) -> None:
    """Strands' own keeps nine of twelve messages here: it moves the cut after the pair."""
    messages = [said("user", "go"), called("a"), answered("a"), *talk(before - 3)]
    messages = [*messages[:3], *(said("user" if at % 2 else "assistant", f"m {at}") for at in range(before - 3))]
    manager = SummarizingConversationManager(workspace=tmp_path)
    agent = agent_with(manager, messages=messages)
    manager.reduce_context(agent)
    assert manager.removed_message_count == removed
    manager.reduce_context(agent)
    assert manager.removed_message_count == removed
    assert bare(history(agent))[-10:] == messages[-10:]


def test_an_overflow_takes_no_preserved_message_but_their_large_results(tmp_path: Path) -> None:
    messages = [said("user", "go"), called("a"), answered("a", text="large " * 4_000), *talk(9)[1:]]
    manager = SummarizingConversationManager(preserve_recent_messages=20, workspace=tmp_path)
    agent = agent_with(manager, overflow, "fine", overflow, messages=messages)
    agent("and?")
    assert len(history(agent)) == len(messages) + 2
    assert "tool_result-a.txt" in str(history(agent)[2])
    with pytest.raises(ContextWindowOverflowException, match="insufficient messages"):
        agent("and now?")
    assert manager.removed_message_count == 0


def shapes(messages: list[Any]) -> list[Any]:
    return [[message["role"], *map(sorted, message["content"]), *texts([message])] for message in messages]


# A window of ours, by its configuration or by a document.


def test_a_window_hands_over_what_fits_and_a_session_restores_it(tmp_path: Path) -> None:
    def agent_of_today(*answers: Any) -> Agent:
        manager = WorkspaceConversationManager(tmp_path / "w", config=ContextConfig(trigger_ratio=0.6))
        config = {"context_window_limit": 2_500}
        return restarted(tmp_path, manager, *answers, tools=[build], config=config)

    answers = [[call("build", {"target": number}, f"call_{number}")] for number in range(12)]
    before: list[Any] = []
    for run in range(3):
        agent = agent_of_today(*answers[4 * run : 4 * run + 2], overflow, *answers[4 * run + 2 : 4 * run + 4], "done")
        assert shapes(history(agent)) == shapes(before)  # a session of Strands' has results whole
        agent(f"Build them, {run}.")
        for request in model_of(agent).requests:
            assert_turns(request)
            assert sum(len(str(message)) for message in request) // 4 < 2_500
        before = history(agent)
    assert agent.conversation_manager.removed_message_count > 4
    transcript = (tmp_path / "w/sessions/release/transcript.md").read_text("utf-8")
    left = "\n".join([transcript, *map(str, before)])
    assert all(f"call_{number}" in left for number in range(12))
    assert {f"Build them, {run}." for run in range(3)} <= set(re.findall(r"Build them, \d\.", left))


def test_an_overflow_of_a_window_that_cannot_become_smaller_is_raised(tmp_path: Path) -> None:
    agent = agent_with(WorkspaceConversationManager(tmp_path), overflow)
    with pytest.raises(ContextWindowOverflowException, match="too long; the history could not become smaller"):
        agent("hello")
    assert bare(history(agent)) == [said("user", "hello")]


def test_each_hook_of_a_document_fires_when_it_is_due_and_says_so(tmp_path: Path) -> None:
    keep = [{"type": "SlidingWindowManager", "config": {"max_messages": 50}}]
    document = {"hooks": dict.fromkeys(("post_tool", "pre_llm"), keep)}
    events: list[Any] = []
    manager = WorkspaceConversationManager(tmp_path, management=document, on_event=events.append)
    answers = [[call("build", {"target": n}, f"call_{n}")] for n in range(2)]
    agent_with(manager, *answers, "done", tools=[build])("build them")
    fired = [event.hook for event in events if isinstance(event, ContextManaged)]
    assert fired == ["pre_llm", "post_tool", "pre_llm", "post_tool", "pre_llm"]


def test_one_call_may_name_its_own_document(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    six = {"hooks": {"pre_llm": [{"type": "SlidingWindowManager", "config": {"max_messages": 6}}]}}
    put(six, workspace, "six")
    agent = agent_with(WorkspaceConversationManager(workspace, management="tool-heavy"), messages=talk(30))
    agent("first")
    agent("second", invocation_state={"context_management": "six"})
    agent("third", invocation_state={"context_management": {"context_management_name": "long-conversations"}})
    assert [len(request) for request in model_of(agent).requests] == [31, 7, 9]
    with pytest.raises(NotFoundError, match="long-conversation"):
        agent("go on", invocation_state={"context_management": "long-conversation"})


async def test_a_document_names_a_model_of_strands_as_its_writer(tmp_path: Path) -> None:
    small = ScriptedModel(["The small model wrote this about message 3."])
    summarize = {"type": "SummarizationManager", "config": {"summarization_model_id": "small"}}
    manager = WorkspaceConversationManager(
        tmp_path,
        management={"hooks": {"pre_llm": [summarize]}},
        summarizers={"small": StrandsModelSummarizer(small)},
    )
    agent = agent_with(manager, messages=talk(60, "words " * 60))
    await agent.invoke_async("go on")
    assert "The small model wrote this" in texts(history(agent))[0]


# What offloaded results become in a summary, and values that work.


@tool
def check(n: int) -> str:
    """Check module n."""
    chance = random.Random(n)  # noqa: S311 - the same in each run
    lines = [
        f"compiling module {n}-{at} without a warning in {chance.randrange(900)} ms"
        for at in range(n * 7 % 20 * 20 + 240)
    ]
    return "\n".join([*lines[:-9], f"ERROR: linker failed in target-{n} with exit code 77", *lines[-9:]])


async def test_a_summary_cites_the_files_of_results_that_the_plugin_has_offloaded(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    manager = SummarizingConversationManager(0.6, 2, workspace=workspace, session_id=SESSION)
    answers = [[call("check", {"n": n}, f"call_{n}")] for n in range(8)]
    plugin = WorkspaceOffloader(workspace, session_id=SESSION)
    found = "The linker failed in target-0 with exit code 77 [tool_result-call_0_0.txt:232]."
    agent = agent_with(manager, *answers, "done", found, tools=[check], plugins=[plugin])
    await agent.invoke_async("Check all eight modules.")
    manager.reduce_context(agent)
    assert found in texts(history(agent))[0]
    assert "tool_result-call_0_0.txt" in [pointer["path"] for pointer in summaries(tmp_path)[0]["pointers"]]


async def test_eighty_calls_of_the_example_write_five_summaries_at_most(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs/strands.md").read_text("utf-8")
    [settings] = re.findall(r"conversation_manager=SummarizingConversationManager\(\n?([^)]*)\)", page)
    workspace = LocalWorkspace(tmp_path)
    manager = eval(f"SummarizingConversationManager({settings})", globals(), {"workspace": workspace})  # noqa: S307
    calls = iter(range(80))

    def answer(messages: list[Any]) -> Any:
        if "Summarise the record above" in str(messages[-1]) or "previous summary up to date" in str(messages[-1]):
            return json.dumps(dict.fromkeys(ContextConfig().fields, "The modules are checked one by one. " * 20))
        n = next(calls, None)
        return "done" if n is None else [call("check", {"n": n}, f"call_{n}")]

    plugins = [WorkspaceOffloader(workspace, session_id=SESSION)]
    config = {"context_window_limit": 32_000}
    manager._session_id = SESSION
    agent = agent_with(manager, answer, tools=[check], plugins=plugins, config=config)
    await agent.invoke_async("Check all modules.")
    assert 1 <= len(summaries(tmp_path)) <= 5
    for request in model_of(agent).requests:
        assert await agent.model.count_tokens(cast("Any", request)) < 32_000


# Agents that are killed.

KILLED = """
import json, os, random, signal, sys
from pathlib import Path
tests, kind, ends_at = sys.argv[1], sys.argv[2], int(sys.argv[3])
sys.path.insert(0, tests)
from strands import Agent, tool
from strands.session import FileSessionManager
from strands_model import ScriptedModel, call
from buoyline import ContextConfig
from buoyline.integrations.strands import *

done = Path("done.txt")
chance = random.Random(ends_at)

def die(where):
    if count() >= ends_at and where == ends_at % 4:
        os.kill(os.getpid(), signal.SIGKILL)

def count():
    return len(done.read_bytes().splitlines()) if done.exists() else 0

@tool
def look(n: int) -> str:
    '''Look at n.'''
    die(1)
    with done.open("a") as file:
        file.write(f"result {n}\\n")
    return f"result {n} begins " + "".join(f"row {at} of {n}: {chance.random()}\\n" for at in range(n % 40 * n % 90))

def answer(messages):
    with open("requests.jsonl", "a") as file:
        print(json.dumps([[m["role"], [[kind, b[kind][:9] if kind == "text" else b[kind]["toolUseId"]]
            for b in m["content"] for kind in b]] for m in messages]), file=file)
    die(0)
    last = messages[-1]["content"][-1]
    if "Summarise the record" in str(last) or "summary up to date" in str(last):
        die(2)
        return "A summary."
    if "toolResult" not in last or count() % 5:
        return [call("look", {"n": count()}, f"call_{count()}")]
    if kind != "summarizing":
        die(2)
    return "answered"

manager = {
    "sliding": lambda: SlidingWindowConversationManager(20, workspace="w", proactive_compression=True, per_turn=True),
    "summarizing": lambda: SummarizingConversationManager(0.5, 4, workspace="w", proactive_compression=True),
    "window": lambda: WorkspaceConversationManager("w", config=ContextConfig(tool_result_limit=400)),
}[kind]()
agent = Agent(model=ScriptedModel([answer], context_window_limit=8_000), tools=[look], callback_handler=None,
    conversation_manager=manager, session_manager=FileSessionManager("s1", storage_dir="strands"))
while count() < 500:
    die(3)
    agent(f"request {count()}")
print(json.dumps([len(agent.messages), agent.conversation_manager.removed_message_count]))
"""


def assert_valid(request: list[Any]) -> None:
    """Assert that no call is parted from its result, and no summary is beside words of the user."""
    assert request[0][0] == "user"
    assert not any(kind == "toolResult" for kind, _ in request[0][1])
    for (role, blocks), (next_role, next_blocks) in pairwise(request):
        if ["text", "[Summary "] in blocks and len(blocks) == 1:
            assert next_role != role
        calls = [call_id for kind, call_id in blocks if kind == "toolUse"]
        assert sorted(calls) == sorted(call_id for kind, call_id in next_blocks if kind == "toolResult")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sliding", "summarizing", "window"])
async def test_an_agent_of_500_turns_that_is_killed_four_times_loses_nothing(kind: str, tmp_path: Path) -> None:
    for ends_at in (97, 203, 318, 424, 1_000):
        arguments = [sys.executable, "-c", KILLED, str(Path(__file__).parent), kind, str(ends_at)]
        done = subprocess.run(arguments, check=False, capture_output=True, cwd=tmp_path)
        assert done.returncode == (0 if ends_at == 1_000 else -9), done.stderr
    for line in (tmp_path / "requests.jsonl").read_text("utf-8").splitlines():
        assert_valid(json.loads(line))
    session = tmp_path / "w/sessions/s1"
    async with LocalWorkspace(tmp_path / "w") as workspace:
        window = await ContextWindow.open(workspace, "s1")
        kept = json.dumps(window.messages) + (session / "transcript.md").read_text("utf-8")
    kept += "".join(path.read_text("utf-8") for path in session.glob("tool_result-*.txt"))
    numbers = {int(line.split()[1]) for line in (tmp_path / "done.txt").read_text("utf-8").splitlines()}
    assert len(numbers) >= 490
    assert all(f"result {number} begins" in kept for number in numbers)
