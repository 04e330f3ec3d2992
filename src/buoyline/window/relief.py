"""Making room in a context, by its configuration or by a document."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from buoyline.compression import ContextConfig, Summary
from buoyline.errors import ContextOverflowError
from buoyline.management import ContextManagement, Entry
from buoyline.management.custom import Custom
from buoyline.management.cutting import Cutting
from buoyline.management.running import LEAST_PROGRESS
from buoyline.window.ahead import CompressionAhead
from buoyline.window.compressing import ContextCompressing
from buoyline.window.context import Context
from buoyline.window.managing import ContextManaging
from buoyline.window.room import Room
from buoyline.window.shaping import ContextShaping
from buoyline.window.situating import situation_of


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
            if not cut or not Cutting(situation_of(self.context)).leaving(cut):
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
    return any(isinstance(entry.manager, Custom) for entry in _for_overflow(management))


def _has_overflow(management: ContextManagement) -> bool:
    return bool(_for_overflow(management))


def _for_overflow(management: ContextManagement) -> list[Entry]:
    before = [entry for entry in management.entries("pre_llm") if entry.activation.on_overflow]
    return [*management.entries("on_overflow"), *before]
