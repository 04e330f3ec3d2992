"""Replays of recorded conversations, and the costs of requests."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from buoyline.compression.compressor import legal_cut_before
from buoyline.errors import MessageError
from buoyline.messages import Message
from buoyline.messages.registry import detect
from buoyline.tokens import TextCounter
from buoyline.tokens.counter import count_message
from buoyline.window.events import ContextCompressed, Event, ResultOffloaded
from buoyline.window.window import ContextWindow

__all__ = ["Cost", "Prices", "Replay", "RequestCost", "Requests", "cost_of", "replay"]

_PER_TOKENS = 1_000_000


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of a million tokens, in any currency.

    None for input from the cache, or for input that is added to it: the price of other input.
    """

    input: float
    output: float
    cached: float | None = None
    cache_write: float | None = None


@dataclass(frozen=True, slots=True)
class RequestCost:
    """The input of a model call, with system prompt and tools, compared with the call before.

    The reused messages and tokens are those of the common beginning: a prompt cache can hold no more.
    """

    messages: int
    reused_messages: int
    tokens: int
    reused_tokens: int


class Requests:
    """Compares each request with the one before.

    A provider's prompt cache holds beginnings of requests: it can serve all messages before the first different one,
    and none after it. Messages are the same if they are the same object, or equal; a change in place goes unnoticed.
    """

    def __init__(self, counter: TextCounter) -> None:
        """Begin before the first request; *counter* counts each message once."""
        self._counter = counter
        self._messages: list[Any] = []
        self._tokens: list[int] = []
        self._is_first = True

    def note(self, messages: Sequence[Any], total_tokens: int | None = None) -> RequestCost:
        """Compare the messages of the next request, in the form that the provider gets.

        The part of *total_tokens* beyond the messages counts as system prompt and tools, which come first and never
        change. Default: the tokens of the messages.

        Raises:
            MessageError: One of *messages* is not a message.
        """
        shared = shared_prefix(self._messages, messages)
        known = {id(message): tokens for message, tokens in zip(self._messages, self._tokens, strict=True)}
        new: list[int] = []
        for message in messages[shared:]:
            tokens = known.get(id(message))
            new.append(count_message(detect(message).view(message), self._counter) if tokens is None else tokens)
        self._messages[shared:] = messages[shared:]
        self._tokens[shared:] = new
        sent = sum(self._tokens)
        total = sent if total_tokens is None else total_tokens
        before = 0 if self._is_first else max(total - sent, 0)
        self._is_first = False
        return RequestCost(len(messages), shared, total, min(before + sum(self._tokens[:shared]), total))


def shared_prefix(previous: Sequence[Any], messages: Sequence[Any]) -> int:
    """Return the number of messages, the same or equal ones, that both begin with."""
    pairs = enumerate(zip(previous, messages, strict=False))
    ends = min(len(previous), len(messages))
    return next((place for place, (one, other) in pairs if one is not other and one != other), ends)


def appended(tokens: Sequence[int]) -> list[RequestCost]:
    """Return the requests of a context that only grows, given the tokens of each: the next one reuses all of it.

    Their number of messages is 0, since it is not known.
    """
    return [RequestCost(0, 0, now, min(before, now)) for before, now in zip([0, *tokens], tokens, strict=False)]


@dataclass(frozen=True, slots=True)
class Cost:
    """The tokens of requests and their answers, and the amount in the currency of the prices."""

    input_tokens: int
    cached_tokens: int
    output_tokens: int
    amount: float


def cost_of(requests: Iterable[RequestCost], output_tokens: int, prices: Prices) -> Cost:
    """Return the cost of *requests* whose answers take *output_tokens* together.

    It assumes that the cache serves every reusable beginning, however old or small. Steps in a provider's prices, e.g.
    for long contexts, are not modelled.
    """
    priced = list(requests)
    cached = sum(request.reused_tokens for request in priced)
    fresh = sum(request.tokens for request in priced) - cached
    fresh_price = prices.input if prices.cache_write is None else prices.cache_write
    cached_price = prices.input if prices.cached is None else prices.cached
    amount = (fresh * fresh_price + cached * cached_price + output_tokens * prices.output) / _PER_TOKENS
    return Cost(fresh, cached, output_tokens, amount)


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
