"""Strands' pages on the context offloader, its storage and conversation managers: run, killed, and started again."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("strands", reason="strands-agents is an extra for tests")
from strands import Agent
from strands.session import FileSessionManager
from strands_model import ScriptedModel, call

from buoyline.integrations import strands
from buoyline.integrations.strands import ContextOffloader, FileStorage, SummarizingConversationManager

DYING = """
import json, os, signal, sys
sys.path.insert(0, sys.argv[1])
from strands import Agent, tool
from strands_model import ScriptedModel, call
from buoyline.integrations.strands import ContextOffloader, FileStorage, SummarizingConversationManager

@tool
def dump() -> str:
    '''Say much.'''
    return "".join(f"line {n}\\n" for n in range(2_000))

def die(messages):
    with open("messages.json", "w") as file:
        json.dump(messages, file)
    os.kill(os.getpid(), signal.SIGKILL)

agent = Agent(
    model=ScriptedModel([[call("dump")], die]),
    tools=[dump],
    plugins=[ContextOffloader(storage=FileStorage("./artifacts"))],
    conversation_manager=SummarizingConversationManager(),
    callback_handler=None,
)
agent("go")
"""


async def test_a_killed_agent_that_is_started_again_retrieves_by_its_old_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tests = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", DYING, tests], check=False, capture_output=True)
    assert done.returncode == -9, done.stderr
    messages: list[Any] = json.loads(Path("messages.json").read_text("utf-8"))
    stub = messages[2]["content"][0]["toolResult"]["content"][0]["text"]
    [reference] = re.findall(r"references:\]\n  (\S+)", stub)
    look = [call("retrieve_offloaded_content", {"reference": reference, "pattern": "line 1999"}, "call_2")]
    agent = Agent(
        model=ScriptedModel([look, "done"]),
        messages=messages,
        plugins=[ContextOffloader(storage=FileStorage("./artifacts"))],
        conversation_manager=SummarizingConversationManager(),
        callback_handler=None,
    )
    await agent.invoke_async("and now?")
    answers: list[Any] = [block for message in agent.messages for block in message["content"] if "toolResult" in block]
    assert answers[-1]["toolResult"]["status"] == "success"
    assert "> 2000| line 1999" in answers[-1]["toolResult"]["content"][0]["text"]
    content, content_type = await FileStorage("./artifacts").retrieve(reference)
    assert content.count(b"\n") == 2_000
    assert content_type == "text/plain"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["artifacts", "messages.json"]


MANAGERS = {
    "null": "NullConversationManager()",
    "sliding": "SlidingWindowConversationManager(window_size=20, should_truncate_results=True)",
    "each turn": "SlidingWindowConversationManager(per_turn=True)",
    "each third turn": "SlidingWindowConversationManager(per_turn=3)",
    "sliding ahead": (
        'SlidingWindowConversationManager(window_size=50, proactive_compression={"compression_threshold": 0.7})'
    ),
    "summarising": "SummarizingConversationManager()",
    "summarising less": "SummarizingConversationManager(summary_ratio=0.3, preserve_recent_messages=10)",
    "a prompt": "SummarizingConversationManager(summarization_system_prompt='Form bullet points.')",
    "an agent": (
        "SummarizingConversationManager(summary_ratio=0.4, preserve_recent_messages=8, "
        "summarization_agent=Agent(model=ScriptedModel(['THE AGENT WROTE THIS']), callback_handler=None))"
    ),
    "summarising ahead": "SummarizingConversationManager(proactive_compression=True)",
}
"""The managers of the page on conversation management, with its arguments."""

ALIKE = {"each third turn", "sliding ahead", "summarising less", "a prompt"}
"""Those whose code another of them runs too: in the slow tests."""

NAMES = [pytest.param(name, marks=pytest.mark.slow if name in ALIKE else ()) for name in MANAGERS]

MANAGED = """
import json, os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from strands import Agent, tool
from strands.session import FileSessionManager
from strands.types.exceptions import ContextWindowOverflowException
from strands_model import ScriptedModel, call
from buoyline.integrations.strands import *

@tool
def dump(name: str) -> str:
    '''Say much.'''
    return "".join(f"line {n} of {name}\\n" for n in range(2_000))

refused = []

def answer(messages):
    asked = messages[-1]["content"][0].get("text", "")
    if asked.startswith("dump"):
        return [call("dump", {"name": asked}, "call_" + asked[-1])]
    if asked == "too much" and not refused:
        refused.append(len(messages))
        return ContextWindowOverflowException("too long")
    if asked == "end":
        Path("messages.json").write_text(json.dumps({"saved": messages, "refused": refused}))
        os.kill(os.getpid(), signal.SIGKILL)
    return "An answer about src/app.py and what it says of port 8080. " * 8

agent = Agent(
    model=ScriptedModel([answer]),
    tools=[dump],
    plugins=[ContextOffloader(storage=FileStorage("./artifacts"))],
    conversation_manager=eval(sys.argv[2]),
    session_manager=FileSessionManager("talk", storage_dir="sessions") if sys.argv[3] else None,
    callback_handler=None,
)
for asked in ["dump 1", *(f"question {n}" for n in range(24)), "dump 2", "too much", "end"]:
    try:
        agent(asked)
    except ContextWindowOverflowException:
        Path("raised").touch()
"""


def killed(manager: str, session: str = "") -> dict[str, Any]:
    """Return the messages of the request in which the agent was killed, after an overflow."""
    arguments = [str(Path(__file__).parent), manager, session]
    done = subprocess.run([sys.executable, "-c", MANAGED, *arguments], check=False, capture_output=True)
    assert done.returncode == -9, done.stderr
    found: dict[str, Any] = json.loads(Path("messages.json").read_text("utf-8"))
    return found


def manager_of(name: str) -> Any:
    names = {**vars(strands), "Agent": Agent, "ScriptedModel": ScriptedModel}
    return eval(MANAGERS[name], names)  # noqa: S307 - the page's own lines, which the killed process evaluates too


def results_in(messages: Any) -> list[Any]:
    return [block["toolResult"] for message in messages for block in message["content"] if "toolResult" in block]


def references_in(results: list[Any]) -> list[str]:
    text = "".join(block["text"] for result in results for block in result["content"])
    return re.findall(r"\S+/tool_result-\S+\.txt", text)


def looked_up(reference: str, name: str, **more: Any) -> Agent:
    """Start an agent of the same pages again, and let it look for the last line of the result at *reference*."""
    look = [call("retrieve_offloaded_content", {"reference": reference, "pattern": "line 1999"}, "call_9")]
    agent = Agent(
        model=ScriptedModel([look, "done"]),
        plugins=[ContextOffloader(storage=FileStorage("./artifacts"))],
        callback_handler=None,
        **more,
    )
    agent("and now?")
    answer = results_in(agent.messages)[-1]
    assert answer["status"] == "success", answer
    assert f"> 2000| line 1999 of {name}" in answer["content"][0]["text"]
    return agent


@pytest.mark.parametrize("name", NAMES)
def test_each_documented_manager_survives_an_overflow_a_kill_and_a_restart(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = killed(MANAGERS[name])
    saved: list[Any] = found["saved"]
    assert found["refused"]
    assert Path("raised").exists() == (name == "null")
    (transcript,) = Path("artifacts/sessions").glob("*/transcript.md") if name != "null" else (None,)
    if transcript is not None:
        assert len(saved) < 56
        assert "dump 1" in transcript.read_text("utf-8")
        assert "dump 1" not in [block.get("text") for message in saved for block in message["content"]]
    assert ("THE AGENT WROTE THIS" in json.dumps(saved)) == (name == "an agent")
    reference = references_in(results_in(saved))[-1]
    looked_up(reference, "dump 2", messages=saved, conversation_manager=manager_of(name))


@pytest.mark.parametrize("name", ["sliding", "summarising"])
def test_with_a_session_manager_also_a_reference_that_is_archived_leads_to_its_result(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    saved: list[Any] = killed(MANAGERS[name], "with a session")["saved"]
    (stored,) = Path("artifacts/sessions").glob("*/tool_result-call_1*.txt")
    assert not [found for found in references_in(results_in(saved)) if found.endswith(stored.name)]
    sessions = FileSessionManager("talk", storage_dir="sessions")
    manager = manager_of(name)
    agent = looked_up(str(stored.resolve()), "dump 1", session_manager=sessions, conversation_manager=manager)
    assert manager.removed_message_count > 0
    assert "dump 1" not in [block.get("text") for message in agent.messages for block in message["content"]]
