"""Going on with a session that another framework has begun, or another process of AgentScope."""

from collections.abc import Iterator

from agentscope.message import Msg
from agentscope.state import AgentState

from buoyline.integrations.agentscope.archived import Again, Note, note
from buoyline.offloader import Offloader
from buoyline.window.handover import hand_over
from buoyline.window.keeping import PIN, SUMMARY


async def resumed_state(workspace: Offloader, session_id: str) -> AgentState:
    """Return the state of an agent that goes on with the session: its summary, and the messages behind it as `Msg`.

    What has no place in AgentScope's messages is logged. What is archived and stands again, such as pins, stands before
    the messages, and is not archived again.

    Args:
        workspace: The one that the session was kept in.
        session_id: The session.

    Raises:
        BuoylineError: See `buoyline.ContextWindow.resume`.
    """
    found = await hand_over(workspace, session_id, "agentscope")
    pins = iter([index for index, _ in found.pins])
    head = [_again(kind, native, pins) for kind, native in found.head if kind != SUMMARY]
    summary = "" if found.summary is None else found.summary.text
    context = [*(again.message for again in head), *found.messages]
    state = AgentState(session_id=session_id, summary=summary, context=context)
    note(state, Note(found.first, head))
    return state


def _again(kind: str, native: Msg, pins: Iterator[int]) -> Again:
    if kind == PIN:
        return Again(native, next(pins), pinned=True)
    return Again(native, int(kind.partition(":")[2] or -1))
