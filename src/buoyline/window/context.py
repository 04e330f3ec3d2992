"""The context of a session: the one way to change it, its log on disk, and how another process restores it."""

import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, NamedTuple

from buoyline.compression import Summary
from buoyline.compression.summary import summary_from
from buoyline.errors import CorruptError, NotFoundError, StaleWindowError
from buoyline.messages.registry import dialect_named
from buoyline.offloader import Abilities, ModelCall, StoredResult, WindowLog, WindowState
from buoyline.tokens import TextCounter
from buoyline.tokens.usage import Usage
from buoyline.window.budget import TokenBudget
from buoyline.window.events import OnEvent, ResultOffloaded
from buoyline.window.plan import OffloadPlanner
from buoyline.window.state import Entry, Messages, State, SummaryEntry, entry_of, view_of
from buoyline.window.tasks import completed

PIN: Final = "pin"
SUMMARY: Final = "summary"
NOTICE: Final = "notice"
"""Kind of a reference line in the prefix of a window."""
AGAIN: Final = "again"
"""Kind of an archived message that is reinserted for now; its session index follows, after a colon."""


class Extend(NamedTuple):
    """Appends *new* messages to those on disk; without any, it only checks that the window is still ours."""

    new: Sequence[Entry]
    pins: frozenset[int]


class Replace(NamedTuple):
    """Writes the whole context."""

    state: State


class Change(NamedTuple):
    """A change of a context into *state*.

    Attributes:
        write: Written before; None if the window's file stays as it is.
        events: Emitted afterwards.
        is_compaction: Messages were evicted, so the provider's count of the context no longer holds.
        discarded: How many of the added messages are discarded; None for those that *state* has.
    """

    state: State
    write: Extend | Replace | None = None
    events: Sequence[ResultOffloaded] = ()
    is_compaction: bool = False
    discarded: int | None = None


class ContextLog:
    """Writes a context to a workspace's log of windows; does nothing if there is no log.

    Attributes:
        stubs: Stubs with their results that the next change records.
        calls: Model calls that are not recorded yet. The newest waits for its usage, or for the next one.
    """

    def __init__(self, log: WindowLog | None, session_id: str) -> None:
        """Write to *log* as a writer of its own."""
        self.log = log
        self.session_id = session_id
        self._writer = uuid.uuid4().hex
        self._process = os.getpid()
        self.stubs: dict[str, StoredResult] = {}
        self.calls: list[ModelCall] = []

    @property
    def writer(self) -> str:
        """Identifies this window in this process: the log refuses others once one has taken over.

        In a forked process it is another one, which has taken over nothing.
        """
        if self._process != os.getpid():
            self._writer, self._process = uuid.uuid4().hex, os.getpid()
        return self._writer

    def note_call(self, call: ModelCall) -> None:
        """Let the next change record a model call."""
        if self.log is not None:
            self.calls.append(call)

    def note_usage(self, usage: Usage, model: str) -> None:
        """Add what the provider said of the newest call, unless that is recorded already."""
        if self.calls:
            self.calls[-1] = replace(self.calls[-1], usage=asdict(usage), model=model)

    @property
    def finished_calls(self) -> list[ModelCall]:
        """The calls that the next change records."""
        return self.calls[:] if self.calls and self.calls[-1].usage else self.calls[:-1]

    async def start(self, settings: Mapping[str, Any]) -> None:
        """Begin a window without messages; may be repeated.

        Raises:
            SessionExistsError: The session has messages or a window already.
        """
        if self.log is not None:
            await self.log.start_window(self.session_id, settings, writer=self.writer)

    async def check(self, state: State) -> None:
        """Check that no other window has taken over, before an operation that does not write the window.

        Raises:
            StaleWindowError: Another window has taken the session over.
        """
        await self.apply(Extend((), state.pins))

    async def apply(self, write: Extend | Replace | None) -> None:
        """Write a change.

        Raises:
            MessageError: A message was changed after it was added, and another process could not read it.
            StaleWindowError: See `check`.
        """
        if self.log is None or write is None:
            return
        entries = write.new if isinstance(write, Extend) else (*write.state.leading, *write.state.messages)
        natives, times, dialects = list[Any](), list[str](), list[str]()
        for entry in entries:
            entry.check()
            natives.append(entry.native)
            times.append(entry.added)
            dialects.append(entry.dialect)
        calls, stubs = self.finished_calls, list(self.stubs.items())
        if isinstance(write, Extend):
            await self.log.extend_window(
                self.session_id,
                natives,
                sorted(write.pins),
                times=times,
                dialects=dialects,
                stubs=stubs,
                calls=calls,
                writer=self.writer,
            )
        else:
            await self.log.replace_window(
                self.session_id,
                natives,
                [kind_of(entry) for entry in write.state.leading],
                write.state.messages.first,
                sorted(write.state.pins),
                times=times,
                dialects=dialects,
                stubs=stubs,
                calls=calls,
                writer=self.writer,
            )
        del self.calls[: len(calls)]
        for stub, _ in stubs:
            self.stubs.pop(stub, None)


def kind_of(entry: Entry) -> str:
    """Return the kind of an entry of the prefix, as a window's file has it."""
    if entry.pinned:
        return PIN
    if entry.message.role == "system":
        return "system"
    if entry.index >= 0:
        return f"{AGAIN}:{entry.index}"
    return NOTICE if entry.is_notice else SUMMARY


class Context:
    """The context of a session: its state, which only `commit` changes, and the messages that wait to enter it.

    A change is built from the state of now, written, and only then made. If it fails, the state is as it was, and the
    files that were stored for it are orphans, which is legal.

    Attributes:
        state: The context as it is on disk.
        inbox: Messages that were added since.
        outbox: Events to emit; the caller of `commit` emits them afterwards.
        at_work: The method of the window that has not returned yet; empty if there is none.
    """

    def __init__(self, log: ContextLog, budget: TokenBudget, planner: OffloadPlanner, tell: OnEvent) -> None:
        """Begin with an empty context."""
        self.state = State()
        self.inbox = Messages()
        self.outbox: list[ResultOffloaded] = []
        self.log = log
        self.budget = budget
        self.planner = planner
        self.tell = tell
        self.at_work = ""
        self._whole: tuple[State, Messages, State] | None = None

    @property
    def whole(self) -> State:
        """The context with the messages that were added since it was written down."""
        known = self._whole
        if known is None or known[0] is not self.state or known[1] is not self.inbox:
            known = self._whole = (self.state, self.inbox, self.with_inbox(self.state))
        return known[2]

    @property
    def tokens(self) -> int:
        """Tokens of the whole context, by the provider's count as far as that is known."""
        return self.budget.tokens(self.whole)

    def with_inbox(self, state: State) -> State:
        """Return *state* with those added messages that are not in it."""
        return state.extended(self.inbox[state.messages.end - self.inbox.first :])

    def add(self, entry: Entry) -> Entry:
        """Let *entry* wait as the last of the added messages, whichever were added since it was made; return it."""
        entry = replace(entry, index=self.inbox.end)
        self.inbox = self.inbox.extended([entry])
        return entry

    def begin(self, state: State) -> None:
        """Begin with the state that another process has written."""
        self.state, self.inbox = state, Messages(first=state.messages.end)

    def attempt(self, end: int) -> None:
        """Note an attempt to archive the messages before the session index *end*: they keep their form."""
        self.state = replace(self.state, attempts=self.state.attempts | {end})

    async def commit(self, build: Callable[[State], Change | None]) -> bool:
        """Make a change: on disk first, then in memory; return whether it was made.

        *build* returns the change of the context of now, or None if it no longer applies. It calls no user code.

        Raises:
            StaleWindowError: Another window has taken the session over.
            StorageError: The file system refused. The context is as it was.
        """
        return await completed(self._commit(build))

    async def _commit(self, build: Callable[[State], Change | None]) -> bool:
        change = build(self.state)
        if change is None:
            return False
        await self.log.apply(change.write)
        before, end = self.state, change.state.messages.end
        self.state = change.state
        count = end - self.inbox.first if change.discarded is None else change.discarded
        self.inbox = self.inbox.without(count).renumbered(end)
        self.outbox += change.events
        if change.write is not None:
            self._follow(before, change.write)
        if change.is_compaction:
            self.budget.usage.drop()
        return True

    def _follow(self, before: State, write: Extend | Replace) -> None:
        """Note in the planner what was written, and hand results without their calls out as words."""
        planner, messages = self.planner, self.state.messages
        if isinstance(write, Replace):
            known = (*before.prefix, *before.reinserted, *before.messages)
            planner.note_archived(entry.message for entry in known if entry.index < messages.first)
            self.state = planner.with_late_results(self.state)
            planner.restart(messages)
        else:
            if write.new:
                self.state = planner.with_late_results(self.state, len(write.new))
            planner.follow(write.new)

    def emit(self) -> None:
        """Emit the events; if the listener raises, the next call emits the others."""
        while self.outbox:
            self.tell(self.outbox.pop(0))


@dataclass(slots=True)
class StateDraft:
    """A context in preparation; it is dropped if anything fails before it is committed.

    Attributes:
        base: The context that it was made from.
        messages: The messages afterwards; those that *base* does not have are new.
        events: Emitted once it is committed.
    """

    base: State
    messages: Messages
    pins: frozenset[int]
    events: list[ResultOffloaded] = field(default_factory=list[ResultOffloaded])
    _rewrites: bool = False

    @classmethod
    def of(cls, base: State, new: Sequence[Entry] = ()) -> "StateDraft":
        """Return a draft of *base* with *new* messages at its end."""
        state = base.extended(new)
        return cls(base, state.messages, state.pins)

    @property
    def state(self) -> State:
        """The context afterwards."""
        return replace(self.base, messages=self.messages, pins=self.pins)

    @property
    def new(self) -> Sequence[Entry]:
        """The messages that the base does not have."""
        return self.messages[len(self.base.messages) :]

    @property
    def is_changed(self) -> bool:
        """Whether there is anything to commit."""
        return self.messages is not self.base.messages or self.pins != self.base.pins

    def put(self, position: int, entry: Entry) -> None:
        """Give the message at *position* another form."""
        if entry is not self.messages[position]:
            self._rewrites = self._rewrites or position < len(self.base.messages)
            self.messages = self.messages.changed({position: entry})

    def change(self, now: State) -> Change:
        """Return the change of the context of now into this one."""
        state = replace(now, messages=self.messages, pins=self.pins)
        write: Extend | Replace | None = None
        if self._rewrites:
            write = Replace(state)
        elif self.new or self.pins != self.base.pins:
            write = Extend(self.new, self.pins)
        return Change(state, write, self.events)


# The state of a context that another process has written.


def restored(found: WindowState, summaries: Sequence[Summary], counter: TextCounter, dialect: str | None) -> State:
    """Return the context that another process has written; *dialect* is that of all messages, or None.

    Raises:
        CorruptError: The summary in the context is not among *summaries*, those of the session in order.
    """

    def summary_of(entry: Entry) -> Summary:
        for summary in reversed(summaries):
            if summary.text == entry.message.text:
                return summary
        raise CorruptError("summaries.jsonl", "does not hold the summary that stands in the context")

    head, others = found.messages[: len(found.head)], found.messages[len(found.head) :]
    lasting, reinserted = list[Entry](), list[Entry]()
    summary, notice = None, None
    for (kind, index), (named, value) in zip(indexed(found.head, found.pins), head, strict=True):
        native = dialect_named(named).from_json(value)
        entry = entry_of(native, index, counter, dialect=dialect or named, pinned=kind == PIN)
        if kind == SUMMARY:
            summary = SummaryEntry(entry, summary_of(entry))
        elif kind == NOTICE:
            notice = replace(entry, is_notice=True)
        else:
            (reinserted if kind == AGAIN else lasting).append(entry)
    entries: list[Entry] = []
    times = found.times[len(head) :] or [""] * len(others)
    for index, ((named, value), added) in enumerate(zip(others, times, strict=True), found.first):
        native = dialect_named(named).from_json(value)
        entry = entry_of(native, index, counter, dialect=dialect or named, pinned=index in found.pins)
        entries.append(replace(entry, added=added))
    return State(
        prefix=Messages.of(lasting),
        summary=summary,
        notice=notice,
        reinserted=Messages.of(reinserted),
        messages=Messages.of(entries, found.first),
        pins=frozenset(found.pins),
        archived_until=found.archived,
    )


def indexed(kinds: Sequence[str], pins: Sequence[int]) -> Iterator[tuple[str, int]]:
    """Yield kind and session index of each entry of a prefix; *pins* begins with those of its pins."""
    in_prefix = iter(pins)
    for spelled in kinds:
        kind, _, index = spelled.partition(":")
        yield kind, next(in_prefix) if kind == PIN else int(index or -1)


async def check_archived(state: State, abilities: Abilities, session_id: str) -> None:
    """Check that the archived messages that are still in the context are the context's own.

    Raises:
        StaleWindowError: They are not.
        BuoylineError: The archive cannot be read.
    """
    first = state.messages.first
    if abilities.archive is None or state.archived_until == first:
        return
    archived = await abilities.archive.load_messages(session_id, first, state.archived_until)
    mine = state.messages[: state.archived_until - first]
    is_same = len(archived) == len(mine) and all(
        # Agents set the provider's cache marks on the objects that they were handed. And once a session has continued
        # in a second dialect, plain text may be detected as another dialect than before.
        value == entry.json() or view_of(dialect, value) == entry.message
        for (dialect, value), entry in zip(archived, mine, strict=True)
    )
    if not is_same:
        reason = "its archive holds messages that did not come from its window"
        hint = "nothing is lost, archive and window.jsonl are whole; begin a new session from what they hold"
        raise StaleWindowError(session_id, reason, hint)


async def stubs_in(state: State, abilities: Abilities, session_id: str) -> dict[str, StoredResult]:
    """Return the stored results whose stubs are in the tool results of *state*, by stub."""
    if abilities.results is None:
        return {}
    texts = [text for entry in state.messages for text in entry.message.result_texts]
    return await abilities.results.load_stubs(session_id, texts)


async def load_summaries(abilities: Abilities, session_id: str) -> list[Summary]:
    """Return all summaries of the session, in order."""
    if abilities.summaries is None:
        return []
    return [summary_from(line) for line in await abilities.summaries.load_summaries(session_id)]


async def stored_summary(abilities: Abilities, session_id: str, text: str) -> Summary | None:
    """Return the newest summary of the session with this text, and its facts if they are still kept."""
    try:
        summaries = await load_summaries(abilities, session_id)
    except NotFoundError:  # nothing was ever stored in the session
        return None
    return next((summary for summary in reversed(summaries) if summary.text == text), None)
