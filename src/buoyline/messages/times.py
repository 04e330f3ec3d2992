"""Times in records and in the headings of the transcript."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

_KEYS: Final = ("timestamp", "created_at")
_MAX_CHARS: Final = 40
_FIRST_YEAR: Final = 1971
"""Earlier times are ignored: a converted message has 1970-01-01T00:00:00 in place of an unknown time."""

_SECONDS: Final = range(946_684_800, 4_102_444_800)
"""From 2000 to 2099. A time in milliseconds is a thousand times as large, so the two cannot be confused."""


def now() -> str:
    """Return the current time as records and headings spell it: ISO 8601, UTC, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def time_of(value: Mapping[str, Any]) -> str:
    """Return the time of a message by its own JSON *value*; empty if it has none.

    AgentScope's messages have ``created_at``. Other dialects have no such field, but many agents add a ``timestamp``.
    """
    return next(filter(None, (time_from(value.get(key)) for key in _KEYS)), "")


def time_from(value: object) -> str:
    """Return a time in one form: ISO 8601 with milliseconds, in UTC if *value* has a time zone.

    *value* is ISO 8601 with a time of day, or seconds or milliseconds since the epoch; any other value gives ``""``. A
    time without a time zone is not converted: its zone is unknown.
    """
    try:
        if isinstance(value, str):
            # A date alone is no time, and fromisoformat would make midnight of it.
            found = datetime.fromisoformat(value) if ":" in value and len(value) <= _MAX_CHARS else None
        elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            seconds = value if int(value) in _SECONDS else value / 1000
            found = datetime.fromtimestamp(seconds, UTC) if int(seconds) in _SECONDS else None
        else:
            found = None
        if found is not None and found.tzinfo is not None:
            found = found.astimezone(UTC)
    except (ValueError, OverflowError):
        return ""
    if found is None or found.year < _FIRST_YEAR:
        return ""
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")
