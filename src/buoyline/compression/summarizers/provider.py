"""Reach a model through pydantic-ai; the only module that imports it.

Its model classes cover the providers and sort their errors. Requests are made directly, without its agents: `asked`
alone decides if a request is repeated.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

from pydantic_ai import exceptions
from pydantic_ai.direct import model_request
from pydantic_ai.messages import ModelRequest, SystemPromptPart, TextPart, UserPromptPart
from pydantic_ai.models import Model, infer_model

from buoyline.compression.summarizers.model import Failure, Kind
from buoyline.compression.summarizers.prompt import Prompt
from buoyline.errors import ConfigError

if TYPE_CHECKING:
    from pydantic_ai.settings import ModelSettings

_MOST_REASON_CHARS: Final = 300
_BUSY_STATUSES: Final = frozenset({408, 409, 425, 429})
_TOO_LARGE_STATUS: Final = 413
_OVERFLOW_WORDS: Final = (
    "context length", "context_length", "context size", "context window", "too many tokens", "prompt is too long",
)  # fmt: skip


def model_named(name: str, *, base_url: str | None, api_key: str | None) -> Model:
    """Return the model *name*, with a client of its own; with *base_url* the part before the colon is ignored.

    Raises:
        ConfigError: The provider does not exist, its package is not installed, or it has no key.
    """
    try:
        if base_url is None:
            return infer_model(name)
        from pydantic_ai.models.openai import OpenAIChatModel  # noqa: PLC0415 - an extra of its own
        from pydantic_ai.providers.openai import OpenAIProvider  # noqa: PLC0415 - as above

        provider = OpenAIProvider(base_url=base_url, api_key=api_key or "none")
        return OpenAIChatModel(name.partition(":")[2] or name, provider=provider)
    except (exceptions.UserError, ImportError, ValueError) as error:
        raise ConfigError("model", f"{name!r}: {error}") from error


def window_of(model: Model) -> int | None:
    """Return the size of the model's window if pydantic-ai knows it."""
    try:
        return model.profile.get("context_window")
    except NotImplementedError:  # a FallbackModel has none of its own
        return None


async def ask(model: Model, prompt: Prompt, settings: Mapping[str, object]) -> str:
    """Send one request and return the answer; neither buoyline nor the provider's client repeats it here.

    Raises:
        Failure: There is no answer.
    """
    request = ModelRequest([SystemPromptPart(prompt.system), UserPromptPart(prompt.user)])
    merged = cast("ModelSettings", {"max_retries": 0, **settings})
    try:
        response = await model_request(model, [request], model_settings=merged)
    except (exceptions.AgentRunError, exceptions.UserError, exceptions.FallbackExceptionGroup) as error:
        raise _failure(error) from error
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        # pydantic-ai does not expect an answer without choices or of broken JSON, and fails with any of these.
        raise Failure("busy", f"the answer has no known form ({type(error).__name__}: {error})") from error
    if response.finish_reason in ("length", "content_filter"):
        cut = response.finish_reason == "length"
        raise Failure("unusable", "it was cut off" if cut else "a content filter stopped it")
    return "\n".join(part.content for part in response.parts if isinstance(part, TextPart))


def _failure(error: Exception) -> Failure:
    """Return *error* as a `Failure`; of several models that all failed, the one that another request may help."""
    if isinstance(error, exceptions.FallbackExceptionGroup):
        found = [_failure(inner) for inner in error.exceptions if isinstance(inner, Exception)]
        return next((one for one in found if one.kind in ("busy", "too large")), found[0])
    return Failure(_kind_of(error), f"{type(error).__name__}: {' '.join(str(error).split())[:_MOST_REASON_CHARS]}")


def _kind_of(error: Exception) -> Kind:
    status = error.status_code if isinstance(error, exceptions.ModelHTTPError) else 0
    said = str(error.body if isinstance(error, exceptions.ModelHTTPError) else "").casefold()
    is_overflow = isinstance(error, exceptions.ModelContextWindowExceededError) or status == _TOO_LARGE_STATUS
    if is_overflow or any(words in said for words in _OVERFLOW_WORDS):
        return "too large"
    if isinstance(error, (exceptions.ContentFilterError, exceptions.IncompleteToolCall)):
        return "unusable"
    no_access = (exceptions.ModelQuotaExceededError, exceptions.ModelAuthenticationError, exceptions.UserError)
    is_refused = 400 <= status < 500 and status not in _BUSY_STATUSES  # noqa: PLR2004 - HTTP's
    return "hopeless" if is_refused or isinstance(error, no_access) else "busy"
