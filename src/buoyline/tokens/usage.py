"""The windows of known models, and the token usage that a provider reports."""

import difflib
import functools
import json
import operator
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from importlib import resources
from typing import Any, Final, NamedTuple, SupportsIndex, cast

from buoyline.errors import ConfigError, NotFoundError, UsageError


class ModelLimits(NamedTuple):
    """The limits of one request to a model.

    Attributes:
        context_tokens: The window: the request and, except for Google's models, the answer.
        max_output_tokens: The longest answer; None if the vendor states no number of its own.
    """

    context_tokens: int
    max_output_tokens: int | None = None


@functools.cache
def models() -> Mapping[str, ModelLimits]:
    """Return limits by the shortest name that the vendor uses, without dates and tags, with ``-`` for each point."""
    table = resources.files("buoyline.tokens").joinpath("data", "models.json").read_text("utf-8")
    vendors: dict[str, dict[str, list[int]]] = json.loads(table)
    return {_POINT.sub("-", name): ModelLimits(*limits) for named in vendors.values() for name, limits in named.items()}


_POINT = re.compile(r"(?<=\d)[.](?=\d)")  # claude-3.5-sonnet, gpt-4.1

# Who serves it: "openai/", "openai:", "models/", "us.anthropic.", "arn:aws:bedrock:...:foundation-model/meta."
_HOST = re.compile(r"^(?:.*/)?(?:[a-z_-]+:)?(?:(?:[a-z-]{2,10}\.)?[a-z]{2,10}[0-9]{0,2}\.)?(?=[a-z])")
# What may follow without making it another model: dates, revisions, and what its host says of it.
_VARIANT = re.compile(
    r"(?:[-@:](?:\d{3,8}|\d{4}-\d\d-\d\d|\d\d-\d\d(?:\d\d)?|v\d+(?::\d+k?)*"
    r"|latest|default|preview|exp|stable|beta|free|instruct|chat|it|fp8))*"
)


def context_size(model: str) -> int:
    """Return the tokens of the window of *model*, at least 1.

    Dates, revisions and the names of hosts make no difference: ``claude-sonnet-4-5-20250929``,
    ``openai/gpt-4o-2024-08-06``, ``us.anthropic.claude-sonnet-4-5-20250929-v1:0`` and ``models/gemini-2.5-pro`` are all
    found. A known name with any other suffix may be another model, and is not guessed at.

    Raises:
        NotFoundError: *model*, as it is sent to the provider, is not in the table; the error names similar ones.
    """
    return _limits_of(model).context_tokens


def max_output(model: str) -> int | None:
    """Return the most tokens that *model* answers with, or None if its vendor states no number of its own.

    Raises:
        NotFoundError: *model* is not in the table.
    """
    return _limits_of(model).max_output_tokens


def _limits_of(model: str) -> ModelLimits:
    if not isinstance(model, str):
        raise ConfigError("model", f"must be a text, not {type(model).__name__}")
    name = _POINT.sub("-", _HOST.sub("", model.strip().lower()))
    # The longest name that *name* begins with, if only a variant follows.
    for end in range(len(name), 0, -1):
        if name[:end] in models() and _VARIANT.fullmatch(name, end):
            return models()[name[:end]]
    near = difflib.get_close_matches(name, models())
    similar = f"similar are {', '.join(near)}; " if near else ""
    raise NotFoundError("model", model, f"{similar}pass its size in tokens, as its vendor documents it")


USAGE_FIELDS: Final = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens")


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request, by the provider's own count.

    Attributes:
        input_tokens: Of the whole request, including tokens read from a cache and written to one.
        output_tokens: Of the part of the answer that will be sent again; 0 if unknown.
        cached_tokens: Of *input_tokens*, those that were read from a cache; 0 if unknown.
        cache_write_tokens: Of *input_tokens*, those that were written to a cache; 0 if unknown.

    Raises:
        UsageError: One of them is not a whole number, or is negative.
    """

    input_tokens: int
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0

    def __post_init__(self) -> None:
        """Check all."""
        for name in USAGE_FIELDS:
            object.__setattr__(self, name, _whole(getattr(self, name), name))


class _Form(NamedTuple):
    """The fields of a form, each by its way; the first that is there counts.

    Attributes:
        sent: Fields that add up to the input; the first one identifies the form.
        answered: Of the output.
        cached: Of what was read from a cache.
        written: Of what was written to one.
        discarded: Of the part of the output that is not sent again.
    """

    sent: tuple[str, ...]
    answered: str
    cached: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    discarded: tuple[str, ...] = ()


# LiteLLM gives Anthropic's cache fields beside OpenAI's prompt_tokens, which include them: that form comes first.
# The input tokens of Anthropic and Bedrock exclude tokens read from or written to the cache; the others include them.
# OpenAI's Responses, LangChain and Pydantic AI share Anthropic's names, without its cache fields.
_READ, _WRITTEN = "cache_read_input_tokens", "cache_creation_input_tokens"
_FORMS = (
    _Form(
        ("prompt_tokens",),
        "completion_tokens",
        ("prompt_tokens_details.cached_tokens", _READ),
        (_WRITTEN,),
        ("completion_tokens_details.reasoning_tokens",),
    ),
    _Form(
        ("input_tokens", _READ, _WRITTEN),
        "output_tokens",
        (_READ, "input_tokens_details.cached_tokens", "input_token_details.cache_read", "cache_read_tokens"),
        (
            _WRITTEN,
            "input_tokens_details.cache_write_tokens",
            "input_token_details.cache_creation",
            "cache_write_tokens",
        ),
    ),
    _Form(
        ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens"),
        "outputTokens",
        ("cacheReadInputTokens",),
        ("cacheWriteInputTokens",),
    ),
    _Form(("prompt_token_count",), "candidates_token_count", ("cached_content_token_count",)),
    _Form(("promptTokenCount",), "candidatesTokenCount", ("cachedContentTokenCount",)),
    _Form(("prompt_eval_count",), "eval_count"),
    _Form(
        ("input_token_count",),
        "output_token_count",
        ("cache_read_input_token_count",),
        ("cache_creation_input_token_count",),
    ),
)

# Ollama has its counts in the response itself, and none in the pieces of a stream but the last.
_HOLDERS = ("usage", "usage_metadata", "usageMetadata", "usage_details", "prompt_eval_count")


def usage_of(response: object) -> Usage | None:
    """Read the usage from a provider's response, or from the usage object in it.

    Known are OpenAI's chat completions and responses (and compatible ones), Anthropic, Bedrock and Strands,
    Gemini, Ollama, LangChain's ``usage_metadata``, Pydantic AI and Microsoft's Agent Framework, as objects or as JSON.
    Their packages are not imported. A `Usage` is returned as it is.

    Returns:
        The usage; None if the response has a field for it but no value, as in a stream that was not asked for it.

    Raises:
        UsageError: *response* has no field for a usage, or a value in it is not a whole number of tokens.
    """
    if response is None or isinstance(response, Usage):
        return response
    usage, form = response, _form_of(response)
    if form is None:
        holders = [name for name in _HOLDERS if _has(response, name)]
        usage = next((held for name in holders if (held := _field(response, name)) is not None), None)
        if holders and (usage is None or isinstance(usage, Usage)):
            return usage
        form = _form_of(usage)
    if form is None:
        kind = type(response if usage is None else usage).__name__
        raise UsageError(f"{kind} has none that is known; pass the response of the provider, its usage, or a Usage")
    sent = sum(_number(usage, (name,)) for name in form.sent)
    answered = max(_number(usage, (form.answered,)) - _number(usage, form.discarded), 0)
    cached = min(_number(usage, form.cached), sent)
    return Usage(sent, answered, cached, min(_number(usage, form.written), sent - cached))


def model_of(response: object) -> str:
    """Return the name of the model that gave *response*; empty if it does not say."""
    ways = ("model", "model_name", "response_metadata.model_name", "response_metadata.model", "model_version")
    found = (reduce(_field, way.split("."), response) for way in ways)
    return next((name for name in found if isinstance(name, str)), "")


def _form_of(usage: object) -> _Form | None:
    return next((form for form in _FORMS if _field(usage, form.sent[0]) is not None), None)


def _number(usage: object, ways: Iterable[str]) -> int:
    """Return the number at the first of *ways* that leads to one; 0 if none does."""
    for way in ways:
        value = reduce(_field, way.split("."), usage)
        if value is not None:
            return _whole(value, way)
    return 0


def _whole(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise UsageError(f"{name} is {value!r}, no whole number")
    number = operator.index(value)
    if number < 0:
        raise UsageError(f"{name} is {number}, below 0")
    return number


def _field(value: object, name: str) -> Any:
    if isinstance(value, Mapping):
        return cast("Mapping[object, Any]", value).get(name)
    return getattr(value, name, None)


def _has(value: object, name: str) -> bool:
    return name in value if isinstance(value, Mapping) else hasattr(value, name)
