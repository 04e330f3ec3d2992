"""`AgentModelSummarizer`: an agent's own model writes the summary, through AgentScope."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from agentscope.exception import StructuredOutputError
from agentscope.message import Msg, TextBlock
from agentscope.model import ChatModelBase, ChatResponse, ChatUsage, FinishedReason

from buoyline.compression.summarizers.answers import fields_of
from buoyline.compression.summarizers.failure import Failure, Kind
from buoyline.compression.summarizers.prompting import prompt_for, schema_of
from buoyline.compression.summarizers.retrying import OVERFLOW_SHRINK, SHORTER, Attempts, Retries
from buoyline.compression.summarizers.shortening import shortened, total
from buoyline.compression.summary import Draft, Summarizer, SummaryRequest
from buoyline.errors import SummaryError
from buoyline.integrations.agentscope.agents import message_of
from buoyline.integrations.agentscope.overflow import is_overflow, status_of

logger = logging.getLogger(__name__)

OUTPUT_SHARE: Final = 0.2
"""Of the window, for the answer: AgentScope keeps a tenth, and a model that thinks needs more than it says."""

_SHOWN_CHARS: Final = 4_000
_REASON_CHARS: Final = 300
_HOPELESS_STATUSES: Final = frozenset({401, 402, 403, 404})
_BUSY_STATUSES: Final = frozenset({408, 409, 425, 429})


@dataclass(slots=True)
class _Asking:
    """How the next request is made; each failure changes it, but for the limit."""

    limit: int
    max_tokens: int
    answer_tokens: int
    as_text: bool = False
    remarks: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    too_long: dict[str, str] | None = None


class AgentModelSummarizer:
    """Lets a model of AgentScope write the summary, with the agent's own prompt and schema.

    The model sees the transcript with its line numbers and brings the previous summary up to date. It is asked for
    structured output, for which AgentScope tries several ways of its own; a model that gives none is asked for JSON in
    plain text. Each request is bounded in time, all of them in number; then a `SummaryError` says why there is none.

    Attributes:
        name: What the log of summaries calls it: the model's name.
        usages: What the provider says that each request took, since the object was made.
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
            max_attempts: See `buoyline.compression.summarizers.retrying.Retries`; each may be several requests, as
                often as the model itself tries again.
            timeout_s: For one of these attempts.
            first_wait_s: Before the second attempt at a provider that is busy.
            failures: What the provider's client may raise in place of an answer; each client has errors of its own.
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
            SummaryError: There was no answer that can be used within the bounds; it says why.
            asyncio.CancelledError: The model was interrupted.
        """
        room = int(self._model.context_size * (1 - OUTPUT_SHARE))
        asking, attempts = _Asking(request.max_tokens, room, request.max_tokens), Attempts(self._retries)
        while True:
            try:
                return Draft(self.name, await self._asked(asking, request))
            except Failure as failure:
                wait_s = attempts.wait_s(failure)
                if wait_s is None:
                    return self._last_resort(asking, request, failure, attempts)
                logger.info("summary by %s: %s; asked again in %.1f s", self.name, failure, wait_s)
                _change(asking, failure)
                await asyncio.sleep(wait_s)

    async def _asked(self, asking: _Asking, request: SummaryRequest) -> dict[str, str]:
        said = sum(request.counter.count(text) for remark in asking.remarks for text in remark)
        prompt = prompt_for(
            request,
            max_tokens=asking.max_tokens - said,
            answer_tokens=asking.answer_tokens,
            spell_schema=asking.as_text,
        )
        messages = [message_of("system", prompt.system), message_of("user", prompt.user), *_remarks(asking.remarks)]
        answer = await self._answer(messages, request, as_text=asking.as_text)
        return _fields(answer, asking, request)

    async def _answer(self, messages: list[Msg], request: SummaryRequest, *, as_text: bool) -> object:
        try:
            async with asyncio.timeout(self._retries.timeout_s):
                if as_text:
                    return await self._text(messages)
                model: Any = self._model  # its own types leave the answer open
                reply = await model.generate_structured_output(messages=messages, structured_model=schema_of(request))
                self._note(reply.usage, reply.finished_reason)
                return reply.content
        except Failure:
            raise
        except TimeoutError as error:
            raise Failure(Kind.BUSY, f"no answer within {self._retries.timeout_s:g} s") from error
        except self._failures as error:
            raise _failure(error) from error

    async def _text(self, messages: list[Msg]) -> str:
        reply: ChatResponse | AsyncGenerator[ChatResponse, None] | None = await self._model(messages)
        if isinstance(reply, AsyncGenerator):
            chunks, reply = reply, None
            async for chunk in chunks:
                reply = chunk  # the last one holds all
        if reply is None:
            raise Failure(Kind.EMPTY, "the model answered nothing")
        self._note(reply.usage, reply.finished_reason)
        return "\n".join(block.text for block in reply.content if isinstance(block, TextBlock))

    def _note(self, usage: ChatUsage | None, reason: FinishedReason) -> None:
        if usage is not None:
            self.usages.append(usage)
        if reason == FinishedReason.INTERRUPTED:
            raise asyncio.CancelledError

    def _last_resort(self, asking: _Asking, request: SummaryRequest, failure: Failure, attempts: Attempts) -> Draft:
        if asking.too_long is not None:
            logger.info("summary by %s: %s; cut to %d tokens", self.name, failure, asking.limit)
            return Draft(self.name, shortened(asking.too_long, asking.limit, request.counter))
        times = "once" if attempts.made == 1 else f"{attempts.made} times"
        raise SummaryError(self.name, f"{failure}; asked {times}") from failure


def _remarks(remarks: Sequence[tuple[str, str]]) -> list[Msg]:
    messages: list[Msg] = []
    for answer, remark in remarks:
        if answer:
            messages.append(message_of("assistant", answer))
        messages.append(message_of("user", remark))
    return messages


def _fields(answer: object, asking: _Asking, request: SummaryRequest) -> dict[str, str]:
    """Return the fields of an answer that can be used; remember what the next request should say of one that cannot."""
    try:
        fields = fields_of(answer, request)
    except Failure as failure:
        if failure.kind is Kind.MALFORMED:
            shown = (answer if isinstance(answer, str) else json.dumps(answer, default=str))[:_SHOWN_CHARS]
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
            asking.as_text = True
        case Kind.INFLATED:
            asking.answer_tokens = max(int(asking.answer_tokens * SHORTER), 1)
            remark = f"That was too long: {failure}. Write it again, in at most {asking.answer_tokens:,} tokens."
            asking.remarks = [("", remark)]
        case _:
            pass


def _failure(error: Exception) -> Failure:
    """Return what an error of a provider's client means for us, by its status and its words."""
    reason = f"{type(error).__name__}: {' '.join(str(error).split())[:_REASON_CHARS]}"
    status = status_of(error)
    if isinstance(error, StructuredOutputError):
        return Failure(Kind.REJECTED, reason)  # plain text is what is left to ask for
    if is_overflow(error):
        return Failure(Kind.OVERFLOW, reason)
    if status in _HOPELESS_STATUSES:
        return Failure(Kind.HOPELESS, reason)
    is_rejected = status is not None and 400 <= status < 500 and status not in _BUSY_STATUSES  # noqa: PLR2004 - HTTP's
    return Failure(Kind.REJECTED if is_rejected else Kind.BUSY, reason)


if TYPE_CHECKING:
    _conforms: type[Summarizer] = AgentModelSummarizer
