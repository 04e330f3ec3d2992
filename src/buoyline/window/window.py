"""`ContextWindow`: the messages a model sees, kept under the limit of its window."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from buoyline.compression import ContextConfig, Plan, Summarizer, Summary, SummaryFunction
from buoyline.compression.config import config_of
from buoyline.errors import NotFoundError
from buoyline.management import ContextManagement, ManagementReport, explained
from buoyline.messages import Converted, dialect_named
from buoyline.messages.times import now
from buoyline.offloader import Offloader, StoredResult, ToolOutput, WindowState, abilities_of
from buoyline.tokens import TokenCounter, as_text_counter, default_counter, usage_of
from buoyline.tokens.messages import count_result
from buoyline.window.budget import TokenBudget
from buoyline.window.context import Context
from buoyline.window.engine import Engine
from buoyline.window.events import OnEvent, OverflowRecovered, WindowResumed, reporting
from buoyline.window.log import (
    ContextLog,
    Translation,
    archived_answers,
    check_archived,
    common_dialect,
    load_summaries,
    restored,
    stubs_in,
)
from buoyline.window.offloading import ResultOffloader
from buoyline.window.plan import OffloadPlanner, ShouldOffload
from buoyline.window.settings import (
    Management,
    config_from_json,
    document_of,
    output_room,
    own_document_of,
    require_methods,
    settings_to_json,
    size_of,
)
from buoyline.window.state import Entry, entry_beside
from buoyline.window.streams import HeldOutput, writer_for
from buoyline.window.tasks import completed
from buoyline.window.usage import Request

_WORTH_ASKING_TOKENS = 1_000
"""An agent that asks for a compression gets none below that: the summary would take most of it."""


class ContextWindow:
    """The messages of one session that a model sees on its next call.

    Messages are added as they come. `prepare` hands out what to send: tool results that are too large stand as
    stubs, and when the whole takes more than its share of the window, the oldest messages leave and a summary
    takes their place. Messages that stay are the very objects that were added, and what a message looks like
    does not change after it was first handed out, until a compression; so a provider's prompt cache holds.

    One task at a time may use a window, but for `add`, which others may call meanwhile; different windows are
    independent. What it does in the course of a call's life is told in docs/window.md.
    """

    def __init__(
        self,
        *,
        session_id: str,
        offloader: Offloader | None = None,
        size: int | None = None,
        model: str | None = None,
        max_output_tokens: int | None = None,
        config: ContextConfig | None = None,
        system: Any = "",
        tools: Sequence[Any] = (),
        summarizer: Summarizer | SummaryFunction | None = None,
        counter: TokenCounter | Callable[[str], int] | None = None,
        dialect: str | None = None,
        on_event: OnEvent | None = None,
        should_offload: ShouldOffload | None = None,
        management: Management | None = None,
        summarizers: Mapping[str, Summarizer | SummaryFunction] | None = None,
    ) -> None:
        """Begin a new session; nothing is written before the first `prepare`.

        Args:
            session_id: Names the session at the offloader.
            offloader: Takes what leaves the context; None drops it, with a warning.
            size: Tokens of the model's window; left out: what *model* has, or 128,000 without one.
            model: Name of the model as it is sent to the provider, for its size; see `buoyline.tokens.context_size`.
            max_output_tokens: Room for the model's answer, best what the provider is told as its limit. It counts like
                all that is sent: `trigger_ratio` is for both together, and neither takes the other's place in the
                window. Left out: what *model* answers at most, but no more than a tenth of the window; without
                *model* nothing, since `trigger_ratio` leaves some of the window free anyway.
            config: Left out: `ContextConfig` with its defaults.
            system: A system prompt that is sent beside the messages, as text or as the provider's blocks; only
                counted. System *messages* are added like all others and stay at the head.
            tools: Definitions of the tools, as sent to the model; only counted.
            summarizer: See `Compressor`; left out: the extractive one, which needs no model.
            counter: Counts the tokens of a text; left out: exactly, for ``o200k_base``.
            dialect: Name of the form that all messages have, e.g. ``"anthropic"``; left out: detected for each.
            on_event: Told of each `Event` right after it: what was offloaded, archived, verified, compressed, and more.
            should_offload: Asked once about each result that limits, rules or the budget of its turn would offload,
                with the tool's name, the tokens and an `OffloadCandidate`; where it answers False, the result stays
                whole. May be asynchronous. Not asked about what an agent reads back, what came piece by piece and
                went to a file meanwhile, nor about what has to leave
                because the context does not fit the window. Where it raises, `prepare` and `save` do, and the context
                is as it was. (Source: Strands, which logs a warning then, and offloads.)
            management: A document that says what is done, and when, in place of the limits in *config*: the name of
                one, a file, its JSON values, or a `ContextManagement`; see `document_of`, docs/context-management.md.
            summarizers: Others, by the ``summarization_model_id`` of documents.

        Raises:
            ConfigError: *size* is no whole number above 0, *max_output_tokens* is none from 0 to below the trigger,
                there is no such *dialect*, or *offloader*, *summarizer*, *config* or *should_offload* cannot be one.
                A document and a `background_ratio` exclude each other.
            BuoylineError: See `document_of`.
            NotFoundError: *size* is left out and *model* is not known.
            TypeError: *counter* cannot count.
        """
        self.size = size_of(size, model)
        require_methods("offloader", offloader, "offload_context", "offload_tool_result")
        require_methods("should_offload", should_offload, "__call__")
        self.session_id = session_id
        self.config = config_of(config)
        self.max_output_tokens = output_room(max_output_tokens, model, self.size, self.config.trigger_ratio)
        counter_ = default_counter() if counter is None else as_text_counter(counter)
        abilities = self._abilities = abilities_of(offloader)
        self._offloader = offloader
        self._dialect = None if dialect is None else dialect_named(dialect).name
        results = ResultOffloader(offloader, abilities, session_id, counter_, has_listener=on_event is not None)
        planner = OffloadPlanner(
            session_id,
            self.config,
            self.size,
            counter_,
            results.stubs,
            abilities.rereads,
            should_offload,
            can_store=offloader is not None,
        )
        budget = TokenBudget(self.size, self.max_output_tokens, counter_, system, list(tools))
        log = ContextLog(abilities.windows, session_id)
        self._context = Context(log, budget, planner, reporting(session_id, on_event))
        self._engine = Engine(
            self._context,
            results,
            self.config,
            summarizer=summarizer,
            summarizers=summarizers,
            dialect=self._dialect,
        )
        self.management = None if management is None else own_document_of(management, offloader, self.config)
        self._engine.compaction.preserves_words = self.management is not None
        self._is_open = False
        self._translation = Translation()

    @classmethod
    async def resume(
        cls,
        offloader: Offloader,
        session_id: str,
        *,
        size: int | None = None,
        max_output_tokens: int | None = None,
        config: ContextConfig | None = None,
        system: Any = None,
        tools: Sequence[Any] | None = None,
        summarizer: Summarizer | SummaryFunction | None = None,
        counter: TokenCounter | Callable[[str], int] | None = None,
        on_event: OnEvent | None = None,
        should_offload: ShouldOffload | None = None,
        management: Management | None = None,
        summarizers: Mapping[str, Summarizer | SummaryFunction] | None = None,
        dialect: str | None = None,
    ) -> Self:
        """Go on with a session exactly where another process stopped, also where that was killed.

        The session is taken over: a window that still has it gets `StaleWindowError` from its next call, since two that
        write would lose each other's messages. To look at a session without taking it, read its files.

        Args:
            offloader: The one that the session was kept by.
            session_id: The session.
            size: Left out, like *max_output_tokens*, *config*, *system* and *tools*: as the session had it.
            max_output_tokens: See *size*.
            config: See *size*.
            system: See *size*.
            tools: See *size*.
            summarizer: See `__init__`; not kept on disk.
            counter: See `__init__`; not kept on disk.
            on_event: See `__init__`.
            should_offload: See `__init__`; not kept on disk. What it decided stands.
            management: Left out: the document that the session had then. One with imported managers is given anew.
            summarizers: See `__init__`; not kept on disk.
            dialect: Name of the form in which messages are handed out, e.g. ``"bedrock"``: those of another are
                converted, on disk and in the archive they stay as they were written. What has no place is in
                `conversion`. Not kept on disk. Left out: each message as it was added.

        Returns:
            A window whose `messages` are those of the last `prepare` or `save` of the other one.

        Raises:
            ConfigError: *offloader* cannot be one.
            NotFoundError: *offloader* keeps no windows, or knows no such session.
            CorruptError: What stands on disk is not what was written.
            StaleWindowError: The archive holds messages that did not come from the session's window.
            StorageError: The file system refused.
            BuoylineError: *management*, or what was kept of it, cannot be acted on.
        """
        require_methods("offloader", offloader, "offload_context", "offload_tool_result")
        abilities = abilities_of(offloader)
        if abilities.windows is None:
            raise NotFoundError("window in session", session_id, "only a workspace keeps what a window needs")
        state = await abilities.windows.load_window(session_id)
        kept = state.settings
        window = cls(
            session_id=session_id,
            offloader=offloader,
            size=kept["size"] if size is None else size,
            max_output_tokens=kept.get("max_output_tokens", 0) if max_output_tokens is None else max_output_tokens,
            config=config_from_json(kept["config"]) if config is None else config,
            system=kept["system"] if system is None else system,
            tools=kept["tools"] if tools is None else tools,
            summarizer=summarizer,
            counter=counter,
            dialect=None if dialect else common_dialect(state, kept.get("dialect")),
            on_event=on_event,
            should_offload=should_offload,
            management=kept.get("management") if management is None else management,
            summarizers=summarizers,
        )
        window._translation = Translation(dialect)
        await abilities.windows.claim_window(session_id, writer=window._context.log.writer)
        await window._restore(await abilities.windows.load_window(session_id))
        window._context.tell(
            WindowResumed(session_id, window.added, window._context.state.archived_until, window.tokens)
        )
        return window

    def __repr__(self) -> str:
        """Return the session, what is in the context, and the offloader."""
        count = len(self._context.whole.leading) + len(self._context.whole.messages)
        held = f"messages={count:,}, tokens={self.tokens:,} of {self.size:,}"
        return f"<ContextWindow {self.session_id!r}: {held}, offloader={self._offloader!r}>"

    @property
    def messages(self) -> list[Any]:
        """The native messages in the context, in order; those added since the last `prepare` included."""
        return self._translation.of(self._context.whole)

    @property
    def conversion(self) -> Converted | None:
        """What was converted of the messages handed out last, and what was lost by that; None where nothing was."""
        return self._translation.last

    @property
    def tokens(self) -> int:
        """What the whole context takes: system prompt, tools, head, summary and messages.

        Counted by the window's counter; after `note_usage` by the provider's count of the last request, and what was
        added since.
        """
        return self._context.tokens

    @property
    def turn_tokens(self) -> int:
        """What all tool results take that have come since the model spoke last."""
        counter = self._context.budget.counter
        return sum(count_result(result, counter) for entry in self._turn() for result in entry.message.results)

    @property
    def added(self) -> int:
        """How many messages the session has had so far; the index of the next one."""
        return self._context.inbox.end

    async def add(self, message: Any, *, pinned: bool = False, offload: bool = False) -> None:
        """Take a message of any known dialect to the end of the context.

        It is held in memory until the next `prepare` or `save`. It waits for nothing that the window does meanwhile;
        what is added while a `prepare` is under way is handed out by the next one.

        Args:
            message: The native message; it is neither changed nor copied.
            pinned: It shall stay in the context when it is archived.
            offload: What is large in it shall leave before a model sees it, whoever said it: a pasted document, a
                long user message. The next `prepare` stores it whole and puts a stub of `preview_tokens` in its
                place; what takes no more than that stays, and so do small blocks beside a large one.

        Raises:
            MessageError: It is no message.
        """
        added = now()
        entry = await entry_beside(
            message,
            self.added,
            self._context.budget.counter,
            dialect=self._dialect,
            pinned=pinned,
            by_hand=offload,
        )
        # Another message may have come while a large one was counted in a thread.
        entry = replace(entry, index=self.added, added=added)
        self._context.inbox = self._context.inbox.extended([entry])

    async def add_tool_output(
        self,
        call_id: str,
        output: ToolOutput,
        *,
        name: str = "",
        max_bytes: int | None = None,
        keep_partial: bool = False,
    ) -> None:
        """Take a tool's output while it comes, and add it as a tool message once it has ended; docs/streaming.md.

        What exceeds a megabyte and the tool's limit goes to a file meanwhile, where there is a workspace, and its stub
        is made from there, so that its size costs no memory. All else is a message like any other, about which
        `prepare` decides. A tool whose rule is ``"never"`` has as its limit what may be read back in a turn, or its
        own where that is more; *should_offload* is not asked about what exceeds the limit.

        Args:
            call_id: The call that it answers.
            output: An iterator of str or bytes, asynchronous or not; a file, pipe or stream; or a path.
            name: The tool; left out: as the call says.
            max_bytes: Most that may come.
            keep_partial: Where the tool fails or is cancelled, add what came before, marked so, and raise that then.

        Raises:
            Exception: See `LocalWorkspace.store_stream`; nothing is added but with *keep_partial*.
        """
        dialect, call = self._context.whole.messages.called(call_id, name, self._dialect or "openai")
        writer = writer_for(self._abilities, self.session_id, call_id, keep_partial=keep_partial)
        context, planner = self._context, self._context.planner
        held = HeldOutput(call_id, writer, context.budget.counter, planner.held_limit(call))

        async def add() -> None:
            text = await held.end()
            if isinstance(text, StoredResult):
                await self._open()
                max_tokens = planner.stub_tokens(call, self._turn())
                text = await self._engine.results.stub_of(self.added, call, text, max_tokens, context.outbox)
            await self.add(dialect_named(dialect).tool_result_message(call_id, text, name))
            context.emit()

        await held.fill(output, add, max_bytes=max_bytes, keep_partial=keep_partial)

    async def prepare(self, management: Management | None = None) -> list[Any]:
        """Return the messages for the next model call.

        What was added since the last time is offloaded where it is too large and written down; the oldest pictures
        leave where there are more than `max_images`; then the context is compressed if it and the answer take more
        than `trigger_ratio` of the window, or if `request_compression` was called. What was made ready in the
        background is put in place then, and above `background_ratio` the next one is begun. With a document managers do
        this instead. An offloader that forgets what nobody uses, such as `MemoryWorkspace`, takes each time for a
        turn: Strands' storage counts model calls, too.

        Args:
            management: A document for this call alone, in place of the window's own.

        Returns:
            The native messages: system messages and pins that are archived, the summary, and the others. They exceed
            the window only where the newest messages alone do; `exceeding` names those.

        Raises:
            ContextOverflowError: System prompt, tools, system messages and pins alone exceed the window.
            SessionExistsError: The session has messages already; `resume` goes on with it.
            StaleWindowError: Another window has gone on with the session; `resume` goes on from there.
            FormatVersionError: A newer buoyline wrote the workspace; nothing was touched.
            CorruptError: What stands on disk is not what was written.
            StorageError: The file system refused. The context is as it was, and nothing was lost.
            TypeError: *should_offload* answered with something else than True or False. The context is as it was.
            BuoylineError: See `document_of`; nothing has happened.
            Exception: Whatever *should_offload* raises; the context is as it was. And whatever the summariser raises,
                `SummaryError` apart; what was archived stays so, and the next attempt goes on from there.
        """
        document = self.management
        if management is not None:
            document = await asyncio.to_thread(document_of, management, self._offloader)
        await self._settle(document)
        if document is None:
            await self._engine.make_room()
        else:
            await self._engine.manage(document)
        if self._abilities.turns is not None:
            self._abilities.turns.next_turn()
        if document is None:
            self._engine.look_ahead()
        self._engine.hooks.called_at_s = time.monotonic()
        return self._hand_out()

    def note_usage(self, response: Any) -> bool:
        """Take what the provider says the last request took as the true size of its context.

        The messages of that request are those that the last `prepare` handed out; the assistant's message that is
        added next, before or after this call, takes what the provider says of its output. Everything newer is counted,
        and scaled where the provider's count grows faster than ours. A compression drops the usage: until the next
        one, everything is counted. Nothing of it is kept on disk.

        Args:
            response: The provider's response, the usage in it, or a `buoyline.tokens.Usage`; see
                `buoyline.tokens.usage_of`.

        Returns:
            True if the usage counts from now on; False if it holds none, or one that cannot be this request's: it is
            0, less than half of what we count, the same as the request before had although we count other tokens for
            it, or comes after a compression.

        Raises:
            UsageError: It is no usage, or has a number that is negative or more than twice what the window holds.
        """
        usage = usage_of(response)
        return usage is not None and self._context.budget.usage.note(usage)

    async def save(self) -> None:
        """Write down what was added since the last `prepare`, so that `resume` finds it.

        Call it when no model call follows, such as after the final answer; `prepare` does the same.

        Raises:
            BuoylineError: As `prepare` does.
        """
        await self._settle(self.management)

    async def close(self) -> None:
        """End what is under way in the background; the window may be used again afterwards.

        What it has archived stays so, and the next compression goes on from there. Nothing is written: see `save`.
        """
        await self._engine.background.drop()

    async def compress_ahead(self) -> bool:
        """Begin a compression in the background, to be ready before it is needed; returns at once.

        The oldest messages are archived and summarised while the agent waits for its model, and the context stays as it
        is. The first `prepare` that has to compress puts the summary in place in one step, waiting for it where it is
        still under way; messages that were added meanwhile stay. Where it fails, that is logged, and `prepare`
        compresses as it does without. `ContextConfig(background_ratio=...)` calls this by itself.

        It belongs to the event loop that runs now; one that ends before it is ready, as each call of `asyncio.run` has
        one, takes it along.

        Returns:
            True if one is under way or ready; False where nothing may leave.

        Raises:
            BuoylineError: As `save` does.
        """
        await self._settle(self.management)
        return self._engine.background.begin(self.config)

    def request_compression(self, focus: str = "") -> Plan | None:
        """Have the next `prepare` compress, however much room there is; what the agent's own tool calls.

        May be called in the middle of a turn, while calls have no answer yet: nothing is changed now. The request is
        kept in memory only, and until a compression has come.

        Args:
            focus: What shall be kept above all, in words.

        Returns:
            What would leave now; at the next `prepare` it may be more. None where that is less than 1,000 tokens, and
            nothing is requested.
        """
        decided = self._engine.compaction.planned(self.config)
        if decided.archived_tokens < _WORTH_ASKING_TOKENS:
            return None
        self._engine.asked = (focus, self._engine.compaction.first)
        return decided

    async def compress(
        self,
        *,
        force: bool = False,
        config: ContextConfig | None = None,
        focus: str | None = None,
        before: int | None = None,
    ) -> Summary | None:
        """Compress now; does nothing below the trigger unless it is forced.

        One that is under way or ready in the background is taken where nothing is asked for but what that does;
        otherwise it is dropped, and what it has archived is used.

        Args:
            force: Also below the trigger.
            config: For this time only.
            focus: What shall be kept above all, in words.
            before: Session index of a message: everything before it leaves, moved back where that would part a
                call from its result. Implies *force*.

        Returns:
            The summary, or None where nothing left the context.

        Raises:
            SessionExistsError: See `prepare`.
            StorageError: The file system refused; the context is as it was.
        """
        settings = config or self.config
        await self._settle(self.management)
        is_asked = force or before is not None
        if not is_asked and not self._engine.exceeds(settings.trigger_ratio):
            return None
        is_usual = not is_asked and config is None and not focus
        if not is_usual:
            await self._engine.background.drop()
        if self.management is not None:
            await self._engine.hooks.fire(self.management, "pre_compress")
        if is_usual:
            return await self._engine.compact()
        # Managers may have let messages leave: only now is it known how many stand before that one.
        compaction = self._engine.compaction
        cut = None if before is None else compaction.cut_before(before)
        return await compaction.compact(settings, focus or "", cut=cut)

    async def recover_from_overflow(self, error: BaseException | None = None) -> list[Any]:
        """Make the context smaller after the provider refused it: without a model, or as the document says.

        The managers of ``on_overflow`` run first, where there is a document that has such; then what the window does
        without one, unless it is the null document.

        Args:
            error: What the provider refused it with, for managers; left out: a `ContextOverflowError`.

        Returns:
            The messages for the next try: at least a tenth fewer tokens than before.

        Raises:
            BaseException: *error*, under the null document, and where a manager of a user's own was asked and none made
                the context smaller.
            ContextOverflowError: What must stay leaves no room; nothing was lost.
            StorageError: The file system refused; the context is as it was.
        """
        await self._settle(self.management)
        # Progress is told by one measure from beginning to end; a compression in between would change to ours.
        self._context.budget.usage.drop()
        began, tokens = time.perf_counter(), self.tokens
        await self._engine.background.take(wait=False)
        await self._engine.recover(tokens, self.management, error)
        self._context.tell(OverflowRecovered(tokens, self.tokens, time.perf_counter() - began))
        return self._hand_out()

    @property
    def report(self) -> ManagementReport:
        """What the managers of the document did in the last call; those that did not run say why."""
        return self._engine.hooks.report

    def explain(self) -> list[str]:
        """Return in words what the window's document says, and what its managers did in the last call."""
        said = explained(self.management) if self.management is not None else ["no document: the configuration holds"]
        return [*said, *self.report.in_words()]

    def exceeding(self) -> list[tuple[int, int]]:
        """Return index and tokens of the messages because of which the context does not fit the window.

        These are the messages that do not fit beside what must stand, each alone; where only all of one call's
        results together do not, the largest of them. Empty when the context fits.
        """
        return self._context.budget.exceeding(self._context.whole)

    def _turn(self) -> Sequence[Entry]:
        """Return the messages since the model spoke last."""
        messages = self._context.whole.messages
        return messages.entries[messages.turn_at(len(messages)) :]

    def _hand_out(self) -> list[Any]:
        state, budget = self._context.state, self._context.budget
        budget.usage.hand_out(Request(budget.own_tokens(state), state.messages.end))
        return self._translation.of(state)

    async def _open(self) -> None:
        if self._is_open:
            return
        await self._context.log.start(
            settings_to_json(self.config, self._context.budget, self._dialect, self.management)
        )
        self._is_open = True

    async def _settle(self, document: ContextManagement | None) -> None:
        """Decide what the new messages look like, and write them down."""
        self._context.budget.check(self._context.whole)
        if not self._is_open:
            await completed(self._open())
        await self._engine.settle(document)

    async def _restore(self, found: WindowState) -> None:
        context, results = self._context, self._engine.results
        abilities, session_id = self._abilities, self.session_id
        summaries = await load_summaries(abilities, session_id)
        state = restored(found, summaries, context.budget.counter, self._dialect)
        if self.management is not None:
            state = replace(state, archived_answers=await archived_answers(state, abilities, session_id))
        self._is_open = True
        await check_archived(state, abilities, session_id)
        results.stubs.update(await stubs_in(state, abilities, session_id))
        notices, kept_whole = context.planner.recall(state.messages, is_managed=self.management is not None)
        results.stubs.update(notices)
        context.begin(replace(state, kept_whole=kept_whole))
        await self._engine.compaction.finish_of(summaries)
