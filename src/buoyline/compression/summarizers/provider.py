"""Reach a model through pydantic-ai; the only module that imports it.

Its model classes cover the providers and classify their errors. Requests are made directly, without its agents:
`buoyline.compression.summarizers.callables` alone decides if a request is repeated.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from pydantic_ai import exceptions
from pydantic_ai.direct import model_request
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, infer_model
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.tools import ToolDefinition

from buoyline.compression.summarizers.attempts import Failure, FailureKind
from buoyline.compression.summarizers.callables import Question, Reply
from buoyline.errors import ConfigError

if TYPE_CHECKING:
    from pydantic_ai.settings import ModelSettings

OutputMode: TypeAlias = Literal["auto", "native", "tool", "text"]

_TOOL: Final = "write_summary"
_TOOL_DESCRIPTION: Final = "Write down the summary."
_BUSY_STATUSES: Final = frozenset({408, 409, 425, 429})
_MAX_REASON_CHARS: Final = 300


def model_named(name: str, *, base_url: str | None, api_key: str | None, provider: Any) -> Model:
    """Return the model *name*, with a client of its own.

    Args:
        name: ``"provider:model"``; with *base_url* the part before the colon is ignored.
        base_url: Of a server with the API of OpenAI's chat completions.
        api_key: For *base_url*. Default: a dummy, since most local servers want none.
        provider: A provider of pydantic-ai that replaces the one in *name*.

    Raises:
        ConfigError: The provider does not exist, its package is not installed, or it has no key.
    """
    try:
        if base_url is not None:
            from pydantic_ai.models.openai import OpenAIChatModel  # noqa: PLC0415 - an extra of its own
            from pydantic_ai.providers.openai import OpenAIProvider  # noqa: PLC0415 - as above

            plain = name.partition(":")[2] or name
            return OpenAIChatModel(plain, provider=OpenAIProvider(base_url=base_url, api_key=api_key or "none"))
        if provider is not None:
            return infer_model(name, provider_factory=lambda _: provider)
        return infer_model(name)
    except (exceptions.UserError, ImportError, ValueError) as error:
        raise ConfigError("model", f"{name!r}: {error}") from error


def window_of(model: Model) -> int | None:
    """Return the size of the model's window if pydantic-ai knows it."""
    return model.profile.get("context_window")


async def ask(model: Model, question: Question, *, mode: OutputMode, settings: Mapping[str, object]) -> Reply:
    """Send one request and return the answer; neither buoyline nor the provider's client repeats it here.

    *model* is entered, so that it has a client of the running loop. *mode* is how the provider gets the schema, unless
    the question itself spells it.

    Raises:
        Failure: There is no answer.
    """
    merged = cast("ModelSettings", {"max_retries": 0, **settings})
    try:
        response = await model_request(
            model,
            _messages(question),
            model_settings=merged,
            model_request_parameters=_parameters(question.schema, "text" if question.is_plain else mode),
        )
    except TimeoutError as error:
        raise Failure(FailureKind.BUSY, "no answer in time") from error
    except (exceptions.AgentRunError, exceptions.UserError, exceptions.FallbackExceptionGroup) as error:
        raise _failure(error) from error
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        # pydantic-ai does not expect an answer without choices or of broken JSON, and fails with any of these.
        raise Failure(
            FailureKind.BUSY, f"the server's answer has no known form ({type(error).__name__}: {error})"
        ) from error
    return _reply(response)


def _messages(question: Question) -> list[ModelMessage]:
    prompt = question.prompt
    messages: list[ModelMessage] = [ModelRequest([SystemPromptPart(prompt.system), UserPromptPart(prompt.user)])]
    for remark in question.remarks:
        if remark.answer:
            messages.append(ModelResponse([TextPart(remark.answer)]))
        messages.append(ModelRequest([UserPromptPart(remark.words)]))
    return messages


def _parameters(schema: Mapping[str, object], mode: OutputMode) -> ModelRequestParameters:
    if mode == "text":
        return ModelRequestParameters()
    return ModelRequestParameters(
        output_mode=mode,
        output_object=OutputObjectDefinition(json_schema=dict(schema), name=_TOOL, description=_TOOL_DESCRIPTION),
        output_tools=[
            ToolDefinition(
                name=_TOOL, description=_TOOL_DESCRIPTION, parameters_json_schema=dict(schema), kind="output"
            )
        ],
        allow_text_output=False,
    )


def _reply(response: ModelResponse) -> Reply:
    calls = [part for part in response.parts if isinstance(part, ToolCallPart)]
    content: object = "\n".join(part.content for part in response.parts if isinstance(part, TextPart))
    if calls:
        content = calls[0].args if calls[0].args is not None else ""
    details = response.provider_details or {}
    refusal = str(details.get("refusal") or "")
    if not refusal and response.finish_reason == "content_filter":
        refusal = "a content filter stopped the answer"
    return Reply(content, response.finish_reason == "length", refusal)


# In 2.62 only a call that is cut off has a class of its own; an answer that is cut off says so by its reason.
_OUTPUT_LIMIT: Final[type[Exception]] = getattr(exceptions, "OutputTokenLimitExceeded", exceptions.IncompleteToolCall)

_KINDS: Final[Sequence[tuple[tuple[type[Exception], ...], FailureKind]]] = (
    ((exceptions.ModelContextWindowExceededError,), FailureKind.OVERFLOW),
    (
        (exceptions.ModelQuotaExceededError, exceptions.ModelAuthenticationError, exceptions.ModelNotFoundError),
        FailureKind.HOPELESS,
    ),
    (
        (
            exceptions.ModelRateLimitError,
            exceptions.ModelUnavailableError,
            exceptions.ModelServerError,
            exceptions.ModelConnectionError,
        ),
        FailureKind.BUSY,
    ),
    ((exceptions.ModelRequestRejectedError,), FailureKind.REJECTED),
    ((exceptions.ContentFilterError,), FailureKind.REFUSED),
    ((_OUTPUT_LIMIT,), FailureKind.TRUNCATED),
    # If an answer does not have the provider's own form, the server is at fault, not the model.
    ((exceptions.UnexpectedModelBehavior, exceptions.ModelRequestTimeout), FailureKind.BUSY),
    ((exceptions.UserError,), FailureKind.REJECTED),
)
"""The first match holds: narrower classes come first."""

_OVERFLOW_WORDS: Final = (
    "context length",
    "context_length",
    "context size",  # of llama.cpp
    "context window",
    "too many tokens",
    "prompt is too long",
)


def _failure(error: Exception) -> Failure:
    """Return *error* as a `Failure`, with the provider's words and the wait that it asks for."""
    if isinstance(error, exceptions.FallbackExceptionGroup):
        found = [_failure(inner) for inner in error.exceptions if isinstance(inner, Exception)]
        return next((one for one in found if one.kind in {FailureKind.BUSY, FailureKind.OVERFLOW}), found[0])
    reason = " ".join(str(error).split())[:_MAX_REASON_CHARS]
    kind = next((kind for kinds, kind in _KINDS if isinstance(error, kinds)), None)
    if kind in {None, FailureKind.REJECTED} and isinstance(error, exceptions.ModelHTTPError):
        kind = _by_status(error)
    kind = kind or FailureKind.BUSY
    wait_s = error.retry_after if isinstance(error, exceptions.ModelAPIError) else None
    return Failure(kind, f"{type(error).__name__}: {reason}", wait_s if kind is FailureKind.BUSY else None)


def _by_status(error: exceptions.ModelHTTPError) -> FailureKind:
    """Judge an error that pydantic-ai leaves open: servers that only resemble a known API have codes of their own."""
    said = str(error.body).casefold()
    if error.status_code == 413 or any(words in said for words in _OVERFLOW_WORDS):  # noqa: PLR2004 - HTTP's
        return FailureKind.OVERFLOW
    return FailureKind.BUSY if error.status_code in _BUSY_STATUSES else FailureKind.REJECTED
