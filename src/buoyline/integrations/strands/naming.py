"""Which session of a workspace belongs to a Strands agent."""

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from strands import Agent

_DEFAULT_AGENT: Final = "default"
_BETWEEN: Final = "--"
_FIRST_OR_REPEATED_DASH = re.compile(r"~|(?<![^-])-")


def session_of(agent: "Agent", session_id: str | None = None) -> str:
    """Return the session that *agent* writes to: its own where none is named, so that no two agents share one.

    Args:
        agent: Its ``session_id`` is that of its session manager; without one, Strands draws one for each object.
        session_id: Named by the user.
    """
    return session_named(agent.session_id, agent.agent_id) if session_id is None else session_id


def session_named(session_id: str, agent_id: str) -> str:
    """Return the session of one agent in a session of Strands'; no two pairs have the same.

    The agent that Strands calls ``default`` has the session itself, any other one its name behind it. Where the last
    ``--`` stands, the agent begins: so a session that has one itself names its default agent, too, and an agent that
    begins with a dash, or has several in a row, gets ``~`` before them.

    >>> session_named("release-7", "default"), session_named("release-7", "writer")
    ('release-7', 'release-7--writer')
    """
    if agent_id == _DEFAULT_AGENT and _BETWEEN not in session_id:
        return session_id
    return session_id + _BETWEEN + _FIRST_OR_REPEATED_DASH.sub(r"~\g<0>", agent_id)
