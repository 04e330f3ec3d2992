"""The costs of requests: how much of each request a provider's prompt cache can reuse, at given prices. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from buoyline.messages.registry import detect
from buoyline.tokens import TextCounter
from buoyline.tokens.messages import count_message

__all__ = [
    "Cost",
    "Prices",
    "RequestCost",
    "Requests",
    "cost_of",
]

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
    and none behind it. Messages are the same if they are the same object, or equal; a change in place goes unnoticed.
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
