"""The token usage of a request, read from a provider's response."""

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, NamedTuple, SupportsIndex, cast

from buoyline.errors import UsageError

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
    sent: tuple[str, ...]
    """Names of the fields that add up to the input; the first one identifies the form."""
    answered: str
    discarded: tuple[str, str] | None = None
    """The part of the answer that is not sent again: the object that holds its field, and the field."""


# LiteLLM gives Anthropic's cache fields beside OpenAI's prompt_tokens, which include them: that form comes first.
# The input tokens of Anthropic and Bedrock exclude tokens read from or written to the cache; the others include them.
_FORMS = (
    _Form(("prompt_tokens",), "completion_tokens", ("completion_tokens_details", "reasoning_tokens")),
    _Form(("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"), "output_tokens"),
    _Form(("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens"), "outputTokens"),
    _Form(("prompt_token_count",), "candidates_token_count"),
    _Form(("promptTokenCount",), "candidatesTokenCount"),
)
_CACHED = (
    ("prompt_tokens_details", "cached_tokens"),
    ("cache_read_input_tokens",),
    ("input_tokens_details", "cached_tokens"),
    ("input_token_details", "cache_read"),
    ("cacheReadInputTokens",),
    ("cached_content_token_count",),
    ("cachedContentTokenCount",),
)
_CACHE_WRITES = (
    ("cache_creation_input_tokens",),
    ("input_tokens_details", "cache_write_tokens"),
    ("input_token_details", "cache_creation"),
    ("cacheWriteInputTokens",),
)
"""Ways to the fields with the tokens that were read from a cache, and written to one."""

_HOLDERS = ("usage", "usage_metadata", "usageMetadata")


def usage_of(response: object) -> Usage | None:
    """Read the usage from a provider's response, or from the usage object in it.

    Known are OpenAI's chat completions and responses (and compatible ones), Anthropic, Bedrock and Strands,
    Gemini, and LangChain's ``usage_metadata``, as objects or as JSON. Their packages are not imported. A `Usage` is
    returned as it is.

    Returns:
        The usage; None if the response has a field for it but no value, as in a stream that was not asked for it.

    Raises:
        UsageError: *response* has no field for a usage, or a value in it is not a whole number of tokens.
    """
    if response is None or isinstance(response, Usage):
        return response
    form = _form_of(response)
    if form is not None:
        return _read(response, form)
    held = [value for name in _HOLDERS if (value := _field(response, name)) is not None]
    if held:
        usage = held[0]
        if isinstance(usage, Usage):
            return usage
        form = _form_of(usage)
        if form is None:
            raise UsageError(
                f"{type(usage).__name__} has no form that is known; pass Usage(input_tokens, output_tokens)"
            )
        return _read(usage, form)
    if any(_has(response, name) for name in _HOLDERS):
        return None
    raise UsageError(f"{type(response).__name__} holds none; pass the response of the provider, its usage, or a Usage")


def model_of(response: object) -> str:
    """Return the name of the model that gave *response*; empty if it does not say."""
    model = _field(response, "model")
    return model if isinstance(model, str) else ""


def _read(usage: object, form: _Form) -> Usage:
    sent = sum(_number(usage, name) for name in form.sent)
    answered = _number(usage, form.answered)
    if form.discarded is not None:
        details, discarded = form.discarded
        answered = max(answered - _number(_field(usage, details), discarded), 0)
    cached = min(_first_number(usage, _CACHED), sent)
    return Usage(sent, answered, cached, min(_first_number(usage, _CACHE_WRITES), sent - cached))


def _form_of(usage: object) -> _Form | None:
    return next((form for form in _FORMS if _field(usage, form.sent[0]) is not None), None)


def _first_number(usage: object, ways: Iterable[Sequence[str]]) -> int:
    """Return the number at the first of *ways* that leads to one; 0 if none does."""
    found = (reduce(_field, way, usage) for way in ways)
    return next((_whole(value, "the cached tokens") for value in found if value is not None), 0)


def _number(usage: object, name: str) -> int:
    value = _field(usage, name)
    return 0 if value is None else _whole(value, name)


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
