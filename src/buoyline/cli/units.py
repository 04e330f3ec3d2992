"""Times and sizes as people write them on a command line: ``30d``, ``10GB``."""

import re
from collections.abc import Mapping
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
