"""A Strands agent whose large tool results and old messages are kept in a workspace. It needs no key.

Install ``'.[strands]'`` in a clone, then run: python examples/strands_agent.py [DIRECTORY]
The files are kept in DIRECTORY; without it, nothing is kept.
"""

import importlib
import inspect
import json
import sys
import tempfile
from collections.abc import AsyncIterable
from pathlib import Path
from typing import Any

from strands import Agent, tool
from strands.models import Model
from strands.session import FileSessionManager

from buoyline import LocalWorkspace
from buoyline.integrations.strands import SummarizingConversationManager, WorkspaceOffloader

MODULES = iter(["json.decoder", "shlex", "bisect", "argparse", "string", "netrc", "queue", "textwrap"])


@tool
def read_source(module: str) -> str:
    """Return the source of a module of the standard library."""
    return inspect.getsource(importlib.import_module(module))


class _Scripted(Model):
    def get_config(self) -> dict[str, int]:
        return {"context_window_limit": 8_000}

    def update_config(self, **_: Any) -> None: ...
    def structured_output(self, *_: Any, **__: Any) -> Any: ...

    async def stream(self, messages: Any, *_: Any, **__: Any) -> AsyncIterable[Any]:
        tokens, module = await self.count_tokens(messages), next(MODULES, "")
        print(f"sent: {len(messages):2} messages, {tokens:,} tokens")
        use = {"toolUse": {"name": "read_source", "toolUseId": f"call_{module}"}} if module else {}
        asked = {"toolUse": {"input": json.dumps({"module": module})}} if module else {"text": "I have read them all."}
        usage = {"inputTokens": tokens, "outputTokens": 20, "totalTokens": tokens + 20}
        yield {"contentBlockStart": {"start": use}}
        yield {"contentBlockDelta": {"delta": asked}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if module else "end_turn"}}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 0}}}


def agent_in(directory: Path) -> Agent:
    """Return the agent; it continues the session "reader" if there is one."""
    workspace = LocalWorkspace(directory / "workspace")
    return Agent(
        model=_Scripted(),  # use a real one here: BedrockModel(), AnthropicModel(...), OpenAIModel(...)
        tools=[read_source],
        plugins=[WorkspaceOffloader(workspace)],
        conversation_manager=SummarizingConversationManager(0.5, 4, workspace=workspace, proactive_compression=True),
        session_manager=FileSessionManager("reader", storage_dir=str(directory / "strands")),
        callback_handler=None,
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        agent = agent_in(place := Path(sys.argv[1] if len(sys.argv) > 1 else temporary))
        print("agent:", str(agent("Read these modules and compare how they report errors.")).strip())
        print("first message:", agent.messages[0]["content"][0]["text"].partition(";")[0])
        print("resumed:", "the same" if agent_in(place).messages == agent.messages else "other", "messages")
