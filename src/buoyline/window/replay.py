"""Feeding a recorded conversation through a window, as it would have gone live."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from buoyline.compression import legal_cut_before
from buoyline.errors import MessageError
from buoyline.messages import Message, detect
from buoyline.tokens import TextCounter
from buoyline.tokens.messages import count_message
from buoyline.window.events import ContextCompressed, Event, ResultOffloaded
from buoyline.window.window import ContextWindow


@dataclass(slots=True)
class Replay:
    """What happened in a replay.

    Attributes:
        messages: How many messages were fed.
        step_tokens: What the context took at each model call, the last one being the call after all messages.
        unmanaged_tokens: What it would have taken there without buoyline.
        offloaded: Every result that was offloaded, in order.
        compressions: Every compression, in order.
        exceeding: Session index and tokens of each message that alone exceeds the window.
    """

    messages: int = 0
    step_tokens: list[int] = field(default_factory=list)
    unmanaged_tokens: list[int] = field(default_factory=list)
    offloaded: list[ResultOffloaded] = field(default_factory=list)
    compressions: list[ContextCompressed] = field(default_factory=list)
    exceeding: dict[int, int] = field(default_factory=dict)

    def record(self, event: Event) -> None:
        """Take note of an event; give this method to the window as its ``on_event``."""
        if isinstance(event, ResultOffloaded):
            self.offloaded.append(event)
        else:
            self.compressions.append(event)


async def replay(
    conversation: Sequence[Any],
    window: ContextWindow,
    seen: Replay,
    *,
    counter: TextCounter,
    compress_at: Sequence[int] = (),
    on_message: Callable[[int], None] | None = None,
) -> None:
    """Feed *conversation* to *window*: a model call stands before each assistant message, and one at the end.

    Args:
        conversation: Native messages in order.
        window: A new window whose ``on_event`` is ``seen.record``.
        seen: Takes what happens.
        counter: Counts what the conversation takes unmanaged.
        compress_at: Positions before which everything leaves the context, moved back where that would part a
            call from its result.
        on_message: Told the position of each message after it was fed.

    Raises:
        MessageError: A message is none; nothing was written.
        ContextOverflowError: The window is smaller than the system prompt; nothing was written.
    """
    views = [_view(message, position) for position, message in enumerate(conversation)]
    unmanaged = 0
    for position, (message, view) in enumerate(zip(conversation, views, strict=True)):
        if position in compress_at:
            await window.compress(before=legal_cut_before(views, position))
        if view.role == "assistant":
            await _step(window, seen, unmanaged)
        await window.add(message)
        unmanaged += count_message(view, counter)
        seen.messages += 1
        if on_message is not None:
            on_message(position)
    await _step(window, seen, unmanaged)


async def _step(window: ContextWindow, seen: Replay, unmanaged: int) -> None:
    await window.prepare()
    seen.step_tokens.append(window.tokens)
    seen.unmanaged_tokens.append(unmanaged)
    seen.exceeding.update(window.exceeding())


def _view(message: object, position: int) -> Message:

    try:
        return detect(message).view(message)
    except MessageError as error:
        raise error.at(position) from error
