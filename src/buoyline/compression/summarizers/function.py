"""`CallableSummarizer`: a function of the user, or of a framework, writes the summary."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from buoyline.compression.render import NOTHING
from buoyline.compression.summarizers.answers import cleaned, fields_in
from buoyline.compression.summary import Draft, Summarizer, SummaryRequest, require_draft
from buoyline.errors import ConfigError, SummaryError

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
    _conforms: type[Summarizer] = CallableSummarizer


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
