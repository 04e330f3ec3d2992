"""The lookups as tools of AgentScope."""

from typing import Any, Final

from agentscope.message import TextBlock, ToolResultState
from agentscope.permission import PermissionBehavior, PermissionDecision
from agentscope.state import AgentState
from agentscope.tool import ToolBase, ToolChunk

from buoyline.lookups import Tool, lookup_tools
from buoyline.workspace import LocalWorkspace

MAX_TOKENS: Final = 2_000
"""Default limit of an answer."""


class LookupTool(ToolBase):
    """A lookup of `buoyline.lookups.lookup_tools`, confined to the session of the agent that calls it.

    It only reads, so it may run beside other tools, and needs no permission.
    """

    is_concurrency_safe = True
    is_read_only = True
    is_state_injected = True

    def __init__(self, workspace: LocalWorkspace, tool: Tool, *, max_tokens: int) -> None:
        """Offer *tool*, which is bound to a session only when it is called.

        Args:
            workspace: The files.
            tool: The lookup.
            max_tokens: Of each answer.
        """
        super().__init__()
        self.name = tool.name
        self.description = tool.description
        self.input_schema = dict(tool.parameters)
        self._workspace = workspace
        self._max_tokens = max_tokens

    async def check_permissions(self, *_args: Any, **_kwargs: Any) -> PermissionDecision:
        """Allow the call: it reaches nothing outside the session."""
        return PermissionDecision(PermissionBehavior.ALLOW, f"{self.name} only reads what left the context.")

    async def call(self, *, _agent_state: AgentState, **arguments: Any) -> ToolChunk:
        """Answer a call with text, also if the call is wrong."""
        tools = lookup_tools(self._workspace, _agent_state.session_id, max_tokens=self._max_tokens)
        (tool,) = (tool for tool in tools if tool.name == self.name)
        return ToolChunk(content=[TextBlock(text=await tool.call(**arguments))], state=ToolResultState.SUCCESS)


def workspace_tools(workspace: LocalWorkspace, *, max_tokens: int = MAX_TOKENS) -> list[ToolBase]:
    """Return `read`, `grep`, `search`, `glob` and `query` for a ``Toolkit``.

    Each call reaches the files of the calling agent's session alone, so one toolkit may serve several agents.

    Args:
        workspace: The files.
        max_tokens: Of each answer.

    Raises:
        ConfigError: *max_tokens* is under 200.
    """
    tools = lookup_tools(workspace, max_tokens=max_tokens)
    return [LookupTool(workspace, tool, max_tokens=max_tokens) for tool in tools]
