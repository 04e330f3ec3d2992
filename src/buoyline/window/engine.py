"""Making room in a context, by its configuration or by a document."""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from typing import Any

from buoyline.compression import ContextConfig, Summary
from buoyline.errors import ContextOverflowError
from buoyline.management import ContextManagement, ManagerEntry
from buoyline.management.custom import CustomManager
from buoyline.management.rules import LegalCuts
from buoyline.management.run import LEAST_PROGRESS
from buoyline.window.background import CompressionAhead
from buoyline.window.budget import Room
from buoyline.window.compaction import ContextCompressing
from buoyline.window.hooks import ContextManaging
from buoyline.window.log import ContextKeeping
from buoyline.window.offloading import Place, ResultOffloading
from buoyline.window.plan import WORTH_OFFLOADING_TOKENS, Choices, ResultChoosing
from buoyline.window.state import Context, Entry, is_image, situation_of
from buoyline.window.tasks import completed

# Making a context fit where even the newest messages are too much: what was kept of tool results shrinks.


@dataclass(frozen=True, slots=True)
class Fitting:
    """Shrinks tool results, largest first, until the context fits.

    Attributes:
        results: Replaces what leaves.
        choosing: Knows what is large, and what a rule keeps.
        preview_tokens: Of a stub.
    """

    results: ResultOffloading
    choosing: ResultChoosing
    preview_tokens: int

    async def shrink(self, context: Context, fits: Callable[[], bool]) -> bool:
        """Shrink results of *context* until it *fits*, or until nothing is left to be shrunk.

        First each becomes a stub, then stubs become notices, then what is worth no stub does; what a rule wants to
        keep comes after all else.

        Returns:
            True if anything was changed.

        Raises:
            StorageError: The file system refused.
        """
        steps = (self._stubbed, self.results.shrink, self._noticed)
        before = context.contents.tokens
        for kept in (False, True):
            for shrunk in steps:
                await self._shrink(context, fits, shrunk, kept=kept)
        return context.contents.tokens != before

    async def _shrink(
        self,
        context: Context,
        fits: Callable[[], bool],
        shrunk: Callable[[Entry], Awaitable[Entry]],
        *,
        kept: bool,
    ) -> None:
        """Shrink what no rule wants to keep, or what one does: a rule holds as long as the rest makes room."""
        contents = context.contents
        for position in sorted(context.movable(), key=lambda position: -contents[position].tokens):
            if fits():
                break
            if self.choosing.keeps(contents[position]) is kept:
                contents.replace(position, await shrunk(contents[position]))

    async def _stubbed(self, entry: Entry) -> Entry:
        choices = self.choosing.over(entry, self.preview_tokens, self.preview_tokens)
        return await self.results.replace(entry, choices)

    async def _noticed(self, entry: Entry) -> Entry:
        return await self.results.replace(entry, self.choosing.over(entry, WORTH_OFFLOADING_TOKENS, 1))


# A limit on the pictures in a context: providers refuse requests with more than so many.


@dataclass(frozen=True, slots=True)
class ImageLimit:
    """Takes the oldest pictures out of a context that has more than it may.

    What a message looks like changes here after it was handed out, and with it what a provider has cached. So that this
    happens seldom, a quarter of the limit leaves at once. (Source: Anthropic's reference implementation for computer
    use, which removes screenshots in groups for the same reason.)

    Attributes:
        results: Replaces pictures.
        max_images: So many may stand in the context; None: any number.
    """

    results: ResultOffloading
    max_images: int | None

    def excess(self, context: Context) -> int:
        """Return how many pictures there are too many."""
        if self.max_images is None:
            return 0
        return max(context.images - self.max_images, 0)

    async def enforce(self, context: Context) -> bool:
        """Offload the oldest pictures of *context*, where there are too many.

        Pictures in pinned and system messages stay, and so do those in messages that are archived already, which
        keep their form until they leave.

        Returns:
            True if anything was changed.

        Raises:
            StorageError: The file system refused.
        """
        excess = self.excess(context)
        if not excess or self.max_images is None:
            return False
        wanted = max(excess, self.max_images // 4)
        chosen = islice(_images(context), wanted)
        contents, has_changed = context.contents, False
        for position, places in groupby(chosen, key=lambda found: found[0]):
            entry = await self.results.offload_images(contents[position], [place for _, place in places])
            contents.replace(position, entry)
            has_changed = True
        return has_changed


def _images(context: Context) -> Iterator[tuple[int, Place]]:
    """Yield position and place of each picture that may leave, the oldest first."""
    for position in context.movable():
        entry = context.contents[position]
        if entry.images and not entry.stays:
            yield from ((position, place) for place in _places(entry))


def _places(entry: Entry) -> Sequence[Place]:
    parts = entry.message.parts
    own = [Place(number) for number, part in enumerate(parts) if is_image(part)]
    results = enumerate(entry.message.results)
    return own + [
        Place(number, at) for at, result in results for number, part in enumerate(result.parts) if is_image(part)
    ]


# Deciding what messages look like, and writing that down before anybody is shown them.


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ContextShaping:
    """Replaces what is too large or too many in the messages of a context.

    Each step is whole or not at all: memory and disk change together, and nobody is told of what failed.

    Attributes:
        context: What stands in it.
        room: Says how much may.
        results: Replaces results and pictures.
        choosing: Says which.
        keeping: Writes the context down.
        config: Has the limits.
    """

    context: Context
    room: Room
    results: ResultOffloading
    choosing: ResultChoosing
    keeping: ContextKeeping
    config: ContextConfig

    @property
    def images(self) -> ImageLimit:
        """What limits the pictures."""
        return ImageLimit(self.results, self.config.max_images)

    async def settle(self) -> None:
        """Decide about the new messages; those that come meanwhile wait for the next time."""
        self.results.tell()
        end = len(self.context.contents)
        choices = await self.choosing.choose(self.context.contents.since(self.context.settled, end))
        await completed(self._settle(choices, end))

    async def limit_images(self) -> None:
        """Offload the oldest pictures where there are too many."""
        if self.images.excess(self.context):
            await completed(self._rewrite(self.images.enforce(self.context)))

    async def fit(self, max_tokens: int) -> None:
        """Shrink tool results that were kept, largest first, while the context takes more than *max_tokens*."""
        if self.room.tokens <= max_tokens:
            return
        fitting = Fitting(self.results, self.choosing, self.config.preview_tokens)
        await completed(self._rewrite(fitting.shrink(self.context, lambda: self.room.tokens <= max_tokens)))
        if self.room.tokens > max_tokens:
            logger.warning("session %s: %d tokens do not fit %d", self.keeping.session_id, self.room.tokens, max_tokens)

    async def _settle(self, choices: Mapping[int, Choices], end: int) -> None:
        context, contents = self.context, self.context.contents
        with self.results.told_when_done(), contents.unchanged_on_failure(context.settled, end):
            for position in range(context.settled, end):
                entry = contents[position]
                if entry.by_hand:
                    entry = await self.results.offload_by_hand(entry, max_tokens=self.config.preview_tokens)
                contents.replace(position, await self.results.replace(entry, choices.get(entry.index, {})))
            new = contents.since(context.settled, end)
            await self.keeping.extend(new, context.pins_until(end))
            context.settled = end
            self.choosing.settle(new)

    async def _rewrite(self, change: Coroutine[Any, Any, bool]) -> None:
        """Change messages that may have been shown, and put them all down anew."""
        context = self.context
        with self.results.told_when_done(), context.contents.unchanged_on_failure(0, context.settled):
            if await change:
                pins = context.pins_until(context.settled)
                await self.keeping.replace(context.standing(), context.written(), context.contents.first, pins)
                self.choosing.restart(context.contents, context.settled)


@dataclass(slots=True)
class ContextRelief:
    """Decides, before a model call, what has to be done so that the context fits.

    Attributes:
        shaping: Shrinks results, and limits pictures.
        compressing: Lets messages leave.
        ahead: Has what was made ready in the background.
        config: Says when.
        asked: Focus of a compression that was asked for, and the first message of the context then.
    """

    shaping: ContextShaping
    compressing: ContextCompressing
    ahead: CompressionAhead
    config: ContextConfig
    asked: tuple[str, int] | None = None
    context: Context = field(init=False)
    room: Room = field(init=False)

    def __post_init__(self) -> None:
        """Take hold of what the window is made of."""
        self.context, self.room = self.compressing.context, self.compressing.room

    async def make_room(self) -> None:
        """Limit the pictures, compress above the trigger, and shrink what still does not fit."""
        await self.shaping.limit_images()
        focus = self._asked_focus()
        if focus is not None or self._is_too_much():
            await self.compress(focus or "")
        await self.shaping.fit(self.room.limit)

    async def manage(self, management: ContextManagement, managing: ContextManaging) -> None:
        """Fire ``pre_llm``; where the context does not fit the window then, ``on_overflow``, and at last do as without.

        The null document leaves the context as it is.
        """
        await self.ahead.take()
        focus = self._asked_focus()
        if focus is not None:
            await managing.fire(management, "pre_compress")
            await self.compress(focus)
        await managing.fire(management, "pre_llm")
        if management.is_null:
            return
        if self.room.tokens > self.room.limit:
            await self._overflow(management, managing)
        await self.shaping.limit_images()
        if self.room.tokens > self.room.limit:
            await self._compress_for(management, managing, self.config)
        await self.shaping.fit(self.room.limit)

    def look_ahead(self, management: ContextManagement | None) -> None:
        """Begin a compression in the background where the configuration says so, and no document is there."""
        ratio = self.config.background_ratio
        if management is None and ratio is not None and self.ahead.may_begin and self.room.exceeds(ratio):
            self.ahead.begin(self.config)

    async def compress(self, focus: str = "") -> Summary | None:
        """Compress with what is ready in the background where that will do, else from the beginning."""
        if focus:
            await self.ahead.drop()
        summary = await self.ahead.take()
        if summary is None or self._is_too_much():
            summary = await self.compressing.compress(self.config, focus) or summary
        return summary

    async def recover(
        self,
        tokens: int,
        management: ContextManagement | None,
        managing: ContextManaging,
        error: BaseException | None,
    ) -> None:
        """Make a context that took *tokens*, and was refused with *error*, a tenth smaller.

        Raises:
            BaseException: *error*, where the document is the null document, or has managers of a user's own for an
                overflow and no manager made the context smaller.
            ContextOverflowError: What must stay leaves no room.
        """
        target = int(tokens * (1 - LEAST_PROGRESS))
        if management is not None and (_has_overflow(management) or management.is_null):
            await self._ask(management, managing, error or self._overflowing())
        for settings in (self.config, replace(self.config, reserve_ratio=0.0)):
            if self.room.tokens > target:
                await self._compress_for(management, managing, settings, max_context_tokens=target)
        await self.shaping.fit(target)
        if self.room.tokens > target:
            raise self._overflowing()

    async def _overflow(self, management: ContextManagement, managing: ContextManaging) -> None:
        """Let the managers of an overflow run; whether they find anything or not, what follows sees to the rest."""
        if not _has_overflow(management):
            return
        error = self._overflowing()
        with _going_on(error):
            await managing.overflow(management, error)

    async def _ask(self, management: ContextManagement, managing: ContextManaging, error: BaseException) -> None:
        """Let the managers of an overflow run; one of a user's own that says no lets *error* through.

        One of ours that finds nothing says no such thing: it may only look for what is larger than the newest result.
        """
        with _going_on(None if management.is_null or _has_own(management) else error):
            await managing.overflow(management, error)

    async def _compress_for(
        self,
        management: ContextManagement | None,
        managing: ContextManaging,
        settings: ContextConfig,
        *,
        max_context_tokens: int | None = None,
    ) -> None:
        """Compress, where with a document anything leaves: the user's newest words would only stand again.

        After an overflow there is a limit for the whole context, and no model is asked.
        """
        if management is not None:
            await managing.fire(management, "pre_compress")
            cut = self.compressing.planned(settings).cut
            if not cut or not LegalCuts(situation_of(self.context)).removed_count(cut):
                return
        await self.compressing.compress(
            settings, use_model=max_context_tokens is None, max_context_tokens=max_context_tokens
        )

    def _is_too_much(self) -> bool:
        # Pictures that are too many and archived already leave with their messages, or the provider would refuse them.
        has_stuck = (
            self.shaping.images.excess(self.context) > 0 and self.context.attempted > self.context.contents.first
        )
        return self.room.exceeds(self.config.trigger_ratio) or has_stuck

    def _asked_focus(self) -> str | None:
        """Return the focus of a compression that was requested; None without one, or once one has come."""
        if self.asked is None or self.asked[1] != self.context.contents.first:
            return None
        return self.asked[0]

    def _overflowing(self) -> ContextOverflowError:
        tokens = self.room.tokens
        return ContextOverflowError(tokens, self.room.limit, f"the newest messages alone take {tokens:,} tokens")


@contextmanager
def _going_on(error: BaseException | None) -> Generator[None]:
    """Go on where the block raises just *error*."""
    try:
        yield
    except BaseException as raised:
        if raised is not error:
            raise


def _has_own(management: ContextManagement) -> bool:
    return any(isinstance(entry.manager, CustomManager) for entry in _for_overflow(management))


def _has_overflow(management: ContextManagement) -> bool:
    return bool(_for_overflow(management))


def _for_overflow(management: ContextManagement) -> list[ManagerEntry]:
    before = [entry for entry in management.entries("pre_llm") if entry.activation.on_overflow]
    return [*management.entries("on_overflow"), *before]
