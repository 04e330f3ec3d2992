"""`AgentModelSummarizer`: an agent's own model writes the summary, through AgentScope."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from agentscope.message import Msg, TextBlock
from agentscope.model import ChatModelBase, FinishedReason

from buoyline.compression import SummaryRequest
from buoyline.compression.summarizers.function import CallableSummarizer
from buoyline.compression.summarizers.prompt import prompt_for, schema_of

_REQUEST_SHARE: Final = 0.8
"""Of the window, for the request: AgentScope keeps a tenth for the answer, but a model that thinks needs more."""


class AgentModelSummarizer(CallableSummarizer):
    """Lets a model of AgentScope write the summary, with the agent's own prompt and schema.

    The model sees the transcript with its line numbers and updates the previous summary. It is asked for structured
    output, for which AgentScope tries several ways of its own, and if it gives none, for JSON in plain text.
    """

    def __init__(self, model: ChatModelBase, *, failures: tuple[type[Exception], ...] = (Exception,)) -> None:
        """Ask *model*; for *failures* see `CallableSummarizer`."""
        super().__init__(partial(_written, model), name=model.model, failures=failures)


async def _written(model: Any, request: SummaryRequest) -> Any:
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S} (UTC)"
    request = replace(request, prompt=request.prompt.replace("{current_time}", now))  # as AgentScope does
    try:
        reply: Any = await model.generate_structured_output(
            messages=await _messages(model, request, is_plain=False), structured_model=schema_of(request)
        )
        content = reply.content
    except Exception:  # noqa: BLE001 - of any client; the same error comes again if plain text does not help
        reply = await model(await _messages(model, request, is_plain=True), None)
        if model.stream:
            reply = [chunk async for chunk in reply][-1]  # which holds all
        content = "\n".join(block.text for block in reply.content if isinstance(block, TextBlock))
    if reply.finished_reason == FinishedReason.INTERRUPTED:
        raise asyncio.CancelledError
    return content


async def _messages(model: Any, request: SummaryRequest, *, is_plain: bool) -> list[Msg]:
    prompt = await asyncio.to_thread(  # counts the whole transcript
        prompt_for,
        request,
        max_tokens=int(model.context_size * _REQUEST_SHARE),
        answer_tokens=request.max_tokens,
        spell_schema=is_plain,
    )
    system, asked = [TextBlock(text=prompt.system)], [TextBlock(text=prompt.user)]
    return [Msg(name="system", role="system", content=[*system]), Msg(name="user", role="user", content=[*asked])]
