"""Which session of a workspace belongs to a Strands agent."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strands import Agent

_DEFAULT_AGENT = "default"


def session_of(agent: "Agent", session_id: str | None = None) -> str:
    """Return the session that *agent* writes to: its own where none is named, so that no two agents share one.

    Args:
        agent: Its ``session_id`` is that of its session manager; without one, Strands draws one for each object.
        session_id: Named by the user.
    """
    if session_id is not None:
        return session_id
    return agent.session_id if agent.agent_id == _DEFAULT_AGENT else f"{agent.session_id}-{agent.agent_id}"
