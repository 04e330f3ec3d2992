"""Letting the oldest messages of a context leave: archived, summarised, written down, and only then forgotten."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from buoyline.compression import Compressor, ContextConfig, MessageRange, Plan, Summary, legal_cut_before
from buoyline.compression.plan import plan
from buoyline.compression.summary_text import ArchiveLocation
from buoyline.errors import SummaryError
from buoyline.management.conversation import reference_line
from buoyline.management.rules import LegalCuts, closed
from buoyline.messages import dialect_named
from buoyline.window.budget import Room
from buoyline.window.events import ContextCompressed, MessagesArchived, OnEvent
from buoyline.window.log import ContextKeeping
from buoyline.window.offloading import ResultOffloading
from buoyline.window.plan import ResultChoosing
from buoyline.window.state import Contents, Context, Entry, entry_of, situation_of
from buoyline.window.tasks import completed

# What leaves with a cut, and what of it stands again.


@dataclass(frozen=True, slots=True)
class Leaving:
    """A cut, and what stands again behind it.

    Attributes:
        cut: So many of the oldest messages leave.
        lasting: Positions of those of them that stand again for good: system messages, pins, and what belongs to them.
        again: Positions of those that stand again for now.
        staying: Session indexes of what stands for now already, and goes on.
    """

    cut: int
    lasting: tuple[int, ...]
    again: tuple[int, ...]
    staying: frozenset[int]

    def entries(self, context: Context) -> tuple[list[Entry], list[Entry]]:
        """Return what stands again for good, and what does for now. What belongs to a pin is one from now on."""
        contents = context.contents
        lasting = [contents[at] for at in self.lasting]
        pinned = [entry if entry.stays else replace(entry, pinned=True) for entry in lasting]
        staying = [entry for entry in context.again if entry.index in self.staying]
        return pinned, [*staying, *(contents[at] for at in self.again)]


def leaving_as(context: Context, cut: int, standing: Sequence[int], head: Sequence[int]) -> Leaving:
    """Return what a manager asks for.

    Args:
        context: What the manager was shown.
        cut: See `Leaving`.
        standing: Positions before *cut* of what stands again.
        head: Positions in what stands before the messages, of what stays there.
    """
    entries = context.contents.until(cut)
    lasting = set(closed([entry.message for entry in entries], (at for at, entry in enumerate(entries) if entry.stays)))
    shown = context.standing()
    return Leaving(
        cut,
        tuple(at for at in standing if at in lasting),
        tuple(at for at in standing if at not in lasting),
        frozenset(shown[at].index for at in head),
    )


def leaving_at(context: Context, cut: int, *, preserves_words: bool) -> Leaving:
    """Return what leaves where no manager has asked for it.

    Args:
        context: As it stands.
        cut: See `Leaving`.
        preserves_words: The user's newest words stand again, and with pins all that belongs to them.
    """
    if not preserves_words and not len(context.again):
        entries = context.contents.until(cut)
        pinned = (at for at, entry in enumerate(entries) if entry.stays)
        return Leaving(cut, closed([entry.message for entry in entries], pinned), (), frozenset())
    legal = LegalCuts(situation_of(context))
    return leaving_as(context, cut, legal.reinserted(cut), legal.prefix)


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ready:
    """A summary whose messages are archived, and which stands nowhere yet.

    Attributes:
        summary: Checked; without a number.
        duration_s: Seconds that it took.
    """

    summary: Summary
    duration_s: float


@dataclass(slots=True)
class ContextCompressing:
    """Compresses a context in two steps, between which it may go on: a summary is made, and shown.

    Attributes:
        context: What stands in it.
        room: Says how much may stay.
        results: Knows the stubs, and warns of a loss.
        choosing: Is told what has left.
        keeping: Writes the context down.
        compressor: Archives and summarises.
        tell: Told of each step.
        dialect: Name of the one that all messages have; None: each its own.
        unshown: A summary that is in the log, and may not be in the window on disk.
        preserves_words: The user's newest words stand again when they are archived, and with pins all that belongs to
            them, as documents have it.
        requires_model: A summary that had to do without the model that was asked is none.
    """

    context: Context
    room: Room
    results: ResultOffloading
    choosing: ResultChoosing
    keeping: ContextKeeping
    compressor: Compressor
    tell: OnEvent
    dialect: str | None
    unshown: Summary | None = None
    preserves_words: bool = False
    requires_model: bool = False
    _unshown_leaving: Leaving | None = None

    def planned(self, settings: ContextConfig) -> Plan:
        """Decide what leaves; nothing is changed."""
        context = self.context
        return plan(
            [entry.message for entry in context.contents],
            [entry.tokens for entry in context.contents],
            max_kept_tokens=self.room.kept_tokens(settings),
            at_least=context.attempted - context.contents.first,
        )

    def cut_before(self, index: int) -> int:
        """Return the cut before the message *index* of the session, moved back where it would part a pair."""
        contents = self.context.contents
        cut = legal_cut_before([entry.message for entry in contents], index - contents.first)
        return max(cut, self.context.attempted - contents.first)

    def parts_pair(self, index: int) -> bool:
        """Tell whether a cut before the message *index* parts a call from a result, which may have come since."""
        contents = self.context.contents
        cut = index - contents.first
        return legal_cut_before([entry.message for entry in contents], cut) != cut

    async def compress(
        self,
        settings: ContextConfig,
        focus: str = "",
        *,
        use_model: bool = True,
        cut: int | None = None,
        max_context_tokens: int | None = None,
    ) -> Summary | None:
        """Archive the oldest *cut* messages, or as many as planned, and summarise them; None if none may leave."""
        if cut is None:
            decided = self.planned(settings)
            logger.debug("session %s: %d messages leave: %s", self.keeping.session_id, decided.cut, decided.reason)
            cut = decided.cut
        if cut <= 0:
            return None
        leaving = leaving_at(self.context, cut, preserves_words=self.preserves_words)
        again = sum(self.context.contents[at].tokens for at in leaving.again)
        max_tokens = self.room.summary_tokens(cut, settings, again, max_context_tokens=max_context_tokens)
        ready = await self.made(self.extent(cut), settings, focus, use_model=use_model, max_tokens=max_tokens)
        return await self.show(ready, leaving)

    def extent(self, cut: int) -> MessageRange:
        """Return the oldest *cut* messages, which keep the form that they have from now on."""
        contents = self.context.contents
        leaving = contents.until(cut)
        extent = MessageRange(
            self.keeping.session_id,
            contents.first,
            [entry.native for entry in leaving],
            sum(entry.tokens for entry in leaving),
            archived=self.context.archived - contents.first,
            attempts=[end - contents.first for end in self.context.attempts],
            dialect=self.dialect,
            stubs=self.results.standing_in(leaving),
            times=[entry.added for entry in leaving],
            batches=self.context.batches,
        )
        self.context.attempts.add(extent.end)
        return extent

    async def made(
        self,
        extent: MessageRange,
        settings: ContextConfig,
        focus: str = "",
        *,
        use_model: bool = True,
        compressor: Compressor | None = None,
        max_tokens: int | None = None,
    ) -> Ready:
        """Archive *extent* and summarise it; what a model is shown stays as it is.

        Args:
            extent: What leaves.
            settings: Of the summary.
            focus: What shall be kept above all.
            use_model: Off: without a model.
            compressor: Left out: the window's own.
            max_tokens: Of the summary; left out: what there is room for.

        Raises:
            StaleWindowError: Another window has gone on with the session; nothing was archived.
            StorageError: The file system refused; the context is as it was.
            SummaryError: The model that was asked wrote none, and one is required.
            Exception: Whatever the summariser raises, `SummaryError` apart.
        """
        began = time.perf_counter()
        place = await self.archived(extent)
        summary = await (compressor or self.compressor).summarize(
            extent,
            place,
            previous=self.context.summary[1].draft if self.context.summary else None,
            max_tokens=self.room.summary_tokens(len(extent.messages), settings) if max_tokens is None else max_tokens,
            config=settings,
            focus=focus,
            use_model=use_model,
        )
        if summary.fell_back and self.requires_model:
            raise SummaryError(summary.draft.summarizer, f"{summary.fell_back}; the context is as it was")
        return Ready(summary, time.perf_counter() - began)

    async def archived(self, extent: MessageRange) -> ArchiveLocation:
        """Archive *extent*, tell of it, and return where it is; what a model is shown stays as it is.

        Raises:
            StaleWindowError: Another window has gone on with the session; nothing was archived.
            StorageError: The file system refused; the context is as it was.
        """
        place = await completed(self._archive(extent))
        self.tell(MessagesArchived((extent.first, extent.end), extent.tokens, place.reference))
        return place

    async def show(self, ready: Ready, leaving: Leaving | None = None, *, in_background: bool = False) -> Summary:
        """Put a summary in the place of its messages; whatever was added meanwhile stays.

        Args:
            ready: The summary.
            leaving: What of the messages stands again; left out: as the window has it.
            in_background: It was made there.

        Raises:
            StorageError: The file system refused; the context is as it was.
        """
        began, tokens_before = time.perf_counter(), self.room.tokens
        shown = await completed(self._record(ready.summary, leaving))
        duration_s = ready.duration_s + time.perf_counter() - began
        self.tell(ContextCompressed(shown, tokens_before, self.room.tokens, duration_s, in_background))
        return shown

    async def let_go(self, extent: MessageRange, leaving: Leaving, *, has_notice: bool) -> None:
        """Archive *extent*, and let go of it without a summary.

        Raises:
            StaleWindowError: See `archived`.
            StorageError: See `archived`.
        """
        place = await self.archived(extent)
        await completed(self._without(leaving, reference_line(place) if has_notice else ""))

    async def finish(self) -> None:
        """Show a summary that is in the log already, where that failed or another process ended before it."""
        if self.unshown is not None:
            await completed(self._adopt(self.unshown, self._unshown_leaving))

    async def finish_of(self, summaries: Sequence[Summary]) -> None:
        """Show the last of *summaries* where the other process ended just before it did."""
        first, archived = self.context.contents.first, self.context.archived
        if summaries and archived > first and summaries[-1].messages == (first, archived):
            self.unshown = summaries[-1]
            await self.finish()

    async def _archive(self, extent: MessageRange) -> ArchiveLocation:
        self.results.warn_of_loss()
        # Messages that another window goes on with would be archived behind its back.
        await self.keeping.check(self.context.pins_until(self.context.settled))
        place = await self.compressor.archive(extent)
        archived = self.context.archived = max(self.context.archived, extent.end)
        self.context.batches = place.batches
        self.context.attempts = {end for end in self.context.attempts if end > archived}
        return place

    async def _record(self, summary: Summary, leaving: Leaving | None) -> Summary:
        # From the first line on the summary is in the log; should the second fail, the next call shows it.
        self.unshown = await self.compressor.record(self.keeping.session_id, summary)
        self._unshown_leaving = leaving
        return await self._adopt(self.unshown, leaving)

    async def _adopt(self, summary: Summary, leaving: Leaving | None) -> Summary:
        """Put *summary* in the place of the messages that it stands for, on disk first."""
        cut = summary.messages[1] - self.context.contents.first
        if leaving is None:
            leaving = leaving_at(self.context, cut, preserves_words=self.preserves_words)
        await self._replaced(leaving, (self._ours(summary.text, cut), summary), self.context.notice)
        self.unshown = self._unshown_leaving = None
        return summary

    async def _without(self, leaving: Leaving, notice: str) -> None:
        """Let messages leave without a summary, on disk first; an empty *notice* leaves the one before."""
        said = replace(self._ours(notice, leaving.cut), is_notice=True) if notice else self.context.notice
        await self._replaced(leaving, self.context.summary, said)

    async def _replaced(self, leaving: Leaving, summary: tuple[Entry, Summary] | None, notice: Entry | None) -> None:
        context = self.context
        lasting, again = leaving.entries(context)
        ours = [entry for entry in (summary[0] if summary else None, notice) if entry is not None]
        pins = sorted({*context.pins, *(entry.index for entry in lasting if entry.pinned)})
        await self.keeping.replace(
            [*context.head, *lasting, *ours, *again],
            context.contents.since(leaving.cut, context.settled),
            context.contents.first + leaving.cut,
            [pin for pin in pins if pin < context.contents.first + context.settled],
        )
        for entry in lasting:
            context.head.append(entry)
        context.summary, context.notice, context.again = summary, notice, Contents(again)
        context.pins = pins
        context.contents.leave(leaving.cut)
        context.settled -= leaving.cut
        self.room.anchor.drop()
        self.choosing.restart(context.contents, context.settled)

    def _ours(self, text: str, cut: int) -> Entry:
        """Return a user message of ours in the form of those that leave."""
        dialect = self.context.contents[cut - 1].dialect
        native = dialect_named(dialect).user_message(text)
        return entry_of(native, -1, self.context.counter, dialect=dialect)
