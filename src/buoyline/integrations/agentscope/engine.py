"""The engine of a window, put to work on an agent's context for one call.

A window keeps its messages itself; here the agent does. So for each call the engine is given what stands in the agent's
state, and the state is given what the engine has made of it: all at once, and only what is durable.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

from agentscope.agent import Agent
from agentscope.agent import ContextConfig as AgentScopeConfig
from agentscope.message import HintBlock, Msg

from buoyline.compression import ContextConfig, Summarizer, Summary
from buoyline.compression.summarizers.callables import SummaryFunction, summarizer_from
from buoyline.errors import ContextOverflowError
from buoyline.integrations.agentscope.agents import Piece, added_since, last_cut, messages_of, model_input, tokens_of
from buoyline.integrations.agentscope.compaction import forget_reads, is_strict, said_in, usage_of
from buoyline.integrations.agentscope.log import (
    DIALECT,
    Again,
    ContextKeeping,
    ContextPieces,
    KeptByAgent,
    StateNote,
    hash_of,
    leaving_next,
    note,
    noted,
    standing_of,
    stubs_in,
)
from buoyline.integrations.agentscope.settings import Workbench
from buoyline.integrations.agentscope.summarizer import AgentModelSummarizer
from buoyline.management import ContextManagement
from buoyline.management.context import ActionResult, Offload
from buoyline.management.opensearch import NAME_KEY
from buoyline.management.rules import LegalCuts, PreviewStub
from buoyline.messages import Message, Text
from buoyline.messages.model import Note as Remark
from buoyline.messages.registry import dialect_named
from buoyline.offloader import StoredResult
from buoyline.tokens import TextCounter
from buoyline.tokens.messages import count_message
from buoyline.window.budget import TokenBudget
from buoyline.window.context import Context
from buoyline.window.engine import Engine
from buoyline.window.events import OverflowRecovered, reporting
from buoyline.window.hooks import DocumentHooks
from buoyline.window.offloading import ResultOffloader
from buoyline.window.plan import OffloadPlanner
from buoyline.window.settings import document_of
from buoyline.window.state import Entry, Messages, State, SummaryEntry
from buoyline.window.tasks import beside

_LEAST_SCALE: Final = 0.25
_MOST_SCALE: Final = 4.0
"""No two counters differ by more; where they seem to, one of them counts something else."""


@dataclass(slots=True)
class Memory:
    """What is known of one agent from call to call, and of which nothing is lost with the process.

    Attributes:
        tokens: Of the pieces that stood in its context, by their hashes.
        stubs: What stands for stored results there.
        asked: Texts of results that were looked for among the recorded stubs.
        settled: The newest piece about which the hooks for what was added have fired.
        called_at_s: When its model was called last; None before the first time.
    """

    tokens: dict[bytes, int] = field(default_factory=dict[bytes, int])
    stubs: dict[str, StoredResult] = field(default_factory=dict[str, StoredResult])
    asked: set[str] = field(default_factory=set[str])
    settled: tuple[str, str, str] | None = None
    called_at_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """Who writes summaries.

    Attributes:
        usual: Where a document names nobody.
        named: By the ``summarization_model_id`` of documents.
        required: A summary without the one who was asked is none.
    """

    usual: Summarizer
    named: Mapping[str, Summarizer | SummaryFunction]
    required: bool


class AgentHooks(DocumentHooks):
    """Carries out what managers ask for, but what the rules of the middleware forbid."""

    async def replace(self, action: Offload) -> ActionResult:
        """Store a part of a message, and put there what stands for it, unless a rule keeps it whole."""
        if isinstance(action.write_stub, PreviewStub) and action.result >= 0 and not self.is_overflow:
            entry = self.draft.messages[action.position]
            tool, _ = self.context.planner.known_of(entry.message.results[action.result])
            if self.context.planner.config.rule_for(tool).offload == "never":
                return ActionResult(f"message {entry.index} stays: a rule for {tool!r} keeps it", is_reduced=False)
        return await super().replace(action)


class AgentEngine(Engine):
    """The engine over one agent's context.

    Attributes:
        agent: The agent.
        standing: Its context as the archive knows it.
        pieces: By session index, each with the message that the engine was given for it.
    """

    hooks_type = AgentHooks

    def hold(self, agent: Agent, standing: ContextPieces, pieces: Mapping[int, tuple[Piece, Msg]]) -> None:
        """Remember what the agent has."""
        self.agent, self.standing, self.pieces = agent, standing, pieces
        self._before, self._summary = self._mark(), self._shown()

    def apply(self) -> bool:
        """Give the agent's state all that has changed, at once; tell whether there was anything."""
        if self._mark() == self._before:
            return False
        context, state, summary = self.context.whole, self.agent.state, self._shown()
        is_new = summary is not self._summary
        behind = [piece for entry in context.messages if (piece := self._piece(entry)) is not None]
        pieces = self.standing.pieces
        behind += added_since(state.context if pieces else leaving_next(state), pieces)
        head = self._head(is_new=is_new)
        if summary is not None and is_new:
            state.summary = summary.text
        elif not self._has_foreign():
            state.summary = state.summary if summary is not None else ""
        state.context = [*(again.message for again in head), *messages_of(behind)]
        first = context.messages.first
        pins = frozenset(self.pieces[at][0].key for at in context.pins if at in self.pieces and at >= first)
        note(state, StateNote(first, head, pins, context.archived_answers, context.batches))
        return True

    def waiting(self) -> bool:
        """Return whether there are calls that the agent is about to answer."""
        return bool(self.agent.state.get_unfinished_tool_calls(self.agent.name))

    def cut_for(self, config: ContextConfig) -> int:
        """Return how many messages leave under *config*; none of them makes a call that is about to be answered."""
        cut, ids = self.compaction.planned(config).cut, self._unfinished()
        state = self.context.whole
        entries = state.messages
        waiting = [at for at, entry in enumerate(entries) if any(call.call_id in ids for call in entry.message.calls)]
        if not waiting or cut <= waiting[0]:
            return cut
        last = last_cut([entry.message for entry in entries], waiting[0])
        return last if last >= state.attempted_until - state.messages.first else 0

    def _unfinished(self) -> set[str]:
        return {call.id for call in self.agent.state.get_unfinished_tool_calls(self.agent.name)}

    def _mark(self) -> tuple[object, ...]:
        state = self.context.whole
        natives = [id(entry.native) for entry in (*state.leading, *state.messages)]
        return state.messages.first, natives, state.pins, id(self._shown())

    def _shown(self) -> Summary | None:
        summary = self.context.state.summary
        return None if summary is None else summary.summary

    def _has_foreign(self) -> bool:
        """Return whether a summary that is none of ours still stands where it stood."""
        foreign = self.standing.foreign
        return foreign is not None and any(entry.native is foreign for entry in self.context.whole.messages)

    def _piece(self, entry: Entry) -> Piece | None:
        piece, given = self.pieces.get(entry.index, (None, None))
        if piece is None or entry.native is given:
            return piece
        return replace(piece, changed=entry.native)

    def _head(self, *, is_new: bool) -> list[Again]:
        """Return what stands at the head now. A summary that is none of ours is part of a new one."""
        context, foreign = self.context.state, self.standing.foreign
        lasting = [
            Again(entry.native, entry.index, pinned=entry.pinned)
            for entry in context.prefix
            if not (is_new and entry.native is foreign)
        ]
        notice = [] if context.notice is None else [Again(context.notice.native, -1)]
        return [*lasting, *notice, *(Again(entry.native, entry.index) for entry in context.reinserted)]


async def engine_of(
    agent: Agent,
    standing: ContextPieces,
    *,
    workbench: Workbench,
    keeping: ContextKeeping,
    memory: Memory,
    writing: Writing,
    config: ContextConfig,
    room: tuple[int, int],
) -> AgentEngine:
    """Put the engine to work on *agent*'s context.

    Args:
        agent: The agent; nothing of it is changed.
        standing: Its context as the archive knows it.
        workbench: The middleware's.
        keeping: Writes the context down before anything is archived.
        memory: Of the agent.
        writing: Who writes summaries.
        config: Of the agent, in our own words.
        room: Tokens of its model's window, and how many of them are left for what comes behind the context.

    Raises:
        CorruptError: What stands on disk is not what was written.
        StorageError: The file system refused.
    """
    given = await model_input(agent)
    counter, offloader, abilities = workbench.counter, workbench.offloader, workbench.abilities
    size, left = room
    system, tools = given["messages"][0].get_text_content() or "", list(given["tools"] or [])
    budget = TokenBudget(size, left, counter, system, tools)
    state, pieces = await _filled(standing, memory, counter)
    scale = await tokens_of(agent, **given) / max(budget.own_tokens(state), 1)
    budget.usage.scale = min(max(scale, _LEAST_SCALE), _MOST_SCALE)
    session_id = agent.state.session_id
    results = ResultOffloader(offloader, abilities, session_id, counter, has_listener=workbench.on_event is not None)
    results.stubs.update(await _stubs(state, workbench, session_id, memory))
    planner = OffloadPlanner(session_id, config, size, counter, results.stubs, abilities.rereads, None, can_store=True)
    notices, _ = planner.recall(state.messages, is_managed=True)
    results.stubs.update(notices)
    log = KeptByAgent(session_id, partial(keeping.keep_as, agent))
    context = Context(log, budget, planner, reporting(session_id, workbench.on_event))
    context.begin(state)
    engine = AgentEngine(
        context,
        results,
        config,
        summarizer=writing.usual,
        summarizers=writing.named,
        dialect=DIALECT,
        requires_model=writing.required,
    )
    if memory.called_at_s is not None:
        engine.hooks.called_at_s = memory.called_at_s
    engine.hold(agent, standing, pieces)
    return engine


async def _filled(
    standing: ContextPieces, memory: Memory, counter: TextCounter
) -> tuple[State, dict[int, tuple[Piece, Msg]]]:
    """Return the context of an agent, and its pieces by their session indexes.

    Where the archive goes on otherwise, what both ways have in common is archived, and only stands here still.
    """
    said, first = standing.note, standing.first
    counts = memory.tokens, dict[bytes, int]()
    prefix, reinserted = list[Entry](), list[Entry]()
    summary, notice = None, None
    for again in said.head:
        entry = await _entry(again.message, again.index, counter, counts, pinned=again.pinned)
        if again.index < 0:
            notice = replace(entry, is_notice=True)
        else:
            (prefix if entry.stays else reinserted).append(entry)
    if standing.previous is not None:
        native = dialect_named(DIALECT).user_message(standing.previous.text)
        summary = SummaryEntry(await _entry(native, -1, counter, counts), standing.previous)
    entries: list[Entry] = []
    if standing.foreign is not None:
        entries.append(_unsaid(await _entry(standing.foreign, first, counter, counts, pinned=True)))
    offset = len(entries)
    for piece in standing.pieces:
        pinned = piece.key in said.pins
        entries.append(await _entry(piece.native, first + len(entries), counter, counts, pinned=pinned))
    common = _common(standing, entries)
    for entry in entries[:common]:
        (prefix if entry.stays else reinserted).append(entry)
    gone = standing.archived + standing.otherwise if standing.otherwise else 0
    behind = [replace(entry, index=entry.index - common + gone) for entry in entries[common:]]
    memory.tokens = counts[1]
    state = State(
        prefix=Messages.of(prefix),
        summary=summary,
        notice=notice,
        reinserted=Messages.of(reinserted),
        messages=Messages.of(behind, first + gone),
        pins=frozenset(entry.index for entry in (*prefix, *behind) if entry.pinned),
        archived_until=first + (gone or standing.archived),
        batches=said.batches,
        archived_answers=said.answers + sum(entry.message.role == "assistant" for entry in entries[:common]),
    )
    pairs = list(zip(standing.pieces, entries[offset:], strict=True))
    pieces = {
        entry.index: (piece, given.native)
        for entry, (piece, given) in zip(
            behind[max(offset - common, 0) :], pairs[max(common - offset, 0) :], strict=True
        )
    }
    return state, pieces


def _common(standing: ContextPieces, entries: Sequence[Entry]) -> int:
    """Return how many of *entries* are archived, where the archive goes on otherwise behind them."""
    if not standing.otherwise:
        return 0
    return last_cut([entry.message for entry in entries], standing.archived)


async def _entry(
    native: Msg,
    index: int,
    counter: TextCounter,
    counts: tuple[dict[bytes, int], dict[bytes, int]],
    *,
    pinned: bool = False,
) -> Entry:
    """Read a message, and count it where it has not been counted before."""
    dialect = dialect_named(DIALECT)
    view, key, (known, counted) = dialect.view(native), hash_of(native), counts
    if key not in known:
        chars = len(view.text) + sum(len(result.text) for result in view.results)
        known[key] = await beside(chars, count_message, view, counter)
    counted[key] = known[key]
    return Entry(native, dialect.name, view, counted[key], index, pinned)


def _unsaid(entry: Entry) -> Entry:
    """Return a summary that is none of ours so that nobody takes it for what the user said last."""
    message = entry.message
    parts: list[Any] = [Remark(part.text) if isinstance(part, Text) else part for part in message.parts]
    return replace(entry, message=Message(message.role, tuple(parts), message.name))


async def _stubs(state: State, workbench: Workbench, session_id: str, memory: Memory) -> Mapping[str, StoredResult]:
    """Return what stands for stored results in *state*; each text is looked for once."""
    views = [entry.message for entry in (*state.leading, *state.messages)]
    standing, new = set[str](), list[Message]()
    for view in views:
        texts = {part.text for result in view.results for part in result.parts if isinstance(part, Text)}
        standing |= texts
        new += [] if texts <= memory.asked else [view]
    found = {**memory.stubs, **(await stubs_in(new, workbench.abilities, session_id) if new else {})}
    memory.stubs = {text: stored for text, stored in found.items() if text in standing}
    memory.asked = standing
    return memory.stubs


# An agent's context under a document: what fires when, and what an agent is told where a provider refuses it.


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
        """Return whether a document has left something in the context of which nobody else knows what it is."""
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
            engine.context.budget.check(engine.context.state)
            if document is None:
                await engine.make_room()
                return
            newest = _newest(agent)
            if newest != memory.settled:
                messages = engine.context.state.messages
                engine.context.reopen(messages.turn_at(len(messages)))
            await engine.hooks.settle(document)
            memory.settled = newest
            if engine.waiting():
                await engine.hooks.fire(document, "pre_llm")
            else:
                await engine.manage(document)

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
            if engine.tokens <= config.trigger_ratio * engine.context.budget.size:
                return
            if document is not None:
                await engine.hooks.fire(document, "pre_compress")
            cut = engine.cut_for(engine.config)
            if cut and LegalCuts(engine.compaction.view()).removed_count(cut):
                await engine.compaction.compact(engine.config, said_in(instructions), cut=cut)

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
            before = engine.tokens
            try:
                await engine.recover(before, document, error)
            except ContextOverflowError as failure:
                raise error from failure
            tell = reporting(agent.state.session_id, self._workbench.on_event)
            tell(OverflowRecovered(before, engine.tokens, time.perf_counter() - began))

    def note_call(self, agent: Agent) -> None:
        """Take note that the agent's model is called now."""
        self._memories.setdefault(agent, Memory()).called_at_s = time.monotonic()

    @asynccontextmanager
    async def _engine(
        self, agent: Agent, document: ContextManagement | None, config: AgentScopeConfig, size: int | None = None
    ) -> AsyncGenerator[AgentEngine]:
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
        engine.compaction.preserves_words = document is not None or self.is_needed_by(agent)
        try:
            yield engine
        finally:
            has_changed = engine.apply()
            summary = engine.context.state.summary
            if summary is not None:
                bench.show(session_id, summary.summary)
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
