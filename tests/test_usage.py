"""Reading what providers say a request took."""

from types import SimpleNamespace
from typing import Any

import pytest

from buoyline.errors import UsageError
from buoyline.tokens.usage import Usage, model_of, usage_of

CHAT_COMPLETION = {
    "id": "c",
    "object": "chat.completion",
    "created": 0,
    "model": "gpt-4o",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "yes"}}],
    "usage": {
        "prompt_tokens": 1_000,
        "completion_tokens": 70,
        "total_tokens": 1_070,
        "prompt_tokens_details": {"cached_tokens": 900},
        "completion_tokens_details": {"reasoning_tokens": 50},
    },
}
ANTHROPIC_MESSAGE = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-5",
    "content": [{"type": "text", "text": "yes"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {
        "input_tokens": 3,
        "cache_read_input_tokens": 900,
        "cache_creation_input_tokens": 97,
        "output_tokens": 20,
    },
}
RESPONSE_USAGE = {
    "input_tokens": 1_000,
    "input_tokens_details": {"cached_tokens": 900, "cache_write_tokens": 0},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 1_020,
}
BEDROCK = {"inputTokens": 3, "outputTokens": 20, "totalTokens": 1_020, "cacheReadInputTokens": 997}
GEMINI = {
    "promptTokenCount": 1_000,
    "cachedContentTokenCount": 900,
    "candidatesTokenCount": 20,
    "thoughtsTokenCount": 9,
}

RESPONSES: dict[str, Any] = {
    "openai json": CHAT_COMPLETION,
    "openai usage": CHAT_COMPLETION["usage"],
    "anthropic json": ANTHROPIC_MESSAGE,
    "anthropic usage": ANTHROPIC_MESSAGE["usage"],
    "bedrock": {"output": {}, "usage": BEDROCK},
    "gemini json": {"usageMetadata": GEMINI},
    "gemini object": SimpleNamespace(
        usage_metadata=SimpleNamespace(prompt_token_count=1_000, candidates_token_count=20, total_token_count=1_029)
    ),
    "langchain": SimpleNamespace(
        usage_metadata={"input_tokens": 1_000, "output_tokens": 20, "input_token_details": {"cache_read": 900}}
    ),
    "litellm": {
        "usage": {
            "prompt_tokens": 1_000,
            "completion_tokens": 20,
            "cache_read_input_tokens": 900,
            "cache_creation_input_tokens": 97,
        }
    },
    "ollama": {"model": "qwen3", "done": True, "prompt_eval_count": 1_000, "eval_count": 20},
    "pydantic ai": SimpleNamespace(
        usage=SimpleNamespace(input_tokens=1_000, output_tokens=20, cache_read_tokens=900, cache_write_tokens=97)
    ),
    "agent framework": {"usage_details": {"input_token_count": 1_000, "output_token_count": 20}},
    "ours": Usage(1_000, 20),
    "ours in a response": {"usage": Usage(1_000, 20)},
}


@pytest.mark.parametrize(
    ("module", "name", "content"),
    [
        ("openai.types.chat", "ChatCompletion", CHAT_COMPLETION),
        ("openai.types.responses", "ResponseUsage", RESPONSE_USAGE),
        ("anthropic.types", "Message", ANTHROPIC_MESSAGE),
    ],
)
def test_usage_of_the_providers_own_objects_is_read(module: str, name: str, content: dict[str, Any]) -> None:
    theirs = pytest.importorskip(module, reason=f"{module.partition('.')[0]} is an extra for tests")
    usage = usage_of(getattr(theirs, name).model_validate(content))
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens) == (1_000, 20, 900)


CACHED = {
    **dict.fromkeys(("openai json", "openai usage", "gemini json", "langchain"), (900, 0)),
    **dict.fromkeys(("anthropic json", "anthropic usage", "litellm", "pydantic ai"), (900, 97)),
    "bedrock": (997, 0),
}


@pytest.mark.parametrize("name", RESPONSES)
def test_usage_is_read_with_what_was_cached_and_without_what_is_not_sent_again(name: str) -> None:
    assert usage_of(RESPONSES[name]) == Usage(1_000, 20, *CACHED.get(name, (0, 0)))


def test_no_more_tokens_are_cached_than_were_sent() -> None:
    usage = usage_of({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 99}})
    assert usage == Usage(10, 0, 10)


@pytest.mark.parametrize(
    ("response", "model"),
    [
        (CHAT_COMPLETION, "gpt-4o"),
        (SimpleNamespace(model="m"), "m"),
        (SimpleNamespace(model_name="m"), "m"),
        (SimpleNamespace(response_metadata={"model_name": "m"}), "m"),
        ({"model": 7}, ""),
        (3, ""),
    ],
)
def test_a_response_may_name_its_model(response: object, model: str) -> None:
    assert model_of(response) == model


@pytest.mark.parametrize(
    "response",
    [None, {**CHAT_COMPLETION, "usage": None}, SimpleNamespace(usage=None), SimpleNamespace(prompt_eval_count=None)],
    ids=["None", "a stream", "object", "a piece of Ollama's"],
)
def test_a_response_may_hold_no_usage(response: object) -> None:
    assert usage_of(response) is None


def test_the_first_event_of_a_stream_has_no_output_yet() -> None:
    assert usage_of({"prompt_tokens": 5, "completion_tokens": None}) == Usage(5)
    assert usage_of({"input_tokens": 5, "cache_read_input_tokens": None}) == Usage(5)


@pytest.mark.parametrize(
    ("response", "says"),
    [
        ({"role": "assistant", "content": "yes"}, "dict has none that is known; pass the response of the provider"),
        ({"usage": {"total_tokens": 5}}, "dict has none that is known"),
        ({"usage": 5}, "int has none that is known"),
        ({"prompt_tokens": -1}, "prompt_tokens is -1, below 0"),
        ({"prompt_tokens": True}, "prompt_tokens is True, no whole number"),
        ({"inputTokens": 1, "outputTokens": float("nan")}, "outputTokens is nan, no whole number"),
    ],
)
def test_what_is_no_usage_is_refused(response: object, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        usage_of(response)


def test_what_was_written_to_a_cache_of_bedrock_is_a_part_of_the_input() -> None:
    usage = {"inputTokens": 3, "outputTokens": 20, "cacheReadInputTokens": 900, "cacheWriteInputTokens": 97}
    assert usage_of({"usage": usage}) == Usage(1_000, 20, 900, 97)
