"""Deciding what messages look like, and writing that down before anybody is shown them."""

import logging
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from buoyline.compression import ContextConfig
from buoyline.window.choosing import Choices, ResultChoosing
from buoyline.window.completion import completed
from buoyline.window.context import Context
from buoyline.window.fitting import Fitting
from buoyline.window.images import ImageLimit
from buoyline.window.keeping import ContextKeeping
from buoyline.window.offloading import ResultOffloading
from buoyline.window.room import Room

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
