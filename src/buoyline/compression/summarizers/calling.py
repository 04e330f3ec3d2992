"""`CallableSummarizer`: a function of the user's that summarises, in as few lines as it likes."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from buoyline.compression.summarizers.answers import draft_of
from buoyline.compression.summarizers.failure import Failure, Kind
from buoyline.compression.summarizers.repeating import repeated
from buoyline.compression.summarizers.retrying import Retries
from buoyline.compression.summarizers.shortening import shortened, total
from buoyline.compression.summary import Draft, Summarizer, SummaryRequest, require_draft
from buoyline.errors import ConfigError

Answer: TypeAlias = "str | Mapping[str, object] | Draft"
"""What a function may give: a text, texts by field, or a draft."""

SummaryFunction: TypeAlias = Callable[[SummaryRequest], Awaitable[Answer]]


class CallableSummarizer:
    """Asks a function for the summary, and makes a draft of what it gives.

    What the function raises, and what it gives that is no summary, ends in a `SummaryError`, so that the extractive
    summariser takes over: the function may be anybody's code over anybody's network, and an agent need not stop for it.
    """

    def __init__(
        self,
        function: SummaryFunction,
        *,
        name: str = "",
        max_attempts: int = 2,
        timeout_s: float = 120.0,
        first_wait_s: float = 1.0,
        failures: tuple[type[Exception], ...] = (Exception,),
    ) -> None:
        """Wrap *function*.

        Args:
            function: Takes a `SummaryRequest` and returns a text, a mapping of fields, or a `Draft`.
            name: Stands in the log of summaries; left out: the function's own.
            max_attempts: See `Retries`.
            timeout_s: See `Retries`.
            first_wait_s: See `Retries`.
            failures: What the function may raise in place of an answer; anything else reaches whoever asked for the
                next model call.

        Raises:
            ConfigError: *function* cannot be called, or a bound cannot work.
        """
        if not callable(function):
            raise ConfigError("summarizer", f"{type(function).__name__} can neither be called nor summarise")
        self._function = function
        self._failures: tuple[type[Exception], ...] = (TimeoutError, *failures)
        self._retries = Retries(max_attempts=max_attempts, timeout_s=timeout_s, first_wait_s=first_wait_s)
        self.name = name or str(getattr(function, "__name__", type(function).__name__))

    async def summarize(self, request: SummaryRequest) -> Draft:
        """Return the function's answer as a draft; one that is too long is cut to the tokens there are.

        Raises:
            SummaryError: There was no answer that can be used within the bounds.
        """
        return await repeated(partial(self._asked, request), name=self.name, retries=self._retries)

    async def _asked(self, request: SummaryRequest) -> Draft:
        try:
            async with asyncio.timeout(self._retries.timeout_s):
                answer = await self._function(request)
        except self._failures as error:
            # By default every exception: nothing is known of the function, and nothing else runs here.
            raise Failure(Kind.BUSY, f"{type(error).__name__}: {error}") from error
        draft = draft_of(answer, request, self.name)
        require_draft(draft)
        if isinstance(answer, Draft) or total(draft.fields, request.counter) <= request.max_tokens:
            return draft
        return replace(draft, fields=shortened(draft.fields, request.max_tokens, request.counter))


if TYPE_CHECKING:
    _conforms: type[Summarizer] = CallableSummarizer


def summarizer_from(summarizer: "Summarizer | SummaryFunction") -> Summarizer:
    """Return *summarizer* itself where it has the method, else a `CallableSummarizer` that calls it.

    Raises:
        ConfigError: It is neither a summariser nor an async function. (What merely returns an awaitable cannot be told
            from what does not before it is called; give it to `CallableSummarizer`.)
    """
    if callable(getattr(summarizer, "summarize", None)):
        return summarizer  # type: ignore[return-value]
    if not any(map(inspect.iscoroutinefunction, (summarizer, getattr(summarizer, "__call__", None)))):  # noqa: B004
        raise ConfigError("summarizer", f"{type(summarizer).__name__} has no summarize, and is no async function")
    return CallableSummarizer(summarizer)  # type: ignore[arg-type]
