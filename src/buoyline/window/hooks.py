"""Running a document's managers on a window: what they ask for is carried out by the engine that is there anyway."""

import logging
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from buoyline.compression import Compressor, ContextConfig, Summarizer, SummaryFunction
from buoyline.management import (
    ActionResult,
    ContextManagement,
    ContextView,
    Evict,
    Hook,
    ManagementReport,
    Pin,
    Replace,
    Summarize,
    run,
    run_on_overflow,
)
from buoyline.management.actions import ContextEditor
from buoyline.management.conversation import SummaryWriters
from buoyline.management.rules import LegalCuts, PreviewStub, closed
from buoyline.offloader import reread_limit
from buoyline.tokens.messages import count_result
from buoyline.window.budget import Room
from buoyline.window.compaction import ContextCompressing, Leaving, leaving_as
from buoyline.window.events import ContextManaged
from buoyline.window.log import ContextKeeping
from buoyline.window.offloading import Place, ResultOffloading
from buoyline.window.plan import Choice, ResultChoosing
from buoyline.window.state import Context, Entry, Showing, situation_of
from buoyline.window.tasks import completed

# What a document's manager wants replaced in a message, done by the engine that offloads without one, too.


async def replaced(entry: Entry, step: Replace, results: ResultOffloading, choosing: ResultChoosing) -> Entry:
    """Return *entry* as *step* wants it; *entry* itself where nothing of it may leave, or would be smaller.

    Args:
        entry: The message.
        step: Its position is not looked at.
        results: Stores what leaves.
        choosing: Knows the calls, and so what was read back.

    Raises:
        StorageError: The file system refused; the message is as it was.
    """
    if step.media:
        place = None if step.result < 0 else step.result
        places = [Place(number, place) for number in step.media]
        return entry if entry.stays else await results.offload_images(entry, places)
    if step.result < 0 or step.write_stub is None or not step.texts:
        return entry
    result = entry.message.results[step.result]
    tool, source = choosing.known_of(result)
    if not isinstance(step.write_stub, PreviewStub):
        return await results.stand_in(entry, step.result, step.texts, step.write_stub)
    # What the agent reads back it has asked for; offloaded again, it would ask for ever.
    limit = reread_limit(choosing.size, choosing.config.tool_result_limit)
    if source and count_result(result, choosing.counter) <= limit:
        return entry
    return await results.replace(entry, {step.result: Choice(tool, step.write_stub.max_tokens, source)})


logger = logging.getLogger(__name__)

_MOST_PINNED = 1 / 2


@dataclass(slots=True)
class ContextManaging:
    """Fires hooks, and carries out what managers ask for; see `ContextEditor`.

    What is replaced is in memory until the managers of a hook are done, and then written down at once: to write after
    each of thirty results would write the window thirty times. Where something fails before, it is taken back. Before
    messages leave, all is written down.

    Attributes:
        compressing: Lets messages leave, and has all that the window is made of.
        config: What summaries look like where the document does not say it, and how large by-hand previews are.
        summarizers: By the names that documents call their models.
        report: What the managers did in the call that goes on, or was the last.
        called_at_s: When the model was called last, by the clock of this process.
    """

    compressing: ContextCompressing
    config: ContextConfig
    summarizers: Mapping[str, Summarizer | SummaryFunction]
    report: ManagementReport = field(default_factory=ManagementReport)
    called_at_s: float = field(default_factory=time.monotonic)
    context: Context = field(init=False)
    room: Room = field(init=False)
    results: ResultOffloading = field(init=False)
    choosing: ResultChoosing = field(init=False)
    keeping: ContextKeeping = field(init=False)
    writers: SummaryWriters = field(init=False)
    _showing: Showing = field(default_factory=Showing)
    _is_overflow: bool = False
    _end: int = 0
    _before: dict[int, Entry] = field(default_factory=dict[int, Entry])
    _pins_before: list[int] | None = None
    _done_events: int = 0
    _untold: list[ContextManaged] = field(default_factory=list[ContextManaged])

    def __post_init__(self) -> None:
        """Take hold of what the window is made of."""
        within = self.compressing
        self.context, self.room, self.keeping = within.context, within.room, within.keeping
        self.results, self.choosing = within.results, within.choosing
        counter, offloader = self.context.counter, self.results.offloader
        named = {
            name: Compressor(offloader, config=self.config, counter=counter, summarizer=one, on_event=within.tell)
            for name, one in self.summarizers.items()
        }
        self.writers = SummaryWriters(within.compressor, named, self.config)

    async def settle(self, management: ContextManagement) -> None:
        """Fire ``post_memory`` and ``post_tool`` for what was added, and write it down as it is then.

        Raises:
            Exception: See `run`; what was added is as it was, and the next call fires them again.
        """
        context = self.context
        new = context.contents.since(context.settled)
        self._show_until(context.contents.end)
        with self._whole():
            self.choosing.note(new)
            await self._offload_by_hand(new)
            shown = Showing().held(context.contents.since(context.settled), self.results.stubs)
            if any(held.is_spoken_by_user for held in shown):
                await self._fire(management, "post_memory")
            if any(held.message.results for held in shown):
                await self._fire(management, "post_tool")
            await completed(self._write())
        self._tell_all()

    async def fire(self, management: ContextManagement, hook: Hook) -> None:
        """Fire *hook*, and write down what its managers did.

        Raises:
            Exception: See `run`.
        """
        self._show_until(self.context.contents.first + self.context.settled)
        with self._whole():
            await self._fire(management, hook)
            await completed(self._write())
        self._tell_all()

    async def overflow(self, management: ContextManagement, error: BaseException) -> None:
        """Make the context smaller after *error*, as the document says.

        Raises:
            BaseException: *error*, where no manager makes it smaller.
            Exception: See `run_on_overflow`.
        """
        self._show_until(self.context.contents.first + self.context.settled)
        self._is_overflow = True
        try:
            with self._whole():
                self._note("on_overflow", await run_on_overflow(management, self, error))
                await completed(self._write())
        finally:
            self._is_overflow = False
        self._tell_all()

    def hand_out(self) -> None:
        """Take note that the model is called now."""
        self.called_at_s = time.monotonic()

    def view(self) -> ContextView:
        """Return the context as it stands, without what was added since the hook fired."""
        context, end = self.context, self._end - self.context.contents.first
        unseen = sum(entry.tokens for entry in context.contents.since(end))
        return situation_of(
            context,
            end=end,
            size=self.room.size,
            tokens=self.room.tokens - unseen,
            stubs=self.results.stubs,
            showing=self._showing,
            idle_s=time.monotonic() - self.called_at_s,
            is_overflow=self._is_overflow,
        )

    async def evict(self, step: Evict) -> ActionResult:
        """Archive messages, and let go of them; see `ContextEditor`."""
        leaving = await self._leaving(step)
        extent = self.compressing.extent(leaving.cut)
        await self.compressing.let_go(extent, leaving, has_notice=step.notice)
        gone = leaving.cut - len(leaving.lasting) - len(leaving.again)
        return ActionResult(f"{gone:,} messages left for the archive")

    async def summarize(self, step: Summarize) -> ActionResult:
        """Archive messages, and put a summary in their place; see `ContextEditor`."""
        before = self.view().tokens
        leaving = await self._leaving(step)
        writing, context = self.writers.of(step), self.context
        again, lasting = (sum(context.contents[at].tokens for at in some) for some in (leaving.again, leaving.lasting))
        previous = context.summary[0].tokens if context.summary else 0
        leaving_tokens = sum(entry.tokens for entry in context.contents.until(leaving.cut)) - again - lasting
        leaving_tokens += sum(entry.tokens for entry in context.again if entry.index not in leaving.staying)
        refused = writing.refused(leaving.cut, leaving_tokens, self.room.size, previous)
        if refused is not None:
            return refused
        extent = self.compressing.extent(leaving.cut)
        ready = await self.compressing.made(
            extent,
            writing.config,
            compressor=writing.compressor,
            max_tokens=self.room.summary_tokens(leaving.cut, writing.config, again),
        )
        summary = await self.compressing.show(ready, leaving)
        return writing.done(summary, leaving.cut, extent.tokens, is_reduced=self.view().tokens < before)

    async def replace(self, step: Replace) -> ActionResult:
        """Store a part of a message, and put there what stands for it; see `ContextEditor`."""
        contents = self.context.contents
        entry = contents[step.position]
        if contents.first + step.position < self.context.attempted:
            return ActionResult(f"message {entry.index} stays: it is archived as it is", is_reduced=False)
        if step.texts and not self._is_overflow and not await self.choosing.may_leave(entry, step.result):
            return ActionResult(f"message {entry.index} stays: should_offload keeps it", is_reduced=False)
        changed = await replaced(entry, step, self.results, self.choosing)
        if changed is entry:
            return ActionResult(
                f"message {entry.index} stays: nothing of it may leave, or would be smaller", is_reduced=False
            )
        self._put(step.position, changed)
        return ActionResult(f"message {entry.index}: {step.reason}; {entry.tokens:,} tokens became {changed.tokens:,}")

    async def pin(self, step: Pin) -> ActionResult:
        """Remember which messages stand again; see `ContextEditor`. Those for which there is no room are not pinned."""
        context, pinned = self.context, list[int]()
        views = [entry.message for entry in context.contents]
        for position in step.positions:
            entry, entries = context.contents[position], list(context.contents)
            # A pinned call keeps its results, and they keep theirs: all of it needs room once it is archived.
            group = closed(views, [position, *(at for at, kept in enumerate(entries) if kept.stays)])
            group_tokens = sum(entries[at].tokens for at in group if not entries[at].stays)
            if context.least_tokens() + group_tokens <= _MOST_PINNED * self.room.limit:
                self._put(position, replace(entry, pinned=True))
                pinned.append(entry.index)
        if pinned:
            self._pins_before = list(context.pins) if self._pins_before is None else self._pins_before
            context.pins = sorted({*context.pins, *pinned})
        left = len(step.positions) - len(pinned)
        problems = (f"{left:,} messages are too large to be pinned in this window",) if left else ()
        return ActionResult(f"{len(pinned):,} messages are pinned: {step.reason}", is_reduced=False, problems=problems)

    async def _fire(self, management: ContextManagement, hook: Hook) -> None:
        if management.entries(hook):
            self._note(hook, await run(management, hook, self))

    def _note(self, hook: Hook, report: ManagementReport) -> None:
        self.report.entries += report.entries
        self._untold.append(ContextManaged(hook, report))

    def _tell_all(self) -> None:
        self.results.tell()
        while self._untold:
            self.compressing.tell(self._untold.pop(0))

    def _show_until(self, end: int) -> None:
        self._end = end
        self._done_events = len(self.results.untold)

    @contextmanager
    def _whole(self) -> Generator[None]:
        """Take back what is not written down where the block fails."""
        try:
            yield
        except BaseException:
            for index, entry in self._before.items():
                self.context.contents.replace(index - self.context.contents.first, entry)
            if self._pins_before is not None:
                self.context.pins = self._pins_before
            del self.results.untold[self._done_events :]
            self._written()
            raise

    def _written(self) -> None:
        self._before.clear()
        self._pins_before = None
        self._done_events = len(self.results.untold)

    async def _write(self) -> None:
        """Write down what was added and what was changed."""
        context, contents = self.context, self.context.contents
        end = self._end - contents.first
        new, pins = contents.since(context.settled, end), context.pins_until(end)
        has_changed = any(index < contents.first + context.settled for index in self._before)
        if has_changed:
            await self.keeping.replace(context.standing(), contents.until(end), contents.first, pins)
        elif new:
            await self.keeping.extend(new, pins)
        elif self._pins_before is not None:
            await self.keeping.check(pins)
        context.settled = end
        if has_changed:
            self.choosing.restart(contents, end)
        else:
            self.choosing.settle(new)
        self._written()

    async def _leaving(self, step: Evict | Summarize) -> Leaving:
        """Write down what stands, and return what leaves: no less than an earlier attempt has tried to archive."""
        await completed(self._write())
        cut, standing, at_least = step.cut, step.reinserted, self.context.attempted - self.context.contents.first
        if cut < at_least:
            legal = LegalCuts(self.view())
            cut = min((cut for cut in legal.cuts if cut >= at_least), default=at_least)
            standing = legal.reinserted(cut)
        return leaving_as(self.context, cut, standing, step.prefix)

    async def _offload_by_hand(self, new: list[Entry]) -> None:
        for entry in new:
            if entry.by_hand:
                changed = await self.results.offload_by_hand(entry, max_tokens=self.config.preview_tokens)
                self._put(entry.index - self.context.contents.first, changed)

    def _put(self, position: int, entry: Entry) -> None:
        contents = self.context.contents
        self._before.setdefault(entry.index, contents[position])
        contents.replace(position, entry)


_conforms: type[ContextEditor] = ContextManaging
