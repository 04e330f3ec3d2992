"""The limits at which a growing context costs least, from prices and growth. Pure; docs/costs.md has the derivation."""

import math
from typing import NamedTuple

from buoyline.tokens.usage import Prices

_KEPT_TURNS = 3
_LEAST_KEPT_TOKENS = 4_000


class Limits(NamedTuple):
    """The limits of a context, in tokens.

    If context and answer exceed *trigger* together, the context is compacted; then the newest messages may take *kept*.
    """

    trigger: float
    kept: float


def cheapest_limits(
    prices: Prices,
    growth_tokens: float,
    fixed_tokens: float,
    summary_tokens: float,
    reserve_tokens: float,
    *,
    asks_model: bool,
) -> Limits:
    """Return the limits at which all input of a session costs least.

    The newest messages keep three turns, and at least 4,000 tokens, or *reserve_tokens* if that is less. At least as
    many are added until the next compaction.

    Args:
        prices: Only their ratios count.
        growth_tokens: By which the context grows with each model call.
        fixed_tokens: Of what a compaction does not change, so that it stays in the prompt cache.
        summary_tokens: Of what follows them, and is written again like the kept messages.
        reserve_tokens: Enough for the newest messages in a small window.
        asks_model: A request to a model, which reads all that stays, makes the summary.
    """
    written, cached = (prices.input if price is None else price for price in (prices.cache_write, prices.cached))
    kept = max(_KEPT_TURNS * growth_tokens, min(_LEAST_KEPT_TOKENS, reserve_tokens))
    changed = summary_tokens + kept
    compaction = max(written - cached, 0) * changed
    if asks_model:
        compaction += prices.input * (fixed_tokens + changed) + prices.output * summary_tokens
    added = math.sqrt(2 * growth_tokens * compaction / cached) if cached else math.inf
    return Limits(fixed_tokens + changed + max(added, kept), kept)
