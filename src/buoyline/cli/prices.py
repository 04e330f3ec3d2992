"""The prices of tokens on a command line, and what a replay would have cost at them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from textwrap import wrap
from typing import Any, TypeVar

import click

from buoyline.errors import ConfigError, MessageError
from buoyline.messages import is_object, parse
from buoyline.window.costs import Prices, Request, cost_of

F = TypeVar("F", bound=Callable[..., Any])

_WIDTH = 80
_LEAST_SHARE = 0.005
"""Less than this shows as 0 %."""

_OPTIONS: Mapping[str, str] = {
    "input": "Price of a million tokens of input.",
    "cached": "The same, read from the provider's prompt cache.  [default: as any input]",
    "cache_write": "The same, kept in that cache.  [default: as any input]",
    "output": "Price of a million tokens of output.",
}


def price_options(function: F) -> F:
    """Add ``--prices`` and ``--price-…``."""
    for name, words in reversed(list(_OPTIONS.items())):
        flag = f"--price-{name.replace('_', '-')}"
        function = click.option(flag, type=click.FloatRange(min=0), metavar="AMOUNT", help=words)(function)
    return click.option(
        "--prices",
        "price_table",
        metavar="FILE.json",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help='Prices of a million tokens, such as {"input": 3, "cached": 0.3, "output": 15}.',
    )(function)


def prices_in(options: Mapping[str, Any]) -> Prices | None:
    """Return the prices among the *options* of a command, those of the file first; None where there are none.

    Raises:
        ConfigError: They are no prices, or input or output has none.
    """
    path: Path | None = options["price_table"]
    given = {name: options[f"price_{name}"] for name in _OPTIONS if options[f"price_{name}"] is not None}
    if path is None and not given:
        return None
    try:
        table: object = {} if path is None else parse(path.read_bytes())
    except (MessageError, OSError) as error:
        raise ConfigError("prices", f"{path}: {error}") from error
    return Prices.of({**table, **given} if is_object(table) else table)


def costs(
    requests: Sequence[Request], unmanaged: Sequence[Request], output_tokens: int, prices: Prices | None
) -> dict[str, Any] | None:
    """Return what a session cost with and without buoyline, for a report; None without prices."""
    if prices is None:
        return None
    managed, otherwise = (asdict(cost_of(each, output_tokens, prices)) for each in (requests, unmanaged))
    return {"prices": asdict(prices), "managed": managed, "unmanaged": otherwise}


def costs_in_words(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the sentences of a report about the prompt cache, and about costs if there are prices."""
    share = report["reusable_tokens"] / max(report["sent_tokens"], 1)
    share_without = report["reusable_tokens_unmanaged"] / max(report["sent_tokens_unmanaged"], 1)
    yield f"A provider's prompt cache can serve {share:.0%} of these (without buoyline {share_without:.0%})."
    if (found := report["cost"]) is None:
        yield "For costs, give prices: --price-input and --price-output, or --prices FILE.json."
        return
    amount, without = found["managed"]["amount"], found["unmanaged"]["amount"]
    prices = ", ".join(f"{name} {price:g}" for name, price in found["prices"].items() if price is not None)
    costs = f"It costs {compared(amount, without)}: {amount:,.4f}, not {without:,.4f} (a million tokens: {prices})."
    yield from wrap(costs, _WIDTH)


def assumptions_in_words(report: Mapping[str, Any]) -> list[str]:
    """Return what the costs in a report rest on, in lines; none without costs."""
    if report["cost"] is None:
        return []
    assumed = (
        "Assumed for the costs: the cache is never too old or too small; the output is that of the recording, "
        f"{report['output_tokens']:,} tokens, with and without; a request over the window "
        f"({report['exceeding_steps_unmanaged']:,} without buoyline) costs what it takes, though it would be refused."
    )
    return wrap(assumed, _WIDTH)


def compared(now: float, before: float, what: str = "") -> str:
    """Return how much less or more *now* is than *before*, in percent.

    >>> compared(11, 100, "tokens"), compared(7, 5), compared(1, 1)
    ('89% fewer tokens', '40% more', 'as much')
    """
    share = abs(1 - now / before) if before else 0
    if share < _LEAST_SHARE:
        return f"as many {what}" if what else "as much"
    less = "fewer" if what else "less"
    return f"{share:.0%} {less if now < before else 'more'} {what}".strip()
