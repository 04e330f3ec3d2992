"""Telling a request that was refused as too long from all else that a provider's client raises.

AgentScope passes on what the client of each provider raises. They have no class in common, so an error is known by the
status and the words that it carries. Source: what the APIs of OpenAI, Anthropic, Google, DashScope, xAI, Mistral and
the servers vLLM and llama.cpp answer.
"""

from typing import Any, Final

_STATUSES: Final = frozenset({None, 400, 413, 422})
"""Under which a request may be too long; too many tokens in a minute, for one, are 429."""

_TOO_LARGE: Final = 413

_WORDS: Final = (
    "context length",
    "context_length",
    "context window",
    "context size",
    "context limit",
    "maximum context",
    "maximum prompt length",
    "model maximum",
    "max_model_len",
    "too many tokens",
    "too many total text bytes",
    "prompt is too long",
    "input is too long",
    "input token count",
    "range of input length",
)


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status that the clients of OpenAI, Anthropic, Google and others put on their errors."""
    for name in ("status_code", "code", "status"):
        found: Any = getattr(error, name, None)
        if isinstance(found, int):
            return found
    return None


def is_overflow(error: BaseException) -> bool:
    """Tell whether the provider has refused a request as too long."""
    status, said = status_of(error), str(error).casefold()
    return status == _TOO_LARGE or (status in _STATUSES and any(words in said for words in _WORDS))
