"""The prices of a provider's tokens."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self, cast

from buoyline.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of a million tokens, in any currency.

    None for input from the cache, or for input that is added to it: the price of other input.
    """

    input: float
    output: float
    cached: float | None = None
    cache_write: float | None = None

    def __post_init__(self) -> None:
        """Check the prices.

        Raises:
            ConfigError: A price is not a number, or is negative or infinite.
        """
        for name, price in asdict(self).items():
            is_price = isinstance(price, int | float) and not isinstance(price, bool)
            if price is not None and not (is_price and math.isfinite(price) and price >= 0):
                raise ConfigError(f"price of {name}", f"{price!r} is not an amount of 0 or more for a million tokens")

    @classmethod
    def of(cls, table: object) -> Self:
        """Read a table such as ``{"input": 3, "cached": 0.3, "output": 15}``.

        Raises:
            ConfigError: It is not a table, lacks input or output, has other keys, or a value is not a price.
        """
        names = [field.name for field in fields(cls)]
        if not isinstance(table, Mapping):
            raise ConfigError("prices", f'{type(table).__name__} is not a table such as {{"input": 3, "output": 15}}')
        given = cast("Mapping[str, Any]", table)
        unknown = [str(name) for name in given if name not in names]
        missing = [name for name in ("input", "output") if given.get(name) is None]
        if unknown or missing:
            problem = f"has no {' and no '.join(missing)}" if missing else f"{unknown[0]!r} is unknown"
            raise ConfigError("prices", f"{problem}; the keys are {', '.join(names)}")
        return cls(**given)
