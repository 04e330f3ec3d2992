"""An agent's context, compressed by our compressor under AgentScope's settings.

Nothing of the agent's state changes before the messages are archived and the summary is checked and logged; then all
of it changes at once, without a chance for a cancellation between.
"""

import json
import logging
import time
from collections.abc import Sequence
from contextlib import suppress

from agentscope.agent import Agent
from agentscope.agent import ContextConfig as AgentScopeConfig
from agentscope.message import HintBlock, Msg, TextBlock, ToolCallBlock, Usage
from agentscope.model import ChatUsage

from buoyline.compression import Compressor, ContextConfig, Summarizer, Summary
from buoyline.compression.compressor import MessageRange
from buoyline.compression.config import summary_budget_tokens
from buoyline.compression.extractive.summarizer import Extractive
from buoyline.compression.summarizers.callables import SummaryFunction, summarizer_from
from buoyline.errors import ContextOverflowError, SummaryError
from buoyline.integrations.agentscope.agents import (
    Piece,
    added_since,
    cut_of,
    last_cut,
    messages_of,
    model_input,
    tokens_of,
)
from buoyline.integrations.agentscope.log import ContextKeeping, ContextPieces, StateNote, note, standing_of, stubs_in
from buoyline.integrations.agentscope.settings import Workbench
from buoyline.integrations.agentscope.summarizer import AgentModelSummarizer
from buoyline.messages import Message
from buoyline.messages.jsonl import is_object
from buoyline.messages.registry import detect
from buoyline.tokens.messages import count_message, count_tools
from buoyline.window.events import ContextCompressed, MessagesArchived, reporting

logger = logging.getLogger(__name__)


class ContextCompression:
    """Lets the oldest messages of agents leave for the archive, and puts a summary in their place."""

    def __init__(
        self, workbench: Workbench, keeping: ContextKeeping, summarizer: Summarizer | SummaryFunction | None
    ) -> None:
        """Archive with what *workbench* has.

        Args:
            workbench: The middleware's.
            keeping: Writes contexts down.
            summarizer: Left out: the agent's own model.

        Raises:
            ConfigError: *summarizer* cannot summarise.
        """
        self._offloader = workbench.offloader
        self._abilities = workbench.abilities
        self._counter = workbench.counter
        self._settings = workbench.settings
        self._on_event = workbench.on_event
        self._keeping = keeping
        self._summarizer = None if summarizer is None else summarizer_from(summarizer)
        self._workbench = workbench

    async def run(self, agent: Agent, config: AgentScopeConfig, instructions: HintBlock | None, tokens: int) -> None:
        """Compress the context of *agent*, which is over its trigger.

        Args:
            agent: Its state changes at the very end, or not at all.
            config: The agent's, or one for this time.
            instructions: What to keep above all.
            tokens: What the agent's model input takes by its own count.

        Raises:
            ConfigError: The template or the schema cannot work.
            ContextOverflowError: There is nothing but system prompt and summary.
            SummaryError: There is no summary, and *config* says not to do without.
            StaleWindowError: Somebody else goes on with the session.
            StorageError: The file system refused.
        """
        began = time.perf_counter()
        size, settings = agent.model.context_size, self._settings.for_compression(config, agent)
        if not agent.state.context:
            reason = "the system prompt and the summary alone reach the trigger, and nothing can leave"
            raise ContextOverflowError(tokens, int(settings.trigger_ratio * size), reason)
        shown = self._workbench.shown.get(agent.state.session_id)
        standing = await standing_of(agent.state, self._abilities, shown)
        views = [detect(piece.native).view(piece.native) for piece in standing.pieces]
        counts = [count_message(view, self._counter) for view in views]
        scale = await self._scale(agent, tokens, sum(counts))
        max_kept_tokens = int(settings.reserve_ratio * size / scale)
        cut = _cut(standing, views, counts, max_kept_tokens, waiting=waiting_in(agent, standing.pieces))
        if cut == 0:
            logger.warning("agent %s: its newest messages alone take too much of %d tokens", agent.name, tokens)
            return
        await self._keeping.keep_before_archiving(agent, standing)
        extent = await self._extent(agent, standing, views[:cut], sum(counts[:cut]))
        replaced_tokens = 0 if standing.previous is None else standing.previous.tokens
        going_tokens, room = extent.tokens + replaced_tokens, int((settings.trigger_ratio * size - tokens) / scale)
        limit = summary_budget_tokens(
            extent.tokens,
            settings.summary_limit(size),
            replaced_tokens=replaced_tokens,
            # If two ways part, what makes room comes next.
            trigger_room_tokens=None if standing.otherwise else room + going_tokens,
            window_room_tokens=int((size - tokens) / scale) + going_tokens,
        )
        asked = AgentModelSummarizer(agent.model) if self._summarizer is None else self._summarizer
        used = len(_usages(asked))
        summary = await self._summarized(
            extent, standing, settings, asked, max_tokens=limit, focus=said_in(instructions), strict=is_strict(config)
        )
        # A tool may have ended meanwhile, where another one has asked for this.
        kept = messages_of([*standing.pieces[cut:], *added_since(agent.state.context, standing.pieces)])
        answers = standing.note.answers + sum(view.role == "assistant" for view in views[:cut])
        self._apply(agent, summary, kept, _usages(asked)[used:], answers)
        await forget_reads(agent, kept)
        if self._on_event is not None:
            after = tokens - round((going_tokens - summary.tokens) * scale)
            self._on_event(ContextCompressed(summary, tokens, after, time.perf_counter() - began))
        await self._keeping.keep(agent)
        if standing.otherwise:
            await self._go_on(agent, config, instructions)

    async def _go_on(self, agent: Agent, config: AgentScopeConfig, instructions: HintBlock | None) -> None:
        """Compress what came behind the messages that two ways have in common, where those were not enough."""
        tokens = await tokens_of(agent, **await model_input(agent))
        if tokens >= config.trigger_ratio * agent.model.context_size:
            await self.run(agent, config, instructions, tokens)

    async def _scale(self, agent: Agent, theirs: int, context_tokens: int) -> float:
        """Return how many of the agent's tokens one of ours is, by what the whole input takes."""
        given = await model_input(agent)
        others = [message for message in given["messages"] if message not in agent.state.context]
        ours = context_tokens + count_tools(given["tools"], self._counter)
        ours += sum(count_message(detect(message).view(message), self._counter) for message in others)
        return min(max(theirs / max(ours, 1), 0.25), 4.0)

    async def _extent(
        self, agent: Agent, standing: ContextPieces, views: Sequence[Message], tokens: int
    ) -> MessageRange:
        natives = [piece.native for piece in standing.pieces[: len(views)]]
        if standing.foreign is not None:
            natives.insert(0, standing.foreign)
            tokens += count_message(detect(standing.foreign).view(standing.foreign), self._counter)
        return MessageRange(
            agent.state.session_id,
            standing.first,
            natives,
            tokens,
            archived=standing.archived,
            dialect=detect(natives[0]).name,
            stubs=await stubs_in(views, self._abilities, agent.state.session_id),
            batches=standing.note.batches,
        )

    async def _summarized(
        self,
        extent: MessageRange,
        standing: ContextPieces,
        settings: ContextConfig,
        asked: Summarizer,
        *,
        max_tokens: int,
        focus: str,
        strict: bool,
    ) -> Summary:
        """Archive *extent*, summarise it, and log the summary."""
        tell = reporting(extent.session_id, self._on_event)
        compressor = Compressor(
            self._offloader, config=settings, counter=self._counter, summarizer=asked, on_event=tell
        )
        place = await compressor.archive(extent)
        tell(MessagesArchived((extent.first, extent.end), extent.tokens, place.reference))
        summary = await compressor.summarize(
            extent,
            place,
            previous=None if standing.previous is None else standing.previous.draft,
            max_tokens=max_tokens,
            focus=focus,
            use_model=not isinstance(asked, Extractive),
        )
        if summary.fell_back and strict:
            raise SummaryError("the agent's model", f"{summary.fell_back}; the context is as it was")
        return await compressor.record(extent.session_id, summary)

    def _apply(
        self, agent: Agent, summary: Summary, kept: list[Msg], usages: Sequence[ChatUsage], answers: int
    ) -> None:
        state = agent.state
        self._workbench.show(state.session_id, summary)
        state.summary, state.context = summary.text, kept
        note(state, StateNote(summary.messages[1], answers=answers, batches=summary.draft.batches))
        for usage in usages:
            kept[-1].append_usage(usage_of(usage))


def _cut(
    standing: ContextPieces,
    views: Sequence[Message],
    counts: Sequence[int],
    max_kept_tokens: int,
    *,
    waiting: Sequence[int],
) -> int:
    """Return how many of the oldest pieces leave; see `ContextPieces.otherwise` and `cut_of`."""
    least = standing.archived_pieces
    if standing.otherwise:
        return last_cut(views, min([least, *waiting]))
    return cut_of(views, counts, max_kept_tokens=max_kept_tokens, at_least=least, waiting=waiting)


def waiting_in(agent: Agent, pieces: Sequence[Piece]) -> list[int]:
    """Return the numbers of the pieces with calls that have no result yet, and will get one."""
    ids = {call.id for call in agent.state.get_unfinished_tool_calls(agent.name)}
    return [number for number, piece in enumerate(pieces) if ids & _calls(piece)]


def _calls(piece: Piece) -> set[str]:
    blocks = piece.message.content[piece.start : piece.stop]
    return {block.id for block in blocks if isinstance(block, ToolCallBlock)}


def is_strict(config: AgentScopeConfig) -> bool:
    """Return whether there may be no summary without the model."""
    return not config.compression_fallback_to_truncation


def said_in(instructions: HintBlock | None) -> str:
    """Return what to keep above all, in words."""
    if instructions is None:
        return ""
    hint = instructions.hint
    return hint if isinstance(hint, str) else "\n".join(block.text for block in hint if isinstance(block, TextBlock))


def _usages(summarizer: Summarizer) -> Sequence[ChatUsage]:
    return summarizer.usages if isinstance(summarizer, AgentModelSummarizer) else ()


def usage_of(usage: ChatUsage) -> Usage:
    """Return what a model says of one request as a message keeps it."""
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_input_tokens=usage.cache_input_tokens or 0,
        cache_creation_input_tokens=usage.cache_creation_input_tokens or 0,
    )


async def forget_reads(agent: Agent, kept: Sequence[Msg]) -> None:
    """Let AgentScope's file tools forget files whose reading has left the context, as its own compression does."""
    paths: set[str] = set()
    for block in (block for message in kept for block in message.content):
        if isinstance(block, ToolCallBlock) and block.name == "Read":
            with suppress(ValueError):
                arguments: object = json.loads(block.input)
                path = arguments.get("file_path") if is_object(arguments) else None
                paths |= {path} if isinstance(path, str) else set()
    await agent.state.tool_context.clean_file_cache(reserved_file_paths=paths)
