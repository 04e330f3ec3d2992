"""Compaction: the oldest messages are archived, summarized, and only then evicted."""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from buoyline.compression import Compressor, ContextConfig, Summary
from buoyline.compression.compressor import MessageRange
from buoyline.compression.plan import Plan, awaited_from, legal_cut_before, plan
from buoyline.compression.summary_text import ArchiveLocation
from buoyline.errors import NotFoundError
from buoyline.management.context import ContextView
from buoyline.management.rules import LegalCuts, closed
from buoyline.messages.registry import dialect_named
from buoyline.window.context import Change, Context, Extend, Replace
from buoyline.window.events import ContextCompressed, MessagesArchived
from buoyline.window.offloading import ResultOffloader
from buoyline.window.state import Entry, Messages, State, SummaryEntry, entry_of, situation_of
from buoyline.window.tasks import completed

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Eviction:
    """A cut, and which of the messages before it are reinserted.

    Attributes:
        cut: So many of the oldest messages are evicted.
        lasting: Positions of those of them that are reinserted for good: system messages, pins, and all that belongs
            to them.
        reinserted: Positions of those that are reinserted for now.
        staying: Session indexes of what is reinserted for now already, and stays.
    """

    cut: int
    lasting: tuple[int, ...]
    reinserted: tuple[int, ...]
    staying: frozenset[int]

    def change(self, now: State, summary: SummaryEntry | None, notice: Entry | None) -> Change:
        """Return the change of the context of now into the one without the messages before the cut."""
        messages = now.messages
        # A message that belongs to a pin is pinned from now on.
        lasting = [messages[at] if messages[at].stays else replace(messages[at], pinned=True) for at in self.lasting]
        reinserted = [entry for entry in now.reinserted if entry.index in self.staying]
        reinserted += [messages[at] for at in self.reinserted]
        state = replace(
            now,
            prefix=now.prefix.extended(lasting),
            summary=summary,
            notice=notice,
            reinserted=Messages.of(reinserted),
            messages=messages.without(self.cut),
            pins=now.pins.union(entry.index for entry in lasting if entry.pinned),
        )
        return Change(state, Replace(state), is_compaction=True)


def eviction_as(state: State, cut: int, reinserted: Sequence[int], prefix: Sequence[int]) -> Eviction:
    """Return the eviction that a manager asks for who was shown *state*.

    *reinserted* are positions before *cut* of messages that are reinserted, *prefix* positions in `State.leading` of
    entries that stay.
    """
    entries = state.messages[:cut]
    lasting = set(closed([entry.message for entry in entries], (at for at, entry in enumerate(entries) if entry.stays)))
    shown = state.leading
    return Eviction(
        cut,
        tuple(at for at in reinserted if at in lasting),
        tuple(at for at in reinserted if at not in lasting),
        frozenset(shown[at].index for at in prefix),
    )


class Ready(NamedTuple):
    """A summary, still without a number, whose messages are archived, and which is not in the context yet."""

    summary: Summary
    duration_s: float


class Compaction:
    """Compacts a context in two steps: a summary is made, then shown. Messages may be added in between.

    Attributes:
        dialect: Dialect of all messages; None: each has its own.
        preserves_words: As context-management documents require: the user's newest words are reinserted, and so are all
            messages that belong to a pin.
        model: Name of the agent's model; empty if it is not known.
        unshown: A summary that is in the log, and perhaps not in the window on disk.
    """

    def __init__(
        self,
        context: Context,
        results: ResultOffloader,
        compressor: Compressor,
        dialect: str | None,
    ) -> None:
        """Compact *context*."""
        self.context = context
        self.results = results
        self.compressor = compressor
        self.session_id = results.session_id
        self.dialect = dialect
        self.preserves_words = False
        self.unshown: tuple[Summary, Eviction | None] | None = None

    @property
    def first(self) -> int:
        """Session index of the first message of the context."""
        return self.context.state.messages.first

    def planned(self, settings: ContextConfig) -> Plan:
        """Decide how many messages are archived; nothing is changed."""
        state = self.context.whole
        # If roles alternate, a summary before a message of the user's would have to be merged with it.
        alternates = any(dialect_named(entry.dialect).alternates_roles for entry in state.messages)
        return plan(
            [entry.message for entry in state.messages],
            [entry.tokens for entry in state.messages],
            max_kept_tokens=self.context.budget.kept_tokens(state, settings),
            at_least=state.attempted_until - state.messages.first,
            before_model=alternates,
        )

    def cut_before(self, index: int) -> int:
        """Return the cut before the message *index* of the session, or an earlier one that parts no pair."""
        state = self.context.whole
        messages = [entry.message for entry in state.messages]
        cut = legal_cut_before(messages, min(index - state.messages.first, awaited_from(messages)))
        return max(cut, state.attempted_until - state.messages.first)

    def view(self) -> ContextView:
        """Return the context as managers see it, by our own count."""
        return self._view_of(self.context.whole)

    def _view_of(self, state: State) -> ContextView:
        budget = self.context.budget
        return situation_of(state, budget.counter, budget.fixed_tokens)

    async def compact(
        self,
        settings: ContextConfig,
        focus: str = "",
        *,
        use_model: bool = True,
        cut: int | None = None,
        max_context_tokens: int | None = None,
    ) -> Summary | None:
        """Archive the oldest *cut* messages, or as many as planned, and summarise them; None if none may be archived.

        Raises:
            StorageError: The file system refused; the context is as it was.
        """
        if cut is None:
            decided = self.planned(settings)
            logger.debug("session %s: %d messages leave: %s", self.session_id, decided.cut, decided.reason)
            cut = decided.cut
        state = self.context.whole
        if cut > len(self.context.state.messages):  # some of these came meanwhile and are nowhere on disk
            cut = legal_cut_before([entry.message for entry in state.messages], len(self.context.state.messages))
        if cut <= 0:
            return None
        eviction = self._eviction_at(cut)
        reinserted_tokens = sum(state.messages[at].tokens for at in eviction.reinserted)
        max_tokens = self.context.budget.summary_tokens(
            state, cut, settings, reinserted_tokens, max_context_tokens=max_context_tokens
        )
        ready = await self.made(self.extent(cut), settings, focus, use_model=use_model, max_tokens=max_tokens)
        return await self.show(ready, eviction)

    def extent(self, cut: int) -> MessageRange:
        """Return the oldest *cut* messages; they keep their form from now on."""
        state = self.context.state
        first, entries = state.messages.first, state.messages[:cut]
        extent = MessageRange(
            self.session_id,
            first,
            [entry.native for entry in entries],
            sum(entry.tokens for entry in entries),
            archived=state.archived_until - first,
            attempts=[end - first for end in state.attempts],
            dialect=self.dialect,
            stubs=self.results.stubs_of(entries),
            times=[entry.added for entry in entries],
            batches=state.batches,
        )
        self.context.attempt(extent.end)
        return extent

    async def made(
        self,
        extent: MessageRange,
        settings: ContextConfig,
        focus: str = "",
        *,
        max_tokens: int,
        use_model: bool = True,
        compressor: Compressor | None = None,
    ) -> Ready:
        """Archive *extent* and summarize it, by default with the window's own compressor; the context stays as it is.

        Raises:
            StaleWindowError: Another window has taken the session over; nothing was archived.
            StorageError: The file system refused; the context is as it was.
            Exception: Whatever the summarizer raises, except `SummaryError`.
        """
        began = time.perf_counter()
        place = await self.archived(extent)
        state = self.context.whole
        summary = await (compressor or self.compressor).summarize(
            extent,
            place,
            previous=state.summary.summary.draft if state.summary else None,
            max_tokens=max_tokens,
            config=settings,
            focus=focus,
            use_model=use_model,
        )
        return Ready(summary, time.perf_counter() - began)

    async def archived(self, extent: MessageRange) -> ArchiveLocation:
        """Archive *extent*, emit the event, and return the location; the context stays as it is.

        Raises:
            StaleWindowError: Another window has taken the session over; nothing was archived.
            StorageError: The file system refused; the context is as it was.
        """
        place = await completed(self._archive(extent))
        self.context.tell(MessagesArchived((extent.first, extent.end), extent.tokens, place.reference))
        return place

    async def show(self, ready: Ready, eviction: Eviction | None = None) -> Summary:
        """Replace messages by their summary; messages that were added meanwhile stay.

        By default, messages are reinserted as without a manager.

        Raises:
            StorageError: The file system refused; the context is as it was.
        """
        began, tokens_before = time.perf_counter(), self.context.tokens
        shown = await completed(self._record(ready.summary, eviction))
        duration_s = ready.duration_s + time.perf_counter() - began
        self.context.tell(ContextCompressed(shown, tokens_before, self.context.tokens, duration_s))
        return shown

    async def let_go(self, eviction: Eviction, notice: Callable[[ArchiveLocation], str] | None) -> None:
        """Archive messages, and evict them without a summary.

        *notice* returns the text of the reference line; without a text, there is no line. None: an earlier line stays.

        Raises:
            StaleWindowError: See `archived`.
            StorageError: See `archived`.
        """
        place = await self.archived(self.extent(eviction.cut))
        said = self.context.state.notice
        if notice is not None:
            text = notice(place)
            if not text:
                said = None
            elif said is None or said.message.text != text:
                said = replace(self._message(text, eviction.cut), is_notice=True)
        await self.context.commit(lambda now: eviction.change(now, now.summary, said))

    async def unpin(self, indexes: Collection[int]) -> None:
        """Unpin the messages *indexes*, and the calls and results that belong to them.

        Those that are archived are evicted, except for system messages.

        Raises:
            NotFoundError: One of them is not pinned; nothing was changed.
            StorageError: The file system refused; the context is as it was.
        """
        await completed(self._unpin(indexes))

    async def finish(self) -> None:
        """Show a summary that is in the log already, if that failed, or another process ended before it."""
        if self.unshown is not None:
            await completed(self._show(*self.unshown))

    async def finish_of(self, summaries: Sequence[Summary]) -> None:
        """Show the last of *summaries* if the other process ended just before it did."""
        archived = self.context.state.archived_until
        if summaries and archived > self.first and summaries[-1].messages == (self.first, archived):
            self.unshown = summaries[-1], None
            await self.finish()

    async def _unpin(self, indexes: Collection[int]) -> None:
        await self.finish()  # a summary that is not shown yet knows its pins
        context, whole = self.context, self.context.whole
        entries = [*whole.prefix, *whole.messages]
        pins = {entry.index: at for at, entry in enumerate(entries) if entry.pinned}
        for index in indexes:
            if index not in pins:
                known = f"messages {', '.join(map(str, pins))} are pinned" if pins else "nothing is pinned"
                raise NotFoundError("pin", str(index), known)
        group = closed([entry.message for entry in entries], [pins[index] for index in indexes])
        gone = {entries[at].index for at in group}

        def unpinned(entries: Messages) -> Messages:
            changed = (replace(entry, pinned=False) if entry.index in gone else entry for entry in entries)
            return Messages.of(changed, entries.first)

        def change(now: State) -> Change | None:
            if gone.isdisjoint(now.pins):
                return None
            prefix = unpinned(now.prefix)
            state = replace(now, prefix=prefix, messages=unpinned(now.messages), pins=now.pins - gone)
            evicted = [entry for entry in prefix if not entry.stays]
            if not evicted:
                return Change(state, Extend((), state.pins))
            staying = [*now.reinserted]
            if self.preserves_words:  # a pin may be the user's newest message
                legal = LegalCuts(self._view_of(state))
                staying[:0] = [entry for at, entry in enumerate(prefix) if not entry.stays and at in legal.prefix]
            kept = Messages.of(entry for entry in prefix if entry.stays)
            state = replace(state, prefix=kept, reinserted=Messages.of(staying))
            return Change(state, Replace(state), is_compaction=True)

        await context.commit(change)
        context.inbox = unpinned(context.inbox)

    async def _archive(self, extent: MessageRange) -> ArchiveLocation:
        self.results.warn_of_loss()
        # If another window has taken over, its messages must not be archived.
        await self.context.log.check(self.context.state)
        place = await self.compressor.archive(extent)

        def archived(now: State) -> Change:
            until = max(now.archived_until, extent.end)
            attempts = frozenset(end for end in now.attempts if end > until)
            return Change(replace(now, archived_until=until, batches=place.batches, attempts=attempts))

        await self.context.commit(archived)
        return place

    async def _record(self, summary: Summary, eviction: Eviction | None) -> Summary:
        # From the first line on the summary is in the log; if the second fails, the next call shows it.
        recorded = await self.compressor.record(self.session_id, summary)
        self.unshown = recorded, eviction
        await self._show(recorded, eviction)
        return recorded

    async def _show(self, summary: Summary, eviction: Eviction | None) -> None:
        """Replace the messages of *summary* by it, on disk first."""
        cut = summary.messages[1] - self.first
        chosen = self._eviction_at(cut) if eviction is None else eviction
        shown = SummaryEntry(self._message(summary.text, cut), summary)
        await self.context.commit(lambda now: chosen.change(now, shown, now.notice))
        self.unshown = None

    def _eviction_at(self, cut: int) -> Eviction:
        """Return the eviction without the wishes of a manager."""
        state = self.context.whole
        if not self.preserves_words and not len(state.reinserted):
            entries = state.messages[:cut]
            pinned = (at for at, entry in enumerate(entries) if entry.stays)
            return Eviction(cut, closed([entry.message for entry in entries], pinned), (), frozenset())
        legal = LegalCuts(self.view())
        return eviction_as(state, cut, legal.reinserted(cut), legal.prefix)

    def _message(self, text: str, cut: int) -> Entry:
        """Return a user message of ours in the form of those that are evicted."""
        dialect = self.context.state.messages[cut - 1].dialect
        native = dialect_named(dialect).user_message(text)
        return entry_of(native, -1, self.context.budget.counter, dialect=dialect)
