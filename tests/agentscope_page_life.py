"""The agent of AgentScope's page on context, in a process of its own that is killed."""

import asyncio
import os
import signal
from pathlib import Path

from agentscope.agent import Agent, ContextConfig
from agentscope.message import UserMsg
from agentscope_model import ScriptedModel, call, state, toolkit

from buoyline import LocalWorkspace
from buoyline.integrations.agentscope import WorkspaceMiddleware


def depths(rows: int) -> str:
    """Give the depths.

    Args:
        rows: How many there are.
    """
    return "\n".join(f"buoy {row}: {row * 7} fathoms" for row in range(rows))


async def opened(directory: Path, way: str) -> tuple[Agent, LocalWorkspace]:
    """Return the page's agent over *directory*, with the state that was saved there last."""
    workspace = LocalWorkspace(workdir=str(directory / "agent_workspace"))
    await workspace.initialize()
    saved, given = directory / "state.json", state("s1")
    if saved.exists():
        given = type(given).model_validate_json(saved.read_text("utf-8"))
    agent = Agent(
        name="my_agent",
        system_prompt="You chart buoys.",
        model=ScriptedModel([[call("depths", "call_1", rows=3_000)], "Charted."], context_size=24_000),
        toolkit=toolkit(depths),
        middlewares=[] if way == "plain" else [WorkspaceMiddleware(workspace)],
        offloader=workspace,
        context_config=ContextConfig(trigger_ratio=0.8, reserve_ratio=0.1, tool_result_limit=3000),
        state=given,
    )
    return agent, workspace


async def _live(directory: Path, way: str) -> None:
    agent, _ = await opened(directory, way)
    await agent.reply(UserMsg("ada", "The harbour code is 4711. How deep are they?"))
    (directory / "state.json").write_text(agent.state.model_dump_json(), "utf-8")
    await agent.compress_context(context_config=ContextConfig(trigger_ratio=0.01, reserve_ratio=0.001))
    (directory / "compressed.json").write_text(agent.state.model_dump_json(), "utf-8")
    os.kill(os.getpid(), signal.SIGKILL)


def process(directory: Path, way: str) -> None:
    """Live in this process, until it is killed."""
    asyncio.run(_live(directory, way))
