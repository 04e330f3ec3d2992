"""Handing a session's context over to a framework that keeps its messages itself."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from buoyline.compression import Summary
from buoyline.errors import NotFoundError
from buoyline.messages import Converted, Loss, convert, dialect_named
from buoyline.offloader import Abilities, Offloader, WindowState, abilities_of
from buoyline.window.keeping import PIN
from buoyline.window.restoring import load_summaries
from buoyline.window.window import ContextWindow

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Handover:
    """What stands in a session's context, in the dialect of whoever goes on with it.

    Attributes:
        first: Session index of the first of *messages*: so many are archived.
        pins: Copies of archived messages that stay in the context, each with its session index.
        summary: Stands for the archived messages; None before the first.
        messages: The others, in order.
        head: All that stands before *messages* but system messages, in order, each with its kind; see
            `buoyline.window.adopting.HeldContext`.
        system: What system messages say that have no place among *messages*.
        losses: What has no place in the dialect; numbered within *head* and *messages* together.
    """

    first: int
    pins: Sequence[tuple[int, Any]]
    summary: Summary | None
    messages: Sequence[Any]
    head: Sequence[tuple[str, Any]]
    system: str
    losses: Sequence[Loss]


async def hand_over(offloader: Offloader, session_id: str, dialect: str) -> Handover:
    """Take the session over, and return its context for somebody else to go on with.

    The archive stays as it was written. A compression that another process has begun is ended, without a model. Losses
    are logged.

    Args:
        offloader: The one that the session was kept by.
        session_id: The session.
        dialect: Name of the form that is wanted, e.g. ``"bedrock"``.

    Raises:
        BuoylineError: See `ContextWindow.resume`.
    """
    abilities = abilities_of(offloader)
    window = await ContextWindow.resume(offloader, session_id)
    state = await _settled(window, abilities)
    natives = [dialect_named(named).from_json(value) for named, value in state.messages]
    names = [named for named, _ in state.messages]
    standing = [place for place, kind in enumerate(state.head) if kind != "system"]
    head = [(state.head[place], convert([natives[place]], to=dialect, from_=names[place])) for place in standing]
    pins = [found for kind, found in head if kind == PIN]
    archived_pins = [index for index in state.pins if index < state.first]
    rest = convert(natives[len(state.head) :], to=dialect, from_=names[len(state.head) :])
    systems = [
        dialect_named(names[place]).view(natives[place]).text
        for place, kind in enumerate(state.head)
        if kind == "system"
    ]
    summaries = await load_summaries(abilities, session_id) if "summary" in state.head else []
    handover = Handover(
        first=state.first,
        pins=[(index, pin.messages[0]) for index, pin in zip(archived_pins, pins, strict=True) if pin.messages],
        summary=summaries[-1] if summaries else None,
        messages=rest.messages,
        head=[(kind, found.messages[0]) for kind, found in head if found.messages],
        system="\n\n".join(text for text in [*systems, rest.system] if text),
        losses=_losses([*(found for _, found in head), rest]),
    )
    for loss in handover.losses:
        logger.info("session %s: %s", session_id, loss)
    if handover.losses:
        count = len(handover.losses)
        logger.warning("session %s: %d things have no place in %s, logged as information", session_id, count, dialect)
    return handover


async def _settled(window: ContextWindow, abilities: Abilities) -> WindowState:
    """Return what stands in *window* on disk, where nothing of it is archived."""
    if abilities.windows is None:
        raise NotFoundError("window in session", window.session_id, "only a workspace keeps what a window needs")
    state = await abilities.windows.load_window(window.session_id)
    if state.archived > state.first:
        await window.compress(before=state.archived)
        state = await abilities.windows.load_window(window.session_id)
    return state


def _losses(converted: Sequence[Converted]) -> list[Loss]:
    return [
        Loss(loss.message + place, loss.what, loss.why) for place, one in enumerate(converted) for loss in one.losses
    ]
