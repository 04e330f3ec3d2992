"""Takes whole tool results before AgentScope cuts them.

AgentScope cuts a result as soon as the tool has ended, and shows the rest to the model only before the next model call.
So a result is offloaded at once. Some have to be in the context whole although they exceed the agent's limit: a rule
keeps them, they were read back, they could not be stored, or a document decides about them. They are held until that
call, and then put into the context.
"""

import logging
from dataclasses import replace
from typing import Any, Final

from agentscope.agent import Agent
from agentscope.message import TextBlock, ToolCallBlock, ToolResultBlock
from agentscope.tool import ToolResponse

from buoyline.errors import RedactionError, StorageError
from buoyline.integrations.agentscope.agents import message_of, pieces_of, result_limit_of, tokens_of
from buoyline.integrations.agentscope.context import DIALECT, AgentMemory, noted
from buoyline.integrations.agentscope.settings import Workbench
from buoyline.management.managers import text_numbers
from buoyline.management.rules import TruncatedStub
from buoyline.messages import Message, ToolCall
from buoyline.offloader.stub import truncated
from buoyline.tokens.messages import count_result
from buoyline.window.events import ResultOffloaded
from buoyline.window.state import Entry, entry_beside
from buoyline.window.tasks import beside

logger = logging.getLogger(__name__)

_HELD_SHARE: Final = 0.25
"""Of the agent's limit, for the text that replaces a held result: no two counters differ by so much."""


class ResultIntake:
    """Takes the tool results of agents whole."""

    def __init__(self, bench: Workbench) -> None:
        """Store results with what *bench* has."""
        self._bench = bench

    async def take(
        self, agent: Agent, memory: AgentMemory, call: ToolCallBlock, response: ToolResponse, *, is_managed: bool
    ) -> tuple[ToolResponse, list[ResultOffloaded]]:
        """Return *response* as it may be in the context, the very object if it is small enough, and events to emit.

        A result is offloaded if it takes more than its limit, or half of the window, by the agent's own count or by
        buoyline's. If it cannot be stored, it stays whole. Under a document, all of it comes to the context. If
        AgentScope would cut that, its beginning and its place replace it until then, and after a crash.

        Raises:
            ConfigError: The middleware's settings cannot work with the agent's limit.
            MessageError: The tool gave what no message holds.
        """
        events = list[ResultOffloaded]()
        given: Any = response  # whose own types leave the metadata open
        block = ToolResultBlock(
            id=call.id, name=call.name, output=given.content, state=given.state, metadata=given.metadata
        )
        # AgentScope appends it there, unless another of the calls that run at once ends first.
        said = noted(agent.state)
        index = said.archived + len(pieces_of(agent.state.context[len(said.head) :]))
        native = message_of("assistant", [block], agent.name)
        entry = await entry_beside(native, index, self._bench.counter, dialect=DIALECT)
        whole, limit = _content_of(entry), agent.context_config.tool_result_limit
        tokens = await tokens_of(agent, [message_of("assistant", whole)])
        if is_managed and tokens <= limit:
            return response, events
        try:
            if is_managed:
                left = await self._stored(agent, entry)
            else:
                left = await self._offloaded(agent, memory, call, entry, events, tokens=tokens)
        except (StorageError, RedactionError) as error:
            logger.warning("session %s: the result of %r stays whole: %s", agent.state.session_id, call.id, error)
            left = entry
        content = _content_of(left)
        if left is not entry:
            tokens = await tokens_of(agent, [message_of("assistant", content)])
        is_cut = tokens > limit  # by AgentScope
        if is_managed or is_cut:
            memory.held[call.id] = whole if is_managed else content
        if is_cut:
            text = "\n".join(part.text for part in content if isinstance(part, TextBlock))
            most = max(int(limit * _HELD_SHARE), 1)
            content = [TextBlock(text=await beside(len(text), truncated, text, most, self._bench.counter))]
        if content != response.content:
            response = response.model_copy(update={"content": content})
        return response, events

    async def _offloaded(
        self,
        agent: Agent,
        memory: AgentMemory,
        call: ToolCallBlock,
        entry: Entry,
        events: list[ResultOffloaded],
        *,
        tokens: int,
    ) -> Entry:
        """Offload a result of so many *tokens* by the agent's count if that, or our own count, is over its limit."""
        limit, result = result_limit_of(agent), entry.message.results[0]
        if tokens > limit:
            ours = await beside(len(result.text), count_result, result, self._bench.counter)
            limit = max(min(limit, ours * limit // tokens), 2)
        config = self._bench.settings.for_results(limit)
        planner, results = self._bench.offloading(agent.state.session_id, config, agent.model.context_size, {})
        called = replace(entry, message=Message("assistant", (ToolCall(call.id, call.name, call.input),)))
        choices = planner.choose([called, entry])
        left = await results.replace(entry, choices.get(entry.index, {}), events)
        # Nobody has to look these texts up to know which of them are stubs.
        memory.stubs |= results.stubs
        memory.asked.update(left.message.result_texts)
        return left

    async def _stored(self, agent: Agent, entry: Entry) -> Entry:
        """Store a whole result, and replace it by its beginning and its place."""
        limit, size = agent.context_config.tool_result_limit, agent.model.context_size
        config = self._bench.settings.for_results(limit)
        _, results = self._bench.offloading(agent.state.session_id, config, size, {})
        texts = text_numbers(entry.message.results[0])
        return await results.stand_in(entry, 0, texts, TruncatedStub(int(_HELD_SHARE * limit)), []) if texts else entry


def put_back(agent: Agent, memory: AgentMemory) -> None:
    """Put held results into the context. Those that another task has not added yet wait for the next time."""
    for message in reversed(agent.state.context) if memory.held else ():
        for block in reversed(message.content):  # the newest first: some models use a call's id again
            if isinstance(block, ToolResultBlock) and block.id in memory.held:
                block.output = memory.held.pop(block.id)


def _content_of(entry: Entry) -> list[Any]:
    output = entry.native.content[0].output
    return [TextBlock(text=output)] if isinstance(output, str) else list(output)
