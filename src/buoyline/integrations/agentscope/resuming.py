"""Going on with a session that another framework has begun, or another process of AgentScope."""

from agentscope.state import AgentState

from buoyline.integrations.agentscope.archived import Again, Note, note
from buoyline.offloader import Offloader
from buoyline.window.handover import hand_over


async def resumed_state(workspace: Offloader, session_id: str) -> AgentState:
    """Return the state of an agent that goes on with the session: its summary, and the messages behind it as `Msg`.

    What has no place in AgentScope's messages is logged. A pinned message that is archived stands at the head, and is
    not archived again.

    Args:
        workspace: The one that the session was kept in.
        session_id: The session.

    Raises:
        BuoylineError: See `buoyline.ContextWindow.resume`.
    """
    found = await hand_over(workspace, session_id, "agentscope")
    summary = "" if found.summary is None else found.summary.text
    context = [*(pin for _, pin in found.pins), *found.messages]
    state = AgentState(session_id=session_id, summary=summary, context=context)
    note(state, Note(found.first, [Again(pin, index, pinned=True) for index, pin in found.pins]))
    return state
