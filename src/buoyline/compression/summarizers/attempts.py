"""Ask a model for a summary, and ask again if another request may help."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final, Literal, TypeAlias

from buoyline.compression.summarizers.answers import fields_in, shortened
from buoyline.compression.summarizers.prompt import Prompt, prompt_for
from buoyline.compression.summary import Draft, SummaryRequest
from buoyline.errors import SummaryError

logger = logging.getLogger(__name__)

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
