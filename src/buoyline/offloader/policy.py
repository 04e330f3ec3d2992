"""Which tool results leave the context.

Pure. The decision about a result is taken once, when it is first shown to the model, and stands until a
compression: changing it later would cost the provider's prompt cache. Source of the budget for a turn: Claude Code
and Hermes, which let four results of the largest size pass together, the largest leaving first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Literal, TypeAlias, get_args

from buoyline.errors import ConfigError
from buoyline.messages import ToolResult
from buoyline.messages.model import text_in
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


# Rules for the results of single tools.
#
# Pure. Source: no peer has more than a list of tools that are left alone; what users ask for is a limit of a tool's
# own, and errors that stay.


OffloadMode: TypeAlias = Literal["auto", "never", "always"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolRule:
    """When the results of a tool are offloaded, where that differs from the other tools'.

    Attributes:
        limit: Tokens of one result above which it is offloaded; at least 2. Left out: `tool_result_limit`.
        offload: ``"auto"``: above the limit, or for the budget of a turn. ``"never"``: stays whole; only where the
            context does not fit the window, it leaves after everything else has, and what comes piece by piece stays
            up to a quarter of the window. ``"always"``: leaves however small,
            unless its stub would take more.
        keep_errors: What the message's own form marks as an error stays whole, as under ``"never"``. OpenAI's form has
            no such mark; nothing is guessed from the text.
        preview_tokens: Tokens of what stays in its place; from 1 to below the limit. Left out: as for other tools, or a
            third of a *limit* that this does not fit.

    Raises:
        ConfigError: A value cannot work; it says which would.
        TypeError: A parameter has no such name.
    """

    limit: int | None = None
    offload: OffloadMode = "auto"
    keep_errors: bool = False
    preview_tokens: int | None = None

    def __post_init__(self) -> None:
        """Check every value."""
        if self.offload not in get_args(OffloadMode):
            raise ConfigError("offload", f"{self.offload!r} is not one of {', '.join(get_args(OffloadMode))}")
        if not isinstance(self.keep_errors, bool):
            raise ConfigError("keep_errors", f"must be True or False, not {type(self.keep_errors).__name__}")
        if self.limit is not None:
            require_count("limit", self.limit, least=2)
        if self.preview_tokens is not None:
            require_count("preview_tokens", self.preview_tokens)


NO_RULE: Final = ToolRule()
"""What holds for a tool that no rule names."""


def rule_for(rules: Mapping[str, ToolRule], tool: str) -> ToolRule:
    """Return the first of *rules* whose name or pattern matches *tool*.

    Args:
        rules: Rules by names of tools, or by patterns as shells have them: ``mcp__*``. Case matters.
        tool: Empty where it is not known: then only a pattern such as ``*`` matches.
    """
    return next((rule for pattern, rule in rules.items() if fnmatchcase(tool, pattern)), NO_RULE)


def require_count(name: str, value: object, *, least: int = 1) -> None:
    """Refuse a *value* of the setting *name* that is no whole number from *least* on.

    Raises:
        ConfigError: It is none.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(name, f"must be a whole number, not {type(value).__name__}")
    if value < least:
        raise ConfigError(name, f"{value} is below {least}")
