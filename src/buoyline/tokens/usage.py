"""The token usage of a request, read from a provider's response, and the prices of its tokens."""

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import reduce
from typing import Any, Final, NamedTuple, Self, SupportsIndex, cast

from buoyline.errors import ConfigError, UsageError

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
    _Form(("prompt_eval_count",), "eval_count"),
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

# Ollama has its counts in the response itself, and none in the pieces of a stream but the last.
_HOLDERS = ("usage", "usage_metadata", "usageMetadata", "prompt_eval_count")


def usage_of(response: object) -> Usage | None:
    """Read the usage from a provider's response, or from the usage object in it.

    Known are OpenAI's chat completions and responses (and compatible ones), Anthropic, Bedrock and Strands,
    Gemini, Ollama, and LangChain's ``usage_metadata``, as objects or as JSON. Their packages are not imported. A
    `Usage` is returned as it is.

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
        if not holders:
            kind = type(response).__name__
            raise UsageError(f"{kind} holds none; pass the response of the provider, its usage, or a Usage")
        usage = next((held for name in holders if (held := _field(response, name)) is not None), None)
        if usage is None or isinstance(usage, Usage):
            return usage
        form = _form_of(usage)
        if form is None:
            kind = type(usage).__name__
            raise UsageError(f"{kind} has no form that is known; pass Usage(input_tokens, output_tokens)")
    sent = sum(_number(usage, name) for name in form.sent)
    answered = _number(usage, form.answered)
    if form.discarded is not None:
        details, discarded = form.discarded
        answered = max(answered - _number(_field(usage, details), discarded), 0)
    cached = min(_first_number(usage, _CACHED), sent)
    return Usage(sent, answered, cached, min(_first_number(usage, _CACHE_WRITES), sent - cached))


def model_of(response: object) -> str:
    """Return the name of the model that gave *response*; empty if it does not say."""
    model = _field(response, "model")
    return model if isinstance(model, str) else ""


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


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of a million tokens, in any currency.

    None for input from the cache, or for input that is added to it: the price of other input.
    """

    input: float
    output: float
    cached: float | None = None
    cache_write: float | None = None

    def __post_init__(self) -> None:
        """Raise `ConfigError` if a price is not a number, or is negative or infinite."""
        for name, price in asdict(self).items():
            is_price = isinstance(price, int | float) and not isinstance(price, bool)
            if price is not None and not (is_price and math.isfinite(price) and price >= 0):
                raise ConfigError(f"price of {name}", f"{price!r} is not an amount of 0 or more for a million tokens")

    @classmethod
    def of(cls, table: object) -> Self:
        """Read a table such as ``{"input": 3, "cached": 0.3, "output": 15}``.

        Raises:
            ConfigError: It is not a table, lacks input or output, has other keys, or a value is not a price.
        """
        names = [field.name for field in fields(cls)]
        if not isinstance(table, Mapping):
            raise ConfigError("prices", f'{type(table).__name__} is not a table such as {{"input": 3, "output": 15}}')
        given = cast("Mapping[str, Any]", table)
        unknown = [str(name) for name in given if name not in names]
        missing = [name for name in ("input", "output") if given.get(name) is None]
        if unknown or missing:
            problem = f"has no {' and no '.join(missing)}" if missing else f"{unknown[0]!r} is unknown"
            raise ConfigError("prices", f"{problem}; the keys are {', '.join(names)}")
        return cls(**given)
