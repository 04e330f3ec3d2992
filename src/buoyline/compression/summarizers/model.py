"""`ModelSummarizer`: a model writes the summary; it is asked again within bounds, and its answer is checked."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from buoyline.compression.summarizers.attempts import Retries
from buoyline.compression.summarizers.callables import ModelExchange, Question, Reply
from buoyline.compression.summary import Draft, Summarizer, SummaryRequest
from buoyline.errors import ConfigError, NotFoundError
from buoyline.tokens.models import context_size as known_context_size
from buoyline.tokens.models import max_output

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from buoyline.compression.summarizers.provider import OutputMode

logger = logging.getLogger(__name__)

UNKNOWN_CONTEXT_SIZE: Final = 32_000
"""For an unknown model; nearly all have as much today. A model with less refuses, and is asked with less."""

REASONING_TOKENS: Final = 4_096
"""Added to the answer: many models reason before they write, and reasoning counts as output."""

MAX_OUTPUT_SHARE: Final = 0.33
"""Of the window, for the answer with the reasoning."""

_MODES: Final = ("auto", "native", "tool", "text")


class ModelSummarizer:
    """Lets a model write the summary, through the model classes of pydantic-ai.

    The model sees the transcript with its line numbers and updates the previous summary. Its answer must follow the
    schema of the summary and keep to its tokens; the `Compressor` checks its citations and claims. If an answer cannot
    be used, the model is asked again a few times; then a `SummaryError` says why, and the extractive summarizer takes
    over.
    """

    def __init__(
        self,
        model: "str | Model",
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        provider: object = None,
        context_size: int | None = None,
        output: "OutputMode" = "auto",
        settings: Mapping[str, Any] | None = None,
        max_attempts: int = 4,
        timeout_s: float = 120.0,
        first_wait_s: float = 1.0,
        max_wait_s: float = 30.0,
    ) -> None:
        """Name the model and the bounds of its requests.

        Args:
            model: ``"provider:model"`` as pydantic-ai spells it, e.g. ``"anthropic:claude-haiku-4-5"``, or one of its
                model objects.
            base_url: Of a server with the API of OpenAI's chat completions, such as a local one.
            api_key: For *base_url*.
            provider: A provider object of pydantic-ai, with a client of your own.
            context_size: Tokens of the model's window. Default: as known for the model, else 32,000.
            output: How the provider gets the schema: ``"native"``, as the output of a ``"tool"``, as ``"text"`` in the
                prompt, or ``"auto"``, the best that the model offers.
            settings: pydantic-ai's ``ModelSettings`` such as ``temperature``; they override our own.
            max_attempts: See `Retries`.
            timeout_s: See `Retries`.
            first_wait_s: See `Retries`.
            max_wait_s: See `Retries`.

        Raises:
            ConfigError: pydantic-ai or the provider's package is not installed, the model does not exist, or a value
                cannot work.
        """
        self._retries = Retries(
            max_attempts=max_attempts, timeout_s=timeout_s, first_wait_s=first_wait_s, max_wait_s=max_wait_s
        )
        if output not in _MODES:
            raise ConfigError("output", f"{output!r} is none of {', '.join(_MODES)}")
        if context_size is not None and context_size < 1:
            raise ConfigError("context_size", f"{context_size!r} is no whole number above 0")
        self._given = model
        self._access: dict[str, Any] = {"base_url": base_url, "api_key": api_key, "provider": provider}
        self._output: OutputMode = output
        self._settings: dict[str, Any] = dict(settings or {})
        found = self._model()  # here, so that a wrong name is an error of the configuration, and not of a compression
        self.name: str = model if isinstance(model, str) else str(found.model_id)
        self.context_size: int = context_size or _size_of(found)
        self._max_output = _max_output(found)

    def _model(self) -> "Model":
        """Return the model. A named one is built for each summary, since a client belongs to one event loop."""
        provider = _provider()
        if not isinstance(self._given, str):
            return self._given
        named: Model = provider.model_named(self._given, **self._access)
        return named

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator["Model"]:
        """Enter the model; its client may fail to close, since the answer is there by then.

        Threads that share a model object share its connections, and the event loop of one may have ended.
        """
        model = self._model()
        await model.__aenter__()
        try:
            yield model
        finally:
            try:
                await model.__aexit__(None, None, None)
            except (OSError, RuntimeError) as error:
                logger.info("summary by %s: the client could not be closed (%s)", self.name, type(error).__name__)

    async def summarize(self, request: SummaryRequest) -> Draft:
        """Return the model's summary.

        Raises:
            SummaryError: There was no usable answer within the bounds; it says why.
        """
        spoken = [source.message.spoken for source in request.sources]
        source_tokens = await asyncio.to_thread(lambda: sum(map(request.counter.count, spoken)))
        answer_tokens = max(min(request.max_tokens, source_tokens - 1), 1)
        # JSON adds signs and escapes to the text, and the model counts other tokens than buoyline.
        output = min(2 * answer_tokens + REASONING_TOKENS, int(self.context_size * MAX_OUTPUT_SHARE))
        output = max(min(output, self._max_output or output), 1)
        async with self._opened() as model:
            exchange = ModelExchange(
                name=self.name,
                request=request,
                send=partial(self._send, model, output),
                retries=self._retries,
                max_tokens=self.context_size - output,
                answer_tokens=answer_tokens,
                is_plain=self._output == "text",
            )
            return await exchange.draft()

    async def _send(self, model: "Model", output_tokens: int, question: Question) -> Reply:
        # Less after an overflow: many servers count the tokens reserved for the answer, too.
        share = question.max_tokens * MAX_OUTPUT_SHARE / (1 - MAX_OUTPUT_SHARE)
        output_tokens = max(min(output_tokens, int(share)), 1)
        settings = {"max_tokens": output_tokens, "timeout": self._retries.timeout_s, **self._settings}
        reply: Reply = await _provider().ask(model, question, mode=self._output, settings=settings)
        return reply


def _size_of(model: "Model") -> int:
    try:
        return known_context_size(model.model_name)
    except NotFoundError:
        return _provider().window_of(model) or UNKNOWN_CONTEXT_SIZE


def _max_output(model: "Model") -> int | None:
    try:
        return max_output(model.model_name)
    except NotFoundError:
        return None


def _provider() -> Any:
    """Import pydantic-ai, which only a model summarizer needs.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        from buoyline.compression.summarizers import provider  # noqa: PLC0415 - an extra
    except (AttributeError, ImportError) as error:  # an older one lacks names
        problem = f"needs the extra 'model', with pydantic-ai 2.62 or newer ({error})"
        raise ConfigError("model", problem) from error
    return provider


if TYPE_CHECKING:
    _conforms: type[Summarizer] = ModelSummarizer
