"""Strands' agents with a conversation manager that a document describes."""

from typing import Any, cast

import pytest

pytest.importorskip("strands", reason="strands-agents is an extra for tests")

from strands import Agent
from strands_model import ScriptedModel
from test_strands_conversation import talk

from buoyline import LocalWorkspace, MemoryWorkspace
from buoyline.integrations.strands import (
    DocumentConversationManager,
    NullConversationManager,
    conversation_manager_of,
)
from buoyline.management import Registry, from_strands_settings
from buoyline.management.registry import BUILT_IN


def sliding(window_size: int) -> Any:
    return from_strands_settings("SlidingWindowConversationManager", {"window_size": window_size})


def test_an_agent_slides_as_the_document_of_its_workspace_says(tmp_path: Any) -> None:
    workspace = LocalWorkspace(tmp_path)
    Registry(workspace).put(sliding(6), "six")
    manager = conversation_manager_of("six", workspace=workspace, session_id="s1")
    agent = Agent(
        model=ScriptedModel(["ok"]),
        conversation_manager=manager,
        messages=cast("Any", talk(20)),
        callback_handler=None,
    )
    agent("go on")
    assert len(agent.messages) <= 6
    assert "about src/app.py" in (tmp_path / "sessions/s1/context.jsonl").read_text("utf-8")


@pytest.mark.parametrize("manager", ["NullConversationManager", "SummarizingConversationManager"])
def test_each_of_strands_managers_has_a_document(manager: str) -> None:
    found = conversation_manager_of(from_strands_settings(manager, {}), workspace=MemoryWorkspace())
    assert type(found).__name__ == manager
    assert isinstance(conversation_manager_of({"hooks": {}}, workspace=MemoryWorkspace()), NullConversationManager)


def test_any_other_document_gives_a_manager_that_runs_it() -> None:
    for name in BUILT_IN:
        found = conversation_manager_of(name, workspace=MemoryWorkspace())
        assert isinstance(found, DocumentConversationManager)
        assert found.management.name == name
    told = conversation_manager_of({"hooks": {}}, workspace=MemoryWorkspace(), on_event=print)
    assert isinstance(told, DocumentConversationManager)
