"""The script in AgentScope, with buoyline."""

from agentscope.agent import Agent, ContextConfig

from buoyline import LocalWorkspace
from buoyline.integrations.agentscope import WorkspaceMiddleware
from side_by_side.in_agentscope import AgentScopeSide, texts_in


class AgentScopeWithBuoyline(AgentScopeSide):
    """AgentScope with the middleware: its own model and trigger, our stubs, checks and lookups."""

    async def make_agent(self) -> Agent:
        """Return the agent, with the lookups among its tools, and the limit of a result of the other sides' offloaders.

        AgentScope's own limit of 50,000 tokens is most of the window here.
        """
        workspace = LocalWorkspace(self.workdir)
        middleware = WorkspaceMiddleware(workspace)
        tools = await middleware.list_tools()
        self.lookup = next(tool for tool in tools if tool.name == "grep")
        config = ContextConfig(tool_result_limit=3_000)
        return self.agent_with(tools=tools, offloader=workspace, middlewares=[middleware], context_config=config)

    async def look_up(self, name: str) -> str:
        """See `Side`: one search, with the agent's limit."""
        found = await self.lookup.call(_agent_state=self.agent.state, pattern=name)
        return "\n".join(text for block in found.content for text in texts_in(block))
