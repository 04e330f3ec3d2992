"""A session begun by an agent of one framework goes on with an agent of the other: real agents, scripted models."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("agentscope", reason="agentscope is an extra for tests")
pytest.importorskip("strands", reason="strands-agents is an extra for tests")

from agentscope.agent import Agent as ScopeAgent
from agentscope.agent import ContextConfig
from agentscope.message import Msg, UserMsg
from agentscope.state import AgentState
from agentscope_model import ScriptedModel as ScopeModel
from agentscope_model import call as scope_call
from agentscope_model import state, toolkit
from click.testing import CliRunner
from strands import Agent as StrandsAgent
from strands import tool
from strands_model import ScriptedModel as StrandsModel
from strands_model import call as strands_call

from buoyline import ContextWindow, LocalWorkspace
from buoyline.cli import main
from buoyline.integrations.agentscope import WorkspaceMiddleware, resumed_state
from buoyline.integrations.strands import SummarizingConversationManager, WorkspaceOffloader
from buoyline.messages.registry import detect

SESSION = "voyage"


def log(n: int = 0) -> str:
    """Give a log.

    Args:
        n: Which one.
    """
    lines = [f"line {n}-{line} value={line * 7919} /srv/app/{n}/file{line}.py" for line in range(200)]
    return "\n".join([*lines, f"ERROR: code {n}77 failed"])


def note(n: int) -> str:
    return f"Berth 47-{n} is closed. " + f"It may tell more of {n}. " * 30


def scope_agent(workspace: LocalWorkspace, model: ScopeModel, of: AgentState | None = None) -> ScopeAgent:
    config = ContextConfig(tool_result_limit=500)
    middleware = WorkspaceMiddleware(workspace)
    return ScopeAgent(
        "pilot", "You are a pilot.", model, toolkit(log), [middleware], of or state(SESSION), context_config=config
    )


def strands_agent(
    workspace: LocalWorkspace, model: StrandsModel, *, takes_over: bool = False
) -> tuple[StrandsAgent, SummarizingConversationManager]:
    manager = SummarizingConversationManager(
        workspace=workspace,
        session_id=SESSION,
        preserve_recent_messages=2,
        proactive_compression=True,
        summarizer="extractive",  # the model's answers are those of the conversation
    )
    messages = manager.take_over() if takes_over else []
    plugin = WorkspaceOffloader(storage=workspace, session_id=SESSION, max_result_tokens=500, preview_tokens=200)
    agent = StrandsAgent(
        model=model,
        conversation_manager=manager,
        messages=messages,
        plugins=[plugin],
        tools=[tool(log)],
        callback_handler=None,
    )
    return agent, manager


async def sail_with_agentscope(workspace: LocalWorkspace, turns: int = 6) -> ScopeAgent:
    answers: list[Any] = []
    for n in range(turns):
        answers += [[scope_call("log", f"c{n}", n=n)], f"Turn {n} is done. {note(n)}"]
    agent = scope_agent(workspace, ScopeModel(answers, context_size=1_500))
    for n in range(turns):
        await agent.reply(UserMsg("user", f"Look at log {n}."))
    return agent


def sail_with_strands(workspace: LocalWorkspace, turns: int = 6) -> StrandsAgent:
    answers: list[Any] = []
    for n in range(turns):
        answers += [[strands_call("log", {"n": n}, f"c{n}")], f"Turn {n} is done. {note(n)}"]
    agent, _ = strands_agent(workspace, StrandsModel(answers, context_window_limit=2_000))
    for n in range(turns):
        agent(f"Look at log {n}.")
    return agent


def command(workspace: LocalWorkspace, *args: str) -> str:
    result = CliRunner().invoke(main, [*args, "--workdir", str(workspace.workdir)])
    assert result.exit_code == 0, result.output
    return result.stdout


def is_listed_shown_and_whole(workspace: LocalWorkspace) -> dict[str, Any]:
    """Look at the session with the commands; return its numbers."""
    assert [found["id"] for found in json.loads(command(workspace, "sessions", "--json"))] == [SESSION]
    assert "tool_result-c0.txt" in command(workspace, "show", SESSION)
    assert json.loads(command(workspace, "verify", "--json"))["findings"] == []
    numbers: dict[str, Any] = json.loads(command(workspace, "show", SESSION, "--json"))
    return numbers


def finds(workspace: LocalWorkspace, word: str) -> bool:
    return bool(json.loads(command(workspace, "grep", word, "--session", SESSION, "--json"))["lines"])


async def dialects(workspace: LocalWorkspace) -> list[str]:
    end = (await workspace.archive(SESSION, [])).first
    return [name for name, _ in await workspace.load_messages(SESSION, 0, end)]


async def test_an_agent_of_strands_goes_on_with_what_one_of_agentscope_has_begun(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    first = await sail_with_agentscope(workspace)
    before = is_listed_shown_and_whole(workspace)
    assert before["archived"] > 0
    assert before["in_context"] > 1
    archived = await dialects(workspace)
    assert set(archived) == {"agentscope"}
    calls = [[strands_call("log", {"n": n}, f"c{n}")] for n in range(6, 12)]
    answers = [answer for n, asked in enumerate(calls, 6) for answer in (asked, f"Turn {n} is done. {note(n)}")]
    model = StrandsModel(answers, context_window_limit=2_000)
    agent, manager = strands_agent(workspace, model, takes_over=True)
    taken: list[Any] = list(agent.messages)
    assert taken[0]["content"] == [{"text": first.state.summary}]
    last_said = cast("Any", first.state.context[-1].content[-1]).text
    assert taken[-1] == {"role": "assistant", "content": [{"text": last_said}]}
    for n in range(6, 12):
        agent(f"Look at log {n}.")
    assert "Turn 5 is done" in str(model.requests[0])
    after = is_listed_shown_and_whole(workspace)
    assert after["summaries"] > before["summaries"]
    kept = await dialects(workspace)
    assert kept[: len(archived)] == archived
    assert kept[-1] == "bedrock"
    assert manager.get_state()["workspace"]["left"] == len(kept)
    assert all(finds(workspace, f"line {n}-150 value") for n in range(12))
    assert all(finds(workspace, f"Berth 47-{n} is closed") for n in range(6))


async def test_an_agent_of_agentscope_goes_on_with_what_one_of_strands_has_begun(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    sail_with_strands(workspace)
    before = is_listed_shown_and_whole(workspace)
    assert before["archived"] > 0
    archived = await dialects(workspace)
    assert set(archived) == {"bedrock"}
    resumed = await resumed_state(workspace, SESSION)
    assert all(isinstance(message, Msg) for message in resumed.context)
    assert "transcript.md" in str(resumed.summary)
    answers: list[Any] = []
    for n in range(6, 12):
        answers += [[scope_call("log", f"c{n}", n=n)], f"Turn {n} is done. {note(n)}"]
    model = ScopeModel(answers, context_size=1_500)
    agent = scope_agent(workspace, model, resumed)
    for n in range(6, 12):
        await agent.reply(UserMsg("user", f"Look at log {n}."))
    assert "Look at log 0." in model.turns[0].text
    after = is_listed_shown_and_whole(workspace)
    assert after["summaries"] > before["summaries"]
    kept = await dialects(workspace)
    assert kept[: len(archived)] == archived
    assert kept[-1] == "agentscope"
    assert all(finds(workspace, f"line {n}-150 value") for n in range(12))
    assert all(finds(workspace, f"Berth 47-{n} is closed") for n in range(6))


async def test_a_window_without_a_framework_goes_on_with_both(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    await sail_with_agentscope(workspace)
    window = await ContextWindow.resume(workspace, SESSION, dialect="openai")
    messages = await window.prepare()
    assert {detect(message).name for message in messages} == {"openai"}
    assert "Turn 5 is done" in messages[-1]["content"]


async def begun_without_a_framework(workspace: LocalWorkspace) -> ContextWindow:
    window = ContextWindow(session_id=SESSION, offloader=workspace, size=20_000)
    await window.add({"role": "system", "content": "Be brief."})
    await window.add({"role": "user", "content": "Berth 47 is closed."}, pinned=True)
    for n in range(10):
        await window.add({"role": "assistant", "content": f"answer {n}"})
        await window.add({"role": "user", "content": f"question {n} " + "about tides " * 100})
    await window.save()
    return window


async def test_pins_and_the_summary_stand_in_an_agents_history_and_are_archived_once(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    window = await begun_without_a_framework(workspace)
    await window.compress(before=12)
    agent, manager = strands_agent(workspace, StrandsModel(["Aye."]), takes_over=True)
    leading, *others = list(agent.messages)
    assert leading["content"] == [{"text": "Berth 47 is closed."}, {"text": window.messages[2]["content"]}]
    assert len(others) == 10
    agent("Ahoy")
    manager.reduce_context(agent)
    assert agent.messages[0]["content"][0] == {"text": "Berth 47 is closed."}
    assert (await dialects(workspace))[:12] == ["openai"] * 12
    state_now = await workspace.load_window(SESSION)
    assert (state_now.head[:2], state_now.pins) == (("pin", "summary"), (1,))


async def test_a_compression_that_another_process_has_begun_is_ended_first(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    window = await begun_without_a_framework(workspace)
    written = [dict(message) for message in window.messages[:12]]
    await workspace.archive(SESSION, written)
    resumed = await resumed_state(workspace, SESSION)
    assert "answer 3" in str(resumed.summary)
    assert [message.role for message in resumed.context] == ["user", *["assistant", "user"] * 5], "the pin comes first"
    assert len(await dialects(workspace)) == 12
