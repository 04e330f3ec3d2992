"""`ContextWindow`: the messages a model sees, kept under the limit of its window."""

import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any, Self, cast

from buoyline.compression import (
    Compressor,
    ContextConfig,
    Extent,
    Summarizer,
    Summary,
    legal_cut_before,
    summary_from,
)
from buoyline.compression.plan import plan
from buoyline.compression.rendering import Place
from buoyline.errors import ConfigError, ContextOverflowError, CorruptError, NotFoundError, StaleWindowError
from buoyline.messages import dialect_named, spell
from buoyline.offloader import Abilities, Offloader, WindowState, abilities_of
from buoyline.tokens import TokenCounter, as_text_counter, default_counter
from buoyline.tokens.messages import count_tools
from buoyline.window.completion import completed
from buoyline.window.contents import Contents
from buoyline.window.entry import Entry, entry_of
from buoyline.window.events import ContextCompressed, OnEvent
from buoyline.window.offloading import ResultOffloading

logger = logging.getLogger(__name__)

_LEAST_SUMMARY_TOKENS = 64
_SMALL_SUMMARY_TOKENS = 400
_LEAST_PROGRESS = 0.1
# A notice with its path takes about 100 tokens; below that nothing is won.
_WORTH_OFFLOADING_TOKENS = 100


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
        size: int = 128_000,
        config: ContextConfig | None = None,
        system: Any = "",
        tools: Sequence[Any] = (),
        summarizer: Summarizer | None = None,
        counter: TokenCounter | Callable[[str], int] | None = None,
        dialect: str | None = None,
        on_event: OnEvent | None = None,
    ) -> None:
        """Begin a new session; nothing is written before the first `prepare`.

        Args:
            session_id: Names the session at the offloader.
            offloader: Takes what leaves the context; None drops it, with a warning.
            size: Tokens of the model's window.
            config: Left out: `ContextConfig` with its defaults.
            system: A system prompt that is sent beside the messages, as text or as the provider's blocks; only
                counted. System *messages* are added like all others and stay at the head.
            tools: Definitions of the tools, as sent to the model; only counted.
            summarizer: Left out: the extractive one, which needs no model.
            counter: Counts the tokens of a text; left out: exactly, for ``o200k_base``.
            dialect: Name of the form that all messages have, e.g. ``"anthropic"``; left out: detected for each.
            on_event: Told of each offloading and compression, right after it.

        Raises:
            ConfigError: *size* is no whole number above 0, there is no such *dialect*, or *offloader*, *summarizer*
                or *config* is something else.
            TypeError: *counter* cannot count.
        """
        _require_size(size)
        _require("offloader", offloader, "offload_context", "offload_tool_result")
        _require("summarizer", summarizer, "summarize")
        if config is not None and not isinstance(cast("object", config), ContextConfig):
            raise ConfigError("config", f"{type(config).__name__} is no ContextConfig")
        self.session_id = session_id
        self.size = size
        self.config = config or ContextConfig()
        self._counter = default_counter() if counter is None else as_text_counter(counter)
        self._system, self._tools = system, list(tools)
        self._abilities: Abilities = abilities_of(offloader)
        self._compressor = Compressor(offloader, config=self.config, counter=self._counter, summarizer=summarizer)
        self._results = ResultOffloading(
            offloader, self._abilities, session_id, self._counter, on_event, tools={}, stubs={}
        )
        self._dialect = None if dialect is None else dialect_named(dialect).name
        self._on_event = on_event
        self._fixed_tokens: int | None = None
        self._head = Contents()
        self._summary: tuple[Entry, Summary] | None = None
        self._contents = Contents()
        self._pins: list[int] = []
        self._settled = 0
        self._archived = 0
        self._attempted = 0
        self._unshown: Summary | None = None
        self._writer = uuid.uuid4().hex
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
        summarizer: Summarizer | None = None,
        counter: TokenCounter | Callable[[str], int] | None = None,
        on_event: OnEvent | None = None,
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
            config=_config_from(kept["config"]) if config is None else config,
            system=kept["system"] if system is None else system,
            tools=kept["tools"] if tools is None else tools,
            summarizer=summarizer,
            counter=counter,
            dialect=kept.get("dialect"),
            on_event=on_event,
        )
        await abilities.windows.claim_window(session_id, writer=window._writer)
        await window._restore(await abilities.windows.load_window(session_id))
        return window

    @property
    def messages(self) -> list[Any]:
        """The native messages in the context, in order; those added since the last `prepare` included."""
        return [entry.native for entry in (*self._standing(), *self._contents)]

    @property
    def tokens(self) -> int:
        """What the whole context takes: system prompt, tools, head, summary and messages."""
        summary = self._summary[0].tokens if self._summary else 0
        return self._fixed() + self._head.tokens + summary + self._contents.tokens

    @property
    def added(self) -> int:
        """How many messages the session has had so far; the index of the next one."""
        return self._contents.end

    async def add(self, message: Any, *, pinned: bool = False) -> None:
        """Take a message of any known dialect to the end of the context.

        It is held in memory until the next `prepare` or `save`.

        Args:
            message: The native message; it is neither changed nor copied.
            pinned: It shall stay in the context when it is archived.

        Raises:
            MessageError: It is no message.
        """
        entry = entry_of(message, self.added, self._counter, dialect=self._dialect, pinned=pinned)
        self._contents.append(entry)
        if pinned:
            self._pins.append(entry.index)

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
            Exception: Whatever the summariser raises, `SummaryError` apart; what was archived stays so, and the
                next attempt goes on from there.
        """
        await self._settle()
        if self.tokens > self.config.trigger_ratio * self.size:
            await self._compress(self.config)
        await completed(self._fit())
        if self._abilities.turns is not None:
            self._abilities.turns.next_turn()
        return self.messages

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
            views = [entry.message for entry in self._contents]
            cut = max(legal_cut_before(views, before - self._contents.first), self._attempted - self._contents.first)
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
        tokens = self.tokens
        target = int(tokens * (1 - _LEAST_PROGRESS))
        for settings in (self.config, replace(self.config, reserve_ratio=0.0)):
            if self.tokens > target:
                await self._compress(settings, use_model=False)
        await completed(self._fit(target))
        if self.tokens > target:
            raise ContextOverflowError(tokens, self.size, f"the newest messages alone take {self.tokens:,} tokens")
        return self.messages

    def exceeding(self) -> list[tuple[int, int]]:
        """Return index and tokens of the messages because of which the context does not fit the window.

        These are the messages that do not fit beside what must stand, each alone; where only all of one call's
        results together do not, the largest of them. Empty when the context fits.
        """
        if self.tokens <= self.size:
            return []
        room = self.size - (self.tokens - self._contents.tokens)
        found = [(entry.index, entry.tokens) for entry in self._contents if entry.tokens > room]
        largest = max(self._contents, key=lambda entry: entry.tokens, default=None)
        return found or ([] if largest is None else [(largest.index, largest.tokens)])

    def _standing(self) -> list[Entry]:
        return [*self._head, *((self._summary[0],) if self._summary else ())]

    def _fixed(self) -> int:
        if self._fixed_tokens is None:
            tools = count_tools(self._tools, self._counter)
            system = self._system if isinstance(self._system, str) else spell(self._system)
            self._fixed_tokens = self._counter.count(system) + tools
        return self._fixed_tokens

    def _check_room(self) -> None:
        needed = self._fixed() + self._head.tokens + self._contents.staying_tokens
        if needed > self.size:
            reason = "system prompt, tools and pinned messages leave no room; use a larger window or pin less"
            raise ContextOverflowError(needed, self.size, reason)

    async def _open(self) -> None:
        if self._is_open:
            return
        if self._abilities.windows is not None:
            settings = {
                "size": self.size,
                "config": {**asdict(self.config), "summary_schema": dict(self.config.summary_schema)},
                "system": self._system,
                "tools": self._tools,
                "dialect": self._dialect,
            }
            await self._abilities.windows.start_window(self.session_id, settings, writer=self._writer)
        self._is_open = True

    async def _settle(self) -> None:
        """Decide what the new messages look like, and write them down."""
        self._check_room()
        await completed(self._open())
        if self._unshown is not None:
            await completed(self._adopt(self._unshown))
        await completed(self._settle_new())

    async def _settle_new(self) -> None:
        for position in range(self._settled, len(self._contents)):
            entry = await self._results.offload(
                self._contents[position],
                limit=self.config.tool_result_limit,
                max_tokens=self.config.preview_tokens,
            )
            self._contents.replace(position, entry)
        new = self._contents.since(self._settled)
        if new and self._abilities.windows is not None:
            natives = [entry.native for entry in new]
            await self._abilities.windows.extend_window(self.session_id, natives, self._pins, writer=self._writer)
        self._settled = len(self._contents)

    async def _compress(self, settings: ContextConfig, focus: str = "", *, use_model: bool = True) -> Summary | None:
        decided = plan(
            [entry.message for entry in self._contents],
            [entry.tokens for entry in self._contents],
            max_kept_tokens=int(settings.reserve_ratio * self.size),
            at_least=self._attempted - self._contents.first,
        )
        logger.debug("session %s: %d messages leave: %s", self.session_id, decided.cut, decided.reason)
        if decided.cut == 0:
            return None
        return await self._leave(decided.cut, settings, focus, use_model=use_model)

    async def _leave(self, cut: int, settings: ContextConfig, focus: str, *, use_model: bool = True) -> Summary:
        """Let the oldest *cut* messages leave: archive, summarise, write down, and only then forget them."""
        tokens_before = self.tokens
        leaving = self._contents.until(cut)
        extent = Extent(
            self.session_id,
            self._contents.first,
            [entry.native for entry in leaving],
            sum(entry.tokens for entry in leaving),
            archived=self._archived - self._contents.first,
            attempted=self._attempted - self._contents.first,
            dialect=self._dialect,
            stubs=self._results.stubs,
        )
        place = await completed(self._archive(extent))
        summary = await self._compressor.summarize(
            extent,
            place,
            previous=self._summary[1].draft if self._summary else None,
            max_tokens=self._summary_room(cut, settings),
            config=settings,
            focus=focus,
            use_model=use_model,
        )
        shown = await completed(self._show(summary))
        if self._on_event is not None:
            self._on_event(ContextCompressed(shown, tokens_before, self.tokens))
        return shown

    async def _archive(self, extent: Extent) -> Place:
        self._attempted = max(self._attempted, extent.end)
        self._results.warn_of_loss()
        place = await self._compressor.archive(extent)
        self._archived = extent.end
        return place

    async def _show(self, summary: Summary) -> Summary:
        # From the first line on the summary is in the log; should the second fail, the next call shows it.
        self._unshown = await self._compressor.record(self.session_id, summary)
        return await self._adopt(self._unshown)

    def _summary_room(self, cut: int, settings: ContextConfig) -> int:
        leaving = sum(entry.tokens for entry in self._contents.until(cut) if not entry.stays)
        others = self._fixed() + self._head.tokens + self._contents.tokens - leaving
        room = int(settings.trigger_ratio * self.size) - others
        # A summary of half its source still makes room; below some hundred tokens it could not hold its frame.
        worth = max(leaving // 2, _SMALL_SUMMARY_TOKENS)
        return max(min(settings.summary_limit(self.size), worth, room), _LEAST_SUMMARY_TOKENS)

    async def _adopt(self, summary: Summary) -> Summary:
        """Put *summary* in the place of the messages that it stands for, on disk first."""
        cut = summary.messages[1] - self._contents.first
        leaving = self._contents.until(cut)
        staying = [entry for entry in leaving if entry.stays]
        dialect = leaving[-1].dialect
        native = dialect_named(dialect).user_message(summary.text)
        stand_in = entry_of(native, -1, self._counter, dialect=dialect)
        await self._write_down([*self._head, *staying, stand_in], self._contents.since(cut), summary.messages[1])
        for entry in staying:
            self._head.append(entry)
        self._summary = (stand_in, summary)
        self._contents.leave(cut)
        self._settled = len(self._contents)
        self._unshown = None
        return summary

    async def _write_down(self, standing: Sequence[Entry], entries: Sequence[Entry], first: int) -> None:
        if self._abilities.windows is None:
            return
        natives = [entry.native for entry in (*standing, *entries)]
        kinds = [_kind(entry) for entry in standing]
        await self._abilities.windows.replace_window(
            self.session_id, natives, kinds, first, self._pins, writer=self._writer
        )

    async def _fit(self, max_tokens: int | None = None) -> None:
        """Shrink tool results that were kept, largest first, while the context does not fit."""
        limit = self.size if max_tokens is None else max_tokens
        if self.tokens <= limit:
            return
        changed = [await self._shrink(limit, shrunk) for shrunk in (self._stubbed, self._results.shrink, self._noticed)]
        if any(changed):
            await self._write_down(self._standing(), list(self._contents), self._contents.first)
        if self.tokens > limit:
            logger.warning("session %s: %d tokens do not fit %d", self.session_id, self.tokens, limit)

    async def _shrink(self, limit: int, shrunk: Callable[[Entry], Awaitable[Entry]]) -> bool:
        before = self.tokens
        # What an attempt may have archived already stays as it was then: the attempt is repeated word for word.
        movable = range(self._attempted - self._contents.first, len(self._contents))
        for position in sorted(movable, key=lambda position: -self._contents[position].tokens):
            if self.tokens <= limit:
                break
            self._contents.replace(position, await shrunk(self._contents[position]))
        return self.tokens != before

    async def _stubbed(self, entry: Entry) -> Entry:
        preview_tokens = self.config.preview_tokens
        return await self._results.offload(entry, limit=preview_tokens, max_tokens=preview_tokens)

    async def _noticed(self, entry: Entry) -> Entry:
        return await self._results.offload(entry, limit=_WORTH_OFFLOADING_TOKENS, max_tokens=1)

    async def _restore(self, state: WindowState) -> None:
        summaries = await self._load_summaries()
        head, others = state.messages[: len(state.head)], state.messages[len(state.head) :]
        archived_pins = iter([pin for pin in state.pins if pin < state.first])
        for kind, (dialect, native) in zip(state.head, head, strict=True):
            index = next(archived_pins) if kind == "pin" else -1
            entry = entry_of(native, index, self._counter, dialect=dialect, pinned=kind == "pin")
            if kind == "summary":
                self._summary = (entry, _shown(summaries, entry))
            else:
                self._head.append(entry)
        self._contents = Contents(first=state.first)
        for dialect, native in others:
            pinned = self.added in state.pins
            named = self._dialect or dialect
            self._contents.append(entry_of(native, self.added, self._counter, dialect=named, pinned=pinned))
        self._pins = list(state.pins)
        self._settled = len(self._contents)
        self._archived = self._attempted = state.archived
        self._is_open = True
        await self._check_archived()
        await self._load_stubs()
        await self._finish_compression(summaries)

    async def _check_archived(self) -> None:
        """Make sure that what the archive holds beyond the window's first message is the window's own."""
        first = self._contents.first
        if self._abilities.archive is None or self._archived == first:
            return
        archived = await self._abilities.archive.load_messages(self.session_id, first, self._archived)
        mine = [(entry.dialect, entry.json()) for entry in self._contents.until(self._archived - first)]
        if archived != mine:
            reason = "its archive holds messages that did not come from its window"
            hint = "nothing is lost, archive and window.jsonl are whole; begin a new session from what they hold"
            raise StaleWindowError(self.session_id, reason, hint)

    async def _load_stubs(self) -> None:
        if self._abilities.results is not None:
            texts = [result.text for entry in self._contents for result in entry.message.results]
            self._results.stubs.update(await self._abilities.results.load_stubs(self.session_id, texts))

    async def _finish_compression(self, summaries: Sequence[Summary]) -> None:
        """Show a summary that was written just before the other process ended."""
        first = self._contents.first
        if summaries and self._archived > first and summaries[-1].messages == (first, self._archived):
            await completed(self._adopt(summaries[-1]))

    async def _load_summaries(self) -> list[Summary]:
        if self._abilities.summaries is None:
            return []
        return [summary_from(line) for line in await self._abilities.summaries.load_summaries(self.session_id)]


def _config_from(kept: Mapping[str, Any]) -> ContextConfig:
    """Read a configuration from disk; keys of a newer buoyline are ignored, as everywhere."""
    known = {field.name for field in fields(ContextConfig)}
    return ContextConfig(**{name: value for name, value in kept.items() if name in known})


def _require(name: str, value: object, *methods: str) -> None:
    if value is not None and not all(callable(getattr(value, method, None)) for method in methods):
        raise ConfigError(name, f"{type(value).__name__} has not {' and '.join(methods)}")


def _require_size(size: object) -> None:
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ConfigError("size", f"{size!r} is not a whole number of tokens above 0")


def _kind(entry: Entry) -> str:
    if entry.pinned:
        return "pin"
    return "system" if entry.message.role == "system" else "summary"


def _shown(summaries: Sequence[Summary], entry: Entry) -> Summary:
    for summary in reversed(summaries):
        if summary.text == entry.message.text:
            return summary
    raise CorruptError("summaries.jsonl", "does not hold the summary that stands in the context")
