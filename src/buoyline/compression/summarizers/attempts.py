"""How often, and how long, a summariser is asked again.

Pure: decides, and waits for nobody.
"""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType
from typing import Final

from buoyline.compression.summary import Draft
from buoyline.errors import ConfigError, SummaryError
from buoyline.tokens import TextCounter

# Why there is no answer, in words that decide what to do about it.
#
# Pure.


class FailureKind(Enum):
    """What went wrong, by what helps."""

    BUSY = auto()
    """Too many requests, a server's error, no connection, no answer in time: ask again later."""

    OVERFLOW = auto()
    """The request is too large for the model: ask again with less."""

    REJECTED = auto()
    """The request is not understood as it is formed: ask in a plainer form."""

    HOPELESS = auto()
    """No key, no such model, no credit: nothing helps."""

    EMPTY = auto()
    """The model said nothing."""

    REFUSED = auto()
    """The model, or a filter, would not answer."""

    MALFORMED = auto()
    """The answer is not of the schema: show what is wrong and ask again."""

    TRUNCATED = auto()
    """The answer was cut off: ask for a shorter one."""

    INFLATED = auto()
    """The answer is longer than allowed, or than what it sums up: ask for a shorter one."""


class Failure(Exception):  # noqa: N818 - never leaves this package: `SummaryError` says it to callers
    """There is no answer that can be used."""

    def __init__(self, kind: FailureKind, reason: str, retry_after_s: float | None = None) -> None:
        """Keep what went wrong, in which words, and how many seconds the provider asked to wait, if it said."""
        super().__init__(kind, reason, retry_after_s)
        self.kind = kind
        self.reason = reason
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        """Return the reason."""
        return self.reason


_REPAIRS: Final[Mapping[FailureKind, int]] = MappingProxyType(
    {
        FailureKind.EMPTY: 1,
        FailureKind.REFUSED: 1,
        FailureKind.MALFORMED: 1,
        FailureKind.TRUNCATED: 1,
        FailureKind.INFLATED: 1,
        FailureKind.REJECTED: 1,
        FailureKind.HOPELESS: 0,
    }
)
"""So many times each is worth another request; what is busy or overflows is bounded by the attempts alone."""


OVERFLOW_SHRINK: Final = 0.6
"""The next request's share of one that was too large."""

SHORTER: Final = 0.7
"""Of the tokens allowed that are asked for after an answer that took too many."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Retries:
    """Bounds for asking again.

    Attributes:
        max_attempts: Requests in all, the first one included; at least 1.
        timeout_s: Seconds for one request; above 0.
        first_wait_s: Seconds before the second request to a provider that is busy; doubled each time.
        max_wait_s: Seconds to wait at most. A provider that asks for more is not waited for.

    Raises:
        ConfigError: A value cannot work.
    """

    max_attempts: int = 4
    timeout_s: float = 120.0
    first_wait_s: float = 1.0
    max_wait_s: float = 30.0

    def __post_init__(self) -> None:
        """Check every value."""
        if not self.max_attempts >= 1:
            raise ConfigError("max_attempts", f"{self.max_attempts!r} is below 1")
        if not self.timeout_s > 0:
            raise ConfigError("timeout_s", f"{self.timeout_s!r} is not above 0")
        for name, seconds in (("first_wait_s", self.first_wait_s), ("max_wait_s", self.max_wait_s)):
            if not seconds >= 0:
                raise ConfigError(name, f"{seconds!r} is below 0")


@dataclass(slots=True)
class Attempts:
    """The requests made so far for one summary."""

    bounds: Retries
    made: int = 0
    seen: Counter[FailureKind] = field(default_factory=Counter[FailureKind])

    def wait_s(self, failure: Failure) -> float | None:
        """Count *failure* and return how many seconds to wait before asking again; None where it is given up."""
        self.made += 1
        self.seen[failure.kind] += 1
        if self.made >= self.bounds.max_attempts or self.seen[failure.kind] > _REPAIRS.get(failure.kind, self.made):
            return None
        if failure.retry_after_s is not None:
            return failure.retry_after_s if failure.retry_after_s <= self.bounds.max_wait_s else None
        if failure.kind is not FailureKind.BUSY:
            return 0.0
        return min(self.bounds.first_wait_s * 2.0 ** (self.seen[FailureKind.BUSY] - 1), self.bounds.max_wait_s)


# Asking again after a failure, for every summariser that asks somebody.


logger = logging.getLogger(__name__)


async def repeated(ask_once: Callable[[], Awaitable[Draft]], *, name: str, retries: Retries) -> Draft:
    """Ask until there is a draft, as often as that may help and *retries* allow.

    Args:
        ask_once: Gives the draft, or raises a `Failure`, whose kind says whether to ask again and after how long.
        name: Who is asked.
        retries: The bounds.

    Raises:
        SummaryError: There was no draft within the bounds; it says why, and how often was asked.
    """
    attempts = Attempts(retries)
    while True:
        try:
            return await ask_once()
        except Failure as failure:
            wait_s = attempts.wait_s(failure)
            if wait_s is None:
                times = "once" if attempts.made == 1 else f"{attempts.made} times"
                raise SummaryError(name, f"{failure}; asked {times}") from failure
            logger.info("summary by %s: %s; asked again in %.1f s", name, failure, wait_s)
            await asyncio.sleep(wait_s)


# Bring the fields of a summary within their tokens by taking out whole lines and sentences, the last ones first.
#
# Pure. For a model that was asked twice and still writes too much: what it wrote first is what it held most needed.


_SENTENCE_END = re.compile(r"(?<=[.!?\])])\s+|(?<=[\u3002\uff01\uff1f])")
_SHRINK = 0.9
_MAX_TRIES = 30


def total(fields: Mapping[str, str], counter: TextCounter) -> int:
    """Count the tokens of all fields as they are shown, one below the other."""
    return counter.count("\n".join(fields.values()))


def shortened(fields: Mapping[str, str], max_tokens: int, counter: TextCounter) -> dict[str, str]:
    """Return *fields* within *max_tokens* together, each cut by as much as it exceeds what the shorter ones leave.

    Returns:
        The same fields; each keeps its beginning, up to the end of a sentence where one is near.
    """
    found = dict(fields)
    room: float = max_tokens
    for _ in range(_MAX_TRIES):
        if total(found, counter) <= max_tokens:
            return found
        cap = _cap([counter.count(text) for text in fields.values()], room)
        found = {name: _cut(text, cap, counter) for name, text in fields.items()}
        room *= _SHRINK
    return dict.fromkeys(fields, "") if total(found, counter) > max_tokens else found


def _cap(counts: list[int], room: float) -> int:
    """Return the most that one field may take so that all go into *room*."""
    waiting = sorted(counts)
    for position, count in enumerate(waiting):
        share = room / (len(waiting) - position)
        if count > share:
            return max(int(share), 0)
        room -= count
    return max(counts, default=0)


def _cut(text: str, max_tokens: int, counter: TextCounter) -> str:
    if not counter.exceeds(text, max_tokens):
        return text
    head = counter.head(text, max_tokens)
    ends = [match.start() for match in _SENTENCE_END.finditer(head)]
    ends += [position for position, char in enumerate(head) if char == "\n"]
    end = max(ends, default=0)
    return head[:end].rstrip() if end * 2 > len(head) else head[: max(head.rfind(" "), 0)].rstrip() or head.rstrip()
