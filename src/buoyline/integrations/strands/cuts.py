"""What those of our managers have in common that let the oldest messages leave at one cut."""

import asyncio
import logging
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from strands.agent.conversation_manager import ProactiveCompressionConfig
from strands.hooks import AfterInvocationEvent, AfterModelCallEvent, BeforeModelCallEvent, HookRegistry
from strands.types.exceptions import ContextWindowOverflowException

from buoyline.compression import Compressor, ContextConfig, Draft, Summarizer, Summary
from buoyline.compression.compressor import MessageRange
from buoyline.compression.config import LEAST_SUMMARY_TOKENS, SMALL_SUMMARY_TOKENS, summary_budget_tokens
from buoyline.compression.summary import BatchReference, summary_from
from buoyline.compression.summary_text import ArchiveLocation
from buoyline.errors import ConfigError, NotFoundError, StaleWindowError
from buoyline.integrations.strands.callbacks import run_apart
from buoyline.integrations.strands.conversation import FAILURES, WorkspaceConversationManager
from buoyline.integrations.strands.history import (
    DIALECT,
    Head,
    HistoryKeeping,
    Key,
    NativeMessage,
    durable_key,
    history_of,
    key_of,
    pinned,
    views_of,
)
from buoyline.messages import Message, Text, spell
from buoyline.messages.jsonl import parse
from buoyline.messages.registry import dialect_named
from buoyline.offloader import Abilities, Offloader, StoredResult
from buoyline.offloader.protocol import abilities_of
from buoyline.tokens import TextCounter, TokenCounter
from buoyline.tokens.messages import count_message, count_result, count_tools
from buoyline.window.follow import hand_over
from buoyline.window.log import AGAIN
from buoyline.window.offloading import ResultOffloader
from buoyline.window.plan import WORTH_OFFLOADING_TOKENS, Choice
from buoyline.window.settings import config_to_json
from buoyline.window.state import Entry, entry_beside
from buoyline.window.tasks import completed

if TYPE_CHECKING:
    from strands import Agent
    from strands.types.content import Message as StrandsMessage

# Letting the oldest messages of an agent leave its history for the workspace, and keeping account of it.


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

    async def archive(self, session_id: str, messages: Sequence[NativeMessage]) -> tuple[MessageRange, ArchiveLocation]:
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
        extent = MessageRange(
            session_id, first, list(messages), sum(counts), archived=archived, dialect=DIALECT, batches=self._batches
        )
        place = await Compressor(self.offloader, config=self.config, counter=self.counter).archive(extent)
        self._batches = place.batches
        self._unnoticed = len(messages) if self.abilities.archive is None else 0
        return replace(extent, stubs=await self.stubs_in(session_id, messages)), place

    async def summarize(
        self,
        extent: MessageRange,
        place: ArchiveLocation,
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

    def settle(self, extent: MessageRange, summary: Summary | None) -> None:
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
    """Return whether *archived* is *message*, which Strands may have mended since where it restored it."""
    tracking_id = message.get("tracking_id")
    if tracking_id and archived.get("tracking_id"):
        return bool(tracking_id == archived["tracking_id"])
    value: object = parse(spell(dialect_named(DIALECT).to_json(message)))
    return dialect == DIALECT and archived == value


# How many tokens the next model call will take, also right after a history became smaller.
#
# Strands projects them from the usage that stands at the last answer. That usage is of the context as it was; once
# messages have left, it is too high, and a history would be compressed again and again for nothing.


Count: TypeAlias = Callable[[Sequence[NativeMessage]], int]
"""Counts the tokens of a request with these messages, system prompt and tools included."""

_LEAST_SCALE: Final = 0.25
_MOST_SCALE: Final = 4.0
"""Beyond these a provider's number is that of something else, and one request must not decide about all others."""


@dataclass(slots=True)
class Projection:
    """What is known of the usage that stands in a history.

    Attributes:
        stale: The answer whose usage is of a context that is no more; None where the newest usage holds.
        scale: How many tokens of the provider's one of ours is.
    """

    stale: str | None = None
    scale: float = 1.0

    def tokens(self, messages: Sequence[NativeMessage], projected: int, count: Count) -> int:
        """Return the tokens of the next call, of which Strands thinks that they are *projected*.

        A usage of no input stands for no usage: Strands takes it for its baseline, and would count only what is new.
        """
        answer = last_answer(messages)
        if answer is not None and not _has_input(messages[answer]["metadata"]["usage"]):
            return max(projected, int(self.scale * count(messages)))
        if answer is None or key_of(messages[answer]) != self.stale:
            return projected
        return min(projected, int(self.scale * count(messages)))

    def outdated(self, messages: Sequence[NativeMessage], cut: int, count: Count) -> "Projection":
        """Return what is known once the oldest *cut* of *messages*, or something in them, have left."""
        answer = last_answer(messages)
        if answer is None or not _has_input(messages[answer]["metadata"]["usage"]):
            return Projection(None, self.scale)
        scale, key = self.scale, durable_key(messages[answer])
        if key != self.stale:
            ratio = _total(messages[answer]["metadata"]["usage"]) / max(count(messages[: answer + 1]), 1)
            scale = min(max(ratio, _LEAST_SCALE), _MOST_SCALE)
        return Projection(key if answer >= cut else None, scale)

    def to_json(self) -> dict[str, Any]:
        """Return what another process needs to go on."""
        return {"stale": self.stale, "scale": self.scale}


def projection_from(state: Mapping[str, Any]) -> Projection:
    """Read what `Projection.to_json` gave."""
    return Projection(state["stale"], float(state["scale"]))


def last_answer(messages: Sequence[Mapping[str, Any]]) -> int | None:
    """Return where the last answer stands that says what it has used."""
    for place in range(len(messages) - 1, -1, -1):
        metadata: Mapping[str, Any] = messages[place].get("metadata") or {}
        if messages[place].get("role") == "assistant" and metadata.get("usage"):
            return place
    return None


def _has_input(usage: Mapping[str, Any]) -> bool:
    names = ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")
    return any(int(usage.get(name) or 0) > 0 for name in names)


def _total(usage: Mapping[str, Any]) -> int:
    """Return what a request and its answer took.

    Source: Strands' own reading: cached tokens are beside the input where input and output are not the total already.
    """
    taken = int(usage["inputTokens"]) + int(usage["outputTokens"])
    if taken == usage.get("totalTokens"):
        return taken
    return taken + int(usage.get("cacheReadInputTokens") or 0) + int(usage.get("cacheWriteInputTokens") or 0)


# Making the tool results that stay in a history smaller: whole in the workspace, a stub in their place.


_STUB_TOKENS: Final = 250
"""As little as shows where a result is and how it begins and ends: the provider has refused what there was. Of a result
that is smaller than twice that, half."""


class Shrinking:
    """Shrinks results of one history, as far as is asked for. The history itself is not touched."""

    def __init__(
        self, offloader: Offloader, session_id: str, counter: TextCounter, stubs: Mapping[str, StoredResult]
    ) -> None:
        """Store whole results with *offloader*; *stubs* are the texts that stand for stored ones already."""
        self._counter = counter
        self._results = ResultOffloader(offloader, abilities_of(offloader), session_id, counter, stubs=dict(stubs))

    async def shrunk(
        self, messages: Mapping[int, NativeMessage], calls: Iterable[Message], wanted_tokens: int
    ) -> tuple[dict[int, NativeMessage], int]:
        """Return messages with smaller results, by position, and how many tokens they are less.

        Args:
            messages: Those that may shrink, by position, the first to shrink first.
            calls: Views of the history, for the names of the tools.
            wanted_tokens: Enough: the others stay as they are.

        Raises:
            StorageError: The file system refused; what was stored before stays stored.
        """
        self._results.tools.update((call.call_id, call.name) for view in calls for call in view.calls)
        found: dict[int, NativeMessage] = {}
        gained = 0
        for position, message in messages.items():
            if gained >= wanted_tokens:
                break
            entry = await entry_beside(message, position, self._counter, dialect=DIALECT)
            smaller = await self._smaller(entry)
            if smaller.tokens < entry.tokens:
                found[position] = smaller.native
                gained += entry.tokens - smaller.tokens
        return found, gained

    async def _smaller(self, entry: Entry) -> Entry:
        choices = {
            number: Choice(result.name or self._results.tools.get(result.call_id, ""), _stub_tokens(tokens))
            for number, result in enumerate(entry.message.results)
            if (tokens := count_result(result, self._counter)) > WORTH_OFFLOADING_TOKENS
            and not self._is_stub(result.parts)
        }
        if choices:
            return await self._results.replace(entry, choices, [])
        return await self._results.shrink(entry)

    def _is_stub(self, parts: Iterable[Any]) -> bool:
        return all(isinstance(part, Text) and part.text in self._results.stubs for part in parts)


def _stub_tokens(tokens: int) -> int:
    return min(_STUB_TOKENS, max(tokens // 2, WORTH_OFFLOADING_TOKENS))


# How much smaller a history becomes after an overflow.


LEAST_GAIN: Final = 0.1
_GAINS: Final = (LEAST_GAIN, 0.3, 0.5)


@dataclass(slots=True)
class Gains:
    """The share of the tokens that shall leave at the first overflow in a row, the second, and each further one.

    So a request that is refused again and again is below the provider's limit after a few calls, or the history cannot
    become smaller, and the overflow is raised. (Taking whatever leaves, as Strands' own does, took 1,916
    calls.)

    Attributes:
        overflows: So many came since the model answered last.
    """

    overflows: int = 0

    def next(self) -> float:
        """Return the share that shall leave now that the provider has refused the request once more."""
        gain = _GAINS[min(self.overflows, len(_GAINS) - 1)]
        self.overflows += 1
        return gain

    def forget(self) -> None:
        """Begin again: the model has answered."""
        self.overflows = 0


class LeavingConversationManager(WorkspaceConversationManager):
    """Lets the oldest messages leave at one cut, and says at the head of the history what they were, or where.

    What failed leaves history and `removed_message_count` as they were. That count is the index in Strands' own session
    of the first message that is still in the history; what stands before it, a summary and pinned messages, is kept
    in the manager's state. (Strands does not count pinned ones, and restores others in their place.)
    """

    def __init__(
        self,
        *,
        workspace: Offloader | str | os.PathLike[str] | None = None,
        session_id: str | None = None,
        pin_first: int | None = None,
        proactive_compression: bool | ProactiveCompressionConfig | None = None,
        counter: TokenCounter | None = None,
        config: ContextConfig | None = None,
    ) -> None:
        """Keep what leaves in *workspace*.

        Args:
            workspace: See `WorkspaceConversationManager`.
            session_id: See `WorkspaceConversationManager`.
            pin_first: So many of the first messages stay in the history for ever.
            proactive_compression: See `WorkspaceConversationManager`.
            counter: See `WorkspaceConversationManager`.
            config: What a summary looks like.

        Raises:
            ValueError: See `WorkspaceConversationManager`.
            TypeError: See `WorkspaceConversationManager`.
        """
        super().__init__(
            workspace=workspace,
            session_id=session_id,
            proactive_compression=proactive_compression,
            counter=counter,
        )
        self.pin_first = None if pin_first is None else max(0, pin_first)
        self.departures = Departures(self.offloader, self.counter, config or ContextConfig())
        self._projection = Projection()
        self._standing: NativeMessage | None = None
        self._pins: list[NativeMessage] = []
        self._pin_indexes: list[int] = []
        self._keeping: HistoryKeeping | None = None
        self._pinned: set[Key] = set()
        self._has_pinned_first = False
        self._is_foreign = False
        self._gains = Gains()
        self._settled_at: tuple[int, Key] | None = None

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Watch the model calls of an agent, and their answers."""
        super().register_hooks(registry, **kwargs)
        registry.add_callback(AfterModelCallEvent, self._after_model_call)

    def get_state(self) -> dict[str, Any]:
        """Return what another process needs to go on, as a JSON object (payloads of pinned messages apart)."""
        return {
            **super().get_state(),
            "summary_message": self._standing,
            "pinned_messages": list(self._pins),
            "workspace": {
                **self.departures.to_json(),
                **self._projection.to_json(),
                "pin_indexes": self._pin_indexes,
                "pinned": sorted(key for key in self._pinned if isinstance(key, str)),
                "has_pinned_first": self._has_pinned_first,
            },
        }

    def restore_from_session(self, state: dict[str, Any]) -> "list[StrandsMessage] | None":
        """Go on from what `get_state` gave, or that of Strands' manager of the same name.

        Returns:
            What stands in the history before the messages of the session: pinned ones and the summary; None where
            nothing does.

        Raises:
            ValueError: It is the state of another class.
        """
        super().restore_from_session(state)
        self._standing = state.get("summary_message")
        self._pins = list(state.get("pinned_messages") or [])
        kept = state.get("workspace")
        self._is_foreign = kept is None
        if kept is not None:
            self.departures.restore(kept)
            self._projection = projection_from(kept)
            self._pinned, self._pin_indexes = set(kept["pinned"]), list(kept["pin_indexes"])
            self._has_pinned_first = bool(kept["has_pinned_first"])
        head = [*self._pins, *([] if self._standing is None else [self._standing])]
        return cast("list[StrandsMessage]", head) or None

    def take_over(self) -> "list[StrandsMessage]":
        """Take the named session over from another process or framework, and return what `Agent(messages=…)` needs.

        Messages of another dialect are converted; what has no place in Strands' is logged. What is
        archived stays as it was written, and summary and pins go on.

        Raises:
            ConfigError: The manager has no *session_id* of its own, or no *workspace*.
            BuoylineError: See `buoyline.ContextWindow.resume`.
        """
        session_id = self._session_id
        if session_id is None:
            raise ConfigError("session_id", "the manager needs one to know which session to take over")
        if not self._has_workspace:
            raise ConfigError("workspace", "the manager needs the one that has the session")
        found = run_apart(lambda: hand_over(self.departures.offloader, session_id, DIALECT))
        self.departures.left, self.departures.summary = found.first, found.summary
        self._standing = None if found.summary is None else _standing(found.summary.text, None)
        # What a document lets stand for now, the user's newest words, would be nowhere in the history without a pin.
        again = [(int(kind.partition(":")[2]), native) for kind, native in found.head if kind.startswith(AGAIN)]
        standing = sorted([*found.pins, *again], key=lambda pin: pin[0])
        self._pins, self._pin_indexes = [pin for _, pin in standing], [index for index, _ in standing]
        self._pinned.update(map(durable_key, self._pins))
        head = [*self._pins, *([] if self._standing is None else [self._standing])]
        return cast("list[StrandsMessage]", [*head, *found.messages])

    def _use(self, offloader: Offloader) -> None:
        super()._use(offloader)
        self.departures.use(offloader)

    async def _stand_in(
        self, agent: "Agent", extent: MessageRange, place: ArchiveLocation, *, is_recovery: bool, max_tokens: int | None
    ) -> tuple[str, Summary | None]:
        """Return the text that stands for what leaves, empty for none, and the summary that it is.

        Args:
            agent: Whose history it is.
            extent: What leaves.
            place: Where it is.
            is_recovery: The provider has refused the history as it is.
            max_tokens: Of the text; None for any number.
        """
        raise NotImplementedError

    async def _before_model_call(self, event: BeforeModelCallEvent) -> None:
        await self._compress_ahead(event)
        await self._keep_history(event.agent)

    async def _compress_ahead(self, event: BeforeModelCallEvent) -> None:
        threshold = self._compression_threshold
        if threshold is None:
            return
        if await self._utilization(event.agent, event.projected_input_tokens) >= threshold:
            settled = _mark(history_of(event.agent))
            if settled == self._settled_at:
                return  # a retry: nothing was added since, and what could leave has left
            if await self._reduce_or_log(event.agent):
                self._settled_at = _mark(history_of(event.agent))

    async def _keep_history(self, agent: "Agent") -> None:
        try:
            keeping = await self._keeping_of(agent)
            standing = [head for head in (self._standing,) if head is not None and self.departures.summary is not None]
            kinds = ["pin" for _ in self._pins] + ["summary" for _ in standing]
            head = Head([*self._pins, *standing], kinds, self._pin_indexes, self.departures.left)
            await completed(
                keeping.keep(head, [message for message in history_of(agent) if not self._is_head(message)])
            )
        except FAILURES as failure:
            logger.warning("the history of %s is not written down: %s", self._session_of(agent), failure)

    async def _keeping_of(self, agent: "Agent") -> HistoryKeeping:
        session_id = self._session_of(agent)
        if self._keeping is None or self._keeping.session_id != session_id:
            self._keeping = HistoryKeeping(self.departures.abilities.windows, session_id)
        if self._keeping.is_open:
            return self._keeping
        settings = {
            "size": self._size_of(agent),
            "config": config_to_json(self.departures.config),
            "system": agent.system_prompt if isinstance(agent.system_prompt, str) else "",
            "tools": list(agent.tool_registry.get_all_tool_specs()),
            "dialect": DIALECT,
        }
        await self._keeping.open(settings)
        return self._keeping

    async def _after_model_call(self, event: AfterModelCallEvent) -> None:
        if event.stop_response is not None:
            self._gains.forget()

    async def _after_invocation(self, event: AfterInvocationEvent) -> None:
        self._gains.forget()
        await self._keep_history(event.agent)

    async def _utilization(self, agent: "Agent", projected: int | None) -> float:
        """Return the share of the window that the next call takes; *projected* is None if Strands could not tell."""
        count, tokens = self._count_for(agent), projected or 0
        try:
            if projected is None:
                tokens = await asyncio.to_thread(count, history_of(agent))
            else:
                tokens = await asyncio.to_thread(self._projection.tokens, history_of(agent), projected, count)
        except FAILURES as failure:
            logger.debug("the tokens of %s could not be estimated: %s", self._session_of(agent), failure)
        return agent.model.estimate_utilization(tokens)

    async def _tokens(self, messages: Sequence[NativeMessage]) -> int:
        return sum(await asyncio.to_thread(self.departures.counts, messages))

    def _is_head(self, message: NativeMessage) -> bool:
        """Return whether *message* stands in the history for what has left, or has left and stands again."""
        heads = self._pins if self._standing is None else [*self._pins, self._standing]
        return any(key_of(message) == key_of(head) for head in heads)

    def _pin(self, messages: Sequence[NativeMessage]) -> list[bool]:
        """Tell of each message whether it is pinned; the first time, pin the first ones."""
        if self.pin_first and not self._has_pinned_first:
            first = [message for message in messages if not self._is_head(message)][: self.pin_first]
            for message in first:
                message.setdefault("metadata", {}).setdefault("custom", {})["pinned"] = True
                self._pinned.add(durable_key(message))  # Strands' sessions keep a message as it was first added
            self._has_pinned_first = True
        return pinned(messages, self._pinned)

    async def _shrinking(self, agent: "Agent") -> Shrinking:
        session_id = self._session_of(agent)
        stubs = await self.departures.stubs_in(session_id, history_of(agent))
        return Shrinking(self.departures.offloader, session_id, self.departures.counter, stubs)

    async def _leave(
        self,
        agent: "Agent",
        cut: int,
        *,
        is_recovery: bool,
        shrunk: Mapping[int, NativeMessage] | None = None,
        max_tokens: int | None = None,
        is_silent: bool = False,
    ) -> None:
        """Let the oldest *cut* messages leave: archive, say what stands for them, and only then forget them.

        Args:
            agent: Whose history it is.
            cut: Number of messages, those included that stand for earlier ones, and pinned ones, which stand again.
            is_recovery: What stands for them has to be small.
            shrunk: What stands in the place of messages that stay, by their position.
            max_tokens: Of the whole history then; where it would take more, nothing is changed.
            is_silent: Nothing replaces them.

        Raises:
            ContextWindowOverflowException: There is nothing among them that could leave, or not enough.
            BuoylineError: It was refused; nothing is lost, and the history is as it was.
        """
        seen = list(history_of(agent))
        self._forget_what_was_taken_out(seen)
        flags = self._pin(seen)
        stays = [message for message, flag in zip(seen[:cut], flags, strict=False) if flag]
        leaving = [message for message in seen[:cut] if not self._is_head(message)]
        if len(stays) == cut or not leaving:
            raise ContextWindowOverflowException("nothing more may leave the conversation")
        await self._keep_history(agent)  # a session is begun before anything is archived into it
        # A summary that Strands' own manager wrote is no message of the session, and nowhere else.
        foreign = [] if self._standing is None or not self._is_foreign else [self._standing]
        extent, place = await completed(self.departures.archive(self._session_of(agent), [*foreign, *leaving]))
        kept = [(shrunk or {}).get(position, seen[position]) for position in range(cut, len(seen))]
        room = None if max_tokens is None else max(max_tokens - await self._tokens([*stays, *kept]), 0)
        text, summary = "", None
        if not is_silent:
            text, summary = await self._stand_in(agent, extent, place, is_recovery=is_recovery, max_tokens=room)
        standing = _standing(text, self._standing) if text else None
        left = [*stays, *([] if standing is None else [standing]), *kept]
        if max_tokens is not None and await self._tokens(left) > max_tokens:
            raise ContextWindowOverflowException("what would stand for the oldest messages is no smaller than they are")
        projection = await asyncio.to_thread(self._projection.outdated, seen, cut, self._count_for(agent))
        self._check_unchanged(agent, seen)
        known = {durable_key(pin): index for pin, index in zip(self._pins, self._pin_indexes, strict=True)}
        known |= {durable_key(message): extent.end - len(leaving) + place for place, message in enumerate(leaving)}
        history_of(agent)[:] = [*left, *history_of(agent)[len(seen) :]]
        self._pins, self._standing, self._is_foreign, self._projection = stays, standing, False, projection
        self._pin_indexes = [known[durable_key(message)] for message in stays]
        self._pinned.update(map(durable_key, stays))
        self.removed_message_count += len(leaving)
        self.departures.settle(extent, summary)
        logger.info("%d messages left the history of %s for %s", len(leaving), extent.session_id, place.reference)

    async def _replace(self, agent: "Agent", shrunk: Mapping[int, NativeMessage]) -> None:
        """Put *shrunk* messages in their places, by their position."""
        seen = list(history_of(agent))
        projection = await asyncio.to_thread(self._projection.outdated, seen, 0, self._count_for(agent))
        self._check_unchanged(agent, seen)
        self._projection = projection
        for position, message in shrunk.items():
            history_of(agent)[position] = message

    def _forget_what_was_taken_out(self, messages: Sequence[NativeMessage]) -> None:
        """Carry no summary on that is no longer in the history, such as after a graph has reset its agents."""
        standing = self._standing
        if standing is not None and all(key_of(message) != key_of(standing) for message in messages):
            self._standing, self.departures.summary, self._is_foreign = None, None, False

    def _count_for(self, agent: "Agent") -> Count:
        def count(messages: Sequence[NativeMessage]) -> int:
            counter, prompt = self.departures.counter, agent.system_prompt
            beside = count_tools(list(agent.tool_registry.get_all_tool_specs()), counter)
            beside += counter.count(prompt) if isinstance(prompt, str) else 0
            return beside + sum(self.departures.counts(messages))

        return count

    def _check_unchanged(self, agent: "Agent", seen: Sequence[NativeMessage]) -> None:
        now = history_of(agent)
        if len(now) < len(seen) or any(one is not other for one, other in zip(now, seen, strict=False)):
            raise StaleWindowError(
                self._session_of(agent),
                "the history was changed while it was made smaller",
                "it is as whoever changed it has left it; the next model call tries again",
            )


def _mark(messages: Sequence[NativeMessage]) -> tuple[int, Key] | None:
    return (len(messages), key_of(messages[-1])) if messages else None


def _standing(text: str, before: NativeMessage | None) -> NativeMessage:
    """Return a message of the user's that says *text*: the one that stood *before* where it says the same."""
    content = [{"text": text}]
    if before is not None and before.get("content") == content:
        return before
    return {"role": "user", "content": content, "tracking_id": str(uuid.uuid4())}
