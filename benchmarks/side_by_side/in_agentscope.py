"""The script in AgentScope: its own agent, with its own workspace and its own compaction."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentscope.agent import Agent, ContextConfig, ReActConfig
from agentscope.credential import CredentialBase
from agentscope.formatter import OpenAIChatFormatter
from agentscope.message import Msg, TextBlock, ToolCallBlock, UserMsg
from agentscope.model import ChatModelBase, ChatResponse, ChatUsage
from agentscope.permission import PermissionBehavior, PermissionDecision
from agentscope.tool import FunctionTool, Grep, ToolBase, Toolkit
from agentscope.workspace import LocalWorkspace

from side_by_side.measuring import Meter
from side_by_side.script import TURNS_OF_A_REQUEST, Script, asks_for_summary, summary_fields

SYSTEM = "You look after the modules of a service."
SUMMARY_TOOL = "generate_structured_output"
CHARS_OF_A_TOKEN = 4
"""The ratio by which AgentScope counts tokens and cuts tool results."""


class RefusedError(Exception):
    """The request is larger than the model's window."""


class ScriptedModel(ChatModelBase):
    """Calls the script's tool turn by turn, and ends a reply when its turns are done."""

    def __init__(self, script: Script, meter: Meter) -> None:
        """Follow *script*, and record each request in *meter*."""
        super().__init__(
            CredentialBase(), "scripted", self.Parameters(), stream=False, max_retries=0, context_size=meter.size
        )
        self.formatter = OpenAIChatFormatter()
        self._script, self._meter = script, meter
        self._turn, self._ends_reply = 0, False

    async def _call_api(
        self,
        model_name: str,  # noqa: ARG002 - AgentScope passes it by name
        messages: list[Msg],
        tools: list[dict[str, Any]] | None = None,
        **_: Any,
    ) -> ChatResponse:
        with self._meter.in_model():
            texts = [text for message in messages for block in message.content for text in texts_in(block)]
            has_tool = any(tool["function"]["name"] == SUMMARY_TOOL for tool in tools or ())
            wants_summary = has_tool or asks_for_summary(texts)
            tokens, fits = self._meter.takes([*texts, *map(json.dumps, tools or ())], wants_summary=wants_summary)
            if not fits:
                raise RefusedError(f"{tokens} tokens do not fit {self._meter.size}")
            blocks = _summary(texts, has_tool=has_tool) if wants_summary else self._answer()
            return ChatResponse(content=blocks, is_last=True, usage=ChatUsage(tokens, 50, 0.0))

    def _answer(self) -> list[Any]:
        turn = self._turn
        if self._ends_reply or turn == self._script.turns:
            self._ends_reply = False
            return [TextBlock(text=f"The checks up to {turn - 1} are done.")]
        self._turn += 1
        self._ends_reply = self._turn % TURNS_OF_A_REQUEST == 0
        arguments = json.dumps({"command": self._script.command(turn)})
        return [
            TextBlock(text=self._script.said(turn)),
            ToolCallBlock(id=f"call_{turn}", name="run", input=arguments),
        ]


def _summary(texts: list[str], *, has_tool: bool) -> list[Any]:
    answer = summary_fields(texts)
    return [ToolCallBlock(id="summary", name=SUMMARY_TOOL, input=answer) if has_tool else TextBlock(text=answer)]


def texts_in(block: Any) -> Iterator[str]:
    """Yield the texts of *block* that a model reads."""
    for name in ("text", "thinking", "input", "hint", "output"):
        value = getattr(block, name, None)
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            yield from (text for nested in value for text in texts_in(nested))


class AgentScopeSide:
    """AgentScope alone. Subclasses change its parts."""

    def __init__(self, script: Script, meter: Meter, workdir: Path, die_at: int | None) -> None:
        """Begin with an empty *workdir*; the process is killed at the turn *die_at*, if it is given."""
        self.script, self.meter, self.workdir, self.die_at = script, meter, workdir, die_at
        self.agent: Agent

    async def run(self) -> None:
        """See `Side`."""
        self.agent = await self.make_agent()
        for turn in self.script.requests:
            await self.agent.reply(UserMsg("user", self.script.request(turn)))

    async def make_agent(self) -> Agent:
        """Return the agent, with its workspace as its offloader and the tool to search it."""
        workspace = LocalWorkspace(workdir=str(self.workdir))
        await workspace.initialize()
        self.grep = next(tool for tool in await workspace.list_tools() if isinstance(tool, Grep))
        return self.agent_with(offloader=workspace, tools=[self.grep])

    def agent_with(self, *, tools: list[ToolBase], **options: Any) -> Agent:
        """Return an agent that has the script's tool and *tools*."""
        return Agent(
            "agent",
            SYSTEM,
            ScriptedModel(self.script, self.meter),
            Toolkit(tools=[self.tool(), *tools]),
            react_config=ReActConfig(max_iters=2 * TURNS_OF_A_REQUEST),
            **options,
        )

    def tool(self) -> FunctionTool:
        """Return the tool that the script calls."""

        async def run(command: str) -> str:
            """Run a command.

            Args:
                command: The command.
            """
            if self.die_at is not None and command == self.script.command(self.die_at):
                os.kill(os.getpid(), signal.SIGKILL)
            return self.script.output(command)

        return FunctionTool(run, permission=PermissionDecision(PermissionBehavior.ALLOW, "scripted"))

    def context(self) -> str:
        """See `Side`."""
        messages = [*self.agent.state.context, UserMsg("user", self.agent.state.summary or "")]
        return "\n".join(text for message in messages for block in message.content for text in texts_in(block))

    async def look_up(self, name: str) -> str:
        """See `Side`: one search of the workspace, cut as the agent cuts tool results."""
        found = await self.grep(pattern=name, path=str(self.workdir), output_mode="content")
        text = "\n".join(text for block in found.content for text in texts_in(block))
        return text[: ContextConfig().tool_result_limit * CHARS_OF_A_TOKEN]
