"""An agent's settings, context and summaries as a window has them, and back.

AgentScope collects a whole reply, all its rounds of calls and results, in one message that grows. A window follows
pieces of it that grow no more: all that the model said and called at once, one result, or one hint. Like AgentScope's
own cut, a cut inside a message makes two messages with one id.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import groupby, pairwise
from typing import Any, Final

from agentscope.message import Msg, TextBlock
from agentscope.model import ChatModelBase, FinishedReason
from agentscope.state import AgentState

from buoyline.compression import ContextConfig, SummaryRequest
from buoyline.compression.summarizers.model import CallableSummarizer
from buoyline.compression.summarizers.prompt import prompt_for, schema_of
from buoyline.messages.registry import dialect_named

_WINDOW_SHARE: Final = 0.5
"""Of the window, for one result: AgentScope's default limit of 50,000 tokens exceeds many windows."""


def ours(theirs: Any, size: int, base: ContextConfig) -> ContextConfig:
    """Return AgentScope's ``ContextConfig`` for a window of *size* tokens; *base* has the settings that it lacks.

    If the reserve is not below the trigger, as in a one-off configuration with a low trigger, only the newest messages
    are kept. AgentScope does the same.

    Raises:
        ConfigError: A value cannot work with the others, or the template or schema cannot work.
    """
    limit = max(min(theirs.tool_result_limit, int(_WINDOW_SHARE * size)), 2)
    return replace(
        base,
        trigger_ratio=theirs.trigger_ratio,
        reserve_ratio=theirs.reserve_ratio if theirs.reserve_ratio < theirs.trigger_ratio else 0.0,
        tool_result_limit=limit,
        preview_tokens=base.preview_tokens if base.preview_tokens < limit else max(limit // 3, 1),
        compression_prompt=theirs.compression_prompt,
        summary_template=theirs.summary_template,
        summary_schema=theirs.summary_schema,
        max_images=theirs.max_image_num,
    )


DIALECT: Final = "agentscope"

_ALONE: Final = frozenset({"tool_result", "hint"})
"""Blocks that are a piece each; all others come from the model, several at a time."""


def pieces(context: Sequence[Msg]) -> Iterator[Msg]:
    """Yield *context* in pieces. A piece of a reply is a copy without its usage, which grows with each model call."""
    for message in context:
        if message.role != "assistant":
            yield message.model_copy(update={"content": [*message.content]})
            continue
        alone = [block.type in _ALONE for block in message.content]
        cuts = [0, *(at for at in range(1, len(alone)) if alone[at] or alone[at - 1]), len(alone)]
        for start, stop in pairwise(cuts):
            if start < stop:
                yield message.model_copy(update={"content": message.content[start:stop], "usage": None})


def joined(parts: Sequence[Msg], context: Sequence[Msg]) -> Iterator[Msg]:
    """Yield pieces as messages; one whose blocks are all there is the very object of *context*."""
    # Words that come amid a reply divide it, so its id alone does not name a message.
    whole = {(message.id, block.id): message for message in context for block in message.content}
    for _, group in groupby(parts, key=lambda part: part.id if part.role == "assistant" else id(part)):
        first, *others = group
        blocks = [block for part in (first, *others) for block in part.content]
        message = whole.get((first.id, blocks[0].id), first) if blocks else first
        yield message if _are_same(blocks, message.content) else message.model_copy(update={"content": blocks})


def key_of(piece: Msg) -> str:
    """Return what identifies a piece for life: the ids of its message and of its first block."""
    if piece.role != "assistant":
        return piece.id
    return f"{piece.id} {piece.content[0].type} {piece.content[0].id}"


def listed(state: AgentState) -> list[Msg]:
    """Return the summary and the context as the list that a window follows; a window puts system messages first."""
    head = [dialect_named(DIALECT).user_message(text)] if (text := said(state.summary)) else []
    begin = next((at for at, message in enumerate(state.context) if message.role != "system"), len(state.context))
    return [*state.context[:begin], *head, *pieces(state.context[begin:])]


def take_over(state: AgentState, followed: Sequence[Msg], shown: Sequence[Msg]) -> bool:
    """Put what a window shows in place of the list that it *followed*, and return whether that changed *state*.

    What was added meanwhile stays after it. What the window has written in front of the messages is the summary.
    """
    if len(shown) == len(followed) and all(a.content == b.content for a, b in zip(shown, followed, strict=True)):
        return False
    now, mine = listed(state), {key_of(piece): piece for piece in followed}
    if [key_of(piece) for piece in now[: len(followed)]] != [key_of(piece) for piece in followed]:
        return False  # somebody has changed the context meanwhile; the next call finds out
    first = next((at for at, message in enumerate(shown) if message.role != "system"), len(shown))
    text = _written(shown[first]) if first < len(shown) else ""
    parts = [_newest(one, mine.get(key_of(one))) for one in (*shown[:first], *shown[first + bool(text) :])]
    context = [*joined([*parts, *now[len(followed) :]], state.context)]
    if text == said(state.summary) and _are_same(context, [message for message in state.context if message.content]):
        return False
    state.summary = text
    state.context[:] = context
    return True


def _written(message: Msg) -> str:
    """Return the text of a message that a window has written, or `listed` for the summary; else nothing."""
    text = message.get_text_content() or ""
    return text if message.id == dialect_named(DIALECT).user_message(text).id else ""


def _newest(shown: Msg, mine: Msg | None) -> Msg:
    """Return the agent's own piece unless the window has changed it: the state of a call is not the window's."""
    view = dialect_named(DIALECT).view
    is_mine = mine is not None and (mine.content == shown.content or view(mine) == view(shown))
    return mine if mine is not None and is_mine else shown


def _are_same(one: Sequence[object], other: Sequence[object]) -> bool:
    return len(one) == len(other) and all(mine is theirs for mine, theirs in zip(one, other, strict=True))


def said(content: Any) -> str:
    """Return the text of a summary or hint, which AgentScope also allows to be a list of blocks."""
    return content if isinstance(content, str) else "\n".join(getattr(block, "text", "") for block in content)


_REQUEST_SHARE: Final = 0.8
"""Of the window, for the request: AgentScope keeps a tenth for the answer, but a model that thinks needs more."""


class AgentModelSummarizer(CallableSummarizer):
    """Lets a model of AgentScope write the summary, with the agent's own prompt and schema.

    The model sees the transcript with its line numbers and updates the previous summary. It is asked for structured
    output, for which AgentScope tries several ways of its own, and if it gives none, for JSON in plain text.
    """

    def __init__(self, model: ChatModelBase, *, failures: tuple[type[Exception], ...] = (Exception,)) -> None:
        """Ask *model*; for *failures* see `CallableSummarizer`."""
        super().__init__(partial(_answered, model), name=model.model, failures=failures)


async def _answered(model: Any, request: SummaryRequest) -> Any:
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
