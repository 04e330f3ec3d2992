"""The engine of a window, at work on an agent's context for one call.

AgentScope keeps the messages. So for each call the engine gets what is in the agent's state, and the state gets what
the engine made of it: all at once, and only what is durable.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from copy import copy
from typing import Any, Final
from weakref import WeakKeyDictionary

from agentscope.agent import Agent
from agentscope.agent import ContextConfig as AgentScopeConfig
from agentscope.message import HintBlock, Msg, ToolCallBlock, Usage
from agentscope.tool import ToolResponse

from buoyline.compression import Summarizer
from buoyline.compression.extractive.summarizer import Extractive
from buoyline.compression.plan import plan
from buoyline.compression.summarizers.callables import SummaryFunction, summarizer_from
from buoyline.errors import (
    BuoylineError,
    ContextOverflowError,
    NotFoundError,
    RedactionError,
    StaleWindowError,
    StorageError,
)
from buoyline.integrations.agentscope.agents import (
    Piece,
    added_since,
    focus_of,
    forget_reads,
    last_cut,
    messages_of,
    model_input,
    result_limit_of,
    tokens_of,
)
from buoyline.integrations.agentscope.context import (
    DIALECT,
    AgentContext,
    AgentLog,
    AgentMemory,
    Leading,
    StateNote,
    behind_head,
    context_of,
    note,
    noted,
)
from buoyline.integrations.agentscope.results import ResultIntake, put_back
from buoyline.integrations.agentscope.settings import Workbench
from buoyline.integrations.agentscope.summarizer import AgentModelSummarizer
from buoyline.management import ContextManagement
from buoyline.management.registry import NAME_KEY
from buoyline.management.rules import LegalCuts
from buoyline.offloader import StoredResult
from buoyline.window.budget import TokenBudget, UsageCalibration
from buoyline.window.context import Context
from buoyline.window.engine import Engine
from buoyline.window.events import OverflowRecovered, ResultOffloaded, reporting
from buoyline.window.settings import config_to_json, document_of
from buoyline.window.state import State
from buoyline.window.tasks import completed

logger = logging.getLogger(__name__)

_MIN_SCALE: Final = 0.25
_MAX_SCALE: Final = 4.0
"""No two counters differ by more; if they seem to, one of them counts something else."""

_FREE_SHARE: Final = 0.1
"""Of the window under a document, for the answer, and for hints that AgentScope adds after the managers."""


class AgentEngine(Engine):
    """The engine over one agent's context.

    Attributes:
        agent: The agent.
        held: Its context when the engine got it.
        counted_tokens: Tokens of the model's input then, by the agent's own count.
        has_changed: The agent's context was changed.
    """

    def attach(self, agent: Agent, held: AgentContext, counted_tokens: int) -> None:
        """Work on the context of *agent*; see the attributes."""
        self.agent, self.held, self.counted_tokens = agent, held, counted_tokens
        self.has_changed = False
        self.context.begin(held.state)
        self._before = self._form()

    @property
    def pending_calls(self) -> set[str]:
        """The ids of the calls that the agent is about to answer."""
        return {call.id for call in self.agent.state.get_unfinished_tool_calls(self.agent.name)}

    def reopen_turn(self) -> None:
        """Decide again about the messages since the model spoke last."""
        messages = self.context.state.messages
        self.context.reopen(messages.turn_at(len(messages)))
        self.context.planner.restart(self.context.state.messages)

    def cut(self, max_kept_tokens: int) -> int:
        """Return how many messages are archived so that the others take *max_kept_tokens*.

        Calls that the agent is about to answer are kept, since AgentScope puts the results behind them.
        """
        state, pending = self.context.whole, self.pending_calls
        views = [entry.message for entry in state.messages]
        kept = (at for at, view in enumerate(views) if any(call.call_id in pending for call in view.calls))
        last = next(kept, len(views))
        if self.held.common:
            return last_cut(views, min(self.held.common, last))
        at_least = state.attempted_until - state.messages.first
        counts = [entry.tokens for entry in state.messages]
        cut = plan(views, counts, max_kept_tokens=max_kept_tokens, at_least=at_least).cut
        if cut > last:
            cut = last_cut(views, last)
        return cut if cut >= at_least else 0

    def apply(self) -> None:
        """Give the agent's state all changes at once, if there are any."""
        self.has_changed = self._form() != self._before
        if not self.has_changed:
            return
        context, state, held = self.context.whole, self.agent.state, self.held
        summary = context.summary
        is_new = summary is not None and summary is not held.state.summary
        pieces: list[Piece] = []
        for entry in context.messages:
            if entry.index in held.forms and entry.native is not held.foreign:
                piece, native = held.forms[entry.index]
                pieces.append(piece if entry.native is native else piece._replace(changed=entry.native))
        pieces += added_since(state.context if held.pieces else behind_head(state), held.pieces)
        prefix = [entry for entry in context.prefix if not (is_new and entry.native is held.foreign)]
        notice = [] if context.notice is None else [context.notice]
        head = [Leading(e.native, e.index, pinned=e.pinned) for e in (*prefix, *notice, *context.reinserted)]
        if is_new and summary is not None:
            state.summary = summary.summary.text
        elif summary is None and not any(entry.native is held.foreign for entry in context.messages):
            state.summary = ""
        state.context = [*(one.message for one in head), *messages_of(pieces)]
        first = context.messages.first
        pins = frozenset(held.forms[at][0].key for at in context.pins if at in held.forms and at >= first)
        note(state, StateNote(first, tuple(head), pins, context.batches))

    def _form(self) -> tuple[object, ...]:
        state = self.context.whole
        natives = [id(entry.native) for entry in (*state.leading, *state.messages)]
        return state.messages.first, natives, state.pins, id(state.summary)


class AgentContexts:
    """Keeps the contexts of agents small, each its own, and writes them down.

    Nothing in an agent's state changes before it is durable; then all of it changes at once.
    """

    def __init__(
        self,
        bench: Workbench,
        summarizer: Summarizer | SummaryFunction | None,
        summarizers: Mapping[str, Summarizer | SummaryFunction],
    ) -> None:
        """Have *summarizer* write the summaries; None: the agent's own model.

        *summarizers* are further ones, by the ``summarization_model_id`` of documents.

        Raises:
            ConfigError: One of them cannot summarize.
        """
        self._bench = bench
        self._intake = ResultIntake(bench)
        self._summarizer = None if summarizer is None else summarizer_from(summarizer)
        self._summarizers = {name: summarizer_from(one) for name, one in summarizers.items()}
        self._memories: WeakKeyDictionary[Agent, AgentMemory] = WeakKeyDictionary()
        self._documents: WeakKeyDictionary[Agent, tuple[str, str, ContextManagement]] = WeakKeyDictionary()

    async def document_for(self, agent: Agent) -> ContextManagement | None:
        """Return the document that the user's newest message names in its metadata, or the middleware's own.

        It applies until the user speaks again, also if a reply continues in another process.

        Raises:
            NotFoundError: There is no document of that name.
            BuoylineError: See `document_of`.
        """
        asked: Any = next((message for message in reversed(agent.state.context) if message.role == "user"), None)
        name = None if asked is None else asked.metadata.get(NAME_KEY)
        if asked is None or name is None:
            return self._bench.management
        known = self._documents.get(agent)
        if known is None or known[:2] != (asked.id, name):
            found = await asyncio.to_thread(document_of, {NAME_KEY: name}, self._bench.offloader)
            known = self._documents[agent] = (asked.id, name, found)
        return known[2]

    async def keep(self, agent: Agent) -> None:
        """Write what is new in the agent's context. A failure is logged, and the agent continues."""
        log = self._memory_of(agent).log
        if log.log is None or log.is_stale:
            return
        try:
            await completed(self._keep(agent))
        except StaleWindowError as refused:
            log.is_stale = True
            logger.warning("%s; what this agent goes on with is not written down", refused)
        except (BuoylineError, OSError) as failure:
            log.report(failure)

    async def _keep(self, agent: Agent) -> None:
        memory = self._memory_of(agent)
        await memory.log.open(lambda: self._settings_of(agent))
        if memory.log.log is not None:
            # Reading the context once more took a twentieth of the processor time of a long session.
            held = memory.take_prepared() or await self._context_of(memory)
            await memory.log.write(held.state)

    async def end(self, agent: Agent) -> None:
        """Put results into the context that waited for a model call, since there is none, and write it down."""
        memory = self._memory_of(agent)
        put_back(agent, memory)
        memory.held.clear()  # another reply may use the same ids
        await self.keep(agent)

    async def take(
        self, agent: Agent, call: ToolCallBlock, response: ToolResponse
    ) -> tuple[ToolResponse, list[ResultOffloaded]]:
        """Return *response* as it may be in the context, and events to emit; see `ResultIntake.take`."""
        is_managed = await self.document_for(agent) is not None
        return await self._intake.take(agent, self._memory_of(agent), call, response, is_managed=is_managed)

    async def prepare(self, agent: Agent, config: AgentScopeConfig | None, instructions: HintBlock | None) -> None:
        """Make the context small enough for a model call, or compact it by hand.

        *config* holds for this time only; None: the agent's. *instructions* say what to keep above all in a summary.

        Raises:
            ContextOverflowError: What must stay leaves no room.
            Exception: See `ContextWindow.prepare`; the context is as it was, or as earlier managers left it.
        """
        document = await self.document_for(agent)
        put_back(agent, self._memory_of(agent))
        if document is None:
            await self._make_room(agent, config or agent.context_config, instructions)
        elif config is None and instructions is None:
            await self._manage(agent, document)
        else:
            await self._compress(agent, document, config or agent.context_config, instructions)

    async def _make_room(self, agent: Agent, config: AgentScopeConfig, instructions: HintBlock | None) -> None:
        """Offload large results and images, and compact above the trigger of *config*.

        Raises:
            ContextOverflowError: System prompt and summary alone reach the trigger.
            Exception: See `ContextWindow.prepare`; the context is as it was.
        """
        async with self._engine(agent, None, config, keeps_common=False, is_fresh=False) as engine:
            newest, memory = _newest(agent), self._memory_of(agent)
            if newest != memory.settled:
                engine.reopen_turn()
                try:
                    await engine.settle(None)
                    memory.settled = newest
                except (StorageError, RedactionError) as error:
                    logger.warning("session %s: results stay whole: %s", agent.state.session_id, error)
            await engine.limit_images()
        tokens = engine.counted_tokens
        if engine.has_changed:
            tokens = await tokens_of(agent, **await model_input(agent))
        trigger_tokens = engine.config.largest_trigger_ratio * engine.context.budget.size
        if tokens <= trigger_tokens:
            return
        if not agent.state.context:
            reason = "the system prompt and the summary alone reach the trigger, and no message can be archived"
            raise ContextOverflowError(tokens, int(trigger_tokens), reason)
        await self.keep(agent)  # which begins the session, before anything is archived
        async with self._engine(agent, None, config, keeps_common=False) as engine:
            cut = engine.cut(engine.context.budget.usage.ours(engine.config.reserve_ratio * engine.context.budget.size))
            if cut == 0:
                logger.warning("agent %s: its newest messages alone take too much of %d tokens", agent.name, tokens)
                return
            await engine.compaction.compact(engine.config, focus_of(instructions), cut=cut)
        if engine.held.common:  # two histories had these messages in common; those behind them may be too many, too
            await self._make_room(agent, config, instructions)

    async def _manage(self, agent: Agent, document: ContextManagement) -> None:
        """Fire the hooks that come before a model call.

        Raises:
            ContextOverflowError: System prompt, tools and pins alone exceed the window.
            Exception: See `ContextWindow.prepare`; the context is as it was, or as earlier managers left it.
        """
        async with self._engine(agent, document, agent.context_config) as engine:
            engine.context.budget.check(engine.context.state)
            newest, memory = _newest(agent), self._memory_of(agent)
            if newest != memory.settled:
                engine.reopen_turn()
            await engine.hooks.settle(document)
            memory.settled = newest
            if engine.pending_calls:
                await engine.hooks.fire(document, "pre_llm")
            else:
                await engine.manage(document)

    async def _compress(
        self, agent: Agent, document: ContextManagement, config: AgentScopeConfig, instructions: HintBlock | None
    ) -> None:
        """Compact above the trigger of *config*, by hand and beside a document.

        Raises:
            Exception: See `ContextWindow.compress`; the context is as it was.
        """
        async with self._engine(agent, document, config) as engine:
            budget = engine.context.budget
            if engine.context.tokens <= config.trigger_ratio * budget.size:
                return
            cut = engine.cut(budget.kept_tokens(engine.context.whole, engine.config))
            if cut and LegalCuts(engine.compaction.view()).removed_count(cut):
                await engine.compaction.compact(engine.config, focus_of(instructions), cut=cut)

    async def recover(self, agent: Agent, error: Exception, size: int) -> None:
        """Make the context smaller after the provider refused it with *error*.

        Without a document, or if its managers did too little, the oldest messages are summarized without a model.
        *size* is the window of the model that refused, in tokens.

        Raises:
            Exception: *error*, if nothing made the context a tenth smaller.
        """
        began, size = time.perf_counter(), min(size, agent.model.context_size)
        document = await self.document_for(agent)
        await self.keep(agent)
        async with self._engine(agent, document, agent.context_config, size) as engine:
            before = engine.context.tokens
            try:
                await engine.recover(before, document, error)
            except ContextOverflowError as failure:
                raise error from failure
            engine.context.tell(OverflowRecovered(before, engine.context.tokens, time.perf_counter() - began))

    def _memory_of(self, agent: Agent) -> AgentMemory:
        memory = self._memories.get(agent)
        if memory is None or memory.state is not agent.state:
            before, log = memory, AgentLog(self._bench.abilities, agent.state.session_id)
            memory = self._memories[agent] = AgentMemory(agent.state, log)
            if before is not None:
                memory.settled = before.settled
        return memory

    async def _context_of(
        self, memory: AgentMemory, *, keeps_common: bool = True, is_fresh: bool = True
    ) -> AgentContext:
        bench = self._bench
        await memory.compare(bench.abilities, bench.shown.get(memory.state.session_id))
        return await context_of(memory, bench.counter, keeps_common=keeps_common, is_fresh=is_fresh)

    @asynccontextmanager
    async def _engine(
        self,
        agent: Agent,
        document: ContextManagement | None,
        config: AgentScopeConfig,
        size: int | None = None,
        *,
        keeps_common: bool = True,
        is_fresh: bool = True,
    ) -> AsyncGenerator[AgentEngine]:
        """Have the engine work on the agent's context. However that ends, the agent gets what is durable then.

        See `context_of` for *keeps_common* and *is_fresh*.
        """
        memory, bench = self._memory_of(agent), self._bench
        if document is not None:
            await self.keep(agent)  # managers may archive, and the session has to be begun before that
        asked = self._summarizer
        if asked is None:
            asked = AgentModelSummarizer(agent.model)
        if isinstance(asked, Extractive):
            asked = None  # the engine's own: it is not checked as a model's answer is
        usages = asked.usages if isinstance(asked, AgentModelSummarizer) else []
        used, is_done = len(usages), False
        held = await self._context_of(memory, keeps_common=keeps_common, is_fresh=is_fresh)
        engine = await self._made(agent, held, asked, document=document, config=config, size=size)
        try:
            yield engine
            is_done = True
        finally:
            engine.apply()
            if engine.has_changed or not is_done:
                memory.compared = None  # the archive may hold more messages now
            if engine.context.state.summary is not None:
                bench.show(agent.state.session_id, engine.context.state.summary.summary)
            for usage in usages[used:] if engine.has_changed else ():
                spent = Usage(
                    input_tokens=usage.input_tokens,
                    output_tokens=usage.output_tokens,
                    cache_input_tokens=usage.cache_input_tokens or 0,
                    cache_creation_input_tokens=usage.cache_creation_input_tokens or 0,
                )
                agent.state.context[-1].append_usage(spent)
        if engine.has_changed:
            await forget_reads(agent)
            await self.keep(agent)
        elif held.foreign is None and not held.common:  # else the engine gets it in another form than the log
            memory.prepared = held, memory.form

    async def _made(
        self,
        agent: Agent,
        held: AgentContext,
        summarizer: Summarizer | None,
        *,
        document: ContextManagement | None,
        config: AgentScopeConfig,
        size: int | None,
    ) -> AgentEngine:
        memory, bench, session_id = self._memory_of(agent), self._bench, agent.state.session_id
        if document is None:  # with one, the limits of the agent offload nothing
            config = config.model_copy(update={"tool_result_limit": result_limit_of(agent)})
        settings = bench.settings.for_engine(config, agent)
        given = await model_input(agent)
        size = agent.model.context_size if size is None else size
        system, tools = given["messages"][0].get_text_content() or "", list(given["tools"] or [])
        memory.log.archive_end = held.archive_end if held.common else 0
        reserved, budget = 0 if document is None else int(_FREE_SHARE * size), copy(memory.budget)
        if budget is None or (budget.size, budget.max_output_tokens) != (size, reserved):
            budget = TokenBudget(size, reserved, bench.counter, system, tools)
        budget.send_beside(system, tools)
        budget.usage = UsageCalibration(size)
        counted_tokens = await tokens_of(agent, **given)
        scale = counted_tokens / max(budget.own_tokens(held.state), 1)
        budget.usage.scale = min(max(scale, _MIN_SCALE), _MAX_SCALE)
        memory.budget = budget
        planner, results = bench.offloading(session_id, settings, size, await self._stubs(memory, held.state))
        results.stubs.update(planner.recall(held.state.messages))
        engine = AgentEngine(
            Context(memory.log, budget, planner, reporting(session_id, bench.on_event)),
            results,
            settings,
            summarizer=summarizer,
            summarizers=self._summarizers,
            dialect=DIALECT,
            requires_model=not config.compression_fallback_to_truncation,
        )
        said = noted(agent.state)
        engine.compaction.preserves_words = document is not None or bool(said.head or said.pins)
        engine.attach(agent, held, counted_tokens)
        return engine

    async def _stubs(self, memory: AgentMemory, state: State) -> dict[str, StoredResult]:
        """Return the stored results behind stubs in *state*, by their texts; each text is looked up once."""
        texts = {text for entry in (*state.leading, *state.messages) for text in entry.message.result_texts}
        new, stored = texts - memory.asked, self._bench.abilities.results
        found = dict(memory.stubs)
        if new and stored is not None:
            with suppress(NotFoundError):  # nothing was offloaded in this session so far
                found.update(await stored.load_stubs(memory.state.session_id, sorted(new)))
        memory.stubs, memory.asked = {text: found[text] for text in found if text in texts}, texts
        return dict(memory.stubs)

    async def _settings_of(self, agent: Agent) -> dict[str, Any]:
        """Return what another process needs to continue the session as a window."""
        given, management = await model_input(agent), self._bench.management
        return {
            "size": agent.model.context_size,
            "config": config_to_json(self._bench.settings.for_window(agent)),
            "system": given["messages"][0].get_text_content() or "",
            "tools": given["tools"],
            "dialect": DIALECT,
            **({} if management is None else {"management": management.to_json()}),
        }


def _newest(agent: Agent) -> tuple[str, str, str] | None:
    """Return the id of the newest message, and type and id of its newest block, whatever is archived before it."""
    if not agent.state.context:
        return None
    message: Msg = agent.state.context[-1]
    return message.id, *((message.content[-1].type, message.content[-1].id) if message.content else ("", ""))
