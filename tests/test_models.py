"""The table of models: what is found under which spelling, and what is not guessed at."""

from typing import Any

import pytest

from buoyline import ContextWindow, MemoryWorkspace
from buoyline.errors import ConfigError, NotFoundError
from buoyline.tokens import context_size
from buoyline.tokens.usage import max_output, models

SPELLINGS = {
    "gpt-4o-2024-08-06": 128_000,
    "openai:gpt-4o": 128_000,
    "openrouter/openai/gpt-4o-mini:free": 128_000,
    "gpt-5.4-2026-03-05": 1_050_000,
    "claude-sonnet-4@20250514": 200_000,
    "anthropic/claude-sonnet-4.5": 200_000,
    "us.anthropic.claude-sonnet-4-5-20250929-v1:0": 200_000,
    "arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-opus-4-1-20250805-v1:0": 200_000,
    "models/gemini-2.5-pro": 1_048_576,
    "projects/p/locations/l/publishers/google/models/gemini-2.0-flash-001": 1_048_576,
    "Qwen/Qwen2.5-Coder-32B-Instruct": 32_768,
}


@pytest.mark.parametrize(("model", "size"), SPELLINGS.items())
def test_a_model_is_found_under_every_name_that_providers_give_it(model: str, size: int) -> None:
    assert context_size(model) == size


def test_every_model_is_found_under_its_own_name_and_has_limits_that_can_be() -> None:
    for model, limits in models().items():
        assert context_size(model) == limits.context_tokens >= 4_096, model
        assert max_output(model) == limits.max_output_tokens
        assert limits.max_output_tokens is None or 0 < limits.max_output_tokens <= limits.context_tokens


@pytest.mark.parametrize(
    "model",
    [
        "claude-sonnet-4-7",  # follows a known name, and may be anything
        "mistral-large-latest",  # has had windows of three sizes
        "xgpt-4o",
        "",
        "gpt-4o\n-mini",
    ],
)
def test_a_model_that_is_not_known_is_not_guessed_at(model: str) -> None:
    with pytest.raises(NotFoundError, match="pass its size in tokens"):
        context_size(model)


def test_an_unknown_model_is_answered_with_those_that_are_spelled_alike() -> None:
    with pytest.raises(NotFoundError, match=r"no model 'openai/gpt-4-o'; similar are gpt-4o, .*; pass its size"):
        context_size("openai/gpt-4-o")
    with pytest.raises(NotFoundError, match=r"no model 'acme-7'; pass its size"):
        context_size("acme-7")


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigError, match="model: must be a text, not int"):
        context_size(4)  # type: ignore[arg-type]


def test_a_long_name_is_looked_up_at_once() -> None:
    with pytest.raises(NotFoundError):
        context_size("gpt-4" + "-2024" * 2_000 + "!")


@pytest.mark.parametrize(
    ("given", "size"),
    [
        ({"model": "claude-sonnet-4-5-20250929"}, 200_000),
        ({"model": "claude-sonnet-4-5", "size": 50_000}, 50_000),
        ({"model": "acme-7", "size": 50_000}, 50_000),
        ({}, 128_000),
    ],
)
async def test_the_model_says_how_large_a_window_is_unless_its_size_is_given(given: Any, size: int) -> None:
    workspace = MemoryWorkspace()
    async with await ContextWindow.open(workspace, "s", **given) as window:
        await window.add({"role": "user", "content": "hello"})
        await window.compress(before=1)
    settings = workspace.stored("s").state.settings
    assert settings is not None
    assert settings["size"] == size


async def test_a_model_that_nobody_knows_is_refused_without_a_size() -> None:
    with pytest.raises(NotFoundError, match="no model 'acme-7'"):
        await ContextWindow.open(MemoryWorkspace(), "s", model="acme-7")
