"""The prices of tokens on a command line, and what a replay would have cost at them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click

from buoyline.errors import ConfigError, MessageError
from buoyline.messages import is_object, parse
from buoyline.window.costs import Prices, Request, cost_of

F = TypeVar("F", bound=Callable[..., Any])

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
    """Yield the lines of a report about the prompt cache, and about costs where there are prices."""
    sent, reusable = report["sent_tokens"], report["reusable_tokens"]
    all_sent, all_reusable = report["sent_tokens_unmanaged"], report["reusable_tokens_unmanaged"]
    share, all_share = (part / max(whole, 1) for part, whole in ((reusable, sent), (all_reusable, all_sent)))
    yield f"reusable  {reusable:>12,} tokens sent ({share:.0%}), unmanaged {all_reusable:,} ({all_share:.0%})"
    if (found := report["cost"]) is None:
        return
    amount, otherwise = found["managed"]["amount"], found["unmanaged"]["amount"]
    less = f" ({1 - amount / otherwise:.0%} less)" if otherwise else ""
    prices = ", ".join(f"{name} {price:g}" for name, price in found["prices"].items() if price is not None)
    yield f"cost      {amount:>12,.4f}, unmanaged {otherwise:,.4f}{less}, at {prices} a million tokens"
    yield (
        "  assumed: what is reusable comes from the cache, whatever its age and size; the output is that of the "
        f"recording, {report['output_tokens']:,} tokens, with and without; a request over the window "
        f"({report['exceeding_steps_unmanaged']:,} unmanaged) costs what it takes, though it would be refused"
    )
