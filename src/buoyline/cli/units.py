"""Times and sizes as people write and read them on a command line: ``30d``, ``10GB``, ``5 min ago``."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType

import click

_QUANTITY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?([A-Za-z]{0,3})", re.ASCII)

_SECONDS: Mapping[str, float] = MappingProxyType(
    {"": 1, "s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400, "y": 365 * 86_400}
)
_BYTES: Mapping[str, float] = MappingProxyType(
    {
        "": 1,
        "b": 1,
        **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
        **{letter: 1000**power for power, letter in enumerate("kmgt", 1)},
        **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
    }
)


_LONGEST_FIRST = (("day", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def duration_in_words(seconds: float) -> str:
    """Return a time in the largest unit that it fills, e.g. ``5 min`` or ``30 days``."""
    name, unit = next((each for each in _LONGEST_FIRST if seconds >= each[1]), _LONGEST_FIRST[-1])
    count = int(seconds // unit)
    return f"{count:,} {name}s" if name == "day" and count != 1 else f"{count:,} {name}"


def local_time(time: str) -> str:
    """Return an ISO 8601 time as this machine's time to the second; anything else as it is."""
    moment = _moment(time)
    return time if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}"


def how_long_ago(time: str, now: datetime | None = None) -> str:
    """Return an ISO 8601 time as ``5 min ago``; one in the future, and anything else, as `local_time` does."""
    moment = _moment(time)
    if moment is None or (seconds := ((now or datetime.now(UTC)) - moment).total_seconds()) < 0:
        return local_time(time)
    return f"{duration_in_words(seconds)} ago"


def _moment(time: str) -> datetime | None:
    try:
        return datetime.fromisoformat(time).astimezone()
    except ValueError:
        return None


class Duration(click.ParamType[float]):
    """A time such as ``30d``, ``24h``, ``90m`` or ``0``, in seconds; without a unit these are meant."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds, or fail in words."""
        if isinstance(value, float | int):
            return float(value)
        found = _quantity(str(value), _SECONDS)
        return self.fail(f"{value!r} is no time such as 30d, 24h, 90m or 0", param, ctx) if found is None else found


class Size(click.ParamType[int]):
    """A size such as ``10GB``, ``500MiB`` or ``0``, in bytes; without a unit these are meant."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the bytes, or fail in words."""
        found = float(value) if isinstance(value, int) else _quantity(str(value), _BYTES)
        return self.fail(f"{value!r} is no size such as 10GB or 500MiB", param, ctx) if found is None else int(found)


def _quantity(text: str, units: Mapping[str, float]) -> float | None:
    match = _QUANTITY.fullmatch(text.strip())
    unit = units.get(match[2].lower()) if match else None
    return float(match[1]) * unit if match and unit is not None else None
