"""An AgentScope agent whose context never fills up, and which finds archived messages again. It needs no key.

Install ``'.[agentscope]'`` in a clone, then run: python examples/agentscope_agent.py [DIRECTORY]

The files are kept in DIRECTORY; without it, nothing is kept.
"""

import asyncio
import inspect
import json
import sys
import tempfile
import uuid
from typing import Any

from agentscope.agent import Agent, ContextConfig
from agentscope.credential import CredentialBase
from agentscope.formatter import OpenAIChatFormatter
from agentscope.message import TextBlock, ToolCallBlock, UserMsg
from agentscope.model import ChatModelBase, ChatResponse
from agentscope.permission import PermissionBehavior, PermissionDecision
from agentscope.state import AgentState
from agentscope.tool import FunctionTool, ToolChunk, Toolkit

from buoyline import LocalWorkspace
from buoyline.integrations.agentscope import WorkspaceMiddleware

MODULES = ("shlex", "argparse", "queue", "netrc", "bisect", "textwrap")
SCRIPT = iter([*(("read_source", {"module": name}) for name in MODULES), ("grep", {"pattern": "raise .*Error"})])
FIELDS = ("task_overview", "current_state", "important_discoveries", "next_steps", "context_to_preserve")


class ScriptedModel(ChatModelBase):
    """Reads six modules, then searches the archived messages. Its summaries have one sentence."""

    formatter = OpenAIChatFormatter(input_types=["text/plain"])

    async def _call_api(self, *_: Any, **asked: Any) -> ChatResponse:
        name, arguments = "generate_structured_output", dict.fromkeys(FIELDS, "I compare six modules.")
        if asked["tools"][0]["function"]["name"] != name:
            name, arguments = next(SCRIPT, ("", {}))
        call = ToolCallBlock(id=uuid.uuid4().hex, name=name, input=json.dumps(arguments))
        return ChatResponse([call if name else TextBlock(text="They all raise ValueError.")], is_last=True)


def read_source(module: str) -> ToolChunk:
    """Return the source of a module of the standard library."""
    return ToolChunk(content=[TextBlock(text=inspect.getsource(__import__(module)))])


def show(event: object) -> None:
    """Print each operation of the middleware; without this it is silent."""
    print(type(event).__name__, getattr(event, "path", ""))


async def run(directory: str) -> None:
    """Run the agent; for a real model, change the line that creates the model."""
    model = ScriptedModel(CredentialBase(), "scripted", ChatModelBase.Parameters(), stream=False, context_size=8_000)
    async with LocalWorkspace(directory) as workspace:
        middleware = WorkspaceMiddleware(workspace, on_event=show)
        allowed = PermissionDecision(PermissionBehavior.ALLOW, "It only reads.")
        toolkit = Toolkit([FunctionTool(read_source, permission=allowed), *await middleware.list_tools()])
        config, state = ContextConfig(tool_result_limit=3_000), AgentState(session_id="reader")
        agent = Agent("reader", "You read code.", model, toolkit, [middleware], state, workspace, context_config=config)
        print("agent:", (await agent.reply(UserMsg("user", "Which errors do they raise?"))).get_text_content())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(run(sys.argv[1] if len(sys.argv) > 1 else temporary))
