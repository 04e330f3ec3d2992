"""buoyline in AgentScope: the middleware, the summariser and the tools of an agent.

`LocalWorkspace` alone is an offloader for AgentScope, too, and needs nothing of this. See docs/agentscope.md.
"""

try:
    import agentscope.agent  # noqa: F401 - asked for first, so that its absence is told in one line
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("agentscope"):
        raise  # it is there, and something of its own is not
    raise ModuleNotFoundError(
        "buoyline.integrations.agentscope needs AgentScope: pip install 'buoyline[agentscope]'", name=error.name
    ) from None

from buoyline.integrations.agentscope.lookups import workspace_tools
from buoyline.integrations.agentscope.middleware import WorkspaceMiddleware
from buoyline.integrations.agentscope.summarizer import AgentModelSummarizer

__all__ = ["AgentModelSummarizer", "WorkspaceMiddleware", "workspace_tools"]
