"""buoyline in AgentScope: the offloader, the middleware and the tools of an agent."""
