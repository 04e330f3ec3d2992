"""Limits of results, and rules for single tools. What a window makes of them is in test_window.py."""

from typing import Any

import pytest

from buoyline import ContextConfig, ToolRule
from buoyline.errors import ConfigError


@pytest.mark.parametrize(
    ("settings_", "size", "limit"),
    [
        ({}, 128_000, 12_000),
        ({}, 32_000, 9_600),
        ({}, 4_000, 3_000),
        ({"tool_result_limit": 500}, 128_000, 2_000),
        ({"turn_results_limit": 3_000}, 128_000, 3_000),
        ({"tool_rules": {"read": ToolRule(limit=40_000)}}, 128_000, 40_000),
    ],
)
def test_a_turn_has_four_times_the_limit_of_one_result_within_the_window(
    settings_: dict[str, Any], size: int, limit: int
) -> None:
    assert ContextConfig(**settings_).turn_limit(size) == limit


def test_the_first_rule_that_matches_holds_and_a_tool_without_a_name_matches_a_star_only() -> None:
    rules = {"read": ToolRule(limit=6_000), "mcp__*": ToolRule(limit=500), "*": ToolRule(offload="never")}
    config = ContextConfig(tool_rules=rules)
    names = ["read", "mcp__search", "READ", ""]
    assert [config.rule_for(name).limit for name in names] == [6_000, 500, 3_000, 3_000]
    assert [config.rule_for(name).offload for name in names] == ["auto", "auto", "never", "never"]
    assert [config.fitting_preview(limit) for limit in (6_000, 500, 2)] == [1_000, 166, 1]


@pytest.mark.parametrize(
    ("made", "words_"),
    [
        (lambda: ToolRule(limit=1), "limit: 1 is below 2"),
        (lambda: ToolRule(limit=True), "limit: must be a whole number, not bool"),
        (lambda: ToolRule(offload="sometimes"), "offload: 'sometimes' is not one of auto, never, always"),  # type: ignore[arg-type]  # that is the point
        (lambda: ContextConfig(tool_rules=[]), "tool_rules: must be a mapping"),  # type: ignore[arg-type]  # as above
        (lambda: ContextConfig(tool_rules={"a": 5}), "tool_rules: 'a' must be a ToolRule"),  # type: ignore[dict-item]  # as above
        (lambda: ContextConfig(turn_results_limit=2_999), "turn_results_limit: 2999 is below 3000"),
        (
            lambda: ContextConfig(turn_results_limit=9_000, tool_rules={"a": ToolRule(limit=9_001)}),
            r"turn_results_limit: 9000 is below 9001",
        ),
        (lambda: ContextConfig(turn_results_limit=9_000.0), "turn_results_limit: must be a whole number"),  # type: ignore[arg-type]  # as above
    ],
)
def test_a_policy_that_cannot_work_is_refused_when_it_is_built(made: Any, words_: str) -> None:
    with pytest.raises(ConfigError, match=words_):
        made()
