"""buoyline in AgentScope: the middleware, the summariser and the tools of an agent.

`LocalWorkspace` alone is an offloader for AgentScope, too, and needs nothing of this. See docs/agentscope.md.
"""

try:
    from buoyline.integrations.agentscope.log import resumed_state
    from buoyline.integrations.agentscope.middleware import WorkspaceMiddleware
    from buoyline.integrations.agentscope.summarizer import AgentModelSummarizer
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "agentscope":
        raise
    raise ModuleNotFoundError(
        "buoyline.integrations.agentscope needs AgentScope: pip install 'buoyline[agentscope]'", name=error.name
    ) from None

__all__ = ["AgentModelSummarizer", "WorkspaceMiddleware", "resumed_state"]
