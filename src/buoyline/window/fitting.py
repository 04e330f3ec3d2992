"""Making a context fit where even the newest messages are too much: what was kept of tool results shrinks."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from buoyline.window.choosing import WORTH_OFFLOADING_TOKENS, ResultChoosing
from buoyline.window.context import Context
from buoyline.window.entry import Entry
from buoyline.window.offloading import ResultOffloading


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
        self, context: Context, fits: Callable[[], bool], shrunk: Callable[[Entry], Awaitable[Entry]], *, kept: bool
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
