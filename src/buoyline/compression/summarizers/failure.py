"""Why there is no answer, in words that decide what to do about it.

Pure.
"""

from enum import Enum, auto


class Kind(Enum):
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

    def __init__(self, kind: Kind, reason: str, retry_after_s: float | None = None) -> None:
        """Keep what went wrong, in which words, and how many seconds the provider asked to wait, if it said."""
        super().__init__(kind, reason, retry_after_s)
        self.kind = kind
        self.reason = reason
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        """Return the reason."""
        return self.reason
