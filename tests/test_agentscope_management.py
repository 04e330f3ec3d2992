"""A context-management document in AgentScope's own agent: each of its hooks, and the document of one turn."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agentscope", reason="agentscope is an extra for tests")

from agentscope.message import UserMsg
from agentscope_model import Request, ScriptedModel, call, state
from agentscope_pilot import (
    archived,
    assert_paired,
    blocks_in,
    full_context,
    log,
    pilot,
    results_in,
    sail,
    text_of,
    voyage,
)

from buoyline import LocalWorkspace
from buoyline.errors import NotFoundError
from buoyline.integrations.agentscope import WorkspaceMiddleware
from buoyline.integrations.agentscope.context import behind_head
from buoyline.window.events import ContextManaged, Event, OverflowRecovered

SIX = {"hooks": {"pre_llm": [{"type": "SlidingWindowManager", "config": {"max_messages": 6}}]}}


async def test_the_newest_six_messages_stay_with_what_the_user_said(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    model = ScriptedModel(voyage(1, 6, lines=5))
    agent = pilot(model, WorkspaceMiddleware(workspace, management=SIX))
    await agent.reply(UserMsg("user", "Look at the logs; berth 47 is closed."))

    request = model.turns[-1]
    notice, asked = request.messages[1:3]
    assert "Messages before number" in (notice.get_text_content() or "")
    assert asked.get_text_content() == "Look at the logs; berth 47 is closed."
    assert [result.id for result in results_in(request.messages)] == ["c0_4", "c0_5"]
    assert_paired(request.messages)
    behind = [message.model_dump(mode="json") for message in behind_head(agent.state)]
    held = blocks_in([*archived(workspace), *behind])
    assert len(held) == len(set(held))
    assert len([block for block in held if block[1] == "tool_result"]) == 6


async def test_an_output_is_cut_to_100_000_characters_and_the_whole_is_in_a_file(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, durability="off")
    cutting = {"type": "ToolsOutputTruncateManager", "config": {"max_output_length": 100_000}}
    model = ScriptedModel([[call("log", n=1, lines=3_000)], "Done."])
    agent = pilot(model, WorkspaceMiddleware(workspace, management={"hooks": {"post_tool": [cutting]}}))
    await agent.reply(UserMsg("user", "Look."))

    (result,) = results_in(model.turns[-1].messages)
    assert len(text_of(result)) == 100_000
    (file,) = workspace.workdir.glob("sessions/s1/tool_result-*")
    assert file.read_text("utf-8") == log(1, 3_000)
    assert str(file) in text_of(result)


async def test_hooks_for_what_was_added_fire_once(tmp_path: Path) -> None:
    events: list[Event] = []
    keep = [{"type": "SlidingWindowManager", "config": {"max_messages": 99}}]
    management = {"hooks": dict.fromkeys(("post_tool", "pre_llm"), keep)}
    middleware = WorkspaceMiddleware(
        LocalWorkspace(tmp_path, durability="off"), management=management, on_event=events.append
    )
    agent = pilot(ScriptedModel(voyage(1, 2, lines=5)), middleware)
    await sail(agent, 1)
    await agent.compress_context()
    fired = [event.hook for event in events if isinstance(event, ContextManaged)]
    assert fired == ["pre_llm", "post_tool", "pre_llm", "post_tool", "pre_llm", "pre_llm"]


async def test_a_message_names_the_document_of_its_turn(tmp_path: Path) -> None:
    workspace, events = LocalWorkspace(tmp_path, durability="off"), list[Event]()
    model = ScriptedModel(voyage(2, 3, lines=5))
    agent = pilot(model, WorkspaceMiddleware(workspace, management=SIX, on_event=events.append))

    def ran() -> set[str]:
        found = (event.report.entries for event in events if isinstance(event, ContextManaged))
        return {entry.type_name for entries in found for entry in entries}

    await agent.reply(UserMsg("user", "Look.", metadata={"context_management_name": "tool-heavy"}))
    assert "ToolsOutputTruncateManager" in ran()
    events.clear()
    await agent.reply(UserMsg("user", "And the others."))
    assert ran() == {"SlidingWindowManager"}
    with pytest.raises(NotFoundError):
        await agent.reply(UserMsg("user", "Look.", metadata={"context_management_name": "nobodys"}))


@pytest.mark.parametrize("management", [None, "tool-heavy"])
async def test_a_request_that_the_provider_refuses_is_made_smaller_and_asked_again(
    tmp_path: Path, management: str | None
) -> None:
    def strict(request: Request) -> Any:
        if len(request.text) > 24_000:
            raise ValueError("Error code: 400 - This model's maximum context length is 4000 tokens.")
        return "Done."

    workspace, events = LocalWorkspace(tmp_path, durability="off"), list[Event]()
    model = ScriptedModel([strict], summaries=[ValueError("nobody may be asked now")])
    middleware = WorkspaceMiddleware(workspace, management=management, on_event=events.append)
    agent = pilot(model, middleware, of=state("s1", *full_context(12)))
    answer = await agent.reply(UserMsg("user", "Which is the deepest?"))
    assert answer.get_text_content() == "Done."
    assert [event for event in events if isinstance(event, OverflowRecovered)]
    assert_paired(model.turns[-1].messages)


async def test_another_error_is_none_of_it(tmp_path: Path) -> None:
    model = ScriptedModel([ValueError("429: too many requests")])
    agent = pilot(model, WorkspaceMiddleware(LocalWorkspace(tmp_path, durability="off")))
    with pytest.raises(ValueError, match="429"):
        await agent.reply(UserMsg("user", "Look."))
