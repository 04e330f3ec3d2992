"""`ContextWindow`: the messages of one session that the model sees, kept within the limit of its window."""

import asyncio
import os
import threading
import time as clock
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from typing import Any, Final, Self, TypeAlias, TypeVar, Unpack

from buoyline.compression import ContextConfig, Summarizer, Summary
from buoyline.compression.config import LEAST_SUMMARY_TOKENS, config_of, require_focus
from buoyline.compression.plan import Plan, awaited_from, legal_cut_before, plan
from buoyline.compression.summarizers.callables import SummaryFunction
from buoyline.compression.summary import summary_from
from buoyline.context.budget import Budget
from buoyline.context.context import Context, call_of
from buoyline.context.entries import Entry
from buoyline.context.events import ContextCompressed, ContextManaged, Event, HistoryForked, OnEvent, reporting
from buoyline.context.follower import Change, Followed, ListFollower, MessageKey, ranges_of
from buoyline.context.head import Head, notice_of
from buoyline.context.management.managers import Action, Evict, Replace, Situation, Summarize
from buoyline.context.management.model import ContextManagement
from buoyline.context.management.registry import Management, document_of
from buoyline.context.offloading import Offloading
from buoyline.context.old_compressor import Leaving, summarized
from buoyline.context.records import Records, dialect_of
from buoyline.context.settings import Settings, WindowSettings, require_arguments
from buoyline.context.tools import called, compress_tool, definition
from buoyline.context.turns import Turns
from buoyline.errors import BusyError, ConfigError, ContextOverflowError, NotFoundError, StaleWindowError
from buoyline.lookups import lookup_tools
from buoyline.lookups.tools import Tool
from buoyline.messages.dialect import Dialect
from buoyline.messages.registry import dialect_named
from buoyline.messages.times import now
from buoyline.offloader import StoredResult, ToolOutput
from buoyline.offloader.stub import stub_of
from buoyline.store import layout
from buoyline.store.state import ContextRecord
from buoyline.store.streams import collected, reason_of
from buoyline.store.threads import finished
from buoyline.store.workspace import LocalWorkspace, Workspace
from buoyline.tokens import TextCounter, TokenCounter
from buoyline.tokens.o200k import counter_of
from buoyline.tokens.usage import model_of, usage_of

T = TypeVar("T")
Tools: TypeAlias = Iterable[Any] | None

_WORTH_ASKING_TOKENS: Final = 1_000
"""An agent that asks for a compaction gets none below that: the summary would take most of it."""

_LEAST_PROGRESS: Final = 0.1
"""Share by which a context must shrink after an overflow."""


class ContextWindow:
    """The messages of one session that a model sees on its next call.

    Example:
        async with await ContextWindow.open("./workspace", "s1", size=128_000) as window:
            await window.add({"role": "user", "content": "Which tests fail?"})
            messages = await window.prepare()  # for the next model call

    A window does one thing at a time: a call during another one raises `BusyError`; only `add`, `extend` and
    `add_tool_output` may come at any time. If a call raises, the context is as it was: `StorageError` if the file
    system refused, `StaleWindowError` if another window took the session over, or an error of your own functions. See
    docs/window.md and docs/settings.md.
    """

    def __init__(self, *_: object, **__: object) -> None:
        """Refuse: `open` is the one way in."""
        raise TypeError("open a session with `await ContextWindow.open(workspace, session_id, size=…)`")

    @classmethod
    async def open(
        cls,
        workspace: Workspace | str | os.PathLike[str],
        session_id: str,
        *,
        summarizer: Summarizer | SummaryFunction | None = None,
        summarizers: Mapping[str, Summarizer | SummaryFunction] | None = None,
        counter: TokenCounter | Callable[[str], int] | None = None,
        on_event: OnEvent | None = None,
        **settings: Unpack[WindowSettings],
    ) -> Self:
        """Continue a session of a workspace, or begin it; nothing is written yet.

        Args:
            workspace: Where everything is kept, or its path.
            session_id: Its name.
            summarizer: Writes summaries. Default: without a model.
            summarizers: Further ones, by the ``summarization_model_id`` of documents.
            counter: Counts the tokens of a text. Default: exactly, for ``o200k_base``.
            on_event: Called with each `Event` once it is on disk.
            settings: See `WindowSettings`. Functions are not on disk: pass them again.

        Raises:
            ConfigError: A setting cannot work, or the session holds messages of `offload_context`.
            CorruptError: The session is damaged where the context needs it.
        """
        require_arguments(settings, summarizer)
        found: object = LocalWorkspace(workspace) if isinstance(workspace, (str, os.PathLike)) else workspace
        if not isinstance(found, Workspace):
            raise ConfigError("workspace", f"{type(workspace).__name__} is none; give a path or a LocalWorkspace")
        self = cls.__new__(cls)
        self._begin(found, session_id, counter_of(counter), reporting(session_id, on_event))
        self._summarizers, self._given = {**(summarizers or {}), "": summarizer}, settings
        await self._turn(self._load)
        return self

    def _begin(self, workspace: Workspace, session_id: str, counter: TextCounter, report: OnEvent) -> None:
        self.workspace, self.session_id, self._counter, self._report = workspace, session_id, counter, report
        self._summarizers: dict[str, Summarizer | SummaryFunction | None] = {}
        self._given, self._session = WindowSettings(), workspace.session(session_id)
        self._turns, self._alone, self._at_work = Turns(), threading.Lock(), ""
        self._tools, self._events = dict[str, Tool](), list[Event]()
        self._usage: Mapping[str, Any] | None = None

    async def close(self) -> None:
        """Write the last usage down."""
        await self._turn(self._close)

    async def __aenter__(self) -> Self:
        """Return the window."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.close()

    @property
    def messages(self) -> list[Any]:
        """The messages in the context; `prepare` also answers open calls."""
        return [*self._context.shown]

    @property
    def tokens(self) -> int:
        """Tokens of the next request: system prompt, tools, summary, messages."""
        return self._budget.tokens(self._own_tokens)

    @property
    def summary(self) -> Summary | None:
        """The summary in the context."""
        return self._context.head.summary

    @property
    def added(self) -> int:
        """How many messages the session has had; the next one's index."""
        return self._session.state.end

    # Adding.

    def add(
        self, message: Any, *, pinned: bool = False, offload: bool = False, time: str | None = None
    ) -> Coroutine[Any, Any, int]:
        """Add a message, and return its index; it is on disk then.

        Args:
            message: In any known form; it is not copied.
            pinned: Quote it at the beginning of the context when it is archived.
            offload: Offload its large content, whoever said it.
            time: When it was said, ISO 8601; default: now.

        Raises:
            MessageError: It is no message; nothing was written.
        """
        return self._added([message], pinned=pinned, offload=offload, time=time)

    def extend(self, messages: Iterable[Any]) -> Coroutine[Any, Any, int]:
        """Add messages in one write, all or none; return the index of the first."""
        return self._added([*messages])

    async def add_tool_output(
        self, call_id: str, output: ToolOutput, *, name: str = "", keep_partial: bool = False
    ) -> int:
        """Add a tool's output while it comes; above a megabyte it goes to a file block by block.

        With *keep_partial* what came before an error, or a cancellation, is added, and then the error is raised.
        """
        results, redaction = self._session.results, self._session.redaction
        found = await collected(call_id, output, results, redaction, keep_partial=keep_partial)
        text = found.text
        if found.stored is not None:
            tokens, source = self._settings.config.preview_tokens, results.source(found.stored)
            text = await asyncio.to_thread(stub_of, source, found.stored, tokens, self._counter)
        elif found.error is not None:
            text = f"{text}\n[The tool did not come to its end: {reason_of(found.error)}]"
        message = self._dialect_of(call_id).tool_result_message(call_id, text, name)
        index = await self._added([message], stored=found.stored)
        if found.error is not None:
            raise found.error
        return index

    async def shown(self, message: Any, *, offload: bool = False) -> Any:
        """Return a message as `add` would keep it, with stubs, without adding it."""
        return await self._turn(lambda: self._shown(message, offload=offload))

    # Before and after a model call.

    async def prepare(
        self, management: Management | None = None, *, system: Any = None, tools: Tools = None, at_trigger: bool = True
    ) -> list[Any]:
        """Return the messages for the next model call; compacts above the trigger.

        Args:
            management: A document for this call, in place of the window's.
            system: System prompt of each request from now on.
            tools: Definitions of the tools from now on.
            at_trigger: False: compact only if the context does not fit the window.

        Raises:
            ContextOverflowError: System prompt, tools and pinned messages alone do not fit.
        """
        with self._busy("prepare"):
            return await self._prepared(management, system, tools, at_trigger=at_trigger)

    async def compress(
        self, *, force: bool = False, focus: str = "", config: ContextConfig | None = None, before: int | None = None
    ) -> Summary | None:
        """Compact now if above the trigger; *force* and *before*, the first message to keep, do in any case."""
        with self._busy("compress"):
            settings = config_of(config or self._settings.config)
            require_focus(focus)
            if not force and before is None and not self._exceeds(settings):
                return None
            views, cut = self._context.views, None
            if before is not None:
                at = sum(entry.number < before for entry in self._context.entries)
                cut = legal_cut_before(views, min(at, awaited_from(views)))
            return await self._compact(settings, focus, cut=cut)

    async def recover_from_overflow(self, error: BaseException | None = None) -> list[Any]:
        """Make the context at least a tenth smaller after the provider refused it, without a model.

        Raises:
            ContextOverflowError: The messages that must stay are too large.
        """
        with self._busy("recover_from_overflow"):
            await self._turn(self._settle)
            self._budget.forget()
            target = int(self.tokens * (1 - _LEAST_PROGRESS))
            for config in (self._settings.config, replace(self._settings.config, reserve_ratio=0.0)):
                if self.tokens > target:
                    await self._compact(config, use_model=False, most=target)
            await self._turn(lambda: self._fit(target))
            if self.tokens > target:
                reason = f"the newest messages alone take {self.tokens:,} tokens"
                raise ContextOverflowError(self.tokens, self._budget.limit, reason) from error
            return self._hand_out()

    def note_usage(self, response: Any) -> bool:
        """Take the provider's count of the last request; False if it cannot be that."""
        usage = usage_of(response)
        if usage is None or not self._budget.note(usage):
            return False
        self._usage = {**asdict(usage), "model": model_of(response), "end": self.added}
        return True

    def exceeding(self) -> list[tuple[int, int]]:
        """Return index and tokens of each message that alone does not fit next to those that stay.

        If each of them does, return the largest; if the context fits, return nothing.
        """
        if self.tokens <= self._budget.limit:
            return []
        room = self._budget.limit / self._budget.scale - self._budget.fixed - self._context.head.tokens
        sizes = [(entry.number, entry.tokens) for entry in self._context.order]
        return [one for one in sizes if one[1] > room] or sorted(sizes, key=lambda one: -one[1])[:1]

    async def unpin(self, *indexes: int) -> None:
        """Undo `pinned`. Raises `NotFoundError`; nothing is changed then."""
        with self._busy("unpin"):
            await self._turn(lambda: self._unpin(set(indexes)))

    # A list that a framework owns.

    async def follow(self, messages: Sequence[Any], *, key: MessageKey | None = None) -> Followed:
        """Take over a framework's whole list; see docs/following.md.

        *key* returns the id of a message; empty if it has none. Raises `MessageError`; nothing is changed then.
        """
        with self._busy("follow"):
            return await self._anew(lambda: self._turn(lambda: self._follow(messages, key)))

    async def request(
        self, messages: Sequence[Any], *, key: MessageKey | None = None, system: Any = None, tools: Tools = None
    ) -> list[Any]:
        """Follow a framework's list, and return what to send: `follow` and `prepare` in one step."""

        async def requested() -> list[Any]:
            await self._turn(lambda: self._follow(messages, key))
            return await self._prepared(None, system, tools)

        with self._busy("request"):
            return await self._anew(requested)

    # Tools for the agent.

    def tools(self, dialect: str | None = None, *, prefix: str = "") -> list[Any]:
        """Return the lookups and ``compress_context`` as tools, or as definitions in the form of a dialect.

        Their results are never offloaded.
        """
        lookups: Any = lookup_tools  # they take the old workspace until all callers are switched
        made: list[Tool] = [
            *lookups(self.workspace, self.session_id, counter=self._counter, prefix=prefix),
            compress_tool(self._ask, lambda: f"Your context takes {self.tokens:,} tokens", prefix),
        ]
        self._tools.update({tool.name: tool for tool in made})
        return [*made] if dialect is None else [definition(tool, dialect) for tool in made]

    async def call(self, tool_call: Any) -> Any:
        """Run a call of the model that names one of `tools`, and return its result as a message to add.

        Raises:
            NotFoundError: It names another tool.
        """
        call, text = await called(tool_call, self._tools)
        return self._dialect_of(call.call_id).tool_result_message(call.call_id, text, call.name)

    # Within. What changes disk and memory does so in a turn, in a worker thread.

    @property
    def _own_tokens(self) -> int:
        return self._budget.fixed + self._context.tokens

    def _exceeds(self, config: ContextConfig) -> bool:
        head, staying = self._context.head, self._context.staying_tokens
        return self._budget.exceeds(self._own_tokens, staying, head.summary_tokens, config)

    def _dialect_of(self, call_id: str) -> Dialect:
        """Return the form of the message with a call; that of the others if it is not in the context."""
        entries = reversed(self._context.entries)
        owner = next((one for one in entries if any(call.call_id == call_id for call in one.message.calls)), None)
        return dialect_named(self._settings.dialect or (owner.dialect if owner else self._context.dialect))

    async def _turn(self, work: Callable[[], T]) -> T:
        return await self._ended(self._turns.take(work))

    async def _ended(self, outcome: Future[T]) -> T:
        """Wait for the end of a turn, and emit the events of what is on disk then."""
        done = await finished(asyncio.wrap_future(outcome))
        while self._events:
            self._report(self._events.pop(0))
        return done

    @contextmanager
    def _busy(self, name: str) -> Generator[None]:
        if not self._alone.acquire(blocking=False):
            raise BusyError(self.session_id, self._at_work, name)
        self._at_work = name
        try:
            yield
        finally:
            self._alone.release()

    def _load(self) -> None:
        """Read the session: the newest record of the context, and the messages from there on."""
        state, given = self._session.open(), self._given
        if state.is_plain:
            raise ConfigError("session_id", f"{self.session_id!r} holds messages of `offload_context`; use a new one")
        if (management := given.get("management")) is not None:
            given = given | WindowSettings(management=document_of(management, self.workspace))
        settings = self._settings = Settings.opened(state.settings, given)
        self._session.settings = settings.to_json()
        self._budget = Budget(settings.size, settings.max_output_tokens, self._counter, settings.system, settings.tools)
        self._records = Records(self._session, self._counter, settings.dialect)
        self._offloading = Offloading(self._session, settings.config, settings.size, self._counter, self._tools)
        self.management, self._transcript = settings.management, self._session.path_of(layout.TRANSCRIPT)
        self._follower: ListFollower | None = None
        self._usage = None
        self._asked: str | None = None
        self._repeatable: tuple[list[str], int] | None = None
        self._managed_until = 0
        record = state.context or ContextRecord(())
        self._order, entries = state.order, self._records.read(state.live)
        # `unpin` is in the record, `pinned` in the line.
        pins = {*record.pins, *(entry.number for entry in entries if entry.pinned and entry.number >= record.end)}
        entries = [replace(entry, pinned=entry.number in pins) for entry in entries]
        self._context = Context(self._head_of(record), entries, self._counter)

    def _head_of(self, record: ContextRecord) -> Head:
        archived, notice = _numbers(record)[: record.until], record.notice
        if not archived:
            return Head()
        found = None if record.summary is None else self._summaries().get(record.summary)
        if record.summary is not None and found is None:  # damaged: the transcript stands for it
            notice = notice_of(archived[-1] + 1, self._transcript)
        summary = None if found is None else summary_from(found)
        quotes = self._records.read([number for number in record.pins if number in {*archived}])
        dialect = self._settings.dialect or dialect_of(self._session.read(archived[-1:])[0])
        systems = self._records.read(record.systems)
        return Head(len(archived), tuple(systems), tuple(quotes), summary, notice, dialect).written(self._counter)

    def _summaries(self) -> Mapping[int, Mapping[str, Any]]:
        if self._follower is not None:
            return self._follower.summaries
        return {record["n"]: record for record in self._session.summaries()}

    def _close(self) -> None:
        if self._usage is not None:
            self._session.note_usage(self._usage)
            self._usage = None

    def _added(self, messages: Sequence[Any], **how: Any) -> Coroutine[Any, Any, int]:
        outcome = self._turns.take(lambda: self._append(messages, **how))

        async def ended() -> int:
            try:
                return await self._ended(outcome)
            except BaseException:
                # The message is on disk, and the caller does not know: the same one again is a repetition.
                if outcome.exception() is None:
                    first = outcome.result()
                    keys = [entry.keys[0] for entry in self._context.entries if entry.number >= first]
                    self._repeatable = keys[: len(messages)], first
                raise

        return ended()

    def _append(
        self,
        messages: Sequence[Any],
        *,
        ids: Sequence[str] | None = None,
        stored: StoredResult | None = None,
        offload: bool = False,
        time: str | None = None,
        **facts: bool,
    ) -> int:
        """Write messages down, with stubs for what is too large, and only then add them."""
        if self._settings.dialect is not None and len(messages) > 1:
            messages = dialect_named(self._settings.dialect).grouped(messages)
        first, pairs = self.added, zip(messages, ids or [""] * len(messages), strict=False)
        entries = [self._records.entry(one, first + at, id=own, **facts) for at, (one, own) in enumerate(pairs)]
        repeatable, self._repeatable = self._repeatable, None
        if repeatable is not None and [entry.keys[0] for entry in entries] == repeatable[0]:
            return repeatable[1]
        self._offloading.drained()
        for at, entry in enumerate(entries):
            entry = replace(entry, stored={0: stored.files}) if stored else entry  # noqa: PLW2901 - the same message
            entries[at] = self._decided(entry, entries[:at], offload=offload)
        usages = [self._usage, *[None] * len(entries)]
        lines = [self._records.line(one, time or now(), use) for one, use in zip(entries, usages, strict=False)]
        self._session.append(lines)
        self._usage = None if entries else self._usage
        for entry in entries:
            self._context.append(entry)
            self._order.append(entry.number)
            self._note(entry)
        self._events += self._offloading.drained()
        return first

    def _decided(self, entry: Entry, before: Sequence[Entry], *, offload: bool = False) -> Entry:
        """Return a new message with stubs for results; under a document all of them stay whole."""
        if self.management is None and entry.message.results and not entry.stored:
            entries, tokens = [*self._context.entries, *before] if before else self._context.entries, 0
            for one in reversed(entries):  # the results since the model spoke last, which may be in its message
                tokens += one.tokens if one.message.results else 0
                if one.message.role == "assistant":
                    break
            entry = self._offloading.decided(entry, lambda call_id: call_of(entries, call_id), tokens)
        return self._offloading.by_hand(entry) if offload else entry

    def _note(self, entry: Entry) -> None:
        if self._follower is not None:
            self._follower.note(entry)

    def _shown(self, message: Any, *, offload: bool) -> Any:
        self._offloading.drained()
        entry = self._decided(self._records.entry(message, self.added), (), offload=offload)
        for files in entry.stored.values():
            self._session.note_result({"key": files[0].name, "files": [list(file) for file in files]})
        self._events += self._offloading.drained()
        return entry.native

    # Preparing.

    async def _prepared(
        self, management: Management | None, system: Any, tools: Tools, *, at_trigger: bool = True
    ) -> list[Any]:
        settings = self._settings
        if system is not None or tools is not None:
            settings = self._settings = settings.beside(system, tools)
            self._session.settings = settings.to_json()
            self._budget.send_beside(settings.system, settings.tools)
        if management is not None:
            self.management = await asyncio.to_thread(document_of, management, self.workspace)
        else:
            self.management = settings.management
        await self._turn(self._settle)
        if self.management is not None:
            await self._managed(self.management)
        is_full = self.tokens > self._budget.limit
        if self.management is None and at_trigger:
            is_full = self._exceeds(settings.config)
        if self._asked is not None or is_full:
            await self._compact(settings.config, self._asked or "")
        if self.tokens > self._budget.limit:
            await self._turn(lambda: self._fit(self._budget.limit))
        return self._hand_out()

    def _hand_out(self) -> list[Any]:
        self._budget.hand_out(self._own_tokens)
        return [*self._context.shown]

    def _settle(self) -> None:
        """Answer the calls that are open when the list is handed out; a result that still comes is the user's words."""
        context = self._context
        self._budget.check(context.staying_tokens, chain(context.head.quotes, context.entries))
        if answers := context.answers:
            self._append(answers, ours=True)
        # The oldest of too many images are offloaded, a quarter of the limit at once: it costs the provider's cache.
        limit, count = self._settings.config.max_images, self._context.images
        wanted = 0 if limit is None or count <= limit else max(count - limit, limit // 4)
        changed = self._changes()
        for at, entry in enumerate(self._context.entries if wanted else ()):
            if wanted > 0 and entry.images and not entry.stays:
                changed[at] = self._offloading.without_images(entry)
                wanted -= entry.images
        self._rewrite(changed)

    def _fit(self, most: int) -> None:
        """Shrink messages, the largest first, until the context takes at most *most*; kept results come last."""
        entries, changed, left = self._context.entries, self._changes(), self._own_tokens
        places = sorted(range(len(entries)), key=lambda at: -entries[at].tokens)
        for is_kept, step, at in ((kept, step, at) for kept in (False, True) for step in range(3) for at in places):
            if self._budget.tokens(left) <= most:
                break
            entry = changed.get(at, entries[at])
            if self._offloading.is_kept(entry, lambda call_id: call_of(entries, call_id)) is is_kept:
                changed[at] = self._offloading.shrunk(entry, step)
                left += changed[at].tokens - entry.tokens
        self._rewrite(changed)

    def _changes(self) -> dict[int, Entry]:
        """Begin to change messages; returns the place for them, by position."""
        self._offloading.drained()
        return {}

    def _rewrite(self, changed: Mapping[int, Entry]) -> None:
        """Give messages, by position, other forms: one batch of records, and only then memory."""
        entries = [*self._context.entries]
        forms = {at: self._records.form(one) for at, one in changed.items() if one is not entries[at]}
        if not forms:
            return
        self._session.note_forms([*forms.values()])
        self._events += self._offloading.drained()
        for at, form in forms.items():
            entries[at] = replace(changed[at], keys=form.keys)
            self._note(entries[at])
        self._context = Context(self._context.head, entries, self._counter)

    # Compaction.

    def _plan(self, config: ContextConfig) -> Plan:
        context = self._context
        kept = self._budget.kept_tokens(context.staying_tokens, context.head.summary_tokens, config)
        views, tokens = context.views, [entry.tokens for entry in context.entries]
        before_model = dialect_named(context.dialect).alternates_roles
        return plan(views, tokens, max_kept_tokens=kept, before_model=before_model)

    def _ask(self, focus: str) -> Plan | None:
        """Let the next `prepare` compact, if that is worth it."""
        decided = self._plan(self._settings.config)
        if decided.archived_tokens < _WORTH_ASKING_TOKENS:
            return None
        self._asked = focus
        return decided

    async def _compact(
        self,
        config: ContextConfig,
        focus: str = "",
        *,
        cut: int | None = None,
        model: str = "",
        use_model: bool = True,
        most: int | None = None,
    ) -> Summary | None:
        """Archive the oldest messages, and put a summary in their place; None if none may leave."""
        began = clock.perf_counter()
        summarizer = self._summarizers.get(model, self._summarizers[""])
        write = partial(summarized, summarizer=summarizer, config=config, focus=focus, counter=self._counter)

        def committed(leaving: Leaving, made: Summary) -> tuple[Leaving, Summary] | None:
            legal = legal_cut_before(self._context.views, len(leaving.entries))
            if legal < len(leaving.entries):
                # A result came for a call that was about to leave: both stay, and so does what is behind them.
                shorter = self._leaving(legal, config, most)
                if shorter is None:
                    return None
                leaving, made = shorter, asyncio.run(write(shorter, use_model=False))
            return leaving, self._replace(leaving, made)

        leaving = await self._turn(lambda: self._leaving(self._plan(config).cut if cut is None else cut, config, most))
        if leaving is None:
            return None
        made = await write(leaving, use_model=use_model)
        done = await self._turn(lambda: committed(leaving, made))
        if done is None:
            return None
        (left, summary), duration_s = done, clock.perf_counter() - began
        tokens = left.tokens_before, self.tokens
        self._report(ContextCompressed(summary, left.span, *tokens, duration_s, summary.unverified, summary.fell_back))
        return summary

    def _leaving(self, cut: int, config: ContextConfig, most: int | None = None) -> Leaving | None:
        """Write the oldest messages into the transcript; they leave the context with the commit."""
        if cut <= 0:
            return None
        gone, head = self._context.entries[:cut], self._context.head
        natives, texts, files = self._records.left([entry.number for entry in gone])
        tokens = sum(entry.tokens for entry in gone if not entry.stays)
        others = self._own_tokens - tokens - head.summary_tokens
        max_tokens = self._budget.summary_tokens(tokens, head.summary_tokens, others, config)
        if most is not None:
            max_tokens = max(min(max_tokens, int(most / self._budget.scale) - others), LEAST_SUMMARY_TOKENS)
        rendered = self._session.archive(texts)
        return Leaving(gone, natives, texts, rendered, self._transcript, files, max_tokens, self.tokens, head.summary)

    def _replace(self, leaving: Leaving, made: Summary) -> Summary:
        """Commit a compaction: the summary, the forms of what stays, and one record; then memory."""
        systems, quotes = self._staying(leaving)
        until = self._context.head.until + len(leaving.entries)
        places = {"ranges": ranges_of(self._order), "until": until, "systems": _numbers_of(systems)}
        line = {**made.to_json(), **places, "pins": _numbers_of(quotes)}
        del line["n"]
        made = made.numbered(self._session.append_summary(line))
        if self._follower is not None:
            self._follower.note_summary({**line, "n": made.number})
        kept, changed = enumerate(self._context.entries[len(leaving.entries) :], len(leaving.entries)), self._changes()
        self._rewrite(changed | {at: self._offloading.without_arguments(entry) for at, entry in kept})
        self._evict(leaving, systems, quotes, made, "")
        return made

    def _staying(self, leaving: Leaving) -> tuple[list[Entry], list[Entry]]:
        rest = self._context.entries[len(leaving.entries) :]
        is_silent = self.management is not None and not any(entry.is_spoken for entry in rest)
        return self._context.head.staying(leaving.entries, words=is_silent)

    def _evict(
        self, leaving: Leaving, systems: Iterable[Entry], quotes: Iterable[Entry], summary: Summary | None, notice: str
    ) -> None:
        cut, dialect = len(leaving.entries), self._settings.dialect or leaving.entries[-1].dialect
        head = Head(self._context.head.until + cut, tuple(systems), tuple(quotes), summary, notice, dialect)
        self._commit(head.written(self._counter), self._order, self._context.entries[cut:], leaving)
        self._asked = None

    def _commit(
        self, head: Head, order: Sequence[int], entries: Sequence[Entry], leaving: Leaving | None = None
    ) -> None:
        """Record the context, and only then change memory."""
        record = ContextRecord(
            ranges=ranges_of(order),
            until=head.until,
            systems=_numbers_of(head.systems),
            pins=_numbers_of([*head.quotes, *(entry for entry in entries if entry.pinned)]),
            summary=None if head.summary is None else head.summary.number,
            notice=head.notice,
        )
        if leaving is not None:
            rendered, left = leaving.rendered, ranges_of(_numbers_of(leaving.entries))
            record = replace(record, transcript=rendered.transcript, left=left, lines=rendered.lines)
        self._session.note_context(record)
        self._order = [*order]
        self._context = Context(head, entries, self._counter)
        self._budget.forget()

    def _unpin(self, indexes: set[int]) -> None:
        head, entries = self._context.head, self._context.entries
        pins = {entry.number for entry in (*head.quotes, *entries) if entry.pinned}
        if missing := indexes - pins:
            known = f"messages {', '.join(map(str, sorted(pins)))} are pinned" if pins else "nothing is pinned"
            raise NotFoundError("pin", str(min(missing)), known)
        quotes = [entry for entry in head.quotes if entry.number not in indexes]
        kept = [replace(entry, pinned=entry.pinned and entry.number not in indexes) for entry in entries]
        self._commit(replace(head, quotes=tuple(quotes)).written(self._counter), self._order, kept)

    # Following.

    async def _anew(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do it; if another window has written, open again and do it once more: the list is the truth."""
        try:
            return await work()
        except StaleWindowError:
            self._given |= WindowSettings(system=self._settings.system, tools=self._settings.tools)
            await self._turn(self._load)
            return await work()

    def _follow(self, messages: Sequence[Any], key: MessageKey | None) -> Followed:
        if self._follower is None:
            self._follower = ListFollower(self._records, self._transcript)
        if self._settings.dialect is not None:
            messages = self._follower.grouped(messages, self._settings.dialect)
        made, parts = self._context.beginning
        if made != parts and [*messages[: len(made)]] == made:
            messages = [*parts, *messages[len(made) :]]
        given = self._follower.given(messages, key, self._settings.dialect)
        change = self._follower.compared(given, self._context, self._order)
        if change.order is not None:
            self._take(change, change.order)
        self._repeatable, changed = None, self._changes()
        for at, entry in enumerate(self._context.entries if change.edited else ()):
            if one := change.edited.get(entry.number):
                fresh = self._records.entry(one.native, entry.number, id=one.id, pinned=entry.pinned)
                changed[at] = self._decided(replace(fresh, keys=(*fresh.keys, *entry.keys)), ())
        self._rewrite(changed)
        if change.new:
            self._append([one.native for one in change.new], ids=[one.id for one in change.new])
        if change.fork is not None:
            self._events.append(HistoryForked(change.fork, change.removed))
        return Followed(len(change.new), change.removed, change.fork, len(change.edited))

    def _take(self, change: Change, order: Sequence[int]) -> None:
        """Show another selection of the session's messages."""
        head = self._context.head
        if change.record is not None:
            head = self._head_of(change.record)
        elif not change.keeps_head:
            head = Head()
        elif len(change.systems) < len(head.systems):
            systems = tuple(one for one in head.systems if one.number in change.systems)
            head = replace(head, systems=systems).written(self._counter)
        held = {entry.number: entry for entry in self._context.entries}
        missing = [number for number in order[change.until :] if number not in held]
        held |= {entry.number: entry for entry in self._records.read(missing)}
        self._commit(head, order, [held[number] for number in order[change.until :]])

    # Documents.

    async def _managed(self, document: ContextManagement) -> None:
        """Let the managers of a document decide, and do what they want; ``post_tool`` only after new results."""
        new = [entry for entry in self._context.entries if entry.number >= self._managed_until]
        for hook, entries in document.hooks.items():
            if hook == "post_tool" and not any(entry.message.results for entry in new):
                continue
            lines = list[str]()
            for number, managed in enumerate(entries):
                situation = await self._turn(self._situation)
                said = managed.activation.unmet(situation)
                if said:
                    said = f"not run: {said}"
                else:
                    said, actions = managed.manager.decide(situation)
                    said = "; ".join([said, *await self._act(actions)])
                lines.append(f"{hook}[{number}] {managed.manager.type_name}: {said}")
            self._report(ContextManaged(hook, tuple(lines)))
        self._managed_until = self.added

    def _situation(self) -> Situation:
        context, size = self._context, self._settings.size
        natives = [entry.native for entry in context.entries]
        return Situation(context.views, natives, self.tokens, size, self._counter)

    async def _act(self, actions: Sequence[Action]) -> list[str]:
        """Carry out the actions of one manager; return what did not go as the document says."""
        config = self._settings.config
        match actions:
            case [Evict(cut)]:
                await self._turn(lambda: self._let_go(cut))
            case [Summarize(cut, model, prompt)]:
                config = replace(config, compression_prompt=prompt) if prompt else config
                made = await self._compact(config, cut=cut, model=model)
                missing = f"no summarizer is named {model!r}" if model and model not in self._summarizers else ""
                return [problem for problem in (missing, made.fell_back if made else "") if problem]
            case _:
                texts = [action for action in actions if isinstance(action, Replace)]
                await self._turn(lambda: self._truncate(texts))
        return []

    def _let_go(self, cut: int) -> None:
        """Archive the oldest messages without a summary; a line says where they are."""
        leaving = self._leaving(cut, self._settings.config)
        if leaving is not None:
            notice = notice_of(leaving.span[1], self._transcript)
            self._evict(leaving, *self._staying(leaving), self._context.head.summary, notice)

    def _truncate(self, actions: Sequence[Replace]) -> None:
        changed = self._changes()
        for position, number, write in actions:
            entry = changed.get(position, self._context.entries[position])
            changed[position] = self._offloading.truncated(entry, number, write)
        self._rewrite(changed)


def _numbers(record: ContextRecord) -> list[int]:
    return [number for first, end in record.ranges for number in range(first, end)]


def _numbers_of(entries: Iterable[Entry]) -> tuple[int, ...]:
    return tuple(entry.number for entry in entries)
