"""Letting the oldest messages of an agent leave its history for the workspace, and keeping account of it."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from buoyline.compression import Compressor, ContextConfig, Draft, Extent, Summarizer, Summary, summary_from
from buoyline.compression.budget import LEAST_SUMMARY_TOKENS, SMALL_SUMMARY_TOKENS, summary_budget_tokens
from buoyline.compression.rendering import Place
from buoyline.compression.summary import BatchReference
from buoyline.errors import NotFoundError
from buoyline.integrations.strands.history import DIALECT, NativeMessage, views_of
from buoyline.messages import Text, dialect_named, parse, spell
from buoyline.offloader import Abilities, Offloader, StoredResult, abilities_of
from buoyline.tokens import TextCounter
from buoyline.tokens.messages import count_message

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Departures:
    """The messages of one agent that have left its history, as far as this process knows.

    Attributes:
        offloader: Takes them.
        counter: Counts tokens.
        config: What a summary looks like, and what it may take.
        left: Session index of the message that leaves next: so many have left.
        summary: What stands in the history for those; None before the first, and without summaries.
        abilities: What *offloader* can do.
    """

    offloader: Offloader
    counter: TextCounter
    config: ContextConfig
    left: int = 0
    summary: Summary | None = None
    abilities: Abilities = field(init=False)
    _unnoticed: int = field(default=0, init=False)
    _batches: tuple[BatchReference, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        """Ask the offloader once what it can do."""
        self.abilities = abilities_of(self.offloader)

    def use(self, offloader: Offloader) -> None:
        """Keep what leaves in *offloader* from now on."""
        self.offloader, self.abilities = offloader, abilities_of(offloader)

    async def archive(self, session_id: str, messages: Sequence[NativeMessage]) -> tuple[Extent, Place]:
        """Make *messages* durable, each once, also where an earlier attempt came to nothing half-way.

        Nothing is forgotten yet, and `left` stays: call `settle` when the history is without them.

        Returns:
            What leaves, and where it is.

        Raises:
            BuoylineError: It was refused; nothing was changed.
            Exception: Whatever an offloader of the user's raises.
        """
        first, archived = await self._continued(session_id, messages)
        counts = await asyncio.to_thread(self.counts, messages)
        extent = Extent(
            session_id, first, list(messages), sum(counts), archived=archived, dialect=DIALECT, batches=self._batches
        )
        place = await Compressor(self.offloader, config=self.config, counter=self.counter).archive(extent)
        self._batches = place.batches
        self._unnoticed = len(messages) if self.abilities.archive is None else 0
        return replace(extent, stubs=await self.stubs_in(session_id, messages)), place

    async def summarize(
        self,
        extent: Extent,
        place: Place,
        *,
        size: int,
        summarizer: Summarizer | None,
        is_recovery: bool,
        max_tokens: int | None = None,
    ) -> Summary:
        """Return the checked and recorded summary of what was archived, which brings the last one up to date.

        Args:
            extent: See `archive`.
            place: See `archive`.
            size: Tokens of the model's window.
            summarizer: Writes it; None: the extractive one, which needs no model and is also the fallback.
            is_recovery: What stands for the messages has to be small. The extractive one writes no more than half of
                what leaves, and takes over if the summary has more than *max_tokens*.
            max_tokens: In recovery, of the summary; None for any number.

        Raises:
            BuoylineError: The offloader refused to keep it; nothing was changed.
        """
        compressor = Compressor(self.offloader, config=self.config, counter=self.counter, summarizer=summarizer)
        previous = self._previous()
        if summarizer is not None or not is_recovery:
            replaced_tokens = 0 if self.summary is None else self.summary.tokens
            most = self.summary_tokens(extent.tokens, size, replaced_tokens=replaced_tokens)
            most = most if max_tokens is None else max(min(most, max_tokens), LEAST_SUMMARY_TOKENS)
            summary = await compressor.summarize(extent, place, previous=previous, max_tokens=most)
            if not is_recovery or max_tokens is None or summary.tokens <= max_tokens:
                return await compressor.record(extent.session_id, summary)
            logger.warning("a summary of %d tokens is too long; the extractive summariser takes over", summary.tokens)
        most = self.summary_tokens(extent.tokens, size, least=LEAST_SUMMARY_TOKENS)
        summary = await compressor.summarize(extent, place, previous=previous, max_tokens=most, use_model=False)
        return await compressor.record(extent.session_id, summary)

    def summary_tokens(
        self, leaving_tokens: int, size: int, *, replaced_tokens: int = 0, least: int = SMALL_SUMMARY_TOKENS
    ) -> int:
        """Return what a summary of *leaving_tokens* may take in a window of *size*.

        *least* is less only where the history has to become smaller, and *replaced_tokens* is 0 there.
        """
        limit = self.config.summary_limit(size)
        return summary_budget_tokens(leaving_tokens, limit, replaced_tokens=replaced_tokens, least_tokens=least)

    def settle(self, extent: Extent, summary: Summary | None) -> None:
        """Take note that the history is without *extent* now, and that *summary* stands for it."""
        self.left, self.summary, self._unnoticed = extent.end, summary, 0

    def counts(self, messages: Sequence[NativeMessage]) -> list[int]:
        """Return the tokens of each message; large ones take a while."""
        return [count_message(view, self.counter) for view in views_of(messages)]

    async def stubs_in(self, session_id: str, messages: Sequence[NativeMessage]) -> dict[str, StoredResult]:
        """Return the stored results behind what stands in the results of *messages*, by the texts that do."""
        if self.abilities.results is None:
            return {}
        parts = (part for view in views_of(messages) for result in view.results for part in result.parts)
        texts = [part.text for part in parts if isinstance(part, Text)]
        try:
            return await self.abilities.results.load_stubs(session_id, texts) if texts else {}
        except NotFoundError:  # nothing was ever stored in the session
            return {}

    def to_json(self) -> dict[str, Any]:
        """Return what another process needs to go on."""
        return {"left": self.left, "summary": None if self.summary is None else self.summary.to_json()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `to_json` gave in another process."""
        self.left, summary = int(state["left"]), state["summary"]
        self.summary = None if summary is None else summary_from(summary)

    def _previous(self) -> Draft | None:
        return None if self.summary is None else self.summary.draft

    async def _continued(self, session_id: str, messages: Sequence[NativeMessage]) -> tuple[int, int]:
        """Return the session index that the first of *messages* has or gets, and how many of them are archived.

        The archive may be ahead of the agent: a process was killed, or failed, between archiving and what Strands
        keeps of its manager. Where the archive then holds something else than *messages*, as after a return to an
        older snapshot, they go behind it: nothing is lost, and what was archived stays.
        """
        archive = self.abilities.archive
        if archive is None:
            return self.left, min(self._unnoticed, len(messages))
        held = (await archive.archive(session_id, [])).first
        if held <= self.left:
            return held, 0
        end = min(held, self.left + len(messages))
        ahead = await archive.load_messages(session_id, self.left, end)
        pairs = zip(ahead, messages, strict=False)
        if all(await asyncio.to_thread(lambda: [_is_same(named, value, message) for (named, value), message in pairs])):
            return self.left, len(ahead)
        return held, 0


def _is_same(dialect: str, archived: Mapping[str, Any], message: NativeMessage) -> bool:
    """Tell whether *archived* is *message*, which Strands may have mended since where it restored it."""
    tracking_id = message.get("tracking_id")
    if tracking_id and archived.get("tracking_id"):
        return bool(tracking_id == archived["tracking_id"])
    value: object = parse(spell(dialect_named(DIALECT).to_json(message)))
    return dialect == DIALECT and archived == value
