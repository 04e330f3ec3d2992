"""Which sessions a workspace need not keep any longer.

Pure policy: `sweeping` looks at the files and does it. Source: docs/format.md, "Retention".
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from buoyline.errors import ConfigError

_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class SessionUse:
    """What a policy knows of a session.

    Attributes:
        session_id: As the agent's framework gave it.
        last_active_ns: The newest time of change of its files, in nanoseconds since the epoch. The times in its
            records would not do: ``window.jsonl`` grows without a record. A copy that was made without the times is
            only kept for longer.
        size_bytes: Of all files in its directory.
        blobs: Hashes of the blobs that it refers to.
    """

    session_id: str
    last_active_ns: int
    size_bytes: int
    blobs: frozenset[str] = frozenset()

    @property
    def last_active(self) -> str:
        """When it was last active, ISO 8601 in UTC, in seconds."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.last_active_ns // _NS))


@dataclass(frozen=True, slots=True)
class Departure:
    """A session that is to go.

    Attributes:
        session: The one.
        reason: The limit that it does not meet: ``age``, ``count`` or ``bytes``, the first of them in this order.
    """

    session: SessionUse
    reason: str


@dataclass(frozen=True, slots=True)
class Retention:
    """Limits, of which each alone lets sessions go: one stays only where it meets them all.

    Without any limit every session stays. Sessions that are named in `kept` stay whatever the limits say, and count
    for them as all others do; so with many of them more may stay than a limit says.

    Attributes:
        max_age_s: Sessions that were last active longer ago go.
        max_sessions: Sessions that so many newer ones stand before go.
        max_bytes: The oldest go until those that are left take no more: their files, and the blobs that they refer to,
            each once. What no session refers to does not count, or it could drive all sessions out.
        kept: Session ids.
    """

    max_age_s: float | None = None
    max_sessions: int | None = None
    max_bytes: int | None = None
    kept: frozenset[str] = field(default_factory=frozenset[str])

    def __post_init__(self) -> None:
        """Refuse limits that cannot be meant.

        Raises:
            ConfigError: One of them is below 0, or no number.
        """
        limits = {"max_age_s": self.max_age_s, "max_sessions": self.max_sessions, "max_bytes": self.max_bytes}
        for name, limit in limits.items():
            if limit is not None and not limit >= 0:
                raise ConfigError(name, f"{limit!r} is not 0 or more; None sets no limit")

    def departures(
        self, sessions: Sequence[SessionUse], blob_bytes: Mapping[str, int], now_ns: int
    ) -> tuple[Departure, ...]:
        """Tell which of *sessions* go.

        Args:
            sessions: All there are, in any order.
            blob_bytes: Size of each blob, by its hash.
            now_ns: The time, in nanoseconds since the epoch.

        Returns:
            Those that go, the one that was last active the longest ago first; of equal age, by id.
        """
        newest_first = sorted(sessions, key=lambda s: (-s.last_active_ns, s.session_id))
        reasons: dict[str, str] = {}
        for place, session in enumerate(newest_first):
            if self._is_over_age(session, now_ns):
                reasons[session.session_id] = "age"
            elif self.max_sessions is not None and place >= self.max_sessions:
                reasons[session.session_id] = "count"
        going = {session_id: reason for session_id, reason in reasons.items() if session_id not in self.kept}
        staying = [session for session in newest_first if session.session_id not in going]
        going.update((session_id, "bytes") for session_id in self._over_bytes(staying, blob_bytes))
        return tuple(Departure(s, going[s.session_id]) for s in reversed(newest_first) if s.session_id in going)

    def _is_over_age(self, session: SessionUse, now_ns: int) -> bool:
        return self.max_age_s is not None and now_ns - session.last_active_ns > self.max_age_s * _NS

    def _over_bytes(self, newest_first: Sequence[SessionUse], blob_bytes: Mapping[str, int]) -> list[str]:
        if self.max_bytes is None:
            return []
        users = Counter(blob for session in newest_first for blob in session.blobs)
        total = taken_bytes(newest_first, blob_bytes)
        going: list[str] = []
        for session in reversed(newest_first):
            if total <= self.max_bytes:
                break
            if session.session_id not in self.kept:
                users.subtract(session.blobs)
                freed = sum(blob_bytes.get(blob, 0) for blob in session.blobs if not users[blob])
                total -= session.size_bytes + freed
                going.append(session.session_id)
        return going


def taken_bytes(sessions: Sequence[SessionUse], blob_bytes: Mapping[str, int]) -> int:
    """Return what *sessions* take together: their files, and the blobs that they refer to, each once."""
    blobs = frozenset[str]().union(*(session.blobs for session in sessions))
    return sum(session.size_bytes for session in sessions) + sum(blob_bytes.get(blob, 0) for blob in blobs)
