"""A context-management document in Strands' own agent: each of its hooks, and the document of one call."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("strands", reason="strands-agents is an extra for tests")

from strands import tool
from strands_model import call
from test_strands_conversation import agent_with, model_of, talk

from buoyline import LocalWorkspace
from buoyline.errors import ConfigError, NotFoundError
from buoyline.integrations.strands import DocumentConversationManager
from buoyline.management import Registry
from buoyline.window import ContextManaged

SIX = {"hooks": {"pre_llm": [{"type": "SlidingWindowManager", "config": {"max_messages": 6}}]}}


@tool
def build(target: int) -> str:
    """Build a target."""
    return f"built {target}"


def test_each_hook_fires_when_it_is_due_and_tells_so(tmp_path: Path) -> None:
    keep = [{"type": "SlidingWindowManager", "config": {"max_messages": 50}}]
    document = {"hooks": dict.fromkeys(("post_tool", "pre_llm"), keep)}
    told: list[Any] = []
    manager = DocumentConversationManager(document, workspace=LocalWorkspace(tmp_path), on_event=told.append)
    answers = [[call("build", {"target": n}, f"call_{n}")] for n in range(2)]
    agent = agent_with(manager, *answers, "done", tools=[build])
    agent("build them")
    fired = [event.hook for event in told if isinstance(event, ContextManaged)]
    assert fired == ["pre_llm", "post_tool", "pre_llm", "post_tool", "pre_llm"]
    assert [ran.hook for ran in manager.report.entries] == ["post_tool", "pre_llm"]
    assert any("SlidingWindowManager" in line for line in manager.explain())


def test_one_call_may_name_its_own_document(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    Registry(workspace).put(SIX, "six")
    agent = agent_with(DocumentConversationManager("tool-heavy", workspace=workspace), messages=talk(30))
    agent("first")
    agent("second", invocation_state={"context_management": "six"})
    agent("third", invocation_state={"context_management": {"context_management_name": "long-conversations"}})
    assert [len(request) for request in model_of(agent).requests] == [31, 7, 9]
    with pytest.raises(NotFoundError, match="long-conversations"):
        agent("go on", invocation_state={"context_management": "long-conversation"})


def test_what_cannot_be_a_manager_is_refused_at_once(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path)
    with pytest.raises(NotFoundError):
        DocumentConversationManager("nowhere", workspace=workspace)

    async def never(_: Any) -> str:
        raise NotImplementedError

    with pytest.raises(ConfigError, match="use_model"):
        DocumentConversationManager("long-conversations", workspace=workspace, use_model=True, summarizer=never)
