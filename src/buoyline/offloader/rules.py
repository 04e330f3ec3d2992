"""Rules for the results of single tools.

Pure. Source: no peer has more than a list of tools that are left alone; what users ask for is a limit of a tool's
own, and errors that stay.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Literal, TypeAlias, get_args

from buoyline.errors import ConfigError

Offloading: TypeAlias = Literal["auto", "never", "always"]


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
    offload: Offloading = "auto"
    keep_errors: bool = False
    preview_tokens: int | None = None

    def __post_init__(self) -> None:
        """Check every value."""
        if self.offload not in get_args(Offloading):
            raise ConfigError("offload", f"{self.offload!r} is not one of {', '.join(get_args(Offloading))}")
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
