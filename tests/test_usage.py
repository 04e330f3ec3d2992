"""Reading what providers say a request took."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


@pytest.mark.parametrize("response", RESPONSES.values(), ids=RESPONSES.keys())
def test_usage_is_read_with_what_was_cached_and_without_what_is_not_sent_again(response: object) -> None:
    usage = usage_of(response)
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (1_000, 20)


@pytest.mark.parametrize(
    ("name", "cached", "written"),
    [
        ("openai json", 900, 0),
        ("openai usage", 900, 0),
        ("anthropic json", 900, 97),
        ("anthropic usage", 900, 97),
        ("bedrock", 997, 0),
        ("gemini json", 900, 0),
        ("gemini object", 0, 0),
        ("langchain", 900, 0),
        ("litellm", 900, 97),
    ],
)
def test_tokens_read_from_a_cache_and_written_to_one_are_known(name: str, cached: int, written: int) -> None:
    usage = usage_of(RESPONSES[name])
    assert usage is not None
    assert (usage.cached_tokens, usage.cache_write_tokens) == (cached, written)


def test_no_more_tokens_are_cached_than_were_sent() -> None:
    usage = usage_of({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 99}})
    assert usage == Usage(10, 0, 10)


@pytest.mark.parametrize(
    ("response", "model"), [(CHAT_COMPLETION, "gpt-4o"), (SimpleNamespace(model="m"), "m"), ({"model": 7}, ""), (3, "")]
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
        ({"role": "assistant", "content": "yes"}, "dict holds none; pass the response of the provider"),
        ("1000", "str holds none"),
        (1_000, "int holds none"),
        ([], "list holds none"),
        ({"usage": {"total_tokens": 5}}, r"dict has no form that is known; pass Usage\(input_tokens, output_tokens\)"),
        ({"usage": 5}, "int has no form that is known"),
        ({"prompt_tokens": -1}, "prompt_tokens is -1, below 0"),
        ({"input_tokens": 10, "cache_read_input_tokens": -3}, "cache_read_input_tokens is -3, below 0"),
        ({"prompt_tokens": 1.5}, r"prompt_tokens is 1\.5, no whole number"),
        ({"prompt_tokens": True}, "prompt_tokens is True, no whole number"),
        ({"prompt_tokens": "12"}, "prompt_tokens is '12', no whole number"),
        ({"inputTokens": 1, "outputTokens": float("nan")}, "outputTokens is nan, no whole number"),
    ],
)
def test_what_is_no_usage_is_refused(response: object, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        usage_of(response)


@pytest.mark.parametrize("tokens", [-1, 0.5, None, "7", True])
def test_a_usage_has_whole_numbers(tokens: Any) -> None:
    with pytest.raises(UsageError, match="input_tokens is"):
        Usage(tokens)
    with pytest.raises(UsageError, match="output_tokens is"):
        Usage(1, tokens)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["usage", "usage_metadata", "prompt_tokens", "input_tokens", "outputTokens", "inputTokens", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@given(json_values)
def test_whatever_is_passed_is_read_or_refused_and_never_changed(value: object) -> None:
    before = json.dumps(value)
    try:
        usage = usage_of(value)
    except UsageError:
        usage = None
    assert usage is None or min(usage.input_tokens, usage.output_tokens) >= 0
    assert json.dumps(value) == before
