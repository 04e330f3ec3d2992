"""buoyline in AgentScope: the middleware, a summarizer that asks the agent's model, and the tools of an agent.

`LocalWorkspace` is an offloader for AgentScope without this package: docs/agentscope.md. Nothing here decides what is
compacted; `buoyline.window` does.
"""

from buoyline.errors import MissingExtraError

try:
    from buoyline.integrations.agentscope.middleware import WorkspaceMiddleware
    from buoyline.integrations.agentscope.state import AgentModelSummarizer
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "agentscope":
        raise
    raise MissingExtraError("agentscope", "agentscope") from None

__all__ = ["AgentModelSummarizer", "WorkspaceMiddleware"]
