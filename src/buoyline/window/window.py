"""`ContextWindow`: the messages a model sees, kept under the limit of its window."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from buoyline.compression import ContextConfig, Summarizer, Summary
from buoyline.compression.config import config_of
from buoyline.compression.plan import Plan
from buoyline.compression.summarizers.callables import SummaryFunction
from buoyline.errors import NotFoundError
from buoyline.management import ContextManagement, ManagementReport
from buoyline.management.settings import explained
from buoyline.messages import Converted
from buoyline.messages.registry import dialect_named
from buoyline.messages.times import now
from buoyline.offloader import Offloader, StoredResult, ToolOutput, WindowState
from buoyline.offloader.protocol import abilities_of
from buoyline.tokens import TokenCounter, as_text_counter, default_counter
from buoyline.tokens.messages import count_result
from buoyline.tokens.usage import usage_of
from buoyline.window.budget import TokenBudget
from buoyline.window.context import Context
from buoyline.window.engine import Engine
from buoyline.window.events import OnEvent, OverflowRecovered, WindowResumed, reporting
from buoyline.window.follower import Followed, ListFollower, MessageKey
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
from buoyline.window.plan import OffloadPlanner, OffloadPredicate
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
"""An agent that asks for a compaction gets none below that: the summary would take most of it."""


class ContextWindow:
    """The messages of one session that a model sees on its next call.

    Example:
        async with LocalWorkspace("./workspace") as workspace:
            window = ContextWindow(offloader=workspace, session_id="s1", model="claude-sonnet-4-5")
            await window.add({"role": "user", "content": "Which tests fail?"})
            messages = await window.prepare()  # for the next model call

    `prepare` replaces large tool results with stubs. When the context takes more than its share of the window,
    `prepare` archives the oldest messages and puts a summary in their place. All other messages are the very objects
    that were added. Once handed out, a message keeps its form until a compaction, so a provider's prompt cache holds.

    One task at a time may use a window, except for `add`, which any task may call. docs/window.md has the details.
    """

    def __init__(
        self,
        *,
        session_id: str,
        offloader: Offloader | None = None,
        model: str | None = None,
        size: int | None = None,
        system: Any = "",
        tools: Sequence[Any] = (),
        config: ContextConfig | None = None,
        summarizer: Summarizer | SummaryFunction | None = None,
        on_event: OnEvent | None = None,
        max_output_tokens: int | None = None,
        management: Management | None = None,
        summarizers: Mapping[str, Summarizer | SummaryFunction] | None = None,
        should_offload: OffloadPredicate | None = None,
        counter: TokenCounter | Callable[[str], int] | None = None,
        dialect: str | None = None,
    ) -> None:
        """Begin a new session; nothing is written before the first `prepare`.

        Args:
            session_id: Name of the session in the workspace.
            offloader: Stores what leaves the context. None drops it, with a warning.
            model: Name of the model as the provider knows it, for the size of its window.
            size: Tokens of the window. Default: the model's, or 128,000 without a model.
            system: System prompt that you send beside the messages, as text or blocks. The window only counts it.
                Add system *messages* like all others.
            tools: Definitions of the tools, as you send them. The window only counts them.
            config: Limits. Default: `ContextConfig()`.
            summarizer: Writes summaries; see `Compressor`. Default: extractive, without a model.
            on_event: Called with each `Event` right after it.
            max_output_tokens: Advanced, like all below. Tokens to keep free for the model's answer; `trigger_ratio` is
                for context and answer together. Default: what *model* answers at most, but no more than a tenth of the
                window; 0 without a model.
            management: A context-management document in place of the limits in *config*: a name, a file, JSON values,
                or a `ContextManagement`; see docs/context-management.md.
            summarizers: Further summarizers, by the ``summarization_model_id`` of documents.
            should_offload: Asked once about each result that a limit, a rule or the budget of its turn would offload,
                with the tool's name, the tokens and an `OffloadCandidate`. If it answers False, the result stays whole.
                It may be asynchronous. It is not asked about a re-read, about output that came piece by piece and went
                to a file, or if the context does not fit the window otherwise. If it raises, `prepare` and `save` do,
                and the context is as it was. (Source: Strands, which logs a warning then, and offloads.)
            counter: Counts the tokens of a text. Default: exactly, for ``o200k_base``.
            dialect: Form of all messages, e.g. ``"anthropic"``. Default: detected for each message.

        Raises:
            ConfigError: *size* is not a whole number above 0, or *max_output_tokens* not one from 0 to below the
                trigger; there is no such *dialect*; or *offloader*, *summarizer*, *config* or *should_offload* cannot
                be one. A document and a `background_ratio` exclude each other.
            NotFoundError: *size* is left out and *model* is not known.
            TypeError: *counter* cannot count.
            BuoylineError: See `document_of`.
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
        self._follower = ListFollower(self._engine.background, self._dialect)
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
        should_offload: OffloadPredicate | None = None,
        management: Management | None = None,
        summarizers: Mapping[str, Summarizer | SummaryFunction] | None = None,
        dialect: str | None = None,
    ) -> Self:
        """Continue a session exactly where another process stopped, even if that was killed.

        The session is taken over: a window that still has it gets `StaleWindowError` from its next call, since two
        writers would lose each other's messages. To look at a session without taking it, read its files.

        Args:
            offloader: The workspace of the session.
            session_id: The session.
            size: Default: as the session had it, like *max_output_tokens*, *config*, *system* and *tools*.
            max_output_tokens: See *size*.
            config: See *size*.
            system: See *size*.
            tools: See *size*.
            summarizer: See `__init__`; not kept on disk.
            counter: See `__init__`; not kept on disk.
            on_event: See `__init__`.
            should_offload: See `__init__`; not kept on disk. Its earlier decisions hold.
            management: Default: the session's document. Pass one with imported managers again.
            summarizers: See `__init__`; not kept on disk.
            dialect: Form in which messages are handed out, e.g. ``"bedrock"``. Those of another form are converted; on
                disk and in the archive they stay as they are. `conversion` says what was lost. Not kept on disk.
                Default: each message as it was added.

        Returns:
            A window whose `messages` are those of the last `prepare` or `save` of the other one.

        Raises:
            ConfigError: *offloader* cannot be one.
            NotFoundError: *offloader* keeps no windows, or does not know the session.
            CorruptError: A file is not as it was written.
            StaleWindowError: The archive holds messages that did not come from the session's window.
            StorageError: The file system refused.
            BuoylineError: *management*, or the document of the session, cannot be acted on.
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
        """Return the session, the size of its context, and the offloader."""
        count = len(self._context.whole.leading) + len(self._context.whole.messages)
        held = f"messages={count:,}, tokens={self.tokens:,} of {self.size:,}"
        return f"<ContextWindow {self.session_id!r}: {held}, offloader={self._offloader!r}>"

    @property
    def messages(self) -> list[Any]:
        """The native messages in the context, in order; those added since the last `prepare` included."""
        return self._translation.of(self._context.whole)

    @property
    def conversion(self) -> Converted | None:
        """The conversion of the messages handed out last, with its losses; None if none was converted."""
        return self._translation.last

    @property
    def tokens(self) -> int:
        """Tokens of the whole context: system prompt, tools, summary and messages.

        Counted by the window's counter. After `note_usage`, the provider's count of the last request, and our own of
        the messages since.
        """
        return self._context.tokens

    @property
    def turn_tokens(self) -> int:
        """Tokens of all tool results since the model spoke last."""
        counter = self._context.budget.counter
        return sum(count_result(result, counter) for entry in self._turn() for result in entry.message.results)

    @property
    def added(self) -> int:
        """How many messages the session has had so far; the index of the next one."""
        return self._context.inbox.end

    async def add(self, message: Any, *, pinned: bool = False, offload: bool = False) -> None:
        """Add a message of any known dialect to the end of the context.

        It is held in memory until the next `prepare` or `save`, and waits for neither: a `prepare` that is under way
        does not hand it out, the next one does.

        Args:
            message: The native message; it is neither changed nor copied.
            pinned: Keep it in the context when it is archived.
            offload: Offload its large content, whoever said it, before a model sees it, such as a pasted document. The
                next `prepare` stores the message whole and puts a stub of `preview_tokens` in its place. Smaller
                messages, and small blocks beside a large one, stay.

        Raises:
            MessageError: It is not a message.
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

    async def follow(self, messages: Sequence[Any], *, key: MessageKey | None = None) -> Followed:
        """Take over a list of messages that somebody else owns, such as a framework: the next `prepare` answers to it.

        Call it before each `prepare`, with the whole list. The list may hold all messages since the beginning of the
        session, or what `prepare` returned last with new messages behind. New messages are added. If messages were
        changed, removed or replaced, the window goes on from the last one that is the same: those behind it are stored
        in a file of the session, or archived, and never twice. If only the oldest are missing, they are archived.
        docs/following.md has the details.

        A message is the same if it is the same object, or else by *key*, or without a key by its content. Messages that
        you add by yourself meanwhile belong to the list, too.

        Args:
            messages: The list; neither the list nor its messages are changed.
            key: Returns the id that a message keeps for life, or ``""`` for one without. It saves reading messages if
                the framework makes new objects for each call. A message with new content needs a new key.

        Returns:
            What is new and what was removed.

        Raises:
            MessageError: One of them is not a message; those before it are added.
            StaleWindowError: Another window has taken the session over.
            StorageError: The file system refused; call it again.
        """

        async def add(message: Any, pinned: bool) -> None:  # noqa: FBT001
            await self.add(message, pinned=pinned)

        return await self._follower.follow(messages, key, add)

    async def add_tool_output(
        self,
        call_id: str,
        output: ToolOutput,
        *,
        name: str = "",
        max_bytes: int | None = None,
        keep_partial: bool = False,
    ) -> None:
        """Add a tool's output while it comes, as a tool message once it has ended; see docs/streaming.md.

        Output above a megabyte and the tool's limit goes to a file meanwhile, if there is a workspace, and its stub is
        made from there, so its size costs no memory. All else is a message like any other, and `prepare` decides about
        it. The limit of a tool whose rule is ``"never"`` is the limit of re-reads in a turn, or its own if that is
        more. *should_offload* is not asked about output above the limit.

        Args:
            call_id: The call that it answers.
            output: An iterator of str or bytes, asynchronous or not; a file, pipe or stream; or a path.
            name: The tool. Default: as the call says.
            max_bytes: Most that may come.
            keep_partial: If the tool fails or is cancelled, add the output so far, marked so, and then raise.

        Raises:
            Exception: See `LocalWorkspace.store_stream`; nothing is added except with *keep_partial*.
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

        First, results among the added messages that are too large are offloaded, and the messages are written down.
        Then the oldest images are offloaded if there are more than `max_images`. Then the context is compacted if it
        and the answer take more than `trigger_ratio` of the window, or if `request_compression` was called; a summary
        that is ready in the background is used for that. Above `background_ratio`, the next one is begun. With a
        context-management document, its managers do all this instead. An offloader that forgets unused results, such
        as `MemoryWorkspace`, counts each call as a turn.

        Args:
            management: A document for this call alone, in place of the window's own.

        Returns:
            The native messages: archived system messages and pins, the summary, and the others. They exceed the window
            only if the newest messages alone do; `exceeding` names those.

        Raises:
            ContextOverflowError: System prompt, tools, system messages and pins alone exceed the window.
            SessionExistsError: The session has messages already; `resume` continues it.
            StaleWindowError: Another window has taken the session over; `resume` continues from there.
            FormatVersionError: A newer buoyline wrote the workspace; nothing was touched.
            CorruptError: A file is not as it was written.
            StorageError: The file system refused. The context is as it was, and nothing was lost.
            TypeError: *should_offload* answered with something else than True or False. The context is as it was.
            BuoylineError: See `document_of`; nothing has happened.
            Exception: Whatever *should_offload* raises; the context is as it was. And whatever the summarizer raises,
                except `SummaryError`; archived messages stay archived, and the next attempt continues from there.
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
        """Take the provider's count of the last request as the true size of its context.

        It counts for the messages that the last `prepare` handed out, and its output tokens for the assistant's message
        that is added next, before or after this call. Newer messages are counted here, and scaled if the provider's
        count grows faster. A compaction drops the usage: until the next one, everything is counted here. It is not
        kept on disk.

        Args:
            response: The provider's response, the usage in it, or a `buoyline.tokens.Usage`; see
                `buoyline.tokens.usage_of`.

        Returns:
            True if the usage counts from now on. False if there is none, or it cannot be this request's: it is 0, less
            than half of our own count, the same as that of the request before although that had another size, or comes
            after a compaction.

        Raises:
            UsageError: It is not a usage, or has a number that is negative or more than twice the window.
        """
        usage = usage_of(response)
        return usage is not None and self._context.budget.usage.note(usage)

    async def save(self) -> None:
        """Write down the messages that were added since the last `prepare`, so that `resume` finds them.

        Call it if no model call follows, such as after the final answer; `prepare` does the same.

        Raises:
            BuoylineError: As `prepare` does.
        """
        await self._settle(self.management)

    async def close(self) -> None:
        """Stop the compaction in the background; the window may be used again afterwards.

        Archived messages stay archived, and the next compaction continues from there. Nothing is written: see `save`.
        """
        await self._engine.background.drop()

    async def compress_ahead(self) -> bool:
        """Begin a compaction in the background, to be ready before it is needed; returns at once.

        The oldest messages are archived and summarized while the agent waits for its model, and the context stays as it
        is. The first `prepare` that has to compact puts the summary in place in one step, and waits for it if needed;
        messages that were added meanwhile stay. If the compaction fails, that is logged, and `prepare` compacts as
        without one. `ContextConfig(background_ratio=...)` calls this by itself.

        It belongs to the running event loop and ends with it, as after each `asyncio.run`.

        Returns:
            True if one is under way or ready; False if no messages may be archived.

        Raises:
            BuoylineError: As `save` does.
        """
        await self._settle(self.management)
        return self._engine.background.begin(self.config)

    def request_compression(self, focus: str = "") -> Plan | None:
        """Have the next `prepare` compact, however many tokens are free; the agent's own tool calls this.

        It may be called in the middle of a turn, while calls have no answer yet: nothing is changed now. The request
        is kept in memory only, until a compaction has come.

        Args:
            focus: What to keep above all, in words.

        Returns:
            What would be archived now; at the next `prepare` it may be more. None if that is less than 1,000 tokens,
            and nothing is requested.
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
        """Compact now; does nothing below the trigger unless it is forced.

        Without arguments, a compaction in the background is used if there is one. Otherwise it is dropped, and the
        messages that it has archived are used.

        Args:
            force: Also below the trigger.
            config: For this time only.
            focus: What to keep above all, in words.
            before: Session index of a message: archive everything before it, or less if that would part a call from
                its result. Implies *force*.

        Returns:
            The summary, or None if no messages were archived.

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

        If a document has managers for ``on_overflow``, they run first. Then the window shrinks the context as without
        a document, unless it is the null document.

        Args:
            error: The provider's refusal, for managers. Default: a `ContextOverflowError`.

        Returns:
            The messages for the next try: at least a tenth fewer tokens than before.

        Raises:
            BaseException: *error*, under the null document, or if a manager of a user's own was asked and none made
                the context smaller.
            ContextOverflowError: The messages that must stay are too large; nothing was lost.
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
        """What the managers of the document did in the last call, or why they did not run."""
        return self._engine.hooks.report

    def explain(self) -> list[str]:
        """Return in words the window's document, and what its managers did in the last call."""
        said = explained(self.management) if self.management is not None else ["no document: the configuration holds"]
        return [*said, *self.report.in_words()]

    def exceeding(self) -> list[tuple[int, int]]:
        """Return index and tokens of the messages because of which the context does not fit the window.

        Each of these alone does not fit beside the messages that must stay. If only all results of one call together
        do not, the largest of them is returned; if the context fits, nothing.
        """
        return self._context.budget.exceeding(self._context.whole)

    def _turn(self) -> Sequence[Entry]:
        """Return the messages since the model spoke last."""
        messages = self._context.whole.messages
        return messages[messages.turn_at(len(messages)) :]

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
        self._context.budget.check(self._context.state, self._context.inbox.staying_tokens)
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
