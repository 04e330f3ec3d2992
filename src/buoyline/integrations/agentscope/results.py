"""Taking whole tool results before AgentScope cuts them.

AgentScope cuts a result right after the tool has ended, and shows the model what it kept only before the next model
call. So a result is offloaded as it comes; what has to stay although it is over the agent's limit, since a rule says
so, since it was read back, or since it could not be stored, is held meanwhile and put in its place before that call.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from agentscope.agent import Agent
from agentscope.message import Msg, TextBlock, ToolCallBlock, ToolResultBlock
from agentscope.tool import ToolResponse

from buoyline.errors import RedactionError, StorageError
from buoyline.integrations.agentscope.agents import Piece, message_of, pieces_of, tokens_of
from buoyline.integrations.agentscope.log import leaving_next, noted, stubs_in
from buoyline.integrations.agentscope.settings import Workbench
from buoyline.management.managers import text_numbers
from buoyline.management.rules import TruncatedStub
from buoyline.messages import Message, ToolCall
from buoyline.messages.registry import detect
from buoyline.offloader.stub import truncated
from buoyline.tokens.messages import count_message, count_result
from buoyline.window.events import ResultOffloaded, tell
from buoyline.window.offloading import ResultOffloader
from buoyline.window.plan import OffloadPlanner
from buoyline.window.state import Entry
from buoyline.window.tasks import beside

if TYPE_CHECKING:
    from buoyline.offloader.protocol import StoredResult

logger = logging.getLogger(__name__)

_HELD_SHARE: Final = 0.25
"""Of the agent's limit, for what stands in place of a result that is held: no counter differs by so much from ours."""

_WINDOW_SHARE: Final = 0.5
"""Of the model's window, for one result, whatever the agent's limit: its default of 50,000 tokens is more than many
windows hold."""


class ResultIntake:
    """Stores the tool results of agents whole, and leaves stubs."""

    def __init__(self, workbench: Workbench) -> None:
        """Store with what *workbench* has."""
        self._offloader = workbench.offloader
        self._abilities = workbench.abilities
        self._counter = workbench.counter
        self._settings = workbench.settings
        self._on_event = workbench.on_event
        self._held: WeakKeyDictionary[Agent, dict[str, list[Any]]] = WeakKeyDictionary()

    async def take(self, agent: Agent, call: ToolCallBlock, response: ToolResponse) -> ToolResponse:
        """Return *response* as it may stand in the context: the very object where it is small enough.

        A result leaves when it takes more than its limit, or half of the window, by the agent's own count or by ours.
        Where it cannot be stored, it stays whole.

        Raises:
            ConfigError: Our settings cannot work with the agent's limit.
            MessageError: The tool gave what no message holds.
        """
        block = _block_of(call, response)
        parts = self._parts(agent, await self._limit(agent, block, _limit_of(agent)))
        content = await self._offloaded(agent, call, block, parts)
        if await self._is_cut(agent, content):
            content = list(await self._hold(agent, call, content, content))
        return response if content == response.content else response.model_copy(update={"content": content})

    async def keep(self, agent: Agent, call: ToolCallBlock, response: ToolResponse) -> ToolResponse:
        """Return *response* so that all of it comes to the context, where a document decides about it.

        What AgentScope would cut is stored meanwhile; its beginning and its place are what a crash leaves of it in the
        context.

        Raises:
            ConfigError: Our settings cannot work with the agent's limit.
            MessageError: The tool gave what no message holds.
        """
        block = _block_of(call, response)
        whole: list[Any] = [TextBlock(text=block.output)] if isinstance(block.output, str) else list(block.output)
        if not await self._is_cut(agent, whole):
            return response
        content = await self._hold(agent, call, whole, await self._stored(agent, block, whole))
        return response.model_copy(update={"content": content})

    def put_back(self, agent: Agent) -> None:
        """Put what is held in its place; what another task has not written down yet waits for the next time."""
        held = self._held.get(agent)
        if not held or not agent.state.context:
            return
        for block in agent.state.context[-1].content:
            if isinstance(block, ToolResultBlock) and block.id in held:
                block.output = held.pop(block.id)

    async def settle(self, agent: Agent) -> None:
        """Decide about the results since the model spoke last: those that came from elsewhere, and their total.

        The context is changed in place, before a model sees them.

        Raises:
            ConfigError: Our settings cannot work with the agent's limit.
        """
        self.put_back(agent)
        context = agent.state.context
        piece = _newest_results(context)
        if piece is None:
            return
        choosing, offloading = self._parts(agent, _limit_of(agent))
        native = piece.native
        view = detect(native).view(native)
        offloading.stubs.update(await stubs_in([view], self._abilities, agent.state.session_id))
        calls = tuple(part for part in detect(piece.message).view(piece.message).parts if isinstance(part, ToolCall))
        entry = await self._entry(agent, native, view)
        events: list[ResultOffloaded] = []
        try:
            choices = await choosing.choose([replace(entry, message=Message("assistant", calls)), entry])
            settled = await offloading.replace(entry, choices.get(entry.index, {}), events)
        except (StorageError, RedactionError) as error:
            logger.warning("session %s: results stay whole: %s", agent.state.session_id, error)
            return
        piece.message.content[piece.start : piece.stop] = settled.native.content
        for event in events:
            tell(self._on_event, event)

    async def _stored(self, agent: Agent, block: ToolResultBlock, whole: list[Any]) -> list[Any]:
        """Store a result, and return its beginning with its place; all of it where it cannot be stored."""
        native = message_of("assistant", [block], agent.name)
        _, offloading = self._parts(agent, _limit_of(agent))
        entry = await self._entry(agent, native, detect(native).view(native))
        texts = text_numbers(entry.message.results[0])
        beginning = TruncatedStub(int(_HELD_SHARE * agent.context_config.tool_result_limit))
        try:
            left = await offloading.stand_in(entry, 0, texts, beginning, []) if texts else entry
        except (StorageError, RedactionError) as error:
            logger.warning("session %s: the result of %r is in no file: %s", agent.state.session_id, block.id, error)
            left = entry
        return whole if left is entry else _content_of(left)

    async def _is_cut(self, agent: Agent, content: Sequence[Any]) -> bool:
        """Return whether AgentScope would cut *content*."""
        tokens = await tokens_of(agent, [message_of("assistant", content)])
        return tokens > agent.context_config.tool_result_limit

    async def _hold(
        self, agent: Agent, call: ToolCallBlock, content: list[Any], standing: Sequence[Any]
    ) -> Sequence[Any]:
        """Hold *content* until it can be put in its place; return what stands there until then."""
        self._held.setdefault(agent, {})[call.id] = content
        if await self._is_cut(agent, standing):
            return await self._beginning(standing, agent.context_config.tool_result_limit)
        return standing

    async def _offloaded(
        self,
        agent: Agent,
        call: ToolCallBlock,
        block: ToolResultBlock,
        parts: tuple[OffloadPlanner, ResultOffloader],
    ) -> list[Any]:
        native = message_of("assistant", [block], agent.name)
        choosing, offloading = parts
        view = detect(native).view(native)
        entry = await self._entry(agent, native, view)
        called = replace(entry, message=Message("assistant", (ToolCall(call.id, call.name, call.input),)))
        try:
            choices = await choosing.choose([called, entry])
            events: list[ResultOffloaded] = []
            left = await offloading.replace(entry, choices.get(entry.index, {}), events)
            for event in events:
                tell(self._on_event, event)
        except (StorageError, RedactionError) as error:
            logger.warning("session %s: the result of %r stays whole: %s", agent.state.session_id, call.id, error)
            left = entry
        return _content_of(left)

    async def _limit(self, agent: Agent, block: ToolResultBlock, limit: int) -> int:
        """Return the limit by our own count that is no more than the agent's by its own."""
        theirs = await tokens_of(agent, [message_of("assistant", block.output)])
        if theirs <= limit:
            return limit
        view = detect(message_of("assistant", [block], agent.name)).view(message_of("assistant", [block], agent.name))
        chars = len(view.results[0].text)
        ours = await beside(chars, count_result, view.results[0], self._counter)
        return max(min(limit, ours * limit // theirs), 2)

    async def _beginning(self, content: Sequence[Any], limit: int) -> list[Any]:
        """Return what stands for a held result until it is put in its place; it is all there is after a crash."""
        text = "\n".join(block.text for block in content if isinstance(block, TextBlock))
        tokens = max(int(limit * _HELD_SHARE), 1)
        return [TextBlock(text=await beside(len(text), truncated, text, tokens, self._counter))]

    def _parts(self, agent: Agent, limit: int) -> tuple[OffloadPlanner, ResultOffloader]:
        stubs: dict[str, StoredResult] = {}
        session_id = agent.state.session_id
        choosing = OffloadPlanner(
            session_id,
            self._settings.for_results(limit),
            agent.model.context_size,
            self._counter,
            stubs,
            self._abilities.rereads,
            None,
            can_store=True,
        )
        offloading = ResultOffloader(
            self._offloader,
            self._abilities,
            session_id,
            self._counter,
            has_listener=self._on_event is not None,
            stubs=stubs,
        )
        return choosing, offloading

    async def _entry(self, agent: Agent, native: Msg, view: Message) -> Entry:
        index = noted(agent.state).archived + len(pieces_of(leaving_next(agent.state))) - 1
        chars = sum(len(result.text) for result in view.results)
        tokens = await beside(chars, count_message, view, self._counter)
        return Entry(native, detect(native).name, view, tokens, index)


def _limit_of(agent: Agent) -> int:
    """Return what one result may take by the agent's own count."""
    return min(agent.context_config.tool_result_limit, int(_WINDOW_SHARE * agent.model.context_size))


def _block_of(call: ToolCallBlock, response: ToolResponse) -> ToolResultBlock:
    given: Any = response  # whose own types leave the metadata open
    return ToolResultBlock(id=call.id, name=call.name, output=given.content, state=given.state, metadata=given.metadata)


def _content_of(entry: Entry) -> list[Any]:
    output = entry.native.content[0].output
    return [TextBlock(text=output)] if isinstance(output, str) else list(output)


def _newest_results(context: Sequence[Msg]) -> Piece | None:
    """Return the results that the model has not seen yet; hints may stand behind them."""
    content = context[-1].content if context else []
    stop = len(content)
    while stop and content[stop - 1].type == "hint":
        stop -= 1
    start = stop
    while start and content[start - 1].type == "tool_result":
        start -= 1
    return Piece(context[-1], start, stop) if start < stop else None
