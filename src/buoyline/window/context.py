"""The context of a session, and the one way to change it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from buoyline.window.budget import TokenBudget
from buoyline.window.events import OnEvent, ResultOffloaded
from buoyline.window.log import Change, ContextLog, Extend, Replace
from buoyline.window.plan import OffloadPlanner
from buoyline.window.state import Entry, Messages, State
from buoyline.window.tasks import LoopLock, completed


class Context:
    """The context of a session: its state, which only `commit` changes, and the messages that wait to enter it.

    A change is built from the state of now, written, and only then made. If it fails, the state is as it was, and the
    files that were stored for it are orphans, which is legal.

    Attributes:
        state: The context as it is on disk.
        inbox: Messages that were added since.
        outbox: Events to emit; the caller of `commit` emits them afterwards.
        log: Writes the context.
        budget: Counts its tokens.
        planner: Notes each change.
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
        self._lock = LoopLock()
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

    def begin(self, state: State) -> None:
        """Begin with the state that another process has written."""
        self.state, self.inbox = state, Messages(first=state.messages.end)

    def reopen(self, position: int) -> None:
        """Move the messages from *position* on to the inbox: nothing is decided about them yet."""
        state = self.whole
        entries = state.messages[position:]
        self.state = state.until(state.messages.first + position)
        self.inbox = Messages.of(entries, self.state.messages.end)

    def attempt(self, end: int) -> None:
        """Note an attempt to archive the messages before the session index *end*: they keep their form."""
        self.state = replace(self.state, attempts=self.state.attempts | {end})

    async def commit(self, build: Callable[[State], Change | None]) -> bool:
        """Make a change: on disk first, then in memory.

        Args:
            build: Returns the change of the context of now; None if it no longer applies. It awaits nothing and calls
                no user code.

        Returns:
            True if the change was made.

        Raises:
            StaleWindowError: Another window has taken the session over.
            StorageError: The file system refused. The context is as it was.
        """
        return await completed(self._commit(build))

    async def _commit(self, build: Callable[[State], Change | None]) -> bool:
        async with self._lock.of_now():
            change = build(self.state)
            if change is None:
                return False
            await self.log.apply(change.write)
            before, self.state = self.state, change.state
            if isinstance(change.write, Replace):
                known = (*before.prefix, *before.reinserted, *before.messages)
                archived = (entry.message for entry in known if entry.index < change.state.messages.first)
                self.planner.note_archived(archived)
                self.state = self.planner.with_late_results(self.state)
            elif isinstance(change.write, Extend) and change.write.new:
                self.state = self.planner.with_late_results(
                    self.state, len(self.state.messages) - len(change.write.new)
                )
            # What the predicate keeps, as far as the context does not know that yet.
            refused = [place for place, may_leave in self.planner.verdicts.items() if not may_leave]
            if refused and change.write is not None:
                self.state = replace(self.state, kept_whole=self.state.kept_whole.union(refused))
            end = change.state.messages.end
            count = end - self.inbox.first if change.discarded is None else change.discarded
            self.inbox = self.inbox.without(count).renumbered(end)
            self.outbox += change.events
            if isinstance(change.write, Extend):
                self.planner.follow(change.write.new)
            elif change.write is not None:
                self.planner.restart(change.state.messages)
            if change.is_compaction:
                self.budget.usage.drop()
            return True

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
        pins: Session indexes of pinned messages.
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
        return Change(now, state, write, self.events)
