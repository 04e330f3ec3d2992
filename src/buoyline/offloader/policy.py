"""Which tool results are offloaded, and the rules for single tools.

Pure. A result is decided once, when the model first sees it, and the decision holds until a compaction: a later change
would cost the provider's prompt cache. Source of the rules: no peer has more than a list of exempt tools; users ask for
a limit per tool.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Literal, TypeAlias, get_args

from buoyline.errors import ConfigError
from buoyline.messages import ToolResult
from buoyline.messages.model import text_in
from buoyline.tokens import TextCounter
from buoyline.tokens.messages import count_part


def is_too_large(result: ToolResult, limit: int, counter: TextCounter) -> bool:
    """Check whether *result* takes more than *limit* tokens, including JSON and media."""
    # The longest text last, and no text is counted to its end if it is too large by itself: it may have gigabytes.
    for part in sorted(result.parts, key=lambda part: len(text_in(part) or "")):
        text = text_in(part)
        if text is not None and counter.exceeds(text, limit):
            return True
        limit -= count_part(part, counter)
    return limit < 0


def is_smaller(replacement: str, original: str, counter: TextCounter) -> bool:
    """Check whether *replacement* takes fewer tokens than *original*."""
    return counter.exceeds(original, counter.count(replacement))


LEAST_STUB_TOKENS: Final = 200
"""A bare stub takes about 100; with the paths of a file and its view in a deep directory, up to this."""

WORTH_OFFLOADING_TOKENS: Final = 100
"""A bare stub with its path takes about as much, so offloading less gains nothing."""


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

    Raises:
        ConfigError: A value is invalid; the message says which values are valid.
        TypeError: A parameter has an unknown name.
    """

    limit: int | None = None
    offload: OffloadMode = "auto"

    def __post_init__(self) -> None:
        """Check every value."""
        if self.offload not in get_args(OffloadMode):
            raise ConfigError("offload", f"{self.offload!r} is not one of {', '.join(get_args(OffloadMode))}")
        if self.limit is not None:
            require_count("limit", self.limit, least=2)


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
