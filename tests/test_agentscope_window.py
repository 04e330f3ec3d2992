"""An agent of AgentScope's writes its context down, so that others can go on with its session."""

import asyncio
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agentscope", reason="agentscope is an extra for tests")

from agentscope.agent import Agent
from agentscope.message import (
    AssistantMsg,
    HintBlock,
    Msg,
    TextBlock,
    UserMsg,
)
from agentscope.state import AgentState
from agentscope_model import ScriptedModel, call, state, toolkit
from agentscope_pilot import archived, assert_sound, blocks_in, full_context, pilot, sail, voyage
from faults import files_up_to

from buoyline import ContextWindow, LocalWorkspace
from buoyline.errors import NotFoundError, StaleWindowError, SummaryError
from buoyline.integrations.agentscope import AgentModelSummarizer, WorkspaceMiddleware


async def resumed(workdir: Path, to: Path) -> ContextWindow:
    """Resume a copy of the session, so that the agent keeps its own."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(workdir, to)
    return await ContextWindow.resume(LocalWorkspace(to), "s1")


async def formatted(agent: Agent, messages: list[Msg]) -> list[dict[str, Any]]:
    """Return what the provider gets."""
    model: Any = agent.model
    found: list[dict[str, Any]] = await model.formatter.format(messages)
    return found


async def next_messages(agent: Agent) -> list[Msg]:
    """Return what the agent would send next, without its system prompt."""
    anyhow: Any = agent
    given = await anyhow._prepare_model_input()
    return list(given["messages"][1:])


def everything(workspace: LocalWorkspace, messages: list[Msg]) -> list[tuple[str, str, str]]:
    """Return all blocks of the archive, and of *messages* behind the summary."""
    assert "[Summary of messages 0-" in str(messages[0].get_text_content())
    return blocks_in([*archived(workspace), *(message.model_dump(mode="json") for message in messages[1:])])


class TestWindow:
    async def test_a_window_goes_on_from_there_and_each_block_is_once_in_all(self, tmp_path: Path) -> None:
        workspace = LocalWorkspace(tmp_path)
        model = ScriptedModel(voyage(3, 5), context_size=5_000)
        agent = pilot(model, WorkspaceMiddleware(workspace, preview_tokens=300))
        await sail(agent, 3)
        window = await ContextWindow.resume(workspace, "s1")
        assert (window.size, window.config.tool_result_limit, window.config.preview_tokens) == (5_000, 1_000, 300)
        assert "{current_time}" not in window.config.compression_prompt
        before = everything(workspace, window.messages)
        asked = UserMsg("user", "And the next berth?")
        await window.add(asked)
        assert await window.compress(force=True)
        assert everything(workspace, await window.prepare()) == [*before, *blocks_in([asked.model_dump(mode="json")])]
        assert_sound(workspace)

    async def test_what_an_observer_or_a_hint_adds_is_there_after_the_reply(self, tmp_path: Path) -> None:
        agent = pilot(ScriptedModel(), WorkspaceMiddleware(LocalWorkspace(tmp_path / "w")))
        await agent.observe(AssistantMsg("mate", "I saw a buoy."))
        await agent.reply(UserMsg("user", [TextBlock(text="Where?")]))
        agent.state.append_context("pilot", [HintBlock(hint="It is late.")])
        await agent.reply(UserMsg("user", "And now?"))
        window = await resumed(tmp_path / "w", tmp_path / "copy")
        assert await formatted(agent, window.messages) == await formatted(agent, await next_messages(agent))

    async def test_a_process_that_ends_between_archive_and_summary_is_gone_on_with(self, tmp_path: Path) -> None:
        workspace = LocalWorkspace(tmp_path / "w")
        model = ScriptedModel(voyage(2, 6), summaries=[RuntimeError("down")], context_size=5_000)
        summarizer = AgentModelSummarizer(model, max_attempts=1, first_wait_s=0)
        middleware = WorkspaceMiddleware(workspace, preview_tokens=300, summarizer=summarizer)
        agent = pilot(model, middleware, compression_fallback_to_truncation=False)
        with pytest.raises(SummaryError):
            await sail(agent, 2)
        assert archived(workspace)
        window = await resumed(workspace.workdir, tmp_path / "copy")
        assert await formatted(agent, window.messages) == await formatted(agent, await next_messages(agent))
        await window.compress(force=True)
        copy = LocalWorkspace(tmp_path / "copy")
        context = [message.model_dump(mode="json") for message in agent.state.context]
        assert everything(copy, window.messages) == blocks_in(context)
        assert_sound(copy)

    async def test_a_saved_state_goes_on_with_the_window_of_its_session(self, tmp_path: Path) -> None:
        workspace = LocalWorkspace(tmp_path / "w")
        model = ScriptedModel(context_size=4_000)
        agent = pilot(model, WorkspaceMiddleware(workspace), of=state("s1", *full_context()))
        saved = agent.state.model_dump_json()
        await agent.reply(UserMsg("user", "Go on."))  # which compresses; and the process is killed
        agent = pilot(model, WorkspaceMiddleware(workspace), of=AgentState.model_validate_json(saved))
        await agent.reply(UserMsg("user", "Go elsewhere."))
        window = await resumed(tmp_path / "w", tmp_path / "copy")
        assert await formatted(agent, window.messages) == await formatted(agent, await next_messages(agent))
        assert_sound(workspace)

    async def test_a_reply_that_is_interrupted_or_fails_is_written_down(self, tmp_path: Path) -> None:
        begun = asyncio.Event()

        async def wait() -> str:
            """Wait for ever."""
            begun.set()
            await asyncio.Event().wait()
            return ""

        model = ScriptedModel([[call("wait")], ValueError("no model")])
        agent = pilot(model, WorkspaceMiddleware(LocalWorkspace(tmp_path / "w")), tools=toolkit(wait))
        task = asyncio.create_task(agent.reply(UserMsg("user", "Wait.")))
        await asyncio.wait_for(begun.wait(), 20)
        task.cancel()
        await asyncio.wait([task])
        window = await resumed(tmp_path / "w", tmp_path / "copy")
        assert "interrupted" in str(window.messages[-1].content)
        assert await formatted(agent, window.messages) == await formatted(agent, await next_messages(agent))
        with pytest.raises(ValueError, match="no model"):
            await agent.reply(UserMsg("user", "And now?"))
        window = await resumed(tmp_path / "w", tmp_path / "copy")
        assert await formatted(agent, window.messages) == await formatted(agent, await next_messages(agent))


class TestTrouble:
    async def test_a_context_that_cannot_be_written_down_does_not_stop_the_agent(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        agent = pilot(ScriptedModel([[call("log", lines=3)], "Seen."]), WorkspaceMiddleware(LocalWorkspace(tmp_path)))
        with files_up_to(3_000), caplog.at_level(logging.WARNING):
            answers = [await agent.reply(UserMsg("user", "Look. " * 300)) for _ in range(4)]
        assert {answer.get_text_content() for answer in answers} == {"Seen."}
        assert "is not written down" in caplog.text

    async def test_an_agent_whose_session_was_taken_over_writes_no_more_and_archives_nothing(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        workspace = LocalWorkspace(tmp_path)
        agent = pilot(ScriptedModel(context_size=4_000), WorkspaceMiddleware(workspace))
        await agent.reply(UserMsg("user", "Ahoy."))
        window = await ContextWindow.resume(workspace, "s1")
        before = list(window.messages)
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                await agent.reply(UserMsg("user", "Go on."))
        assert caplog.text.count("what this agent goes on with is not written down") == 1
        await window.add(UserMsg("user", "I go on."))
        await window.save()
        assert (await ContextWindow.resume(workspace, "s1")).messages[:-1] == before
        agent.state.context += full_context()
        context = agent.state.model_dump_json()
        with pytest.raises(StaleWindowError):
            await agent.compress_context()
        assert agent.state.model_dump_json() == context
        assert archived(workspace) == []

    async def test_a_session_that_has_messages_and_no_window_gets_none(self, tmp_path: Path) -> None:
        workspace = LocalWorkspace(tmp_path)
        await workspace.offload_context("s1", [UserMsg("user", "From before the middleware.")])
        agent = pilot(ScriptedModel(), WorkspaceMiddleware(workspace))
        await agent.reply(UserMsg("user", "Ahoy."))
        with pytest.raises(NotFoundError):
            await ContextWindow.resume(workspace, "s1")
        assert_sound(workspace)
