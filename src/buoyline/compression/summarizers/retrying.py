"""How often, and how long, a summariser is asked again.

Pure: decides, and waits for nobody.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from buoyline.compression.summarizers.failure import Failure, Kind
from buoyline.errors import ConfigError

_REPAIRS: Final[Mapping[Kind, int]] = MappingProxyType(
    {
        Kind.EMPTY: 1,
        Kind.REFUSED: 1,
        Kind.MALFORMED: 1,
        Kind.TRUNCATED: 1,
        Kind.INFLATED: 1,
        Kind.REJECTED: 1,
        Kind.HOPELESS: 0,
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
    seen: Counter[Kind] = field(default_factory=Counter[Kind])

    def wait_s(self, failure: Failure) -> float | None:
        """Count *failure* and return how many seconds to wait before asking again; None where it is given up."""
        self.made += 1
        self.seen[failure.kind] += 1
        if self.made >= self.bounds.max_attempts or self.seen[failure.kind] > _REPAIRS.get(failure.kind, self.made):
            return None
        if failure.retry_after_s is not None:
            return failure.retry_after_s if failure.retry_after_s <= self.bounds.max_wait_s else None
        if failure.kind is not Kind.BUSY:
            return 0.0
        return min(self.bounds.first_wait_s * 2.0 ** (self.seen[Kind.BUSY] - 1), self.bounds.max_wait_s)
