"""`ContextWindow`: the messages a model sees, kept under the limit of its window."""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar, Unpack

from buoyline.compression.config import ContextConfig, config_of, require_focus
from buoyline.errors import BusyError, NotFoundError
from buoyline.management import ContextManagement, ManagementReport
from buoyline.management.settings import explained
from buoyline.messages.registry import dialect_named
from buoyline.messages.times import now
from buoyline.offloader import ModelCall, Offloader, StoredResult, ToolOutput, WindowState
from buoyline.offloader.protocol import abilities_of
from buoyline.tokens.messages import count_result
from buoyline.tokens.o200k import counter_of
from buoyline.tokens.usage import model_of, usage_of
from buoyline.window.budget import Request, TokenBudget
from buoyline.window.context import (
    Context,
    ContextLog,
    check_archived,
    load_summaries,
    restored,
    stubs_in,
)
from buoyline.window.engine import Engine
from buoyline.window.events import OnEvent, OverflowRecovered, WindowResumed, reporting
from buoyline.window.follower import Followed, ListFollower, MessageKey
from buoyline.window.offloading import HeldOutput, ResultOffloader
from buoyline.window.plan import OffloadPlanner
from buoyline.window.settings import (
    Management,
    WindowOptions,
    config_from_json,
    document_of,
    output_room,
    require_index,
    require_known,
    require_methods,
    settings_to_json,
    size_of,
    tools_of,
)
from buoyline.window.state import Entry, State, entry_beside, view_of
from buoyline.window.tasks import completed

if TYPE_CHECKING:
    from buoyline.compression import Summarizer, Summary
    from buoyline.compression.plan import Plan
    from buoyline.compression.summarizers.callables import SummaryFunction
    from buoyline.workspace import LocalWorkspace

_WORTH_ASKING_TOKENS = 1_000
"""An agent that asks for a compaction gets none below that: the summary would take most of it."""

_STUBS = ("[Tool result offloaded: ", "[Offloaded: ")
"""How stubs begin, Strands' among them."""

P = ParamSpec("P")
T = TypeVar("T")


def _alone(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Refuse a call while another one is at work: two at once would write, and archive, the same messages twice."""

    @wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        context: Context = self._context
        if context.at_work:
            raise BusyError(self.session_id, context.at_work, method.__name__)
        context.at_work = method.__name__
        try:
            return await method(self, *args, **kwargs)
        finally:
            context.at_work = ""

    return call


class ContextWindow:
    """The messages of one session that a model sees on its next call.

    Example:
        workspace = LocalWorkspace("./workspace")
        window = ContextWindow(session_id="s1", offloader=workspace, size=8_000)
        await window.add({"role": "user", "content": "Which tests fail?"})
        messages = await window.prepare()  # for the next model call

    Everyday arguments:
        session_id: Name of the session in the workspace.
        offloader: Stores what is offloaded and archived; None loses it.
        model: Name of the model, for the default of *size*.
        size: Tokens of the window. Default: 128,000 without a model.
        system: System prompt, sent beside the messages; only counted.
        tools: Definitions of the tools; only counted.
        config: Limits. Default: `ContextConfig()`.
        summarizer: Writes summaries. Default: without a model.
        on_event: Called with each `Event` once it is on disk.

    Advanced arguments are those of `WindowOptions`.

    `prepare` replaces large results with stubs and the oldest messages with
    a summary; all others are the objects that were added. A window does one
    thing at a time: a call during another one raises `BusyError`; only `add`
    may come at any time. If a call raises, the context is as it was:
    `StorageError` if the file system refused, `StaleWindowError` if another
    window took the session over, or an error of your own functions. See
    docs/window.md and docs/settings.md.
    """

    def __init__(
        self,
        *,
        session_id: str,
        offloader: "Offloader | None" = None,
        model: str | None = None,
        size: int | None = None,
        system: Any = "",
        tools: "Sequence[Any] | None" = (),
        config: "ContextConfig | None" = None,
        summarizer: "Summarizer | SummaryFunction | None" = None,
        on_event: "OnEvent | None" = None,
        **advanced: "Unpack[WindowOptions]",
    ) -> None:
        """Begin a new session. Raises `ConfigError`, `NotFoundError`."""
        require_known(advanced)
        self.size = size_of(size, model)
        require_methods("offloader", offloader, "offload_context", "offload_tool_result")
        dialect, management = advanced.get("dialect"), advanced.get("management")
        require_methods("summarizers", advanced.get("summarizers"), "items")
        self.session_id = session_id
        counter = counter_of(advanced.get("counter"))
        abilities = self._abilities = abilities_of(offloader)
        self.config = config_of(config)
        self.max_output_tokens = output_room(
            advanced.get("max_output_tokens"), model, self.size, self.config.largest_trigger_ratio
        )
        self._offloader = offloader
        self._dialect = None if dialect is None else dialect_named(dialect).name
        results = ResultOffloader(offloader, abilities, session_id, counter, has_listener=on_event is not None)
        planner = OffloadPlanner(
            session_id,
            self.config,
            self.size,
            counter,
            results.stubs,
            abilities.rereads,
            can_store=offloader is not None,
        )
        budget = TokenBudget(self.size, self.max_output_tokens, counter, system, tools_of(tools))
        log = ContextLog(abilities.windows, session_id)
        if abilities.windows is not None and abilities.results is not None:  # recorded with the messages, not before
            results.waiting = log.stubs
        self._context = Context(log, budget, planner, reporting(session_id, on_event))
        self._engine = Engine(
            self._context,
            results,
            self.config,
            summarizer=summarizer,
            summarizers=advanced.get("summarizers"),
            dialect=self._dialect,
        )
        self.management = None if management is None else document_of(management, offloader)
        self._engine.compaction.preserves_words = self.management is not None
        self._follower = ListFollower(self._engine.compaction, self._dialect)
        self._is_open = False
        self._owned: LocalWorkspace | None = None
        self._unread_until = 0
        self._handed_out = HandedOut()

    @classmethod
    async def open(cls, workspace: "Offloader | str | os.PathLike[str]", session_id: str, **settings: Any) -> Self:
        """Continue the session *session_id* of a workspace, or begin it if there is none.

        *workspace* may be its directory; `close` closes it then. *settings* are those of `ContextWindow`; what is left
        out is as it was. Raises `ConfigError`, `CorruptError`.
        """
        from buoyline.workspace import LocalWorkspace  # noqa: PLC0415 - a window without a workspace needs none

        owned: LocalWorkspace | None = None
        if isinstance(workspace, (str, os.PathLike)):
            workspace = owned = LocalWorkspace(os.fspath(workspace))
        resumed = {name: value for name, value in settings.items() if name != "model"}
        if settings.get("model") and settings.get("size") is None:
            resumed["size"] = size_of(None, settings["model"])
        try:
            window = await cls.resume(workspace, session_id, **resumed)
        except NotFoundError:
            window = cls(session_id=session_id, offloader=workspace, **settings)
        window._owned = owned
        return window

    @classmethod
    async def resume(
        cls,
        offloader: "Offloader",
        session_id: str,
        *,
        size: int | None = None,
        config: "ContextConfig | None" = None,
        system: Any = None,
        tools: "Sequence[Any] | None" = None,
        summarizer: "Summarizer | SummaryFunction | None" = None,
        on_event: "OnEvent | None" = None,
        **advanced: "Unpack[WindowOptions]",
    ) -> Self:
        """Continue a session where another process stopped, even if killed.

        Pass functions again; all else is as it was. Raises `NotFoundError`, `CorruptError`.
        """
        require_known(advanced)
        require_methods("offloader", offloader, "offload_context", "offload_tool_result")
        abilities = abilities_of(offloader)
        if abilities.windows is None:
            raise NotFoundError("window in session", session_id, "only a workspace keeps what a window needs")
        state = await abilities.windows.load_window(session_id)
        kept, dialect = state.settings, advanced.get("dialect")
        max_output_tokens, management = advanced.get("max_output_tokens"), advanced.get("management")
        options: WindowOptions = {
            **advanced,
            "max_output_tokens": kept.get("max_output_tokens", 0) if max_output_tokens is None else max_output_tokens,
            "management": kept.get("management") if management is None else management,
            "dialect": kept.get("dialect") if dialect is None else dialect,
        }
        window = cls(
            session_id=session_id,
            offloader=offloader,
            size=kept["size"] if size is None else size,
            config=config_from_json(kept["config"]) if config is None else config,
            system=kept["system"] if system is None else system,
            tools=kept["tools"] if tools is None else tools,
            summarizer=summarizer,
            on_event=on_event,
            **options,
        )
        await abilities.windows.claim_window(session_id, writer=window._context.log.writer)
        await window._restore(await abilities.windows.load_window(session_id))
        window._context.tell(
            WindowResumed(session_id, window.added, window._context.state.archived_until, window.tokens)
        )
        return window

    def __repr__(self) -> str:
        """Return session, size and offloader."""
        count = len(self._context.whole.leading) + len(self._context.whole.messages)
        held = f"messages={count:,}, tokens={self.tokens:,} of {self.size:,}"
        return f"<ContextWindow {self.session_id!r}: {held}, offloader={self._offloader!r}>"

    @property
    def messages(self) -> list[Any]:
        """The native messages in the context, with those just added."""
        return self._flat(self._handed_out.of(self._context.whole))

    @property
    def summary(self) -> "Summary | None":
        """The summary in the context."""
        found = self._context.whole.summary
        return None if found is None else found.summary

    @property
    def tokens(self) -> int:
        """Tokens of the next request: system, tools, summary, messages."""
        return self._context.tokens

    @property
    def turn_tokens(self) -> int:
        """Tokens of all tool results since the model spoke last."""
        counter = self._context.budget.counter
        return sum(count_result(result, counter) for entry in self._turn() for result in entry.message.results)

    @property
    def added(self) -> int:
        """How many messages the session has had; the next one's index."""
        return self._context.inbox.end

    async def add(self, message: Any, *, pinned: bool = False, offload: bool = False) -> None:
        """Add a message; it is not copied. Raises `MessageError`.

        Keep it when it is archived (*pinned*), or offload its large content.
        """
        self._follower.note(await self._added(message, pinned=pinned, offload=offload))

    async def _added(self, message: Any, *, pinned: bool, offload: bool = False) -> Entry:
        added = now()
        entry = await entry_beside(
            message,
            self.added,
            self._context.budget.counter,
            dialect=self._dialect,
            pinned=pinned,
            by_hand=offload,
        )
        await self._know_stubs(entry)
        return self._context.add(replace(entry, added=added))

    async def _know_stubs(self, entry: Entry) -> None:
        """Note the stubs that another part of a framework has made: summaries cite the lines that they show."""
        texts = [text for text in entry.message.result_texts if text.startswith(_STUBS)]
        if texts and self._abilities.results is not None:
            with suppress(NotFoundError):  # nothing was ever stored in the session
                stubs = await self._abilities.results.load_stubs(self.session_id, texts)
                self._engine.results.stubs.update(stubs)

    @_alone
    async def shown(self, message: Any, *, offload: bool = False) -> Any:
        """Return a message with stubs as `prepare` would; it is not added.

        *offload* does so even below the limit, as in `add`.
        """
        context, results = self._context, self._engine.results
        entry = await entry_beside(message, self.added, context.budget.counter, dialect=self._dialect)
        await self._open()
        if offload:
            return (await results.offload_by_hand(entry, self.config.preview_tokens, context.outbox)).native
        choices = context.planner.choose([entry]).get(entry.index, {})
        return (await results.replace(entry, choices, context.outbox)).native

    @_alone
    async def follow(self, messages: "Sequence[Any]", *, key: "MessageKey | None" = None) -> "Followed":
        """Take over the list that a framework owns, before each `prepare`.

        Adds what is new; stores what came behind a change. *key* returns the id
        of a message. See docs/following.md.
        """
        if self._dialect is not None:
            known = self._follower.natives or [entry.native for entry in self._context.whole.messages]
            messages = dialect_named(self._dialect).grouped(messages, known.__contains__)
        given = self._handed_out.apart(messages, self._context.whole)
        return await self._follower.follow(given, key, lambda message, pinned: self._added(message, pinned=pinned))

    async def add_tool_output(
        self,
        call_id: str,
        output: "ToolOutput",
        *,
        name: str = "",
        max_bytes: int | None = None,
        keep_partial: bool = False,
    ) -> None:
        """Add a tool's output while it comes; see docs/results.md."""
        whole = self._context.whole
        # If the call is archived, other messages say which form it had. Mere text is detected as OpenAI's.
        found = {entry.dialect for entry in (*whole.leading, *whole.messages)} - {"openai"}
        dialect, call = whole.messages.called(call_id, name, self._dialect or min(found, default="openai"))
        context, planner, results = self._context, self._context.planner, self._engine.results
        writer = results.writer(call_id, keep_partial=keep_partial)
        held = HeldOutput(call_id, writer, context.budget.counter, planner.held_limit(call))

        async def add() -> None:
            text = await held.end()
            if isinstance(text, StoredResult):
                await self._open()
                max_tokens = planner.stub_tokens(call, self._turn())
                text = await results.stub_of(self.added, call, text, max_tokens, context.outbox)
            await self.add(dialect_named(dialect).tool_result_message(call_id, text, name))
            context.emit()

        await held.fill(output, add, max_bytes=max_bytes, keep_partial=keep_partial)

    @_alone
    async def prepare(self, management: "Management | None" = None, *, at_trigger: bool = True) -> "list[Any]":
        """Return the messages for the next model call.

        Offloads large results, writes new messages down, and compacts above the
        trigger, or without *at_trigger* only if the context does not fit.
        Raises `ContextOverflowError` if pinned messages do not fit.
        """
        document = self.management
        if management is not None:
            document = await asyncio.to_thread(document_of, management, self._offloader)
        await self._settle(document)
        if document is None:
            await self._engine.make_room(at_trigger=at_trigger)
        else:
            await self._engine.manage(document)
        if self._abilities.turns is not None:
            self._abilities.turns.next_turn()
        return self._hand_out()

    def note_usage(self, response: Any) -> bool:
        """Take the provider's count of the last request; see docs/window.md."""
        usage = usage_of(response)
        if usage is None or not self._context.budget.usage.note(usage):
            return False
        self._context.log.note_usage(usage, model_of(response))
        return True

    @_alone
    async def save(self) -> None:
        """Write added messages and usage down, if no `prepare` follows."""
        await self._settle(self.management)
        if self._context.log.finished_calls:
            await self._context.log.check(self._context.state)

    async def close(self) -> None:
        """Write added messages down, and close a workspace that `open` opened."""
        await self.save()
        if self._owned is not None:
            await self._owned.close()

    async def __aenter__(self) -> Self:
        """Return the window."""
        return self

    async def __aexit__(self, *raised: object) -> None:
        """Close it."""
        await self.close()

    def send_beside(self, system: Any, tools: "Sequence[Any]") -> None:
        """Count these from now on as the system prompt and tools of each request."""
        self._context.budget.send_beside(system, list(tools))

    @_alone
    async def unpin(self, *indexes: int) -> None:
        """Unpin messages, by session index. Raises `NotFoundError`."""
        await self._engine.compaction.unpin(indexes)

    def request_compression(self, focus: str = "") -> "Plan | None":
        """Let the next `prepare` compact; None if that saves too little."""
        require_focus(focus)
        decided = self._engine.compaction.planned(self.config)
        if decided.archived_tokens < _WORTH_ASKING_TOKENS:
            return None
        self._engine.asked = (focus, self._engine.compaction.first)
        return decided

    @_alone
    async def compress(
        self,
        *,
        force: bool = False,
        config: "ContextConfig | None" = None,
        focus: str | None = None,
        before: int | None = None,
    ) -> "Summary | None":
        """Compact now if above the trigger; *force* and *before* do in any case."""
        settings, context = self.config if config is None else config_of(config), self._context
        require_focus(focus)
        require_index(before)
        await self._settle(self.management)
        is_asked = force or before is not None
        if not is_asked and not context.budget.exceeds(context.whole, settings):
            return None
        compaction = self._engine.compaction
        cut = None if before is None else compaction.cut_before(before)
        return await compaction.compact(settings, focus or "", cut=cut)

    @_alone
    async def recover_from_overflow(self, error: BaseException | None = None) -> "list[Any]":
        """Shrink the context by a tenth after the provider refused it."""
        await self._settle(self.management)
        # Progress is measured by one count from beginning to end; a compaction in between would change to ours.
        self._context.budget.usage.drop()
        began, tokens = time.perf_counter(), self.tokens
        await self._engine.recover(tokens, self.management, error)
        self._context.tell(OverflowRecovered(tokens, self.tokens, time.perf_counter() - began))
        return self._hand_out()

    @property
    def report(self) -> "ManagementReport":
        """What the managers of the document did in the last call."""
        return self._engine.hooks.report

    def explain(self) -> list[str]:
        """Return in words the document and `report`."""
        said = explained(self.management) if self.management is not None else ["no document: the configuration holds"]
        return [*said, *self.report.in_words()]

    def exceeding(self) -> list[tuple[int, int]]:
        """Return index and tokens of messages that do not fit the window."""
        return self._context.budget.exceeding(self._context.whole)

    def _turn(self) -> Sequence[Entry]:
        """Return the messages since the model spoke last."""
        messages = self._context.whole.messages
        return messages[messages.turn_at(len(messages)) :]

    def _hand_out(self) -> list[Any]:
        state, budget = self._context.state, self._context.budget
        end, tokens = state.messages.end, budget.tokens_by_kind(state)
        budget.usage.hand_out(Request(sum(tokens.values()), end))
        self._context.log.note_call(ModelCall(now(), end, tokens))
        return self._flat(self._handed_out.of(state))

    def _flat(self, natives: list[Any]) -> list[Any]:
        """Return the items of *natives* if requests of their dialect are flat: those of the Responses API are."""
        if self._dialect is None:
            return natives
        return [item for native in natives for item in dialect_named(self._dialect).handed_out(native)]

    async def _open(self) -> None:
        if self._is_open:
            return
        await self._context.log.start(
            settings_to_json(self.config, self._context.budget, self._dialect, self.management)
        )
        self._is_open = True

    async def _settle(self, document: ContextManagement | None) -> None:
        """Decide the form of the added messages, and write them down."""
        budget, inbox = self._context.budget, self._context.inbox
        if budget.least_tokens(self._context.state) + inbox.staying_tokens > budget.limit:
            budget.check(self._context.whole)
        if not self._is_open:
            await completed(self._open())
        await self._know_calls(self._context.whole, len(inbox))
        await self._engine.settle(document)

    async def _know_calls(self, state: State, count: int | None = None) -> None:
        """Note the archived calls of another process if a result of *state* has no call in it.

        With *count*, only so many messages are new.
        """
        archive, end, messages = self._abilities.archive, self._unread_until, state.messages
        if archive is None or not end:
            return
        new = state.messages[len(messages) - count :] if count is not None else [*state.leading, *messages]
        ids = {result.call_id for entry in new for result in entry.message.results}
        if state.results_without_call(ids, count):
            archived = await archive.load_messages(self.session_id, 0, end)
            self._context.planner.note_archived(view_of(dialect, value) for dialect, value in archived)
            self._unread_until = 0

    async def _restore(self, found: WindowState) -> None:
        context, results = self._context, self._engine.results
        abilities, session_id = self._abilities, self.session_id
        summaries = await load_summaries(abilities, session_id)
        state = restored(found, summaries, context.budget.counter, self._dialect)
        self._is_open = True
        await check_archived(state, abilities, session_id)
        results.stubs.update(await stubs_in(state, abilities, session_id))
        self._unread_until = state.messages.first
        context.planner.note_archived(entry.message for entry in state.leading)
        await self._know_calls(state)
        results.stubs.update(context.planner.recall(state.messages))
        context.begin(context.planner.with_late_results(state))
        await self._engine.compaction.finish_of(summaries)


_MAX_HEADS: Final = 8
"""Of those that were handed out: a list that somebody holds begins with one of the newest."""


class HandedOut:
    """Hands out the messages of a context: the same objects, but for neighbors that a provider wants as one."""

    def __init__(self) -> None:
        """Begin without any."""
        # Messages at the beginning of a context, each with the form in which they were handed out.
        self._heads: list[tuple[list[Any], list[Any]]] = []

    def of(self, state: State) -> list[Any]:
        """Return the context as it is handed out."""
        leading = state.leading
        natives = state.messages.shown
        if leading:
            natives[:0] = [entry.shown for entry in leading]
        if not natives or not state.messages.first:
            return natives
        # A compaction may have put messages of one role next to each other. Mere text is detected as OpenAI's.
        end = len(leading) + 1
        found = {entry.dialect for entry in (*leading, *state.messages[:1])}
        dialects = found if len(found) == 1 else found - {"openai"}
        head = self._in_turns(natives[:end], dialects.pop()) if len(dialects) == 1 else natives[:end]
        return [*head, *natives[end:]]

    def apart(self, messages: Sequence[Any], state: State) -> Sequence[Any]:
        """Return a list that holds what was handed out as the messages that it was made from."""
        self.of(state)  # another process may have handed it out
        for natives, made in reversed(self._heads):
            if made and list(messages[: len(made)]) == made:
                return [*natives, *messages[len(made) :]]
        return messages

    def _in_turns(self, head: list[Any], dialect: str) -> list[Any]:
        found = (shown for given, shown in reversed(self._heads) if _are_same(given, head))
        known: list[Any] | None = next(found, None)
        if known is not None:
            return known
        made = [*dialect_named(dialect).in_turns(head)]
        if not _are_same(made, head):
            self._heads = [*self._heads[1 - _MAX_HEADS :], (head, made)]
        return made


def _are_same(natives: Sequence[Any], given: Sequence[Any]) -> bool:
    return len(natives) == len(given) and all(one is other for one, other in zip(natives, given, strict=True))
