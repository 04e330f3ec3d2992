"""`ContextWindow`: the messages a model sees, kept under the limit of its window."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, cast

from buoyline.compression import (
    Compressor,
    ContextConfig,
    Extent,
    Summarizer,
    Summary,
    SummaryFunction,
    legal_cut_before,
)
from buoyline.compression.plan import plan
from buoyline.compression.rendering import Place
from buoyline.errors import ConfigError, ContextOverflowError, NotFoundError
from buoyline.messages import ToolCall, dialect_named
from buoyline.offloader import Abilities, Offloader, StoredResult, ToolOutput, WindowState, abilities_of
from buoyline.tokens import TokenCounter, as_text_counter, default_counter, usage_of
from buoyline.tokens.messages import count_result
from buoyline.window.anchor import Anchor, Sent
from buoyline.window.choosing import Choices, ResultChoosing, ShouldOffload
from buoyline.window.completion import completed
from buoyline.window.context import Context
from buoyline.window.entry import Entry, entry_beside, entry_of
from buoyline.window.events import ContextCompressed, MessagesArchived, OnEvent, OverflowRecovered, WindowResumed
from buoyline.window.fitting import Fitting
from buoyline.window.keeping import ContextKeeping
from buoyline.window.offloading import ResultOffloading
from buoyline.window.reporting import reporting
from buoyline.window.restoring import check_archived, load_summaries, restore, stubs_in
from buoyline.window.settings import config_from_json, config_to_json, require_methods, size_of
from buoyline.window.streaming import HeldOutput, writer_for

logger = logging.getLogger(__name__)

_LEAST_SUMMARY_TOKENS = 64
_SMALL_SUMMARY_TOKENS = 400
_LEAST_PROGRESS = 0.1


class ContextWindow:
    """The messages of one session that a model sees on its next call.

    Messages are added as they come. `prepare` hands out what to send: tool results that are too large stand as
    stubs, and when the whole takes more than its share of the window, the oldest messages leave and a summary
    takes their place. Messages that stay are the very objects that were added, and what a message looks like
    does not change after it was first handed out, until a compression; so a provider's prompt cache holds.

    One task at a time may use a window; different windows are independent.
    """

    def __init__(
        self,
        *,
        session_id: str,
        offloader: Offloader | None = None,
        size: int | None = None,
        model: str | None = None,
        config: ContextConfig | None = None,
        system: Any = "",
        tools: Sequence[Any] = (),
        summarizer: Summarizer | SummaryFunction | None = None,
        counter: TokenCounter | Callable[[str], int] | None = None,
        dialect: str | None = None,
        on_event: OnEvent | None = None,
        should_offload: ShouldOffload | None = None,
    ) -> None:
        """Begin a new session; nothing is written before the first `prepare`.

        Args:
            session_id: Names the session at the offloader.
            offloader: Takes what leaves the context; None drops it, with a warning.
            size: Tokens of the model's window; left out: what *model* has, or 128,000 without one.
            model: Name of the model as it is sent to the provider, for its size; see `buoyline.tokens.context_size`.
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

        Raises:
            ConfigError: *size* is no whole number above 0, there is no such *dialect*, or *offloader*, *summarizer*,
                *config* or *should_offload* is something else.
            NotFoundError: *size* is left out and *model* is not known.
            TypeError: *counter* cannot count.
        """
        self.size = size_of(size, model)
        require_methods("offloader", offloader, "offload_context", "offload_tool_result")
        require_methods("should_offload", should_offload, "__call__")
        if config is not None and not isinstance(cast("object", config), ContextConfig):
            raise ConfigError("config", f"{type(config).__name__} is no ContextConfig")
        self.session_id = session_id
        self.config = config or ContextConfig()
        self._counter = default_counter() if counter is None else as_text_counter(counter)
        self._context = Context(system, list(tools), self._counter)
        self._abilities: Abilities = abilities_of(offloader)
        self._tell = reporting(session_id, on_event)
        self._compressor = Compressor(
            offloader, config=self.config, counter=self._counter, summarizer=summarizer, on_event=self._tell
        )
        self._results = ResultOffloading(
            offloader, self._abilities, session_id, self._counter, on_event, tools={}, stubs={}
        )
        self._choosing = ResultChoosing(
            session_id,
            self.config,
            self.size,
            self._counter,
            self._results.stubs,
            self._abilities.read_backs,
            should_offload,
            can_store=offloader is not None,
        )
        self._dialect = None if dialect is None else dialect_named(dialect).name
        self._anchor = Anchor(self.size)
        self._unshown: Summary | None = None
        self._keeping = ContextKeeping(self._abilities.windows, session_id)
        self._is_open = False

    @classmethod
    async def resume(
        cls,
        offloader: Offloader,
        session_id: str,
        *,
        size: int | None = None,
        config: ContextConfig | None = None,
        system: Any = None,
        tools: Sequence[Any] | None = None,
        summarizer: Summarizer | SummaryFunction | None = None,
        counter: TokenCounter | Callable[[str], int] | None = None,
        on_event: OnEvent | None = None,
        should_offload: ShouldOffload | None = None,
    ) -> Self:
        """Go on with a session exactly where another process stopped, also where that was killed.

        The session is taken over: a window that still has it gets `StaleWindowError` from its next call, since two that
        write would lose each other's messages. To look at a session without taking it, read its files.

        Args:
            offloader: The one that the session was kept by.
            session_id: The session.
            size: Left out, like *config*, *system* and *tools*: as the session had it.
            config: See *size*.
            system: See *size*.
            tools: See *size*.
            summarizer: See `__init__`; not kept on disk.
            counter: See `__init__`; not kept on disk.
            on_event: See `__init__`.
            should_offload: See `__init__`; not kept on disk. What it decided stands.

        Returns:
            A window whose `messages` are those of the last `prepare` or `save` of the other one.

        Raises:
            NotFoundError: *offloader* keeps no windows, or knows no such session.
            CorruptError: What stands on disk is not what was written.
            StaleWindowError: The archive holds messages that did not come from the session's window.
            StorageError: The file system refused.
        """
        abilities = abilities_of(offloader)
        if abilities.windows is None:
            raise NotFoundError("window in session", session_id, "only a workspace keeps what a window needs")
        state = await abilities.windows.load_window(session_id)
        kept = state.settings
        window = cls(
            session_id=session_id,
            offloader=offloader,
            size=kept["size"] if size is None else size,
            config=config_from_json(kept["config"]) if config is None else config,
            system=kept["system"] if system is None else system,
            tools=kept["tools"] if tools is None else tools,
            summarizer=summarizer,
            counter=counter,
            dialect=kept.get("dialect"),
            on_event=on_event,
            should_offload=should_offload,
        )
        await abilities.windows.claim_window(session_id, writer=window._keeping.writer)
        await window._restore(await abilities.windows.load_window(session_id))
        window._tell(WindowResumed(session_id, window.added, window._context.archived, window.tokens))
        return window

    @property
    def messages(self) -> list[Any]:
        """The native messages in the context, in order; those added since the last `prepare` included."""
        return [entry.native for entry in (*self._context.standing(), *self._context.contents)]

    @property
    def tokens(self) -> int:
        """What the whole context takes: system prompt, tools, head, summary and messages.

        Counted by the window's counter; after `note_usage` by the provider's count of the last request, and what was
        added since.
        """
        return self._anchor.total(self._context.tokens(), self._context.contents.answer_tokens(self._anchor.answer))

    @property
    def turn_tokens(self) -> int:
        """What all tool results take that have come since the model spoke last."""
        return sum(count_result(result, self._counter) for entry in self._turn() for result in entry.message.results)

    @property
    def added(self) -> int:
        """How many messages the session has had so far; the index of the next one."""
        return self._context.contents.end

    async def add(self, message: Any, *, pinned: bool = False, offload: bool = False) -> None:
        """Take a message of any known dialect to the end of the context.

        It is held in memory until the next `prepare` or `save`.

        Args:
            message: The native message; it is neither changed nor copied.
            pinned: It shall stay in the context when it is archived.
            offload: What is large in it shall leave before a model sees it, whoever said it: a pasted document, a
                long user message. The next `prepare` stores it whole and puts a stub of `preview_tokens` in its
                place; what takes no more than that stays, and so do small blocks beside a large one.

        Raises:
            MessageError: It is no message.
        """
        entry = await entry_beside(
            message, self.added, self._counter, dialect=self._dialect, pinned=pinned, by_hand=offload
        )
        self._context.contents.append(entry)
        if pinned:
            self._context.pins.append(entry.index)

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
        dialect, call = self._called(call_id, name)
        writer = writer_for(self._abilities, self.session_id, call_id, keep_partial=keep_partial)
        held = HeldOutput(call_id, writer, self._counter, self._choosing.held_limit(call))

        async def add() -> None:
            text = await held.end()
            if isinstance(text, StoredResult):
                text = await self._stub_of(call, text)
            await self.add(dialect_named(dialect).tool_result_message(call_id, text, name))

        await held.fill(output, add, max_bytes=max_bytes, keep_partial=keep_partial)

    async def prepare(self) -> list[Any]:
        """Return the messages for the next model call.

        What was added since the last time is offloaded where it is too large and written down; then the
        context is compressed if it takes more than `trigger_ratio` of the window. An offloader that forgets what
        nobody uses, such as `MemoryWorkspace`, takes each time for a turn: Strands' storage counts model calls, too.

        Returns:
            The native messages: system messages and pins that are archived, the summary, and the others. They exceed
            the window only where the newest messages alone do; `exceeding` names those.

        Raises:
            ContextOverflowError: System prompt, tools, system messages and pins alone exceed the window.
            SessionExistsError: The session has messages already; `resume` goes on with it.
            StaleWindowError: Another window has gone on with the session; `resume` goes on from there.
            InvalidNameError: The session id cannot be one.
            FormatVersionError: A newer buoyline wrote the workspace; nothing was touched.
            CorruptError: What stands on disk is not what was written.
            StorageError: The file system refused. The context is as it was, and nothing was lost.
            TypeError: *should_offload* answered with something else than True or False. The context is as it was.
            Exception: Whatever *should_offload* raises; the context is as it was. And whatever the summariser raises,
                `SummaryError` apart; what was archived stays so, and the next attempt goes on from there.
        """
        await self._settle()
        if self.tokens > self.config.trigger_ratio * self.size:
            await self._compress(self.config)
        await completed(self._fit())
        if self._abilities.turns is not None:
            self._abilities.turns.next_turn()
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
            0, less than half of what we count, the same as the request before had, or comes after a compression.

        Raises:
            UsageError: It is no usage, or has a number that is negative or more than twice what the window holds.
        """
        usage = usage_of(response)
        return usage is not None and self._anchor.note(usage)

    async def save(self) -> None:
        """Write down what was added since the last `prepare`, so that `resume` finds it.

        Call it when no model call follows, such as after the final answer; `prepare` does the same.

        Raises:
            BuoylineError: As `prepare` does.
        """
        await self._settle()

    async def compress(
        self,
        *,
        force: bool = False,
        config: ContextConfig | None = None,
        focus: str | None = None,
        before: int | None = None,
    ) -> Summary | None:
        """Compress now; does nothing below the trigger unless it is forced.

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
        await self._settle()
        if before is not None:
            views = [entry.message for entry in self._context.contents]
            cut = max(
                legal_cut_before(views, before - self._context.contents.first),
                self._context.attempted - self._context.contents.first,
            )
            return await self._leave(cut, settings, focus or "") if cut > 0 else None
        if not force and self.tokens <= settings.trigger_ratio * self.size:
            return None
        return await self._compress(settings, focus or "")

    async def recover_from_overflow(self) -> list[Any]:
        """Make the context smaller after the provider refused it, without a model.

        Returns:
            The messages for the next try: at least a tenth fewer tokens than before.

        Raises:
            ContextOverflowError: What must stay leaves no room; nothing was lost.
            StorageError: The file system refused; the context is as it was.
        """
        await self._settle()
        # Progress is told by one measure from beginning to end; a compression in between would change to ours.
        self._anchor.drop()
        began, tokens = time.perf_counter(), self.tokens
        target = int(tokens * (1 - _LEAST_PROGRESS))
        for settings in (self.config, replace(self.config, reserve_ratio=0.0)):
            if self.tokens > target:
                await self._compress(settings, use_model=False)
        await completed(self._fit(target))
        if self.tokens > target:
            raise ContextOverflowError(tokens, self.size, f"the newest messages alone take {self.tokens:,} tokens")
        self._tell(OverflowRecovered(tokens, self.tokens, time.perf_counter() - began))
        return self._hand_out()

    def exceeding(self) -> list[tuple[int, int]]:
        """Return index and tokens of the messages because of which the context does not fit the window.

        These are the messages that do not fit beside what must stand, each alone; where only all of one call's
        results together do not, the largest of them. Empty when the context fits.
        """
        if self.tokens <= self.size:
            return []
        return self._context.exceeding(self._anchor.ours(self.size))

    def _turn(self) -> list[Entry]:
        return self._context.contents.since(self._context.contents.turn_at(len(self._context.contents)))

    def _called(self, call_id: str, name: str) -> tuple[str, ToolCall]:
        """Return the call that an output answers, with the dialect of its message; *name* counts more than its own."""
        dialect, call = self._context.contents.call(call_id) or (self._dialect or "openai", ToolCall(call_id, "", ""))
        return dialect, ToolCall(call_id, name or call.name, call.arguments)

    async def _stub_of(self, call: ToolCall, stored: StoredResult) -> str:
        await self._open()
        return await self._results.stub_of(self.added, call, stored, self._choosing.stub_tokens(call, self._turn()))

    def _hand_out(self) -> list[Any]:
        self._anchor.hand_out(Sent(self._context.tokens(), self.added))
        return self.messages

    def _check_room(self) -> None:
        needed = self._context.least_tokens()
        if needed > self.size:
            reason = "system prompt, tools and pinned messages leave no room; use a larger window or pin less"
            raise ContextOverflowError(needed, self.size, reason)

    async def _open(self) -> None:
        if self._is_open:
            return
        settings = {
            "size": self.size,
            "config": config_to_json(self.config),
            "system": self._context.system,
            "tools": self._context.tools,
            "dialect": self._dialect,
        }
        await self._keeping.start(settings)
        self._is_open = True

    async def _settle(self) -> None:
        """Decide what the new messages look like, and write them down."""
        self._check_room()
        await completed(self._open())
        if self._unshown is not None:
            await completed(self._adopt(self._unshown))
        choices = await self._choosing.choose(self._context.contents.since(self._context.settled))
        await completed(self._settle_new(choices))

    async def _settle_new(self, choices: Mapping[int, Choices]) -> None:
        for position in range(self._context.settled, len(self._context.contents)):
            entry = self._context.contents[position]
            if entry.by_hand:
                entry = await self._results.offload_by_hand(entry, max_tokens=self.config.preview_tokens)
            self._context.contents.replace(position, await self._results.replace(entry, choices.get(entry.index, {})))
        new = self._context.contents.since(self._context.settled)
        await self._keeping.extend(new, self._context.pins)
        self._context.settled = len(self._context.contents)
        self._choosing.settle(new)

    async def _compress(self, settings: ContextConfig, focus: str = "", *, use_model: bool = True) -> Summary | None:
        decided = plan(
            [entry.message for entry in self._context.contents],
            [entry.tokens for entry in self._context.contents],
            max_kept_tokens=self._anchor.ours(settings.reserve_ratio * self.size),
            at_least=self._context.attempted - self._context.contents.first,
        )
        logger.debug("session %s: %d messages leave: %s", self.session_id, decided.cut, decided.reason)
        if decided.cut == 0:
            return None
        return await self._leave(decided.cut, settings, focus, use_model=use_model)

    async def _leave(self, cut: int, settings: ContextConfig, focus: str, *, use_model: bool = True) -> Summary:
        """Let the oldest *cut* messages leave: archive, summarise, write down, and only then forget them."""
        began, tokens_before = time.perf_counter(), self.tokens
        leaving = self._context.contents.until(cut)
        extent = Extent(
            self.session_id,
            self._context.contents.first,
            [entry.native for entry in leaving],
            sum(entry.tokens for entry in leaving),
            archived=self._context.archived - self._context.contents.first,
            attempted=self._context.attempted - self._context.contents.first,
            dialect=self._dialect,
            stubs=self._results.stubs,
        )
        place = await completed(self._archive(extent))
        self._tell(MessagesArchived((extent.first, extent.end), extent.tokens, place.reference))
        summary = await self._compressor.summarize(
            extent,
            place,
            previous=self._context.summary[1].draft if self._context.summary else None,
            max_tokens=self._summary_room(cut, settings),
            config=settings,
            focus=focus,
            use_model=use_model,
        )
        shown = await completed(self._show(summary))
        self._tell(ContextCompressed(shown, tokens_before, self.tokens, time.perf_counter() - began))
        return shown

    async def _archive(self, extent: Extent) -> Place:
        self._context.attempted = max(self._context.attempted, extent.end)
        self._results.warn_of_loss()
        place = await self._compressor.archive(extent)
        self._context.archived = extent.end
        return place

    async def _show(self, summary: Summary) -> Summary:
        # From the first line on the summary is in the log; should the second fail, the next call shows it.
        self._unshown = await self._compressor.record(self.session_id, summary)
        return await self._adopt(self._unshown)

    def _summary_room(self, cut: int, settings: ContextConfig) -> int:
        leaving = sum(entry.tokens for entry in self._context.contents.until(cut) if not entry.stays)
        others = self._context.fixed_tokens() + self._context.head.tokens + self._context.contents.tokens - leaving
        room = self._anchor.ours(settings.trigger_ratio * self.size) - others
        # A summary of half its source still makes room; below some hundred tokens it could not hold its frame.
        worth = max(leaving // 2, _SMALL_SUMMARY_TOKENS)
        return max(min(settings.summary_limit(self.size), worth, room), _LEAST_SUMMARY_TOKENS)

    async def _adopt(self, summary: Summary) -> Summary:
        """Put *summary* in the place of the messages that it stands for, on disk first."""
        cut = summary.messages[1] - self._context.contents.first
        leaving = self._context.contents.until(cut)
        staying = [entry for entry in leaving if entry.stays]
        dialect = leaving[-1].dialect
        native = dialect_named(dialect).user_message(summary.text)
        stand_in = entry_of(native, -1, self._counter, dialect=dialect)
        standing, following = [*self._context.head, *staying, stand_in], self._context.contents.since(cut)
        await self._keeping.replace(standing, following, summary.messages[1], self._context.pins)
        for entry in staying:
            self._context.head.append(entry)
        self._context.summary = (stand_in, summary)
        self._context.contents.leave(cut)
        self._context.settled = len(self._context.contents)
        self._unshown = None
        self._anchor.drop()
        self._choosing.restart(self._context.contents)
        return summary

    async def _fit(self, max_tokens: int | None = None) -> None:
        """Shrink tool results that were kept, largest first, while the context does not fit."""
        limit = self.size if max_tokens is None else max_tokens
        if self.tokens <= limit:
            return
        context, fitting = self._context, Fitting(self._results, self._choosing, self.config.preview_tokens)
        if await fitting.shrink(context, lambda: self.tokens <= limit):
            self._choosing.restart(context.contents)
            await self._keeping.replace(
                context.standing(), list(context.contents), context.contents.first, context.pins
            )
        if self.tokens > limit:
            logger.warning("session %s: %d tokens do not fit %d", self.session_id, self.tokens, limit)

    async def _restore(self, state: WindowState) -> None:
        summaries = await load_summaries(self._abilities, self.session_id)
        restore(self._context, state, summaries, self._dialect)
        self._is_open = True
        await check_archived(self._context, self._abilities, self.session_id)
        self._results.stubs.update(await stubs_in(self._context, self._abilities, self.session_id))
        self._choosing.recall(self._context.contents)
        await completed(self._finish_compression(summaries))

    async def _finish_compression(self, summaries: Sequence[Summary]) -> None:
        """Show a summary that was written just before the other process ended."""
        first, archived = self._context.contents.first, self._context.archived
        if summaries and archived > first and summaries[-1].messages == (first, archived):
            await self._adopt(summaries[-1])
