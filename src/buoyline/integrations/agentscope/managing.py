"""An agent's context under a document: what fires when, and what an agent is told where a provider refuses it."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

from agentscope.agent import Agent
from agentscope.agent import ContextConfig as AgentScopeConfig
from agentscope.message import HintBlock, Msg

from buoyline.compression import Summarizer, SummaryFunction
from buoyline.compression.summarizers import summarizer_from
from buoyline.errors import ContextOverflowError
from buoyline.integrations.agentscope.archived import noted, standing_of
from buoyline.integrations.agentscope.compressing import forget_reads, is_strict, said_in, usage_of
from buoyline.integrations.agentscope.engine import Engine, Memory, Writing, engine_of
from buoyline.integrations.agentscope.keeping import ContextKeeping
from buoyline.integrations.agentscope.settings import Workbench
from buoyline.integrations.agentscope.summarizer import AgentModelSummarizer
from buoyline.management import ContextManagement
from buoyline.management.bodies import NAME_KEY
from buoyline.management.cutting import Cutting
from buoyline.window.documents import document_of
from buoyline.window.events import OverflowRecovered
from buoyline.window.reporting import reporting
from buoyline.window.situating import situation_of

_FREE_SHARE: Final = 0.1
"""Of the window, for the answer, and for the hints that AgentScope adds once the context is managed."""


class DocumentRunning:
    """Runs documents over the contexts of agents, each of which is its own.

    Nothing of an agent's state changes before what left it is durable, and then all of it at once.
    """

    def __init__(
        self,
        workbench: Workbench,
        keeping: ContextKeeping,
        summarizer: Summarizer | SummaryFunction | None,
        summarizers: Mapping[str, Summarizer | SummaryFunction],
    ) -> None:
        """Run them with what *workbench* has.

        Args:
            workbench: The middleware's.
            keeping: Writes contexts down.
            summarizer: Left out: the agent's own model.
            summarizers: Others, by the ``summarization_model_id`` of documents.

        Raises:
            ConfigError: One of them cannot summarise.
        """
        self._workbench = workbench
        self._keeping = keeping
        self._summarizer = None if summarizer is None else summarizer_from(summarizer)
        self._summarizers = {name: summarizer_from(one) for name, one in summarizers.items()}
        self._memories: WeakKeyDictionary[Agent, Memory] = WeakKeyDictionary()
        self._named: WeakKeyDictionary[Agent, tuple[str, str, ContextManagement]] = WeakKeyDictionary()

    async def document_for(self, agent: Agent) -> ContextManagement | None:
        """Return the document that the user's newest message names in its metadata, else the middleware's own.

        It holds until the user says something else, also where a reply goes on in another process.

        Raises:
            NotFoundError: There is no document of that name.
            BuoylineError: See `document_of`.
        """
        asked = _asked_for(agent)
        if asked is None:
            return self._workbench.management
        known = self._named.get(agent)
        if known is None or known[:2] != asked:
            body = {NAME_KEY: asked[1]}
            known = (*asked, await asyncio.to_thread(document_of, body, self._workbench.offloader))
            self._named[agent] = known
        return known[2]

    def is_needed_by(self, agent: Agent) -> bool:
        """Tell whether a document has left something in the context of which nobody else knows what it is."""
        said = noted(agent.state)
        return bool(said.head or said.pins)

    async def manage(self, agent: Agent, document: ContextManagement | None) -> None:
        """Do what is to be done before a model call; without a document, make room as a window does.

        Raises:
            ContextOverflowError: System prompt, tools and pins alone exceed the window.
            Exception: See `ContextWindow.prepare`. The context is as it was, or as managers before have left it.
        """
        memory = self._memories.setdefault(agent, Memory())
        async with self._engine(agent, document, agent.context_config) as engine:
            engine.room.check()
            if document is None:
                await engine.relief.make_room()
                return
            newest = _newest(agent)
            if newest != memory.settled:
                engine.context.settled = engine.context.contents.turn_at(len(engine.context.contents))
            await engine.managing.settle(document)
            memory.settled = newest
            if engine.waiting():
                await engine.managing.fire(document, "pre_llm")
            else:
                await engine.relief.manage(document, engine.managing)

    async def compress(
        self,
        agent: Agent,
        document: ContextManagement | None,
        config: AgentScopeConfig,
        instructions: HintBlock | None,
    ) -> None:
        """Compress above the trigger of *config*, as somebody has asked by hand.

        Raises:
            Exception: See `ContextWindow.compress`; the context is as it was.
        """
        async with self._engine(agent, document, config) as engine:
            if engine.room.tokens <= config.trigger_ratio * engine.room.size:
                return
            if document is not None:
                await engine.managing.fire(document, "pre_compress")
            settings = engine.managing.config
            cut = engine.cut_for(settings)
            if cut and Cutting(situation_of(engine.context)).leaving(cut):
                await engine.compressing.compress(settings, said_in(instructions), cut=cut)

    async def recover(self, agent: Agent, document: ContextManagement | None, error: Exception, size: int) -> None:
        """Make the context smaller after the provider refused it with *error*.

        Args:
            agent: Whose context it was.
            document: Says how; where it is None, or its managers have not done enough, the oldest messages are
                summarised without a model.
            error: What the client raised.
            size: Of the window of the model that refused.

        Raises:
            Exception: *error*, where nothing could make it a tenth smaller.
        """
        began = time.perf_counter()
        size = min(size, agent.model.context_size)
        async with self._engine(agent, document, agent.context_config, size) as engine:
            before = engine.room.tokens
            try:
                await engine.relief.recover(before, document, engine.managing, error)
            except ContextOverflowError as failure:
                raise error from failure
            tell = reporting(agent.state.session_id, self._workbench.on_event)
            tell(OverflowRecovered(before, engine.room.tokens, time.perf_counter() - began))

    def note_call(self, agent: Agent) -> None:
        """Take note that the agent's model is called now."""
        self._memories.setdefault(agent, Memory()).called_at_s = time.monotonic()

    @asynccontextmanager
    async def _engine(
        self, agent: Agent, document: ContextManagement | None, config: AgentScopeConfig, size: int | None = None
    ) -> AsyncGenerator[Engine]:
        """Have the engine work on the agent's context; however that ends, the agent gets what is durable then."""
        await self._keeping.keep(agent)  # which begins the session, or takes it over
        asked = AgentModelSummarizer(agent.model) if self._summarizer is None else self._summarizer
        bench, session_id = self._workbench, agent.state.session_id
        engine = await engine_of(
            agent,
            await standing_of(agent.state, bench.abilities, bench.shown.get(session_id)),
            workbench=bench,
            keeping=self._keeping,
            memory=self._memories.setdefault(agent, Memory()),
            writing=Writing(usual=asked, named=self._summarizers, required=is_strict(config)),
            config=bench.settings.for_engine(config, agent),
            room=_room(agent.model.context_size if size is None else size, document),
        )
        engine.compressing.preserves_words = document is not None or self.is_needed_by(agent)
        try:
            yield engine
        finally:
            has_changed = engine.apply()
            if engine.context.summary is not None:
                bench.show(session_id, engine.context.summary[1])
            if isinstance(asked, AgentModelSummarizer) and has_changed:
                for usage in asked.usages:
                    agent.state.context[-1].append_usage(usage_of(usage))
        if has_changed:
            await forget_reads(agent, agent.state.context)
            await self._keeping.keep(agent)


def _asked_for(agent: Agent) -> tuple[str, str] | None:
    """Return the user's newest message, by its id, with the document that it names; None where it names none."""
    for message in reversed(agent.state.context):
        if message.role == "user":
            said: Any = message  # whose own types leave the metadata open
            name = said.metadata.get(NAME_KEY)
            return None if name is None else (message.id, name)
    return None


def _room(size: int, document: ContextManagement | None) -> tuple[int, int]:
    """Return a window, and what of it a document leaves free; the agent's own trigger leaves some anyway."""
    return size, 0 if document is None else int(_FREE_SHARE * size)


def _newest(agent: Agent) -> tuple[str, str, str] | None:
    """Return what the newest message, and what is newest in it, are known by, whatever leaves before that."""
    if not agent.state.context:
        return None
    message: Msg = agent.state.context[-1]
    return message.id, *((message.content[-1].type, message.content[-1].id) if message.content else ("", ""))
