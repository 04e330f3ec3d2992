"""`SummarizingConversationManager`: a summary with pointers stands for the oldest messages."""

import asyncio
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

from strands.agent.conversation_manager import ProactiveCompressionConfig
from strands.types.exceptions import ContextWindowOverflowException

from buoyline.compression import ContextConfig, Extent, Summarizer, Summary, SummaryFunction
from buoyline.compression.budget import LEAST_SUMMARY_TOKENS
from buoyline.compression.rendering import Place
from buoyline.errors import ConfigError
from buoyline.integrations.strands.agent_summaries import AgentSummarizer, StrandsModelSummarizer
from buoyline.integrations.strands.gains import LEAST_GAIN
from buoyline.integrations.strands.guarding import guarded_summarizer
from buoyline.integrations.strands.history import NativeMessage, cuts, history_of, views_of
from buoyline.integrations.strands.leaving import LeavingConversationManager
from buoyline.offloader import Offloader
from buoyline.tokens import TokenCounter

if TYPE_CHECKING:
    from strands import Agent

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
        self, agent: "Agent", extent: Extent, place: Place, *, is_recovery: bool, max_tokens: int | None
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
