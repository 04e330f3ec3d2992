"""`ModelSummarizer`: a model writes the summary."""

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from buoyline.compression.extractive.summarizer import with_facts
from buoyline.compression.summarizers.attempts import asked
from buoyline.compression.summarizers.prompt import Prompt
from buoyline.compression.summary import Draft, Summarizer, SummaryRequest
from buoyline.errors import ConfigError, NotFoundError, imported
from buoyline.tokens.models import context_size as known_context_size
from buoyline.tokens.models import max_output

if TYPE_CHECKING:
    from pydantic_ai.models import Model

logger = logging.getLogger(__name__)

_UNKNOWN_CONTEXT_SIZE: Final = 32_000
"""For an unknown model; nearly all have as much today. A model with less refuses, and is asked with less."""

_REASONING_TOKENS: Final = 4_096
"""Added to the answer: many models reason before they write, and reasoning counts as output."""

_MOST_OUTPUT_SHARE: Final = 0.33
"""Of the window, for the answer with the reasoning."""


class ModelSummarizer:
    """Lets a model write the summary.

    The model sees the transcript with its line numbers and updates the previous summary. Its claims and citations are
    checked; requests, prohibitions, checks, changed files and errors that it does not say are added, in at most a
    quarter of the tokens. If an answer cannot be used, the model is asked once more; then a `SummaryError` says why,
    and the extractive summarizer takes over.
    """

    def __init__(
        self,
        model: "str | Model",
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        context_size: int | None = None,
        settings: Mapping[str, Any] | None = None,
        max_attempts: int = 4,
        timeout_s: float = 120.0,
    ) -> None:
        """Name the model and the bounds of its requests.

        Args:
            model: ``"provider:model"`` as pydantic-ai spells it, e.g. ``"anthropic:claude-haiku-4-5"``, or one of its
                model objects.
            base_url: Of a server with the API of OpenAI's chat completions, such as a local one.
            api_key: For *base_url*; most local servers want none.
            context_size: Tokens of the model's window. Default: as known for the model, else 32,000.
            settings: pydantic-ai's ``ModelSettings`` such as ``temperature``; they override our own.
            max_attempts: Requests for one summary.
            timeout_s: Of one request.

        Raises:
            MissingExtraError: pydantic-ai is not installed.
            ConfigError: The provider's package is not installed, the model does not exist, or a value
                cannot work.
        """
        for name, value in (("max_attempts", max_attempts), ("timeout_s", timeout_s), ("context_size", context_size)):
            if value is not None and not value > 0:
                raise ConfigError(name, f"{value!r} is not above 0")
        self._given, self._base_url, self._api_key = model, base_url, api_key
        self._settings, self._max_attempts, self._timeout_s = dict(settings or {}), max_attempts, timeout_s
        found = self._model()  # here, so that a wrong name is an error of the configuration, and not of a compaction
        self.name: str = model if isinstance(model, str) else str(found.model_id)
        self.context_size: int = context_size or _size_of(found)
        self._max_output = _max_output_of(found)

    def _model(self) -> "Model":
        """Return the model. A named one is built for each summary, since a client belongs to one event loop."""
        provider = _provider()
        if not isinstance(self._given, str):
            return self._given
        named: Model = provider.model_named(self._given, base_url=self._base_url, api_key=self._api_key)
        return named

    async def summarize(self, request: SummaryRequest) -> Draft:
        """Return the model's summary.

        Raises:
            SummaryError: There was no usable answer within the bounds; it says why.
        """
        # JSON adds signs and escapes to the text, and the model counts other tokens than buoyline.
        output = min(2 * request.max_tokens + _REASONING_TOKENS, int(self.context_size * _MOST_OUTPUT_SHARE))
        output = max(min(output, self._max_output or output), 1)
        model = self._model()
        await model.__aenter__()
        try:
            draft = await asked(
                partial(self._send, model, output),
                request,
                name=self.name,
                max_tokens=self.context_size - output,
                timeout_s=self._timeout_s,
                max_attempts=self._max_attempts,
            )
        finally:
            try:
                await model.__aexit__(None, None, None)
            except (OSError, RuntimeError) as error:  # threads may share its connections, and a loop have ended
                logger.info("summary by %s: the client could not be closed (%s)", self.name, type(error).__name__)
        return await asyncio.to_thread(with_facts, draft, request)

    async def _send(self, model: "Model", output_tokens: int, prompt: Prompt) -> str:
        settings = {"max_tokens": output_tokens, "timeout": self._timeout_s, **self._settings}
        answer: str = await _provider().ask(model, prompt, settings)
        return answer


def _size_of(model: "Model") -> int:
    try:
        return known_context_size(model.model_name)
    except NotFoundError:
        return _provider().window_of(model) or _UNKNOWN_CONTEXT_SIZE


def _max_output_of(model: "Model") -> int | None:
    try:
        return max_output(model.model_name)
    except NotFoundError:
        return None


def _provider() -> Any:
    return imported("buoyline.compression.summarizers.provider", extra="model")


if TYPE_CHECKING:
    _conforms: type[Summarizer] = ModelSummarizer
