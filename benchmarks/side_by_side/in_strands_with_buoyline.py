"""The script in Strands, with buoyline."""

from strands import Agent

from buoyline import LocalWorkspace
from buoyline.integrations.strands import SummarizingConversationManager, WorkspaceOffloader
from side_by_side.in_strands import StrandsSide, texts_in


class StrandsWithBuoyline(StrandsSide):
    """Strands with our plugin and our summarizing manager, which asks the agent's own model."""

    def make_agent(self) -> Agent:
        """Return the agent: plugin and manager share one workspace."""
        workspace = LocalWorkspace(self.workdir)
        manager = SummarizingConversationManager(workspace=workspace, proactive_compression=True)
        return self.agent_with(plugins=[WorkspaceOffloader(workspace)], conversation_manager=manager)

    async def look_up(self, name: str) -> str:
        """See `Side`: one search, with the agent's limit."""
        result = self.agent.tool.grep(pattern=name, record_direct_tool_call=False)
        return "\n".join(text for block in result["content"] for text in texts_in(block))
