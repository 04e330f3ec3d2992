"""`AgentModelSummarizer`: an agent's own model writes the summary, through AgentScope."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from agentscope.exception import StructuredOutputError
from agentscope.message import Msg, TextBlock
from agentscope.model import ChatModelBase, ChatResponse, ChatUsage, FinishedReason

from buoyline.compression.summarizers.attempts import Failure, FailureKind, Retries
from buoyline.compression.summarizers.callables import ModelExchange, Question, Reply
from buoyline.compression.summary import Draft, Summarizer, SummaryRequest
from buoyline.integrations.agentscope.agents import is_overflow, message_of, status_of

_Answer = TypeVar("_Answer")

OUTPUT_SHARE: Final = 0.2
"""Of the window, for the answer: AgentScope keeps a tenth, but a model that thinks needs more than its answer takes."""

_REASON_CHARS: Final = 300
_HOPELESS_STATUSES: Final = frozenset({401, 402, 403, 404})
_BUSY_STATUSES: Final = frozenset({408, 409, 425, 429})


class AgentModelSummarizer:
    """Lets a model of AgentScope write the summary, with the agent's own prompt and schema.

    The model sees the transcript with its line numbers and updates the previous summary. It is asked for
    structured output, for which AgentScope tries several ways of its own. If it gives none, it is asked for JSON in
    plain text. Time and number of the requests are limited; if they do not suffice, a `SummaryError` says why.

    Attributes:
        name: The model's, as in the log of summaries.
        usages: The provider's usage of each request so far.
    """

    def __init__(
        self,
        model: ChatModelBase,
        *,
        max_attempts: int = 3,
        timeout_s: float = 120.0,
        first_wait_s: float = 1.0,
        failures: tuple[type[Exception], ...] = (Exception,),
    ) -> None:
        """Ask *model*.

        Args:
            model: The agent's.
            max_attempts: See `buoyline.compression.summarizers.attempts.Retries`; each may be several requests, as
                often as the model itself tries again.
            timeout_s: For one of these attempts.
            first_wait_s: Before the second attempt at a provider that is busy.
            failures: Errors of the provider's client; each client has its own.
                Anything else comes out of the compression, and the context is as it was.

        Raises:
            ConfigError: A bound cannot work.
        """
        self._model = model
        self._failures = failures
        self._retries = Retries(max_attempts=max_attempts, timeout_s=timeout_s, first_wait_s=first_wait_s)
        self.name = model.model
        self.usages: list[ChatUsage] = []

    async def summarize(self, request: SummaryRequest) -> Draft:
        """Return the model's summary.

        Raises:
            SummaryError: No answer could be used; it says why.
            asyncio.CancelledError: The model was interrupted.
        """
        return await ModelExchange(
            name=self.name,
            request=request,
            send=self._send,
            retries=self._retries,
            max_tokens=int(self._model.context_size * (1 - OUTPUT_SHARE)),
            answer_tokens=request.max_tokens,
        ).draft()

    async def _send(self, question: Question) -> Reply:
        messages = _messages(question)
        if question.is_plain:
            said = await self._answer(_said(self._model, messages))
            if said is None:
                raise Failure(FailureKind.EMPTY, "the model answered nothing")
            self._note(said.usage, said.finished_reason)
            return Reply("\n".join(block.text for block in said.content if isinstance(block, TextBlock)))
        formed = await self._answer(_formed(self._model, messages, question.schema))
        self._note(formed.usage, formed.finished_reason)
        return Reply(formed.content)

    async def _answer(self, answer: Awaitable[_Answer]) -> _Answer:
        try:
            return await answer
        except self._failures as error:
            # By default every exception: AgentScope passes on what a provider's client raises, and the clients have no
            # class of errors in common. Nothing runs here but the model.
            raise _failure(error) from error

    def _note(self, usage: ChatUsage | None, reason: FinishedReason) -> None:
        if usage is not None:
            self.usages.append(usage)
        if reason == FinishedReason.INTERRUPTED:
            raise asyncio.CancelledError


async def _formed(model: Any, messages: list[Msg], schema: Mapping[str, object]) -> Any:
    """Ask for structured output, which AgentScope's types leave open."""
    return await model.generate_structured_output(messages=messages, structured_model=schema)


async def _said(model: ChatModelBase, messages: list[Msg]) -> ChatResponse | None:
    """Ask for text; of a model that streams, the last chunk holds all."""
    reply: ChatResponse | AsyncGenerator[ChatResponse, None] = await model(messages, None)
    if not isinstance(reply, AsyncGenerator):
        return reply
    last = None
    async for chunk in reply:
        last = chunk
    return last


def _messages(question: Question) -> list[Msg]:
    prompt = question.prompt
    messages = [message_of("system", prompt.system), message_of("user", prompt.user)]
    for remark in question.remarks:
        if remark.answer:
            messages.append(message_of("assistant", remark.answer))
        messages.append(message_of("user", remark.words))
    return messages


def _failure(error: Exception) -> Failure:
    """Return the kind of an error of a provider's client, by its status and its words."""
    reason = f"{type(error).__name__}: {' '.join(str(error).split())[:_REASON_CHARS]}"
    status = status_of(error)
    if isinstance(error, StructuredOutputError):
        return Failure(FailureKind.REJECTED, reason)  # plain text may still work
    if is_overflow(error):
        return Failure(FailureKind.OVERFLOW, reason)
    if status in _HOPELESS_STATUSES:
        return Failure(FailureKind.HOPELESS, reason)
    is_rejected = status is not None and 400 <= status < 500 and status not in _BUSY_STATUSES  # noqa: PLR2004 - HTTP's
    return Failure(FailureKind.REJECTED if is_rejected else FailureKind.BUSY, reason)


if TYPE_CHECKING:
    _conforms: type[Summarizer] = AgentModelSummarizer
