"""The table of models: what is found under which spelling, and what is not guessed at."""

import pytest

from buoyline import ContextWindow
from buoyline.errors import ConfigError, NotFoundError
from buoyline.tokens import context_size
from buoyline.tokens.models import max_output, models

SPELLINGS = {
    "gpt-4o": 128_000,
    "GPT-4o": 128_000,
    "gpt-4o-2024-08-06": 128_000,
    "openai/gpt-4o-2024-08-06": 128_000,
    "openai:gpt-4o": 128_000,
    "azure/gpt-4o": 128_000,
    "chatgpt-4o-latest": 128_000,
    "openrouter/openai/gpt-4o-mini:free": 128_000,
    "gpt-4": 8_192,
    "gpt-4-0613": 8_192,
    "gpt-4-32k-0613": 32_768,
    "gpt-4-turbo-2024-04-09": 128_000,
    "gpt-4-turbo-preview": 128_000,
    "gpt-4-1106-preview": 128_000,
    "gpt-35-turbo": 16_385,
    "gpt-3.5-turbo-0613": 4_096,
    "gpt-3.5-turbo-16k-0613": 16_385,
    "gpt-4.1-2025-04-14": 1_047_576,
    "gpt-5-2025-08-07": 400_000,
    "gpt-5-chat-latest": 128_000,
    "gpt-5.4-2026-03-05": 1_050_000,
    "o3-mini-2025-01-31": 200_000,
    "claude-sonnet-4-5-20250929": 200_000,
    "claude-sonnet-4-20250514": 200_000,
    "claude-sonnet-4@20250514": 200_000,
    "anthropic/claude-sonnet-4.5": 200_000,
    "claude-3.5-sonnet": 200_000,
    "claude-3-5-sonnet-v2@20241022": 200_000,
    "anthropic.claude-3-5-sonnet-20241022-v2:0": 200_000,
    "us.anthropic.claude-sonnet-4-5-20250929-v1:0": 200_000,
    "global.anthropic.claude-opus-4-5-20251101-v1:0": 200_000,
    "bedrock/anthropic.claude-3-haiku-20240307-v1:0:200k": 200_000,
    "bedrock:eu.anthropic.claude-sonnet-4-20250514-v1:0": 200_000,
    "arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-opus-4-1-20250805-v1:0": 200_000,
    "claude-opus-4-6": 1_000_000,
    "claude-opus-5": 1_000_000,
    "models/gemini-2.5-pro": 1_048_576,
    "gemini/gemini-1.5-pro-002": 2_097_152,
    "gemini-2.5-flash-preview-05-20": 1_048_576,
    "projects/p/locations/l/publishers/google/models/gemini-2.0-flash-001": 1_048_576,
    "google-gla:gemini-2.0-flash-exp": 1_048_576,
    "gemini-3-pro-preview": 1_048_576,
    "google/gemma-3-27b-it": 128_000,
    "gemma3:27b": 128_000,
    "phi4": 16_000,
    "mistral-large-2411": 128_000,
    "mistral.mistral-large-2407-v1:0": 128_000,
    "deepseek-ai/DeepSeek-V3-0324": 128_000,
    "deepseek/deepseek-r1:free": 128_000,
    "Qwen/Qwen2.5-72B-Instruct": 32_768,
    "Qwen/Qwen2.5-Coder-32B-Instruct-AWQ": 32_768,
    "Qwen/Qwen3-235B-A22B": 32_768,
    "Qwen/Qwen3-235B-A22B-Instruct-2507": 262_144,
    "qwen3:8b": 32_768,
    "meta-llama/Llama-3.1-8B-Instruct": 131_072,
    "meta-llama/Meta-Llama-3.1-405B-Instruct-FP8": 131_072,
    "meta-llama/Meta-Llama-3-8B-Instruct": 8_192,
    "meta-llama/Llama-2-7b-chat-hf": 4_096,
    "us.meta.llama3-3-70b-instruct-v1:0": 131_072,
    "llama3.1:8b": 131_072,
    "llama-3.3-70b-versatile": 131_072,
    "amazon.nova-pro-v1:0": 300_000,
    "global.amazon.nova-2-lite-v1:0": 1_000_000,
    "gpt-5.6-sol": 1_050_000,
    "global.openai.gpt-6-sol": 1_050_000,
    "openai/gpt-6.1-sol": 1_050_000,
    "claude-opus-4-7-20260416": 1_000_000,
    "global.anthropic.claude-fable-5-v1:0": 1_000_000,
    "gemini-3.1-flash-lite-preview": 1_048_576,
    "x-ai/grok-4.7": 500_000,
    "moonshotai/kimi-k2.6": 262_144,
    "global.moonshotai.kimi-k3": 1_048_576,
    "deepseek/deepseek-v4-pro": 1_000_000,
    "MiniMaxAI/MiniMax-M2.7": 204_800,
    "global.zai.glm-5.3": 1_000_000,
    "qwen/qwen3.7-max": 1_000_000,
}


@pytest.mark.parametrize(("model", "size"), SPELLINGS.items())
def test_a_model_is_found_under_every_name_that_providers_give_it(model: str, size: int) -> None:
    assert context_size(model) == size


@pytest.mark.parametrize("model", models())
def test_every_model_is_found_under_its_own_name_and_has_limits_that_can_be(model: str) -> None:
    limits = models()[model]
    assert context_size(model) == limits.context_tokens >= 4_096
    assert max_output(model) == limits.max_output_tokens
    assert limits.max_output_tokens is None or 0 < limits.max_output_tokens <= limits.context_tokens


@pytest.mark.parametrize(
    "model",
    [
        "claude-sonnet-4-7",  # follows a known name, and may be anything
        "claude-opus-5-1",
        "gpt-4.9",
        "gpt-5-turbo",
        "llama-3-8b-1048k",
        "gpt-4-mini",
        "gpt-5.9-2026-01-01",
        "gemini-2.5-flash-image",
        "gemini-2.5-flash-preview-tts",
        "mistral-large-latest",  # has had windows of three sizes
        "llama-3.1",
        "xgpt-4o",
        "",
        "/",
        ":",
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
    with pytest.raises(NotFoundError, match=r"similar are acme-8"):
        context_size("acme-7", {"acme-8": 10})


def test_sizes_of_ones_own_go_before_the_table() -> None:
    sizes = {"acme-7": 50_000, "gpt-4o": 64_000, "Claude-Sonnet-4.5": 1_000_000, "odd/name:x": 7}

    assert context_size("acme-7", sizes) == 50_000
    assert context_size("acme/acme-7-2026-01-01", sizes) == 50_000
    assert context_size("gpt-4o-2024-08-06", sizes) == 64_000
    assert context_size("claude-sonnet-4-5-20250929", sizes) == 1_000_000
    assert context_size("odd/name:x", sizes) == 7
    assert context_size("gpt-4", sizes) == 8_192


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "128k", None])
def test_a_size_of_ones_own_that_is_none_is_refused(size: int) -> None:
    with pytest.raises(ConfigError, match=r"sizes: .* is not a whole number of tokens above 0"):
        context_size("gpt-4o", {"acme-7": size})


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigError, match="model: must be a text, not int"):
        context_size(4)  # type: ignore[arg-type]


def test_a_long_name_is_looked_up_at_once() -> None:
    with pytest.raises(NotFoundError):
        context_size("gpt-4" + "-2024" * 2_000 + "!")


def test_the_model_says_how_large_a_window_is_unless_its_size_is_given() -> None:
    assert ContextWindow(session_id="s", model="claude-sonnet-4-5-20250929").size == 200_000
    assert ContextWindow(session_id="s", model="claude-sonnet-4-5", size=50_000).size == 50_000
    assert ContextWindow(session_id="s", model="acme-7", size=50_000).size == 50_000
    assert ContextWindow(session_id="s").size == 128_000
    with pytest.raises(NotFoundError, match="no model 'acme-7'"):
        ContextWindow(session_id="s", model="acme-7")
