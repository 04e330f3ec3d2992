"""`ModelSummarizer`: a model writes the summary, is asked again within bounds, and is never trusted."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from buoyline.compression.summarizers.answers import fields_of
from buoyline.compression.summarizers.failure import Failure, Kind
from buoyline.compression.summarizers.prompting import prompt_for, schema_of
from buoyline.compression.summarizers.retrying import OVERFLOW_SHRINK, SHORTER, Attempts, Retries
from buoyline.compression.summarizers.shortening import shortened, total
from buoyline.compression.summary import Draft, Summarizer, SummaryRequest
from buoyline.errors import ConfigError, NotFoundError, SummaryError
from buoyline.tokens.models import context_size as known_context_size
from buoyline.tokens.models import max_output

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from buoyline.compression.summarizers.provider import OutputMode, Reply

logger = logging.getLogger(__name__)

UNKNOWN_CONTEXT_SIZE: Final = 32_000
"""Taken for a model that nobody knows: what nearly all have today. One with less says so, and is asked with less."""

REASONING_TOKENS: Final = 4_096
"""Beside the answer: many models think before they write, and their thoughts count as output."""

MAX_OUTPUT_SHARE: Final = 0.33
"""Of the window, for the answer with the thoughts."""

_MODES: Final = ("auto", "native", "tool", "text")
_SHOWN_ANSWER_TOKENS: Final = 2_000


@dataclass(slots=True)
class _Asking:
    """How the next request is made; each failure changes it, but for the limit."""

    limit: int
    max_tokens: int
    answer_tokens: int
    output_tokens: int
    mode: "OutputMode"
    remarks: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    too_long: dict[str, str] | None = None


class ModelSummarizer:
    """Lets a model write the summary, through the model classes of pydantic-ai.

    The model sees the transcript with its line numbers and brings the previous summary up to date. Its answer has to
    be of the summary's schema and within its tokens; what it cites and claims is checked by the `Compressor`. It is
    asked again a few times where that may help; then a `SummaryError` says why not, and the extractive summariser
    takes over.
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
        """Name the model, and say how long and how often it is asked.

        Args:
            model: ``"provider:model"`` as pydantic-ai spells it, e.g. ``"anthropic:claude-haiku-4-5"``, or one of its
                model objects.
            base_url: Of a server that speaks the API of OpenAI's chat completions, such as a local one.
            api_key: For *base_url*.
            provider: One of pydantic-ai's, with a client of your own.
            context_size: Tokens of the model's window. Left out: what is known of the model, else 32,000.
            output: How the provider is told of the schema: ``"native"``, as the output of a ``"tool"``, as ``"text"``
                in the prompt, or what the model does best.
            settings: pydantic-ai's ``ModelSettings`` such as ``temperature``; they go before our own.
            max_attempts: See `Retries`.
            timeout_s: See `Retries`.
            first_wait_s: See `Retries`.
            max_wait_s: See `Retries`.

        Raises:
            ConfigError: pydantic-ai or the provider's package is not installed, there is no such model, or a value
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
        """Return the model; one that was named anew for each summary, since a client belongs to one event loop."""
        provider = _provider()
        if not isinstance(self._given, str):
            return self._given
        named: Model = provider.model_named(self._given, **self._access)
        return named

    async def summarize(self, request: SummaryRequest) -> Draft:
        """Return the model's summary.

        Raises:
            SummaryError: There was no answer that can be used within the bounds; it says why.
        """
        asking, attempts = self._first(request), Attempts(self._retries)
        async with self._model() as model:
            while True:
                try:
                    return Draft(self.name, await self._asked(model, asking, request))
                except Failure as failure:
                    wait_s = attempts.wait_s(failure)
                    if wait_s is None:
                        return self._last_resort(asking, request, failure, attempts)
                    logger.info("summary by %s: %s; asked again in %.1f s", self.name, failure, wait_s)
                    _change(asking, failure)
                    await asyncio.sleep(wait_s)

    def _first(self, request: SummaryRequest) -> _Asking:
        answer_tokens = max(min(request.max_tokens, _source_tokens(request) - 1), 1)
        # JSON takes its signs and escapes beside the text, and the model's tokens are not ours.
        output = min(2 * answer_tokens + REASONING_TOKENS, int(self.context_size * MAX_OUTPUT_SHARE))
        output = max(min(output, self._max_output or output), 1)
        return _Asking(answer_tokens, self.context_size - output, answer_tokens, output, self._output)

    async def _asked(self, model: "Model", asking: _Asking, request: SummaryRequest) -> dict[str, str]:
        said = sum(request.counter.count(text) for remark in asking.remarks for text in remark)
        prompt = prompt_for(
            request,
            max_tokens=asking.max_tokens - said,
            answer_tokens=asking.answer_tokens,
            spell_schema=asking.mode == "text",
        )
        try:
            async with asyncio.timeout(self._retries.timeout_s):
                reply = await _provider().ask(
                    model,
                    prompt,
                    asking.remarks,
                    schema=schema_of(request),
                    mode=asking.mode,
                    settings={"max_tokens": asking.output_tokens, "timeout": self._retries.timeout_s, **self._settings},
                )
        except TimeoutError as error:
            raise Failure(Kind.BUSY, f"no answer within {self._retries.timeout_s:g} s") from error
        return _fields(reply, asking, request)

    def _last_resort(self, asking: _Asking, request: SummaryRequest, failure: Failure, attempts: Attempts) -> Draft:
        if asking.too_long is not None:
            logger.info("summary by %s: %s; cut to %d tokens", self.name, failure, asking.limit)
            return Draft(self.name, shortened(asking.too_long, asking.limit, request.counter))
        times = "once" if attempts.made == 1 else f"{attempts.made} times"
        raise SummaryError(self.name, f"{failure}; asked {times}") from failure


def _fields(reply: "Reply", asking: _Asking, request: SummaryRequest) -> dict[str, str]:
    """Return the fields of an answer that can be used; remember what the next request should say of one that cannot."""
    if reply.refusal:
        raise Failure(Kind.REFUSED, f"the model refused: {reply.refusal}")
    if reply.is_cut:
        raise Failure(Kind.TRUNCATED, "the answer was cut off")
    try:
        fields = fields_of(reply.content, request)
    except Failure as failure:
        if failure.kind is Kind.MALFORMED:
            shown = request.counter.head(reply.text, _SHOWN_ANSWER_TOKENS)
            asking.remarks = [(shown, f"This cannot be used: {failure}. Write the whole summary again, in its form.")]
        raise
    tokens = total(fields, request.counter)
    if tokens > asking.limit:
        asking.too_long = fields
        raise Failure(Kind.INFLATED, f"the answer takes {tokens:,} tokens where {asking.limit:,} are allowed")
    return fields


def _change(asking: _Asking, failure: Failure) -> None:
    """Change the next request by what was wrong with this one."""
    match failure.kind:
        case Kind.OVERFLOW:
            asking.max_tokens = int(asking.max_tokens * OVERFLOW_SHRINK)
        case Kind.REJECTED:
            asking.mode = "text"
        case Kind.TRUNCATED | Kind.INFLATED:
            asking.answer_tokens = max(int(asking.answer_tokens * SHORTER), 1)
            remark = f"That was too long: {failure}. Write it again, in at most {asking.answer_tokens:,} tokens."
            asking.remarks = [("", remark)]
        case _:
            pass


def _source_tokens(request: SummaryRequest) -> int:
    return sum(request.counter.count(source.message.spoken) for source in request.sources)


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
    """Import pydantic-ai, which nobody needs who lets no model summarise.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        from buoyline.compression.summarizers import provider  # noqa: PLC0415 - an extra
    except (AttributeError, ImportError) as error:  # an older one lacks names
        problem = f"needs pydantic-ai 2.68 or newer ({error}); pip install 'buoyline[model]', or the provider's extra"
        raise ConfigError("model", problem) from error
    return provider


if TYPE_CHECKING:
    _conforms: type[Summarizer] = ModelSummarizer
