import copy
import dataclasses
import json
import math
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buoyline.compression import ContextConfig
from buoyline.compression.config import COMPRESSION_PROMPT, SUMMARY_TEMPLATE, default_schema
from buoyline.compression.summary import FIELDS
from buoyline.errors import ConfigError

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"done": {"type": "string"}, "to do": {"type": "string"}}}


def test_the_defaults_are_the_documented_ones() -> None:
    config = ContextConfig()
    assert config.trigger_ratio == 0.8
    assert config.reserve_ratio == 0.1
    assert config.tool_result_limit == 3_000
    assert config.preview_tokens == 1_000
    assert config.fields == FIELDS
    assert config.fields == (
        "task_overview",
        "current_state",
        "important_discoveries",
        "next_steps",
        "context_to_preserve",
    )


def test_the_default_schema_asks_for_five_texts() -> None:
    schema = default_schema()
    assert list(schema["properties"]) == schema["required"] == list(FIELDS)
    assert all(field["type"] == "string" and field["description"] for field in schema["properties"].values())
    assert default_schema() is not schema


def test_the_default_template_has_every_field_under_a_heading() -> None:
    filled = SUMMARY_TEMPLATE.format(**{name: f"<{name}>" for name in FIELDS})
    assert [filled.index(f"<{name}>") for name in FIELDS] == sorted(filled.index(f"<{name}>") for name in FIELDS)
    assert filled.count("# ") == len(FIELDS)


def test_the_prompt_asks_for_pointers_and_takes_no_orders_from_tools() -> None:
    assert "[transcript.md:120-135]" in COMPRESSION_PROMPT
    assert "never an instruction" in COMPRESSION_PROMPT


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"trigger_ratio": 0.95}, "trigger_ratio: 0.95 is not above 0 and at most 0.9"),
        ({"trigger_ratio": 0}, "trigger_ratio: 0 is not above 0 and at most 0.9"),
        ({"trigger_ratio": -0.1}, "trigger_ratio: -0.1 is not above 0 and at most 0.9"),
        ({"trigger_ratio": math.nan}, "trigger_ratio: nan is not above 0 and at most 0.9"),
        ({"trigger_ratio": math.inf}, "trigger_ratio: inf is not above 0 and at most 0.9"),
        ({"trigger_ratio": "0.8"}, "trigger_ratio: must be a number, not str"),
        ({"trigger_ratio": True}, "trigger_ratio: must be a number, not bool"),
        ({"trigger_ratio": None}, "trigger_ratio: must be a number, not NoneType"),
        ({"reserve_ratio": 0.8}, "reserve_ratio: 0.8 is not from 0 to below trigger_ratio (0.8)"),
        ({"reserve_ratio": -0.1}, "reserve_ratio: -0.1 is not from 0 to below trigger_ratio (0.8)"),
        ({"reserve_ratio": math.nan}, "reserve_ratio: nan is not from 0 to below trigger_ratio (0.8)"),
        ({"reserve_ratio": "0.1"}, "reserve_ratio: must be a number, not str"),
        ({"tool_result_limit": 1}, "tool_result_limit: 1 is below 2"),
        ({"tool_result_limit": -5}, "tool_result_limit: -5 is below 2"),
        ({"tool_result_limit": 3000.0}, "tool_result_limit: must be a whole number, not float"),
        ({"tool_result_limit": True}, "tool_result_limit: must be a whole number, not bool"),
        ({"preview_tokens": 0}, "preview_tokens: 0 is below 1"),
        ({"preview_tokens": 3_000}, "preview_tokens: 3000 is not below tool_result_limit (3000)"),
        ({"preview_tokens": 500, "tool_result_limit": 400}, "preview_tokens: 500 is not below tool_result_limit (400)"),
        ({"preview_tokens": 10.0}, "preview_tokens: must be a whole number, not float"),
        ({"preview_tokens": None}, "preview_tokens: must be a whole number, not NoneType"),
        ({"summary_tokens": 0}, "summary_tokens: 0 is below 1"),
        ({"summary_tokens": 1.5}, "summary_tokens: must be a whole number, not float"),
        ({"compression_prompt": ""}, "compression_prompt: must be a text that is not empty"),
        ({"compression_prompt": " \n"}, "compression_prompt: must be a text that is not empty"),
        ({"compression_prompt": None}, "compression_prompt: must be a text that is not empty"),
        ({"summary_template": None}, "summary_template: must be a text, not NoneType"),
        ({"summary_template": "no field"}, "summary_template: names no field; use some of {task_overview}, {current"),
        ({"summary_template": "{goal}"}, "summary_template: {goal} is no field of the schema; use {task_overview}, "),
        ({"summary_template": "{}"}, "summary_template: {} is no field of the schema"),
        ({"summary_template": "{0}"}, "summary_template: {0} is no field of the schema"),
        ({"summary_template": "{next_steps.upper}"}, "summary_template: {next_steps.upper} is no field of the schema"),
        ({"summary_template": "{next_steps[0]}"}, "summary_template: {next_steps[0]} is no field of the schema"),
        (
            {"summary_template": "{next_steps} {next_steps}"},
            "summary_template: names {next_steps} more than once; each takes tokens",
        ),
        ({"summary_template": "{next_steps:d}"}, "summary_template: cannot be filled (Unknown format code 'd'"),
        ({"summary_template": "{next_steps:{goal}}"}, "summary_template: cannot be filled ('goal')"),
        ({"summary_template": "{next_steps"}, "summary_template: expected '}' before end of string; write a brace"),
        ({"summary_template": "{next_steps} }"}, "summary_template: Single '}' encountered in format string; write"),
        ({"summary_schema": None}, "summary_schema: must be a JSON Schema of an object with 'properties'"),
        ({"summary_schema": {}}, "summary_schema: must be a JSON Schema of an object with 'properties'"),
        ({"summary_schema": {"properties": {}}}, "summary_schema: must be a JSON Schema of an object with"),
        ({"summary_schema": {"properties": ["done"]}}, "summary_schema: must be a JSON Schema of an object with"),
        (
            {"summary_schema": SCHEMA},
            "summary_template: {context_to_preserve}, {current_state}, {important_discoveries}",
        ),
        (
            {"summary_schema": {"properties": {"a.b": {}}}, "summary_template": "{a.b}"},
            "summary_template: cannot be filled ('a')",
        ),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_built(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ContextConfig(**settings)
    assert str(caught.value).startswith(words)
    assert caught.value.setting in settings or caught.value.setting == "summary_template"


@pytest.mark.parametrize("name", ["trigger_rate", "size", "fields"])
def test_an_unknown_field_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match=name):
        ContextConfig(**{name: 1})  # type: ignore[arg-type]  # that is the point


def test_values_have_names() -> None:
    with pytest.raises(TypeError, match="positional"):
        ContextConfig(0.5)  # type: ignore[call-arg]  # that is the point


@pytest.mark.parametrize(
    "settings",
    [
        {"trigger_ratio": 0.9, "reserve_ratio": 0},
        {"trigger_ratio": 0.5, "reserve_ratio": 0.49},
        {"tool_result_limit": 2, "preview_tokens": 1},
        {"summary_tokens": 1},
        {"summary_template": "{{literally}} {next_steps}"},
        {"summary_template": "{next_steps:>10} {task_overview!s}"},
        {"summary_schema": SCHEMA, "summary_template": "{done}{to do}"},
        {"summary_schema": MappingProxyType(SCHEMA), "summary_template": "{done}"},
    ],
)
def test_what_can_work_is_taken_as_it_is(settings: dict[str, Any]) -> None:
    config = ContextConfig(**settings)
    assert {name: getattr(config, name) for name in settings} == settings


@pytest.mark.parametrize(
    ("limit", "preview_tokens"), [(2, 1), (3, 1), (10, 3), (900, 300), (1_000, 333), (1_001, 1_000), (50_000, 1_000)]
)
def test_the_default_preview_becomes_a_third_of_a_limit_that_it_does_not_fit(limit: int, preview_tokens: int) -> None:
    assert ContextConfig(tool_result_limit=limit).preview_tokens == preview_tokens


def test_fields_are_those_of_the_schema_in_its_order() -> None:
    config = ContextConfig(summary_schema=SCHEMA, summary_template="{to do}\n{done}")
    assert config.fields == ("done", "to do")


@pytest.mark.parametrize(
    ("size", "limit"), [(1_000, 400), (6_400, 400), (16_000, 1_000), (64_000, 4_000), (1_000_000, 4_000)]
)
def test_a_summary_takes_a_sixteenth_of_the_window_within_bounds(size: int, limit: int) -> None:
    assert ContextConfig().summary_limit(size) == limit
    assert ContextConfig(summary_tokens=77).summary_limit(size) == 77


def test_a_configuration_cannot_be_changed() -> None:
    config = ContextConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.trigger_ratio = 0.5  # type: ignore[misc]  # that is the point
    with pytest.raises((dataclasses.FrozenInstanceError, AttributeError, TypeError)):
        config.trigger_rate = 0.5  # type: ignore[attr-defined]  # that is the point


def test_a_changed_copy_is_checked_again() -> None:
    config = dataclasses.replace(ContextConfig(), reserve_ratio=0.0)
    assert config.reserve_ratio == 0.0
    with pytest.raises(ConfigError, match="reserve_ratio"):
        dataclasses.replace(config, reserve_ratio=0.9)


ratios = st.floats(0.01, 0.9)
configs = st.builds(
    lambda trigger, share, limit, preview_tokens, summary_tokens: ContextConfig(
        trigger_ratio=trigger,
        reserve_ratio=trigger * share,
        tool_result_limit=limit,
        summary_tokens=summary_tokens,
        **({} if preview_tokens is None else {"preview_tokens": min(preview_tokens, limit - 1)}),
    ),
    ratios,
    st.floats(0, 0.99),
    st.integers(2, 5_000),
    st.none() | st.integers(1, 5_000),
    st.none() | st.integers(1, 5_000),
)


@given(configs)
def test_a_configuration_comes_back_from_its_fields_as_json(config: ContextConfig) -> None:
    """As a window writes it down for the process that resumes it."""
    kept = json.loads(json.dumps(dataclasses.asdict(config)))
    assert ContextConfig(**kept) == config


def test_a_schema_may_be_any_mapping_and_is_written_down_all_the_same() -> None:
    config = ContextConfig(summary_schema=MappingProxyType(SCHEMA), summary_template="{done}")
    assert dataclasses.asdict(config)["summary_schema"] == SCHEMA


def test_a_schema_and_its_configuration_do_not_change_each_other() -> None:
    schema = copy.deepcopy(SCHEMA)
    config = ContextConfig(summary_schema=schema, summary_template="{done}")
    assert schema == SCHEMA
    schema["properties"] = {}
    assert config.fields == ("done", "to do")
