"""`ContextWindow`: the messages of one session that the model sees, kept within the limit of its window."""

import asyncio
import os
import time as clock
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from typing import Any, Final, Self, TypeAlias, TypeVar, Unpack

from buoyline.compression import ContextConfig, Summarizer, Summary
from buoyline.compression.compressor import Plan, awaited_from, legal_cut_before, plan
from buoyline.compression.config import config_of
from buoyline.compression.summarizers.model import SummaryFunction
from buoyline.compression.summary import summary_from
from buoyline.errors import BusyError, ConfigError, ContextOverflowError, NotFoundError, StaleWindowError
from buoyline.lookups import lookup_tools
from buoyline.lookups.tools import Tool
from buoyline.management.managers import Decision, Replace, Situation
from buoyline.management.model import ContextManagement, Management, document_of
from buoyline.messages.dialect import OPENING, Dialect
from buoyline.messages.registry import detect, dialect_named
from buoyline.offloader import StoredResult, ToolOutput
from buoyline.offloader.stub import stub_of
from buoyline.tokens import TextCounter, TokenCounter
from buoyline.tokens.o200k import counter_of
from buoyline.tokens.usage import model_of, usage_of
from buoyline.window.budget import Budget
from buoyline.window.context import OWN, Context, Entry, Head, call_of, notice_of
from buoyline.window.events import ContextCompressed, ContextManaged, Event, HistoryForked, OnEvent, reporting
from buoyline.window.follower import Change, Followed, Given, MessageKey, compared, ranges_of
from buoyline.window.offloading import Offloading
from buoyline.window.records import Leaving, Records, dialect_of, summarized
from buoyline.window.settings import Settings, WindowSettings, require_arguments
from buoyline.window.tools import called, compress_tool, definition
from buoyline.window.turns import Turns
from buoyline.workspace import layout
from buoyline.workspace.state import ContextRecord, Keys, Rendered
from buoyline.workspace.streams import collected, finished, reason_of
from buoyline.workspace.workspace import LocalWorkspace, Workspace

T = TypeVar("T")
Tools: TypeAlias = Iterable[Any] | None

_WORTH_ASKING_TOKENS: Final = 1_000
"""An agent that asks for a compaction gets none below that: the summary would take most of it."""

_POINTER_TOKENS: Final = 200
"""Of the summary beside a provider's own, which says where the messages are."""

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
    docs/internals/window.md and docs/settings.md.
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
            raise ConfigError("workspace", f"{type(workspace).__name__} is not one; give a path or a LocalWorkspace")
        self = cls.__new__(cls)
        self._begin(found, session_id, counter_of(counter), reporting(session_id, on_event))
        self._summarizers, self._given = {**(summarizers or {}), "": summarizer}, settings
        await self._turn(self._load)
        return self

    def _begin(self, workspace: Workspace, session_id: str, counter: TextCounter, report: OnEvent) -> None:
        self.workspace, self.session_id, self._counter, self._report = workspace, session_id, counter, report
        self._summarizers: dict[str, Summarizer | SummaryFunction | None] = {}
        self._given, self._session = WindowSettings(), workspace.session(session_id)
        self._turns, self._at_work = Turns(), ""
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
            time: When it was said, ISO 8601; default: the message's own time, else now.

        Raises:
            MessageError: It is no message; nothing was written.
        """
        return self._added([message], pinned=pinned, offload=offload, time=time)

    def extend(self, messages: Iterable[Any]) -> Coroutine[Any, Any, int]:
        """Add messages, or the items of a response, in one write, all or none; return the index of the first."""
        return self._added([*messages], are_items=True)

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
            system: System prompt of each request from now on; not on disk, unlike that of `open`.
            tools: Definitions of the tools from now on; as *system*.
            at_trigger: False: compact only if the context does not fit the window.

        Raises:
            ContextOverflowError: System prompt, tools and pinned messages alone do not fit.
        """
        with self._busy("prepare"):
            return await self._prepared(management, system, tools, at_trigger=at_trigger)

    async def compress(
        self, *, force: bool = False, focus: str = "", config: ContextConfig | None = None, before: int | None = None
    ) -> Summary | None:
        """Compact now if above the trigger; *force* and *before* do in any case.

        *before* is the index of the first message to keep; a negative one counts from the end of the context.
        """
        with self._busy("compress"):
            settings = config_of(config or self._settings.config)
            if not force and before is None and not self._exceeds(settings):
                return None
            views, cut = self._context.views, None
            if before is not None:
                numbers = [entry.number for entry in self._context.entries]
                at = max(len(numbers) + before, 0) if before < 0 else sum(number < before for number in numbers)
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
                reason = "the provider refused them, and no more can be archived; open the window with its real size"
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
        """Return index and tokens of the messages because of which the context does not fit, the largest first.

        These are all that do not fit next to what always stays; if each does, it is the largest.
        """
        room = self._budget.limit / self._budget.scale - self._budget.fixed - self._context.head.tokens
        sizes = sorted(((entry.number, entry.tokens) for entry in self._context.order), key=lambda one: -one[1])
        is_full = self.tokens > self._budget.limit
        return [one for at, one in enumerate(sizes) if is_full and (at == 0 or one[1] > room)]

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
            return await self._again(lambda: self._turn(lambda: self._follow(messages, key)))

    async def request(
        self, messages: Sequence[Any], *, key: MessageKey | None = None, system: Any = None, tools: Tools = None
    ) -> list[Any]:
        """Follow a framework's list, and return what to send: `follow` and `prepare` in one step."""

        async def requested() -> list[Any]:
            await self._turn(lambda: self._follow(messages, key))
            return await self._prepared(None, system, tools)

        with self._busy("request"):
            return await self._again(requested)

    # Tools for the agent.

    def tools(self, dialect: str | None = None, *, prefix: str = "") -> list[Any]:
        """Return the lookups and ``compress_context`` as tools, or as definitions in the form of a dialect.

        Their results are never offloaded.
        """
        made: list[Tool] = [
            *lookup_tools(self.workspace, self.session_id, counter=self._counter, prefix=prefix),
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
        if self._at_work:
            raise BusyError(self.session_id, self._at_work, name)
        self._at_work = name
        try:
            yield
        finally:
            self._at_work = ""

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
        self._summaries = {record["n"]: record for record in self._session.summaries()}
        self._known, self._listed = dict[int, Keys](), list[Given]()  # of lists that are followed
        self._usage = None
        self._asked: str | None = None
        self._managed_until = 0
        record = state.context or ContextRecord(())
        self._order, entries = state.order, self._records.read(state.live)
        # `unpin` is in the record, `pinned` in the line.
        pins = {*record.pins, *(entry.number for entry in entries if entry.pinned and entry.number >= record.end)}
        entries = [replace(entry, pinned=entry.number in pins) for entry in entries]
        self._context = Context(self._head_of(record), entries, self._counter)

    def _head_of(self, record: ContextRecord) -> Head:
        archived, notice = record.numbers[: record.until], record.notice
        if not archived:
            return Head()
        found = None if record.summary is None else self._summaries.get(record.summary)
        if record.summary is not None and found is None:  # damaged: the transcript stands for it
            notice = notice_of(archived[-1] + 1, self._transcript)
        summary = None if found is None else summary_from(found)
        quotes = self._records.read([number for number in record.pins if number in {*archived}])
        dialect = self._settings.dialect or dialect_of(self._session.read(archived[-1:])[0])
        systems = self._records.read(record.systems)
        return Head(len(archived), systems, quotes, summary, notice, dialect).written(self._counter)

    def _close(self) -> None:
        if self._usage is not None:
            self._session.note_usage(self._usage)
            self._usage = None

    def _added(self, messages: Sequence[Any], *, are_items: bool = False, **how: Any) -> Coroutine[Any, Any, int]:
        def work() -> int:
            split = self._records.grouped if are_items else self._records.split
            return self._append(split(messages), **how)

        return self._ended(self._turns.take(work))

    def _append(
        self,
        messages: Sequence[Any],
        *,
        ids: Sequence[str] | None = None,
        stored: StoredResult | None = None,
        offload: bool = False,
        time: str | None = None,
        **facts: Any,
    ) -> int:
        """Write messages down, with stubs for what is too large, and only then add them."""
        first, pairs = self.added, zip(messages, ids or [""] * len(messages), strict=True)
        entries = [self._records.entry(one, first + at, id=own, **facts) for at, (one, own) in enumerate(pairs)]
        for at, entry in enumerate(entries):
            entry = replace(entry, stored={0: stored.files}) if stored else entry  # noqa: PLW2901 - the same message
            entries[at] = self._decided(entry, entries[:at], offload=offload)
        usages = [self._usage, *[None] * len(entries)]
        lines = [self._records.line(one, time, use) for one, use in zip(entries, usages, strict=False)]
        self._session.append(lines)
        self._usage = None if entries else self._usage
        for entry in (replace(one, keys=line.keys) for one, line in zip(entries, lines, strict=True)):
            self._context.append(entry)
            self._order.append(entry.number)
            self._events += entry.events
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

    def _shown(self, message: Any, *, offload: bool) -> Any:
        entry = self._decided(self._records.entry(message, self.added), (), offload=offload)
        for number, files in entry.stored.items():
            self._session.note_result({"key": files[0].name, "files": [list(file) for file in files]})
            if number != OWN:
                self._offloading.shown[entry.message.results[number].text] = files
        self._events += entry.events
        return entry.native

    # Preparing.

    async def _prepared(
        self, management: Management | None, system: Any, tools: Tools, *, at_trigger: bool = True
    ) -> list[Any]:
        settings = self._settings.beside(system, tools)
        if settings != self._settings:
            # Not on disk: a system prompt with the time in it would write all tools down at each call.
            self._settings = settings
            self._budget.send_beside(settings.system, settings.tools)
        if management is not None:
            self.management = await asyncio.to_thread(document_of, management, self.workspace)
        else:
            self.management = settings.management
        await self._turn(self._settle)
        if cut := self._compacted_until():
            config = replace(settings.config, summary_tokens=_POINTER_TOKENS)
            await self._compact(config, cut=cut, use_model=False)
        if self.management is not None:
            await self._managed(self.management)
        has_trigger = at_trigger and self.management is None
        is_full = self._exceeds(settings.config) if has_trigger else self.tokens > self._budget.limit
        if self._asked is not None or is_full:
            await self._compact(settings.config, self._asked or "")
        if self.tokens > self._budget.limit:
            await self._turn(lambda: self._fit(self._budget.limit))
        return self._hand_out()

    def _compacted_until(self) -> int:
        """Return how many messages a compaction of the provider stands for, with itself; 0 if there is nothing to do.

        OpenAI's ``/responses/compact`` leaves messages of the user before its item; the model reads these.
        """
        if (at := self._context.compaction) < 0:
            return 0
        views = self._context.views
        if not self._context.head.until and all(view.role in ("user", "system") for view in views[:at]):
            return 0
        # Settings directly after a compaction are the provider's, too.
        return next((end for end in range(at + 1, len(views)) if views[end].role != "system"), len(views))

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
        changed = dict[int, Entry]()
        for at, entry in enumerate(self._context.entries if wanted else ()):
            if wanted > 0 and entry.images and not entry.stays:
                changed[at] = self._offloading.without_images(entry)
                wanted -= entry.images
        self._rewrite(changed)

    def _fit(self, most: int) -> None:
        """Shrink messages, the largest first, until the context takes at most *most*; kept results come last."""
        entries, changed, left = self._context.entries, dict[int, Entry](), self._own_tokens
        places = sorted(range(len(entries)), key=lambda at: -entries[at].tokens)
        for is_kept, step, at in ((kept, step, at) for kept in (False, True) for step in range(3) for at in places):
            if self._budget.tokens(left) <= most:
                break
            entry = changed.get(at, entries[at])
            if self._offloading.is_kept(entry, lambda call_id: call_of(entries, call_id)) is is_kept:
                changed[at] = self._offloading.shrunk(entry, step)
                left += changed[at].tokens - entry.tokens
        self._rewrite(changed)

    def _rewrite(self, changed: Mapping[int, Entry]) -> None:
        """Give messages, by position, other forms: one batch of records, and only then memory."""
        entries = [*self._context.entries]
        forms = {at: self._records.form(one) for at, one in changed.items() if one is not entries[at]}
        if not forms:
            return
        self._session.note_forms([*forms.values()])
        for at, form in forms.items():
            self._events += [event for event in changed[at].events if event not in entries[at].events]
            entries[at] = replace(changed[at], keys=form.keys)
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
        began, summarizer = clock.perf_counter(), self._summarizers.get(model, self._summarizers[""])
        write = partial(summarized, summarizer=summarizer, config=config, focus=focus, counter=self._counter)

        def committed(leaving: Leaving, made: Summary) -> tuple[Leaving, Summary | None] | None:
            legal = legal_cut_before(self._context.views, len(leaving.entries))
            if legal == len(leaving.entries):
                return leaving, self._archive(leaving, made)
            # A result came for a call that was about to leave: both stay, and so does what is after them.
            shorter = self._leaving(legal, config, most)
            if shorter is None:
                return None
            return shorter, self._archive(shorter, asyncio.run(write(shorter, use_model=False)))

        leaving = await self._turn(lambda: self._leaving(self._plan(config).cut if cut is None else cut, config, most))
        if leaving is None:
            return None
        made = await write(leaving, use_model=use_model)
        done = await self._turn(lambda: committed(leaving, made))
        left, summary = done or (leaving, None)
        if summary is None:
            return None
        duration_s = clock.perf_counter() - began
        tokens = left.tokens_before, self.tokens
        self._report(ContextCompressed(summary, left.span, *tokens, duration_s, summary.unverified, summary.fell_back))
        return summary

    def _leaving(self, cut: int, config: ContextConfig, most: int | None = None) -> Leaving | None:
        """Write the oldest messages into the transcript; they leave the context with the commit."""
        if cut <= 0:
            return None
        gone, head = self._context.entries[:cut], self._context.head
        tokens = sum(entry.tokens for entry in gone if not entry.stays)
        others = self._own_tokens - tokens - head.summary_tokens
        limits = self._budget.summary_tokens(tokens, head.summary_tokens, others, config, most)
        left = self._records.left(_numbers_of(gone))
        rendered, redact = self._session.archive(left[1]), self._session.redaction.text
        return Leaving(gone, *left, rendered, self._transcript, *limits, self.tokens, head.summary, redact)

    def _archive(self, leaving: Leaving, made: Summary | None) -> Summary | None:
        """Commit that messages left: *made* takes their place, or a line that says where they are; then memory."""
        cut, head, notice = len(leaving.entries), self._context.head, ""
        is_silent = not any(entry.is_spoken for entry in self._context.entries[cut:])
        systems, quotes = head.staying(leaving.entries, words=is_silent and self.management is not None)
        if made is None:
            summary, notice = head.summary, notice_of(leaving.span[1], self._transcript)
        else:
            places = {"ranges": ranges_of(self._order), "until": head.until + cut, "systems": _numbers_of(systems)}
            line = {**made.to_json(), **places, "pins": _numbers_of(quotes)}
            del line["n"]
            summary = made.numbered(self._session.append_summary(line))
            self._summaries[summary.number] = {**line, "n": summary.number}
            kept = enumerate(self._context.entries[cut:], cut)
            self._rewrite({at: self._offloading.without_arguments(entry) for at, entry in kept})
        dialect = self._settings.dialect or leaving.entries[-1].dialect
        head = Head(head.until + cut, systems, quotes, summary, notice, dialect).written(self._counter)
        left = _numbers_of(leaving.entries)
        self._commit(head, self._order, self._context.entries[cut:], left, leaving.rendered)
        self._asked = None
        return summary

    def _commit(
        self,
        head: Head,
        order: Sequence[int],
        entries: Sequence[Entry],
        left: Sequence[int] = (),
        rendered: Rendered | None = None,
    ) -> None:
        """Record the context, and that messages have *left* it for the transcript; only then change memory."""
        record = ContextRecord(
            ranges=ranges_of(order),
            until=head.until,
            systems=_numbers_of(head.systems),
            pins=_numbers_of([*head.quotes, *(entry for entry in entries if entry.pinned)]),
            summary=None if head.summary is None else head.summary.number,
            notice=head.notice,
        )
        if rendered is not None:
            record = replace(record, transcript=rendered.transcript, left=ranges_of(left), lines=rendered.lines)
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
        self._commit(replace(head, quotes=quotes).written(self._counter), self._order, kept)

    # Following.

    async def _again(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do it; if another window has written, open again and do it once more: the list is the truth."""
        try:
            return await work()
        except StaleWindowError:
            self._given |= WindowSettings(system=self._settings.system, tools=self._settings.tools)
            await self._turn(self._load)
            return await work()

    def _follow(self, messages: Sequence[Any], key: MessageKey | None) -> Followed:
        known = self._known_messages()
        messages = self._as_messages(messages, {found for one in known.values() for found in one.keys})
        self._listed = self._records.given(messages, key, self._listed)
        change = compared(self._listed, self._context, self._order, known, self._summaries)
        if change.new and change.new[0].message.is_compaction:  # what it stands for was taken out, and is archived
            change = change._replace(fork=None)
        if change.order is not None:
            self._take(change, change.order)
        changed = dict[int, Entry]()
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

    def _known_messages(self) -> dict[int, Keys]:
        """Return what identifies each message of the session in all its forms."""
        new = self._session.keys(next(reversed(self._known), -1) + 1)
        self._known |= {one.number: one for one in new}
        forms = ((self._known.get(number), keys) for number, keys in self._session.state.form_keys.items())
        return self._known | {one.number: one._replace(keys=one.keys + keys) for one, keys in forms if one}

    def _as_messages(self, listed: Sequence[Any], known_keys: Collection[str]) -> Sequence[Any]:
        """Return the messages of a list, with what its owner has left out after a compaction, and without ours."""
        messages = self._records.grouped(listed, known_keys)
        made, parts = self._context.beginning
        if made != parts and [*messages[: len(made)]] == made:
            messages = [*parts, *messages[len(made) :]]
        elif messages:
            form = dialect_named(self._settings.dialect) if self._settings.dialect else detect(messages[0])
            is_opening = form.alternates_roles and form.view(messages[0]).text == OPENING
            messages = messages[1:] if is_opening else messages
        first = self._records.given(messages[:1], None, self._listed)
        if any(one.message.is_compaction and one.key not in known_keys for one in first):
            messages = [*self._context.head.natives, *(entry.native for entry in self._context.order), *messages]
        return messages

    def _take(self, change: Change, order: Sequence[int]) -> None:
        """Show another selection of the session's messages."""
        head = self._context.head
        if change.record is not None:
            head = self._head_of(change.record)
        elif not change.keeps_head:
            head = Head()
        elif len(change.systems) < len(head.systems):
            systems = [one for one in head.systems if one.number in change.systems]
            head = replace(head, systems=systems).written(self._counter)
        held = {entry.number: entry for entry in self._context.entries}
        missing = [number for number in order[change.until :] if number not in held]
        held |= {entry.number: entry for entry in self._records.read(missing)}
        # What the owner has taken out leaves as in a compaction; what lies after a fork does not.
        end, staying = None if change.fork is None else self._order.index(change.fork), set(order)
        live = self._order[self._context.head.until : end]
        left = [number for number in live if number not in staying and not held[number].ours]
        rendered = self._session.archive(self._records.left(left)[1]) if left else None
        self._commit(head, order, [held[number] for number in order[change.until :]], left, rendered)

    # Documents.

    async def _managed(self, document: ContextManagement) -> None:
        """Let the managers of a document decide, and do what they want; ``post_tool`` only after new results."""
        new = [entry for entry in self._context.entries if entry.number >= self._managed_until]
        for hook, entries in document.hooks.items():
            if hook == "post_tool" and not any(entry.message.results for entry in new):
                continue
            lines = list[str]()
            for number, (manager, activation) in enumerate(entries):
                situation = await self._turn(self._situation)
                if unmet := activation.unmet(situation):
                    said = f"not run: {unmet}"
                else:
                    decision = manager.decide(situation)
                    said = "; ".join([decision.words, *await self._act(decision)])
                lines.append(f"{hook}[{number}] {manager.type_name}: {said}")
            self._report(ContextManaged(hook, tuple(lines)))
        self._managed_until = self.added

    def _situation(self) -> Situation:
        context = self._context
        natives = [entry.native for entry in context.entries]
        return Situation(context.views, natives, self.tokens, self._settings.size, self._counter)

    async def _act(self, decision: Decision) -> list[str]:
        """Do what a manager wants; return what did not go as the document says."""
        if decision.writer is None:
            await self._turn(lambda: self._shorten(decision.texts) if decision.texts else self._let_go(decision.cut))
            return []
        (model, prompt), config = decision.writer, self._settings.config
        config = replace(config, compression_prompt=prompt) if prompt else config
        made = await self._compact(config, cut=decision.cut, model=model)
        missing = f"no summarizer is named {model!r}" if model and model not in self._summarizers else ""
        return [problem for problem in (missing, made.fell_back if made else "") if problem]

    def _let_go(self, cut: int) -> None:
        """Archive the oldest messages without a summary; a line says where they are."""
        leaving = self._leaving(cut, self._settings.config)
        if leaving is not None:
            self._archive(leaving, None)

    def _shorten(self, actions: Sequence[Replace]) -> None:
        changed = dict[int, Entry]()
        for position, number, write in actions:
            entry = changed.get(position, self._context.entries[position])
            changed[position] = self._offloading.truncated(entry, number, write)
        self._rewrite(changed)


def _numbers_of(entries: Iterable[Entry]) -> tuple[int, ...]:
    return tuple(entry.number for entry in entries)
