"""Ask a model for a summary through any client: what is sent, and how a bad answer changes the next request.

A summarizer sends one request and maps each error of its client to a `Failure`. The rest is here: how much of the
transcript a request shows, and the words for an answer that cannot be used.
"""

import asyncio
import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from buoyline.compression.summarizers.answers import draft_of, fields_of
from buoyline.compression.summarizers.attempts import (
    OVERFLOW_SHRINK,
    SHORTER,
    Failure,
    FailureKind,
    Retries,
    repeated,
    shortened,
    total,
)
from buoyline.compression.summarizers.prompts import Prompt, prompt_for, schema_of
from buoyline.compression.summary import Draft, Summarizer, SummaryRequest, require_draft
from buoyline.errors import ConfigError, SummaryError
from buoyline.tokens import TextCounter

logger = logging.getLogger(__name__)

_SHOWN_ANSWER_TOKENS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Remark:
    """Says in words what to do instead of a bad answer.

    *answer* is shown to the model again; empty if that would be too much.
    """

    answer: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One request to a model.

    Attributes:
        remarks: On the answers so far; they follow the prompt.
        schema: JSON Schema of the answer.
        is_plain: The prompt spells the schema: the answer is text, and the provider need not know the schema.
        max_tokens: Of prompt and remarks, which may take fewer.
    """

    prompt: Prompt
    remarks: Sequence[Remark]
    schema: Mapping[str, object]
    is_plain: bool
    max_tokens: int

    def tokens(self, counter: TextCounter) -> int:
        """Count what prompt and remarks take."""
        return sum(map(counter.count, (self.prompt.system, self.prompt.user, *_texts_of(self.remarks))))


def _texts_of(remarks: Sequence[Remark]) -> list[str]:
    return [text for remark in remarks for text in (remark.answer, remark.words)]


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's answer.

    *content* is an object of the schema, else the text. If *is_cut*, the model ran out of tokens. *refusal* says why it
    refused; empty if it did not.
    """

    content: object
    is_cut: bool = False
    refusal: str = ""

    @property
    def text(self) -> str:
        """The answer as text, to show it to the model again."""
        if isinstance(self.content, str):
            return self.content
        return json.dumps(self.content, ensure_ascii=False, default=str)


Send: TypeAlias = Callable[[Question], Awaitable[Reply]]
"""Sends one request; raises a `Failure` if there is no answer."""


@dataclass(slots=True, kw_only=True)
class ModelExchange:
    """The requests for one summary; each failure changes the next request.

    Attributes:
        name: Of the model.
        max_tokens: Of the request itself, remarks included.
        answer_tokens: Of the answer; its first value is the limit for all answers.
        is_plain: See `Question`.
    """

    name: str
    request: SummaryRequest
    send: Send
    retries: Retries
    max_tokens: int
    answer_tokens: int
    is_plain: bool = False
    _limit: int = field(init=False)
    _remarks: list[Remark] = field(default_factory=list[Remark])
    _too_long: dict[str, str] | None = None

    def __post_init__(self) -> None:
        """Remember the limit."""
        self._limit = self.answer_tokens

    async def draft(self) -> Draft:
        """Return the model's summary; if every answer is too long, the last one is cut.

        Raises:
            SummaryError: There was no usable answer within the bounds; it says why.
        """
        try:
            return await repeated(self._once, name=self.name, retries=self.retries)
        except SummaryError as error:
            if self._too_long is None:
                raise
            logger.info("%s; cut to %d tokens", error, self._limit)
            return Draft(self.name, shortened(self._too_long, self._limit, self.request.counter))

    async def _once(self) -> Draft:
        """Ask once; a `Failure` has changed the next request."""
        question = await asyncio.to_thread(self._question)  # counts the whole transcript
        try:
            try:
                async with asyncio.timeout(self.retries.timeout_s):
                    reply = await self.send(question)
            except TimeoutError as error:
                raise Failure(FailureKind.BUSY, f"no answer within {self.retries.timeout_s:g} s") from error
            return Draft(self.name, self._fields(reply))
        except Failure as failure:
            self._change(failure, question)
            raise

    def _question(self) -> Question:
        said = sum(map(self.request.counter.count, _texts_of(self._remarks)))
        prompt = prompt_for(
            self.request,
            max_tokens=self.max_tokens - said,
            answer_tokens=self.answer_tokens,
            spell_schema=self.is_plain,
        )
        return Question(
            prompt=prompt,
            remarks=tuple(self._remarks),
            schema=schema_of(self.request),
            is_plain=self.is_plain,
            max_tokens=self.max_tokens,
        )

    def _fields(self, reply: Reply) -> dict[str, str]:
        """Return the fields of a usable answer."""
        if reply.refusal:
            raise Failure(FailureKind.REFUSED, f"the model refused: {reply.refusal}")
        if reply.is_cut:
            raise Failure(FailureKind.TRUNCATED, "the answer was cut off")
        try:
            fields = fields_of(reply.content, self.request)
        except Failure as failure:
            if failure.kind is FailureKind.MALFORMED:
                shown = self.request.counter.head(reply.text, _SHOWN_ANSWER_TOKENS)
                words = f"This cannot be used: {failure}. Write the whole summary again, in its form."
                self._remarks = [Remark(shown, words)]
            raise
        tokens = total(fields, self.request.counter)
        if tokens > self._limit:
            self._too_long = fields
            raise Failure(FailureKind.INFLATED, f"the answer takes {tokens:,} tokens where {self._limit:,} are allowed")
        return fields

    def _change(self, failure: Failure, question: Question) -> None:
        """Change the next request by the failure of this one, *question*."""
        match failure.kind:
            case FailureKind.OVERFLOW:
                sent = min(self.max_tokens, question.tokens(self.request.counter))
                self.max_tokens = int(sent * OVERFLOW_SHRINK)
            case FailureKind.REJECTED:
                self.is_plain = True
            case FailureKind.TRUNCATED | FailureKind.INFLATED:
                self.answer_tokens = max(int(self.answer_tokens * SHORTER), 1)
                words = f"That was too long: {failure}. Write it again, in at most {self.answer_tokens:,} tokens."
                self._remarks = [Remark("", words)]
            case _:
                pass


# `CallableSummarizer`: a function of the user.


SummaryAnswer: TypeAlias = "str | Mapping[str, object] | Draft"
"""What a function may return: a text, texts by field, or a draft."""

SummaryFunction: TypeAlias = Callable[[SummaryRequest], Awaitable[SummaryAnswer]]


class CallableSummarizer:
    """Asks a function for the summary and makes a draft of its answer.

    An exception of the function, and an answer that is no summary, become a `SummaryError`, so that the extractive
    summarizer takes over: the function may be anybody's code over anybody's network, and must not stop an agent.
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
            name: For the log of summaries; default: the function's own.
            max_attempts: See `Retries`.
            timeout_s: See `Retries`.
            first_wait_s: See `Retries`.
            failures: Exceptions that count as no answer; any other one reaches the caller of the next model call.

        Raises:
            ConfigError: *function* is not callable, or a bound cannot work.
        """
        if not callable(function):
            raise ConfigError("summarizer", f"{type(function).__name__} is neither an async function nor a summarizer")
        if not isinstance(failures, tuple):
            raise ConfigError("failures", "must be a tuple of exceptions, such as (OSError,)")
        self._function = function
        self._failures: tuple[type[Exception], ...] = (TimeoutError, *failures)
        self._retries = Retries(max_attempts=max_attempts, timeout_s=timeout_s, first_wait_s=first_wait_s)
        self.name = name or str(getattr(function, "__name__", type(function).__name__))

    async def summarize(self, request: SummaryRequest) -> Draft:
        """Return the function's answer as a draft; one that is too long is cut.

        Raises:
            SummaryError: There was no usable answer within the bounds.
        """
        return await repeated(partial(self._asked, request), name=self.name, retries=self._retries)

    async def _asked(self, request: SummaryRequest) -> Draft:
        try:
            async with asyncio.timeout(self._retries.timeout_s):
                answer = await self._function(request)
        except self._failures as error:
            # By default every exception: the function is unknown, and nothing else runs here.
            raise Failure(FailureKind.BUSY, f"{type(error).__name__}: {error}") from error
        draft = draft_of(answer, request, self.name)
        require_draft(draft)
        if isinstance(answer, Draft) or total(draft.fields, request.counter) <= request.max_tokens:
            return draft
        return replace(draft, fields=shortened(draft.fields, request.max_tokens, request.counter))


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
