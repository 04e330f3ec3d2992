"""`SummarizingConversationManager`: a summary with pointers stands for the oldest messages."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from pydantic import BaseModel, Field, create_model
from strands.agent.conversation_manager import ProactiveCompressionConfig
from strands.event_loop.streaming import process_stream
from strands.types.exceptions import ContextWindowOverflowException

from buoyline.compression import CallableSummarizer, ContextConfig, Draft, Summarizer, Summary, SummaryRequest
from buoyline.compression.compressor import MessageRange
from buoyline.compression.config import LEAST_SUMMARY_TOKENS
from buoyline.compression.summarizers.callables import SummaryFunction
from buoyline.compression.summarizers.prompts import Prompt, prompt_for, schema_of
from buoyline.compression.summary_text import ArchiveLocation
from buoyline.errors import ConfigError, SummaryError
from buoyline.integrations.strands.callbacks import guarded_summarizer
from buoyline.integrations.strands.cuts import LEAST_GAIN, LeavingConversationManager
from buoyline.integrations.strands.history import NativeMessage, cuts, history_of, views_of
from buoyline.messages.jsonl import is_object
from buoyline.offloader import Offloader
from buoyline.tokens import TokenCounter

if TYPE_CHECKING:
    from strands import Agent
    from strands.models import Model
    from strands.types.content import Messages

# Summaries by a model of Strands, or by an agent of its own: asked for the summary's fields, never trusted.
#
# Strands' own manager takes any text for a summary. So an answer without the fields is taken as it is, and the facts
# of
# the messages with their citations are put beside it.


UNKNOWN_WINDOW: Final = 32_000
"""Tokens taken for the window of a model that does not say: what nearly all have."""

_ANSWER_TOKENS: Final = 4_096
"""Beside the fields: signs of JSON, and what a model thinks before it writes."""

_SHARES: Final = (1.0, 0.6, 0.36)
"""Of the room, for a request and for what follows where the model says that it is too large."""

_TYPES: Final[Mapping[object, Any]] = {"string": str, "integer": int, "number": float, "boolean": bool}


class StrandsModelSummarizer:
    """Lets a model of Strands write the summary, through its structured output, or in text if it has none.

    The model sees the transcript with the numbers of its lines, and the summary that is brought up to date. What it
    cites and claims is checked by the `Compressor`, and the extractive summariser takes over where it fails.
    """

    def __init__(self, model: "Model", *, max_attempts: int = 2, timeout_s: float = 120.0) -> None:
        """Ask *model* up to *max_attempts* times, each time for *timeout_s* at most.

        Raises:
            ConfigError: A bound cannot work.
        """
        self._model = model
        self._asking = CallableSummarizer(
            self._answer, name=_name_of(model), max_attempts=max_attempts, timeout_s=timeout_s
        )

    async def summarize(self, request: SummaryRequest) -> Draft:
        """Return the model's summary.

        Raises:
            SummaryError: There was none that can be used.
        """
        return await self._asking.summarize(request)

    async def _answer(self, request: SummaryRequest) -> Mapping[str, object] | str:
        form = form_of(request)
        prompts = _prompts(request, self._model, spell_schema=False)
        for number, prompt in enumerate(prompts):
            try:
                fields = await self._fields(form, prompt)
            except ContextWindowOverflowException:
                continue
            except (NotImplementedError, ValueError):
                fields = None  # models raise these if they have no structured output, or answer in another form
            return await self._text(request, number) if fields is None else fields
        raise SummaryError(self._asking.name, "the model takes no request that is large enough")

    async def _fields(self, form: type[BaseModel], prompt: Prompt) -> Mapping[str, object] | None:
        found: object = None
        async for event in self._model.structured_output(form, _messages(prompt), system_prompt=prompt.system):
            found = event.get("output", found)
        return found.model_dump() if isinstance(found, form) else None

    async def _text(self, request: SummaryRequest, first: int) -> str:
        """Return the model's answer in text; *first* is the number of the prompt to begin with."""
        for prompt in _prompts(request, self._model, spell_schema=True)[first:]:
            texts: list[str] = []
            chunks = self._model.stream(_messages(prompt), tool_specs=None, system_prompt=prompt.system)
            events = cast("AsyncIterator[dict[str, Any]]", process_stream(chunks))
            try:
                async for event in events:
                    stop = event.get("stop")
                    texts += [] if stop is None else [block["text"] for block in stop[1]["content"] if "text" in block]
            except ContextWindowOverflowException:
                continue
            return "\n".join(texts)
        raise SummaryError(self._asking.name, "the model takes no request that is large enough")


class AgentSummarizer:
    """Lets an agent write the summary; it may use its tools, and its own system prompt holds.

    Any text that it answers is a summary; JSON with the fields of the summary is best. Its history is as it was
    afterwards.
    """

    def __init__(self, agent: "Agent", *, max_attempts: int = 2, timeout_s: float = 300.0) -> None:
        """Ask *agent* up to *max_attempts* times, each time for *timeout_s* at most.

        Raises:
            ConfigError: A bound cannot work.
        """
        self._agent = agent
        self._asking = CallableSummarizer(self._answer, name=agent.name, max_attempts=max_attempts, timeout_s=timeout_s)

    async def summarize(self, request: SummaryRequest) -> Draft:
        """Return the agent's summary.

        Raises:
            SummaryError: There was none that can be used.
        """
        return await self._asking.summarize(request)

    async def _answer(self, request: SummaryRequest) -> str:
        for prompt in _prompts(request, self._agent.model, spell_schema=True):
            before = list(self._agent.messages)
            try:
                self._agent.messages[:] = []
                return str(await self._agent.invoke_async(f"{prompt.system}\n\n{prompt.user}"))
            except ContextWindowOverflowException:
                continue
            finally:
                self._agent.messages[:] = before
        raise SummaryError(self._asking.name, "the agent takes no request that is large enough")


def form_of(request: SummaryRequest) -> type[BaseModel]:
    """Return the pydantic model that an answer to *request* has, as its JSON Schema says."""
    properties = schema_of(request).get("properties")
    described: Mapping[str, object] = properties if is_object(properties) else {}
    fields: dict[str, Any] = {}
    for name in request.fields:
        said = described.get(name)
        facts: Mapping[str, object] = said if is_object(said) else {}
        kind = _TYPES.get(facts.get("type"), Any)
        fields[name] = (kind, Field(description=str(facts.get("description", ""))))
    return create_model("Summary", __doc__="The summary of a conversation.", **fields)


def _messages(prompt: Prompt) -> "Messages":
    return [{"role": "user", "content": [{"text": prompt.user}]}]


def _prompts(request: SummaryRequest, model: "Model", *, spell_schema: bool) -> Sequence[Prompt]:
    """Return the prompts to try, each smaller than the one before."""
    window = model.context_window_limit or UNKNOWN_WINDOW
    answer = min(request.max_tokens, window // 4)
    room = max(window - answer - min(_ANSWER_TOKENS, window // 8) - len(json.dumps(schema_of(request))) // 2, 1)
    return [
        prompt_for(request, max_tokens=int(share * room), answer_tokens=answer, spell_schema=spell_schema)
        for share in _SHARES
    ]


def _name_of(model: "Model") -> str:
    config = model.get_config()
    name = config.get("model_id") if is_object(config) else getattr(config, "model_id", None)
    return name if isinstance(name, str) and name else type(model).__name__


if TYPE_CHECKING:
    _model_conforms: type[Summarizer] = StrandsModelSummarizer
    _agent_conforms: type[Summarizer] = AgentSummarizer


_LEAST_RATIO, _MOST_RATIO = 0.1, 0.8
EXTRACTIVE: Final = "extractive"
_INSUFFICIENT = "Cannot summarize: insufficient messages for summarization"


class SummarizingConversationManager(LeavingConversationManager):
    """Lets a summary stand for the oldest messages, which are in the workspace, and to whose lines it points.

    Source: Strands' manager of the same name, its parameters and their defaults. The agent's own model writes, its
    ``aux_model`` if it has one, also after an overflow, while the event loop waits as it does with Strands' manager.
    """

    def __init__(
        self,
        summary_ratio: float = 0.3,
        preserve_recent_messages: int = 10,
        summarization_agent: "Agent | None" = None,
        summarization_system_prompt: str | None = None,
        *,
        workspace: Offloader | str | os.PathLike[str] | None = None,
        session_id: str | None = None,
        summarizer: Summarizer | SummaryFunction | Literal["extractive"] | None = None,
        summary_tokens: int | None = None,
        pin_first: int | None = None,
        proactive_compression: bool | ProactiveCompressionConfig | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        """Summarise *summary_ratio* of the messages when the history has to become smaller.

        Whatever writes a summary, its claims and citations are checked, and the extractive summariser, which needs no
        model, takes over if it fails, refuses, says nothing or too much.

        Args:
            summary_ratio: Share of the messages that leaves, held between 0.1 and 0.8.
            preserve_recent_messages: At least so many of the newest stay. After an overflow large tool results in them
                may become stubs.
            summarization_agent: Writes the summaries; with tools, if it has some. Any text will do for an answer.
            summarization_system_prompt: Instructs the agent's own model.
            workspace: See `WorkspaceConversationManager`.
            session_id: See `WorkspaceConversationManager`.
            summarizer: Writes them instead: any summariser of buoyline, an async function, or ``"extractive"``, which
                asks no model.
            summary_tokens: Tokens of a summary at most; left out: a sixteenth of the window, from 400 to 4,000.
            pin_first: See `LeavingConversationManager`.
            proactive_compression: See `WorkspaceConversationManager`.
            counter: See `WorkspaceConversationManager`.

        Raises:
            ConfigError: More than one is named to write the summaries, or *summary_tokens* cannot be.
            ValueError: See `WorkspaceConversationManager`.
            TypeError: See `WorkspaceConversationManager`.
        """
        if sum(writer is not None for writer in (summarization_agent, summarization_system_prompt, summarizer)) > 1:
            problem = (
                "Cannot provide both summarization_agent and summarization_system_prompt, nor summarizer beside them: "
                "one alone writes the summaries"
            )
            raise ConfigError("summarization_agent", problem)
        config = ContextConfig(summary_tokens=summary_tokens)
        if summarization_system_prompt is not None:
            config = ContextConfig(summary_tokens=summary_tokens, compression_prompt=summarization_system_prompt)
        super().__init__(
            workspace=workspace,
            session_id=session_id,
            pin_first=pin_first,
            proactive_compression=proactive_compression,
            counter=counter,
            config=config,
        )
        self.summary_ratio = max(_LEAST_RATIO, min(_MOST_RATIO, summary_ratio))
        self.preserve_recent_messages = preserve_recent_messages
        self.summarization_agent = summarization_agent
        self.summarization_system_prompt = summarization_system_prompt
        self._is_extractive = summarizer == EXTRACTIVE
        if isinstance(summarizer, str):
            if not self._is_extractive:
                problem = f"{summarizer!r} is none; give {EXTRACTIVE!r}, a summariser or a function"
                raise ConfigError("summarizer", problem)
            summarizer = None
        self._summarizer = None if summarizer is None else guarded_summarizer(summarizer)
        self._is_writing = self._has_failed = False

    async def _reduce(self, agent: "Agent") -> None:
        cut = await asyncio.to_thread(self._documented_cut, list(history_of(agent)))
        await self._leave(agent, cut, is_recovery=False)

    async def _recover(self, agent: "Agent", error: Exception) -> None:  # noqa: ARG002 - as declared
        gain = self._gains.next()
        try:
            await self._recover_with_summary(agent, gain)
        except ContextWindowOverflowException:
            if self._standing is not None:
                raise
            await self._drop(agent, gain)

    async def _drop(self, agent: "Agent", gain: float) -> None:
        """Archive the oldest messages and put nothing in their place: no summary is smaller than they are.

        Raises:
            ContextWindowOverflowException: Less than a tenth of the tokens may leave.
        """
        messages = list(history_of(agent))
        counts = self.departures.counts(messages)
        flags = self._pin(messages)
        free = [0 if flag else count for count, flag in zip(counts, flags, strict=True)]
        places = cuts(messages, len(messages) - self.preserve_recent_messages, follows_user=False)
        won = {cut: sum(free[:cut]) for _, cut in places}
        enough = [cut for cut in won if won[cut] >= max(int(gain * sum(counts)), 1)]
        cut = min(enough) if enough else max(won, default=0)
        if won.get(cut, 0) < max(int(LEAST_GAIN * sum(counts)), 1):
            raise ContextWindowOverflowException(_INSUFFICIENT)
        await self._leave(agent, cut, is_recovery=True, is_silent=True)

    async def _recover_with_summary(self, agent: "Agent", gain: float) -> None:
        messages = list(history_of(agent))
        counts = self.departures.counts(messages)
        wanted = max(int(gain * sum(counts)), 1)
        cut, won = self._recovery_cut(messages, counts, wanted, self._size_of(agent))
        flags = self._pin(messages)
        staying = {place: messages[place] for place in range(cut, len(messages)) if not flags[place]}
        largest = dict(sorted(staying.items(), key=lambda item: -counts[item[0]]))
        shrinking = await self._shrinking(agent)
        shrunk, shrunk_by = await shrinking.shrunk(largest, views_of(messages), wanted - won)
        least = max(int(LEAST_GAIN * sum(counts)), 1)
        if won + shrunk_by < least:
            raise ContextWindowOverflowException(_INSUFFICIENT)
        if cut == 0:
            await self._replace(agent, shrunk)
            return
        await self._leave(agent, cut, is_recovery=True, shrunk=shrunk, max_tokens=sum(counts) - least)

    async def _stand_in(
        self, agent: "Agent", extent: MessageRange, place: ArchiveLocation, *, is_recovery: bool, max_tokens: int | None
    ) -> tuple[str, Summary | None]:
        writer = self._writer(agent, is_recovery=is_recovery)
        self._is_writing = True
        try:
            summary = await self.departures.summarize(
                extent,
                place,
                size=self._size_of(agent),
                summarizer=writer,
                is_recovery=is_recovery,
                max_tokens=max_tokens,
            )
        finally:
            self._is_writing = False
        if writer is not None:
            self._has_failed = bool(summary.fell_back)
        return summary.text, summary

    def _writer(self, agent: "Agent", *, is_recovery: bool) -> Summarizer | None:
        """Return who writes; None for the extractive summariser.

        While one writes, only that one does: a summarization agent with this very manager would ask itself for ever.
        One that has failed is not asked again in the same row of overflows: often it is the model that refuses.
        """
        has_failed_before = is_recovery and self._has_failed and self._gains.overflows > 1
        if self._is_extractive or self._is_writing or has_failed_before:
            return None
        if self._summarizer is not None:
            return self._summarizer
        attempts = 1 if is_recovery else 2  # the event loop waits in recovery
        if self.summarization_agent is None or self.summarization_agent is agent:
            return StrandsModelSummarizer(agent.aux_model, max_attempts=attempts)
        return AgentSummarizer(self.summarization_agent, max_attempts=attempts)

    def _documented_cut(self, messages: Sequence[NativeMessage]) -> int:
        """Return how many of the oldest leave: the ratio, moved so that no pair is parted and roles take turns.

        Raises:
            ContextWindowOverflowException: None may.
        """
        most = len(messages) - self.preserve_recent_messages
        wanted = min(max(1, int(len(messages) * self.summary_ratio)), most)
        heads = sum(map(self._is_head, messages))
        places = [place for place in cuts(messages, most, follows_user=True) if place[1] > heads]
        if wanted <= 0 or not places:
            raise ContextWindowOverflowException(_INSUFFICIENT)
        return min(places, key=lambda place: (place[0], place[1] < wanted, abs(place[1] - wanted)))[1]

    def _recovery_cut(
        self, messages: Sequence[NativeMessage], counts: Sequence[int], wanted_tokens: int, size: int
    ) -> tuple[int, int]:
        """Return how many of the oldest leave, at least as many as documented, and what that wins; 0 for none."""
        try:
            least = self._documented_cut(messages)
        except ContextWindowOverflowException:
            return 0, 0
        places = cuts(messages, len(messages) - self.preserve_recent_messages, follows_user=True)
        won = {cut: self._won(messages[:cut], counts, size) for _, cut in places if cut >= least}
        enough = [place for place in places if won.get(place[1], 0) >= wanted_tokens]
        cut = min(enough)[1] if enough else max(won, key=lambda cut: won[cut])
        return (cut, won[cut]) if won[cut] > 0 else (0, 0)

    def _won(self, leaving: Sequence[NativeMessage], counts: Sequence[int], size: int) -> int:
        """Return by how many tokens the history would become smaller at least, whatever the summary says."""
        flags = self._pin(leaving)
        tokens = sum(count for count, flag in zip(counts, flags, strict=False) if not flag)
        return tokens - self.departures.summary_tokens(tokens, size, least=LEAST_SUMMARY_TOKENS)
