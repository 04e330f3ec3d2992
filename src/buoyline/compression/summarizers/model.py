"""`ModelSummarizer` and `CallableSummarizer`: a model, or a function, writes the summary."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from buoyline.compression.extractive.choose import with_facts
from buoyline.compression.summarizers.prompt import Prompt, cleaned, fields_in, prompt_for, shortened
from buoyline.compression.summary import NOTHING, Draft, Summarizer, SummaryRequest, require_draft
from buoyline.errors import ConfigError, NotFoundError, SummaryError, imported
from buoyline.tokens.usage import context_size as known_context_size
from buoyline.tokens.usage import max_output

if TYPE_CHECKING:
    from pydantic_ai.models import Model

_FIRST_WAIT_S: Final = 1.0
_SMALLER: Final = 0.6
"""Size of the next request as a share of one that was too large."""

_INFLATED_TOKENS: Final = 1_000
"""A summary of at most so many tokens may be longer than what it replaces."""

Kind: TypeAlias = Literal["busy", "too large", "unusable", "hopeless"]


class Failure(Exception):  # noqa: N818 - never leaves this package: `SummaryError` says it to callers
    """There is no usable answer; the kind says what may help. *fields* are those of one that is only too long."""

    def __init__(self, kind: Kind, reason: str, fields: Mapping[str, str] | None = None) -> None:
        """Keep the kind, the reason and the fields."""
        super().__init__(reason)
        self.kind, self.fields = kind, fields


async def asked(
    send: Callable[[Prompt], Awaitable[str]],
    request: SummaryRequest,
    *,
    name: str,
    max_tokens: int,
    timeout_s: float,
    max_attempts: int,
) -> Draft:
    """Return the model's summary.

    A busy provider is asked again later, one that finds the request too large with less, and once more if the answer
    cannot be used: it lacks a field, is longer than allowed, or longer than what it replaces. One that is only longer
    than allowed is cut then.

    Args:
        send: Sends one request; raises `Failure`, or `TimeoutError`.
        request: What is asked.
        name: Of the model.
        max_tokens: Of a request.
        timeout_s: Of one request.
        max_attempts: Requests in all.

    Raises:
        SummaryError: There was no usable answer; it says why.
    """
    source_tokens = await asyncio.to_thread(lambda: request.source_tokens)
    wait_s, remark, attempt = _FIRST_WAIT_S, "", 0
    while True:
        attempt += 1
        prompt = await asyncio.to_thread(  # counts the whole transcript
            prompt_for, request, max_tokens=max_tokens, answer_tokens=request.max_tokens, spell_schema=True
        )
        prompt = replace(prompt, user="\n\n".join(filter(None, (prompt.user, remark))))
        try:
            return Draft(name, _usable(await _sent(send, prompt, timeout_s), request, source_tokens))
        except Failure as failure:
            logger.info("summary by %s: %s", name, failure)
            is_repeated = failure.kind == "unusable" and bool(remark)
            if is_repeated and failure.fields is not None:
                return Draft(name, shortened(failure.fields, request.max_tokens, request.counter))
            if is_repeated or failure.kind == "hopeless" or attempt >= max_attempts:
                raise SummaryError(name, f"{failure}; asked {attempt} times") from failure
            if failure.kind == "too large":
                sent = request.counter.count(prompt.system) + request.counter.count(prompt.user)
                max_tokens = int(min(max_tokens, sent) * _SMALLER)
            elif failure.kind == "unusable":
                remark = f"Your last answer cannot be used: {failure}. Write the whole summary again, in its form."
            else:
                await asyncio.sleep(wait_s)
                wait_s *= 2


async def _sent(send: Callable[[Prompt], Awaitable[str]], prompt: Prompt, timeout_s: float) -> str:
    try:
        async with asyncio.timeout(timeout_s):
            return await send(prompt)
    except TimeoutError as error:
        raise Failure("busy", f"no answer within {timeout_s:g} s") from error


def _usable(answer: str, request: SummaryRequest, source_tokens: int) -> Mapping[str, str]:
    """Return the fields of an answer; raises `Failure` if it cannot be used."""
    fields = fields_in(answer, request.fields)
    tokens = sum(map(request.counter.count, fields.values()))
    if missing := [field for field in request.fields if field not in fields]:
        raise Failure("unusable", f"it lacks {', '.join(missing)}")
    if tokens > max(source_tokens, _INFLATED_TOKENS):
        raise Failure("unusable", f"it takes {tokens:,} tokens, what it replaces only {source_tokens:,}")
    if tokens > request.max_tokens:
        raise Failure("unusable", f"it takes {tokens:,} tokens, {request.max_tokens:,} are allowed", fields)
    return fields


SummaryAnswer: TypeAlias = "str | Mapping[str, object] | Draft"
"""What a function may return: a text, texts by field, or a draft."""

SummaryFunction: TypeAlias = Callable[[SummaryRequest], Awaitable[SummaryAnswer]]


class CallableSummarizer:
    """Asks a function for the summary, once, and takes its answer as it is.

    An exception of the function, and an answer that says nothing, become a `SummaryError`, so that the extractive
    summarizer takes over: the function may be anybody's code over anybody's network, and must not stop an agent.
    """

    def __init__(
        self,
        function: SummaryFunction,
        *,
        name: str = "",
        timeout_s: float = 120.0,
        failures: tuple[type[Exception], ...] = (Exception,),
    ) -> None:
        """Wrap *function*.

        Args:
            function: Takes a `SummaryRequest` and returns a text, a mapping of fields, or a `Draft`.
            name: For the log of summaries; default: the function's own.
            timeout_s: How long it may take.
            failures: Exceptions that count as no answer; any other one reaches the caller of the next model call.

        Raises:
            ConfigError: *function* is not callable, or *timeout_s* is not above 0.
        """
        if not callable(function):
            raise ConfigError("summarizer", f"{type(function).__name__} is neither an async function nor a summarizer")
        if not timeout_s > 0:
            raise ConfigError("timeout_s", f"{timeout_s!r} is not above 0")
        self._function, self._timeout_s = function, timeout_s
        self._failures: tuple[type[Exception], ...] = (TimeoutError, *failures)
        self.name = name or str(getattr(function, "__name__", type(function).__name__))

    async def summarize(self, request: SummaryRequest) -> Draft:
        """Return the function's answer as a draft; raises `SummaryError`."""
        try:
            async with asyncio.timeout(self._timeout_s):
                answer: object = await self._function(request)
        except self._failures as error:
            reason = str(error) or f"no answer within {self._timeout_s:g} s"
            raise SummaryError(self.name, f"{type(error).__name__}: {reason}") from error
        if isinstance(answer, Draft):
            return require_draft(answer)
        fields = fields_in(answer, request.fields)
        if not fields and isinstance(answer, str) and (text := cleaned(answer)):
            # A text without fields: to refuse it would be to refuse the simplest summarizer there is.
            field = "current_state" if "current_state" in request.fields else request.fields[0]
            fields = {**{name: f"See {field.replace('_', ' ')}." for name in request.fields}, field: text}
        if all(text == NOTHING for text in fields.values()):
            raise SummaryError(self.name, "the answer is empty")
        return Draft(self.name, {name: fields.get(name, "") for name in request.fields})


if TYPE_CHECKING:
    _function_conforms: type[Summarizer] = CallableSummarizer


def summarizer_from(summarizer: "Summarizer | SummaryFunction") -> Summarizer:
    """Return *summarizer* itself if it has the method, else a `CallableSummarizer` that calls it.

    Raises:
        ConfigError: It is neither a summarizer nor an async function. (A plain function that returns an awaitable
            cannot be recognized before it is called; give it to `CallableSummarizer`.)
    """
    if isinstance(summarizer, type):
        raise ConfigError("summarizer", f"{summarizer.__name__} is a class; pass an object of it")
    if callable(getattr(summarizer, "summarize", None)):
        return summarizer  # type: ignore[return-value]
    if not any(map(inspect.iscoroutinefunction, (summarizer, getattr(summarizer, "__call__", None)))):  # noqa: B004
        raise ConfigError("summarizer", f"{type(summarizer).__name__} has no summarize, and is no async function")
    return CallableSummarizer(summarizer)  # type: ignore[arg-type]


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
