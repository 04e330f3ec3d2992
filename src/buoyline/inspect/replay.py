"""Feeds a recorded conversation to a window, as a live agent would."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from buoyline.compression.plan import legal_cut_before
from buoyline.errors import MessageError
from buoyline.inspect.costs import RequestCost, Requests
from buoyline.messages import Message
from buoyline.messages.registry import detect
from buoyline.tokens import TextCounter
from buoyline.tokens.messages import count_message
from buoyline.window.events import ContextCompressed, Event, ResultOffloaded
from buoyline.window.window import ContextWindow


@dataclass(slots=True)
class Replay:
    """The results of a replay.

    Attributes:
        step_tokens: Of the context at each model call.
        unmanaged_tokens: Of the context at each model call without buoyline.
        exceeding: Session index and tokens of each message that alone exceeds the window.
        requests: What a prompt cache could reuse of each model call's input.
        output_tokens: Of all recorded answers.
    """

    messages: int = 0
    step_tokens: list[int] = field(default_factory=list)
    unmanaged_tokens: list[int] = field(default_factory=list)
    offloaded: list[ResultOffloaded] = field(default_factory=list)
    compressions: list[ContextCompressed] = field(default_factory=list)
    exceeding: dict[int, int] = field(default_factory=dict)
    requests: list[RequestCost] = field(default_factory=list)
    output_tokens: int = 0

    @property
    def saved_tokens(self) -> int:
        """The tokens of all offloaded results, less those of their stubs."""
        return sum(event.tokens - event.stub_tokens for event in self.offloaded)

    def record(self, event: Event) -> None:
        """Record an event; pass this method to the window as ``on_event``."""
        if isinstance(event, ResultOffloaded):
            self.offloaded.append(event)
        elif isinstance(event, ContextCompressed):
            self.compressions.append(event)


async def replay(
    conversation: Sequence[Any],
    window: ContextWindow,
    seen: Replay,
    *,
    counter: TextCounter,
    times: Sequence[str] = (),
    compress_at: Sequence[int] = (),
    on_message: Callable[[int], None] | None = None,
) -> None:
    """Feed *conversation* to *window*: a model call comes before each assistant message.

    One more comes at the end if the conversation does not end with the model.

    Args:
        conversation: Native messages in order.
        window: A new window whose ``on_event`` is ``seen.record``.
        seen: Takes the results.
        counter: Counts the conversation without buoyline, and its answers; best the window's own.
        times: When each message was recorded; default: its own time, else now.
        compress_at: Positions before which all messages are compacted, moved back if a cut would separate a call from
            its result.
        on_message: Called with the position of each message after it was fed.

    Raises:
        MessageError: A message is not valid; nothing was written.
        ContextOverflowError: The window is smaller than the system prompt; nothing was written.
    """
    views = [_view(message, position) for position, message in enumerate(conversation)]
    unmanaged, requests = 0, Requests(counter)
    for position, (message, view) in enumerate(zip(conversation, views, strict=True)):
        if position in compress_at:
            await window.compress(before=legal_cut_before(views, position))
        if view.role == "assistant":
            await _step(window, seen, unmanaged, requests)
        await window.add(message, time=times[position] if times and times[position] else None)
        tokens = count_message(view, counter)
        unmanaged += tokens
        seen.output_tokens += tokens if view.role == "assistant" else 0
        seen.messages += 1
        if on_message is not None:
            on_message(position)
    if not views or views[-1].role != "assistant":  # a request that the recording has no answer to
        await _step(window, seen, unmanaged, requests)


async def _step(window: ContextWindow, seen: Replay, unmanaged: int, requests: Requests) -> None:
    messages = await window.prepare()
    seen.requests.append(requests.note(messages, window.tokens))
    seen.step_tokens.append(window.tokens)
    seen.unmanaged_tokens.append(unmanaged)
    seen.exceeding.update(window.exceeding())


def _view(message: object, position: int) -> Message:
    try:
        return detect(message).view(message)
    except MessageError as error:
        raise error.at(position) from error
