"""buoyline in AgentScope: the middleware, a summarizer that asks the agent's model, and the tools of an agent.

`LocalWorkspace` is an offloader for AgentScope without this package: docs/agentscope.md. Nothing here decides what is
compacted; `buoyline.window` does.
"""

try:
    from buoyline.integrations.agentscope.middleware import WorkspaceMiddleware
    from buoyline.integrations.agentscope.summarizer import AgentModelSummarizer
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "agentscope":
        raise
    raise ModuleNotFoundError(
        "buoyline.integrations.agentscope needs the extra 'agentscope'", name=error.name
    ) from None

__all__ = ["AgentModelSummarizer", "WorkspaceMiddleware"]
