"""The engine of a window: the steps before a model call, and their order."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, islice, product
from typing import Final

from buoyline.compression import Compressor, ContextConfig, Summarizer
from buoyline.compression.summarizers.callables import SummaryFunction
from buoyline.errors import ContextOverflowError
from buoyline.management import ContextManagement, ManagementReport
from buoyline.management.rules import LegalCuts
from buoyline.offloader.policy import WORTH_OFFLOADING_TOKENS
from buoyline.window.compaction import Compaction
from buoyline.window.context import Change, Context, Extend, StateDraft
from buoyline.window.events import ResultOffloaded
from buoyline.window.hooks import DocumentHooks
from buoyline.window.offloading import PartPlace, ResultOffloader
from buoyline.window.plan import Choices
from buoyline.window.state import Entry, State, is_image
from buoyline.window.tasks import completed

logger = logging.getLogger(__name__)

LEAST_PROGRESS: Final = 0.1
"""Share by which a context must shrink after an overflow."""


class Engine:
    """Keeps a context under the limits of its window.

    Attributes:
        asked: Focus of a requested compaction, and the first message of the context then.
    """

    def __init__(
        self,
        context: Context,
        results: ResultOffloader,
        config: ContextConfig,
        *,
        summarizer: Summarizer | SummaryFunction | None = None,
        summarizers: Mapping[str, Summarizer | SummaryFunction] | None = None,
        dialect: str | None = None,
    ) -> None:
        """Put the engine to work on *context*; see `ContextWindow` and `Compaction` for the arguments."""
        self.context = context
        self.results = results
        self.config = config
        counter = context.budget.counter
        compressor = Compressor(
            results.offloader, config=config, counter=counter, summarizer=summarizer, on_event=context.tell
        )
        self.compaction = Compaction(context, results, compressor, dialect)
        self.hooks = DocumentHooks(self.compaction, config, summarizers or {})
        self.asked: tuple[str, int] | None = None

    async def settle(self, document: ContextManagement | None) -> None:
        """Decide the form of the added messages, and write them.

        Raises:
            StaleWindowError: Another window has taken the session over.
            StorageError: The file system refused; the context is as it was.
            Exception: Whatever a manager raises; the context is as it was.
        """
        await self.compaction.finish()
        self.hooks.report = ManagementReport()
        if document is not None:
            self.compaction.preserves_words = True
            await self.hooks.settle(document)
            return
        self.context.emit()
        if new := self.context.inbox[:]:
            await completed(self._settle(new, self.context.planner.choose(new)))

    async def _settle(self, new: Sequence[Entry], choices: Mapping[int, Choices]) -> None:
        """Offload the chosen results of *new* messages, and write these; later messages wait for the next call."""
        staged, events = list[Entry](), list[ResultOffloaded]()
        for entry in new:
            shown = entry
            if entry.by_hand:
                shown = await self.results.offload_by_hand(entry, self.config.preview_tokens, events)
            staged.append(await self.results.replace(shown, choices.get(entry.index, {}), events))

        def settled(now: State) -> Change:
            state = now.extended(staged)
            return Change(state, Extend(staged, state.pins), events)

        await self.context.commit(settled)
        self.context.emit()

    async def make_room(self, *, at_trigger: bool) -> None:
        """Limit the images, compact above the trigger, and shrink what still does not fit."""
        await self.limit_images()
        focus = self._asked_focus()
        is_full = self.context.tokens > self.context.budget.limit
        if focus is not None or is_full or (at_trigger and self._is_too_much()):
            await self.compaction.compact(self.config, focus or "")
        await self.fit(self.context.budget.limit)

    async def manage(self, document: ContextManagement) -> None:
        """Fire ``pre_llm``; if the context does not fit then, do as without a document."""
        focus = self._asked_focus()
        if focus is not None:
            await self.compaction.compact(self.config, focus)
        await self.hooks.fire(document, "pre_llm")
        await self.limit_images()
        if self.context.tokens > self.context.budget.limit:
            await self._compact_for(document, self.config)
        await self.fit(self.context.budget.limit)

    async def recover(self, tokens: int, document: ContextManagement | None, error: BaseException | None) -> None:
        """Make a context that took *tokens*, and was refused with *error*, a tenth smaller.

        Raises:
            ContextOverflowError: The messages that must stay are too large.
        """
        target = int(tokens * (1 - LEAST_PROGRESS))
        for settings in (self.config, replace(self.config, reserve_ratio=0.0)):
            if self.context.tokens > target:
                await self._compact_for(document, settings, max_context_tokens=target)
        await self.fit(target)
        if self.context.tokens > target:
            tokens, limit = self.context.tokens, self.context.budget.limit
            raise ContextOverflowError(tokens, limit, f"the newest messages alone take {tokens:,} tokens") from error

    async def limit_images(self) -> None:
        """Offload the oldest images if there are too many.

        This changes messages that were handed out, and costs the provider's cache. So that it happens seldom, a quarter
        of the limit is offloaded at once. (Source: Anthropic's reference implementation for computer use, which
        removes screenshots in groups for the same reason.)

        Images in pinned and system messages stay, and so do those in messages that are archived already, which keep
        their form until they are evicted.
        """
        if self._excess_images(self.context.whole):
            await completed(self._limit_images())

    async def _limit_images(self) -> None:
        draft = StateDraft.of(self.context.state)
        wanted = max(self._excess_images(self.context.whole), (self.config.max_images or 0) // 4)
        for position, places in groupby(islice(_images(draft.base), wanted), key=lambda found: found[0]):
            chosen = [place for _, place in places]
            draft.put(position, await self.results.offload_images(draft.messages[position], chosen, draft.events))
        await self._commit(draft)

    async def fit(self, max_tokens: int) -> None:
        """Shrink tool results that were kept, largest first, while the context takes more than *max_tokens*.

        First results become stubs, then stubs become bare stubs, then smaller results become bare stubs, too. Results
        that a rule keeps come last.
        """
        if self.context.tokens <= max_tokens:
            return
        await completed(self._fit(max_tokens))
        if self.context.tokens > max_tokens:
            session_id = self.results.session_id
            logger.warning("session %s: %d tokens do not fit %d", session_id, self.context.tokens, max_tokens)

    async def _fit(self, max_tokens: int) -> None:
        context, draft, preview_tokens = self.context, StateDraft.of(self.context.state), self.config.preview_tokens
        # Each step has the limit of a result, and the tokens of its stub.
        steps = ((preview_tokens, preview_tokens), None, (WORTH_OFFLOADING_TOKENS, 1))
        for is_kept, step in product((False, True), steps):
            messages = draft.messages
            for position in sorted(draft.base.movable, key=lambda at: -messages[at].tokens):
                if context.budget.tokens(context.with_inbox(draft.state)) <= max_tokens:
                    break
                entry = draft.messages[position]
                if context.planner.keeps(entry) is not is_kept:
                    continue
                if step is None:
                    shrunk = await self.results.shrink(entry)
                else:
                    shrunk = await self.results.replace(entry, context.planner.over(entry, *step), draft.events)
                draft.put(position, shrunk)
        await self._commit(draft)

    async def _commit(self, draft: StateDraft) -> None:
        if draft.is_changed:
            await self.context.commit(draft.change)
            self.context.emit()

    async def _compact_for(
        self,
        document: ContextManagement | None,
        settings: ContextConfig,
        *,
        max_context_tokens: int | None = None,
    ) -> None:
        """Compact; with a document only if messages are evicted that are not reinserted.

        After an overflow there is a limit for the whole context, and no model is asked.
        """
        if document is not None:
            cut = self.compaction.planned(settings).cut
            if not cut or not LegalCuts(self.compaction.view()).removed_count(cut):
                return
        await self.compaction.compact(
            settings, use_model=max_context_tokens is None, max_context_tokens=max_context_tokens
        )

    def _is_too_much(self) -> bool:
        # If there are too many images, and they are archived already, they go with their messages: the provider would
        # refuse them.
        state = self.context.whole
        has_stuck = self._excess_images(state) > 0 and state.attempted_until > state.messages.first
        return has_stuck or self.context.budget.exceeds(state, self.config)

    def _excess_images(self, state: State) -> int:
        limit = self.config.max_images
        return 0 if limit is None else max(state.images - limit, 0)

    def _asked_focus(self) -> str | None:
        """Return the focus of a compaction that was requested; None without one, or once one has come."""
        if self.asked is None or self.asked[1] != self.compaction.first:
            return None
        return self.asked[0]


def _images(state: State) -> Iterator[tuple[int, PartPlace]]:
    """Yield position and place of each image that may be offloaded, the oldest first."""
    for position in state.movable:
        entry = state.messages[position]
        if entry.images and not entry.stays:
            parts, results = entry.message.parts, enumerate(entry.message.results)
            yield from ((position, PartPlace(number)) for number, part in enumerate(parts) if is_image(part))
            for at, result in results:
                found = (number for number, part in enumerate(result.parts) if is_image(part))
                yield from ((position, PartPlace(number, at)) for number in found)
