"""Which tool results are offloaded, and the rules for single tools.

Pure. A result is decided once, when the model first sees it, and the decision holds until a compaction: a later change
would cost the provider's prompt cache. Source of the budget for a turn: Claude Code and Hermes, which allow four
results of the largest size together and offload the largest first. Source of the rules: no peer has more than a list of
exempt tools; users ask for a limit per tool, and for errors that stay.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Literal, TypeAlias, get_args

from buoyline.errors import ConfigError
from buoyline.messages import ToolResult
from buoyline.messages.model import ResultPart, text_in
from buoyline.tokens import TextCounter
from buoyline.tokens.messages import count_part


def is_too_large(result: ToolResult, limit: int, counter: TextCounter) -> bool:
    """Check whether *result* takes more than *limit* tokens, including JSON and media."""
    counted, texts = 0, list[tuple[ResultPart, str]]()
    for part in result.parts:
        text = text_in(part)
        if text is not None:
            texts.append((part, text))
            continue
        counted += count_part(part, counter)
        if counted > limit:
            return True
    for part, text in texts:
        # A text that is too large by itself is not counted to its end: it may have gigabytes.
        if counter.exceeds(text, limit - counted):
            return True
        counted += count_part(part, counter)
        if counted > limit:
            return True
    return False


def is_smaller(replacement: str, original: str, counter: TextCounter) -> bool:
    """Check whether *replacement* takes fewer tokens than *original*."""
    return counter.exceeds(original, counter.count(replacement))


LEAST_STUB_TOKENS: Final = 200
"""A bare stub takes about 100; with the paths of a file and its view in a deep directory, up to this."""

WORTH_OFFLOADING_TOKENS: Final = 100
"""A bare stub with its path takes about as much, so offloading less gains nothing."""

LEAST_USEFUL_TOKENS: Final = 200
"""Twice the size of a stub without a preview. Offloading a smaller result to make room hides more than it saves."""


@dataclass(frozen=True, slots=True)
class TurnResult:
    """A tool result, as the budget of its turn counts it.

    Attributes:
        tokens: Not read if the result is due, since only its stub counts then.
        stub_tokens: The limit of its stub.
        is_due: The result is offloaded anyway.
        is_fixed: The result is not offloaded, because a caller keeps it or because it is a stub already.
    """

    tokens: int
    stub_tokens: int
    is_due: bool = False
    is_fixed: bool = False


def stub_budgets(results: Sequence[TurnResult], limit: int, *, least: int) -> dict[int, int]:
    """Choose the results of a turn to offload, so that all results of the turn take at most *limit* tokens.

    The largest go first, and of two equal ones the older. Then the stubs share the remaining tokens. If the limit is
    still exceeded, the stubs have no preview, and small or fixed results may exceed *limit*.

    Args:
        results: The results since the last answer of the model, in order.
        limit: For all of them together, minus the results of the turn that the model has seen; may be negative.
        least: The minimum tokens of a stub, estimated high.

    Returns:
        The position of each result to offload, with the tokens of its stub; 1 means no preview.
    """
    budgets, movable, total = dict[int, int](), list[tuple[int, int]](), 0
    for at, found in enumerate(results):
        if found.is_due:
            budgets[at] = found.stub_tokens
            total += max(found.stub_tokens, least)
            continue
        total += found.tokens
        if found.tokens > max(LEAST_USEFUL_TOKENS, found.stub_tokens, least) and not found.is_fixed:
            movable.append((found.tokens, -at))
    movable.sort()
    while total > limit and movable:
        tokens, negated = movable.pop()
        found = results[-negated]
        budgets[-negated] = found.stub_tokens
        total -= tokens - max(found.stub_tokens, least)
    if total <= limit:
        return budgets
    kept_tokens = sum(found.tokens for at, found in enumerate(results) if at not in budgets)
    share = _share(list(budgets.values()), limit - kept_tokens, least)
    return {at: min(tokens, share) for at, tokens in budgets.items()}


def _share(wanted: Sequence[int], tokens_left: int, least: int) -> int:
    """Return the largest equal share with which all fit into *tokens_left*; 1 if that is below *least*."""
    waiting = len(wanted)
    for tokens in sorted(max(tokens, least) for tokens in wanted):
        if tokens * waiting > tokens_left:
            break
        tokens_left -= tokens
        waiting -= 1
    share = tokens_left // waiting if waiting else max(wanted, default=1)
    return share if share >= least else 1


OffloadMode: TypeAlias = Literal["auto", "never", "always"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolRule:
    """When to offload the results of one tool.

    Attributes:
        limit: Tokens above which a result is offloaded, at least 2. Default: `tool_result_limit`.
        offload: ``"auto"``: above the limit, or to keep a turn within its budget. ``"never"``: the result stays whole;
            if the context does not fit the window, it is offloaded last. A streamed result stays up to a quarter of the
            window.
            ``"always"``: every result is offloaded, unless its stub would be larger.
        keep_errors: A result that its message marks as an error stays whole, as with ``"never"``. Messages in OpenAI's
            form have no such mark, and the text is not searched for errors.
        preview_tokens: Tokens of the stub, from 1 to below the limit. Default: as for other tools, or a third of
            *limit* if that does not fit.

    Raises:
        ConfigError: A value is invalid; the message says which values are valid.
        TypeError: A parameter has an unknown name.
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
"""The rule for a tool without a rule of its own."""


def rule_for(rules: Mapping[str, ToolRule], tool: str) -> ToolRule:
    """Return the first of *rules*, by tool names or shell patterns such as ``mcp__*``, that matches *tool*.

    Case matters. An empty *tool* is unknown; only a pattern such as ``*`` matches it.
    """
    return next((rule for pattern, rule in rules.items() if fnmatchcase(tool, pattern)), NO_RULE)


def require_count(name: str, value: object, *, least: int = 1) -> None:
    """Check that *value* of the setting *name* is an integer of at least *least*.

    Raises:
        ConfigError: It is not.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(name, f"must be a whole number, not {type(value).__name__}")
    if value < least:
        raise ConfigError(name, f"{value} is below {least}")
