"""How often, and for how long, a summarizer is asked again."""

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

# Why there is no answer. The kind decides the remedy.


class FailureKind(Enum):
    """What went wrong, by the remedy."""

    BUSY = auto()
    """Too many requests, a server error, no connection or no answer in time: ask again later."""

    OVERFLOW = auto()
    """The request is too large for the model: ask again with less."""

    REJECTED = auto()
    """The server does not accept the form of the request: ask in a plainer form."""

    HOPELESS = auto()
    """No key, no such model or no credit: nothing helps."""

    EMPTY = auto()
    """The model said nothing."""

    REFUSED = auto()
    """The model, or a filter, would not answer."""

    MALFORMED = auto()
    """The answer does not follow the schema: show what is wrong and ask again."""

    TRUNCATED = auto()
    """The answer was cut off: ask for a shorter one."""

    INFLATED = auto()
    """The answer is longer than allowed, or longer than its source: ask for a shorter one."""


class Failure(Exception):  # noqa: N818 - never leaves this package: `SummaryError` says it to callers
    """There is no usable answer."""

    def __init__(self, kind: FailureKind, reason: str, retry_after_s: float | None = None) -> None:
        """Keep the kind, the reason in words, and the seconds that the provider asked to wait, if it did."""
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
"""How many repeated requests each kind is worth; for busy and overflow only the attempts count."""


OVERFLOW_SHRINK: Final = 0.6
"""Size of the next request as a share of one that was too large."""

SHORTER: Final = 0.7
"""Share of the allowed tokens that is asked for after an answer that was too long."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Retries:
    """Bounds for asking again.

    Attributes:
        max_attempts: Requests in all, the first one included; at least 1.
        timeout_s: Of one request; above 0.
        first_wait_s: Before the second request to a busy provider; doubled each time.
        max_wait_s: Longest wait. If a provider asks for more, the summarizer gives up.

    Raises:
        ConfigError: A value cannot work.
    """

    max_attempts: int = 4
    timeout_s: float = 120.0
    first_wait_s: float = 1.0
    max_wait_s: float = 30.0

    def __post_init__(self) -> None:
        """Check every value."""
        for name in ("max_attempts", "timeout_s", "first_wait_s", "max_wait_s"):
            value: object = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ConfigError(name, f"{value!r} is no number")
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
        """Count *failure* and return the seconds to wait before the next request; None to give up."""
        self.made += 1
        self.seen[failure.kind] += 1
        if self.made >= self.bounds.max_attempts or self.seen[failure.kind] > _REPAIRS.get(failure.kind, self.made):
            return None
        if failure.retry_after_s is not None:
            return failure.retry_after_s if failure.retry_after_s <= self.bounds.max_wait_s else None
        if failure.kind is not FailureKind.BUSY:
            return 0.0
        return min(self.bounds.first_wait_s * 2.0 ** (self.seen[FailureKind.BUSY] - 1), self.bounds.max_wait_s)


# Repeated requests, for every summarizer that makes requests.


logger = logging.getLogger(__name__)


async def repeated(ask_once: Callable[[], Awaitable[Draft]], *, name: str, retries: Retries) -> Draft:
    """Ask until there is a draft, as often as another request may help and *retries* allow.

    The kind of a `Failure` that *ask_once* raises says if and when to ask again. *name* is the summarizer's.

    Raises:
        SummaryError: There was no draft within the bounds; it says why, and how many requests were made.
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


# Cut fields to their tokens by whole lines and sentences, from the end.
#
# For a model that was asked twice and still writes too much: it writes first what it holds most needed.


_SENTENCE_END = re.compile(r"(?<=[.!?\])])\s+|(?<=[\u3002\uff01\uff1f])")
_SHRINK = 0.9
_MAX_TRIES = 30


def total(fields: Mapping[str, str], counter: TextCounter) -> int:
    """Count the tokens of all fields, one below the other."""
    return counter.count("\n".join(fields.values()))


def shortened(fields: Mapping[str, str], max_tokens: int, counter: TextCounter) -> dict[str, str]:
    """Return *fields* within *max_tokens* together; the longest are cut first.

    Each keeps its beginning, up to the end of a sentence if one is near.
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
    """Return the largest limit of one field with which all fit *room*."""
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
