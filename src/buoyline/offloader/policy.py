"""Which tool results leave the context.

Pure. The decision about a result is taken once, when it is first shown to the model, and stands until a
compression: changing it later would cost the provider's prompt cache. Source of the budget for a turn: Claude Code
and Hermes, which let four results of the largest size pass together, the largest leaving first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from buoyline.messages import ToolResult
from buoyline.messages.message import text_in
from buoyline.tokens import TextCounter
from buoyline.tokens.messages import count_part


def is_too_large(result: ToolResult, limit: int, counter: TextCounter) -> bool:
    """Tell whether *result* takes more than *limit* tokens: text, JSON and media, which are never free."""
    standing = 0
    for part in sorted(result.parts, key=lambda part: text_in(part) is not None):
        text = text_in(part)
        # A text that alone is too much is not counted to its end: it may have gigabytes.
        if text is not None and counter.exceeds(text, limit - standing):
            return True
        standing += count_part(part, counter)
        if standing > limit:
            return True
    return False


def is_smaller(replacement: str, original: str, counter: TextCounter) -> bool:
    """Tell whether *replacement* takes fewer tokens than *original*, so that putting it there is any use."""
    return counter.exceeds(original, counter.count(replacement))


LEAST_USEFUL_TOKENS: Final = 200
"""Twice what a notice with its path takes. Below that, a result that leaves for others hides more than it saves."""


@dataclass(frozen=True, slots=True)
class TurnResult:
    """A tool result as the budget of its turn sees it.

    Attributes:
        tokens: What it takes; of one that is due, its limit and one more will do.
        stub_tokens: What may stand in its place.
        is_due: It leaves on its own account.
        is_fixed: It stays as it is, because somebody wants it so, or since it is a stub.
    """

    tokens: int
    stub_tokens: int
    is_due: bool = False
    is_fixed: bool = False


def stub_budgets(results: Sequence[TurnResult], limit: int, *, least: int) -> dict[int, int]:
    """Choose which results of one turn leave, so that what stays of all of them takes at most *limit* tokens.

    The largest go first, the older of two equal ones; then the stubs are cut to what there is for each. Where even
    that is too much, bare notices remain of those that leave, and *limit* is exceeded by what is too small to leave,
    or fixed.

    Args:
        results: Results since the model spoke last, in order.
        limit: For all of them together; what the model has seen of the turn is taken off, so it may be negative.
        least: Tokens that a stub takes at least, on the high side.

    Returns:
        Position of each result that leaves, with the tokens of its stub; 1 for a bare notice.
    """
    leaving = [at for at, found in enumerate(results) if found.is_due]
    movable = [at for at, found in enumerate(results) if _may_leave(found, least)]
    waiting = sorted(movable, key=lambda at: (results[at].tokens, -at))
    total = sum(_taken(found, least) for found in results)
    while total > limit and waiting:
        at = waiting.pop()
        leaving.append(at)
        total -= results[at].tokens - max(results[at].stub_tokens, least)
    budgets = {at: results[at].stub_tokens for at in leaving}
    if total <= limit:
        return budgets
    staying = sum(found.tokens for at, found in enumerate(results) if at not in budgets)
    share = _share(list(budgets.values()), limit - staying, least)
    return {at: min(tokens, share) for at, tokens in budgets.items()}


def _may_leave(found: TurnResult, least: int) -> bool:
    is_worth_it = found.tokens > max(LEAST_USEFUL_TOKENS, found.stub_tokens, least)
    return is_worth_it and not found.is_due and not found.is_fixed


def _taken(found: TurnResult, least: int) -> int:
    return max(found.stub_tokens, least) if found.is_due else found.tokens


def _share(wanted: Sequence[int], room: int, least: int) -> int:
    """Return the most that each may have so that all have at most *room*; 1 where that is below *least*."""
    left = len(wanted)
    for tokens in sorted(max(tokens, least) for tokens in wanted):
        if tokens * left > room:
            break
        room -= tokens
        left -= 1
    share = room // left if left else max(wanted, default=1)
    return share if share >= least else 1
